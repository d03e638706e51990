package scheduling

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/test/await"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/controlplane"
)

// secondTenant returns the world as a second tenant sees it, to which something is guaranteed.
func (w *world) secondTenant(t *testing.T, name string, guaranteed corev1.ResourceList) *world {
	t.Helper()
	started, stop, err := controlplane.Start(controlplane.Options{Role: controlplane.Tenant, DisableAdmission: []string{"ResourceQuota", "ServiceAccount"}})
	t.Cleanup(stop)
	require.NoError(t, err)
	other := *w
	other.name = name
	other.tenant, err = client.New(started[0].Config, client.Options{Scheme: controlplane.Scheme()})
	require.NoError(t, err)
	rules := &tenancyv1alpha1.TenantPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: *policy.Default().Spec().DeepCopy()}
	rules.Spec.Scheduling.Guaranteed = guaranteed
	require.NoError(t, w.meta.Create(t.Context(), rules))
	account, err := controlplane.Account(t.Context(), started[0], "tenant/rbac.yaml", "superpool-system", "superpool")
	require.NoError(t, err)
	secret := builders.KubeconfigSecret(name, account.KubeConfig)
	require.NoError(t, w.meta.Create(t.Context(), secret))
	vc := builders.VirtualCluster(name)
	vc.Spec.PolicyName = name
	require.NoError(t, w.meta.Create(t.Context(), vc))
	require.Eventually(t, func() bool {
		require.NoError(t, w.meta.Get(t.Context(), client.ObjectKeyFromObject(vc), vc))
		other.key = vc.Status.ClusterNamespace
		return other.key != ""
	}, patience, tick, "tenant %s is known", name)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		w.settle(t)
		require.NoError(t, w.meta.Delete(ctx, vc))
		require.Eventually(t, func() bool {
			return apierrors.IsNotFound(w.meta.Get(ctx, client.ObjectKeyFromObject(vc), vc))
		}, patience, tick, "vc-scheduler has left tenant %s", name)
		require.NoError(t, w.meta.Delete(ctx, rules))
		require.NoError(t, w.meta.Delete(ctx, secret))
	})
	return &other
}

// leaves returns the super cluster that a namespace leaves because it is preempted, and until when its pods are asked
// about.
func (w *world) leaves(t *testing.T, namespace string) (cluster string, deadline time.Time) {
	t.Helper()
	require.Eventually(t, func() bool {
		np := w.placement(t, namespace)
		for i := range np.Status.Placements {
			p := &np.Status.Placements[i]
			if p.Leaving != nil && p.Leaving.Reason == schedulerv1alpha1.LeavingPreempted {
				cluster, deadline = p.Cluster, p.Leaving.Deadline.Time
				return true
			}
		}
		return false
	}, patience, tick, "namespace %s gives way", namespace)
	return cluster, deadline
}

// soon is time enough for a vc-scheduler to start, as a rule.
const soon = 10 * time.Second

// expires lets the deadline of what a namespace has in a super cluster come soon, while no vc-scheduler runs, and
// returns when.
func (w *world) expires(t *testing.T, namespace, cluster string) (deadline time.Time) {
	t.Helper()
	np := &schedulerv1alpha1.NamespacePlacement{ObjectMeta: metav1.ObjectMeta{Namespace: w.key, Name: namespace}}
	await.Change(t, w.meta, np, func(np *schedulerv1alpha1.NamespacePlacement) {
		for i := range np.Status.Placements {
			if p := &np.Status.Placements[i]; p.Cluster == cluster {
				require.Greater(t, time.Until(p.Leaving.Deadline.Time), soon)
				p.Leaving.Deadline = &metav1.Time{Time: time.Now().Add(soon).Truncate(time.Second)}
			}
		}
	}, "status")
	_, deadline = w.leaves(t, namespace)
	return deadline
}

