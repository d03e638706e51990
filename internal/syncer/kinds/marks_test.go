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
)

func withoutLabel[T client.Object](object T) T {
	labels := object.GetLabels()
	delete(labels, tenancyv1alpha1.LabelCluster)
	object.SetLabels(labels)
	return object
}

// TestLabelIsPutBack takes the label off objects of a super namespace, so that no cache shows them: who has all other
// marks of exactly this object gets it back, and nothing is done to others.
func TestLabelIsPutBack(t *testing.T) {
	t.Parallel()
	inside, outside := metav1.ObjectMeta{Namespace: "web", Name: "x", UID: "uid"}, metav1.ObjectMeta{Namespace: clusterKey + "-web", Name: "x"}
	for _, each := range []struct {
		name          string
		tenant, super client.Object
	}{
		{kind.ConfigMap, &corev1.ConfigMap{ObjectMeta: inside}, &corev1.ConfigMap{ObjectMeta: outside}},
		{kind.Secret, &corev1.Secret{ObjectMeta: inside}, &corev1.Secret{ObjectMeta: outside}},
		{kind.Service, &corev1.Service{ObjectMeta: inside}, &corev1.Service{ObjectMeta: outside}},
		{kind.ServiceAccount, &corev1.ServiceAccount{ObjectMeta: inside}, &corev1.ServiceAccount{ObjectMeta: outside}},
		{kind.Namespace, builders.Namespace("web"), builders.Namespace(clusterKey + "-web")},
	} {
		for _, tc := range []struct {
			name   string
			damage func(object client.Object)
			want   bool
		}{
			{name: "the label is gone", want: true, damage: func(object client.Object) { withoutLabel(object) }},
			{name: "the label is another tenant's", want: true, damage: func(object client.Object) {
				object.GetLabels()[tenancyv1alpha1.LabelCluster] = "other"
			}},
			{name: "it was made for another object", damage: func(object client.Object) {
				object.GetAnnotations()[tenancyv1alpha1.AnnotationUID] = "another"
				withoutLabel(object)
			}},
			{name: "it is another tenant's", damage: func(object client.Object) {
				object.GetAnnotations()[tenancyv1alpha1.AnnotationVirtualClusterUID] = "another"
				withoutLabel(object)
			}},
			{name: "somebody made it", damage: func(object client.Object) {
				object.SetLabels(nil)
				object.SetAnnotations(nil)
			}},
		} {
			t.Run(each.name+"/"+tc.name, func(t *testing.T) {
				t.Parallel()
				p := newPool(t, interceptor.Funcs{})
				p.placed(t)
				tenantObject, superObject := each.tenant.DeepCopyObject().(client.Object), each.super.DeepCopyObject().(client.Object)
				tenantObject.SetUID("ns-uid")
				superObject.SetUID("super-uid")
				tenancy.SetOwner(superObject, ownerOf("ns-uid"))
				tc.damage(superObject)
				key := engine.Key{Tenant: clusterKey, Kind: each.name, Namespace: "web", Name: "x"}
				if each.name == kind.ConfigMap {
					superObject.SetName("x")
				}
				if each.name == kind.Namespace {
					key.Namespace, key.Name = "", "web"
					p.superCache[kind.Namespace] = nil
				}
				p.tenantCache[each.name] = []client.Object{tenantObject}
				require.NoError(t, p.superClient.Create(t.Context(), superObject))
				before := superObject.DeepCopyObject().(client.Object)

				_, err := p.kind(each.name).Reconcile(t.Context(), key, 0)
				live := superObject.DeepCopyObject().(client.Object)
				require.NoError(t, p.superClient.Get(t.Context(), client.ObjectKeyFromObject(superObject), live))
				if !tc.want {
					require.NoError(t, err)
					require.Empty(t, cmp.Diff(before, live, cmpopts.EquateEmpty()), "it is not touched")
					require.Contains(t, <-p.events.Events, "Conflict")
					return
				}
				wait := &engine.WaitError{}
				require.ErrorAs(t, err, &wait, "the informer has yet to show it")
				owner, owned := tenancy.GetOwner(live)
				require.True(t, owned)
				require.Equal(t, ownerOf("ns-uid"), owner)
				require.Empty(t, p.events.Events)
			})
		}
	}
}

