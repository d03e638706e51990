package tenant

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
	"github.com/superpool/superpool/cmd/kubectl-vc/holding"
	"github.com/superpool/superpool/cmd/kubectl-vc/text"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/simulation"
	"github.com/superpool/superpool/internal/slice"
)

// describe returns the command that shows a tenant.
func (c *verbs) describe() *cobra.Command {
	return c.OfTenant(&cobra.Command{
		Use:   "describe NAME",
		Short: "Show a tenant as a tree: its control plane, its namespaces, where they are, and what waits and why",
		Long: `describe shows what is not as it is to be of a tenant's control plane, what each of its namespaces has in which super cluster, and what
waits for room or is to leave. Your kubeconfig must allow to get virtualclusters, and to list namespaceplacements in the tenant's root
namespace. Lines are as long as the terminal, or have 80 characters.`,
		Example: "  kubectl vc describe acme",
		Args:    cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			return c.showTenant(command.Context(), args[0])
		},
	})
}

func (c *verbs) showTenant(ctx context.Context, name string) error {
	cluster, vc, err := c.Get(ctx, name)
	if err != nil {
		return err
	}
	placements, err := simulation.Placements(ctx, cluster, client.InNamespace(cli.RootOf(vc)))
	if err != nil {
		return err //nolint:wrapcheck // it says what it did
	}
	tree := strings.Join(tenantTree(vc, placements, time.Now()).Draw(text.StrokesOf(os.Getenv), c.Width()), "\n")
	_, err = fmt.Fprintln(c.Out, tree)
	return err //nolint:wrapcheck // it says what it did
}

// tenantTree returns all about a tenant.
func tenantTree(vc *tenancyv1alpha1.VirtualCluster, placements []*schedulerv1alpha1.NamespacePlacement, now time.Time) *text.Branch {
	tree := &text.Branch{Text: fmt.Sprintf("tenant %s of namespace %s: %s", vc.Name, vc.Namespace, strings.Join(tenantStatus(vc), ", "))}
	AddControlPlane(tree.Add("control plane"), vc, now)
	namespacesBranch(tree, placements)
	return tree
}

// AddControlPlane says what a control plane is, and what of it is not as it is to be.
func AddControlPlane(tree *text.Branch, vc *tenancyv1alpha1.VirtualCluster, now time.Time) {
	if vc.Spec.ClusterVersionName == "" {
		tree.Text += ": imported"
	}
	for _, row := range []struct{ name, value string }{
		{"endpoint", vc.Status.Endpoint},
		{"version", vc.Status.Version},
		{"ClusterVersion", vc.Spec.ClusterVersionName},
		{"certificates end", inTime(vc.Status.CertificatesExpire, now)},
		{"last backup", inTime(vc.Status.LastBackup, now)},
		{"policy", vc.Spec.PolicyName},
		{"root namespace", cli.RootOf(vc)},
	} {
		if row.value != "" {
			tree.Add(row.name + ": " + row.value)
		}
	}
	for _, condition := range amiss(vc) {
		tree.Add(fmt.Sprintf("%s is %s, %s: %s", condition.Type, condition.Status, condition.Reason, condition.Message))
	}
}

// inTime returns a time, and how far it is away.
func inTime(at *metav1.Time, now time.Time) string {
	if at == nil {
		return ""
	}
	text := at.UTC().Format(time.RFC3339)
	if at.After(now) {
		return fmt.Sprintf("%s, in %s", text, duration.HumanDuration(at.Sub(now)))
	}
	return fmt.Sprintf("%s, %s ago", text, duration.HumanDuration(now.Sub(at.Time)))
}

// whereTrue are conditions that are True where something is not as it is to be.
var whereTrue = []string{
	tenancyv1alpha1.ConditionServiceCIDRsOverlap, tenancyv1alpha1.ConditionServiceNodePortsOverlap, tenancyv1alpha1.ConditionVersionSkew, tenancyv1alpha1.ConditionPaused,
}