// TestWhatIsGuaranteedIsGivenBack: one tenant borrows the pool, and another asks for what is guaranteed to it. A pod
// that a budget keeps has until the deadline, whoever restarts, and its room goes to nobody else.
func TestWhatIsGuaranteedIsGivenBack(t *testing.T) {
	w := shared
	require.Greater(t, w.options.PreemptionGrace, 10*patience, "the deadline lies beyond the few waits before it")
	stop := w.run(t)
	const slice = `{"cpu":"45","memory":"1Gi","pods":"20"}`
	w.namespace(t, "lend", slice)
	w.quota(t, "lend", "180", "4Gi")
	w.wantShown(t, "lend", `{"r1":2,"r2":2}`)
	pods := map[string]*corev1.Pod{}
	for id := range w.supers {
		pods[id] = w.runs(t, id, "lend", "guarded-in-"+id, map[string]string{"app": "guarded"})
		w.superQuota(t, id, "lend", "90", "2Gi")
	}
	w.budget(t, "lend", "guarded", "guarded", 0)

	owner := w.secondTenant(t, "owner", builders.Resources("cpu", "45", "memory", "1Gi", "pods", "20"))
	owner.namespace(t, "claim", slice)
	owner.quota(t, "claim", "45", "1Gi")
	owner.wantCondition(t, "claim", schedulerv1alpha1.ConditionGuaranteed, schedulerv1alpha1.ReasonWithinGuarantee)
	here, _ := w.leaves(t, "lend")
	require.Contains(t, w.eventMessage(t, "lend", "quota", "Preempted"), "leaves super cluster "+here)
	require.Contains(t, owner.eventMessage(t, "claim", "quota", "Nominated"), "borrow it in "+here)
	owner.wantEvent(t, "ResourceQuota", "claim/quota", "WithinGuarantee")
	require.Contains(t, w.eventMessage(t, "lend", "quota", "EvictionBlocked"), "what the namespace borrows there is given back")
	require.False(t, isGone(t, w, pods[here]), "the budget counts until the deadline")

	stop()
	deadline := w.expires(t, "lend", here)
	w.namespace(t, "thief", `{"cpu":"30","memory":"100Mi"}`)
	w.quota(t, "thief", "30", "100Mi")
	w.run(t)
	require.Eventually(t, func() bool { return isGone(t, w, pods[here]) }, soon+patience, tick, "the deadline passes")
	require.False(t, time.Now().Before(deadline), "the budget counted until then")
	still, same := w.leaves(t, "lend")
	require.Equal(t, here, still)
	require.Equal(t, deadline, same, "a restart prolongs nothing")
	for id, pod := range pods {
		require.Equal(t, id == here, isGone(t, w, pod), "only where the namespace gives way")
	}
	require.Equal(t, "0", owner.reservedIn(t, "claim", here), "a pod runs there")

	w.endsIn(t, here, "lend")
	w.superQuota(t, here, "lend", "0", "0") // the syncer's answer
	owner.wantShown(t, "claim", `{"`+here+`":1}`)
	require.Nil(t, owner.placement(t, "claim").Status.Nominated)
	w.wantCondition(t, "lend", schedulerv1alpha1.ConditionPlaced, schedulerv1alpha1.ReasonUnschedulable)
	w.wantReserved(t, "thief", here, "30") // what is left of the 90 that were given back
	require.Equal(t, owner.key, w.placement(t, "lend").Status.Preemptions[0].By)
}

// endsIn ends the pods of a namespace in a super cluster, and what its syncer made there.
func (w *world) endsIn(t *testing.T, cluster, namespace string) {
	t.Helper()
	pods := &corev1.PodList{}
	require.NoError(t, w.supers[cluster].List(t.Context(), pods))
	for i := range pods.Items {
		if pod := &pods.Items[i]; pod.Name == "guarded-in-"+cluster {
			w.delete(t, cluster, pod)
		}
	}
	tenant := &corev1.Pod{}
	if w.tenant.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "guarded-in-" + cluster}, tenant) == nil {
		require.NoError(t, client.IgnoreNotFound(w.tenant.Delete(t.Context(), tenant, client.GracePeriodSeconds(0))))
	}
}
