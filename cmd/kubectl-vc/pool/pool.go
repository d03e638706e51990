// Package pool is the verbs that show super clusters, and let an operator look after them.
package pool

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
	"k8s.io/apimachinery/pkg/util/sets"
	nodeutil "k8s.io/component-helpers/node/util"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
	"github.com/superpool/superpool/cmd/kubectl-vc/holding"
	"github.com/superpool/superpool/cmd/kubectl-vc/text"
	"github.com/superpool/superpool/internal/page"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/simulation"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/superclusters"
)

// What a super cluster is, in column STATUS.
const (
	isReady          = "Ready"
	isNotReady       = "NotReady"
	isMissing        = "Missing" // something is reserved there, and there is no virtual Node
	isLost           = "lost"
	isCordoned       = "cordoned"
	isTainted        = "tainted"
	isDraining       = "draining"
	isDrained        = "Drained"
	isVersionSkew    = "VersionSkew"
	isOvercommitted  = "Overcommitted"
	isNotReplaceable = "NotReplaceable"
)

// poolReport is what pool prints for programs.
type poolReport struct {
	SuperClusters []Row `json:"superClusters"`
}

// Row is a super cluster, and who has what there.
type Row struct {
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
	Holdings []holding.Holding `json:"holdings,omitempty"`

	// Reserved is all that is reserved, of Allocatable.
	Reserved    slice.Amounts `json:"-"`
	Allocatable slice.Amounts `json:"-"`
}

