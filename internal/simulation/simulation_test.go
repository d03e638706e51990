package simulation_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/freenodes"
	"github.com/superpool/superpool/internal/kubescheduler"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/nodegroups"
	"github.com/superpool/superpool/internal/page"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/simulation"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/manifests/profiles"
	"github.com/superpool/superpool/test/builders"
)

var update = flag.Bool("update", false, "write the golden files")

// defaults is the slice size of namespaces that name none.
var defaults = slice.Of(builders.Resources("cpu", "2", "memory", "4Gi", "pods", "20"))

func profilesOf(t testing.TB) *config.KubeSchedulerConfiguration {
	t.Helper()
	cfg, err := kubescheduler.LoadConfig("", profiles.NamespaceScheduler)
	require.NoError(t, err)
	return cfg
}

// result is what is printed of what came out.
type result interface{ Print(p *page.Page) }

// printed returns a result as text whose lines are of that width.
func printed(t *testing.T, of result, width int) string {
	t.Helper()
	var out bytes.Buffer
	p := page.New(&out, width)
	of.Print(p)
	require.NoError(t, p.Flush())
	return out.String()
}

// wantPrinted compares what is printed of a result, for a person and for a program, with files of testdata.
func wantPrinted(t *testing.T, name string, of result) {
	t.Helper()
	wantGolden(t, name+".table", printed(t, of, 0))
	for _, width := range []int{80, 160} {
		wantGolden(t, fmt.Sprintf("%s.%d", name, width), printed(t, of, width))
	}
	var encoded bytes.Buffer
	require.NoError(t, page.JSON(&encoded, of))
	wantGolden(t, name+".json", encoded.String())
}

// wantGolden compares a text with a file of testdata: go test ./internal/simulation -update writes them.
func wantGolden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(string(want), got))
}

func TestSimulate(t *testing.T) {
	for range 6 { // equal inputs, equal outputs
		pool, err := simulation.Read(os.DirFS("testdata/pool"), defaults)
		require.NoError(t, err)
		report, err := simulation.Simulate(schedulertest.Context(t), profilesOf(t), pool)
		require.NoError(t, err)
		wantPrinted(t, "pool", report)
		require.EqualError(t, report.Err(), "2 of 5 namespaces do not fit")
	}
}

// TestSimulateADrain: what fits elsewhere moves, and what does not stays as a whole and says why.
func TestSimulateADrain(t *testing.T) {
	node := func(name, cpu string) *corev1.Node {
		node := builders.Node(name).Label(schedulerv1alpha1.LabelVirtualNode, name).Obj()
		node.Status.Allocatable = builders.Resources("cpu", cpu)
		return node
	}
	web := builders.Placement("tenant-a", "web").Quota("cpu", "2").Slice("cpu", "1").Held("r1", 1, "cpu", "1").Held("r2", 1, "cpu", "1").Obj()
	large := builders.Placement("tenant-b", "large").Quota("cpu", "6").Slice("cpu", "3").Held("r1", 2, "cpu", "6").Obj()
	pool := &simulation.Pool{Nodes: []*corev1.Node{node("r1", "8"), node("r2", "4")}, Placements: []*schedulerv1alpha1.NamespacePlacement{web, large}}
	require.EqualError(t, pool.Drain("r1", "r3"), "there is no super cluster r3")
	report, err := simulation.Simulate(schedulertest.Context(t), profilesOf(t), pool)
	require.NoError(t, err)
	require.EqualError(t, report.Err(), "1 of 2 namespaces does not fit")
	require.Equal(t, simulation.Moves, report.Namespaces[0].Change)
	require.Equal(t, map[string]int32{"r2": 2}, report.Namespaces[0].Placements)
	require.Equal(t, simulation.Waits, report.Namespaces[1].Change)
	require.Equal(t, map[string]int32{"r1": 2}, report.Namespaces[1].Placements)
	require.Equal(t, []string{"r1"}, report.Namespaces[1].Stays)
	require.Equal(t, "cpu=6", report.Namespaces[1].Missing)
	require.NotEmpty(t, report.Namespaces[1].Why)
	require.Empty(t, web.Status.Placements[0].Leaving, "the pool is not changed")
}

