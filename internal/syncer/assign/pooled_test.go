package assign_test

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/proof"
	"github.com/superpool/superpool/internal/syncer/assign"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders"
)

const tenant = "acme-123456-vc"

// owner is that of the super namespace of web.
var owner = tenancy.Owner{
	ClusterKey: tenant, VirtualCluster: types.NamespacedName{Namespace: "acme", Name: "vc"}, VirtualClusterUID: "vc-uid", Namespace: "web", UID: "cached-uid",
}

// sides shows what a case says of namespace web, and of the tenant's other super namespaces.
type sides struct {
	content        assign.Content
	others         []assign.SuperNamespace
	pods, services assign.Answer
	// unseen is whether no cache has the namespace.
	unseen bool
	// claims is whether the super namespace has claims, newClaims whether it has some that no cache shows.
	claims, newClaims bool
	// live is the tenant, nil while it is not connected.
	live client.Reader
}

func (s *sides) Content(string, string) (assign.Content, tenancy.Owner) {
	if s.content == assign.Absent {
		return s.content, tenancy.Owner{}
	}
	return s.content, owner
}
func (s *sides) SuperNamespaces(string) []assign.SuperNamespace { return s.others }
func (s *sides) NamespaceUID(string, string) types.UID {
	if s.unseen {
		return ""
	}
	return "cached-uid"
}
func (s *sides) Pods(string, string) assign.Answer     { return s.pods }
func (s *sides) Services(string, string) assign.Answer { return s.services }

func (s *sides) Data(string, string) bool { return s.claims }

func (s *sides) LacksData(context.Context, string, string) (proof.Proof, bool, error) {
	if s.claims || s.newClaims {
		return proof.Proof{}, false, nil
	}
	return proof.NotNeeded("the super cluster lacks claims"), true, nil
}

func (s *sides) Live(string) *proof.ControlPlane {
	if s.live == nil {
		return nil
	}
	return &proof.ControlPlane{Name: "the tenant", Reader: s.live, UID: "tenant-uid"}
}

// meta is the meta cluster that reader reads.
func meta(reader client.Reader) *proof.ControlPlane {
	return &proof.ControlPlane{Name: "the meta cluster", Reader: reader, UID: "meta-uid"}
}

func system(uid types.UID) client.Object {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: uid}}
}

func namespace(uid types.UID) client.Object {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: uid}}
}

func virtualCluster(uid types.UID) *tenancyv1alpha1.VirtualCluster {
	return &tenancyv1alpha1.VirtualCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "vc", UID: uid}}
}

func placement(name string, clusters ...string) *schedulerv1alpha1.NamespacePlacement {
	object := builders.Placement(tenant, name).NamespaceUID("placed-uid")
	for _, cluster := range clusters {
		object.Held(cluster, 1, "cpu", "2")
	}
	return object.Obj()
}

// deleted is object while a finalizer holds it.
func deleted[T client.Object](object T) T {
	now := metav1.Now()
	object.SetDeletionTimestamp(&now)
	object.SetFinalizers([]string{schedulerv1alpha1.FinalizerUsage})
	return object
}

// controlPlane returns a control plane that records what is read of it. It holds copies: the client writes versions
// into what it is given, and cases that run beside each other have objects in common.
func controlPlane(t *testing.T, reads *[]string, given ...client.Object) client.Reader {
	t.Helper()
	objects := make([]client.Object, len(given))
	for i, object := range given {
		objects[i] = object.DeepCopyObject().(client.Object)
	}
	scheme := runtime.NewScheme()
	require.NoError(t, errors.Join(schedulerv1alpha1.AddToScheme(scheme), tenancyv1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)))
	return builders.Client(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, inner client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			*reads = append(*reads, key.Name)
			return inner.Get(ctx, key, object, options...)
		},
		List: func(ctx context.Context, inner client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			*reads = append(*reads, strings.TrimLeft(path.Ext(fmt.Sprintf("%T", list)), "."))
			return inner.List(ctx, list, options...)
		},
	}).Build()
}

