// Package ui is the verb that shows a pool as a page in a browser on the same machine: what the other verbs say, by their own
// projections, while it changes.
package ui

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/net/netutil"

	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
	"github.com/superpool/superpool/cmd/kubectl-vc/forecast"
	"github.com/superpool/superpool/internal/simulation"
	"github.com/superpool/superpool/internal/slice"
)

// verbs is what the verbs of this package are methods of.
type verbs struct{ *cli.CLI }

// Commands returns the verbs.
func Commands(shared *cli.CLI) []*cobra.Command { return []*cobra.Command{(&verbs{shared}).ui()} }

// showing is what is shown, and where.
type showing struct {
	profiles forecast.Profiles
	port     uint16
	// from is a directory with the objects, "" for those of the meta cluster.
	from string
}

// ui returns the command.
func (c *verbs) ui() *cobra.Command {
	var s showing
	command := &cobra.Command{
		Use:   "ui",
		Short: "Show the pool as a page in a browser on this machine, while it changes",
		Long: `ui serves one page at 127.0.0.1, prints its address, and ends with Ctrl-C. The page has a bar for each super cluster, of slices that are
coloured and lettered by tenant, with headroom and what leaves; what waits and why; and all about a super cluster, a tenant and a namespace,
as kubectl vc pool, describe and explain say it. It tries in memory what a drain comes to, as kubectl vc drain --dry-run does, and writes
nothing. It follows changes, and works with a keyboard alone.

The page has your rights and no others: your kubeconfig must allow to list and watch nodes, namespaceplacements and virtualclusters of all
namespaces, and to list clusters.cluster.x-k8s.io for headroom. No other machine reaches it, and no other page: the address has a secret, so
give it to nobody. Where vc-scheduler has another configuration of the namespace scheduler than is shipped, name it.

With --from it shows objects of files, as kubectl vc simulate reads them, with VirtualClusters.`,
		Example: `  kubectl vc ui

  # A pool that somebody has sent
  kubectl get nodes,namespaceplacements,virtualclusters -A -o yaml >pool/meta.yaml
  kubectl vc ui --from pool`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return c.run(command.Context(), &s) },
	}
	command.Flags().Uint16Var(&s.port, "port", 0, "port of 127.0.0.1; default: any that is free")
	command.Flags().StringVar(&s.from, "from", "", "directory with the objects; default: those of the meta cluster")
	s.profiles.AddFlags(command.Flags())
	_ = command.MarkFlagDirname("from") // the flag is there
	return command
}

func (c *verbs) run(ctx context.Context, s *showing) error {
	cfg, err := s.profiles.Load()
	if err != nil {
		return err //nolint:wrapcheck // it names the flag
	}
	from, err := c.open(ctx, s.from)
	if err != nil {
		return err
	}
	hub := newHub(from)
	if err := hub.look(ctx); err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:"+strconv.Itoa(int(s.port)))
	if err != nil {
		return err //nolint:wrapcheck // it names the address
	}
	served := newServer(c.CLI, hub, cfg, listener.Addr(), rand.Text())
	_, _ = fmt.Fprintf(c.Out, "http://%s%s\n", listener.Addr(), served.path()) // nobody opens it who does not read it
	go hub.run(ctx)
	return serve(ctx, listener, served.handler())
}

// open returns the source of a directory, or the meta cluster.
func (c *verbs) open(ctx context.Context, directory string) (from source, err error) {
	if directory == "" {
		err = c.Doing("reading the meta cluster", func() error {
			from, err = watch(ctx, c.CLI)
			return err
		})
		return from, err //nolint:wrapcheck // it says what it did
	}
	size, err := slice.ParseDefault(slice.Shipped)
	if err != nil {
		return nil, fmt.Errorf("the default slice: %w", err)
	}
	pool, err := simulation.Read(os.DirFS(directory), size)
	if err != nil {
		return nil, fmt.Errorf("--from %s: %w", directory, err)
	}
	return &still{&facts{pool: pool, tenants: pool.Tenants}}, nil
}

// serve answers until ctx ends, and requests with it.
func serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	const header, idle = 5 * time.Second, time.Minute
	web := &http.Server{
		Handler: handler, ReadHeaderTimeout: header, IdleTimeout: idle, MaxHeaderBytes: 16 << 10, ErrorLog: log.New(io.Discard, "", 0),
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	defer context.AfterFunc(ctx, func() { _ = web.Close() })() // nothing that goes on writes anything
	if err := web.Serve(netutil.LimitListener(listener, mostConnections)); ctx.Err() == nil {
		return fmt.Errorf("serving the page: %w", err)
	}
	return nil
}
