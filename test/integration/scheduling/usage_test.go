package scheduling

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/await"
	"github.com/superpool/superpool/test/builders"
)

// superNamespace makes the super namespace of a tenant namespace, as a syncer does, and returns the owner of what is in
// it.
func (w *world) superNamespace(t *testing.T, cluster, namespace string) tenancy.Owner {
	t.Helper()
	of := &corev1.Namespace{}
	require.NoError(t, w.tenant.Get(t.Context(), types.NamespacedName{Name: namespace}, of))
	return w.superNamespaceOf(t, cluster, namespace, of.UID)
}

// superNamespaceOf is superNamespace for a namespace with that UID, which may be gone.
func (w *world) superNamespaceOf(t *testing.T, cluster, namespace string, uid types.UID) tenancy.Owner {
	t.Helper()
	ctx, vc := context.WithoutCancel(t.Context()), &tenancyv1alpha1.VirtualCluster{}
	require.NoError(t, w.meta.Get(ctx, types.NamespacedName{Namespace: "default", Name: w.name}, vc))
	owner := tenancy.Owner{
		ClusterKey: w.key, VirtualCluster: client.ObjectKeyFromObject(vc), VirtualClusterUID: vc.UID, Namespace: namespace, UID: uid,
	}
	made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenancy.SuperNamespace(w.key, namespace)}}
	tenancy.SetOwner(made, owner)
	require.NoError(t, client.IgnoreAlreadyExists(w.supers[cluster].Create(ctx, made)))
	return owner
}

// superPod makes a super pod of 100m and 100Mi, as a syncer does.
func (w *world) superPod(t *testing.T, cluster, namespace string) *corev1.Pod {
	t.Helper()
	owner := w.superNamespace(t, cluster, namespace)
	owner.UID = "uid-of-the-tenant's-pod"
	pod := builders.Pod(tenancy.SuperNamespace(w.key, namespace), "pod", "cpu", "100m", "memory", "100Mi").Node("n1").Obj()
	pod.UID = ""
	tenancy.SetOwner(pod, owner)
	require.NoError(t, w.supers[cluster].Create(t.Context(), pod))
	return pod
}

// superClaim makes a claim of a namespace in a super cluster, as a syncer does.
func (w *world) superClaim(t *testing.T, cluster, namespace string) *corev1.PersistentVolumeClaim {
	t.Helper()
	owner := w.superNamespace(t, cluster, namespace)
	owner.UID = "uid-of-the-tenant's-claim"
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenancy.SuperNamespace(w.key, namespace), Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: builders.Resources("storage", "1Gi")},
		},
	}
	tenancy.SetOwner(claim, owner)
	require.NoError(t, w.supers[cluster].Create(t.Context(), claim))
	return claim
}

// superQuota writes the quota of a super namespace, as a syncer does: it answers what vc-scheduler has decided.
func (w *world) superQuota(t *testing.T, cluster, namespace, cpu, memory string) *corev1.ResourceQuota {
	t.Helper()
	return w.answer(t, cluster, w.superNamespace(t, cluster, namespace), cpu, memory)
}

// answer is superQuota for the owner of what is in the super namespace.
func (w *world) answer(t *testing.T, cluster string, owner tenancy.Owner, cpu, memory string) *corev1.ResourceQuota {
	t.Helper()
	namespace := owner.Namespace
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: tenancy.SuperNamespace(w.key, namespace), Name: "superpool"}}
	answer := func(quota *corev1.ResourceQuota) {
		tenancy.SetOwner(quota, owner)
		if np := w.placement(t, namespace); np != nil {
			quota.Annotations[schedulerv1alpha1.AnnotationDecision] = placement.Decision(np, cluster)
		}
		quota.Spec.Hard = builders.Resources("requests.cpu", cpu, "requests.memory", memory)
	}
	answer(quota)
	err := w.supers[cluster].Create(context.WithoutCancel(t.Context()), quota)
	if apierrors.IsAlreadyExists(err) {
		await.Change(t, w.supers[cluster], quota, answer)
		return quota
	}
	require.NoError(t, err)
	return quota
}

// delete deletes an object of a super cluster at once.
func (w *world) delete(t *testing.T, cluster string, object client.Object) {
	t.Helper()
	require.NoError(t, w.supers[cluster].Delete(t.Context(), object, client.GracePeriodSeconds(0)))
}

// reservedIn returns how much CPU a namespace has reserved in a super cluster, "0" for nothing.
func (w *world) reservedIn(t *testing.T, namespace, cluster string) string {
	t.Helper()
	if np := w.placement(t, namespace); np != nil {
		for i := range np.Status.Placements {
			if np.Status.Placements[i].Cluster == cluster {
				return np.Status.Placements[i].Reserved.Cpu().String()
			}
		}
	}
	return "0"
}

func (w *world) wantReserved(t *testing.T, namespace, cluster, want string) {
	t.Helper()
	require.Eventually(t, func() bool { return w.reservedIn(t, namespace, cluster) == want }, patience, tick,
		"namespace %s: want %s reserved in %s", namespace, want, cluster)
}

