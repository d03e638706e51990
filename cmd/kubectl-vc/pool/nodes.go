package pool

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
	"github.com/superpool/superpool/internal/placement"
)

// maintenance is the taint that drain sets and undrain takes off. Those of other keys drain as well.
var maintenance = corev1.Taint{Key: "maintenance", Effect: corev1.TaintEffectNoExecute}

// fieldOwner is by whom the policy superpool-cordon (manifests/base) knows kubectl vc, and does not warn of what it says itself.
const fieldOwner = client.FieldOwner("kubectl-vc")

// nodeChange is a verb that changes the virtual Node of a super cluster, and nothing else.
type nodeChange struct {
	use, short, long, example string
	// past is what was done, as kubectl says it.
	past string
	wish func(node *corev1.Node)
	// not says why it is not so although it was wished for, "" where it is.
	not func(node *corev1.Node) string
}

// nodeChanges returns all of them.
func nodeChanges() []nodeChange {
	const rights = " Your kubeconfig must allow to get and patch nodes."
	return []nodeChange{
		{
			use: "cordon SUPERCLUSTER", short: "Let nothing new into a super cluster", past: "cordoned",
			long: `cordon marks the virtual Node of a super cluster as unschedulable: no new slice and no new pod goes there. What is placed there stays, and
its pods run on.` + rights,
			example: "  kubectl vc cordon r1",
			wish:    func(node *corev1.Node) { node.Spec.Unschedulable = true },
		},
		{
			use: "uncordon SUPERCLUSTER", short: "Let new slices and pods into a super cluster again", past: "uncordoned",
			long:    "uncordon lets new slices and pods into a super cluster that was cordoned. One that is drained stays drained." + rights,
			example: "  kubectl vc uncordon r1",
			wish:    func(node *corev1.Node) { node.Spec.Unschedulable = false },
		},
		{
			use: "undrain SUPERCLUSTER", short: "Drain a super cluster no more", past: "undrained",
			long:    "undrain takes the taint off that drain sets. What has not left stays, and nothing moves back." + rights,
			example: "  kubectl vc undrain r1",
			wish:    wishUndrained,
			not: func(node *corev1.Node) string {
				if at := slices.IndexFunc(node.Spec.Taints, drainsToo); at >= 0 {
					return drainedToo(node.Name, &node.Spec.Taints[at])
				}
				return ""
			},
		},
	}
}

// nodeChange returns the command of a change.
func (c *verbs) nodeChange(of *nodeChange) *cobra.Command {
	var dry cli.DryRun
	command := c.OfSuperCluster(&cobra.Command{
		Use: of.use, Short: of.short, Long: of.long, Example: of.example, Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			name, err := cli.SuperCluster(args[0])
			if err != nil {
				return err //nolint:wrapcheck // it says what is wrong
			}
			cluster, _, err := c.Connect()
			if err != nil {
				return err //nolint:wrapcheck // it says what it did
			}
			return c.changeOne(command.Context(), cluster, of, name, dry)
		},
	})
	dry.AddFlags(command.Flags())
	return command
}

// changeOne changes a super cluster, and says what was done.
func (c *verbs) changeOne(ctx context.Context, cluster client.Client, of *nodeChange, name string, dry cli.DryRun) error {
	node, changed, err := changeNode(ctx, cluster, name, dry, of.wish)
	if err != nil {
		return err
	}
	past := "unchanged"
	if changed {
		past = of.past
	}
	c.did(name, past, dry)
	if of.not != nil {
		if not := of.not(node); not != "" {
			return fmt.Errorf("node/%s: %s", name, not)
		}
	}
	return nil
}

// did says what was done to a super cluster.
func (c *verbs) did(name, past string, dry cli.DryRun) {
	_, _ = fmt.Fprintf(c.Out, "node/%s %s%s\n", name, past, dry.Suffix()) // nobody reads it who has closed it
}

// superClusterNode returns the virtual Node of a super cluster. A Node that is none is an error.
func superClusterNode(ctx context.Context, cluster client.Reader, name string) (*corev1.Node, error) {
	node := &corev1.Node{}
	err := cluster.Get(ctx, client.ObjectKey{Name: name}, node)
	switch {
	case apierrors.IsNotFound(err):
		return nil, noSuperCluster(name)
	case err != nil:
		return nil, fmt.Errorf("getting the virtual Node: %w", err)
	case node.Labels[schedulerv1alpha1.LabelVirtualNode] == "":
		return nil, fmt.Errorf("node/%s is a node of the meta cluster, and no super cluster: kubectl vc pool", name)
	}
	return node, nil
}

// changeNode changes the virtual Node of a super cluster, unless it is as wished already. Where somebody else changes it
// meanwhile, it is read and changed again.
func changeNode(ctx context.Context, cluster client.Client, name string, dry cli.DryRun, wish func(*corev1.Node)) (node *corev1.Node, changed bool, err error) {
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if node, err = superClusterNode(ctx, cluster, name); err != nil {
			return err
		}
		before := node.DeepCopy()
		wish(node)
		changed = !equality.Semantic.DeepEqual(before.Spec, node.Spec)
		if !changed || dry == cli.DryRunClient {
			return nil
		}
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		return cluster.Patch(ctx, node, patch, append(dry.Options(), fieldOwner)...) //nolint:wrapcheck // retry is to know it
	})
	if err != nil {
		return nil, false, fmt.Errorf("super cluster %s: %w", name, err)
	}
	return node, changed, nil
}

// isMaintenance reports whether a taint is the one that drain sets.
func isMaintenance(taint corev1.Taint) bool { return taint.MatchTaint(&maintenance) }

// wishUndrained takes the taint of drain off.
func wishUndrained(node *corev1.Node) {
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, isMaintenance)
}

// drainsToo reports whether a taint drains that drain has not set.
func drainsToo(taint corev1.Taint) bool { return placement.Drains(taint) && !isMaintenance(taint) }

// drainedToo says that a taint of somebody else drains a super cluster, and how it is taken off.
func drainedToo(name string, taint *corev1.Taint) string {
	return fmt.Sprintf("taint %[1]s drains it, too: kubectl taint node %[2]s %[1]s:NoExecute-", taint.Key, name)
}
