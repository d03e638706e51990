package scheduling

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/test/await"
	"github.com/superpool/superpool/test/builders"
)

const maintenance = "example.com/maintenance"

// drain taints a virtual Node, as kubectl taint does, until undrain is called or the test ends.
func (w *world) drain(t *testing.T, id string) (undrain func()) {
	t.Helper()
	w.changeNode(t, id, func(node *corev1.Node) {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: maintenance, Effect: corev1.TaintEffectNoExecute})
	})
	undrain = func() {
		w.changeNode(t, id, func(node *corev1.Node) {
			node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == maintenance })
		})
	}
	t.Cleanup(undrain)
	return undrain
}

func (w *world) changeNode(t *testing.T, id string, change func(*corev1.Node)) {
	t.Helper()
	await.Change(t, w.meta, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: id}}, change)
}

// wantDrained waits until condition Drained of a virtual Node is as wanted, "" for none.
func (w *world) wantDrained(t *testing.T, id, want string) {
	t.Helper()
	require.Eventually(t, func() bool {
		node := &corev1.Node{}
		if err := w.meta.Get(t.Context(), types.NamespacedName{Name: id}, node); err != nil {
			return false
		}
		got := ""
		for _, condition := range node.Status.Conditions {
			if condition.Type == schedulerv1alpha1.NodeDrained {
				got = string(condition.Status) + "/" + condition.Reason
			}
		}
		return got == want
	}, patience, tick, "condition Drained of %s: want %s", id, want)
}

// wantLeaving waits until all that a namespace has in a super cluster leaves for a reason, "" for nothing leaves.
func (w *world) wantLeaving(t *testing.T, namespace, cluster string, want schedulerv1alpha1.LeavingReason) {
	t.Helper()
	require.Eventually(t, func() bool {
		np := w.placement(t, namespace)
		for i := range np.Status.Placements {
			if p := &np.Status.Placements[i]; p.Cluster == cluster {
				return p.Leaving == nil && want == "" || p.Leaving != nil && p.Leaving.Reason == want
			}
		}
		return false
	}, patience, tick, "namespace %s: want what it has in %s leaving as %q", namespace, cluster, want)
}

func (w *world) wantPlacedMessage(t *testing.T, namespace, want string) {
	t.Helper()
	require.Eventually(t, func() bool {
		condition := meta.FindStatusCondition(w.placement(t, namespace).Status.Conditions, schedulerv1alpha1.ConditionPlaced)
		return condition != nil && strings.Contains(condition.Message, want)
	}, patience, tick, "namespace %s: want %q in condition Placed", namespace, want)
}

// placedIn makes a namespace of one slice, and returns where it was placed and the other super cluster.
func (w *world) placedIn(t *testing.T, name, cpu, memory string) (here, there string) {
	t.Helper()
	w.namespace(t, name, `{"cpu":"`+cpu+`","memory":"`+memory+`"}`)
	w.quota(t, name, cpu, memory)
	w.wantShown(t, name, `{"r1":1}`, `{"r2":1}`)
	if w.reservedIn(t, name, "r1") != "0" {
		return "r1", "r2"
	}
	return "r2", "r1"
}

// placeIn makes a namespace of one slice, which its tenant chooses a super cluster for until it is placed.
func (w *world) placeIn(t *testing.T, cluster, name, cpu, memory string) {
	t.Helper()
	choice := `{"nodeSelector":{"kubernetes.io/hostname":"` + cluster + `"}}`
	w.namespace(t, name, `{"cpu":"`+cpu+`","memory":"`+memory+`"}`, schedulerv1alpha1.AnnotationClusterChoice, choice)
	w.quota(t, name, cpu, memory)
	w.wantShown(t, name, `{"`+cluster+`":1}`)
	w.unannotate(t, name, schedulerv1alpha1.AnnotationClusterChoice)
	require.Eventually(t, func() bool { return w.placement(t, name).Spec.ClusterChoice == nil }, patience, tick, "the choice is withdrawn")
}

// TestADrainMovesANamespaceOnceItIsFree: what a namespace has in a super cluster that is drained stays reserved as long
// as a pod runs there, also when that of another namespace, whose syncer answers later, is free again.
func TestADrainMovesANamespaceOnceItIsFree(t *testing.T) {
	w := shared
	w.run(t)
	here, there := w.placedIn(t, "drain", "100m", "100Mi")
	w.placeIn(t, here, "drain-empty", "100m", "100Mi")
	pod := w.superPod(t, here, "drain")
	for _, name := range []string{"drain", "drain-empty"} {
		w.superQuota(t, here, name, "100m", "100Mi")
	}
	w.drain(t, here)
	for _, name := range []string{"drain", "drain-empty"} {
		w.wantShown(t, name, `{"`+there+`":1}`)
	}
	w.wantEvent(t, "ResourceQuota", "drain/quota", "Leaving")
	w.wantLeaving(t, "drain", here, schedulerv1alpha1.LeavingDrained)
	w.wantPlacedMessage(t, "drain", "super cluster "+here+" is drained")
	w.wantDrained(t, here, "False/Draining")

	for _, name := range []string{"drain", "drain-empty"} {
		w.superQuota(t, here, name, "0", "0") // the syncer's answer
	}
	w.wantReserved(t, "drain-empty", here, "0")
	require.Equal(t, "100m", w.reservedIn(t, "drain", here), "a pod runs there")
	w.delete(t, here, pod)
	w.wantReserved(t, "drain", here, "0")
	w.wantReserved(t, "drain", there, "100m")
	w.wantEvent(t, "ResourceQuota", "drain/quota", "Left")
	w.wantCondition(t, "drain", schedulerv1alpha1.ConditionPlaced, schedulerv1alpha1.ReasonPlaced)
}

