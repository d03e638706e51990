package pool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
	"github.com/superpool/superpool/internal/simulation"
	"github.com/superpool/superpool/internal/superclusters"
)

// rolling drains all super clusters, one by one, and runs a command while each is empty.
func (c *verbs) rolling(ctx context.Context, cluster client.Client, d *draining) error {
	list := &corev1.NodeList{}
	if err := cluster.List(ctx, list, client.HasLabels{schedulerv1alpha1.LabelVirtualNode}); err != nil {
		return fmt.Errorf("listing virtual Nodes: %w", err)
	}
	turns, left, err := turnsOf(list.Items, d.from)
	if err != nil {
		return err
	}
	for _, name := range left {
		_, _ = fmt.Fprintf(c.ErrOut, "super cluster %s is drained already, and is left alone: --from %s begins with it\n", name, name) // nobody reads it who has closed it
	}
	if d.dry != cli.DryRunNone {
		return c.rollingDry(ctx, cluster, turns, d)
	}
	for i, name := range turns {
		_, _ = fmt.Fprintf(c.ErrOut, "super cluster %s, %d of %d\n", name, i+1, len(turns)) // as above
		if next, err := c.maintain(ctx, cluster, name, turns[i+1:], d); err != nil {
			return fmt.Errorf("%w; %s", err, d.howToGoOn(next))
		}
	}
	return nil
}

// turnsOf returns which super clusters are drained in which order, beginning with from, and those that are left alone, as
// they are drained before.
func turnsOf(nodes []corev1.Node, from string) (turns, left []string, err error) {
	found := from == ""
	for i := range nodes {
		node := &nodes[i]
		found = found || node.Name == from
		switch {
		case node.Name < from:
		case node.Name != from && superclusters.NodeStateOf(node).Drained:
			left = append(left, node.Name)
		default:
			turns = append(turns, node.Name)
		}
	}
	slices.Sort(turns)
	slices.Sort(left)
	switch {
	case !found:
		return nil, nil, fmt.Errorf("--from: %w", noSuperCluster(from))
	case len(turns) == 0:
		return nil, left, errors.New("no super cluster is left to drain: kubectl vc pool")
	}
	return turns, left, nil
}

// maintain drains a super cluster, runs the command, and has it in use again. Where that fails it returns with which super
// cluster to go on, of it and those behind it, "" for none.
func (c *verbs) maintain(ctx context.Context, cluster client.Client, name string, behind []string, d *draining) (next string, err error) {
	following := ""
	if len(behind) > 0 {
		following = behind[0]
	}
	node, err := superClusterNode(ctx, cluster, name)
	if err != nil {
		return name, err
	}
	if at := slices.IndexFunc(node.Spec.Taints, drainsToo); at >= 0 {
		return name, fmt.Errorf("node/%s: %s", name, drainedToo(name, &node.Spec.Taints[at]))
	}
	switch err := c.drainOne(ctx, cluster, name, d); {
	case errors.Is(err, errDrainedByOthers):
		return following, err
	case err != nil:
		return name, err
	}
	if err := c.Start(append(os.Environ(), "SUPERCLUSTER="+name), []string{"sh", "-c", d.each}); err != nil {
		return name, fmt.Errorf("node/%s: the command of --each: %v; it stays drained: kubectl vc undrain %s has it in use again", name, err, name) //nolint:errorlint // its exit code is not ours
	}
	if ctx.Err() != nil { // a command may end well by a signal
		return name, fmt.Errorf("node/%s: %w; it stays drained: kubectl vc undrain %s has it in use again", name, ctx.Err(), name)
	}
	node, _, err = changeNode(ctx, cluster, name, cli.DryRunNone, wishUndrained)
	if err != nil {
		return name, err
	}
	c.did(name, "undrained", cli.DryRunNone)
	again := d.Waiting
	again.Until = "in use again"
	err = c.Await(ctx, "node/"+name, again, func(ctx context.Context) (cli.State, error) {
		_, now, err := lookAtNode(ctx, cluster, node, inUse)
		return now, err
	})
	if err != nil {
		return following, fmt.Errorf("%w; it is not drained any more", err)
	}
	return "", nil
}

// inUse is how far a super cluster is that is to be used again.
func inUse(node *corev1.Node) cli.State {
	ready, skewed := nodeCondition(node, corev1.NodeReady), nodeCondition(node, schedulerv1alpha1.NodeVersionSkew)
	switch at := slices.IndexFunc(node.Spec.Taints, drainsToo); {
	case at >= 0:
		return cli.State{Refused: true, Says: drainedToo(node.Name, &node.Spec.Taints[at])}
	case superclusters.NodeStateOf(node).Drained:
		return cli.State{Refused: true, Says: "somebody has drained it again"}
	case ready == nil:
		return cli.State{Says: "waiting for vc-scheduler: kubectl -n vc-manager get pods"}
	case ready.Status != corev1.ConditionTrue:
		return cli.State{Says: ready.Message}
	case isTrue(skewed): // the next one would leave for less
		return cli.State{Says: skewed.Message}
	case nodeCondition(node, schedulerv1alpha1.NodeDrained) != nil:
		return cli.State{Says: "waiting for vc-scheduler to see that it is not drained"}
	}
	return cli.State{Done: true, Says: "it is in use again"}
}

// howToGoOn says how to go on with a super cluster, "" for the end.
func (d *draining) howToGoOn(name string) string {
	if name == "" {
		return "no other super cluster is left"
	}
	return fmt.Sprintf("mend that, and go on: kubectl vc drain --all --one-by-one --from %s --each '%s'", name, strings.ReplaceAll(d.each, "'", `'\''`))
}

// rollingDry says what would come of each drain as the pool is now, and changes nothing.
func (c *verbs) rollingDry(ctx context.Context, cluster client.Client, turns []string, d *draining) error {
	var unfit error
	for _, name := range turns {
		_, _ = fmt.Fprintf(c.Out, "Super cluster %s:\n\n", name) // nobody reads it who has closed it
		err := c.drainDry(ctx, cluster, name, d)
		var does *simulation.DoesNotFit
		if err != nil && !errors.As(err, &does) {
			return err
		}
		if err != nil && unfit == nil {
			unfit = fmt.Errorf("super cluster %s: %w", name, err)
		}
		_, _ = fmt.Fprintln(c.Out) // as above
	}
	return unfit
}