// amiss returns conditions of what is not as it is to be: those of parts in the order in which they are made, then others
// by name.
func amiss(vc *tenancyv1alpha1.VirtualCluster) []*metav1.Condition {
	order := append([]string{tenancyv1alpha1.ConditionReady, tenancyv1alpha1.ConditionUpToDate}, partConditions...)
	var others []string
	for i := range vc.Status.Conditions {
		if kind := vc.Status.Conditions[i].Type; !slices.Contains(order, kind) {
			others = append(others, kind)
		}
	}
	slices.Sort(others)
	var found []*metav1.Condition
	for _, kind := range append(order, others...) {
		condition := meta.FindStatusCondition(vc.Status.Conditions, kind)
		if condition == nil {
			continue
		}
		// a pause is said while it goes on, too
		if isTrue := condition.Status == metav1.ConditionTrue; isTrue == slices.Contains(whereTrue, kind) || kind == tenancyv1alpha1.ConditionPaused {
			found = append(found, condition)
		}
	}
	return found
}

// namespacesBranch says where namespaces are, and what waits: those that wait first.
func namespacesBranch(tree *text.Branch, placements []*schedulerv1alpha1.NamespacePlacement) {
	if len(placements) == 0 {
		tree.Add("no namespace has a ResourceQuota with cpu or memory")
		return
	}
	waiting, reserved, quota := 0, slice.Amounts{}, slice.Amounts{}
	for _, np := range placements {
		if Waits(np) {
			waiting++
		}
		reserved, quota = reserved.Plus(placement.Reserved(np.Status.Placements)), quota.Plus(slice.Of(np.Spec.Quota))
	}
	text := fmt.Sprintf("namespaces: %d", len(placements))
	switch {
	case waiting == 1:
		text += ", of which 1 waits"
	case waiting > 1:
		text += fmt.Sprintf(", of which %d wait", waiting)
	}
	text += fmt.Sprintf("; reserved of quotas: cpu %s, memory %s", of(corev1.ResourceCPU, reserved, quota), of(corev1.ResourceMemory, reserved, quota))
	all := tree.Add(text)
	for _, now := range []bool{true, false} {
		for _, np := range placements {
			if Waits(np) == now {
				AddNamespace(all, np)
			}
		}
	}
}

// AddNamespace says where a namespace is, and what it waits for.
func AddNamespace(tree *text.Branch, np *schedulerv1alpha1.NamespacePlacement) {
	wanted, placed := placement.Slices(&np.Spec, np.Status.Placements)
	namespace := tree.Add(fmt.Sprintf("%s: %d of %s, quota %s", np.Name, placed, text.Count(int(wanted), "slice", "slices"), text.Amounts(slice.Of(np.Spec.Quota))))
	for i := range np.Status.Placements {
		part := &np.Status.Placements[i]
		if !holding.Any(part) {
			continue
		}
		here := namespace.Add(fmt.Sprintf("%s: %s, %s", part.Cluster, text.Count(int(part.Slices), "slice", "slices"), text.Amounts(slice.Of(part.Reserved))))
		if part.Leaving != nil {
			here.Add(fmt.Sprintf("%s is to leave (%s): %s", text.Amounts(slice.Of(part.Leaving.Reserved)), part.Leaving.Reason, holding.WhyItStays(np, part.Leaving, nil)))
		}
	}
	for _, why := range WhyItWaits(np) {
		namespace.Add(why)
	}
}

// WhyItWaits returns why a namespace is not placed, or not accepted, as its conditions say it.
func WhyItWaits(np *schedulerv1alpha1.NamespacePlacement) (why []string) {
	for _, kind := range []string{schedulerv1alpha1.ConditionPlaced, schedulerv1alpha1.ConditionAccepted} {
		if condition := meta.FindStatusCondition(np.Status.Conditions, kind); condition != nil && condition.Status == metav1.ConditionFalse {
			why = append(why, fmt.Sprintf("%s: %s", condition.Reason, condition.Message))
		}
	}
	return why
}