// TestSimulateADrainOfWhatGrows: what leaves moves though there is no room to grow, and what has begun to leave stays until
// there is.
func TestSimulateADrainOfWhatGrows(t *testing.T) {
	node := func(name, cpu string) *corev1.Node {
		node := builders.Node(name).Label(schedulerv1alpha1.LabelVirtualNode, name).Obj()
		node.Status.Allocatable = builders.Resources("cpu", cpu)
		return node
	}
	grows := builders.Placement("tenant-a", "grows").Quota("cpu", "9").Slice("cpu", "1").Held("r1", 2, "cpu", "2").Obj()
	leaves := builders.Placement("tenant-b", "leaves").Quota("cpu", "6").Slice("cpu", "3").Held("r1", 0, "cpu", "6").Obj()
	leaves.Status.Placements[0].Leaving = &schedulerv1alpha1.Leaving{Reserved: builders.Resources("cpu", "6"), Reason: schedulerv1alpha1.LeavingDrained}
	leaves.Status.Displaced = &schedulerv1alpha1.Displaced{Resources: builders.Resources("cpu", "6")}
	pool := &simulation.Pool{Nodes: []*corev1.Node{node("r1", "20"), node("r2", "4")}, Placements: []*schedulerv1alpha1.NamespacePlacement{grows, leaves}}
	require.NoError(t, pool.Drain("r1"))
	report, err := simulation.Simulate(schedulertest.Context(t), profilesOf(t), pool)
	require.NoError(t, err)
	require.Equal(t, simulation.Waits, report.Namespaces[0].Change)
	require.Equal(t, map[string]int32{"r2": 2}, report.Namespaces[0].Placements)
	require.Empty(t, report.Namespaces[0].Stays)
	require.Equal(t, "cpu=7", report.Namespaces[0].Missing)
	require.Equal(t, simulation.Waits, report.Namespaces[1].Change)
	require.Equal(t, []string{"r1"}, report.Namespaces[1].Stays)
}

func TestSimulateOfAnEmptyPool(t *testing.T) {
	pool, err := simulation.Read(fstest.MapFS{"a.yaml": {Data: []byte(quotaOf("web", "1"))}}, defaults)
	require.NoError(t, err)
	report, err := simulation.Simulate(schedulertest.Context(t), profilesOf(t), pool)
	require.NoError(t, err)
	require.Equal(t, "the pool has no super cluster", report.Namespaces[0].Why)
	require.EqualError(t, report.Err(), "1 of 1 namespaces does not fit")
	var unfit *simulation.DoesNotFit
	require.ErrorAs(t, report.Err(), &unfit)
	require.Equal(t, 3, unfit.ExitCode())
}

func TestSimulateRefusesUnknownProfiles(t *testing.T) {
	np := builders.Placement("tenant-a", "web").Quota("cpu", "1").Obj()
	np.Spec.SchedulerName = "packing"
	_, err := simulation.Simulate(schedulertest.Context(t), profilesOf(t), &simulation.Pool{Placements: []*schedulerv1alpha1.NamespacePlacement{np}})
	require.EqualError(t, err, `namespace tenant-a/web names profile "packing", and there are ["namespace-scheduler" "pack" "spread"]`)
}

// TestSimulateAChoice: a Namespace's annotation says where it may go, and a refusal is in the words of all others.
func TestSimulateAChoice(t *testing.T) {
	node := func(name, region string) string {
		return fmt.Sprintf("---\napiVersion: v1\nkind: Node\nmetadata: {name: %s, labels: {scheduler.tenancy.x-k8s.io/super-cluster: %[1]s, "+
			"topology.kubernetes.io/region: %s}}\nstatus: {allocatable: {cpu: 4, memory: 80Gi, pods: 100}}\n", name, region)
	}
	namespace := func(name, choice string) string {
		return fmt.Sprintf("---\napiVersion: v1\nkind: Namespace\nmetadata: {name: %s, annotations: {scheduler.tenancy.x-k8s.io/cluster-choice: '%s'}}\n---\n",
			name, choice) + quotaOf(name, "4")
	}
	pool, err := simulation.Read(fstest.MapFS{"a.yaml": {Data: []byte(node("r1", "eu") + node("r2", "us") +
		namespace("american", `{"nodeSelector":{"topology.kubernetes.io/region":"us"}}`) +
		namespace("asian", `{"nodeSelector":{"topology.kubernetes.io/region":"asia"}}`) +
		namespace("wrong", `{"nodeSelectors":{}}`))}}, defaults)
	require.NoError(t, err)
	report, err := simulation.Simulate(schedulertest.Context(t), profilesOf(t), pool)
	require.NoError(t, err)
	var got []string
	for _, namespace := range report.Namespaces {
		got = append(got, fmt.Sprint(namespace.Name, namespace.Placements, namespace.Why))
	}
	require.Len(t, got, 3)
	require.Equal(t, []string{
		"americanmap[r2:2]", "asianmap[]0/2 super clusters are available: 2 do not match the namespace's node selector",
	}, got[:2])
	require.Contains(t, got[2], `wrongmap[]InvalidChoice: Annotation scheduler.tenancy.x-k8s.io/cluster-choice: it is no JSON object`)
}

func quotaOf(namespace, cpu string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ResourceQuota\nmetadata: {namespace: %s, name: q}\nspec: {hard: {requests.cpu: %q}}\n", namespace, cpu)
}

