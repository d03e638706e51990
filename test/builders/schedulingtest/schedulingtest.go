// Package schedulingtest has what the tests of vc-scheduler share: a meta cluster whose writes fail, a pool whose use
// is set, claims and policies. Only tests import it.
package schedulingtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// VirtualNodes are the virtual Nodes of a pool, as claims read them.
type VirtualNodes struct {
	Nodes map[string]*corev1.Node
	// Left is since when super clusters have no virtual Node, those apart that have had none since Began.
	Left  map[string]time.Time
	Began time.Time
}

// VirtualNodes returns Nodes.
func (f *VirtualNodes) VirtualNodes() map[string]*corev1.Node { return f.Nodes }

// LeftSince returns Left of a super cluster, or Began.
func (f *VirtualNodes) LeftSince(superCluster string) time.Time {
	if left, seen := f.Left[superCluster]; seen {
		return left
	}
	return f.Began
}

// WebKey is the key of the NamespacePlacement of namespace web of tenant "tenant".
var WebKey = client.ObjectKey{Namespace: "tenant", Name: "web"}

// Cores is a resource list of so many cores.
func Cores(quantity string) corev1.ResourceList { return builders.Resources("cpu", quantity) }

// StoredPlacements is an API server of the meta cluster whose writes fail as a test wants.
type StoredPlacements struct {
	client.WithWatch
	// Writes names the writes so far, also those that failed.
	Writes []string
	// Fail returns whether write number n happens, and what the writer is told. nil: all happen.
	Fail func(n int) (happens bool, err error)
	// Meanwhile is called before the first write.
	Meanwhile func()
}

// NewStoredPlacements returns an API server that has these objects.
func NewStoredPlacements(t testing.TB, objects ...client.Object) *StoredPlacements {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, schedulerv1alpha1.AddToScheme(scheme))
	s := &StoredPlacements{}
	write := func(name string, do func() error) error {
		n := len(s.Writes)
		s.Writes = append(s.Writes, name)
		if n == 0 && s.Meanwhile != nil {
			s.Meanwhile()
		}
		if s.Fail == nil {
			return do()
		}
		happens, failure := s.Fail(n)
		if happens {
			if err := do(); err != nil {
				return err
			}
		}
		return failure
	}
	s.WithWatch = builders.Client(scheme).WithObjects(objects...).
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

// PolicyWith returns the shipped policy with changes, under the name "p".
func PolicyWith(t testing.TB, change func(*tenancyv1alpha1.TenantPolicySpec)) *policy.Policy {
	t.Helper()
	spec := policy.Default().Spec().DeepCopy()
	change(spec)
	changed, err := policy.New("p", spec)
	require.NoError(t, err)
	return changed
}

// MetaScheme is that of what is read from the meta cluster.
func MetaScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, corev1.AddToScheme(scheme))
	require.NoError(t, schedulerv1alpha1.AddToScheme(scheme))
	return scheme
}

// HomelessClaim returns a claim of namespace web that has no home.
func HomelessClaim(name string, change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, UID: types.UID(name), ResourceVersion: "7", Annotations: map[string]string{}},
		Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("fast")},
	}
	for _, do := range change {
		do(claim)
	}
	return claim
}

// WithHome gives a claim a home.
func WithHome(home string) func(*corev1.PersistentVolumeClaim) {
	return func(claim *corev1.PersistentVolumeClaim) {
		claim.Annotations[schedulerv1alpha1.AnnotationSuperCluster] = home
	}
}

// StorageClassOf returns the StorageClass fast, which these super clusters offer.
func StorageClassOf(mode storagev1.VolumeBindingMode, offering ...string) *storagev1.StorageClass {
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast", Annotations: map[string]string{}}, VolumeBindingMode: &mode}
	for _, id := range offering {
		class.Annotations["offered-by.tenancy.x-k8s.io/"+id] = "x"
	}
	return class
}

// EvictionNow is the time of tests of evictions.
var EvictionNow = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// ErrDown is what a process gets that is down.
var ErrDown = errors.New("the process is down")

// Measured is the Usage that a test writes.
type Measured struct {
	// of holds what super clusters say about namespaces, by super cluster and name of the namespace. A super cluster
	// that is not in it says that there is nothing, unless it is in silent.
	of     map[string]map[string]placement.Use
	Silent sets.Set[string]
	// Listing is true while super clusters are not listed.
	Listing bool
}

// Set sets what a super cluster says of a namespace.
func (m *Measured) Set(cluster, namespace string, use placement.Use) {
	if m.of == nil {
		m.of = map[string]map[string]placement.Use{}
	}
	if m.of[cluster] == nil {
		m.of[cluster] = map[string]placement.Use{}
	}
	m.of[cluster][namespace] = use
}

