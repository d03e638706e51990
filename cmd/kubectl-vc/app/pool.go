package app

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/simulation"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/superclusters"
	"github.com/superpool/superpool/internal/tenancy"
)

// What a super cluster is, in column STATUS.
const (
	isReady         = "Ready"
	isNotReady      = "NotReady"
	isMissing       = "Missing" // something is reserved there, and there is no virtual Node
	isLost          = "lost"
	isCordoned      = "cordoned"
	isTainted       = "tainted"
	isDraining      = "draining"
	isDrained       = "Drained"
	isVersionSkew   = "VersionSkew"
	isOvercommitted = "Overcommitted"
)

// poolReport is what pool prints for programs.
type poolReport struct {
	SuperClusters []superCluster `json:"superClusters"`
}

// superCluster is a super cluster, and who has what there.
type superCluster struct {
	// SuperCluster has its name, why it takes nothing new, and how much of each resource is reserved.
	simulation.SuperCluster
	// Status begins with Ready, NotReady or Missing.
	Status []string `json:"status"`
	// Messages is what the conditions say that are not as they are in a super cluster that works.
	Messages []string `json:"messages,omitempty"`
	Version  string   `json:"version,omitempty"`
	// Free is what is not reserved, as cpu=4,memory=8Gi.
	Free string `json:"free"`
	// Namespaces is how many have something there, of how many Tenants, and of how many of them something is to leave.
	Namespaces int `json:"namespaces"`
	Tenants    int `json:"tenants"`
	Leaving    int `json:"leaving"`
	// Holdings is what namespaces have there, sorted by tenant and name. They are there where one super cluster is asked
	// about.
	Holdings []holding `json:"holdings,omitempty"`

	reserved, allocatable slice.Amounts
}

// holding is what a namespace has in a super cluster.
type holding struct {
	// Tenant is the VirtualCluster, as namespace/name, and Key its root namespace: that alone where there is none any more.
	Tenant    string `json:"tenant,omitempty"`
	Key       string `json:"key"`
	Namespace string `json:"namespace"`
	// Slices is how many stay, and Reserved all that is reserved, with what is to leave: Leaving, and why.
	Slices   int32                           `json:"slices"`
	Reserved string                          `json:"reserved"`
	Leaving  string                          `json:"leaving,omitempty"`
	Reason   schedulerv1alpha1.LeavingReason `json:"reason,omitempty"`
	Since    *metav1.Time                    `json:"since,omitempty"`
	// Waits is what it waits for.
	Waits string `json:"waits,omitempty"`

	reserved, leaving slice.Amounts
}

// of returns how the tenant and its namespace are named.
func (h *holding) of() string { return cmp.Or(h.Tenant, h.Key) + " " + h.Namespace }

// pool returns the command that shows super clusters.
func (c *cli) pool() *cobra.Command {
	var format output
	command := c.ofSuperCluster(&cobra.Command{
		Use:   "pool [SUPERCLUSTER]",
		Short: "Show how full super clusters are, or who has what in one of them and what is to leave it",
		Long: `pool shows super clusters, by their virtual Nodes in the meta cluster, and what NamespacePlacements have reserved there: your
kubeconfig must allow to list nodes and namespaceplacements, and virtualclusters where one super cluster is named. STATUS has Ready or
NotReady, and what else is so:

- cordoned: no new slice and no new pod goes there
- draining: what is there is to leave; Drained: nothing is left
- lost: it does not answer, and what namespaces have there is placed elsewhere
- tainted: an operator's taint keeps away who does not tolerate it
- VersionSkew: its version of Kubernetes is none that Superpool works with
- Overcommitted: more is reserved than it can hold

Figures are what is reserved of what is allocatable, rounded down; -o json and -o yaml have them exactly, of all resources, in
.superClusters[]: name, state (why it takes nothing new), status, messages, version, resources, free, namespaces, tenants, leaving,
and, where one is named, holdings.`,
		Example: "  kubectl vc pool\n  kubectl vc pool r1\n  kubectl vc pool -o wide",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			return c.showPool(command.Context(), args, format)
		},
	})
	format.addTo(command)
	return command
}