func TestRead(t *testing.T) {
	t.Parallel()
	const (
		node      = "apiVersion: v1\nkind: Node\nmetadata: {name: r1, labels: {scheduler.tenancy.x-k8s.io/super-cluster: r1}}\n"
		placement = "apiVersion: scheduler.tenancy.x-k8s.io/v1alpha1\nkind: NamespacePlacement\nmetadata: {namespace: a, name: web}\n" +
			"spec: {namespaceUID: x, quota: {cpu: 1, memory: 2Gi, pods: 10}, priority: 7}\n"
	)
	for name, tc := range map[string]struct {
		files map[string]string
		// want lists nodes and namespaces with what they request.
		want    []string
		wantErr string
	}{
		"documents":        {files: map[string]string{"a.yaml": "# only this\n---\n" + node + "---\n" + placement}, want: []string{"r1", "a/web cpu=1,memory=2Gi,pods=10"}},
		"a list":           {files: map[string]string{"a.yml": "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Node, metadata: {name: r1, labels: {scheduler.tenancy.x-k8s.io/super-cluster: r1}}}\n- {kind: Secret, apiVersion: v1}\n"}, want: []string{"r1"}},
		"a list of a kind": {files: map[string]string{"a.json": `{"apiVersion":"v1","kind":"NodeList","items":[{"metadata":{"name":"r1","labels":{"scheduler.tenancy.x-k8s.io/super-cluster":"r1"}}}]}`}, want: []string{"r1"}},
		"a Node that stands for no super cluster": {files: map[string]string{"a.yaml": "apiVersion: v1\nkind: Node\nmetadata: {name: node}\n"}},
		"directories are tenants": {
			files: map[string]string{"b/x/q.yaml": quotaOf("web", "2"), "c/q.yaml": quotaOf("web", "4"), "q.yaml": quotaOf("web", "6")},
			want:  []string{"b/web cpu=2,memory=4Gi,pods=20", "c/web cpu=4,memory=8Gi,pods=40", "tenant/web cpu=6,memory=12Gi,pods=60"},
		},
		"a quota in place of what a NamespacePlacement requests": {
			files: map[string]string{"meta.yaml": placement, "a/q.yaml": quotaOf("web", "2")}, want: []string{"a/web cpu=2,memory=4Gi,pods=20"},
		},
		"a namespace without quota": {files: map[string]string{"meta.yaml": placement, "a/ns.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: web}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: other}\n"}, want: []string{"a/web "}},
		"UIDs that end like numbers": {
			files: map[string]string{"a/ns.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: web, uid: 8d30917d-8337-458b-9014-7c25a3e435527}\n", "meta.yaml": placement}, want: []string{"a/web "},
		},
		"nothing":              {files: map[string]string{"README.md": "hello"}, wantErr: "reading objects: no file ends in .yaml, .yml or .json"},
		"no YAML":              {files: map[string]string{"x/a.yaml": node + "---\nkind: {\n"}, wantErr: "reading objects: x/a.yaml, document 2: "},
		"a key twice":          {files: map[string]string{"a.yaml": "kind: A\nkind: B\n"}, wantErr: `reading objects: a.yaml, document 1: `},
		"no object":            {files: map[string]string{"a.yaml": "- 1\n"}, wantErr: "reading objects: a.yaml, document 1: it is no object"},
		"no kind":              {files: map[string]string{"a.yaml": "a: 1\n"}, wantErr: "reading objects: a.yaml, document 1: it has no kind"},
		"no kind in a list":    {files: map[string]string{"a.yaml": "kind: List\nitems: [{a: 1}]\n"}, wantErr: "reading objects: a.yaml, document 1: item 1: it has no kind"},
		"a list in a list":     {files: map[string]string{"a.yaml": "kind: List\nitems: [{kind: List, items: []}]\n"}, wantErr: "reading objects: a.yaml, document 1: item 1: it is a list in a list"},
		"no name":              {files: map[string]string{"a.yaml": "apiVersion: v1\nkind: Namespace\n"}, wantErr: "reading objects: a.yaml, document 1: a tenant tenant: Namespace has no name"},
		"no quantity":          {files: map[string]string{"a.yaml": quotaOf("web", "many")}, wantErr: "reading objects: a.yaml, document 1: decoding a tenant tenant: ResourceQuota: "},
		"a monstrous quantity": {files: map[string]string{"a.yaml": quotaOf("web", "1e999999999")}, wantErr: `reading objects: a.yaml, document 1: "1e999999999"}... is no number of a pool`},
		"the same twice": {
			files: map[string]string{"a.yaml": node, "b.yaml": placement + "---\n" + node}, wantErr: "reading objects: b.yaml, document 2: Node r1 is in a.yaml, document 1, too",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := fstest.MapFS{}
			for name, text := range tc.files {
				files[name] = &fstest.MapFile{Data: []byte(text)}
			}
			pool, err := simulation.Read(files, defaults)
			if tc.wantErr != "" {
				require.ErrorContains(t, err, tc.wantErr)
				return
			}
			require.NoError(t, err)
			var got []string
			for _, node := range pool.Nodes {
				got = append(got, node.Name)
			}
			for _, np := range pool.Placements {
				got = append(got, fmt.Sprintf("%s %s", client.ObjectKeyFromObject(np), slice.Of(np.Spec.Quota)))
			}
			require.Equal(t, tc.want, got)
		})
	}
}

