package pool

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
	"github.com/superpool/superpool/cmd/kubectl-vc/text"
	"github.com/superpool/superpool/internal/page"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/simulation"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/superclusters"
	"github.com/superpool/superpool/internal/superclusters/usage"
)

// What top shows, and by what it sorts besides cpu and memory.
const (
	ofSuperClusters = "super-clusters"
	ofTenants       = "tenants"
	byName          = "name"
)

// together is how the row of all super clusters is named. It is no name of a Node.
const together = "ALL"

// topping is what top is asked.
type topping struct {
	format cli.Output
	sortBy string
}

// topOfPool is what top prints of super clusters for programs.
type topOfPool struct {
	SuperClusters []topSuperCluster `json:"superClusters"`
	// All is all of them together.
	All topSuperCluster `json:"all"`
}

// topSuperCluster is how full a super cluster is.
type topSuperCluster struct {
	Name string `json:"name"`
	// Slices is how many are placed there, without those that are to leave.
	Slices    int64         `json:"slices"`
	Resources []topResource `json:"resources"`

	allocatable, reserved, leaving, free slice.Amounts
	// kept is what is kept from tenants, and isUnclear is whether the annotation that says it is invalid.
	kept      map[corev1.ResourceName]string
	isUnclear bool
}

// topResource is how much of a resource there is in a super cluster, and who has it.
type topResource struct {
	Resource corev1.ResourceName `json:"resource"`
	// Allocatable is what tenants may have, and Headroom what is kept from them besides, as the Cluster's annotation says:
	// "" for nothing, or where that is not known.
	Allocatable string `json:"allocatable"`
	Headroom    string `json:"headroom,omitempty"`
	// Reserved is what slices hold, whether pods use it or not, with Leaving, which is to leave. Percent is Reserved of
	// Allocatable, rounded down, -1 where there is none.
	Reserved string `json:"reserved"`
	Percent  int64  `json:"percent"`
	Leaving  string `json:"leaving"`
	Free     string `json:"free"`
}

// topOfTenants is what top prints of tenants for programs.
type topOfTenants struct {
	Tenants []topTenant `json:"tenants"`

	// allocatable is what the pool has.
	allocatable slice.Amounts
}

// topTenant is what a tenant has of the pool.
type topTenant struct {
	// Tenant is the VirtualCluster, as namespace/name, and Key its root namespace: that alone where there is none any more.
	Tenant     string `json:"tenant,omitempty"`
	Key        string `json:"key"`
	Namespaces int    `json:"namespaces"`
	// Slices is how many its namespaces ask for, and PlacedSlices how many are placed.
	Slices       int64         `json:"slices"`
	PlacedSlices int64         `json:"placedSlices"`
	Resources    []topOfTenant `json:"resources"`

	quota, guaranteed, reserved, leaving slice.Amounts
}

// topOfTenant is how much a tenant has of a resource.
type topOfTenant struct {
	Resource corev1.ResourceName `json:"resource"`
	// Quota is what its namespaces may have together, and Guaranteed what its policy guarantees.
	Quota      string `json:"quota"`
	Guaranteed string `json:"guaranteed,omitempty"`
	// Reserved is what slices hold, with Leaving, which is to leave. PercentOfPool is Reserved of what the whole pool has,
	// rounded down, -1 where that is nothing.
	Reserved      string `json:"reserved"`
	PercentOfPool int64  `json:"percentOfPool"`
	Leaving       string `json:"leaving"`
}