// pool returns the command that shows super clusters.
func (c *verbs) pool() *cobra.Command {
	var format cli.Output
	command := c.OfSuperCluster(&cobra.Command{
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
- NotReplaceable: were it lost, something there would wait for room elsewhere

Figures are what is reserved of what is allocatable, rounded down; -o json and -o yaml have them exactly, of all resources, in
.superClusters[]: name, state (why it takes nothing new), status, messages, version, resources, free, namespaces, tenants, leaving,
and, where one is named, holdings.`,
		Example: "  kubectl vc pool\n  kubectl vc pool r1\n  kubectl vc pool -o wide",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			return c.showPool(command.Context(), args, format)
		},
	})
	format.AddTo(command)
	return command
}

func (c *verbs) showPool(ctx context.Context, args []string, format cli.Output) error {
	asked := ""
	for _, argument := range args {
		name, err := cli.SuperCluster(argument)
		if err != nil {
			return err //nolint:wrapcheck // it says what is wrong
		}
		asked = name
	}
	cluster, _, err := c.Connect()
	if err != nil {
		return err
	}
	var named map[string]string
	if len(args) > 0 {
		tenants, err := cli.VirtualClusters(ctx, cluster)
		if err != nil {
			return err
		}
		named = cli.RootsOf(tenants)
	}
	pool, err := c.Pool(ctx, cluster)
	if err != nil {
		return err //nolint:wrapcheck // it says what it did
	}
	all := Survey(pool, named)
	switch {
	case len(args) == 0 && len(all) == 0:
		return c.ShowNone(format, poolReport{SuperClusters: []Row{}}, noSuperClusters)
	case len(args) == 0:
		return c.Show(format, poolReport{SuperClusters: withoutHoldings(all)}, nodeNames(all), func(p *page.Page) { printPool(p, all, format == cli.OutputWide) })
	}
	at := slices.IndexFunc(all, func(one Row) bool { return one.Name == asked })
	if at < 0 {
		return noSuperCluster(asked)
	}
	one := all[at : at+1]
	return c.Show(format, poolReport{SuperClusters: one}, nodeNames(one), func(p *page.Page) { printSuperCluster(p, &one[0]) })
}

// noSuperClusters is said of an empty pool.
const noSuperClusters = "There are no super clusters: kubectl vc join makes one of a cluster"

// noSuperCluster is the error where there is none of a name.
func noSuperCluster(name string) error {
	return fmt.Errorf("there is no super cluster %s: kubectl vc pool", name)
}

func nodeNames(all []Row) (names []string) {
	for i := range all {
		names = append(names, "node/"+all[i].Name)
	}
	return names
}

func withoutHoldings(all []Row) []Row {
	short := slices.Clone(all)
	for i := range short {
		short[i].Holdings = nil
	}
	return short
}

// Survey returns all super clusters of a pool, sorted by name. named has the names of tenants by their root namespaces.
func Survey(pool *simulation.Pool, named map[string]string) []Row {
	nodes := map[string]*corev1.Node{}
	for _, node := range pool.Nodes {
		nodes[node.Name] = node
	}
	holdings := map[string][]holding.Holding{}
	for _, np := range pool.Placements {
		for i := range np.Status.Placements {
			part := &np.Status.Placements[i]
			if holding.Any(part) {
				holdings[part.Cluster] = append(holdings[part.Cluster], holding.Of(np, part, nodes[part.Cluster], named[np.Namespace]))
			}
		}
	}
	all := make([]Row, 0, len(nodes))
	for _, utilised := range simulation.Utilised(pool.Nodes, pool.Placements) {
		node := nodes[utilised.Name]
		if node == nil && len(holdings[utilised.Name]) == 0 {
			continue
		}
		all = append(all, superClusterOf(&utilised, node, holdings[utilised.Name]))
	}
	return all
}

func superClusterOf(utilised *simulation.SuperCluster, node *corev1.Node, holdings []holding.Holding) Row {
	one := Row{SuperCluster: *utilised, Holdings: holdings, Namespaces: len(holdings)}
	tenants, isLost := sets.New[string](), false
	for i := range holdings {
		h := &holdings[i]
		tenants.Insert(h.Key)
		one.Reserved = one.Reserved.Plus(h.Amounts)
		isLost = isLost || h.Reason == schedulerv1alpha1.LeavingLost
		if h.Reason != "" {
			one.Leaving++
		}
	}
	one.Tenants = len(tenants)
	if node != nil {
		one.Allocatable, one.Version = slice.Of(node.Status.Allocatable), node.Status.NodeInfo.KubeletVersion
	}
	one.Free = one.Allocatable.Minus(one.Reserved).String()
	one.Status, one.Messages = statusOf(node, isLost), messagesOf(node)
	return one
}

func nodeCondition(node *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	_, found := nodeutil.GetNodeCondition(&node.Status, kind)
	return found
}

func isTrue(condition *corev1.NodeCondition) bool {
	return condition != nil && condition.Status == corev1.ConditionTrue
}

func isFalse(condition *corev1.NodeCondition) bool {
	return condition != nil && condition.Status == corev1.ConditionFalse
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
		{isNotReplaceable, isFalse(nodeCondition(node, schedulerv1alpha1.NodeReplaceable))},
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
		case corev1.NodeReady, schedulerv1alpha1.NodeDrained, schedulerv1alpha1.NodeReplaceable:
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

// Share returns what is reserved of what there is, and how much that is of a hundred.
func Share(name corev1.ResourceName, reserved, all slice.Amounts) string {
	of := text.Brief(name, reserved[name]) + "/" + text.Brief(name, all[name])
	if all[name] == 0 {
		return of
	}
	return of + " " + percentText(slice.Percent(reserved[name], all[name]))
}

// isMain reports whether a resource has a column of its own.
func isMain(name corev1.ResourceName) bool {
	return name == corev1.ResourceCPU || name == corev1.ResourceMemory
}

// printPool prints a row for each super cluster.
func printPool(p *page.Page, all []Row, wide bool) {
	header := []string{"NAME", "STATUS", "CPU", "MEMORY", "FREE", "NAMESPACES", "TENANTS", "LEAVING"}
	if wide {
		header = append(header, "VERSION", "OTHER RESOURCES", "WHY NOTHING NEW")
	}
	p.Row(header...)
	for i := range all {
		one := &all[i]
		free := one.Allocatable.Minus(one.Reserved)
		row := []string{
			one.Name, strings.Join(one.Status, ","), Share(corev1.ResourceCPU, one.Reserved, one.Allocatable), Share(corev1.ResourceMemory, one.Reserved, one.Allocatable),
			text.Brief(corev1.ResourceCPU, free[corev1.ResourceCPU]) + " " + text.Brief(corev1.ResourceMemory, free[corev1.ResourceMemory]),
			strconv.Itoa(one.Namespaces), strconv.Itoa(one.Tenants), strconv.Itoa(one.Leaving),
		}
		if wide {
			row = append(row, cmp.Or(one.Version, "-"), cmp.Or(one.others(), "-"), cmp.Or(one.State, "-"))
		}
		p.Row(text.Cells(row...)...)
	}
}

// others returns what is reserved of resources without a column.
func (one *Row) others() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(one.Reserved.Plus(one.Allocatable))) {
		if !isMain(name) {
			parts = append(parts, string(name)+" "+Share(name, one.Reserved, one.Allocatable))
		}
	}
	return strings.Join(parts, ", ")
}

// printSuperCluster prints who has what in a super cluster, and what waits to leave it.
func printSuperCluster(p *page.Page, one *Row) {
	p.Line("Super cluster %s: %s", page.Printable(one.Name), page.Printable(strings.Join(append(slices.Clone(one.Status), nonEmpty(one.Version)...), ", ")))
	for _, message := range one.Messages {
		p.Line("  %s", text.Shortened(message, text.LongestText))
	}
	p.Line("")
	p.Row("RESOURCE", "RESERVED", "FREE")
	for _, name := range slices.Sorted(maps.Keys(one.Reserved.Plus(one.Allocatable))) {
		p.Row(text.Cells(string(name), Share(name, one.Reserved, one.Allocatable), text.Brief(name, one.Allocatable.Minus(one.Reserved)[name]))...)
	}
	p.Line("")
	if len(one.Holdings) == 0 {
		p.Line("Nothing is reserved there.")
		return
	}
	p.Row("TENANT", "NAMESPACE", "SLICES", "CPU", "MEMORY", "LEAVING")
	for i := range one.Holdings {
		h := &one.Holdings[i]
		p.Row(text.Cells(
			cmp.Or(h.Tenant, h.Key), h.Namespace, strconv.Itoa(int(h.Slices)),
			text.Brief(corev1.ResourceCPU, h.Amounts[corev1.ResourceCPU]), text.Brief(corev1.ResourceMemory, h.Amounts[corev1.ResourceMemory]), cmp.Or(string(h.Reason), "-"),
		)...)
	}
	for i := range one.Holdings {
		h := &one.Holdings[i]
		if h.Reason == "" {
			continue
		}
		p.Line("")
		p.Line("%s: %s is to leave (%s)", page.Printable(h.Name()), text.Amounts(h.Leaves), page.Printable(string(h.Reason)))
		p.Line("  %s", text.Shortened(h.Waits, text.LongestText))
	}
}

func nonEmpty(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}
}