// TestReadKeepsWhatIsHeld: a quota changes what is requested, and neither where the namespace is nor its turn.
func TestReadKeepsWhatIsHeld(t *testing.T) {
	t.Parallel()
	pool, err := simulation.Read(os.DirFS("testdata/pool"), defaults)
	require.NoError(t, err)
	quotas := fstest.MapFS{"tenant-a/q.yaml": {Data: []byte(quotaOf("web", "3"))}}
	meta, err := os.ReadFile("testdata/pool/meta.yaml")
	require.NoError(t, err)
	quotas["meta.yaml"] = &fstest.MapFile{Data: bytes.Replace(meta, []byte("    quota: {cpu: \"2\""), []byte("    priority: 7\n    quota: {cpu: \"2\""), 1)}
	changed, err := simulation.Read(quotas, defaults)
	require.NoError(t, err)
	before, after := pool.Placements[1], changed.Placements[1]
	require.Equal(t, "web", after.Name)
	require.Empty(t, cmp.Diff(before.Status, after.Status))
	require.EqualValues(t, 7, after.Spec.Priority)
	require.Equal(t, "3", after.Spec.Quota.Cpu().String())
}

// FuzzRead: any file gives a pool or an error that names it.
func FuzzRead(f *testing.F) {
	for _, name := range []string{"meta.yaml", "r4.json", "tenant-b/quotas.yaml"} {
		text, err := os.ReadFile(filepath.Join("testdata/pool", name))
		require.NoError(f, err)
		f.Add(text)
	}
	f.Add([]byte("kind: List\nitems: [{kind: List, items: [{}]}]"))
	f.Add([]byte(quotaOf("web", "1e99")))
	f.Fuzz(func(t *testing.T, text []byte) {
		pool, err := simulation.Read(fstest.MapFS{"tenant/a.yaml": {Data: text}}, defaults)
		if err != nil {
			require.ErrorContains(t, err, "tenant/a.yaml")
			return
		}
		for _, np := range pool.Placements {
			require.NotEmpty(t, np.Name)
		}
	})
}

func TestPrintHidesControlCharacters(t *testing.T) {
	t.Parallel()
	report := &simulation.Report{Namespaces: []simulation.Namespace{{Tenant: "a\x1b[2J", Name: "b\tc\nd", Change: simulation.Waits, Why: "no\x07\u202e\u2028"}}}
	require.Equal(t, -1, strings.IndexFunc(printed(t, report, 0), func(r rune) bool { return r != '\n' && !unicode.IsGraphic(r) }))
}

func metaCluster(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, tenancyv1alpha1.AddToScheme, schedulerv1alpha1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	return builders.Client(scheme).WithObjects(objects...).Build()
}

func TestExplain(t *testing.T) {
	read, err := simulation.Read(os.DirFS("testdata/pool"), defaults)
	require.NoError(t, err)
	objects := []client.Object{&corev1.Node{ObjectMeta: builders.Node("other").Obj().ObjectMeta}}
	for _, node := range read.Nodes {
		objects = append(objects, node)
	}
	for _, np := range read.Placements {
		objects = append(objects, np)
	}
	pool, err := simulation.Live(t.Context(), metaCluster(t, objects...))
	require.NoError(t, err)
	require.Len(t, pool.Nodes, 3)
	for _, name := range []string{"tenant-a/web", "tenant-a/done", "tenant-b/large"} {
		tenant, namespace, _ := strings.Cut(name, "/")
		why, err := simulation.Explain(schedulertest.Context(t), profilesOf(t), pool, types.NamespacedName{Namespace: tenant, Name: namespace})
		require.NoError(t, err)
		wantPrinted(t, "explain."+namespace, why)
		require.Equal(t, namespace == "large", why.Err() != nil)
	}
	_, err = simulation.Explain(schedulertest.Context(t), profilesOf(t), pool, types.NamespacedName{Namespace: "tenant-a", Name: "none"})
	require.ErrorContains(t, err, "there is no NamespacePlacement tenant-a/none: ")
}

// spreadPool has namespace tenant/web with a slice of 1 CPU in each of r1 to r3, and tenant/busy with 4 CPUs of r2.
func spreadPool() []client.Object {
	objects := []client.Object{
		builders.Placement("tenant", "web").Slice("cpu", "1").Quota("cpu", "3").Held("r1", 1, "cpu", "1").Held("r2", 1, "cpu", "1").Held("r3", 1, "cpu", "1").Obj(),
		builders.Placement("tenant", "busy").Slice("cpu", "4").Quota("cpu", "4").Held("r2", 1, "cpu", "4").Obj(),
	}
	for _, id := range []string{"r1", "r2", "r3"} {
		objects = append(objects, builders.VirtualNode(id, "cpu", "8").Obj())
	}
	return objects
}