// TestPodsWithoutMarks takes marks off the super pod of a pod that runs: the pod is not lost, and no other one runs
// beside it.
func TestPodsWithoutMarks(t *testing.T) {
	t.Parallel()
	unmarked := func(pod *corev1.Pod) { pod.Labels, pod.Annotations = nil, nil }
	unlabelled := func(pod *corev1.Pod) { withoutLabel(pod) }
	for _, tc := range []struct {
		name   string
		tenant *corev1.Pod
		live   *corev1.Pod
		damage func(pod *corev1.Pod)
		// wantLabel is whether the super pod is marked again, wantConflict whether the tenant is told.
		wantLabel, wantConflict bool
		wantRemoved             []string
	}{
		{name: "it lost its label", tenant: proofPod("uid", bound("r1.n1")), live: proofSuperPod("uid", onNode("n1")), damage: unlabelled, wantLabel: true},
		{
			name: "it lost its label, and is being deleted", tenant: proofPod("uid", bound("r1.n1"), terminating(30)), live: proofSuperPod("uid", onNode("n1")),
			damage: unlabelled, wantLabel: true,
		},
		{name: "it lost its label before it had a node", tenant: proofPod("uid"), live: proofSuperPod("uid"), damage: unlabelled, wantLabel: true},
		{name: "it lost all marks", tenant: proofPod("uid", bound("r1.n1")), live: proofSuperPod("uid", onNode("n1")), damage: unmarked, wantConflict: true},
		{
			name: "it lost all marks, and is being deleted", tenant: proofPod("uid", bound("r1.n1"), terminating(30)), live: proofSuperPod("uid", onNode("n1")),
			damage: unmarked, wantConflict: true,
		},
		{
			name: "it lost all marks before it was bound, and is being deleted", tenant: proofPod("uid", terminating(30)), live: proofSuperPod("uid", onNode("n1")),
			damage: unmarked, wantConflict: true,
		},
		{
			name: "somebody's on another node", tenant: proofPod("uid", bound("r1.n1")), live: proofSuperPod("uid", onNode("n2")), damage: unmarked,
			wantRemoved: []string{"uid uid"},
		},
		{
			name: "somebody's that has ended", tenant: proofPod("uid", bound("r1.n1")), live: proofSuperPod("uid", onNode("n1"), inPhase(corev1.PodFailed)),
			damage: unmarked, wantRemoved: []string{"uid uid"},
		},
		{
			name: "its own namespace's, for another pod", tenant: proofPod("uid", bound("r1.n1")), live: proofSuperPod("old", onNode("n2")), damage: unlabelled,
			wantRemoved: []string{"uid uid"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := newPool(t, interceptor.Funcs{})
			p.placed(t)
			tc.damage(tc.live)
			inTenant, inSuper := side{live: tc.tenant.DeepCopy()}, side{live: tc.live}
			inTenant.live.DeletionTimestamp, inTenant.live.DeletionGracePeriodSeconds = nil, nil
			p.tenant.Client, p.env.Super = inTenant.client(tenantUID), inSuper.client(superUID)
			p.superCache[kind.ServiceAccount] = []client.Object{&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: clusterKey + "-web"}}}
			p.tenantCache[kind.Pod] = []client.Object{tc.tenant}
			_, err := p.kind(kind.Pod).Reconcile(t.Context(), engine.Key{Tenant: clusterKey, Kind: kind.Pod, Namespace: "web", Name: "p"}, 0)
			wait := &engine.WaitError{}
			require.Equal(t, tc.wantLabel || tc.wantConflict, errors.As(err, &wait), "%v", err)
			require.Empty(t, cmp.Diff(tc.wantRemoved, inTenant.deleted))
			require.Empty(t, inSuper.deleted)
			live := &corev1.Pod{}
			require.NoError(t, p.env.Super.Get(t.Context(), types.NamespacedName{Namespace: tc.live.Namespace, Name: "p"}, live))
			owner, owned := tenancy.GetOwner(live)
			require.Equal(t, tc.wantLabel, owned)
			if tc.wantLabel {
				require.Equal(t, ownerOf("uid"), owner)
			}
			if tc.wantConflict {
				require.Contains(t, <-p.events.Events, "Warning Conflict Super cluster r1 has a pod of that name that may be this one and has lost its marks")
			}
		})
	}
}
