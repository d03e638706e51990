package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
	"github.com/superpool/superpool/cmd/kubectl-vc/forecast"
	"github.com/superpool/superpool/cmd/kubectl-vc/holding"
	"github.com/superpool/superpool/cmd/kubectl-vc/text"
	"github.com/superpool/superpool/internal/page"
	"github.com/superpool/superpool/internal/simulation"
	"github.com/superpool/superpool/internal/superclusters"
)

const (
	// drainTimeout is how long a drain takes at most, as a rule.
	drainTimeout = time.Hour
	// listPeriod is how often it is said what has not left, which takes a list of all NamespacePlacements, and mostListed of
	// how many namespaces.
	listPeriod, mostListed = 15 * time.Second, 10
)

// waitsForScheduler is said where vc-scheduler has not seen a change.
const waitsForScheduler = "waiting for vc-scheduler: kubectl -n vc-manager get pods"

// draining is how super clusters are drained.
type draining struct {
	cli.Waiting
	dry      cli.DryRun
	isSure   bool
	profiles forecast.Profiles
	// all, oneByOne, each and from are of a maintenance: see rolling.
	all, oneByOne bool
	each, from    string
}

// drain returns the command that drains super clusters.
func (c *verbs) drain() *cobra.Command {
	var d draining
	command := c.OfSuperCluster(&cobra.Command{
		Use:   "drain SUPERCLUSTER | --all --one-by-one --each COMMAND",
		Short: "Have all namespaces leave a super cluster, and wait until it is empty; or all super clusters, one by one",
		Long: `drain sets the taint maintenance=:NoExecute on the virtual Node of a super cluster: namespaces move elsewhere, one by one, each whole or not
at all. It waits until condition Drained of the Node is True, and says meanwhile what has not left and why. Where it ends before that the
super cluster goes on to be drained: drain again waits again, and undrain ends it.

Before it begins it tries in memory, as kubectl vc simulate --drain does, whether all fits elsewhere, and asks where something does
not, which would stay until there is room. With --dry-run it prints what would come of it, and ends with exit code 3 where something of
the super cluster does not. Name the configuration of the namespace scheduler where vc-scheduler has another one than is shipped.

With --all --one-by-one it does that with each super cluster in the order of their names: drain, run the COMMAND of --each by sh, with
SUPERCLUSTER in its environment, undrain, and wait until the super cluster is Ready, and of a version that Superpool works with. It
stops at what fails first, and leaves that super cluster as it is. Super clusters that are drained before it begins are left alone, but
for that of --from, and it stops where somebody else has drained the next one meanwhile.

Your kubeconfig must allow to get, list and patch nodes, and to list namespaceplacements.`,
		Example: `  kubectl vc drain r1 --dry-run=client
  kubectl vc drain r1 --timeout=2h
  kubectl vc drain --all --one-by-one --each './upgrade.sh $SUPERCLUSTER'`,
		Args: func(_ *cobra.Command, args []string) error { return d.check(args) },
		RunE: func(command *cobra.Command, args []string) error { return c.runDrain(command.Context(), args, &d) },
	})
	d.AddFlagsFor(command.Flags(), drainTimeout)
	d.dry.AddFlags(command.Flags())
	command.Flags().BoolVarP(&d.isSure, "yes", "y", false, "do not try what would come of it, and do not ask")
	d.profiles.AddFlags(command.Flags())
	command.Flags().BoolVar(&d.all, "all", false, "drain all super clusters: with --one-by-one and --each")
	command.Flags().BoolVar(&d.oneByOne, "one-by-one", false, "drain the next one when the one before is Ready again")
	command.Flags().StringVar(&d.each, "each", "", "command that sh runs while a super cluster is empty")
	command.Flags().StringVar(&d.from, "from", "", "super cluster to go on with, which may be drained")
	_ = command.RegisterFlagCompletionFunc("from", c.SuperClusters()) // the flag is there
	return command
}

// runDrain drains one super cluster, or all.
func (c *verbs) runDrain(ctx context.Context, args []string, d *draining) error {
	argument := d.from
	if len(args) > 0 {
		argument = args[0]
	}
	var name string
	var err error
	if argument != "" || !d.all {
		name, err = cli.SuperCluster(argument)
	}
	switch {
	case err != nil && d.all:
		return fmt.Errorf("--from: %w", err)
	case err != nil:
		return err //nolint:wrapcheck // it says what is wrong
	}
	cluster, _, err := c.Connect()
	if err != nil {
		return err //nolint:wrapcheck // it says what it did
	}
	if d.all {
		d.from = name
		return c.rolling(ctx, cluster, d)
	}
	return c.drainOne(ctx, cluster, name, d)
}

