package kinds_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/offer"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/dynamic"
	"github.com/superpool/superpool/internal/syncer/kinds/nodes"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// quantityBed is a pool with objects of a tenant whose quantities are written in the form that a test says.
type quantityBed struct {
	*kindtest.Pool
	written string
}

// have lets the tenant have objects, as its cache shows them, too. In the cache alone they keep their form.
func (b *quantityBed) have(t *testing.T, objects map[string]client.Object) {
	t.Helper()
	builder := kindtest.NewClientBuilder().WithStatusSubresource(&corev1.PersistentVolumeClaim{}, &corev1.Node{})
	for _, object := range objects {
		builder = builder.WithObjects(object.DeepCopyObject().(client.Object))
	}
	b.Tenant.Client = kindtest.Answering(builder.Build(), kindtest.TenantUID)
	for kind, object := range objects {
		live := object.DeepCopyObject().(client.Object)
		require.NoError(t, b.Tenant.Client.Get(t.Context(), client.ObjectKeyFromObject(object), live))
		object.SetResourceVersion(live.GetResourceVersion())
		b.TenantCache[kind] = []client.Object{object}
	}
}

// bound lets the tenant have the claim web/data with its volume, bound in the super cluster, after a change.
func (b *quantityBed) bound(t *testing.T, change func(claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume)) {
	t.Helper()
	claim, volume := kindtest.TenantClaim("uid", kindtest.BoundTo("r1.pv"), kindtest.Witnessed), kindtest.VolumeFor("uid", "pv")
	change(claim, volume)
	super := kindtest.SuperClaim("uid", kindtest.BoundTo("pv"))
	require.NoError(t, b.SuperClient.Create(t.Context(), super))
	b.SuperCache[kind.Claim] = []client.Object{super}
	b.have(t, map[string]client.Object{kind.Claim: claim, kind.Volume: volume})
}

// stored returns the tenant's object of that name.
func stored[T client.Object](t *testing.T, b *quantityBed, namespace, name string, into T) T {
	t.Helper()
	require.NoError(t, b.Tenant.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, into))
	return into
}

// TestQuantitiesOfAnyExponent: a reconcile ends soon, whatever quantities a tenant has written into what the syncer
// writes, and they are written over.
func TestQuantitiesOfAnyExponent(t *testing.T) {
	t.Parallel()
	ofClaim := engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Claim, Namespace: "web", Name: "data"}
	storage := func(list corev1.ResourceList) string { return list.Storage().String() }
	for _, tc := range []struct {
		name string
		key  engine.Key
		has  func(t *testing.T, b *quantityBed)
		// left returns the quantity as the tenant has it afterwards, and want is what it is to be, "" for whatever.
		left func(t *testing.T, b *quantityBed) string
		want string
	}{
		{name: "the request of a claim", key: ofClaim, has: func(t *testing.T, b *quantityBed) {
			b.bound(t, func(claim *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
				claim.Spec.Resources.Requests = builders.Resources("storage", b.written)
			})
		}, left: func(t *testing.T, b *quantityBed) string {
			super := &corev1.PersistentVolumeClaim{}
			require.NoError(t, b.SuperClient.Get(t.Context(), client.ObjectKey{Namespace: kindtest.ClusterKey + "-web", Name: "data"}, super))
			return ""
		}},
		{name: "the capacity of a claim", key: ofClaim, has: func(t *testing.T, b *quantityBed) {
			b.bound(t, func(claim *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
				claim.Status.Capacity = builders.Resources("storage", b.written)
			})
		}, left: func(t *testing.T, b *quantityBed) string {
			return storage(stored(t, b, "web", "data", &corev1.PersistentVolumeClaim{}).Status.Capacity)
		}, want: "2Gi"},
		{name: "the capacity of a volume", key: ofClaim, has: func(t *testing.T, b *quantityBed) {
			b.bound(t, func(_ *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) {
				volume.Spec.Capacity = builders.Resources("storage", b.written)
			})
		}, left: func(t *testing.T, b *quantityBed) string {
			return storage(stored(t, b, "", "r1.pv", &corev1.PersistentVolume{}).Spec.Capacity)
		}, want: "2Gi"},
		{name: "the capacity of a Node", key: engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Node, Name: "n1"}, has: func(t *testing.T, b *quantityBed) {
			superNode, tenantNode := builders.Node("n1").Obj(), &corev1.Node{}
			superNode.Status.Capacity = builders.Resources("cpu", "4")
			b.SuperCache[kind.Node], b.SuperCache[kind.Pod] = []client.Object{superNode}, []client.Object{&corev1.Pod{}}
			nodes.TenantNode(superNode, tenantNode, "r1", kind.VNAgent{}, nodes.NodeShare{})
			b.have(t, map[string]client.Object{kind.Node: tenantNode})
			for range 2 { // what the tenant's policy and placements say of it
				_, err := b.Kind(kind.Node).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Node, Name: "n1"}, 0)
				require.NoError(t, err)
				tenantNode = stored(t, b, "", "r1.n1", tenantNode)
			}
			tenantNode.Status.Capacity = builders.Resources("cpu", b.written)
			require.NoError(t, b.Tenant.Client.Status().Update(t.Context(), tenantNode.DeepCopy()))
			tenantNode.ResourceVersion = stored(t, b, "", "r1.n1", &corev1.Node{}).ResourceVersion
		}, left: func(t *testing.T, b *quantityBed) string {
			return stored(t, b, "", "r1.n1", &corev1.Node{}).Status.Capacity.Cpu().String()
		}, want: "4"},
		{name: "the overhead of a RuntimeClass", key: engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Offer, Namespace: kind.RuntimeClass, Name: "kata"}, has: func(t *testing.T, b *quantityBed) {
			class := func(memory string) *nodev1.RuntimeClass {
				return &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "kata"}, Handler: "kata", Overhead: &nodev1.Overhead{PodFixed: builders.Resources("memory", memory)}}
			}
			b.SuperCache[kind.RuntimeClass] = []client.Object{class("64Mi")}
			offered, _ := dynamic.Offered(kind.RuntimeClass, class("64Mi"), nil)
			hash, err := offer.HashOf(offered)
			require.NoError(t, err)
			written := class(b.written)
			offer.Mark(written, "r1", offer.Note{Hash: hash})
			b.have(t, map[string]client.Object{kind.RuntimeClass: written})
		}, left: func(t *testing.T, b *quantityBed) string {
			return stored(t, b, "", "kata", &nodev1.RuntimeClass{}).Overhead.PodFixed.Memory().String()
		}, want: "64Mi"},
	} {
		for _, written := range []string{"1e2147483647", "0e2147483647"} {
			t.Run(tc.name+" "+written, func(t *testing.T) {
				t.Parallel()
				b := &quantityBed{Pool: kindtest.Governed(t, interceptor.Funcs{}), written: written}
				b.Tenant.Policy.Set(kindtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
					spec.Limits.PersistentVolumeClaims, spec.Pods.StorageClasses, spec.Pods.RuntimeClasses = 1, []string{"fast"}, []string{"kata"}
				}))
				tc.has(t, b)
				done := make(chan error, 1)
				go func() {
					_, err := b.Kind(tc.key.Kind).Reconcile(t.Context(), tc.key, 0)
					done <- err
				}()
				select {
				case err := <-done:
					require.NoError(t, err)
				case <-time.After(10 * time.Second):
					t.Fatal("the reconcile takes more than 10 s")
				}
				require.Equal(t, tc.want, tc.left(t, b))
			})
		}
	}
}
