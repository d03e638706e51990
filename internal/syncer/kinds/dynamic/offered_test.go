package dynamic_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/offer"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/proof"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/dynamic"
	"github.com/superpool/superpool/internal/syncer/kinds/podspec"
	"github.com/superpool/superpool/internal/syncpolicy"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// fuzzedText keeps texts of fuzzing short.
func fuzzedText(text string) string { return text[:min(len(text), 64)] }

// FuzzOffered lets super clusters offer any objects to a tenant: nothing of their metadata goes up, what goes up is
// complete after one write, and no object of a cache is changed.
func FuzzOffered(f *testing.F) {
	f.Add("csi.example.com", "secret", "note", int32(7), true, uint8(3))
	f.Add("", "", "", int32(-1), false, uint8(0))
	f.Fuzz(func(t *testing.T, name, parameter, annotation string, value int32, flag bool, which uint8) {
		name, parameter, annotation = fuzzedText(name), fuzzedText(parameter), fuzzedText(annotation)
		meta := metav1.ObjectMeta{Name: "fast", Annotations: map[string]string{"a": annotation}, Labels: map[string]string{"l": annotation}}
		objects := []client.Object{
			&storagev1.StorageClass{ObjectMeta: meta, Provisioner: name, Parameters: map[string]string{"p": parameter}, AllowVolumeExpansion: &flag},
			&schedulingv1.PriorityClass{ObjectMeta: meta, Value: value, GlobalDefault: flag, Description: name},
			&nodev1.RuntimeClass{ObjectMeta: meta, Handler: name, Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"n": parameter}}},
		}
		superObject := objects[int(which)%len(objects)]
		kind := []string{kind.StorageClass, kind.PriorityClass, kind.RuntimeClass}[int(which)%len(objects)]
		before := superObject.DeepCopyObject()
		first, ok := dynamic.Offered(kind, superObject, nil)
		require.True(t, ok)
		require.Empty(t, first.GetAnnotations()["a"]+first.GetLabels()["l"])
		mine := metav1.ObjectMeta{Name: "fast", UID: "1", ResourceVersion: "3", Annotations: map[string]string{"mine": "1"}}
		first.SetAnnotations(mine.Annotations)
		first.SetUID(mine.UID)
		cached := first.DeepCopyObject()
		second, ok := dynamic.Offered(kind, superObject, first)
		require.True(t, ok)
		require.Empty(t, cmp.Diff(first, second))
		require.Empty(t, cmp.Diff(cached, first))
		require.Empty(t, cmp.Diff(before, superObject))
		switch shown := second.(type) {
		case *storagev1.StorageClass:
			require.Empty(t, shown.Parameters)
			require.Equal(t, name, shown.Provisioner)
		case *schedulingv1.PriorityClass:
			require.False(t, shown.GlobalDefault)
			require.Equal(t, value, shown.Value)
		case *nodev1.RuntimeClass:
			require.Nil(t, shown.Scheduling)
		}
	})
}

// offering returns a pool whose tenant may have StorageClass fast, which the super cluster has.
func offering(t *testing.T, tenant, super interceptor.Funcs, live ...client.Object) (*kindtest.Pool, *storagev1.StorageClass) {
	t.Helper()
	p := kindtest.NewPool(t, super)
	p.Placed(t)
	spec := policy.Default().Spec().DeepCopy()
	spec.Pods.StorageClasses, spec.Offers.PriorityClasses = []string{"fast"}, []string{"high"}
	listing, err := policy.New("listing", spec)
	require.NoError(t, err)
	p.Tenant.Policy = &policy.Ref{}
	p.Tenant.Policy.Set(listing)
	p.Tenant.Client = kindtest.Answering(interceptor.NewClient(kindtest.NewClientBuilder().WithObjects(live...).Build(), tenant), kindtest.TenantUID)
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "csi.example.com"}
	p.SuperCache[kind.StorageClass] = []client.Object{class}
	return p, class
}

var offerOfFast = engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Offer, Namespace: kind.StorageClass, Name: "fast"}

// offeredBy returns a tenant's StorageClass with these notes, as pairs.
func offeredBy(pairs ...string) *storagev1.StorageClass {
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast", UID: "1", ResourceVersion: "7"}, Provisioner: "csi.example.com"}
	for i := 0; i < len(pairs); i += 2 {
		offer.Mark(class, pairs[i], offer.Note{Hash: pairs[i+1]})
	}
	return class
}