// TestPooled asks the caches, and then for proof, which costs requests only where it may lead to a deletion.
func TestPooled(t *testing.T) {
	t.Parallel()
	here := assign.Assignment{State: assign.Placed, UID: "placed-uid", Reserved: builders.Resources("cpu", "2")}
	is := func(state assign.State) assign.Assignment { return assign.Assignment{State: state, UID: "cached-uid"} }
	shrinking := placement("web", "r1")
	shrinking.Status.Placements[0].Leaving = &schedulerv1alpha1.Leaving{Reason: schedulerv1alpha1.LeavingShrunk, Reserved: builders.Resources("cpu", "500m")}
	leaving := placement("web", "r1")
	leaving.Status.Placements[0].Leaving = &schedulerv1alpha1.Leaving{Reason: schedulerv1alpha1.LeavingShrunk, Reserved: builders.Resources("cpu", "2")}
	leaving.Status.Placements[0].Leaving.Decision = "42"
	storing := func(size string) *schedulerv1alpha1.NamespacePlacement {
		np := placement("web", "r1")
		np.Spec.Quota = builders.Resources("cpu", "2", "storage", "10Gi")
		if size != "" {
			np.Status.Placements[0].Reserved[corev1.ResourceStorage] = resource.MustParse(size)
		}
		return np
	}
	ends := func(state assign.State, uid types.UID) assign.Assignment {
		return assign.Assignment{State: state, UID: uid, Decision: string(builders.UID("web"))}
	}
	assigned := builders.Pod("web", "p").Obj()
	assigned.Labels = map[string]string{schedulerv1alpha1.LabelSuperCluster: "r1"}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "front"}}
	for _, tc := range []struct {
		name         string
		cached, live []client.Object
		sides        sides
		// tenant is what the connected tenant has; nil: it is not connected.
		tenant   []client.Object
		want     assign.Assignment
		wantLive assign.Assignment
		// wantProof is whether the Confirmed State allows deletions.
		wantProof bool
		wantErr   error
		// wantReads are the requests of Confirm to the meta cluster, wantAsked those to the tenant.
		wantReads, wantAsked []string
	}{
		{
			name: "it is placed here", want: here, wantLive: here, wantReads: []string{"kube-system", "web"},
			cached: []client.Object{placement("web", "r2", "r1")}, live: []client.Object{placement("web", "r1")},
		},
		{
			name: "it shrinks", wantReads: []string{"kube-system", "web"},
			cached: []client.Object{shrinking}, live: []client.Object{leaving},
			want:     assign.Assignment{State: assign.Placed, UID: "placed-uid", Reserved: builders.Resources("cpu", "1500m")},
			wantLive: assign.Assignment{State: assign.Placed, UID: "placed-uid", Decision: "42"},
		},
		{
			name: "its quota names storage", wantReads: []string{"kube-system", "web"}, cached: []client.Object{storing("5Gi")}, live: []client.Object{storing("")},
			want:     assign.Assignment{State: assign.Placed, UID: "placed-uid", Reserved: builders.Resources("cpu", "2"), Storage: ptr.To(resource.MustParse("5Gi"))},
			wantLive: assign.Assignment{State: assign.Placed, UID: "placed-uid", Reserved: builders.Resources("cpu", "2"), Storage: &resource.Quantity{Format: resource.BinarySI}},
		},
		{name: "the cache is behind", want: is(assign.None), wantLive: here, wantReads: []string{"kube-system", "web"}, live: []client.Object{placement("web", "r1")}},
		{name: "it is placed elsewhere", want: is(assign.None), wantLive: is(assign.None), wantReads: []string{"kube-system", "web"}, live: []client.Object{placement("web", "r2")}},
		{
			name: "it is placed elsewhere and has Services", sides: sides{content: assign.Services, services: assign.Yes},
			want: is(assign.ServicesOnly), wantLive: is(assign.ServicesOnly), wantProof: true, wantReads: []string{"kube-system", "web", "kube-system"},
		},
		{
			name: "its Services are gone", sides: sides{content: assign.Services, services: assign.No}, tenant: []client.Object{},
			cached: []client.Object{placement("db", "r1")}, live: []client.Object{placement("db", "r1")}, wantProof: true,
			want: is(assign.None), wantLive: is(assign.None), wantReads: []string{"kube-system", "web", "kube-system", "NamespacePlacementList"}, wantAsked: []string{"kube-system", "ServiceList", "kube-system"},
		},
		{
			name: "it has a Service that the cache does not show", sides: sides{content: assign.Services, services: assign.No}, tenant: []client.Object{service}, wantProof: true,
			live: []client.Object{placement("db", "r1")}, want: is(assign.None), wantLive: is(assign.ServicesOnly),
			wantReads: []string{"kube-system", "web", "kube-system", "NamespacePlacementList"}, wantAsked: []string{"kube-system", "ServiceList"},
		},
		{
			name: "nobody is here to call its Services", sides: sides{content: assign.Services, services: assign.No}, tenant: []client.Object{service},
			want: is(assign.None), wantLive: is(assign.None), wantProof: true, wantReads: []string{"kube-system", "web", "kube-system", "NamespacePlacementList", "kube-system"},
		},
		{
			name: "the tenant is not connected", sides: sides{content: assign.Services},
			cached: []client.Object{placement("db", "r1")}, live: []client.Object{placement("db", "r1")},
			want: is(assign.Unknown), wantLive: is(assign.Unknown), wantReads: []string{"kube-system", "web", "kube-system", "NamespacePlacementList"},
		},
		{
			name: "another one is still to be cleared", wantReads: []string{"kube-system", "web", "kube-system"},
			sides: sides{content: assign.Services, others: []assign.SuperNamespace{
				{Namespace: "web", Content: assign.Everything}, {Namespace: "db", Content: assign.Everything},
			}},
			cached: []client.Object{placement("db", "r2")}, want: is(assign.Unknown), wantLive: is(assign.Unknown),
		},
		{
			name: "another one has lost its NamespacePlacement", wantReads: []string{"kube-system", "web", "kube-system"},
			sides: sides{content: assign.Services, others: []assign.SuperNamespace{{Namespace: "db", Content: assign.Everything}}},
			want:  is(assign.None), wantLive: is(assign.Unknown),
		},
		{
			name: "others are no reason", wantReads: []string{"kube-system", "web", "kube-system", "NamespacePlacementList", "kube-system"}, wantProof: true,
			sides: sides{content: assign.Services, others: []assign.SuperNamespace{
				{Namespace: "web", Content: assign.Everything},
				{Namespace: "served", Content: assign.Services},
				{Namespace: "goes", Content: assign.Everything, Terminating: true},
			}},
			cached: []client.Object{placement("goes", "r2"), placement("served", "r2")}, want: is(assign.None), wantLive: is(assign.None),
		},
		{
			name: "its pods are still here", sides: sides{content: assign.Everything, pods: assign.Yes, services: assign.No}, tenant: []client.Object{assigned},
			cached: []client.Object{placement("web", "r2")}, live: []client.Object{placement("web", "r2")},
			want: is(assign.Leaving), wantLive: is(assign.Leaving), wantReads: []string{"kube-system", "web", "kube-system", "NamespacePlacementList", "kube-system"},
		},
		{
			name: "a pod is still here that the cache does not show", sides: sides{content: assign.Everything, pods: assign.No, services: assign.No},
			tenant: []client.Object{assigned}, cached: []client.Object{placement("web", "r2")}, live: []client.Object{placement("web", "r2")},
			want: is(assign.None), wantLive: is(assign.Leaving), wantReads: []string{"kube-system", "web", "kube-system", "NamespacePlacementList", "kube-system"}, wantAsked: []string{"kube-system", "PodList"},
		},
		{
			name: "its pods are gone", sides: sides{content: assign.Everything, pods: assign.No, services: assign.No}, tenant: []client.Object{},
			cached: []client.Object{placement("web", "r2")}, live: []client.Object{placement("web", "r2")}, wantProof: true,
			want: is(assign.None), wantLive: is(assign.None), wantReads: []string{"kube-system", "web", "kube-system", "NamespacePlacementList", "kube-system"}, wantAsked: []string{"kube-system", "PodList", "kube-system"},
		},
		{
			name: "its pods are gone, its claims are not", sides: sides{content: assign.Everything, pods: assign.No, services: assign.No, claims: true}, tenant: []client.Object{},
			cached: []client.Object{placement("web", "r2")}, live: []client.Object{placement("web", "r2")},
			want: is(assign.Leaving), wantLive: is(assign.Leaving), wantReads: []string{"kube-system", "web", "kube-system", "NamespacePlacementList", "kube-system"}, wantAsked: []string{"kube-system", "PodList", "kube-system"},
		},
		{
			name: "a claim is still here that the cache does not show", sides: sides{content: assign.Everything, pods: assign.No, services: assign.No, newClaims: true}, tenant: []client.Object{},
			cached: []client.Object{placement("web", "r2")}, live: []client.Object{placement("web", "r2")},
			want: is(assign.None), wantLive: is(assign.Leaving), wantReads: []string{"kube-system", "web", "kube-system", "NamespacePlacementList", "kube-system"}, wantAsked: []string{"kube-system", "PodList", "kube-system"},
		},
		{
			name: "another control plane says that its pods are gone", sides: sides{content: assign.Everything, pods: assign.No, services: assign.No},
			tenant: []client.Object{system("another")}, wantErr: proof.ErrOther, cached: []client.Object{placement("web", "r2")}, live: []client.Object{placement("web", "r2")},
			want: is(assign.None), wantReads: []string{"kube-system", "web", "kube-system"}, wantAsked: []string{"kube-system", "PodList"},
		},
		{
			name: "another meta cluster says that it is placed elsewhere", sides: sides{content: assign.Everything, pods: assign.No, services: assign.No}, tenant: []client.Object{},
			wantErr: proof.ErrOther, cached: []client.Object{placement("web", "r2")}, live: []client.Object{system("another"), placement("web", "r2")},
			want: is(assign.None), wantReads: []string{"kube-system"},
		},

		{
			name: "its NamespacePlacement is gone", sides: sides{content: assign.Everything, pods: assign.No, services: assign.Yes}, tenant: []client.Object{namespace("cached-uid")},
			live: []client.Object{virtualCluster("vc-uid")}, want: is(assign.Unknown), wantLive: is(assign.Unknown), wantReads: []string{"kube-system", "web", "vc"}, wantAsked: []string{"kube-system", "web"},
		},
		{
			name: "its NamespacePlacement is being deleted", sides: sides{content: assign.Everything, pods: assign.No}, tenant: []client.Object{namespace("cached-uid")},
			cached: []client.Object{deleted(placement("web", "r1"))}, live: []client.Object{deleted(placement("web", "r1")), virtualCluster("vc-uid")},
			want: ends(assign.Unknown, "cached-uid"), wantLive: ends(assign.Unknown, "cached-uid"), wantReads: []string{"kube-system", "web", "vc"}, wantAsked: []string{"kube-system", "web"},
		},
		{
			name: "its NamespacePlacement was just made", sides: sides{content: assign.Everything, pods: assign.No}, tenant: []client.Object{namespace("cached-uid")},
			cached: []client.Object{placement("web")}, live: []client.Object{placement("web"), virtualCluster("vc-uid")},
			want: is(assign.Unknown), wantLive: is(assign.Unknown), wantReads: []string{"kube-system", "web", "vc"}, wantAsked: []string{"kube-system", "web"},
		},
		{
			name: "it is gone", sides: sides{content: assign.Everything, pods: assign.Yes, services: assign.Yes, unseen: true}, tenant: []client.Object{},
			cached: []client.Object{deleted(placement("web", "r1"))}, live: []client.Object{deleted(placement("web", "r1")), virtualCluster("vc-uid")}, wantProof: true,
			want: ends(assign.None, ""), wantLive: ends(assign.None, ""), wantReads: []string{"kube-system", "web"}, wantAsked: []string{"kube-system", "web", "kube-system"},
		},
		{
			name: "it is gone, and its claims are not", sides: sides{content: assign.Everything, unseen: true, claims: true}, tenant: []client.Object{}, wantProof: true,
			live: []client.Object{virtualCluster("vc-uid")},
			want: assign.Assignment{State: assign.Kept}, wantLive: assign.Assignment{State: assign.Kept}, wantReads: []string{"kube-system", "web", "vc"}, wantAsked: []string{"kube-system", "web", "kube-system"},
		},
		{
			name: "it is gone, and a claim is not that no cache shows", sides: sides{content: assign.Everything, unseen: true, newClaims: true}, tenant: []client.Object{}, wantProof: true,
			live: []client.Object{virtualCluster("vc-uid")},
			want: assign.Assignment{State: assign.None}, wantLive: assign.Assignment{State: assign.Kept}, wantReads: []string{"kube-system", "web", "vc"}, wantAsked: []string{"kube-system", "web", "kube-system"},
		},
		{
			name: "it and its VirtualCluster are gone, and its claims are not", sides: sides{content: assign.Everything, unseen: true, claims: true}, tenant: []client.Object{}, wantProof: true,
			live: []client.Object{deleted(virtualCluster("vc-uid"))},
			want: assign.Assignment{State: assign.Kept}, wantLive: assign.Assignment{State: assign.None}, wantReads: []string{"kube-system", "web", "vc", "kube-system"}, wantAsked: []string{"kube-system", "web", "kube-system"},
		},
		{
			name: "its VirtualCluster is being deleted, and has claims", sides: sides{content: assign.Everything, unseen: true, claims: true}, wantProof: true,
			live: []client.Object{deleted(placement("web", "r1")), deleted(virtualCluster("vc-uid"))},
			want: assign.Assignment{State: assign.None}, wantLive: ends(assign.None, ""), wantReads: []string{"kube-system", "web", "vc", "kube-system", "vc", "kube-system"},
		},
		{
			name: "another one has its name", sides: sides{content: assign.Everything, unseen: true}, tenant: []client.Object{namespace("another-uid")},
			live: []client.Object{virtualCluster("vc-uid")}, wantProof: true,
			want: assign.Assignment{State: assign.None}, wantLive: assign.Assignment{State: assign.None}, wantReads: []string{"kube-system", "web"}, wantAsked: []string{"kube-system", "web", "kube-system"},
		},
		{
			name: "another control plane says that it is gone", sides: sides{content: assign.Everything, unseen: true}, tenant: []client.Object{system("another")}, wantErr: proof.ErrOther,
			live: []client.Object{virtualCluster("vc-uid")}, want: assign.Assignment{State: assign.None}, wantReads: []string{"kube-system", "web"}, wantAsked: []string{"kube-system", "web"},
		},
		{
			name: "nobody can be asked whether it is gone", sides: sides{content: assign.Everything, unseen: true}, live: []client.Object{virtualCluster("vc-uid")},
			want: assign.Assignment{State: assign.None}, wantLive: assign.Assignment{State: assign.Unknown}, wantReads: []string{"kube-system", "web", "vc"},
		},
		{
			name: "its VirtualCluster is being deleted", sides: sides{content: assign.Everything, unseen: true}, wantProof: true,
			live: []client.Object{deleted(placement("web", "r1")), deleted(virtualCluster("vc-uid"))},
			want: assign.Assignment{State: assign.None}, wantLive: ends(assign.None, ""), wantReads: []string{"kube-system", "web", "vc", "kube-system"},
		},
		{
			name: "its VirtualCluster is missing", sides: sides{content: assign.Everything, unseen: true},
			want: assign.Assignment{State: assign.None}, wantLive: assign.Assignment{State: assign.Unknown}, wantReads: []string{"kube-system", "web", "vc"},
		},
		{
			name: "its VirtualCluster is missing, and has claims", sides: sides{content: assign.Everything, unseen: true, claims: true},
			want: assign.Assignment{State: assign.None}, wantLive: assign.Assignment{State: assign.Unknown}, wantReads: []string{"kube-system", "web", "vc"},
		},
		{
			name: "its VirtualCluster is missing, and the tenant, still connected, lacks it", sides: sides{content: assign.Everything, unseen: true, claims: true}, tenant: []client.Object{},
			want: assign.Assignment{State: assign.Kept}, wantLive: assign.Assignment{State: assign.Kept}, wantProof: true,
			wantReads: []string{"kube-system", "web", "vc"}, wantAsked: []string{"kube-system", "web", "kube-system"},
		},
		{
			name: "another VirtualCluster has the name of its own", sides: sides{content: assign.Everything, unseen: true}, live: []client.Object{virtualCluster("another-uid")},
			want: assign.Assignment{State: assign.None}, wantLive: assign.Assignment{State: assign.Unknown}, wantReads: []string{"kube-system", "web", "vc"},
		},
		{
			name: "another VirtualCluster with the name of its own is being deleted", sides: sides{content: assign.Everything, unseen: true},
			live: []client.Object{deleted(virtualCluster("another-uid"))},
			want: assign.Assignment{State: assign.None}, wantLive: assign.Assignment{State: assign.Unknown}, wantReads: []string{"kube-system", "web", "vc"},
		},
		{
			name: "another meta cluster says that its VirtualCluster is being deleted", sides: sides{content: assign.Everything, unseen: true}, wantErr: proof.ErrOther,
			live: []client.Object{system("another"), deleted(virtualCluster("vc-uid"))},
			want: assign.Assignment{State: assign.None}, wantReads: []string{"kube-system"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var cachedReads, reads, asked []string
			if tc.tenant != nil {
				tc.sides.live = controlPlane(t, &asked, withSystem("tenant-uid", tc.tenant)...)
			}
			p := &assign.Pooled{
				SuperCluster: "r1", Meta: controlPlane(t, &cachedReads, tc.cached...), Live: meta(controlPlane(t, &reads, withSystem("meta-uid", tc.live)...)), Sides: &tc.sides,
			}
			got, err := p.Of(t.Context(), tenant, "web")
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(tc.want, got))
			require.Empty(t, reads, "Of asks caches only")
			require.Empty(t, asked, "Of asks caches only")

			got, proven, err := p.Confirm(t.Context(), tenant, "web")
			require.ErrorIs(t, err, tc.wantErr)
			require.Empty(t, cmp.Diff(tc.wantLive, got))
			require.Equal(t, tc.wantProof, proven.Holds())
			require.Equal(t, [][]string{tc.wantReads, tc.wantAsked}, [][]string{reads, asked})
		})
	}
}