// TestExplainLargestFree: a slice is larger than any free piece where it may be.
func TestExplainLargestFree(t *testing.T) {
	t.Parallel()
	shapes := func(cpu string) string {
		return freenodes.Encode([]freenodes.Class{{Free: slice.Of(builders.Resources("cpu", cpu)), Nodes: 2}})
	}
	for name, tc := range map[string]struct {
		size   string
		change func(nodes []*corev1.Node, np *schedulerv1alpha1.NamespacePlacement)
		want   string // "" for none
	}{
		"larger than any": {size: "8", want: "A slice of cpu=8 is larger than any free piece: the largest is cpu=7, in r1"},
		"it fits":         {size: "7"},
		"the first is closed": {size: "8", want: "cpu=7, in r3", change: func(nodes []*corev1.Node, _ *schedulerv1alpha1.NamespacePlacement) {
			nodes[0].Spec.Unschedulable = true
		}},
		"all are closed": {size: "8", change: func(nodes []*corev1.Node, _ *schedulerv1alpha1.NamespacePlacement) {
			for _, node := range nodes {
				node.Spec.Unschedulable = true
			}
		}},
		"one is asked for": {size: "7", want: "A slice of cpu=7 is larger than any free piece: the largest is cpu=3, in r2", change: func(_ []*corev1.Node, np *schedulerv1alpha1.NamespacePlacement) {
			np.Spec.NodeSelector = map[string]string{schedulerv1alpha1.LabelVirtualNode: "r2"}
		}},
		"its nodes are smaller": {size: "7", want: "A slice of cpu=7 is larger than any free piece: the largest is cpu=6, in r3", change: func(nodes []*corev1.Node, _ *schedulerv1alpha1.NamespacePlacement) {
			nodes[0].Annotations = map[string]string{schedulerv1alpha1.AnnotationFreeShapes: shapes("5")}
			nodes[2].Annotations = map[string]string{schedulerv1alpha1.AnnotationFreeShapes: shapes("6")}
		}},
		"more slices than pieces": {size: "5", change: func(_ []*corev1.Node, np *schedulerv1alpha1.NamespacePlacement) {
			np.Spec.Quota = builders.Resources("cpu", "25")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			large := builders.Placement("tenant", "large").Slice("cpu", tc.size).Quota("cpu", tc.size).Obj()
			pool, err := simulation.Live(t.Context(), metaCluster(t, append(spreadPool(), large)...))
			require.NoError(t, err)
			at := slices.IndexFunc(pool.Placements, func(np *schedulerv1alpha1.NamespacePlacement) bool { return np.Name == "large" })
			if tc.change != nil {
				tc.change(pool.Nodes, pool.Placements[at])
			}
			why, err := simulation.Explain(schedulertest.Context(t), profilesOf(t), pool, types.NamespacedName{Namespace: "tenant", Name: "large"})
			require.NoError(t, err)
			out := printed(t, why, 0)
			require.Contains(t, out, tc.want)
			require.Equal(t, tc.want != "", strings.Contains(out, "larger than any free piece"), out)
			require.Equal(t, tc.want != "", why.LargestFree != nil)
		})
	}
}

