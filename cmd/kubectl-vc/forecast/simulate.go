package forecast

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
	"github.com/superpool/superpool/internal/simulation"
	"github.com/superpool/superpool/internal/slice"
)

// simulating is what is simulated.
type simulating struct {
	profiles Profiles
	format   cli.Output
	// from is a directory with the objects, "" for those of the meta cluster.
	from string
	// size is the slice of namespaces of files that name none.
	size    string
	drained []string
}

// simulate returns the command that places everything in memory.
func (c *verbs) simulate() *cobra.Command {
	var s simulating
	command := &cobra.Command{
		Use:   "simulate",
		Short: "Place namespaces in memory, and print where they go, how full super clusters are, and what does not fit and why",
		Long: `simulate places what waits, and what is to leave super clusters that are drained, by the namespace scheduler's own code, and writes
nothing. Without --from it reads the virtual Nodes and NamespacePlacements of the meta cluster, which your kubeconfig must allow to list.
From the files of a directory it reads, one by one or in lists:

- virtual Nodes and NamespacePlacements, as "kubectl get nodes,nsp -A -o yaml" prints them for the meta cluster. A Node needs no more than
  a name, the label scheduler.tenancy.x-k8s.io/super-cluster and status.allocatable;
- Namespaces and ResourceQuotas of a tenant, from a directory that has the name of the tenant's root namespace, or any other name for a new
  tenant. They say what NamespacePlacements request, in place of what these say.

Files end in .yaml, .yml or .json. Priorities and weights of TenantPolicies are those in NamespacePlacements. What leaves a super cluster
stays reserved there until pods have left; what is placed in one that is cordoned or lost stays. Where vc-scheduler has another configuration
of the namespace scheduler than is shipped, name it, and with --from its --default-slice, too.

It exits with 0 if all fits, with 3 if something does not, and with 1 if it could not tell.`,
		Example: `  # What would move where, and what would not fit, if r1 were drained?
  kubectl vc simulate --drain r1

  # Would what waits fit if r1 were cordoned?
  mkdir pool && kubectl get nodes,namespaceplacements -A -o yaml >pool/meta.yaml
  $EDITOR pool/meta.yaml # set spec.unschedulable of Node r1
  kubectl vc simulate --from pool

  # What if a tenant raises its quotas?
  mkdir pool/tenant-a && $EDITOR pool/tenant-a/quotas.yaml
  kubectl vc simulate --from pool -o json`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return c.runSimulate(command.Context(), &s) },
	}
	command.Flags().StringVar(&s.from, "from", "", "directory with the objects; default: those of the meta cluster")
	command.Flags().StringSliceVar(&s.drained, "drain", nil, "super clusters to drain")
	command.Flags().StringVar(&s.size, "default-slice", slice.Shipped, "slice of namespaces in files that name none, as vc-scheduler has it of the flag of this name")
	s.format.AddTo(command, cli.OutputJSON, cli.OutputYAML)
	s.profiles.AddFlags(command.Flags())
	_ = command.RegisterFlagCompletionFunc("drain", c.SuperClusters()) // the flag is there
	_ = command.MarkFlagDirname("from")                                // as above
	return command
}

func (c *verbs) runSimulate(ctx context.Context, s *simulating) error {
	cfg, err := s.profiles.Load()
	if err != nil {
		return err
	}
	names := make([]string, len(s.drained))
	for i, argument := range s.drained {
		if names[i], err = cli.SuperCluster(argument); err != nil {
			return fmt.Errorf("--drain: %w", err)
		}
	}
	pool, err := c.poolOf(ctx, s)
	if err != nil {
		return err
	}
	if err := pool.Drain(names...); err != nil {
		return fmt.Errorf("--drain: %w", err)
	}
	report, err := Simulate(ctx, c.CLI, cfg, pool)
	if err != nil {
		return err
	}
	return errors.Join(c.Show(s.format, report, nil, report.Print), report.Err())
}

// poolOf reads the files of a directory, or the meta cluster where none is named.
func (c *verbs) poolOf(ctx context.Context, s *simulating) (*simulation.Pool, error) {
	size, err := slice.ParseDefault(s.size)
	if err != nil {
		return nil, fmt.Errorf("--default-slice: %w", err)
	}
	if s.from == "" {
		cluster, _, err := c.Connect()
		if err != nil {
			return nil, err //nolint:wrapcheck // it says what it did
		}
		return c.Pool(ctx, cluster) //nolint:wrapcheck // as above
	}
	pool, err := simulation.Read(os.DirFS(s.from), size)
	if err != nil {
		return nil, fmt.Errorf("--from %s: %w", s.from, err)
	}
	return pool, nil
}
