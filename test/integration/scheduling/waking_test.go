package scheduling

import (
	"bytes"
	"context"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/cmd/vc-scheduler/app"
	"github.com/superpool/superpool/manifests/profiles"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/controlplane"
)

// withoutRetries returns the world with a namespace scheduler that tries nothing again by itself while the test runs:
// backoff lasts ten minutes, and what is unschedulable is tried again after five.
func (w *world) withoutRetries(t *testing.T) *world {
	t.Helper()
	const kind = "kind: KubeSchedulerConfiguration\n"
	require.Contains(t, string(profiles.NamespaceScheduler), kind)
	file := filepath.Join(t.TempDir(), "namespace-scheduler.yaml")
	patient := bytes.Replace(profiles.NamespaceScheduler, []byte(kind), []byte(kind+"podInitialBackoffSeconds: 600\npodMaxBackoffSeconds: 600\n"), 1)
	require.NoError(t, os.WriteFile(file, patient, 0o600))
	return w.with(func(o *app.Options) { o.NamespaceSchedulerConfig = file })
}

// another adds a super cluster to the pool, for as long as the test runs. leave waits until it is gone.
func (w *world) another(t *testing.T, id string) (leave func()) {
	t.Helper()
	started, stop, err := controlplane.Start(controlplane.Options{Role: controlplane.Super, DisableAdmission: []string{"ResourceQuota", "ServiceAccount", "TaintNodesByCondition"}})
	t.Cleanup(stop)
	require.NoError(t, err)
	larger := *w
	larger.supers = maps.Clone(w.supers)
	require.NoError(t, larger.superCluster(t.Context(), id, started[0]))
	return func() {
		ctx := context.WithoutCancel(t.Context())
		require.NoError(t, w.meta.Delete(ctx, builders.Cluster(id)))
		require.Eventually(t, func() bool {
			return apierrors.IsNotFound(w.meta.Get(ctx, client.ObjectKey{Name: id}, &corev1.Node{}))
		}, patience, tick, "virtual Node %s is gone", id)
	}
}

// first waits for the first event of a watch whose object is as wanted. It returns when it came, and the object's
// revision: a larger one was written later, whatever its kind.
func first[T client.Object](ctx context.Context, t *testing.T, events watch.Interface, good func(T) bool) (at time.Time, revision uint64) {
	t.Helper()
	defer events.Stop()
	for {
		select {
		case event, open := <-events.ResultChan():
			require.True(t, open, "the watch ended")
			object, known := event.Object.(T)
			if !known || !good(object) {
				continue
			}
			revision, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
			require.NoError(t, err)
			return time.Now(), revision
		case <-ctx.Done():
			require.FailNow(t, "it did not happen in time")
		}
	}
}

// TestASuperClusterThatIsAddedIsUsed: a namespace that the full pool refused is placed because a super cluster comes.
// Nothing else would try it again for minutes.
func TestASuperClusterThatIsAddedIsUsed(t *testing.T) {
	w := shared.withoutRetries(t)
	w.run(t)
	w.namespace(t, "toomuch", `{"cpu":"10","memory":"1Gi"}`)
	w.quota(t, "toomuch", "220", "22Gi") // r1 and r2 have 200 cores
	w.wantCondition(t, "toomuch", schedulerv1alpha1.ConditionPlaced, schedulerv1alpha1.ReasonUnschedulable)
	refused := w.placement(t, "toomuch")

	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	nodes, err := w.metaWatch.Watch(ctx, &corev1.NodeList{}, client.MatchingFields{metav1.ObjectNameField: "r3"})
	require.NoError(t, err)
	placements, err := w.metaWatch.Watch(ctx, &schedulerv1alpha1.NamespacePlacementList{}, client.InNamespace(w.key),
		client.MatchingFields{metav1.ObjectNameField: "toomuch"})
	require.NoError(t, err)
	leave := w.another(t, "r3")
	offered, before := first(ctx, t, nodes, func(node *corev1.Node) bool {
		return !node.Status.Allocatable.Cpu().IsZero() && isReady(node)
	})
	placed, after := first(ctx, t, placements, func(np *schedulerv1alpha1.NamespacePlacement) bool { return len(np.Status.Placements) > 0 })
	require.Less(t, before, after, "the virtual Node offered room before the namespace was placed")
	t.Logf("placed %v after the virtual Node offered room", placed.Sub(offered).Round(time.Millisecond))
	np := w.placement(t, "toomuch")
	require.Equal(t, refused.Generation, np.Generation, "nobody asked for anything else meanwhile")
	require.NotEqual(t, "0", w.reservedIn(t, "toomuch", "r3"))

	require.NoError(t, w.tenant.Delete(t.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "toomuch", Name: "quota"}}))
	w.wantShown(t, "toomuch", "")
	leave()
}

func isReady(node *corev1.Node) bool {
	for i := range node.Status.Conditions {
		if condition := &node.Status.Conditions[i]; condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
