// Package kindtest has what the tests of the syncer's kinds share: a tenant and a super cluster whose caches a test
// fills and whose API servers are fakes, and objects of both. Only tests import it.
package kindtest

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/proof"
	"github.com/superpool/superpool/internal/syncer/assign"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds"
	"github.com/superpool/superpool/internal/syncer/kinds/dynamic"
	"github.com/superpool/superpool/internal/syncer/kinds/events"
	"github.com/superpool/superpool/internal/syncer/kinds/namespaces"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/internal/tenants"
	"github.com/superpool/superpool/test/builders"
)

// ClusterKey is the key of the tenant of a Pool.
const ClusterKey = "acme-123456-vc"

// The UIDs by which control planes are known.
const (
	SuperUID  types.UID = "super-cluster"
	TenantUID types.UID = "tenant"
	metaUID   types.UID = "meta"
)

// OwnerOf returns the owner of what is made for the object with a UID in namespace web.
func OwnerOf(uid types.UID) tenancy.Owner {
	return tenancy.Owner{
		ClusterKey: ClusterKey, VirtualCluster: types.NamespacedName{Namespace: "acme", Name: "vc"}, VirtualClusterUID: "vc-uid",
		Namespace: "web", UID: uid,
	}
}

// ForeignOwners returns owners of super objects that are not this tenant's, or not of this namespace.
func ForeignOwners(uid types.UID) map[string]tenancy.Owner {
	owners := map[string]tenancy.Owner{}
	for name, change := range map[string]func(owner *tenancy.Owner){
		"another cluster key":                func(owner *tenancy.Owner) { owner.ClusterKey = "other-123456-vc" },
		"another VirtualCluster":             func(owner *tenancy.Owner) { owner.VirtualCluster.Name = "other" },
		"a VirtualCluster of that name, new": func(owner *tenancy.Owner) { owner.VirtualClusterUID = "other" },
		"another namespace":                  func(owner *tenancy.Owner) { owner.Namespace = "other" },
	} {
		owner := OwnerOf(uid)
		change(&owner)
		owners[name] = owner
	}
	return owners
}

// PolicyWith returns the shipped policy with a change, nil for none, under the name "small".
func PolicyWith(t testing.TB, change func(*tenancyv1alpha1.TenantPolicySpec)) *policy.Policy {
	t.Helper()
	spec := policy.Default().Spec().DeepCopy()
	if change != nil {
		change(spec)
	}
	changed, err := policy.New("small", spec)
	require.NoError(t, err)
	return changed
}

// toldRecorder is a kind.Recorder with room for every Event.
type toldRecorder struct{ *record.FakeRecorder }

func (r toldRecorder) Event(object runtime.Object, eventType, reason, message string) bool {
	r.FakeRecorder.Event(object, eventType, reason, message)
	return true
}

// FullRecorder is a kind.Recorder without room.
type FullRecorder struct{}

// Event records nothing.
func (FullRecorder) Event(runtime.Object, string, string, string) bool { return false }

// Pool is an Env over caches that the tests fill, and fake clients. The tenant's namespace web is ready, and not placed
// here. Its pods are isolated.
type Pool struct {
	Env                     *kind.Env
	Tenant                  *kind.Tenant
	TenantCache, SuperCache Cache
	Events                  *record.FakeRecorder
	SuperClient             client.WithWatch
	Namespace, Quota        client.Object
}

// NewPool returns a pool. super is what the API server of its super cluster does besides.
func NewPool(t testing.TB, super interceptor.Funcs) *Pool {
	t.Helper()
	p := &Pool{
		Events:    record.NewFakeRecorder(100),
		Namespace: builders.Owned(builders.Namespace(ClusterKey+"-web"), OwnerOf("ns-uid")),
		Quota:     builders.Owned(builders.Quota(ClusterKey+"-web", "superpool"), OwnerOf("ns-uid")),
	}
	p.TenantCache = Cache{kind.Namespace: {&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "ns-uid"}}}}
	p.SuperCache = Cache{kind.Namespace: {p.Namespace}, kind.Quota: {p.Quota}, kind.Isolation: {IsolationFloor()}}
	p.SuperClient = Answering(NewClientBuilder().WithInterceptorFuncs(super).Build(), SuperUID)
	p.Tenant = &kind.Tenant{
		Tenant: &tenants.Tenant{
			Key: ClusterKey, VirtualCluster: types.NamespacedName{Namespace: "acme", Name: "vc"}, UID: "vc-uid", ControlPlaneUID: TenantUID,
			ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.97.0.0/16")},
		},
		Cache: p.TenantCache, Recorder: toldRecorder{p.Events}, Client: Answering(NewClientBuilder().Build(), TenantUID),
	}
	metrics, err := engine.NewMetrics(prometheus.NewRegistry())
	require.NoError(t, err)
	p.Env = &kind.Env{
		Declared: kinds.Specs(), ID: "r1", SuperUID: SuperUID, Super: p.SuperClient, SuperCache: p.SuperCache, Metrics: metrics, Clock: testingclock.NewFakePassiveClock(time.Unix(1_000_000, 0)),
		Tenant: func(string) *kind.Tenant { return p.Tenant }, Tenants: func() []*kind.Tenant { return []*kind.Tenant{p.Tenant} },
		Resync: func([]engine.Key) {},
	}
	kinds.SetCustom(p.Env, nil)
	p.Assigns(builders.Client(PlacementScheme(t)).Build(), nil)
	return p
}

