package tenant

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
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
	"github.com/superpool/superpool/cmd/kubectl-vc/text"
	"github.com/superpool/superpool/internal/page"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slice"
)

// isReady is how STATUS begins of a tenant that the pool serves.
const isReady = "Ready"

// tenantList is what list prints for programs.
type tenantList struct {
	Tenants []Row `json:"tenants"`
}

// Row is a tenant, and what it has of the pool.
type Row struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Key is its root namespace in the meta cluster.
	Key string `json:"key"`
	// Version is that of Kubernetes of a control plane that vc-manager makes.
	Version string `json:"version,omitempty"`
	// Status is Ready, or why it is not, and what else is so.
	Status []string `json:"status"`
	// Namespaces is how many ask for something, of which Waiting wait for some of it.
	Namespaces int `json:"namespaces"`
	Waiting    int `json:"waiting"`
	// Reserved is what all its namespaces have, of their Quota.
	Reserved string      `json:"reserved"`
	Quota    string      `json:"quota"`
	Created  metav1.Time `json:"created"`
	policy   string

	reserved, quota slice.Amounts
}

// list returns the command that shows tenants.
func (c *verbs) list() *cobra.Command {
	var format cli.Output
	var all bool
	command := &cobra.Command{
		Use:   "list",
		Short: "Show tenants, and what they have of the pool",
		Long: `list shows the tenants of a namespace, or of all with -A: how many of their namespaces have all that they ask for, and what is reserved of
their quotas. WAITING is how many namespaces wait for something: kubectl vc describe NAME says for what. Your kubeconfig must allow to
list virtualclusters, and namespaceplacements of all namespaces.

Figures are rounded down; -o json and -o yaml have them exactly, in .tenants[]: namespace, name, key (its root namespace), version,
status, namespaces, waiting, reserved, quota, created.`,
		Example: "  kubectl vc list\n  kubectl vc list -A -o wide",
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return c.showTenants(command.Context(), all, format)
		},
	}
	format.AddTo(command)
	command.Flags().BoolVarP(&all, "all-namespaces", "A", false, "of all namespaces")
	return command
}

func (c *verbs) showTenants(ctx context.Context, all bool, format cli.Output) error {
	cluster, namespace, err := c.Connect()
	if err != nil {
		return err
	}
	var options []client.ListOption
	if !all {
		options = append(options, client.InNamespace(namespace))
	}
	tenants, err := cli.VirtualClusters(ctx, cluster, options...)
	if err != nil {
		return err
	}
	if len(tenants) == 0 {
		where := "There are no tenants: kubectl vc create"
		if !all {
			where = "There are no tenants in namespace " + namespace + ": kubectl vc list -A"
		}
		return c.ShowNone(format, tenantList{Tenants: []Row{}}, where)
	}
	placements, err := c.Placements(ctx, cluster)
	if err != nil {
		return err //nolint:wrapcheck // it says what it did
	}
	rows := Rows(tenants, placements)
	var names []string
	for i := range rows {
		names = append(names, cli.Resource+"/"+rows[i].Name)
	}
	return c.Show(format, tenantList{Tenants: rows}, names, func(p *page.Page) { printTenants(p, rows, all, format == cli.OutputWide, time.Now()) })
}

// Rows returns tenants sorted by namespace and name, with what they have by their namespaces' placements.
func Rows(tenants []tenancyv1alpha1.VirtualCluster, placements []*schedulerv1alpha1.NamespacePlacement) []Row {
	rows, at := make([]Row, len(tenants)), map[string]*Row{}
	for i := range tenants {
		vc := &tenants[i]
		rows[i] = Row{
			Namespace: vc.Namespace, Name: vc.Name, Key: cli.RootOf(vc), Version: vc.Status.Version, Status: tenantStatus(vc),
			Created: vc.CreationTimestamp, policy: vc.Spec.PolicyName,
		}
	}
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for i := range rows {
		at[rows[i].Key] = &rows[i]
	}
	for _, np := range placements {
		row := at[np.Namespace]
		if row == nil {
			continue
		}
		row.Namespaces++
		if Waits(np) {
			row.Waiting++
		}
		row.quota = row.quota.Plus(slice.Of(np.Spec.Quota))
		row.reserved = row.reserved.Plus(placement.Reserved(np.Status.Placements))
	}
	for i := range rows {
		rows[i].Reserved, rows[i].Quota = rows[i].reserved.String(), rows[i].quota.String()
	}
	return rows
}

