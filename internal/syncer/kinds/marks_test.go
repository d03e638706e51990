package kinds_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// TestLabelIsPutBack takes the label off objects of a super namespace, so that no cache shows them: who has all other
// marks of exactly this object gets it back, and nothing is done to others.
func TestLabelIsPutBack(t *testing.T) {
	t.Parallel()
	inside, outside := metav1.ObjectMeta{Namespace: "web", Name: "x", UID: "uid"}, metav1.ObjectMeta{Namespace: kindtest.ClusterKey + "-web", Name: "x"}
	for _, each := range []struct {
		name          string
		tenant, super client.Object
	}{
		{kind.ConfigMap, &corev1.ConfigMap{ObjectMeta: inside}, &corev1.ConfigMap{ObjectMeta: outside}},
		{kind.Secret, &corev1.Secret{ObjectMeta: inside}, &corev1.Secret{ObjectMeta: outside}},
		{kind.Service, &corev1.Service{ObjectMeta: inside}, &corev1.Service{ObjectMeta: outside}},
		{kind.ServiceAccount, &corev1.ServiceAccount{ObjectMeta: inside}, &corev1.ServiceAccount{ObjectMeta: outside}},
		{kind.Namespace, builders.Namespace("web"), builders.Namespace(kindtest.ClusterKey + "-web")},
	} {
		for _, tc := range []struct {
			name   string
			damage func(object client.Object)
			want   bool
		}{
			{name: "the label is gone", want: true, damage: func(object client.Object) { kindtest.WithoutLabel(object) }},
			{name: "the label is another tenant's", want: true, damage: func(object client.Object) {
				object.GetLabels()[tenancyv1alpha1.LabelCluster] = "other"
			}},
			{name: "it was made for another object", damage: func(object client.Object) {
				object.GetAnnotations()[tenancyv1alpha1.AnnotationUID] = "another"
				kindtest.WithoutLabel(object)
			}},
			{name: "it is another tenant's", damage: func(object client.Object) {
				object.GetAnnotations()[tenancyv1alpha1.AnnotationVirtualClusterUID] = "another"
				kindtest.WithoutLabel(object)
			}},
			{name: "somebody made it", damage: func(object client.Object) {
				object.SetLabels(nil)
				object.SetAnnotations(nil)
			}},
		} {
			t.Run(each.name+"/"+tc.name, func(t *testing.T) {
				t.Parallel()
				p := kindtest.NewPool(t, interceptor.Funcs{})
				p.Placed(t)
				tenantObject, superObject := each.tenant.DeepCopyObject().(client.Object), each.super.DeepCopyObject().(client.Object)
				tenantObject.SetUID("ns-uid")
				superObject.SetUID("super-uid")
				tenancy.SetOwner(superObject, kindtest.OwnerOf("ns-uid"))
				tc.damage(superObject)
				key := engine.Key{Tenant: kindtest.ClusterKey, Kind: each.name, Namespace: "web", Name: "x"}
				if each.name == kind.ConfigMap {
					superObject.SetName("x")
				}
				if each.name == kind.Namespace {
					key.Namespace, key.Name = "", "web"
					p.SuperCache[kind.Namespace] = nil
				}
				p.TenantCache[each.name] = []client.Object{tenantObject}
				require.NoError(t, p.SuperClient.Create(t.Context(), superObject))
				before := superObject.DeepCopyObject().(client.Object)

				_, err := p.Kind(each.name).Reconcile(t.Context(), key, 0)
				live := superObject.DeepCopyObject().(client.Object)
				require.NoError(t, p.SuperClient.Get(t.Context(), client.ObjectKeyFromObject(superObject), live))
				if !tc.want {
					require.NoError(t, err)
					require.Empty(t, cmp.Diff(before, live, cmpopts.EquateEmpty()), "it is not touched")
					require.Contains(t, <-p.Events.Events, "Conflict")
					return
				}
				wait := &engine.WaitError{}
				require.ErrorAs(t, err, &wait, "the informer has yet to show it")
				owner, owned := tenancy.GetOwner(live)
				require.True(t, owned)
				require.Equal(t, kindtest.OwnerOf("ns-uid"), owner)
				require.Empty(t, p.Events.Events)
			})
		}
	}
}