// TestExplainPod is the dry run of a move for a pod.
func TestExplainPod(t *testing.T) {
	two := func() *schedulerv1alpha1.NamespacePlacement {
		return builders.Placement("tenant", "web").Quota("cpu", "4", "pods", "40").Slice("cpu", "1", "pods", "10").
			Held("r1", 2, "cpu", "2", "pods", "20").Held("r2", 2, "cpu", "2", "pods", "20").Obj()
	}
	const help = "slice from %s to %s for pod of that size, which requests cpu=%s"
	for name, tc := range map[string]struct {
		cpu    string
		change func(*simulation.Pool)
		want   simulation.PodRoom
	}{
		"one slice":         {cpu: "3", want: simulation.PodRoom{Requests: "cpu=3", Moves: fmt.Sprintf("1 "+help, "r2", "r1", "3")}},
		"it has room":       {cpu: "2", want: simulation.PodRoom{Requests: "cpu=2"}},
		"larger than quota": {cpu: "5", want: simulation.PodRoom{Requests: "cpu=5", Why: "it requests cpu=5,pods=1, and the whole quota is cpu=4,pods=40"}},
		"the first is cordoned": {
			cpu: "3", change: func(pool *simulation.Pool) { pool.Nodes[0].Spec.Unschedulable = true },
			want: simulation.PodRoom{
				Requests: "cpu=3", Moves: fmt.Sprintf("1 "+help, "r1", "r2", "3"),
				Unmet: []simulation.Unmet{{SuperCluster: "r1", Reason: "it is cordoned", Slices: 2}}, Meets: []string{"r2"},
			},
		},
		"the first is full": {
			cpu: "3", change: func(pool *simulation.Pool) {
				pool.Placements = append(pool.Placements, builders.Placement("tenant", "other").Quota("cpu", "2").Slice("cpu", "1").Held("r1", 2, "cpu", "2").Obj())
			},
			want: simulation.PodRoom{Requests: "cpu=3", Moves: fmt.Sprintf("1 "+help, "r1", "r2", "3")},
		},
		"both are full": {
			cpu: "3", change: func(pool *simulation.Pool) {
				pool.Placements = append(pool.Placements, builders.Placement("tenant", "other").Quota("cpu", "4").Slice("cpu", "1").
					Held("r1", 2, "cpu", "2").Held("r2", 2, "cpu", "2").Obj())
			},
			want: simulation.PodRoom{Requests: "cpu=3", Why: "super cluster r1: has too little free cpu"},
		},
		"it waits": {
			cpu: "3", change: func(pool *simulation.Pool) {
				pool.Placements[0].Spec.Quota = builders.Resources("cpu", "5", "pods", "50")
			},
			want: simulation.PodRoom{Requests: "cpu=3", Why: "the namespace waits to be placed, or is on the move"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pool := &simulation.Pool{
				Nodes:      []*corev1.Node{builders.VirtualNode("r1", "cpu", "4", "pods", "100").Obj(), builders.VirtualNode("r2", "cpu", "4", "pods", "100").Obj()},
				Placements: []*schedulerv1alpha1.NamespacePlacement{two()},
			}
			if tc.change != nil {
				tc.change(pool)
			}
			key := types.NamespacedName{Namespace: "tenant", Name: "web"}
			room, err := simulation.ExplainPod(schedulertest.Context(t), profilesOf(t), pool, key, simulation.PodOf(slice.Of(builders.Resources("cpu", tc.cpu))))
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(&tc.want, room))
			why, err := simulation.Explain(schedulertest.Context(t), profilesOf(t), pool, key)
			require.NoError(t, err)
			why.Pod = room
			out := printed(t, why, 0)
			require.Contains(t, out, "A pod that requests cpu="+tc.cpu+" has room in ")
			require.Contains(t, out, room.Moves+room.Why)
		})
	}
}

// TestExplainDemands: what a pod demands and no placement of its namespace meets, and which super cluster does.
func TestExplainDemands(t *testing.T) {
	super := func(name, zone string, taints ...corev1.Taint) *corev1.Node {
		node := builders.VirtualNode(name, "cpu", "8", "pods", "100").Obj()
		nodes := []nodegroups.Node{{Labels: map[string]string{corev1.LabelTopologyZone: zone}, Taints: taints, Allocatable: slice.Amounts{"cpu": 4000, "pods": 100}}}
		node.Annotations = map[string]string{schedulerv1alpha1.AnnotationNodeGroups: nodegroups.Encode(nodegroups.Of(nodes))}
		return node
	}
	pool := &simulation.Pool{
		Nodes: []*corev1.Node{super("r1", "a"), super("r2", "b", corev1.Taint{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}), super("r3", "b")},
		Placements: []*schedulerv1alpha1.NamespacePlacement{
			builders.Placement("tenant", "web").Quota("cpu", "4", "pods", "40").Slice("cpu", "1", "pods", "10").Held("r1", 4, "cpu", "4", "pods", "40").Obj(),
		},
	}
	const lacking = " and demands what the super clusters lack where the namespace has room for it"
	for name, tc := range map[string]struct {
		zone, cpu string
		tolerates string
		want      simulation.PodRoom
		print     string
	}{
		"a label": {
			zone: "b", cpu: "1", want: simulation.PodRoom{
				Requests: "cpu=1", Moves: "1 slice from r1 to r3 for pod p, which requests cpu=1" + lacking, Meets: []string{"r3"},
				Unmet: []simulation.Unmet{{"r1", "no node with topology.kubernetes.io/zone=b", 4}, {"r2", "no node for it whose taints it tolerates (gpu)", 0}},
			},
			print: "    r1: no node with topology.kubernetes.io/zone=b, where the namespace has 4 slices\n" +
				"    r2: no node for it whose taints it tolerates (gpu)\nAll of it is in: r3\n",
		},
		"a label and a toleration": {
			zone: "b", cpu: "1", tolerates: "gpu", want: simulation.PodRoom{
				Requests: "cpu=1", Moves: "1 slice from r1 to r2 for pod p, which requests cpu=1" + lacking, Meets: []string{"r2", "r3"},
				Unmet: []simulation.Unmet{{"r1", "no node with topology.kubernetes.io/zone=b", 4}},
			},
		},
		"nothing that is lacking": {zone: "a", cpu: "1", want: simulation.PodRoom{
			Requests: "cpu=1", Meets: []string{"r1"},
			Unmet: []simulation.Unmet{{"r2", "no node with topology.kubernetes.io/zone=a", 0}, {"r3", "no node with topology.kubernetes.io/zone=a", 0}},
		}},
		"what none has": {
			zone: "c", cpu: "1", want: simulation.PodRoom{
				Requests: "cpu=1", Unmet: []simulation.Unmet{
					{"r1", "no node with topology.kubernetes.io/zone=c", 4}, {"r2", "no node with topology.kubernetes.io/zone=c", 0}, {"r3", "no node with topology.kubernetes.io/zone=c", 0},
				},
			},
			print: "All of it is in: none\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := builders.Pod("elsewhere", "p").Req(map[corev1.ResourceName]string{"cpu": tc.cpu}).Obj()
			pod.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: tc.zone}
			if tc.tolerates != "" {
				pod.Spec.Tolerations = []corev1.Toleration{{Key: tc.tolerates, Operator: corev1.TolerationOpExists}}
			}
			key := types.NamespacedName{Namespace: "tenant", Name: "web"}
			room, err := simulation.ExplainPod(schedulertest.Context(t), profilesOf(t), pool, key, pod)
			require.NoError(t, err)
			tc.want.Why = room.Why
			require.Empty(t, cmp.Diff(&tc.want, room))
			why, err := simulation.Explain(schedulertest.Context(t), profilesOf(t), pool, key)
			require.NoError(t, err)
			why.Pod = room
			out := printed(t, why, 0)
			require.Contains(t, out, tc.print)
		})
	}
}