// Governed returns a pool with a placed namespace whose policy may change.
func Governed(t *testing.T, super interceptor.Funcs) *Pool {
	t.Helper()
	p := NewPool(t, super)
	p.Placed(t)
	p.Tenant.Policy = &policy.Ref{}
	p.SuperCache[kind.ServiceAccount] = []client.Object{&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ClusterKey + "-web", Name: "default"}}}
	return p
}

// Answering lets a client say that it is the control plane with that UID.
func Answering(to client.WithWatch, uid types.UID) client.WithWatch {
	return interceptor.NewClient(to, interceptor.Funcs{
		Get: func(ctx context.Context, to client.WithWatch, name client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if namespace, ok := object.(*corev1.Namespace); ok && name.Name == metav1.NamespaceSystem {
				namespace.UID = uid
				return nil
			}
			return to.Get(ctx, name, object, options...)
		},
	})
}

// NewClientBuilder returns a builder of a fake client with a scheme of its own: the client registers in it what it sees
// unstructured, while those of other tests read theirs.
func NewClientBuilder() *builders.ClientBuilder {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	return builders.Client(scheme)
}

// PlacementScheme returns the scheme of what is read from the meta cluster.
func PlacementScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, errors.Join(schedulerv1alpha1.AddToScheme(scheme), tenancyv1alpha1.AddToScheme(scheme)))
	return scheme
}

// Placed lets the tenant's namespace web be placed here, with room for pods.
func (p *Pool) Placed(t testing.TB) {
	t.Helper()
	meta := builders.Client(PlacementScheme(t)).WithObjects(
		builders.Placement(ClusterKey, "web").NamespaceUID("ns-uid").Held("r1", 1, "cpu", "10", "memory", "10Gi", "pods", "100").Obj(),
	).Build()
	p.Assigns(meta, meta)
}

// Assigns lets NamespacePlacements be read from meta, and live; nil: nothing is read live.
func (p *Pool) Assigns(meta, live client.WithWatch) {
	if live == nil {
		live = builders.Client(runtime.NewScheme()).Build()
	}
	known := &proof.ControlPlane{Name: "the meta cluster", Reader: Answering(live, metaUID), UID: metaUID}
	p.Env.Assignments = &assign.Pooled{SuperCluster: p.Env.ID, Meta: meta, Live: known, Sides: namespaces.Sides(p.Env)}
}

// SetCustom lets these SyncPolicies be followed.
func (p *Pool) SetCustom(all []dynamic.Custom) { kinds.SetCustom(p.Env, all) }

// HasData returns whether something with data is in the tenant's namespace web, or waits to be.
func (p *Pool) HasData() bool { return namespaces.Sides(p.Env).Data(ClusterKey, "web") }

// EventKey returns the key of an Event of the super cluster, and whether it is about a copy.
func (p *Pool) EventKey(event *corev1.Event) (engine.Key, bool) {
	return events.EventKey(p.SuperCache, event)
}

// Kind returns the reconciler of a kind, nil if there is none.
func (p *Pool) Kind(name string) engine.Kind {
	for _, kind := range p.Env.Reconcilers() {
		if kind.Name() == name {
			return kind
		}
	}
	return nil
}

// Told returns the Events since the last call.
func (p *Pool) Told() []string {
	var events []string
	for range len(p.Events.Events) {
		events = append(events, <-p.Events.Events)
	}
	return events
}

// Cache holds objects by kind; every pod is on every node that is asked for.
type Cache map[string][]client.Object

// Get implements kind.Cache.
func (c Cache) Get(kind, namespace, name string) (client.Object, bool) {
	for _, object := range c[kind] {
		if object.GetNamespace() == namespace && object.GetName() == name {
			return object, true
		}
	}
	return nil, true
}

// InNamespace implements kind.Cache.
func (c Cache) InNamespace(kind, namespace string) []client.Object {
	return slices.DeleteFunc(slices.Clone(c[kind]), func(object client.Object) bool { return object.GetNamespace() != namespace })
}

// List implements kind.Cache.
func (c Cache) List(kind string) []client.Object { return c[kind] }

// Index returns all objects of a kind, but for IndexAddress those with that value.
func (c Cache) Index(kindName, index, value string) []client.Object {
	if index != kind.IndexAddress {
		return c[kindName]
	}
	var found []client.Object
	for _, spec := range kinds.Specs() {
		for _, object := range c[kindName] {
			if spec.Name == kindName && slices.Contains(spec.Indexes[index](object), value) {
				found = append(found, object)
			}
		}
	}
	return found
}