// withSystem adds the namespace kube-system with that UID to objects that have none.
func withSystem(uid types.UID, objects []client.Object) []client.Object {
	if slices.ContainsFunc(objects, func(object client.Object) bool { return object.GetName() == "kube-system" }) {
		return objects
	}
	return append(slices.Clone(objects), system(uid))
}

// TestConfirmPlaced lets a tenant have many pods in a namespace that is not placed here: each costs one read, whatever
// else the tenant holds, and none of the tenant.
func TestConfirmPlaced(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		live []client.Object
		want assign.Assignment
	}{
		{name: "it is placed here", live: []client.Object{placement("web", "r2", "r1")}, want: assign.Assignment{
			State: assign.Placed, UID: "placed-uid", Reserved: builders.Resources("cpu", "2"),
		}},
		{name: "it is placed elsewhere", live: []client.Object{placement("web", "r2"), placement("db", "r1")}},
		{name: "it is placed nowhere", live: []client.Object{placement("db", "r1")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var cachedReads, reads, asked []string
			// Pods of it are still here, and Services may be: what Confirm asks for.
			left := &sides{content: assign.Everything, pods: assign.Yes, services: assign.No, live: controlPlane(t, &asked)}
			p := &assign.Pooled{SuperCluster: "r1", Meta: controlPlane(t, &cachedReads), Live: meta(controlPlane(t, &reads, tc.live...)), Sides: left}
			for range 10 {
				got, err := p.ConfirmPlaced(t.Context(), tenant, "web")
				require.NoError(t, err)
				require.Empty(t, cmp.Diff(tc.want, got))
			}
			require.Equal(t, []int{10, 0, 0}, []int{len(reads), len(cachedReads), len(asked)})
		})
	}
}

