package provision

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	vc "github.com/superpool/superpool/cmd/kubectl-vc/app"
	"github.com/superpool/superpool/cmd/vc-manager/app"
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(asCLI) != "":
		os.Exit(vc.Execute(context.Background(), genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}))
	case os.Getenv(asManager) == "":
		os.Exit(m.Run())
	}
	options := app.NewOptions()
	options.MetricsBindAddress, options.HealthProbeBindAddress, options.LeaderElect = "0", "0", false
	flags := pflag.NewFlagSet("vc-manager", pflag.ExitOnError)
	options.AddFlags(flags)
	err := flags.Parse(os.Args[1:])
	if err == nil {
		err = app.Run(context.Background(), options) // certificates that are not valid for an hour are not for others
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