// TestExplainRequests: what a tenant requests, and what would come of it.
func TestExplainRequests(t *testing.T) {
	read, err := simulation.Read(os.DirFS("testdata/pool"), defaults)
	require.NoError(t, err)
	at := slices.IndexFunc(read.Placements, func(np *schedulerv1alpha1.NamespacePlacement) bool { return np.Name == "done" })
	done := read.Placements[at]
	for name, tc := range map[string]struct {
		request schedulerv1alpha1.RequestedPlacements
		want    string // "" for no line
	}{
		"none":    {},
		"waits":   {request: schedulerv1alpha1.RequestedPlacements{Annotation: `{"r1":1}`, State: schedulerv1alpha1.RequestWaiting}, want: `Other placements are requested, {"r1":1}: Waiting`},
		"anew":    {request: schedulerv1alpha1.RequestedPlacements{State: schedulerv1alpha1.RequestWaiting}, want: "Other placements are requested, any: Waiting"},
		"refused": {request: schedulerv1alpha1.RequestedPlacements{Annotation: "{}", State: schedulerv1alpha1.RequestRefused, Message: "none"}, want: "Other placements are requested, {}: Refused: none"},
		"would be refused": {
			request: schedulerv1alpha1.RequestedPlacements{
				Annotation: `{"r9":1}`, State: schedulerv1alpha1.RequestWaiting,
				Placements: []schedulerv1alpha1.ClusterPlacement{{Cluster: "r9", Slices: int32(slice.Count(slice.Of(done.Spec.Quota), slice.Of(done.Spec.Slice))), Reserved: done.Spec.Quota}},
			},
			want: `Other placements are requested, {"r9":1}: Waiting, and refused now: super cluster r9: it is not in the pool`,
		},
		"long": {
			request: schedulerv1alpha1.RequestedPlacements{Annotation: strings.Repeat("x", 60_000), State: schedulerv1alpha1.RequestRefused, Message: "none"},
			want:    "Other placements are requested, " + strings.Repeat("x", 253) + "...: Refused: none",
		},
	} {
		t.Run(name, func(t *testing.T) {
			np := done.DeepCopy()
			np.UID = "1"
			if tc.request.State != "" {
				np.Status.Requested = &tc.request
			}
			pool := &simulation.Pool{Nodes: read.Nodes, Placements: []*schedulerv1alpha1.NamespacePlacement{np}}
			why, err := simulation.Explain(schedulertest.Context(t), profilesOf(t), pool, client.ObjectKeyFromObject(np))
			require.NoError(t, err)
			out := printed(t, why, 0)
			got := ""
			for line := range strings.Lines(out) {
				if strings.HasPrefix(line, "Other placements") {
					got = strings.TrimSpace(line)
				}
			}
			require.Equal(t, tc.want, got)
		})
	}
}

