package tenant

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
	"github.com/superpool/superpool/cmd/kubectl-vc/text"
	"github.com/superpool/superpool/internal/page"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/vctest"
)

// TestList: rows of tenants, and what a program reads of them.
func TestList(t *testing.T) {
	t.Parallel()
	rows := Rows(vctest.Tenants(), vctest.Placements())
	vctest.Golden(t, "list.table", vctest.Printed(t, func(p *page.Page) { printTenants(p, rows, false, false, vctest.Today) }))
	vctest.Golden(t, "list.wide", vctest.Printed(t, func(p *page.Page) { printTenants(p, rows, true, true, vctest.Today) }))
	var out bytes.Buffer
	c := &verbs{&cli.CLI{IOStreams: genericiooptions.IOStreams{Out: &out}}}
	require.NoError(t, c.Show(cli.OutputJSON, tenantList{Tenants: rows}, nil, nil))
	vctest.Golden(t, "list.json", out.String())

	var told bytes.Buffer
	out.Reset()
	c.ErrOut = &told
	require.NoError(t, c.ShowNone(cli.OutputWide, tenantList{Tenants: []Row{}}, "none"))
	require.Empty(t, out.String())
	require.Equal(t, "none\n", told.String())
	require.NoError(t, c.ShowNone(cli.OutputYAML, tenantList{Tenants: []Row{}}, "none"))
	require.Equal(t, "tenants: []\n", out.String())
}

// TestStatusOfTenants: what STATUS says, by conditions.
func TestStatusOfTenants(t *testing.T) {
	t.Parallel()
	imported := func(vc *tenancyv1alpha1.VirtualCluster) { vc.Spec.ClusterVersionName = "" }
	for name, test := range map[string]struct {
		vc   *tenancyv1alpha1.VirtualCluster
		want string
	}{
		"nobody has seen it":      {vc: vctest.Tenant(nil), want: "Pending"},
		"imported, nobody has":    {vc: vctest.Tenant(imported), want: "Pending"},
		"it is made":              {vc: vctest.Tenant(nil, vctest.IsNot("UpToDate", "Progressing", "")), want: "Progressing"},
		"it is not valid":         {vc: vctest.Tenant(nil, vctest.IsNot("UpToDate", "Invalid", ""), vctest.IsNot("Ready", "Connecting", "")), want: "Invalid"},
		"the pool is to see it":   {vc: vctest.Tenant(nil, vctest.Is("UpToDate")), want: "Pending"},
		"it does not answer":      {vc: vctest.Tenant(nil, vctest.Is("UpToDate"), vctest.IsNot("Ready", "Unreachable", "")), want: "Unreachable"},
		"it works":                {vc: vctest.Tenant(nil, vctest.Is("UpToDate"), vctest.Is("Ready")), want: "Ready"},
		"imported, and works":     {vc: vctest.Tenant(imported, vctest.Is("Ready")), want: "Ready"},
		"it works, while changed": {vc: vctest.Tenant(nil, vctest.IsNot("UpToDate", "Progressing", ""), vctest.Is("Ready")), want: "Ready,Progressing"},
		"it is being paused":      {vc: vctest.Tenant(vctest.Paused, vctest.IsNot("Paused", "GivingBack", ""), vctest.Is("Ready")), want: "Pausing"},
		"it is paused":            {vc: vctest.Tenant(vctest.Paused, vctest.Is("Paused"), vctest.IsNot("Ready", "Paused", "")), want: "Paused"},
		"it is being deleted":     {vc: vctest.Tenant(func(vc *tenancyv1alpha1.VirtualCluster) { vc.DeletionTimestamp = ptr.To(metav1.Now()) }, vctest.Is("Ready")), want: "Deleting"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, strings.Join(tenantStatus(test.vc), ","))
		})
	}
}

// TestWaits: a namespace waits while something is missing, or what it asks for is not accepted, and not while it is paused.
func TestWaits(t *testing.T) {
	t.Parallel()
	whole := builders.Placement("a", "b").Slice("cpu", "1").Quota("cpu", "1").Held("r1", 1, "cpu", "1").Obj()
	lacks := builders.Placement("a", "b").Slice("cpu", "1").Quota("cpu", "2").Held("r1", 1, "cpu", "1").Obj()
	refused := whole.DeepCopy()
	refused.Status.Conditions = []metav1.Condition{{Type: schedulerv1alpha1.ConditionAccepted, Status: metav1.ConditionFalse}}
	rests := lacks.DeepCopy()
	rests.Spec.Paused = true
	require.Equal(t, []bool{false, true, true, true, false},
		[]bool{Waits(whole), Waits(lacks), Waits(refused), Waits(vctest.Leaving(whole.DeepCopy(), schedulerv1alpha1.LeavingDrained, "cpu", "1")), Waits(rests)})
}

// TestDescribe: the tree of a tenant, in which what waits is first, and no line is too wide.
func TestDescribe(t *testing.T) {
	t.Parallel()
	tenants, byTenant := vctest.Tenants(), map[string][]*schedulerv1alpha1.NamespacePlacement{}
	for _, np := range vctest.Placements() {
		byTenant[np.Namespace] = append(byTenant[np.Namespace], np)
	}
	for i := range tenants {
		vc := &tenants[i]
		tree := tenantTree(vc, byTenant[cli.RootOf(vc)], vctest.Today)
		for _, width := range []int{text.Narrow, 120} {
			lines := tree.Draw(text.Drawing, width)
			for _, one := range lines {
				require.LessOrEqual(t, utf8.RuneCountInString(one), width, one)
				require.Equal(t, page.Printable(one), one)
			}
			vctest.Golden(t, fmt.Sprintf("describe.%s.%d", vc.Name, width), strings.Join(lines, "\n")+"\n")
		}
	}
	empty := tenantTree(&tenants[0], nil, vctest.Today).Draw(text.Plain, text.Narrow)
	require.Equal(t, "`- no namespace has a ResourceQuota with cpu or memory", empty[len(empty)-1])
	noise := vctest.Tenant(vctest.Paused, vctest.IsNot("Paused", "GivingBack", "3 pods"), vctest.Is("ServiceCIDRsOverlap"), vctest.IsNot("VersionSkew", "", ""), vctest.Is("EtcdReady"), vctest.IsNot("BackedUp", "Failed", "no room"))
	var kinds []string
	for _, condition := range amiss(noise) {
		kinds = append(kinds, condition.Type)
	}
	require.Equal(t, []string{"BackedUp", "Paused", "ServiceCIDRsOverlap"}, kinds)
}