// TestOfferedClassIsWithdrawn: what has to be read live before a note or an object goes.
func TestOfferedClassIsWithdrawn(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		// cached and live are what the tenant has.
		cached, live *storagev1.StorageClass
		// inSuper is whether the super cluster has the class after all, broken whether it does not answer.
		inSuper, broken bool
		// tenant is the UID of the control plane that answers for the tenant.
		tenant  types.UID
		wantBy  []string
		wantErr bool
	}{
		{name: "the last one", cached: offeredBy("r1", "a"), live: offeredBy("r1", "a"), tenant: kindtest.TenantUID},
		{name: "another offers it", cached: offeredBy("r1", "a", "r2", "a"), live: offeredBy("r1", "a", "r2", "a"), tenant: kindtest.TenantUID, wantBy: []string{"r2"}},
		{name: "another has just come", cached: offeredBy("r1", "a"), live: offeredBy("r1", "a", "r2", "a"), tenant: kindtest.TenantUID, wantBy: []string{"r2"}},
		{name: "another control plane answers", cached: offeredBy("r1", "a"), live: offeredBy("r1", "a"), tenant: "another", wantBy: []string{"r1"}, wantErr: true},
		{name: "the cache of the super cluster lacks it", cached: offeredBy("r1", "a"), live: offeredBy("r1", "a"), inSuper: true, tenant: kindtest.TenantUID, wantBy: []string{"r1"}, wantErr: true},
		{name: "the super cluster does not answer", cached: offeredBy("r1", "a"), live: offeredBy("r1", "a"), broken: true, tenant: kindtest.TenantUID, wantBy: []string{"r1"}, wantErr: true},
		{name: "it is gone", cached: offeredBy("r1", "a"), tenant: kindtest.TenantUID},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var live []client.Object
			if tc.live != nil {
				live = append(live, tc.live)
			}
			p, class := offering(t, interceptor.Funcs{}, interceptor.Funcs{Get: func(ctx context.Context, to client.WithWatch, name client.ObjectKey, object client.Object, options ...client.GetOption) error {
				if _, ok := object.(*storagev1.StorageClass); ok && tc.broken {
					return errors.New("connection refused")
				}
				return to.Get(ctx, name, object, options...)
			}}, live...)
			if tc.inSuper {
				require.NoError(t, p.SuperClient.Create(t.Context(), class))
			}
			p.SuperCache[kind.StorageClass] = nil
			p.Tenant.Client = kindtest.Answering(p.Tenant.Client.(client.WithWatch), tc.tenant)
			p.TenantCache[kind.StorageClass] = []client.Object{tc.cached}
			before := tc.cached.DeepCopy()
			_, err := p.Kind(kind.Offer).Reconcile(t.Context(), offerOfFast, 0)
			require.Equal(t, tc.wantErr, err != nil, "%v", err)
			require.Empty(t, cmp.Diff(before, tc.cached))
			left := &storagev1.StorageClass{}
			err = p.Tenant.Client.Get(t.Context(), types.NamespacedName{Name: "fast"}, left)
			require.Equal(t, tc.wantBy == nil, apierrors.IsNotFound(err), "%v", err)
			require.Equal(t, tc.wantBy, offer.By(left))
		})
	}
}

// TestOffersAll: a policy that lists all classes offers those that the super cluster has.
func TestOffersAll(t *testing.T) {
	t.Parallel()
	p, _ := offering(t, interceptor.Funcs{}, interceptor.Funcs{})
	spec := policy.Default().Spec().DeepCopy()
	spec.Pods.StorageClasses = []string{"", policy.AllClasses}
	listing, err := policy.New("all", spec)
	require.NoError(t, err)
	p.Tenant.Policy.Set(listing)
	p.SuperCache[kind.StorageClass] = append(p.SuperCache[kind.StorageClass],
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "slow"}, Provisioner: "csi.example.com"})
	names := []string{}
	for _, key := range p.Kind(kind.Offer).Keys() {
		if key.Namespace == kind.StorageClass {
			names = append(names, key.Name)
			_, err := p.Kind(kind.Offer).Reconcile(t.Context(), key, 0)
			require.NoError(t, err)
			require.NoError(t, p.Tenant.Client.Get(t.Context(), types.NamespacedName{Name: key.Name}, &storagev1.StorageClass{}))
		}
	}
	require.Equal(t, []string{"fast", "slow"}, names)
}