func (c *cli) showPool(ctx context.Context, args []string, format output) error {
	cluster, _, err := c.connect()
	if err != nil {
		return err
	}
	var named map[string]string
	if len(args) > 0 {
		tenants, err := virtualClusters(ctx, cluster)
		if err != nil {
			return err
		}
		named = rootsOf(tenants)
	}
	pool, err := simulation.Live(ctx, cluster)
	if err != nil {
		return err //nolint:wrapcheck // it says what it did
	}
	all := survey(pool, named)
	switch {
	case len(args) == 0 && len(all) == 0:
		return c.showNone(format, poolReport{SuperClusters: []superCluster{}}, "There are no super clusters: kubectl vc join makes one of a cluster")
	case len(args) == 0:
		return c.show(format, poolReport{SuperClusters: withoutHoldings(all)}, nodeNames(all), func(page *simulation.Page) { printPool(page, all, format == outputWide) })
	}
	at := slices.IndexFunc(all, func(one superCluster) bool { return one.Name == args[0] })
	if at < 0 {
		return noSuperCluster(args[0])
	}
	one := all[at : at+1]
	return c.show(format, poolReport{SuperClusters: one}, nodeNames(one), func(page *simulation.Page) { printSuperCluster(page, &one[0]) })
}

// noSuperCluster is the error where there is none of a name.
func noSuperCluster(name string) error {
	return fmt.Errorf("there is no super cluster %s: kubectl vc pool", name)
}

func nodeNames(all []superCluster) (names []string) {
	for i := range all {
		names = append(names, "node/"+all[i].Name)
	}
	return names
}

func withoutHoldings(all []superCluster) []superCluster {
	short := slices.Clone(all)
	for i := range short {
		short[i].Holdings = nil
	}
	return short
}

// virtualClusters returns all of them.
func virtualClusters(ctx context.Context, cluster client.Reader, options ...client.ListOption) ([]tenancyv1alpha1.VirtualCluster, error) {
	list := &tenancyv1alpha1.VirtualClusterList{}
	if err := cluster.List(ctx, list, options...); err != nil {
		return nil, fmt.Errorf("listing VirtualClusters: %w", err)
	}
	return list.Items, nil
}

// rootOf returns the root namespace of a tenant.
func rootOf(vc *tenancyv1alpha1.VirtualCluster) string {
	return cmp.Or(vc.Status.ClusterNamespace, tenancy.ClusterKey(vc))
}

// rootsOf returns the names of tenants by their root namespaces.
func rootsOf(tenants []tenancyv1alpha1.VirtualCluster) map[string]string {
	named := map[string]string{}
	for i := range tenants {
		named[rootOf(&tenants[i])] = client.ObjectKeyFromObject(&tenants[i]).String()
	}
	return named
}

// survey returns all super clusters of a pool, sorted by name. named has the names of tenants by their root namespaces.
func survey(pool *simulation.Pool, named map[string]string) []superCluster {
	nodes := map[string]*corev1.Node{}
	for _, node := range pool.Nodes {
		nodes[node.Name] = node
	}
	holdings := map[string][]holding{}
	for _, np := range pool.Placements {
		for i := range np.Status.Placements {
			part := &np.Status.Placements[i]
			if holds(part) {
				holdings[part.Cluster] = append(holdings[part.Cluster], holdingOf(np, part, nodes[part.Cluster], named[np.Namespace]))
			}
		}
	}
	all := make([]superCluster, 0, len(nodes))
	for _, utilised := range simulation.Utilised(pool.Nodes, pool.Placements) {
		node := nodes[utilised.Name]
		if node == nil && len(holdings[utilised.Name]) == 0 {
			continue
		}
		all = append(all, superClusterOf(&utilised, node, holdings[utilised.Name]))
	}
	return all
}

func superClusterOf(utilised *simulation.SuperCluster, node *corev1.Node, holdings []holding) superCluster {
	one := superCluster{SuperCluster: *utilised, Holdings: holdings, Namespaces: len(holdings)}
	tenants, isLost := sets.New[string](), false
	for i := range holdings {
		h := &holdings[i]
		tenants.Insert(h.Key)
		one.reserved = one.reserved.Plus(h.reserved)
		isLost = isLost || h.Reason == schedulerv1alpha1.LeavingLost
		if h.Reason != "" {
			one.Leaving++
		}
	}
	one.Tenants = len(tenants)
	if node != nil {
		one.allocatable, one.Version = slice.Of(node.Status.Allocatable), node.Status.NodeInfo.KubeletVersion
	}
	one.Free = one.allocatable.Minus(one.reserved).String()
	one.Status, one.Messages = statusOf(node, isLost), messagesOf(node)
	return one
}

// holds reports whether anything is reserved by a part of a placement.
func holds(part *schedulerv1alpha1.ClusterPlacement) bool {
	return part.Slices > 0 || !slice.Of(part.Reserved).IsZero()
}

