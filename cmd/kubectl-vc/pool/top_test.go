package pool

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/page"
	"github.com/superpool/superpool/internal/simulation"
	"github.com/superpool/superpool/internal/superclusters"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/vctest"
)

// wantTop compares a table and what a program reads with files of testdata. No line of the table is wider than a terminal.
func wantTop(t *testing.T, name string, report any, print func(p *page.Page, wide bool)) {
	t.Helper()
	for ending, width := range map[string]int{".80": 80, ".160": 160} {
		table := vctest.Printed(t, func(p *page.Page) { print(p, width > 80) })
		for line := range strings.Lines(table) {
			require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), width, line)
		}
		vctest.Golden(t, name+ending, table)
	}
	var out bytes.Buffer
	require.NoError(t, page.JSON(&out, report))
	vctest.Golden(t, name+".json", out.String())
}

// TestTop: who has how much, for a person and for a program.
func TestTop(t *testing.T) {
	t.Parallel()
	pool := vctest.Pool()
	pool.Nodes[0].Annotations = map[string]string{superclusters.AnnotationClusterRef: "clusters/r1"}
	kept := map[string]map[corev1.ResourceName]string{"clusters/r1": {"cpu": "10%", "memory": "16Gi\x1b[2J"}}
	report := topOf(pool, kept, "")
	wantTop(t, "top", report, func(p *page.Page, wide bool) { report.print(p, true, wide) })
	unknown := vctest.Printed(t, func(p *page.Page) { topOf(pool, nil, "").print(p, false, false) })
	require.Contains(t, unknown, "?")
	pool.Nodes[1].Annotations = map[string]string{superclusters.AnnotationClusterRef: "clusters/r2"}
	kept["clusters/r2"] = nil // what its annotation says is invalid
	invalid := vctest.Printed(t, func(p *page.Page) { topOf(pool, kept, "").print(p, true, false) })
	require.Equal(t, 2, strings.Count(invalid, " ? "), invalid)

	tenants := topOfTenantsOf(pool, vctest.Tenants(), "")
	wantTop(t, "top.tenants", tenants, tenants.print)
}

// TestTopSorts: the fullest are first, or those by which it is asked.
func TestTopSorts(t *testing.T) {
	t.Parallel()
	pool := &simulation.Pool{
		Nodes: []*corev1.Node{vctest.SuperNode("r1"), vctest.SuperNode("r2"), vctest.SuperNode("r3")},
		Placements: []*schedulerv1alpha1.NamespacePlacement{
			builders.Placement("a", "cpu").Slice("cpu", "10").Quota("cpu", "10").Held("r2", 1, "cpu", "10").Obj(),
			builders.Placement("b", "memory").Slice("memory", "80Gi").Quota("memory", "80Gi").Held("r3", 1, "memory", "80Gi").Obj(),
		},
	}
	for sortBy, want := range map[string]string{"": "r3 r2 r1, b a", "cpu": "r2 r1 r3, a b", "memory": "r3 r1 r2, b a", "name": "r1 r2 r3, a b"} {
		var clusters, tenants []string
		for _, one := range topOf(pool, nil, sortBy).SuperClusters {
			clusters = append(clusters, one.Name)
		}
		for _, one := range topOfTenantsOf(pool, nil, sortBy).Tenants {
			tenants = append(tenants, one.Key)
		}
		require.Equal(t, want, strings.Join(clusters, " ")+", "+strings.Join(tenants, " "), sortBy)
	}
}

// TestHeadrooms: what is kept from tenants is what the annotation of each Cluster says, if it can be read.
func TestHeadrooms(t *testing.T) {
	t.Parallel()
	kind := schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: "v1beta2", Kind: "Cluster"}
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(kind, &unstructured.Unstructured{})
	scheme.AddKnownTypeWithName(kind.GroupVersion().WithKind("ClusterList"), &unstructured.UnstructuredList{})
	var clusters []client.Object
	for name, annotation := range map[string]string{"r1": `{"cpu":"10%"}`, "r2": "", "r3": "all", "r4": `{"cpu":"200%"}`} {
		cluster := &unstructured.Unstructured{}
		cluster.SetGroupVersionKind(kind)
		cluster.SetNamespace("clusters")
		cluster.SetName(name)
		cluster.SetAnnotations(map[string]string{schedulerv1alpha1.AnnotationHeadroom: annotation})
		clusters = append(clusters, cluster)
	}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{kind.GroupVersion()})
	mapper.Add(kind, meta.RESTScopeNamespace)
	kept, err := Headrooms(t.Context(), fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithObjects(clusters...).Build())
	require.NoError(t, err)
	require.Equal(t, map[string]map[corev1.ResourceName]string{"clusters/r1": {"cpu": "10%"}, "clusters/r2": {}, "clusters/r3": nil, "clusters/r4": nil}, kept)
	_, err = Headrooms(t.Context(), fake.NewClientBuilder().WithScheme(runtime.NewScheme()).Build())
	require.ErrorContains(t, err, "finding the kind Cluster: ")
}
