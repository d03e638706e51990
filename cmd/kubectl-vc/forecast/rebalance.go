package forecast

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
	"github.com/superpool/superpool/cmd/kubectl-vc/text"
	"github.com/superpool/superpool/internal/scheduling/rebalance"
)

// maxMoves bounds how many slices one rebalance moves, and usualMoves is how many it moves as a rule.
const maxMoves, usualMoves = 1000, 10

// rebalancing is how slices move.
type rebalancing struct {
	profiles Profiles
	format   cli.Output
	dry      cli.DryRun
	most     int32
}

// rebalance returns the command that moves unused slices.
func (c *verbs) rebalance() *cobra.Command {
	var r rebalancing
	command := &cobra.Command{
		Use:   "rebalance",
		Short: "Move slices of namespaces that no pods use into fuller super clusters, so that larger pieces are free elsewhere",
		Long: `rebalance reads the virtual Nodes and NamespacePlacements of the meta cluster, looks for slices that could be in super clusters which are
fuller, tries them in memory, and prints what moves and what is free then. With --dry-run that is all. Without it, it orders the moves, by
the annotation scheduler.tenancy.x-k8s.io/move of each NamespacePlacement. Your kubeconfig must allow to list nodes and
namespaceplacements, and to patch namespaceplacements.

The meta cluster does not say what pods use, so moves are found as if there were none. vc-scheduler looks again when it takes an order over:
it moves no slice that pods use, evicts nobody, moves no namespace more often than its TenantPolicy allows (scheduling.movesPerHour), and
none whose TenantPolicy says scheduling.movableFor: Nobody. It says what comes of an order in an Event on the namespace's ResourceQuota.`,
		Example: `  # What would move, and what would it gain?
  kubectl vc rebalance --dry-run

  # Move at most 20 slices
  kubectl vc rebalance --max-moves 20`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return c.runRebalance(command.Context(), &r) },
	}
	r.dry.AddFlags(command.Flags())
	command.Flags().Lookup("dry-run").NoOptDefVal = string(cli.DryRunClient) // --dry-run alone prints, too
	command.Flags().Int32Var(&r.most, "max-moves", usualMoves, fmt.Sprintf("how many slices move at most, up to %d", maxMoves))
	r.format.AddTo(command, cli.OutputJSON, cli.OutputYAML)
	r.profiles.AddFlags(command.Flags())
	return command
}

func (c *verbs) runRebalance(ctx context.Context, r *rebalancing) error {
	if r.most < 1 || r.most > maxMoves {
		return fmt.Errorf("--max-moves: %d is not between 1 and %d", r.most, maxMoves)
	}
	cfg, err := r.profiles.Load()
	if err != nil {
		return err
	}
	cluster, _, err := c.Connect()
	if err != nil {
		return err //nolint:wrapcheck // it says what it did
	}
	return c.move(ctx, cluster, cfg, r)
}

// move looks for moves, prints them, and orders them unless that is a dry run.
func (c *verbs) move(ctx context.Context, cluster client.Client, cfg *config.KubeSchedulerConfiguration, r *rebalancing) error {
	pool, err := c.Pool(ctx, cluster)
	if err != nil {
		return err //nolint:wrapcheck // as above
	}
	var plan *rebalance.Plan
	err = c.Doing(trying(pool), func() error {
		plan, err = rebalance.Find(quiet(ctx), cfg, pool, r.most, time.Now())
		return err //nolint:wrapcheck // it says what was looked for
	})
	if err != nil {
		return err //nolint:wrapcheck // as above
	}
	if err := c.Show(r.format, plan, nil, plan.Print); err != nil || r.dry == cli.DryRunClient || len(plan.Moves) == 0 {
		return err //nolint:wrapcheck // it says what failed
	}
	if err := plan.Order(ctx, cluster, r.dry.Options()...); err != nil {
		return err //nolint:wrapcheck // it names the namespace
	}
	_, _ = fmt.Fprintf(c.ErrOut, "%s ordered%s: vc-scheduler says in an Event of each namespace what comes of it\n", // nobody reads it who has closed it
		text.Count(len(plan.Moves), "move", "moves"), r.dry.Suffix())
	return nil
}