func nodeCondition(node *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == kind {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

func isTrue(condition *corev1.NodeCondition) bool {
	return condition != nil && condition.Status == corev1.ConditionTrue
}

// statusOf returns what a super cluster is. leavesAsLost is whether something there leaves because it is lost.
func statusOf(node *corev1.Node, leavesAsLost bool) []string {
	if node == nil {
		return []string{isMissing}
	}
	ready, drained := isTrue(nodeCondition(node, corev1.NodeReady)), superclusters.NodeStateOf(node).Drained
	isEmpty := isTrue(nodeCondition(node, schedulerv1alpha1.NodeDrained))
	hasTaint := func(is func(corev1.Taint) bool) bool { return slices.ContainsFunc(node.Spec.Taints, is) }
	status := []string{isReady}
	if !ready {
		status[0] = isNotReady
	}
	for _, mark := range []struct {
		word string
		is   bool
	}{
		{isLost, !ready && (leavesAsLost || hasTaint(isOutOfService))},
		{isCordoned, node.Spec.Unschedulable},
		{isDraining, drained && !isEmpty},
		{isDrained, drained && isEmpty},
		{isTainted, hasTaint(keepsAway)},
		{isVersionSkew, isTrue(nodeCondition(node, schedulerv1alpha1.NodeVersionSkew))},
		{isOvercommitted, isTrue(nodeCondition(node, schedulerv1alpha1.NodeOvercommitted))},
	} {
		if mark.is {
			status = append(status, mark.word)
		}
	}
	return status
}

func isOutOfService(taint corev1.Taint) bool { return taint.Key == corev1.TaintNodeOutOfService }

// keepsAway reports whether a taint is an operator's that keeps new slices away, and drains nothing.
func keepsAway(taint corev1.Taint) bool {
	return taint.Effect == corev1.TaintEffectNoSchedule && placement.IsOperators(taint)
}

// messagesOf returns what conditions say that are not as they are in a super cluster that works.
func messagesOf(node *corev1.Node) (messages []string) {
	if node == nil {
		return nil
	}
	for i := range node.Status.Conditions {
		condition := &node.Status.Conditions[i]
		good := corev1.ConditionFalse
		switch condition.Type {
		case corev1.NodeReady, schedulerv1alpha1.NodeDrained:
			good = corev1.ConditionTrue
		case schedulerv1alpha1.NodeOvercommitted, schedulerv1alpha1.NodeVersionSkew:
		default:
			continue
		}
		if condition.Status != good {
			messages = append(messages, fmt.Sprintf("%s is %s, %s: %s", condition.Type, condition.Status, condition.Reason, condition.Message))
		}
	}
	slices.Sort(messages)
	return messages
}

// holdingOf returns what a namespace has in a super cluster. node is that of the super cluster, nil for none.
func holdingOf(np *schedulerv1alpha1.NamespacePlacement, part *schedulerv1alpha1.ClusterPlacement, node *corev1.Node, tenant string) holding {
	h := holding{
		Tenant: tenant, Key: np.Namespace, Namespace: np.Name, Slices: part.Slices,
		reserved: slice.Of(part.Reserved),
	}
	h.Reserved = h.reserved.String()
	if part.Leaving != nil {
		h.leaving, h.Reason, h.Since = slice.Of(part.Leaving.Reserved), part.Leaving.Reason, &part.Leaving.Since
		h.Leaving, h.Waits = h.leaving.String(), whyItStays(np, part.Leaving, node)
	}
	return h
}

// whyItStays returns what the part of a namespace waits for that is to leave a super cluster. node is that of the super
// cluster, nil where it is not known.
func whyItStays(np *schedulerv1alpha1.NamespacePlacement, leaving *schedulerv1alpha1.Leaving, node *corev1.Node) string {
	placed := meta.FindStatusCondition(np.Status.Conditions, schedulerv1alpha1.ConditionPlaced)
	isSpare := leaving.Reason == schedulerv1alpha1.LeavingShrunk || leaving.Reason == schedulerv1alpha1.LeavingReturned || leaving.Reason == schedulerv1alpha1.LeavingPaused
	switch {
	case leaving.Reason == schedulerv1alpha1.LeavingPreempted:
		return "it gives way to " + cmp.Or(leaving.For, "others") + " when its pods there have ended"
	case !isSpare && !placement.Displaced(np).IsZero() && placed != nil:
		return "it waits for room elsewhere: " + placed.Message
	case !isSpare && !placement.Displaced(np).IsZero():
		return "it waits for room elsewhere"
	case node == nil:
		return "it waits until nothing there uses it"
	case !isTrue(nodeCondition(node, corev1.NodeReady)):
		return "the super cluster does not show what is free there"
	}
	if drained := nodeCondition(node, schedulerv1alpha1.NodeDrained); drained != nil && drained.Reason == superclusters.ReasonVolumesStay {
		return "its volumes do not move: its tenant is to delete claims and snapshots"
	}
	return "it waits until its pods there have ended"
}

// share returns what is reserved of what there is, and how much that is of a hundred.
func share(name corev1.ResourceName, reserved, all slice.Amounts) string {
	text := brief(name, reserved[name]) + "/" + brief(name, all[name])
	if all[name] == 0 {
		return text
	}
	return fmt.Sprintf("%s %d%%", text, int64(float64(reserved[name])/float64(all[name])*100))
}

// isMain reports whether a resource has a column of its own.
func isMain(name corev1.ResourceName) bool {
	return name == corev1.ResourceCPU || name == corev1.ResourceMemory
}

// printPool prints a row for each super cluster.
func printPool(page *simulation.Page, all []superCluster, wide bool) {
	header := []string{"NAME", "STATUS", "CPU", "MEMORY", "FREE", "NAMESPACES", "TENANTS", "LEAVING"}
	if wide {
		header = append(header, "VERSION", "OTHER RESOURCES", "WHY NOTHING NEW")
	}
	page.Row(header...)
	for i := range all {
		one := &all[i]
		free := one.allocatable.Minus(one.reserved)
		row := []string{
			one.Name, strings.Join(one.Status, ","), share(corev1.ResourceCPU, one.reserved, one.allocatable), share(corev1.ResourceMemory, one.reserved, one.allocatable),
			brief(corev1.ResourceCPU, free[corev1.ResourceCPU]) + " " + brief(corev1.ResourceMemory, free[corev1.ResourceMemory]),
			strconv.Itoa(one.Namespaces), strconv.Itoa(one.Tenants), strconv.Itoa(one.Leaving),
		}
		if wide {
			row = append(row, cmp.Or(one.Version, "-"), cmp.Or(one.others(), "-"), cmp.Or(one.State, "-"))
		}
		page.Row(cells(row...)...)
	}
}

// others returns what is reserved of resources without a column.
func (one *superCluster) others() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(one.reserved.Plus(one.allocatable))) {
		if !isMain(name) {
			parts = append(parts, string(name)+" "+share(name, one.reserved, one.allocatable))
		}
	}
	return strings.Join(parts, ", ")
}

