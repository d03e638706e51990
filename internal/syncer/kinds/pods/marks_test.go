package pods_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders/kindtest"
)

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