// top returns the command that shows who has how much.
func (c *verbs) top() *cobra.Command {
	var t topping
	command := &cobra.Command{
		Use:   "top [super-clusters|tenants]",
		Short: "Show how much of super clusters is reserved, or how much each tenant has of the pool, the largest first",
		Long: `top shows figures of each super cluster, or of each tenant, and of all together. RESERVED is what slices hold that are placed there, whether
pods use it or not, and LEAVING what of that is to leave. What pods request or use is measured in super clusters, and the meta cluster does
not have it: kubectl vc exec NAME -- kubectl top pods asks a tenant.

ALLOCATABLE is what tenants may have of a super cluster. HEADROOM is kept from them besides, as annotation
scheduler.tenancy.x-k8s.io/headroom of the Cluster says it; it is "?" where that is invalid, and what it said before holds, and where your
kubeconfig does not allow to list clusters.cluster.x-k8s.io.
QUOTA is what the namespaces of a tenant may have together, and GUARANTEED what its TenantPolicy guarantees. % is what is reserved of what is
allocatable, there or in the whole pool. Your kubeconfig must allow to list nodes and namespaceplacements, and virtualclusters for tenants.

Figures are rounded down, and of cpu and memory; -o wide has those of all resources, and GUARANTEED. -o json and -o yaml have them exactly, in
.superClusters[] and .all, or in .tenants[].`,
		Example: "  kubectl vc top\n  kubectl vc top tenants --sort-by memory\n  kubectl vc top -o wide",
		Args: func(command *cobra.Command, args []string) error {
			if len(args) > 1 || cobra.OnlyValidArgs(command, args) != nil {
				return fmt.Errorf("give %s, which is the default, or %s", ofSuperClusters, ofTenants)
			}
			return nil
		},
		ValidArgs: []string{ofSuperClusters, ofTenants},
		RunE: func(command *cobra.Command, args []string) error {
			return c.runTop(command.Context(), len(args) > 0 && args[0] == ofTenants, &t)
		},
	}
	sorts := []string{string(corev1.ResourceCPU), string(corev1.ResourceMemory), byName}
	command.Flags().StringVar(&t.sortBy, "sort-by", "", "cpu, memory or name; default: that of cpu and memory of which more is reserved")
	t.format.AddTo(command, cli.OutputWide, cli.OutputJSON, cli.OutputYAML)
	_ = command.RegisterFlagCompletionFunc("sort-by", cobra.FixedCompletions(sorts, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	return command
}

func (c *verbs) runTop(ctx context.Context, tenants bool, t *topping) error {
	if !slices.Contains([]string{"", string(corev1.ResourceCPU), string(corev1.ResourceMemory), byName}, t.sortBy) {
		return fmt.Errorf("--sort-by: %q is none of cpu, memory, name", t.sortBy)
	}
	cluster, _, err := c.Connect()
	if err != nil {
		return err //nolint:wrapcheck // it says what it did
	}
	if tenants {
		return c.showTopOfTenants(ctx, cluster, t)
	}
	pool, err := c.Pool(ctx, cluster)
	if err != nil {
		return err //nolint:wrapcheck // as above
	}
	kept, err := Headrooms(ctx, cluster)
	if err != nil {
		_, _ = fmt.Fprintln(c.ErrOut, "what is kept from tenants is not known:", page.Printable(err.Error())) // nobody reads it who has closed it
	}
	report := topOf(pool, kept, t.sortBy)
	if len(report.SuperClusters) == 0 {
		return c.ShowNone(t.format, report, noSuperClusters) //nolint:wrapcheck // as above
	}
	isKnown, isWide := err == nil, t.format == cli.OutputWide
	return c.Show(t.format, report, nil, func(p *page.Page) { report.print(p, isKnown, isWide) }) //nolint:wrapcheck // as above
}

func (c *verbs) showTopOfTenants(ctx context.Context, cluster client.Reader, t *topping) error {
	tenants, err := cli.VirtualClusters(ctx, cluster)
	if err != nil {
		return err //nolint:wrapcheck // it says what it did
	}
	pool, err := c.Pool(ctx, cluster)
	if err != nil {
		return err //nolint:wrapcheck // as above
	}
	report := topOfTenantsOf(pool, tenants, t.sortBy)
	if len(report.Tenants) == 0 {
		return c.ShowNone(t.format, report, "There are no tenants: kubectl vc create") //nolint:wrapcheck // as above
	}
	return c.Show(t.format, report, nil, func(p *page.Page) { report.print(p, t.format == cli.OutputWide) }) //nolint:wrapcheck // as above
}

// Headrooms returns what is kept from tenants, by the namespace and name of each Cluster, as its annotation says it: nil
// where that is invalid, and what it said before holds, which vc-scheduler alone knows.
func Headrooms(ctx context.Context, cluster client.Client) (map[string]map[corev1.ResourceName]string, error) {
	mapping, err := cluster.RESTMapper().RESTMapping(schema.GroupKind{Group: "cluster.x-k8s.io", Kind: "Cluster"})
	if err != nil {
		return nil, fmt.Errorf("finding the kind Cluster: %w", err)
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(mapping.GroupVersionKind)
	if err := cluster.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing Clusters: %w", err)
	}
	kept := map[string]map[corev1.ResourceName]string{}
	for i := range list.Items {
		annotation, said := list.Items[i].Annotations[schedulerv1alpha1.AnnotationHeadroom], map[corev1.ResourceName]string{}
		if _, err := usage.ParseHeadroom(annotation); err != nil || annotation != "" && json.Unmarshal([]byte(annotation), &said) != nil {
			said = nil
		}
		kept[client.ObjectKeyFromObject(&list.Items[i]).String()] = said
	}
	return kept, nil
}

// topOf returns how full super clusters are, sorted. kept has what is kept from tenants, by Cluster.
func topOf(pool *simulation.Pool, kept map[string]map[corev1.ResourceName]string, sortBy string) *topOfPool {
	clusters := map[string]string{}
	for _, node := range pool.Nodes {
		clusters[node.Name] = node.Annotations[superclusters.AnnotationClusterRef]
	}
	report := &topOfPool{SuperClusters: []topSuperCluster{}, All: topSuperCluster{Name: together}}
	for _, found := range Survey(pool, nil) {
		said, isThere := kept[clusters[found.Name]]
		one := topSuperCluster{
			Name: found.Name, allocatable: found.Allocatable, reserved: found.Reserved, free: found.Allocatable.Minus(found.Reserved),
			kept: said, isUnclear: isThere && said == nil,
		}
		for i := range found.Holdings {
			one.Slices += int64(found.Holdings[i].Slices)
			one.leaving = one.leaving.Plus(found.Holdings[i].Leaves)
		}
		one.fill()
		report.SuperClusters = append(report.SuperClusters, one)
		report.All.Slices += one.Slices
		report.All.allocatable = report.All.allocatable.Plus(one.allocatable)
		report.All.reserved = report.All.reserved.Plus(one.reserved)
		report.All.leaving = report.All.leaving.Plus(one.leaving)
		report.All.free = report.All.free.Plus(one.free) // more is reserved in one than there is, perhaps
	}
	report.All.fill()
	slices.SortStableFunc(report.SuperClusters, func(a, b topSuperCluster) int {
		return cmp.Compare(weight(b.reserved, b.allocatable, sortBy), weight(a.reserved, a.allocatable, sortBy))
	})
	return report
}

// fill writes the figures for programs.
func (one *topSuperCluster) fill() {
	one.Resources = []topResource{}
	for _, name := range one.allocatable.Plus(one.reserved).Names() {
		one.Resources = append(one.Resources, topResource{
			Resource: name, Allocatable: exact(name, one.allocatable), Headroom: one.kept[name], Reserved: exact(name, one.reserved),
			Percent: slice.Percent(one.reserved[name], one.allocatable[name]), Leaving: exact(name, one.leaving), Free: exact(name, one.free),
		})
	}
}

// topOfTenantsOf returns what tenants have of a pool, sorted: those with a VirtualCluster, and others that have anything.
func topOfTenantsOf(pool *simulation.Pool, tenants []tenancyv1alpha1.VirtualCluster, sortBy string) *topOfTenants {
	byKey := map[string]*topTenant{}
	for key, name := range cli.RootsOf(tenants) {
		byKey[key] = &topTenant{Tenant: name, Key: key}
	}
	for _, np := range pool.Placements {
		one := byKey[np.Namespace]
		if one == nil {
			one = &topTenant{Key: np.Namespace}
			byKey[np.Namespace] = one
		}
		one.add(np)
	}
	allocatable := slice.Amounts{}
	for _, node := range pool.Nodes {
		allocatable = allocatable.Plus(slice.Of(node.Status.Allocatable))
	}
	report := &topOfTenants{Tenants: []topTenant{}, allocatable: allocatable}
	for _, key := range slices.SortedFunc(maps.Keys(byKey), func(a, b string) int {
		return cmp.Or(cmp.Compare(byKey[a].name(), byKey[b].name()), cmp.Compare(a, b))
	}) {
		one := byKey[key]
		one.fill(allocatable)
		report.Tenants = append(report.Tenants, *one)
	}
	slices.SortStableFunc(report.Tenants, func(a, b topTenant) int {
		return cmp.Compare(weight(b.reserved, allocatable, sortBy), weight(a.reserved, allocatable, sortBy))
	})
	return report
}

// name returns how a tenant is named.
func (one *topTenant) name() string { return cmp.Or(one.Tenant, one.Key) }

// add adds a namespace.
func (one *topTenant) add(np *schedulerv1alpha1.NamespacePlacement) {
	wanted, placed := placement.Slices(&np.Spec, np.Status.Placements)
	one.Namespaces++
	one.Slices += int64(wanted)
	one.PlacedSlices += int64(placed)
	one.quota = one.quota.Plus(slice.Of(np.Spec.Quota))
	one.guaranteed = slice.Of(np.Spec.Guaranteed) // that of the tenant's policy, which all its namespaces name
	one.reserved = one.reserved.Plus(placement.Reserved(np.Status.Placements))
	one.leaving = one.leaving.Plus(placement.Reserved(np.Status.Placements).Minus(placement.Staying(np.Status.Placements)))
}

// fill writes the figures for programs. allocatable is what the pool has.
func (one *topTenant) fill(allocatable slice.Amounts) {
	one.Resources = []topOfTenant{}
	for _, name := range one.quota.Plus(one.reserved).Plus(one.guaranteed).Names() {
		row := topOfTenant{
			Resource: name, Quota: exact(name, one.quota), Reserved: exact(name, one.reserved),
			PercentOfPool: slice.Percent(one.reserved[name], allocatable[name]), Leaving: exact(name, one.leaving),
		}
		if one.guaranteed[name] > 0 {
			row.Guaranteed = exact(name, one.guaranteed)
		}
		one.Resources = append(one.Resources, row)
	}
}

// exact returns an amount of a resource as Kubernetes prints it.
func exact(name corev1.ResourceName, of slice.Amounts) string {
	dimension := slice.DimensionOf(name)
	return dimension.Quantity(of[name]).String()
}

// weight returns by what rows are sorted: how much is reserved of what there is, and what is reserved where there is
// nothing first; 0 for an order by name.
func weight(reserved, allocatable slice.Amounts, sortBy string) (most float64) {
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if (sortBy == "" || sortBy == string(name)) && reserved[name] > 0 {
			most = max(most, float64(reserved[name])/float64(max(1, allocatable[name])))
		}
	}
	return most
}

// shown returns the resources that have a row.
func shown(of slice.Amounts, wide bool) []corev1.ResourceName {
	if wide {
		return of.Names()
	}
	return []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}
}

