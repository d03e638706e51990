package scheduling

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/plugins/namespacegang"
	"github.com/superpool/superpool/test/builders"
)

// VirtualNodesFake are the virtual Nodes of a pool, as claims read them.
type VirtualNodesFake struct {
	Nodes map[string]*corev1.Node
	// Left is since when super clusters have no virtual Node, those apart that have had none since Began.
	Left  map[string]time.Time
	Began time.Time
}

// VirtualNodes returns Nodes.
func (f *VirtualNodesFake) VirtualNodes() map[string]*corev1.Node { return f.Nodes }

// LeftSince returns Left of a super cluster, or Began.
func (f *VirtualNodesFake) LeftSince(superCluster string) time.Time {
	if left, seen := f.Left[superCluster]; seen {
		return left
	}
	return f.Began
}

var webKey = client.ObjectKey{Namespace: "tenant", Name: "web"}

// cores is a resource list of so many cores.
func cores(quantity string) corev1.ResourceList { return builders.Resources("cpu", quantity) }

// storedPlacements is an API server of the meta cluster whose writes fail as a test wants.
type storedPlacements struct {
	client.WithWatch
	// writes names the writes so far, also those that failed.
	writes []string
	// fail returns whether write number n happens, and what the writer is told. nil: all happen.
	fail func(n int) (happens bool, err error)
	// meanwhile is called before the first write.
	meanwhile func()
}

func newStoredPlacements(t testing.TB, objects ...client.Object) *storedPlacements {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, schedulerv1alpha1.AddToScheme(scheme))
	s := &storedPlacements{}
	write := func(name string, do func() error) error {
		n := len(s.writes)
		s.writes = append(s.writes, name)
		if n == 0 && s.meanwhile != nil {
			s.meanwhile()
		}
		if s.fail == nil {
			return do()
		}
		happens, failure := s.fail(n)
		if happens {
			if err := do(); err != nil {
				return err
			}
		}
		return failure
	}
	s.WithWatch = builders.Client(scheme).WithObjects(builders.Copies(objects)...).
		WithStatusSubresource(&schedulerv1alpha1.NamespacePlacement{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
				return write("create", func() error { return c.Create(ctx, object, options...) })
			},
			Update: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.UpdateOption) error {
				return write("spec", func() error { return c.Update(ctx, object, options...) })
			},
			SubResourceUpdate: func(ctx context.Context, c client.Client, subresource string, object client.Object, options ...client.SubResourceUpdateOption) error {
				return write(subresource, func() error { return c.SubResource(subresource).Update(ctx, object, options...) })
			},
			Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
				return write("delete", func() error { return c.Delete(ctx, object, options...) })
			},
		}).Build()
	return s
}

// policyWith returns the shipped policy with changes, under the name "p".
func policyWith(t testing.TB, change func(*tenancyv1alpha1.TenantPolicySpec)) *policy.Policy {
	t.Helper()
	spec := policy.Default().Spec().DeepCopy()
	change(spec)
	changed, err := policy.New("p", spec)
	require.NoError(t, err)
	return changed
}

// metaScheme is that of what is read from the meta cluster.
func metaScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, corev1.AddToScheme(scheme))
	require.NoError(t, schedulerv1alpha1.AddToScheme(scheme))
	return scheme
}

func homelessClaim(name string, change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, UID: types.UID(name), ResourceVersion: "7", Annotations: map[string]string{}},
		Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("fast")},
	}
	for _, do := range change {
		do(claim)
	}
	return claim
}

func withHome(home string) func(*corev1.PersistentVolumeClaim) {
	return func(claim *corev1.PersistentVolumeClaim) {
		claim.Annotations[schedulerv1alpha1.AnnotationSuperCluster] = home
	}
}

func storageClassOf(mode storagev1.VolumeBindingMode, offering ...string) *storagev1.StorageClass {
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast", Annotations: map[string]string{}}, VolumeBindingMode: &mode}
	for _, id := range offering {
		class.Annotations["offered-by.tenancy.x-k8s.io/"+id] = "x"
	}
	return class
}

// evictionNow is the time of tests of evictions.
var evictionNow = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

var errDown = errors.New("the process is down")

// measured is the Usage that a test writes.
type measured struct {
	// of holds what super clusters say about namespaces, by super cluster and name of the namespace. A super cluster
	// that is not in it says that there is nothing, unless it is in silent.
	of     map[string]map[string]placement.Use
	silent sets.Set[string]
	// listing is true while super clusters are not listed.
	listing bool
}

func (m *measured) set(cluster, namespace string, use placement.Use) {
	if m.of == nil {
		m.of = map[string]map[string]placement.Use{}
	}
	if m.of[cluster] == nil {
		m.of[cluster] = map[string]placement.Use{}
	}
	m.of[cluster][namespace] = use
}