// TestOfferedBySyncPolicy: what a SyncPolicy has let up goes when it no longer names it, by a live read, and stays in
// tenants that the policy is no longer for while they hold anything here.
func TestOfferedBySyncPolicy(t *testing.T) {
	t.Parallel()
	const planets = "offer:Planet.v1.example.com"
	for _, tc := range []struct {
		name string
		spec tenancyv1alpha1.SyncPolicySpec
		// refuses is the error of a live read of the policy; unserved is whether the super cluster serves no planets.
		refuses  error
		unserved bool
		// elsewhere is whether the tenant holds nothing here.
		elsewhere        bool
		wantStays, waits bool
	}{
		{name: "the policy names it no more", spec: tenancyv1alpha1.SyncPolicySpec{Names: []string{"mars"}}},
		{name: "a cache says so, and the policy does not", spec: tenancyv1alpha1.SyncPolicySpec{Names: []string{"mars"}}, refuses: errors.New("it is listed"), wantStays: true, waits: true},
		{name: "the policy is for other tenants", spec: tenancyv1alpha1.SyncPolicySpec{Names: []string{"earth"}, TenantPolicies: []string{"gold"}}, wantStays: true},
		{name: "and the tenant holds nothing here", spec: tenancyv1alpha1.SyncPolicySpec{Names: []string{"earth"}, TenantPolicies: []string{"gold"}}, elsewhere: true},
		{name: "the super cluster has deleted it", spec: tenancyv1alpha1.SyncPolicySpec{Names: []string{"earth"}}},
		{name: "the super cluster does not serve it", spec: tenancyv1alpha1.SyncPolicySpec{Names: []string{"earth"}}, unserved: true, wantStays: true, waits: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p, _ := offering(t, interceptor.Funcs{}, interceptor.Funcs{Get: func(ctx context.Context, to client.WithWatch, name client.ObjectKey, object client.Object, options ...client.GetOption) error {
				if tc.unserved && name.Name == "earth" {
					return apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{Resource: "planets"}, name.Name, "404 page not found", 0, true)
				}
				return to.Get(ctx, name, object, options...)
			}})
			if tc.elsewhere {
				p.SuperCache[kind.Namespace] = nil
				p.Assigns(builders.Client(kindtest.PlacementScheme(t)).Build(), nil)
			}
			tc.spec.Group, tc.spec.Version, tc.spec.Kind, tc.spec.Direction = "example.com", "v1", "Planet", tenancyv1alpha1.SyncUp
			rules, refusal := syncpolicy.Compile(&tenancyv1alpha1.SyncPolicy{ObjectMeta: metav1.ObjectMeta{Name: "planets"}, Spec: tc.spec}, nil)
			require.Nil(t, refusal)
			p.SetCustom([]dynamic.Custom{{Rules: rules, Resource: "planets", Removes: func(_ context.Context, name string) (proof.Proof, error) {
				require.Equal(t, "earth", name)
				return proof.NotNeeded("the policy does not list it"), tc.refuses
			}}})
			earth := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Planet"}}
			earth.SetName("earth")
			offer.Mark(earth, "r1", offer.Note{Hash: "a"})
			p.Tenant.Client = kindtest.Answering(builders.Client(runtime.NewScheme()).WithObjects(earth).Build(), kindtest.TenantUID)
			p.TenantCache[planets] = []client.Object{earth}
			_, err := p.Kind(kind.Offer).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Offer, Namespace: planets, Name: "earth"}, 0)
			require.Equal(t, tc.waits, err != nil, "%v", err)
			err = p.Tenant.Client.Get(t.Context(), types.NamespacedName{Name: "earth"}, earth.DeepCopy())
			require.Equal(t, tc.wantStays, err == nil, "%v", err)
		})
	}
}