// TestPooledNamespaces names what is to be watched of a tenant.
func TestPooledNamespaces(t *testing.T) {
	t.Parallel()
	var reads []string
	p := &assign.Pooled{
		SuperCluster: "r1",
		Meta:         controlPlane(t, &reads, placement("web", "r1"), placement("elsewhere", "r2"), placement("api", "r2", "r1")),
		Sides: &sides{others: []assign.SuperNamespace{
			{Namespace: "web", Content: assign.Everything},
			{Namespace: "leaves", Content: assign.Everything},
			{Namespace: "served", Content: assign.Services},
			{Namespace: "goes", Content: assign.Everything, Terminating: true},
		}},
	}
	got, err := p.Namespaces(t.Context(), tenant)
	require.NoError(t, err)
	require.Equal(t, []string{"api", "goes", "leaves", "web"}, got)
	require.Equal(t, "scheduler.tenancy.x-k8s.io/superCluster=r1", p.PodSelector())
}

// TestPooledErrors lets no request that fails look like an absence.
func TestPooledErrors(t *testing.T) {
	t.Parallel()
	broken := errors.New("the meta cluster is away")
	failing := func(get, list error) client.Reader {
		return builders.Client(scheme.Scheme).WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, inner client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
				if get == nil {
					object.SetName("other")
					object.SetUID("meta-uid")
				}
				return get
			},
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return list },
		}).Build()
	}
	for _, tc := range []struct {
		name      string
		get, list error
	}{
		{name: "of one", get: broken},
		{name: "of all", list: broken},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			reader := failing(tc.get, tc.list)
			p := &assign.Pooled{SuperCluster: "r1", Meta: reader, Live: meta(reader), Sides: &sides{content: assign.Services}}
			confirm := func(ctx context.Context, tenant, namespace string) (assign.Assignment, error) {
				confirmed, proven, err := p.Confirm(ctx, tenant, namespace)
				require.False(t, proven.Holds())
				return confirmed, err
			}
			for _, ask := range []func(context.Context, string, string) (assign.Assignment, error){p.Of, confirm} {
				got, err := ask(t.Context(), tenant, "web")
				require.ErrorIs(t, err, broken)
				require.Equal(t, assign.Unknown, got.State)
			}
			got, err := p.ConfirmPlaced(t.Context(), tenant, "web")
			require.ErrorIs(t, err, tc.get)
			require.Equal(t, assign.Unknown, got.State)
		})
	}
}

