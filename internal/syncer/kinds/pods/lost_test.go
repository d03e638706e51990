package pods_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// TestPodOfSilentSuperCluster: while a super cluster is silent its pods change on neither side. When it answers again,
// what the tenant has given up or replaced goes first, by UID, and nothing of it is told; what was told stays true.
func TestPodOfSilentSuperCluster(t *testing.T) {
	t.Parallel()
	notReady := func(pod *corev1.Pod) {
		pod.Status.Conditions = append(pod.Status.Conditions, kindtest.Condition(corev1.PodReady, corev1.ConditionFalse, ""))
	}
	isReady := func(pod *corev1.Pod) {
		pod.Status.Conditions = append(pod.Status.Conditions, kindtest.Condition(corev1.PodReady, corev1.ConditionTrue, ""))
	}
	running, succeeded, failed := kindtest.InPhase(corev1.PodRunning), kindtest.InPhase(corev1.PodSucceeded), kindtest.InPhase(corev1.PodFailed)
	const inTenant, inSuper = "web/p", kindtest.ClusterKey + "-web/p"
	for _, tc := range []struct {
		name string
		// tenant is the pod as the tenant has it, which its cache shows unless unseen; super is as its super cluster
		// has it.
		tenant, super *corev1.Pod
		unseen        bool
		// wantTenant and wantSuper are the writes when the super cluster answers again.
		wantTenant, wantSuper []string
	}{
		{
			name:   "it ran on, and the tenant's node lifecycle controller said that it is not ready",
			tenant: kindtest.ProofPod("uid", kindtest.Bound("r1.n1"), running, notReady), super: kindtest.ProofSuperPod("uid", kindtest.OnNode("n1"), running, isReady),
			wantTenant: []string{"patch status " + inTenant},
		},
		{
			name:   "it ended meanwhile",
			tenant: kindtest.ProofPod("uid", kindtest.Bound("r1.n1"), running, notReady), super: kindtest.ProofSuperPod("uid", kindtest.OnNode("n1"), succeeded),
			wantTenant: []string{"patch status " + inTenant},
		},
		{
			name:   "it was evicted",
			tenant: kindtest.ProofPod("uid", kindtest.Bound("r1.n1"), running, notReady, withFinalizer, kindtest.Terminating(30)), super: kindtest.ProofSuperPod("uid", kindtest.OnNode("n1"), running, isReady),
			wantSuper: []string{"delete " + inSuper}, wantTenant: []string{"patch status " + inTenant},
		},
		{
			name: "it was deleted by force", super: kindtest.ProofSuperPod("uid", kindtest.OnNode("n1"), running, isReady),
			wantSuper: []string{"delete " + inSuper},
		},
		{
			name:   "a StatefulSet has made it again, and it runs elsewhere",
			tenant: kindtest.ProofPod("again", kindtest.Bound("r2.n1"), assignedTo("r2"), running, isReady), unseen: true,
			super: kindtest.ProofSuperPod("uid", kindtest.OnNode("n1"), running, isReady), wantSuper: []string{"delete " + inSuper},
		},
		{
			name:   "a StatefulSet has made it again, it runs elsewhere, and all pods are watched",
			tenant: kindtest.ProofPod("again", kindtest.Bound("r2.n1"), assignedTo("r2"), running, isReady),
			super:  kindtest.ProofSuperPod("uid", kindtest.OnNode("n1"), failed), wantSuper: []string{"delete " + inSuper},
		},
		{
			name:   "a StatefulSet has made it again, and it is to run here",
			tenant: kindtest.ProofPod("again", assignedTo("r1")), super: kindtest.ProofSuperPod("uid", kindtest.OnNode("n1"), running, isReady),
			wantSuper: []string{"delete " + inSuper},
		},
		{
			name:   "a StatefulSet has made it again, and it ended elsewhere",
			tenant: kindtest.ProofPod("again", kindtest.Bound("r2.n1"), assignedTo("r2"), succeeded), super: kindtest.ProofSuperPod("uid", kindtest.OnNode("n1"), running),
			wantSuper: []string{"delete " + inSuper},
		},
		{name: "it had succeeded, and the super pod is gone", tenant: kindtest.ProofPod("uid", kindtest.Bound("r1.n1"), assignedTo("r1"), succeeded)},
		{name: "it had failed, and the super pod is gone", tenant: kindtest.ProofPod("uid", kindtest.Bound("r1.n1"), assignedTo("r1"), failed)},
		{
			name:   "it is lost",
			tenant: kindtest.ProofPod("uid", kindtest.Bound("r1.n1"), assignedTo("r1"), running), wantTenant: []string{"delete " + inTenant},
		},
		{name: "it never ran", tenant: kindtest.ProofPod("uid", assignedTo("r1")), wantSuper: []string{"create " + inSuper}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var tenantWrites, superWrites []string
			p := kindtest.NewPool(t, interceptor.Funcs{})
			p.Placed(t)
			p.SuperCache[kind.ServiceAccount] = []client.Object{builders.Owned(&corev1.ServiceAccount{}, kindtest.OwnerOf(""))}
			p.SuperCache[kind.ServiceAccount][0].SetNamespace(kindtest.ClusterKey + "-web")
			tenantSide, superSide := side{live: tc.tenant}, side{live: tc.super}
			p.Tenant.Client, p.Env.Super = kindtest.Writes(tenantSide.client(kindtest.TenantUID), &tenantWrites), kindtest.Writes(superSide.client(kindtest.SuperUID), &superWrites)
			if tc.tenant != nil && !tc.unseen {
				p.TenantCache[kind.Pod] = []client.Object{tc.tenant}
			}
			if tc.super != nil {
				p.SuperCache[kind.Pod] = []client.Object{tc.super}
			}
			super := &kindtest.Silent{Cache: p.SuperCache}
			p.Env.SuperCache = super
			pods := p.Kind(kind.Pod)
			key := engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Pod, Namespace: "web", Name: "p"}

			_, err := pods.Reconcile(t.Context(), key, time.Hour)
			require.NoError(t, err)
			require.Empty(t, tenantWrites)
			require.Empty(t, superWrites)
			require.Empty(t, p.Events.Events)

			super.Current = true
			_, err = pods.Reconcile(t.Context(), key, 0)
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(tc.wantTenant, tenantWrites))
			require.Empty(t, cmp.Diff(tc.wantSuper, superWrites))
		})
	}
}