// TestPodsWithoutMarks takes marks off the super pod of a pod that runs: the pod is not lost, and no other one runs
// beside it.
func TestPodsWithoutMarks(t *testing.T) {
	t.Parallel()
	unmarked := func(pod *corev1.Pod) { pod.Labels, pod.Annotations = nil, nil }
	unlabelled := func(pod *corev1.Pod) { kindtest.WithoutLabel(pod) }
	for _, tc := range []struct {
		name   string
		tenant *corev1.Pod
		live   *corev1.Pod
		damage func(pod *corev1.Pod)
		// wantLabel is whether the super pod is marked again, wantConflict whether the tenant is told.
		wantLabel, wantConflict bool
		wantRemoved             []string
	}{
		{name: "it lost its label", tenant: kindtest.ProofPod("uid", kindtest.Bound("r1.n1")), live: kindtest.ProofSuperPod("uid", kindtest.OnNode("n1")), damage: unlabelled, wantLabel: true},
		{
			name: "it lost its label, and is being deleted", tenant: kindtest.ProofPod("uid", kindtest.Bound("r1.n1"), kindtest.Terminating(30)), live: kindtest.ProofSuperPod("uid", kindtest.OnNode("n1")),
			damage: unlabelled, wantLabel: true,
		},
		{name: "it lost its label before it had a node", tenant: kindtest.ProofPod("uid"), live: kindtest.ProofSuperPod("uid"), damage: unlabelled, wantLabel: true},
		{name: "it lost all marks", tenant: kindtest.ProofPod("uid", kindtest.Bound("r1.n1")), live: kindtest.ProofSuperPod("uid", kindtest.OnNode("n1")), damage: unmarked, wantConflict: true},
		{
			name: "it lost all marks, and is being deleted", tenant: kindtest.ProofPod("uid", kindtest.Bound("r1.n1"), kindtest.Terminating(30)), live: kindtest.ProofSuperPod("uid", kindtest.OnNode("n1")),
			damage: unmarked, wantConflict: true,
		},
		{
			name: "it lost all marks before it was bound, and is being deleted", tenant: kindtest.ProofPod("uid", kindtest.Terminating(30)), live: kindtest.ProofSuperPod("uid", kindtest.OnNode("n1")),
			damage: unmarked, wantConflict: true,
		},
		{
			name: "somebody's on another node", tenant: kindtest.ProofPod("uid", kindtest.Bound("r1.n1")), live: kindtest.ProofSuperPod("uid", kindtest.OnNode("n2")), damage: unmarked,
			wantRemoved: []string{"uid uid"},
		},
		{
			name: "somebody's that has ended", tenant: kindtest.ProofPod("uid", kindtest.Bound("r1.n1")), live: kindtest.ProofSuperPod("uid", kindtest.OnNode("n1"), kindtest.InPhase(corev1.PodFailed)),
			damage: unmarked, wantRemoved: []string{"uid uid"},
		},
		{
			name: "its own namespace's, for another pod", tenant: kindtest.ProofPod("uid", kindtest.Bound("r1.n1")), live: kindtest.ProofSuperPod("old", kindtest.OnNode("n2")), damage: unlabelled,
			wantRemoved: []string{"uid uid"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.NewPool(t, interceptor.Funcs{})
			p.Placed(t)
			tc.damage(tc.live)
			inTenant, inSuper := side{live: tc.tenant.DeepCopy()}, side{live: tc.live}
			inTenant.live.DeletionTimestamp, inTenant.live.DeletionGracePeriodSeconds = nil, nil
			p.Tenant.Client, p.Env.Super = inTenant.client(kindtest.TenantUID), inSuper.client(kindtest.SuperUID)
			p.SuperCache[kind.ServiceAccount] = []client.Object{&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: kindtest.ClusterKey + "-web"}}}
			p.TenantCache[kind.Pod] = []client.Object{tc.tenant}
			_, err := p.Kind(kind.Pod).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Pod, Namespace: "web", Name: "p"}, 0)
			wait := &engine.WaitError{}
			require.Equal(t, tc.wantLabel || tc.wantConflict, errors.As(err, &wait), "%v", err)
			require.Empty(t, cmp.Diff(tc.wantRemoved, inTenant.deleted))
			require.Empty(t, inSuper.deleted)
			live := &corev1.Pod{}
			require.NoError(t, p.Env.Super.Get(t.Context(), types.NamespacedName{Namespace: tc.live.Namespace, Name: "p"}, live))
			owner, owned := tenancy.GetOwner(live)
			require.Equal(t, tc.wantLabel, owned)
			if tc.wantLabel {
				require.Equal(t, kindtest.OwnerOf("uid"), owner)
			}
			if tc.wantConflict {
				require.Contains(t, <-p.Events.Events, "Warning Conflict Super cluster r1 has a pod of that name that may be this one and has lost its marks")
			}
		})
	}
}