// TestHome asks where a namespace has its load balancers, from the cache and live.
func TestHome(t *testing.T) {
	t.Parallel()
	decided := placement("web")
	decided.Status.Conditions = []metav1.Condition{{Type: schedulerv1alpha1.ConditionPlaced}}
	at := func(home string) *schedulerv1alpha1.NamespacePlacement {
		np := placement("web", "r1", "r2")
		np.Status.Home = home
		return np
	}
	for _, tc := range []struct {
		name   string
		object client.Object
		want   assign.Home
		proven bool
	}{
		{name: "here", object: at("r1"), want: assign.HomeHere},
		{name: "elsewhere", object: at("r2"), want: assign.HomeElsewhere, proven: true},
		{name: "nowhere", object: decided, want: assign.HomeNowhere, proven: true},
		{name: "a version that knows no homes wrote it", object: at(""), want: assign.HomeUnknown},
		{name: "nothing was decided yet", object: placement("web"), want: assign.HomeUnknown},
		{name: "it is being deleted", object: deleted(at("r2")), want: assign.HomeUnknown},
		{name: "there is none", object: placement("others", "r1"), want: assign.HomeUnknown},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var cached, live, again []string
			with := controlPlane(t, &cached, tc.object)
			without := controlPlane(t, &live, system("meta-uid"))
			home, err := (&assign.Pooled{SuperCluster: "r1", Meta: with, Live: meta(without)}).Home(t.Context(), tenant, "web")
			require.NoError(t, err)
			require.Equal(t, tc.want, home)
			require.Empty(t, live)

			pooled := &assign.Pooled{SuperCluster: "r1", Meta: without, Live: meta(controlPlane(t, &again, tc.object, system("meta-uid")))}
			home, proven, err := pooled.ConfirmHome(t.Context(), tenant, "web")
			require.NoError(t, err)
			require.Equal(t, tc.want, home)
			require.Equal(t, tc.proven, proven.Holds())

			pooled.Live = meta(controlPlane(t, &again, tc.object, system("restored")))
			_, proven, err = pooled.ConfirmHome(t.Context(), tenant, "web")
			require.False(t, proven.Holds())
			require.ErrorIs(t, err, proof.ErrOther)
		})
	}
}