// printSuperCluster prints who has what in a super cluster, and what waits to leave it.
func printSuperCluster(page *simulation.Page, one *superCluster) {
	page.Line("Super cluster %s: %s", line(one.Name), line(strings.Join(append(slices.Clone(one.Status), nonEmpty(one.Version)...), ", ")))
	for _, message := range one.Messages {
		page.Line("  %s", shortened(message, longestText))
	}
	page.Line("")
	page.Row("RESOURCE", "RESERVED", "FREE")
	for _, name := range slices.Sorted(maps.Keys(one.reserved.Plus(one.allocatable))) {
		page.Row(cells(string(name), share(name, one.reserved, one.allocatable), brief(name, one.allocatable.Minus(one.reserved)[name]))...)
	}
	page.Line("")
	if len(one.Holdings) == 0 {
		page.Line("Nothing is reserved there.")
		return
	}
	page.Row("TENANT", "NAMESPACE", "SLICES", "CPU", "MEMORY", "LEAVING")
	for i := range one.Holdings {
		h := &one.Holdings[i]
		page.Row(cells(
			cmp.Or(h.Tenant, h.Key), h.Namespace, strconv.Itoa(int(h.Slices)),
			brief(corev1.ResourceCPU, h.reserved[corev1.ResourceCPU]), brief(corev1.ResourceMemory, h.reserved[corev1.ResourceMemory]), cmp.Or(string(h.Reason), "-"),
		)...)
	}
	for i := range one.Holdings {
		h := &one.Holdings[i]
		if h.Reason == "" {
			continue
		}
		page.Line("")
		page.Line("%s: %s is to leave (%s)", line(h.of()), amounts(h.leaving), line(string(h.Reason)))
		page.Line("  %s", shortened(h.Waits, longestText))
	}
}

func nonEmpty(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}
}