// check says what is wrong with the arguments.
func (d *draining) check(args []string) error {
	switch {
	case !d.all && (d.oneByOne || d.each != "" || d.from != ""):
		return errors.New("--one-by-one, --each and --from are of --all")
	case !d.all && len(args) != 1:
		return errors.New("give the name of one super cluster, or --all --one-by-one --each COMMAND: kubectl vc pool")
	case !d.all:
		return nil
	case len(args) > 0:
		return errors.New("--all is all super clusters: name none, or leave it out")
	case !d.oneByOne:
		return errors.New("what is drained at once has nowhere to go: give --one-by-one, too")
	case d.each == "" && d.dry == cli.DryRunNone:
		return errors.New("--each is missing: what is to be done while a super cluster is empty")
	case !d.Wait:
		return errors.New("the next one waits for the one before: leave --wait=false out")
	}
	return nil
}

// errDrainedByOthers is the error of a maintenance where a super cluster is drained that was not when it began.
var errDrainedByOthers = errors.New("somebody else has drained it meanwhile, and it is left alone")

// drainOne drains a super cluster and waits until it is empty, or says what would come of it.
func (c *verbs) drainOne(ctx context.Context, cluster client.Client, name string, d *draining) error {
	node, err := superClusterNode(ctx, cluster, name)
	if err != nil {
		return err
	}
	if d.dry != cli.DryRunNone {
		return c.drainDry(ctx, cluster, name, d)
	}
	if !d.isSure && !superclusters.NodeStateOf(node).Drained {
		report, err := c.simulated(ctx, cluster, &d.profiles, name)
		if err != nil {
			return fmt.Errorf("trying what would come of it: %w; --yes leaves that out", err)
		}
		if question := unfitting(report, name); question != "" {
			if err := c.Ask(ctx, question); err != nil {
				return err
			}
		}
	}
	node, changed, err := changeNode(ctx, cluster, name, cli.DryRunNone, wishDrained)
	switch {
	case err != nil:
		return err
	case d.all && !changed && name != d.from: // it is not to be undrained
		return fmt.Errorf("node/%s: %w", name, errDrainedByOthers)
	case !d.Wait:
		c.did(name, isDraining, cli.DryRunNone)
		return nil
	}
	if err := c.awaitDrained(ctx, cluster, node, d.Waiting); err != nil {
		return err
	}
	c.did(name, "drained", cli.DryRunNone)
	return nil
}

// wishDrained sets the taint of drain, unless it is there.
func wishDrained(node *corev1.Node) {
	if !slices.ContainsFunc(node.Spec.Taints, isMaintenance) {
		node.Spec.Taints = append(node.Spec.Taints, maintenance)
	}
}

// drainDry says what would come of a drain, and changes nothing.
func (c *verbs) drainDry(ctx context.Context, cluster client.Client, name string, d *draining) error {
	_, changed, err := changeNode(ctx, cluster, name, d.dry, wishDrained)
	if err != nil {
		return err
	}
	report, err := c.simulated(ctx, cluster, &d.profiles, name)
	if err != nil {
		return err
	}
	if err := c.Show(cli.OutputTable, nil, nil, report.Print); err != nil {
		return err //nolint:wrapcheck // it says what it did
	}
	past := "unchanged"
	if changed {
		past = "drained"
	}
	_, _ = fmt.Fprintln(c.Out) // as below
	c.did(name, past, d.dry)
	if stays, all := StaysIn(report, name); len(stays) > 0 {
		return &simulation.DoesNotFit{Namespaces: len(stays), All: all}
	}
	return nil
}

// simulated returns what would come of a pool if a super cluster of it were drained.
func (c *verbs) simulated(ctx context.Context, cluster client.Reader, profiles *forecast.Profiles, name string) (*simulation.Report, error) {
	cfg, err := profiles.Load()
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the flag
	}
	_, _ = fmt.Fprintf(c.ErrOut, "trying in memory what a drain of super cluster %s comes to\n", name) // nobody reads it who has closed it
	pool, err := c.Pool(ctx, cluster)
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what it did
	}
	if err := pool.Drain(name); err != nil {
		return nil, err //nolint:wrapcheck // as above
	}
	return forecast.Simulate(ctx, c.CLI, cfg, pool) //nolint:wrapcheck // as above
}

// StaysIn returns what would stay in a super cluster as it fits nowhere else, and how many namespaces have anything there.
// What waits to grow, or waits elsewhere, is none of it.
func StaysIn(report *simulation.Report, name string) (stays []*simulation.Namespace, all int) {
	for i := range report.Namespaces {
		of := &report.Namespaces[i]
		isThere := slices.Contains(of.Stays, name)
		if isThere {
			stays = append(stays, of)
		}
		if isThere || of.Before[name] > 0 {
			all++
		}
	}
	return stays, all
}