// TestADrainKeepsRoomWhereVolumesAre: of two namespaces with volumes in a super cluster that is drained, the tenant of
// one deletes its claim, and the other one is back where its volume is when the drain ends.
func TestADrainKeepsRoomWhereVolumesAre(t *testing.T) {
	w := shared
	w.run(t)
	here, there := w.placedIn(t, "volume-stays", "100m", "100Mi")
	claims := map[string]*corev1.PersistentVolumeClaim{}
	w.placeIn(t, here, "volume-goes", "100m", "100Mi")
	for _, name := range []string{"volume-stays", "volume-goes"} {
		w.superQuota(t, here, name, "100m", "100Mi")
		claims[name] = w.superClaim(t, here, name)
	}
	undrain := w.drain(t, here)
	for name := range claims {
		w.wantShown(t, name, `{"`+there+`":1}`)
		w.superQuota(t, here, name, "0", "0") // the syncer's answer
	}
	w.wantDrained(t, here, "False/VolumesStay")
	for name := range claims {
		require.Equal(t, "100m", w.reservedIn(t, name, here))
	}
	w.delete(t, here, claims["volume-goes"])
	letGo(t, w.supers[here], claims["volume-goes"])
	w.wantReserved(t, "volume-goes", here, "0")
	w.wantDrained(t, here, "False/VolumesStay")

	undrain()
	w.wantShown(t, "volume-stays", `{"`+here+`":1}`)
	w.wantReserved(t, "volume-stays", there, "0")
	w.wantDrained(t, here, "")
	w.delete(t, here, claims["volume-stays"])
	letGo(t, w.supers[here], claims["volume-stays"])
}

// letGo plays the controller that takes the finalizer off a claim which is being deleted.
func letGo(t *testing.T, super client.Client, claim *corev1.PersistentVolumeClaim) {
	t.Helper()
	require.NoError(t, super.Patch(t.Context(), claim, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
}

func TestADrainThatIsTakenBackLosesNothing(t *testing.T) {
	w := shared
	stop := w.run(t)
	here, there := w.placedIn(t, "undrain", "100m", "100Mi")
	pod := w.superPod(t, here, "undrain")
	w.superQuota(t, here, "undrain", "100m", "100Mi")
	undrain := w.drain(t, here)
	w.wantShown(t, "undrain", `{"`+there+`":1}`)
	stop() // vc-scheduler is killed half way
	undrain()
	w.run(t)
	w.wantShown(t, "undrain", `{"`+here+`":1}`)
	w.superQuota(t, there, "undrain", "0", "0") // the syncer's answer: without it vc-scheduler waits for ten seconds
	w.wantReserved(t, "undrain", there, "0")
	w.wantEvent(t, "ResourceQuota", "undrain/quota", "Stays")
	w.wantCondition(t, "undrain", schedulerv1alpha1.ConditionPlaced, schedulerv1alpha1.ReasonPlaced)
	w.wantDrained(t, here, "")
	w.delete(t, here, pod)
}

func TestADrainWithoutRoomElsewhereStaysAndSaysSo(t *testing.T) {
	w := shared
	w.run(t)
	w.placedIn(t, "large-1", "60", "1Gi")
	here, there := w.placedIn(t, "large-2", "60", "1Gi")
	undrain := w.drain(t, here)
	w.wantCondition(t, "large-2", schedulerv1alpha1.ConditionPlaced, schedulerv1alpha1.ReasonUnschedulable)
	w.wantPlacedMessage(t, "large-2", "super cluster "+here+" is drained")
	w.wantEvent(t, "ResourceQuota", "large-2/quota", "NotPlaced")
	w.wantDrained(t, here, "False/Draining")
	require.Equal(t, "60", w.reservedIn(t, "large-2", here))
	require.Equal(t, "0", w.reservedIn(t, "large-2", there))
	undrain()
	w.wantShown(t, "large-2", `{"`+here+`":1}`)
	w.wantCondition(t, "large-2", schedulerv1alpha1.ConditionPlaced, schedulerv1alpha1.ReasonPlaced)
}

// TestAClusterThatIsDeletedIsLeft: the namespaces are whole elsewhere, and the virtual Node goes. The super cluster
// comes back as a new Cluster.
func TestAClusterThatIsDeletedIsLeft(t *testing.T) {
	w := shared
	w.run(t)
	here, there := w.placedIn(t, "removed", "100m", "100Mi")
	cluster := builders.Cluster(here)
	require.NoError(t, w.meta.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster))
	again := cluster.DeepCopy()
	require.NoError(t, w.meta.Delete(t.Context(), cluster))
	w.wantShown(t, "removed", `{"`+there+`":1}`)
	w.wantReserved(t, "removed", here, "0")
	w.wantCondition(t, "removed", schedulerv1alpha1.ConditionPlaced, schedulerv1alpha1.ReasonPlaced)
	require.Eventually(t, func() bool {
		return apierrors.IsNotFound(w.meta.Get(t.Context(), types.NamespacedName{Name: here}, &corev1.Node{}))
	}, patience, tick, "virtual Node %s is gone", here)
	again.SetResourceVersion("")
	again.SetUID("")
	require.NoError(t, w.meta.Create(t.Context(), again))
	require.Eventually(t, func() bool { return w.superClustersReady(t) }, patience, tick)
}