// Waits reports whether a namespace waits for something, or asks for what is not accepted.
func Waits(np *schedulerv1alpha1.NamespacePlacement) bool {
	return !placement.Lacking(np).IsZero() || meta.IsStatusConditionFalse(np.Status.Conditions, schedulerv1alpha1.ConditionAccepted)
}

// tenantStatus returns what a tenant is: Ready, or why it is not, and what of its control plane is not as it is to be.
func tenantStatus(vc *tenancyv1alpha1.VirtualCluster) []string {
	switch {
	case vc.DeletionTimestamp != nil:
		return []string{tenancyv1alpha1.ReasonDeleting}
	case vc.Spec.Paused && meta.IsStatusConditionTrue(vc.Status.Conditions, tenancyv1alpha1.ConditionPaused):
		return []string{tenancyv1alpha1.ReasonPaused}
	case vc.Spec.Paused:
		return []string{"Pausing"}
	}
	ready := said(vc, tenancyv1alpha1.ConditionReady)
	isServed := ready != nil && ready.Status == metav1.ConditionTrue
	if vc.Spec.ClusterVersionName != "" {
		switch upToDate := said(vc, tenancyv1alpha1.ConditionUpToDate); {
		case upToDate == nil:
			return []string{"Pending"}
		case upToDate.Status != metav1.ConditionTrue && isServed:
			return []string{isReady, upToDate.Reason}
		case upToDate.Status != metav1.ConditionTrue:
			return []string{upToDate.Reason}
		}
	}
	switch {
	case isServed:
		return []string{isReady}
	case ready == nil:
		return []string{"Pending"}
	}
	return []string{ready.Reason}
}

// of returns an amount of what there may be, with "-" for no bound.
func of(name corev1.ResourceName, reserved, quota slice.Amounts) string {
	return text.Brief(name, reserved[name]) + "/" + text.Brief(name, quota[name])
}

// Brief returns what a tenant has of its quotas.
func (row *Row) Brief() string {
	return "cpu " + of(corev1.ResourceCPU, row.reserved, row.quota) + ", memory " + of(corev1.ResourceMemory, row.reserved, row.quota)
}

// printTenants prints a row for each tenant.
func printTenants(p *page.Page, rows []Row, all, wide bool, now time.Time) {
	header := []string{"NAME", "VERSION", "STATUS", "NAMESPACES", "CPU", "MEMORY", "WAITING", "AGE"}
	if all {
		header = slices.Insert(header, 0, "NAMESPACE")
	}
	if wide {
		header = append(header, "POLICY", "ROOT NAMESPACE")
	}
	p.Row(header...)
	for i := range rows {
		tenant := &rows[i]
		row := []string{
			tenant.Name, cmp.Or(tenant.Version, "-"), strings.Join(tenant.Status, ","), fmt.Sprintf("%d/%d", tenant.Namespaces-tenant.Waiting, tenant.Namespaces),
			of(corev1.ResourceCPU, tenant.reserved, tenant.quota), of(corev1.ResourceMemory, tenant.reserved, tenant.quota),
			strconv.Itoa(tenant.Waiting), duration.HumanDuration(now.Sub(tenant.Created.Time)),
		}
		if all {
			row = slices.Insert(row, 0, tenant.Namespace)
		}
		if wide {
			row = append(row, cmp.Or(tenant.policy, "-"), tenant.Key)
		}
		p.Row(text.Cells(row...)...)
	}
}