// unfitting returns a question about what is in a super cluster and fits nowhere else, "" where all does.
func unfitting(report *simulation.Report, name string) string {
	namespaces, _ := StaysIn(report, name)
	stays := make([]string, 0, len(namespaces))
	for _, of := range namespaces {
		stays = append(stays, fmt.Sprintf("%s/%s waits for %s: %s", of.Tenant, of.Name, of.Missing, of.Why))
	}
	if len(stays) == 0 {
		return ""
	}
	return fmt.Sprintf("%s of super cluster %s would not fit elsewhere, and stay there until there is room:\n  %s\nDrain super cluster %s?",
		text.Count(len(stays), "namespace", "namespaces"), page.Printable(name), strings.Join(listed(stays), "\n  "), page.Printable(name))
}

// listed returns the first of some lines, and how many there are besides.
func listed(lines []string) []string {
	short := make([]string, 0, mostListed+1)
	for _, one := range lines[:min(len(lines), mostListed)] {
		short = append(short, text.Shortened(one, text.LongestText))
	}
	if others := len(lines) - mostListed; others > 0 {
		short = append(short, fmt.Sprintf("and %d more", others))
	}
	return short
}

// awaitDrained waits until a super cluster is empty that is drained, and says what has not left.
func (c *verbs) awaitDrained(ctx context.Context, cluster client.Reader, wished *corev1.Node, w cli.Waiting) error {
	var told, doubted time.Time
	before, goesOn := "", true
	w.Until = "drained"
	err := c.Await(ctx, "node/"+wished.Name, w, func(ctx context.Context) (cli.State, error) {
		node, now, err := lookAtNode(ctx, cluster, wished, drainedSoFar)
		goesOn = !now.Refused
		if !now.Done {
			doubted = time.Time{}
		}
		switch {
		case err != nil || now.Refused, !now.Done && (now.Says == before || time.Since(told) < listPeriod):
			return now, err
		case now.Done && time.Since(doubted) < listPeriod:
			return cli.State{Says: waitsForScheduler}, nil
		}
		placements, err := simulation.Placements(ctx, cluster)
		if err != nil {
			return now, err //nolint:wrapcheck // it says what it did
		}
		stays := staying(node, placements)
		if now.Done && len(stays) > 0 { // it is the condition of the drain before
			doubted = time.Now()
			return cli.State{Says: waitsForScheduler}, nil
		}
		before, told = now.Says, time.Now()
		now.More = listed(stays)
		return now, nil
	})
	if err != nil && goesOn {
		return fmt.Errorf("%w; it goes on to be drained: kubectl vc pool %[2]s says what stays and why, kubectl vc drain %[2]s waits again, kubectl vc undrain %[2]s ends it", err, wished.Name)
	}
	return err
}

// lookAtNode returns a virtual Node as it is now, and how far it is. One that is gone, or is another one of that name, is
// refused.
func lookAtNode(ctx context.Context, cluster client.Reader, wished *corev1.Node, of func(*corev1.Node) cli.State) (*corev1.Node, cli.State, error) {
	node := &corev1.Node{}
	err := cluster.Get(ctx, client.ObjectKeyFromObject(wished), node)
	switch {
	case apierrors.IsNotFound(err), err == nil && node.UID != wished.UID:
		return nil, cli.State{Refused: true, Says: "it was deleted meanwhile"}, nil
	case err != nil:
		return nil, cli.State{}, err //nolint:wrapcheck // it says what it did
	}
	return node, of(node), nil
}

// drainedSoFar is how far a super cluster is that is to be drained.
func drainedSoFar(node *corev1.Node) cli.State {
	if !superclusters.NodeStateOf(node).Drained {
		return cli.State{Refused: true, Says: "somebody has undrained it"}
	}
	switch drained := nodeCondition(node, schedulerv1alpha1.NodeDrained); {
	case drained == nil:
		return cli.State{Says: waitsForScheduler}
	case drained.Status == corev1.ConditionTrue:
		return cli.State{Done: true, Says: drained.Message}
	default:
		return cli.State{Says: drained.Message}
	}
}

// staying returns what namespaces have in a super cluster, each with what it waits for.
func staying(node *corev1.Node, placements []*schedulerv1alpha1.NamespacePlacement) (stays []string) {
	for _, np := range placements {
		for i := range np.Status.Placements {
			part := &np.Status.Placements[i]
			if part.Cluster != node.Name || !holding.Any(part) {
				continue
			}
			h, waits := holding.Of(np, part, node, ""), "it is not to leave yet"
			if h.Reason != "" {
				waits = h.Waits
			}
			stays = append(stays, fmt.Sprintf("%s: %s: %s", types.NamespacedName{Namespace: np.Namespace, Name: np.Name}, text.Amounts(h.Amounts), waits))
		}
	}
	return stays
}