// TestOfferedClassDiffers lets tenants write that other super clusters offer something else: the operator is told of
// each once, and of a bounded number for each tenant.
func TestOfferedClassDiffers(t *testing.T) {
	t.Parallel()
	p, class := offering(t, interceptor.Funcs{}, interceptor.Funcs{})
	meta := record.NewFakeRecorder(4096)
	p.Env.MetaRecorder, p.Env.VirtualNode = meta, func() *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "r1"}} }
	offers := p.Kind(kind.Offer)
	differ := func(superCluster string) {
		p.TenantCache[kind.StorageClass] = []client.Object{offeredBy(superCluster, "a")}
		_, err := offers.Reconcile(t.Context(), offerOfFast, 0)
		require.NoError(t, err)
	}
	for range 3 {
		differ("r2")
	}
	require.Len(t, meta.Events, 1)
	require.Equal(t, "Warning OffersDiffer StorageClass fast of super cluster r1 differs from that of super cluster r2, which tenants have, as "+kindtest.ClusterKey+
		": make them equal, or give one of them another name", <-meta.Events)
	class.Provisioner = "another"
	differ("r2")
	require.Len(t, meta.Events, 1, "another one differs")
	for i := range 2000 {
		differ("forged-" + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676)))
	}
	require.Len(t, meta.Events, 128)
	p.Env.Forget(kindtest.ClusterKey)
	differ("r3")
	require.Len(t, meta.Events, 129, "the bound is one of the tenant's, while it is connected")
}

// TestPriorityClassOfPod: a pod has the class that it names where that is offered, and no other.
func TestPriorityClassOfPod(t *testing.T) {
	t.Parallel()
	high := func(by ...string) *schedulingv1.PriorityClass {
		class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 100}
		for _, superCluster := range by {
			offer.Mark(class, superCluster, offer.Note{Hash: "a"})
		}
		return class
	}
	for _, tc := range []struct {
		name          string
		tenant, super *schedulingv1.PriorityClass
		names         string
		want          string
	}{
		{name: "offered", tenant: high("r1", "r2"), super: high(), names: "high", want: "high"},
		{name: "by another super cluster", tenant: high("r2"), super: high(), names: "high"},
		{name: "no longer", tenant: high("r1"), names: "high"},
		{name: "the tenant's own", tenant: nil, super: high(), names: "high"},
		{name: "not listed", tenant: high("r1"), super: high(), names: "low"},
		{name: "none", tenant: high("r1"), super: high()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p, _ := offering(t, interceptor.Funcs{}, interceptor.Funcs{})
			if tc.tenant != nil {
				p.TenantCache[kind.PriorityClass] = []client.Object{tc.tenant}
			}
			if tc.super != nil {
				p.SuperCache[kind.PriorityClass] = []client.Object{tc.super}
			}
			got, err := dynamic.OfferedPriorityClass(p.Env, p.Tenant, tc.names)
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
			superPod := &corev1.Pod{}
			podspec.SuperPod(&corev1.Pod{Spec: corev1.PodSpec{PriorityClassName: tc.names}}, superPod, kindtest.OwnerOf("pod-uid"), nil, &podspec.PodEnvironment{PriorityClass: got})
			require.Equal(t, tc.want, superPod.Spec.PriorityClassName)
			require.Nil(t, superPod.Spec.Priority)
		})
	}
}

// TestOfferOfNobody: a tenant that holds nothing here is offered nothing.
func TestOfferOfNobody(t *testing.T) {
	t.Parallel()
	p, _ := offering(t, interceptor.Funcs{}, interceptor.Funcs{})
	p.SuperCache[kind.Namespace] = nil
	p.Assigns(builders.Client(kindtest.PlacementScheme(t)).Build(), nil)
	_, err := p.Kind(kind.Offer).Reconcile(t.Context(), offerOfFast, time.Second)
	require.NoError(t, err)
	require.True(t, apierrors.IsNotFound(p.Tenant.Client.Get(t.Context(), types.NamespacedName{Name: "fast"}, &storagev1.StorageClass{})))

	p.Placed(t)
	var enqueued []engine.Key
	p.Env.Resync = func(keys []engine.Key) { enqueued = append(enqueued, keys...) }
	_, err = p.Kind(kind.Offer).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Offer}, 0)
	require.NoError(t, err)
	require.Contains(t, enqueued, offerOfFast)
	_, err = p.Kind(kind.Offer).Reconcile(t.Context(), offerOfFast, 0)
	require.NoError(t, err)
	class := &storagev1.StorageClass{}
	require.NoError(t, p.Tenant.Client.Get(t.Context(), types.NamespacedName{Name: "fast"}, class))
	require.Equal(t, "true", class.Labels[tenancyv1alpha1.LabelOffered])

	enqueued = nil
	_, err = p.Kind(kind.Offer).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Offer}, 0)
	require.NoError(t, err)
	require.Empty(t, enqueued, "nothing has changed")
}