// Usage implements placements.Usage.
func (m *Measured) Usage(_ context.Context, namespace types.NamespacedName, superClusters []string) map[string]placement.Use {
	used := map[string]placement.Use{}
	for _, cluster := range superClusters {
		if m.Silent.Has(cluster) {
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

// Held implements placements.Usage.
func (m *Measured) Held(_ context.Context, namespace types.NamespacedName, uid types.UID) (map[string]slice.Amounts, bool) {
	held := map[string]slice.Amounts{}
	for cluster, namespaces := range m.of {
		if use := namespaces[namespace.Name]; use.NamespaceUID == uid && use.Hard != nil && !m.Silent.Has(cluster) {
			held[cluster] = use.Hard
		}
	}
	return held, !m.Listing
}

// MetaCluster is an API server of the meta cluster whose readers are never behind.
type MetaCluster struct{ Client client.WithWatch }

// NewMetaCluster returns a meta cluster that has these objects.
func NewMetaCluster(t *testing.T, objects ...client.Object) MetaCluster {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, schedulerv1alpha1.AddToScheme(scheme))
	return MetaCluster{Client: builders.Client(scheme).WithObjects(objects...).
		WithStatusSubresource(&schedulerv1alpha1.NamespacePlacement{}).Build()}
}

// PlacementAsking returns a NamespacePlacement that asks for so many slices of one core.
func PlacementAsking(cpu string) *schedulerv1alpha1.NamespacePlacement {
	return builders.Placement("tenant", "web").UID("1").Generation(1).Slice("cpu", "1").Quota("cpu", cpu).Obj()
}

// Assigned is a decision for all slices of np that are missing.
func Assigned(np *schedulerv1alpha1.NamespacePlacement, cluster string) []namespacegang.Assignment {
	var assignments []namespacegang.Assignment
	for _, object := range view.Slices(np) {
		if pod := object.(*corev1.Pod); pod.Spec.NodeName == "" {
			assignments = append(assignments, namespacegang.Assignment{Pod: pod, Cluster: cluster})
		}
	}
	return assignments
}

// PoolReader reads NamespacePlacements from a meta cluster in memory, and virtual Nodes from a list.
type PoolReader struct {
	client.Reader
	Nodes []*corev1.Node
}

// List implements client.Reader.
func (r PoolReader) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if nodes, isNodes := list.(*corev1.NodeList); isNodes {
		for _, node := range r.Nodes {
			nodes.Items = append(nodes.Items, *node)
		}
		return nil
	}
	return r.Reader.List(ctx, list, options...)
}

// TwoInformers are the informers of the two kinds that the namespace scheduler is fed from.
type TwoInformers struct {
	ctrlcache.Informers
	placements, nodes cache.SharedIndexInformer
}

// GetInformer implements cache.Cache.
func (i TwoInformers) GetInformer(_ context.Context, kind client.Object, _ ...ctrlcache.InformerGetOption) (ctrlcache.Informer, error) {
	switch kind.(type) {
	case *schedulerv1alpha1.NamespacePlacement:
		return i.placements, nil
	case *corev1.Node:
		return i.nodes, nil
	}
	return nil, errors.New("there is no such informer")
}

// NewInformers returns informers that run until ctx ends: of the NamespacePlacements of api, and of Nodes.
func NewInformers(ctx context.Context, api client.WithWatch, nodes *view.Source) TwoInformers {
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
	informers := TwoInformers{
		placements: cache.NewSharedIndexInformer(placements, &schedulerv1alpha1.NamespacePlacement{}, 0, nil),
		nodes:      cache.NewSharedIndexInformer(nodes, &corev1.Node{}, 0, nil),
	}
	go informers.placements.RunWithContext(ctx)
	go informers.nodes.RunWithContext(ctx)
	return informers
}

// Drained cordons a virtual Node and has it drained.
func Drained(node *corev1.Node) {
	node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "maintenance", Effect: corev1.TaintEffectNoExecute})
}

// OnePlaced returns a NamespacePlacement with a slice in each of these super clusters.
func OnePlaced(name string, clusters ...string) *schedulerv1alpha1.NamespacePlacement {
	np := builders.Placement("tenant", name).Slice("cpu", "1").Quota("cpu", fmt.Sprint(len(clusters)))
	for _, cluster := range clusters {
		np.Held(cluster, 1, "cpu", "1")
	}
	return np.Obj()
}

// Readiness sets the condition Ready of a virtual Node.
func Readiness(status corev1.ConditionStatus) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
	}
}

// MetricValue returns the value of a counter or gauge of a registry, with that value of its label, "" for none.
func MetricValue(t testing.TB, registry prometheus.Gatherer, name, label string) float64 {
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

// ReservedLimit sets limits.reserved of a policy.
func ReservedLimit(pairs ...string) func(*tenancyv1alpha1.TenantPolicySpec) {
	return func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Limits.Reserved = builders.Resources(pairs...) }
}

// Frozen is a cache that has not seen anything since it was made.
type Frozen struct {
	client.Client
	Known map[client.ObjectKey]*schedulerv1alpha1.NamespacePlacement
}

// Get implements client.Reader.
func (f Frozen) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	known, exists := f.Known[key]
	if !exists {
		return apierrors.NewNotFound(schedulerv1alpha1.GroupVersion.WithResource("namespaceplacements").GroupResource(), key.Name)
	}
	known.DeepCopyInto(object.(*schedulerv1alpha1.NamespacePlacement))
	return nil
}

// Freeze returns a cache that has what c has now.
func Freeze(t testing.TB, c client.Client) Frozen {
	t.Helper()
	list := &schedulerv1alpha1.NamespacePlacementList{}
	require.NoError(t, c.List(t.Context(), list))
	f := Frozen{Client: c, Known: map[client.ObjectKey]*schedulerv1alpha1.NamespacePlacement{}}
	for i := range list.Items {
		f.Known[client.ObjectKeyFromObject(&list.Items[i])] = &list.Items[i]
	}
	return f
}

// Forbidden is the answer about a pod whose budget allows no disruption.
func Forbidden() error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: "The disruption budget web needs 2 healthy pods and has 2 currently"}}
	return err
}
