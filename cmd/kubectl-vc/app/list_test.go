package app

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
	"github.com/superpool/superpool/internal/simulation"
	"github.com/superpool/superpool/test/builders"
)

// TestList: rows of tenants, and what a program reads of them.
func TestList(t *testing.T) {
	t.Parallel()
	rows := tenantRows(tenantsOf(), placementsOf())
	wantGolden(t, "list.table", printed(t, func(page *simulation.Page) { printTenants(page, rows, false, false, today) }))
	wantGolden(t, "list.wide", printed(t, func(page *simulation.Page) { printTenants(page, rows, true, true, today) }))
	var out bytes.Buffer
	c := &cli{IOStreams: genericiooptions.IOStreams{Out: &out}}
	require.NoError(t, c.show(outputJSON, tenantList{Tenants: rows}, nil, nil))
	wantGolden(t, "list.json", out.String())

	var told bytes.Buffer
	out.Reset()
	c.ErrOut = &told
	require.NoError(t, c.showNone(outputWide, tenantList{Tenants: []tenantRow{}}, "none"))
	require.Empty(t, out.String())
	require.Equal(t, "none\n", told.String())
	require.NoError(t, c.showNone(outputYAML, tenantList{Tenants: []tenantRow{}}, "none"))
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
		"nobody has seen it":      {vc: tenant(nil), want: "Pending"},
		"imported, nobody has":    {vc: tenant(imported), want: "Pending"},
		"it is made":              {vc: tenant(nil, isNot("UpToDate", "Progressing", "")), want: "Progressing"},
		"it is not valid":         {vc: tenant(nil, isNot("UpToDate", "Invalid", ""), isNot("Ready", "Connecting", "")), want: "Invalid"},
		"the pool is to see it":   {vc: tenant(nil, is("UpToDate")), want: "Pending"},
		"it does not answer":      {vc: tenant(nil, is("UpToDate"), isNot("Ready", "Unreachable", "")), want: "Unreachable"},
		"it works":                {vc: tenant(nil, is("UpToDate"), is("Ready")), want: "Ready"},
		"imported, and works":     {vc: tenant(imported, is("Ready")), want: "Ready"},
		"it works, while changed": {vc: tenant(nil, isNot("UpToDate", "Progressing", ""), is("Ready")), want: "Ready,Progressing"},
		"it is being paused":      {vc: tenant(paused, isNot("Paused", "GivingBack", ""), is("Ready")), want: "Pausing"},
		"it is paused":            {vc: tenant(paused, is("Paused"), isNot("Ready", "Paused", "")), want: "Paused"},
		"it is being deleted":     {vc: tenant(func(vc *tenancyv1alpha1.VirtualCluster) { vc.DeletionTimestamp = ptr.To(metav1.Now()) }, is("Ready")), want: "Deleting"},
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
		[]bool{waits(whole), waits(lacks), waits(refused), waits(leaving(whole.DeepCopy(), schedulerv1alpha1.LeavingDrained, "cpu", "1")), waits(rests)})
}

// TestDescribe: the tree of a tenant, in which what waits is first, and no line is too wide.
func TestDescribe(t *testing.T) {
	t.Parallel()
	tenants, byTenant := tenantsOf(), map[string][]*schedulerv1alpha1.NamespacePlacement{}
	for _, np := range placementsOf() {
		byTenant[np.Namespace] = append(byTenant[np.Namespace], np)
	}
	for i := range tenants {
		vc := &tenants[i]
		tree := tenantTree(vc, byTenant[rootOf(vc)], today)
		for _, width := range []int{narrow, 120} {
			lines := tree.draw(drawing, width)
			for _, text := range lines {
				require.LessOrEqual(t, utf8.RuneCountInString(text), width, text)
				require.Equal(t, line(text), text)
			}
			wantGolden(t, fmt.Sprintf("describe.%s.%d", vc.Name, width), strings.Join(lines, "\n")+"\n")
		}
	}
	empty := tenantTree(&tenants[0], nil, today).draw(plain, narrow)
	require.Equal(t, "`- no namespace has a ResourceQuota with cpu or memory", empty[len(empty)-1])
	noise := tenant(paused, isNot("Paused", "GivingBack", "3 pods"), is("ServiceCIDRsOverlap"), isNot("VersionSkew", "", ""), is("EtcdReady"), isNot("BackedUp", "Failed", "no room"))
	var kinds []string
	for _, condition := range amiss(noise) {
		kinds = append(kinds, condition.Type)
	}
	require.Equal(t, []string{"BackedUp", "Paused", "ServiceCIDRsOverlap"}, kinds)
}
