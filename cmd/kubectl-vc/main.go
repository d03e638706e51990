// The command kubectl-vc is a plugin of kubectl: what a person does with the tenants of a pool.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/superpool/superpool/cmd/kubectl-vc/app"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM) //nolint:forbidigo // nobody calls it
	context.AfterFunc(ctx, stop)                                                             // the second one ends the process
	os.Exit(app.Execute(ctx, genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}))
}
