package cli

import (
	"context"
	"errors"

	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// DryRun is whether nothing is changed: none, client or server, as kubectl has it.
type DryRun string

// The values.
const (
	DryRunNone   DryRun = "none"
	DryRunClient DryRun = "client"
	DryRunServer DryRun = "server"
)

// AddFlags adds the flag of kubectl.
func (d *DryRun) AddFlags(flags *pflag.FlagSet) {
	*d = DryRunNone
	flags.Var(d, "dry-run", `"none"; "client": print what would be done; "server": have the API server check it, too`)
}

// String implements pflag.Value.
func (d *DryRun) String() string { return string(*d) }

// Set implements pflag.Value.
func (d *DryRun) Set(text string) error {
	switch DryRun(text) {
	case DryRunNone, DryRunClient, DryRunServer:
		*d = DryRun(text)
		return nil
	}
	return errors.New("give none, client or server")
}

// Type implements pflag.Value.
func (*DryRun) Type() string { return "none|client|server" }

// Suffix is what is said behind what was done.
func (d DryRun) Suffix() string {
	switch d {
	case DryRunClient:
		return " (dry run)"
	case DryRunServer:
		return " (server dry run)"
	case DryRunNone:
	}
	return ""
}

// Options are those of a Patch.
func (d DryRun) Options() []client.PatchOption {
	if d == DryRunServer {
		return []client.PatchOption{client.DryRunAll}
	}
	return nil
}

// Create creates an object, or has the API server check it, or does nothing.
func (d DryRun) Create(ctx context.Context, cluster client.Client, object client.Object) error {
	switch d {
	case DryRunNone:
		return cluster.Create(ctx, object) //nolint:wrapcheck // the caller says what it did
	case DryRunServer:
		return cluster.Create(ctx, object, client.DryRunAll) //nolint:wrapcheck // as above
	case DryRunClient:
	}
	return nil
}