// TestAForgedEndReleasesNothing: the tenant says that its pod has ended, and deletes its quota, while the pod runs on
// in the super cluster (finding 2).
func TestAForgedEndReleasesNothing(t *testing.T) {
	w := shared
	w.run(t)
	w.namespace(t, "forged", `{"cpu":"1","memory":"1Gi"}`)
	w.quota(t, "forged", "400m", "400Mi")
	w.wantShown(t, "forged", `{"r1":1}`, `{"r2":1}`)
	cluster := "r1"
	if w.reservedIn(t, "forged", "r1") == "0" {
		cluster = "r2"
	}
	pod := w.pod(t, "forged", "pod")
	w.wantPod(t, pod, "a super cluster", in(cluster))
	super := w.superPod(t, cluster, "forged")
	w.superQuota(t, cluster, "forged", "400m", "400Mi")

	await.Change(t, w.tenant, pod, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }, "status")
	require.NoError(t, w.tenant.Delete(t.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "forged", Name: "quota"}}))
	w.wantShown(t, "forged", "")
	w.wantCondition(t, "forged", schedulerv1alpha1.ConditionPlaced, schedulerv1alpha1.ReasonInUse)
	w.superQuota(t, cluster, "forged", "0", "0") // the syncer's answer
	w.wantReserved(t, "forged", cluster, "100m")
	require.NoError(t, w.tenant.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	w.wantCondition(t, "forged", schedulerv1alpha1.ConditionPlaced, schedulerv1alpha1.ReasonInUse)
	require.Equal(t, "100m", w.reservedIn(t, "forged", cluster))

	w.delete(t, cluster, super)
	w.wantReserved(t, "forged", cluster, "0")
	w.wantCondition(t, "forged", schedulerv1alpha1.ConditionPlaced, schedulerv1alpha1.ReasonNoQuota)
}

// TestANamespaceFinalizedByItsTenant: the namespace is gone at once, and its pods are not (finding 2). Another, which
// had no pods, and whose syncer answers later, is released before.
func TestANamespaceFinalizedByItsTenant(t *testing.T) {
	w := shared
	w.run(t)
	w.namespace(t, "finalized", `{"cpu":"1","memory":"1Gi"}`)
	w.quota(t, "finalized", "400m", "400Mi")
	w.wantShown(t, "finalized", `{"r1":1}`, `{"r2":1}`)
	cluster := "r1"
	if w.reservedIn(t, "finalized", "r1") == "0" {
		cluster = "r2"
	}
	w.placeIn(t, cluster, "finalized-empty", "400m", "400Mi")
	pod := w.superPod(t, cluster, "finalized")
	names := []string{"finalized", "finalized-empty"}
	owners := map[string]tenancy.Owner{}
	for _, name := range names {
		owners[name] = w.superNamespace(t, cluster, name)
		w.superQuota(t, cluster, name, "400m", "400Mi")
	}
	for _, name := range names {
		require.NoError(t, w.tenant.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
		finalize(t, w.tenant, name)
	}
	for _, name := range names {
		require.Eventually(t, func() bool {
			np := w.placement(t, name)
			return np != nil && np.DeletionTimestamp != nil
		}, patience, tick, "NamespacePlacement %s is being deleted", name)
	}

	for _, name := range names {
		w.answer(t, cluster, owners[name], "0", "0")
	}
	require.Eventually(t, func() bool { return w.placement(t, "finalized-empty") == nil }, patience, tick)
	require.Equal(t, "400m", w.reservedIn(t, "finalized", cluster), "a pod terminates")
	w.delete(t, cluster, pod)
	require.Eventually(t, func() bool { return w.placement(t, "finalized") == nil }, patience, tick)
}

// TestAPlacementDeletedByHand comes back as it was (finding 8).
func TestAPlacementDeletedByHand(t *testing.T) {
	w := shared
	w.run(t)
	w.namespace(t, "byhand", demoSlice)
	w.quota(t, "byhand", "200m", "200Mi")
	w.wantShown(t, "byhand", `{"r1":1,"r2":1}`)
	w.wantPublished(t, "byhand", `{"r1":1,"r2":1}`)
	before := w.placement(t, "byhand")
	require.NoError(t, w.meta.Delete(t.Context(), before.DeepCopy()))
	require.Eventually(t, func() bool {
		np := w.placement(t, "byhand")
		return np != nil && np.UID != before.UID && len(np.Status.Placements) > 0
	}, patience, tick)
	after := w.placement(t, "byhand")
	require.Equal(t, before.Spec, after.Spec)
	require.Equal(t, before.Status.Placements, after.Status.Placements)
	w.wantPublished(t, "byhand", `{"r1":1,"r2":1}`)
}

// TestALostPlacementIsAdopted: a NamespacePlacement that is missing, as after the meta cluster was restored from a
// backup, is made anew where the super clusters hold quotas for its namespace (finding 8).
func TestALostPlacementIsAdopted(t *testing.T) {
	w := shared
	stop := w.run(t)
	w.namespace(t, "lost", `{"cpu":"1","memory":"1Gi"}`)
	w.quota(t, "lost", "400m", "400Mi")
	w.wantShown(t, "lost", `{"r1":1}`, `{"r2":1}`)
	stop()
	other := "r1" // where it was not, so that it does not come back there by chance
	if w.reservedIn(t, "lost", "r1") != "0" {
		other = "r2"
	}
	quota := w.superQuota(t, other, "lost", "400m", "400Mi")
	np := w.placement(t, "lost")
	await.Change(t, w.meta, np, func(np *schedulerv1alpha1.NamespacePlacement) { np.Finalizers = nil })
	require.NoError(t, w.meta.Delete(t.Context(), np))
	require.Nil(t, w.placement(t, "lost"))
	w.run(t)
	w.wantReserved(t, "lost", other, "400m")
	w.wantCondition(t, "lost", schedulerv1alpha1.ConditionPlaced, schedulerv1alpha1.ReasonPlaced)
	w.wantShown(t, "lost", `{"`+other+`":1}`)
	w.delete(t, other, quota)
}