func (m *measured) Usage(_ context.Context, namespace types.NamespacedName, superClusters []string) map[string]placement.Use {
	used := map[string]placement.Use{}
	for _, cluster := range superClusters {
		if m.silent.Has(cluster) {
			continue
		}
		use, known := m.of[cluster][namespace.Name]
		if !known {
			use = placement.Use{}
		}
		used[cluster] = use
	}
	return used
}

func (m *measured) Held(_ context.Context, namespace types.NamespacedName, uid types.UID) (map[string]slice.Amounts, bool) {
	held := map[string]slice.Amounts{}
	for cluster, namespaces := range m.of {
		if use := namespaces[namespace.Name]; use.NamespaceUID == uid && use.Hard != nil && !m.silent.Has(cluster) {
			held[cluster] = use.Hard
		}
	}
	return held, !m.listing
}

// metaCluster is an API server of the meta cluster whose readers are never behind.
type metaCluster struct{ client client.WithWatch }

func newMetaCluster(t *testing.T, objects ...client.Object) metaCluster {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, schedulerv1alpha1.AddToScheme(scheme))
	return metaCluster{client: builders.Client(scheme).WithObjects(builders.Copies(objects)...).
		WithStatusSubresource(&schedulerv1alpha1.NamespacePlacement{}).Build()}
}

// placementAsking returns a NamespacePlacement that asks for so many slices of one core.
func placementAsking(cpu string) *schedulerv1alpha1.NamespacePlacement {
	return builders.Placement("tenant", "web").UID("1").Generation(1).Slice("cpu", "1").Quota("cpu", cpu).Obj()
}

// assigned is a decision for all slices of np that are missing.
func assigned(np *schedulerv1alpha1.NamespacePlacement, cluster string) []namespacegang.Assignment {
	var assignments []namespacegang.Assignment
	for _, object := range view.Slices(np) {
		if pod := object.(*corev1.Pod); pod.Spec.NodeName == "" {
			assignments = append(assignments, namespacegang.Assignment{Pod: pod, Cluster: cluster})
		}
	}
	return assignments
}

// poolReader reads NamespacePlacements from a meta cluster in memory, and virtual Nodes from a list.
type poolReader struct {
	client.Reader
	nodes []*corev1.Node
}

func (r poolReader) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if nodes, isNodes := list.(*corev1.NodeList); isNodes {
		for _, node := range r.nodes {
			nodes.Items = append(nodes.Items, *node)
		}
		return nil
	}
	return r.Reader.List(ctx, list, options...)
}

// twoInformers are the informers of the two kinds that the namespace scheduler is fed from.
type twoInformers struct {
	ctrlcache.Informers
	placements, nodes cache.SharedIndexInformer
}

func (i twoInformers) GetInformer(_ context.Context, kind client.Object, _ ...ctrlcache.InformerGetOption) (ctrlcache.Informer, error) {
	switch kind.(type) {
	case *schedulerv1alpha1.NamespacePlacement:
		return i.placements, nil
	case *corev1.Node:
		return i.nodes, nil
	}
	return nil, errors.New("there is no such informer")
}

// newInformers returns informers that run until ctx ends: of the NamespacePlacements of api, and of Nodes.
func newInformers(ctx context.Context, api client.WithWatch, nodes *view.Source) twoInformers {
	// An API server in memory sends nothing of what was written before a watch, so the watch begins before the list.
	var watching watch.Interface
	placements := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
			list := &schedulerv1alpha1.NamespacePlacementList{}
			var err error
			if watching, err = api.Watch(ctx, list); err != nil {
				return nil, err
			}
			return list, api.List(ctx, list)
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watching, nil },
	}
	informers := twoInformers{
		placements: cache.NewSharedIndexInformer(placements, &schedulerv1alpha1.NamespacePlacement{}, 0, nil),
		nodes:      cache.NewSharedIndexInformer(nodes, &corev1.Node{}, 0, nil),
	}
	go informers.placements.RunWithContext(ctx)
	go informers.nodes.RunWithContext(ctx)
	return informers
}

func drained(node *corev1.Node) {
	node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "maintenance", Effect: corev1.TaintEffectNoExecute})
}

func onePlaced(name string, clusters ...string) *schedulerv1alpha1.NamespacePlacement {
	np := builders.Placement("tenant", name).Slice("cpu", "1").Quota("cpu", fmt.Sprint(len(clusters)))
	for _, cluster := range clusters {
		np.Held(cluster, 1, "cpu", "1")
	}
	return np.Obj()
}

func readiness(status corev1.ConditionStatus) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
	}
}

// metricValue returns the value of a counter or gauge of a registry, with that value of its label, "" for none.
func metricValue(t testing.TB, registry prometheus.Gatherer, name, label string) float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() != name || len(metric.GetLabel()) > 0 != (label != "") || label != "" && metric.GetLabel()[0].GetValue() != label {
				continue
			}
			return metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
		}
	}
	return 0
}

func reservedLimit(pairs ...string) func(*tenancyv1alpha1.TenantPolicySpec) {
	return func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Limits.Reserved = builders.Resources(pairs...) }
}