// TestExplainBorrowers: what is missing is guaranteed, and others borrow it.
func TestExplainBorrowers(t *testing.T) {
	t.Parallel()
	deadline := time.Now().Add(time.Hour).Truncate(time.Second)
	guaranteed := func(np *schedulerv1alpha1.NamespacePlacement) {
		np.Status, _, _ = placement.Next(np, placement.Facts{Share: &placement.Share{Guaranteed: true}})
	}
	givesWay := func(borrower, owner *schedulerv1alpha1.NamespacePlacement) {
		granted := map[string]slice.Amounts{"r1": slice.Of(owner.Spec.Quota)}
		owner.Status, _, _ = placement.Next(owner, placement.Facts{Now: time.Now(), Nominated: granted})
		borrower.Status, _, _ = placement.Next(borrower, placement.Facts{
			Now: time.Now(), Leave: map[string]schedulerv1alpha1.LeavingReason{"r1": schedulerv1alpha1.LeavingPreempted},
			Preemption: &placement.Preemption{For: "owner/a", Deadline: deadline},
		})
	}
	held := simulation.Borrower{Tenant: "borrower", Name: "b", SuperCluster: "r1", Reserved: "cpu=4"}
	const all = "    b of tenant borrower in super cluster r1: cpu=4"
	for name, tc := range map[string]struct {
		change     func(borrower, owner *schedulerv1alpha1.NamespacePlacement)
		guaranteed bool
		borrowers  []simulation.Borrower
		until      time.Time
		want       string // "" for nothing about guarantees
	}{
		"not guaranteed": {change: func(_, _ *schedulerv1alpha1.NamespacePlacement) {}},
		"others borrow it": {
			change: func(_, owner *schedulerv1alpha1.NamespacePlacement) { guaranteed(owner) }, guaranteed: true, borrowers: []simulation.Borrower{held},
			want: "It is guaranteed to the tenant, and cpu=2 of it are borrowed by others, who give way:\n" + all + "\n",
		},
		"others give way already": {
			change: func(borrower, owner *schedulerv1alpha1.NamespacePlacement) {
				guaranteed(owner)
				givesWay(borrower, owner)
			},
			guaranteed: true, borrowers: []simulation.Borrower{held}, until: deadline,
			want: "It is guaranteed to the tenant, and others give way already:\n" + all + ", whose budgets count until " + deadline.UTC().Format(time.RFC3339) + "\n",
		},
		"nobody gives way in the tenant's policy": {
			change: func(_, owner *schedulerv1alpha1.NamespacePlacement) {
				guaranteed(owner)
				owner.Spec.PreemptionsPerHour = ptr.To[int32](0)
			},
			guaranteed: true, borrowers: []simulation.Borrower{held},
			want: "It is guaranteed to the tenant, and cpu=2 of it are borrowed by others, who keep it, for the tenant's policy has preemptionsPerHour 0:\n" + all + "\n",
		},
		"others gave way already when the policy changed": {
			change: func(borrower, owner *schedulerv1alpha1.NamespacePlacement) {
				guaranteed(owner)
				givesWay(borrower, owner)
				owner.Spec.PreemptionsPerHour = ptr.To[int32](0)
			},
			guaranteed: true, borrowers: []simulation.Borrower{held}, until: deadline, want: "and others give way already:\n" + all,
		},
		"nobody borrows": {
			change: func(borrower, owner *schedulerv1alpha1.NamespacePlacement) {
				guaranteed(borrower)
				guaranteed(owner)
			},
			guaranteed: true, want: "It is guaranteed to the tenant, and would not fit if all gave way who borrow and may be asked to\n",
		},
		"it is too large": {
			change: func(_, owner *schedulerv1alpha1.NamespacePlacement) {
				owner.Spec.Slice, owner.Spec.Quota = builders.Resources("cpu", "1", "memory", "9Gi"), builders.Resources("cpu", "1", "memory", "9Gi")
				owner.Spec.Guaranteed = owner.Spec.Quota
				guaranteed(owner)
			},
			guaranteed: true, want: "would not fit if all gave way who borrow and may be asked to: 0/1 super clusters are available: 1 has too little free for the namespace: 9Gi memory\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			borrower := builders.Placement("borrower", "b").Slice("cpu", "1").Quota("cpu", "4").Held("r1", 4, "cpu", "4").Obj()
			owner := builders.Placement("owner", "a").Slice("cpu", "1").Quota("cpu", "2").Obj()
			owner.Spec.Guaranteed = builders.Resources("cpu", "2")
			tc.change(borrower, owner)
			pool, err := simulation.Live(t.Context(), metaCluster(t, builders.VirtualNode("r1", "cpu", "4", "memory", "8Gi").Obj(), borrower, owner))
			require.NoError(t, err)
			why, err := simulation.Explain(schedulertest.Context(t), profilesOf(t), pool, types.NamespacedName{Namespace: "owner", Name: "a"})
			require.NoError(t, err)
			require.Equal(t, tc.guaranteed, why.Guaranteed)
			require.Equal(t, simulation.Waits, why.Change)
			out := printed(t, why, 0)
			require.Contains(t, out, tc.want)
			require.Equal(t, tc.guaranteed, strings.Contains(out, "guaranteed"), out)
			for i := range why.Borrowers {
				require.True(t, tc.until.Equal(ptr.Deref(why.Borrowers[i].Until, time.Time{})), why.Borrowers[i].Until)
				why.Borrowers[i].Until = nil
			}
			require.Equal(t, tc.borrowers, why.Borrowers)
		})
	}
}