// percentText returns a percentage for a table.
func percentText(value int64) string {
	if value < 0 {
		return "-"
	}
	return strconv.FormatInt(value, 10) + "%"
}

// print prints the rows of super clusters. isKnown is whether what is kept from tenants is known.
func (report *topOfPool) print(p *page.Page, isKnown, wide bool) {
	p.Row("NAME", "SLICES", "RESOURCE", "ALLOCATABLE", "HEADROOM", "RESERVED", "%", "LEAVING", "FREE")
	for _, one := range append(slices.Clone(report.SuperClusters), report.All) {
		head := []string{one.Name, strconv.FormatInt(one.Slices, 10)}
		for _, resource := range shown(one.allocatable.Plus(one.reserved), wide) {
			headroom := cmp.Or(one.kept[resource], "-")
			switch {
			case one.Name == together:
				headroom = ""
			case !isKnown || one.isUnclear:
				headroom = "?"
			}
			brief := func(of slice.Amounts) string { return text.Brief(resource, of[resource]) }
			p.Row(text.Cells(append(head, string(resource), brief(one.allocatable), headroom, brief(one.reserved),
				percentText(slice.Percent(one.reserved[resource], one.allocatable[resource])), brief(one.leaving), brief(one.free))...)...)
			head = []string{"", ""}
		}
	}
}

// print prints the rows of tenants.
func (report *topOfTenants) print(p *page.Page, wide bool) {
	header := []string{"TENANT", "SLICES", "RESOURCE", "QUOTA", "RESERVED", "% OF POOL", "LEAVING"}
	if wide {
		header = append(header, "GUARANTEED", "NAMESPACES")
	}
	p.Row(header...)
	for i := range report.Tenants {
		one := &report.Tenants[i]
		head, namespaces := []string{one.name(), fmt.Sprintf("%d/%d", one.PlacedSlices, one.Slices)}, strconv.Itoa(one.Namespaces)
		for _, resource := range shown(one.quota.Plus(one.reserved).Plus(one.guaranteed), wide) {
			brief := func(of slice.Amounts) string { return text.Brief(resource, of[resource]) }
			row := append(head, string(resource), brief(one.quota), brief(one.reserved),
				percentText(slice.Percent(one.reserved[resource], report.allocatable[resource])), brief(one.leaving))
			if wide {
				row = append(row, brief(one.guaranteed), namespaces)
			}
			p.Row(text.Cells(row...)...)
			head, namespaces = []string{"", ""}, ""
		}
	}
}
