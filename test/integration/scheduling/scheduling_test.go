package scheduling

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/plugins/namespaceplacement"
	"github.com/superpool/superpool/test/builders"
)

const demoSlice = `{"cpu":"100m","memory":"100Mi"}`

// placement returns the NamespacePlacement of a tenant namespace, nil if there is none.
func (w *world) placement(t *testing.T, name string) *schedulerv1alpha1.NamespacePlacement {
	t.Helper()
	np := &schedulerv1alpha1.NamespacePlacement{}
	err := w.meta.Get(context.WithoutCancel(t.Context()), types.NamespacedName{Namespace: w.key, Name: name}, np)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	return np
}

func (w *world) wantCondition(t *testing.T, name, kind, reason string) {
	t.Helper()
	require.Eventually(t, func() bool {
		np := w.placement(t, name)
		if np == nil {
			return false
		}
		condition := meta.FindStatusCondition(np.Status.Conditions, kind)
		return condition != nil && condition.Reason == reason && condition.ObservedGeneration == np.Generation
	}, patience, tick, "namespace %s: want %s with reason %s", name, kind, reason)
}

// wantPublished waits until the NamespacePlacement of a namespace records that it was published.
func (w *world) wantPublished(t *testing.T, name, want string) {
	t.Helper()
	require.Eventually(t, func() bool {
		np := w.placement(t, name)
		return np != nil && np.Status.Published != nil && *np.Status.Published == want && np.Status.Publishing == nil
	}, patience, tick, "namespace %s: want %s published", name, want)
}

// countEvents counts the Events in a tenant namespace, repetitions included.
func (w *world) countEvents(t *testing.T, namespace string) (count int32) {
	t.Helper()
	events := &corev1.EventList{}
	require.NoError(t, w.tenant.List(t.Context(), events, client.InNamespace(namespace)))
	for i := range events.Items {
		count += 1 + events.Items[i].Count
		if series := events.Items[i].Series; series != nil {
			count += series.Count
		}
	}
	return count
}

func TestANamespaceIsPlacedGrowsAndShrinks(t *testing.T) {
	w := shared
	w.run(t)
	w.namespace(t, "life", demoSlice)
	w.quota(t, "life", "200m", "200Mi")
	w.wantShown(t, "life", `{"r1":1,"r2":1}`)
	w.wantCondition(t, "life", schedulerv1alpha1.ConditionPlaced, schedulerv1alpha1.ReasonPlaced)
	w.wantEvent(t, "ResourceQuota", "life/quota", "Placed")

	w.quota(t, "life", "450m", "450Mi")
	w.wantShown(t, "life", `{"r1":3,"r2":2}`, `{"r1":2,"r2":3}`)
	first := w.pod(t, "life", "first")
	w.wantPod(t, first, "a super cluster", func(pod *corev1.Pod) bool { return in("r1")(pod) || in("r2")(pod) })
	w.quota(t, "life", "100m", "100Mi")
	w.wantShown(t, "life", `{"r1":1}`) // nothing runs: the alphabetically last one is left first, wherever the pod was to go
	w.quota(t, "life", "1", "1Gi")
	w.wantCondition(t, "life", schedulerv1alpha1.ConditionPlaced, schedulerv1alpha1.ReasonPlaced)
	require.Contains(t, w.shown(t, "life"), `"r1":`, "what is placed stays")
}

func TestAQuotaBelowItsUseTakesNothingFromPods(t *testing.T) {
	w := shared
	w.run(t)
	w.namespace(t, "shrink", demoSlice)
	w.quota(t, "shrink", "200m", "200Mi")
	w.wantShown(t, "shrink", `{"r1":1,"r2":1}`)
	first, second := w.superPod(t, "r1", "shrink"), w.superPod(t, "r2", "shrink")
	for _, cluster := range []string{"r1", "r2"} {
		w.superQuota(t, cluster, "shrink", "100m", "100Mi")
	}
	w.quota(t, "shrink", "100m", "100Mi")
	w.wantCondition(t, "shrink", schedulerv1alpha1.ConditionPlaced, schedulerv1alpha1.ReasonInUse)
	w.wantShown(t, "shrink", `{"r1":1}`)
	w.superQuota(t, "r2", "shrink", "0", "0")
	w.delete(t, "r2", second)
	w.wantCondition(t, "shrink", schedulerv1alpha1.ConditionPlaced, schedulerv1alpha1.ReasonPlaced)

	quota := &corev1.ResourceQuota{}
	quota.Namespace, quota.Name = "shrink", "quota"
	require.NoError(t, w.tenant.Delete(t.Context(), quota))
	w.wantCondition(t, "shrink", schedulerv1alpha1.ConditionPlaced, schedulerv1alpha1.ReasonInUse)
	w.superQuota(t, "r1", "shrink", "0", "0")
	w.delete(t, "r1", first)
	w.wantCondition(t, "shrink", schedulerv1alpha1.ConditionPlaced, schedulerv1alpha1.ReasonNoQuota)
	w.wantShown(t, "shrink", "")
}

func TestBadSlicesAreSaidAndChangeNothing(t *testing.T) {
	w := shared
	w.run(t)
	tests := map[string]string{
		"not-json":         "cpu=100m",
		"negative":         `{"cpu":"-100m"}`,
		"zero":             `{"cpu":"0"}`,
		"no-quantity":      `{"cpu":"many"}`,
		"unknown-resource": `{"services":"1"}`,
		"empty":            `{}`,
		"too-many-slices":  `{"memory":"1Ki"}`,
		"huge-exponent":    `{"cpu":"1e999999999"}`,
	}
	for name, slice := range tests {
		t.Run(name, func(t *testing.T) {
			fresh, working := "fresh-"+name, "working-"+name
			w.namespace(t, fresh, slice)
			w.quota(t, fresh, "2", "200Mi")
			w.namespace(t, working, demoSlice)
			w.quota(t, working, "200m", "200Mi")
			w.wantShown(t, working, `{"r1":1,"r2":1}`)

			w.annotate(t, working, schedulerv1alpha1.AnnotationSlice, slice)
			// Namespaces and quotas come by two watches: the quota may be read first.
			w.wantCondition(t, working, schedulerv1alpha1.ConditionAccepted, schedulerv1alpha1.ReasonInvalidSlice)
			w.quota(t, working, "2", "200Mi")
			for _, namespace := range []string{fresh, working} {
				w.wantCondition(t, namespace, schedulerv1alpha1.ConditionAccepted, schedulerv1alpha1.ReasonInvalidSlice)
			}
			w.wantEvent(t, "ResourceQuota", working+"/quota", schedulerv1alpha1.ReasonInvalidSlice)
			// It may have been read, and refused, before its quota was there.
			require.Eventually(t, func() bool {
				return w.hasEvent(t, "ResourceQuota", fresh+"/quota", schedulerv1alpha1.ReasonInvalidSlice) ||
					w.hasEvent(t, "Namespace", fresh, schedulerv1alpha1.ReasonInvalidSlice)
			}, patience, tick, "an Event %s about namespace %s", schedulerv1alpha1.ReasonInvalidSlice, fresh)
			require.Empty(t, w.shown(t, fresh))
			require.Equal(t, `{"r1":1,"r2":1}`, w.shown(t, working))

			w.annotate(t, fresh, schedulerv1alpha1.AnnotationSlice, `{"cpu":"1","memory":"100Mi"}`)
			w.wantShown(t, fresh, `{"r1":1,"r2":1}`)
			w.wantCondition(t, fresh, schedulerv1alpha1.ConditionAccepted, schedulerv1alpha1.ReasonAccepted)
		})
	}
}

func TestASliceLargerThanTheQuotaIsOneSlice(t *testing.T) {
	w := shared
	w.run(t)
	w.namespace(t, "larger", `{"cpu":"1","memory":"1Gi"}`)
	w.quota(t, "larger", "200m", "200Mi")
	w.wantShown(t, "larger", `{"r1":1}`, `{"r2":1}`)
	w.wantEvent(t, "ResourceQuota", "larger/quota", "SliceLargerThanQuota")
}

func TestANamespaceThatFitsNowhereSaysWhy(t *testing.T) {
	w := shared
	w.run(t)
	w.namespace(t, "toolarge", `{"cpu":"10","memory":"1Gi"}`)
	w.quota(t, "toolarge", "1000", "10Gi")
	w.wantCondition(t, "toolarge", schedulerv1alpha1.ConditionPlaced, schedulerv1alpha1.ReasonUnschedulable)
	w.wantEvent(t, "ResourceQuota", "toolarge/quota", "NotPlaced")
	require.Empty(t, w.shown(t, "toolarge"))
	w.quota(t, "toolarge", "20", "2Gi")
	w.wantShown(t, "toolarge", `{"r1":1,"r2":1}`)
	require.NoError(t, w.tenant.Delete(t.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "toolarge", Name: "quota"}}))
	w.wantShown(t, "toolarge", "")
}

func TestPlacementsWrittenByATenantArePutBack(t *testing.T) {
	w := shared
	w.run(t)
	w.namespace(t, "writer", demoSlice)
	w.quota(t, "writer", "200m", "200Mi")
	w.wantShown(t, "writer", `{"r1":1,"r2":1}`)
	before := w.placement(t, "writer")
	for _, nonsense := range []string{"nonsense", `{"r1":1000}`, `{"r9":-1}`, `{"r1":1,"r9":1}`} {
		w.annotate(t, "writer", schedulerv1alpha1.AnnotationPlacements, nonsense)
		w.wantShown(t, "writer", `{"r1":1,"r2":1}`)
	}
	w.wantEvent(t, "ResourceQuota", "writer/quota", "PlacementsRestored")
	if diff := cmp.Diff(before.Status.Placements, w.placement(t, "writer").Status.Placements); diff != "" {
		t.Errorf("the authority changed (-before +after):\n%s", diff)
	}
}

func TestPodsOfATenantThatWritesWhatItMustNot(t *testing.T) {
	w := shared
	w.run(t)
	w.namespace(t, "pods", demoSlice)
	w.quota(t, "pods", "400m", "400Mi")
	w.wantShown(t, "pods", `{"r1":2,"r2":2}`)
	choose := func(superCluster string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Annotations = map[string]string{schedulerv1alpha1.AnnotationSuperCluster: superCluster}
		}
	}
	w.wantPod(t, w.pod(t, "pods", "asks-for-held", choose("r2")), "what it asked for", in("r2"))
	w.wantPod(t, w.pod(t, "pods", "asks-for-more", choose("r9")), "what it may have", in("r1"))
	w.wantEvent(t, "Pod", "asks-for-more", "SuperClusterNotPlaced")
	withLabel := func(p *corev1.Pod) { p.Labels = p.Annotations }
	filler := w.pod(t, "pods", "fills", choose("r1"), withLabel)
	w.wantPod(t, filler, "what it asked for", in("r1"))
	w.wantPod(t, w.pod(t, "pods", "asks-for-full", choose("r1"), withLabel), "where there is room", in("r2"))
	w.wantEvent(t, "Pod", "asks-for-full", "SuperClusterNotGranted")

	pinned := func(node string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = node } }
	w.pod(t, "pods", "pinned-to-no-node", pinned("node-1"))
	w.wantEvent(t, "Pod", "pinned-to-no-node", "NodeNameNotSupported")
	w.pod(t, "pods", "pinned-elsewhere", pinned("r9.node-1"))
	w.wantEvent(t, "Pod", "pinned-elsewhere", "SuperClusterNotPlaced")
	waits, never := w.pod(t, "pods", "pinned", pinned("r1.node-1")), w.pod(t, "pods", "pinned-for-a-while", pinned("r1.node-1"))
	for _, pod := range []*corev1.Pod{waits, never} {
		w.wantEvent(t, "Pod", pod.Name, "SuperClusterNotGranted")
		w.wantPod(t, pod, "no super cluster yet", in(""))
	}
	require.NoError(t, w.tenant.Delete(t.Context(), never))
	require.Eventually(t, func() bool {
		return apierrors.IsNotFound(w.tenant.Get(t.Context(), client.ObjectKeyFromObject(never), never))
	}, patience, tick, "a pod that never ran is gone")
	w.pod(t, "pods", "asks-twice", choose("r9"), withLabel)
	require.NotContains(t, w.eventMessage(t, "pods", "asks-twice", "SuperClusterNotPlaced"), "r9r9")
	require.NoError(t, w.tenant.Delete(t.Context(), filler))
	w.wantPod(t, waits, "the super cluster of its node, where there is room", in("r1"))
}

func TestAPodWithoutAQuotaSaysWhy(t *testing.T) {
	w := shared
	w.run(t)
	w.namespace(t, "noquota", "")
	pod := w.pod(t, "noquota", "pod")
	w.wantPod(t, pod, "a reason", func(p *corev1.Pod) bool {
		return len(p.Status.Conditions) > 0 && strings.Contains(p.Status.Conditions[0].Message, namespaceplacement.ErrReasonNoPlacement)
	})
	w.quota(t, "noquota", "2", "4Gi")
	w.wantShown(t, "noquota", `{"r1":1}`, `{"r2":1}`)
	w.wantPod(t, pod, "a super cluster", func(p *corev1.Pod) bool { return !in("")(p) })
}

// TestAQuotaThatPlacesNothingSaysSo: what bounds some of the pods only, or names limits alone, is no request for room.
func TestAQuotaThatPlacesNothingSaysSo(t *testing.T) {
	w := shared
	w.run(t)
	w.namespace(t, "scoped", demoSlice)
	scoped := builders.Quota("scoped", "quota", "cpu", "1", "memory", "1Gi")
	scoped.Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeNotTerminating}
	w.setQuota(t, scoped)
	require.Contains(t, w.eventMessage(t, "scoped", "quota", "NotPlaced"), "scopes")
	w.namespace(t, "limited", demoSlice)
	w.setQuota(t, builders.Quota("limited", "quota", "limits.cpu", "1", "limits.memory", "1Gi"))
	require.Contains(t, w.eventMessage(t, "limited", "quota", "NotPlaced"), "limits")
	require.Empty(t, w.shown(t, "scoped"))
	require.Empty(t, w.shown(t, "limited"))
	w.setQuota(t, builders.Quota("scoped", "another", "cpu", "200m", "memory", "200Mi"))
	w.wantShown(t, "scoped", `{"r1":1,"r2":1}`)
}

func TestANamespaceOf63CharactersIsPlaced(t *testing.T) {
	w := shared
	w.run(t)
	name := strings.Repeat("n", 63)
	w.namespace(t, name, demoSlice)
	w.quota(t, name, "200m", "200Mi")
	w.wantShown(t, name, `{"r1":1,"r2":1}`)
	w.wantPod(t, w.pod(t, name, "pod"), "r1", in("r1"))
}

func TestARestartChangesNothing(t *testing.T) {
	w := shared
	stop := w.run(t)
	w.namespace(t, "restart", demoSlice)
	w.quota(t, "restart", "200m", "200Mi")
	w.wantShown(t, "restart", `{"r1":1,"r2":1}`)
	waits := w.pod(t, "restart", "before")
	w.wantPod(t, waits, "r1", in("r1"))
	before := w.placement(t, "restart")
	stop()
	w.quota(t, "restart", "300m", "300Mi")
	w.namespace(t, "meanwhile", demoSlice)
	w.quota(t, "meanwhile", "200m", "200Mi")
	w.run(t)
	w.wantShown(t, "meanwhile", `{"r1":1,"r2":1}`)
	w.wantShown(t, "restart", `{"r1":2,"r2":1}`, `{"r1":1,"r2":2}`)
	require.Equal(t, before.UID, w.placement(t, "restart").UID)
	version := waits.ResourceVersion
	w.wantPod(t, waits, "r1", in("r1"))
	require.Equal(t, version, waits.ResourceVersion, "nobody wrote to a pod that has its super cluster")
}

// TestPlacementsOnRequest: a tenant moves a namespace to one super cluster, and lets another one be placed anew.
func TestPlacementsOnRequest(t *testing.T) {
	w := shared
	w.run(t)
	for _, name := range []string{"asks", "anew"} {
		w.namespace(t, name, demoSlice)
		w.quota(t, name, "200m", "200Mi")
		w.wantShown(t, name, `{"r1":1,"r2":1}`)
	}
	w.annotate(t, "asks", schedulerv1alpha1.AnnotationPlacements, `{ "r2": 2 }`)
	w.wantShown(t, "asks", `{"r2":2}`)
	w.wantEvent(t, "ResourceQuota", "asks/quota", "Leaving")
	require.Eventually(t, func() bool { return w.placement(t, "asks").Status.Requested == nil }, patience, tick, "the request is answered")
	w.annotate(t, "asks", schedulerv1alpha1.AnnotationPlacements, `{"r1":2}`)
	w.wantShown(t, "asks", `{"r2":2}`)
	w.wantEvent(t, "ResourceQuota", "asks/quota", "PlacementsRestored")

	w.unannotate(t, "anew", schedulerv1alpha1.AnnotationPlacements)
	w.wantShown(t, "anew", `{"r1":1,"r2":1}`)
	require.Eventually(t, func() bool {
		np := w.placement(t, "anew")
		return np.Status.LastRequested != nil && np.Status.Requested == nil
	}, patience, tick, "the request is answered")
	require.False(t, w.hasEvent(t, "ResourceQuota", "anew/quota", "PlacementsRestored"))
}

// TestAMoveThatIsOrdered is what kubectl vc rebalance writes, taken over and held against the tenant's policy: the
// second one comes too soon.
func TestAMoveThatIsOrdered(t *testing.T) {
	w := shared
	w.run(t)
	w.namespace(t, "ordered", demoSlice)
	w.quota(t, "ordered", "200m", "200Mi")
	w.wantShown(t, "ordered", `{"r1":1,"r2":1}`)
	order := func(placements map[string]int32) {
		order := placement.MoveOrder{Cause: schedulerv1alpha1.MoveForRebalance, Placements: placements, Since: metav1.Now()}
		np := w.placement(t, "ordered")
		base := client.MergeFrom(np.DeepCopy())
		metav1.SetMetaDataAnnotation(&np.ObjectMeta, schedulerv1alpha1.AnnotationMove, order.Encode())
		require.NoError(t, w.meta.Patch(t.Context(), np, base))
	}
	order(map[string]int32{"r2": 2})
	w.wantShown(t, "ordered", `{"r2":2}`)
	w.wantEvent(t, "ResourceQuota", "ordered/quota", "Moving")
	require.Eventually(t, func() bool {
		np := w.placement(t, "ordered")
		return np.Status.Requested == nil && np.Annotations[schedulerv1alpha1.AnnotationMove] == ""
	}, patience, tick, "the order is done")
	require.NotNil(t, w.placement(t, "ordered").Status.LastMoved)
	require.Nil(t, w.placement(t, "ordered").Status.LastRequested)

	order(map[string]int32{"r1": 2})
	w.wantEvent(t, "ResourceQuota", "ordered/quota", "NotMoved")
	w.wantShown(t, "ordered", `{"r2":2}`)
}

// TestSuperClusterThatRefuses: of the super clusters that refuse a request, the first that is tried says why.
func TestSuperClusterThatRefuses(t *testing.T) {
	w := shared
	w.run(t)
	w.namespace(t, "refused", demoSlice)
	w.quota(t, "refused", "200m", "200Mi")
	w.wantShown(t, "refused", `{"r1":1,"r2":1}`)
	w.annotate(t, "refused", schedulerv1alpha1.AnnotationPlacements, `{"x1":1,"x2":1}`)
	const want = "restored: super cluster x1: it is not in the pool"
	require.Eventually(t, func() bool {
		events := &corev1.EventList{}
		require.NoError(t, w.tenant.List(t.Context(), events, client.InNamespace("refused")))
		return slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return strings.HasSuffix(e.Message, want) })
	}, patience, tick, want)
	w.wantShown(t, "refused", `{"r1":1,"r2":1}`)
}

// TestPlacementsWrittenByATenantWhileNobodyLooks: what a tenant writes while vc-scheduler does not run is put back by
// the next one, and a restart alone records no Event again.
func TestPlacementsWrittenByATenantWhileNobodyLooks(t *testing.T) {
	w := shared
	stop := w.run(t)
	w.namespace(t, "absent", demoSlice)
	w.quota(t, "absent", "200m", "200Mi")
	w.wantShown(t, "absent", `{"r1":1,"r2":1}`)
	w.wantEvent(t, "ResourceQuota", "absent/quota", "Placed")
	w.wantPublished(t, "absent", `{"r1":1,"r2":1}`)
	stop()
	before := w.countEvents(t, "absent")
	stop = w.run(t)
	w.namespace(t, "absent-after", demoSlice)
	w.quota(t, "absent-after", "200m", "200Mi")
	w.wantEvent(t, "ResourceQuota", "absent-after/quota", "Placed")
	require.Equal(t, before, w.countEvents(t, "absent"), "a restart alone is no news")
	stop()
	w.annotate(t, "absent", schedulerv1alpha1.AnnotationPlacements, `{"r1":7}`)
	w.run(t)
	w.wantShown(t, "absent", `{"r1":1,"r2":1}`)
	w.wantEvent(t, "ResourceQuota", "absent/quota", "PlacementsRestored")
}

func TestANamespaceThatIsGoneGivesEverythingBack(t *testing.T) {
	w := shared
	w.run(t)
	w.namespace(t, "gone", demoSlice)
	w.quota(t, "gone", "200m", "200Mi")
	w.wantShown(t, "gone", `{"r1":1,"r2":1}`)
	namespace := &corev1.Namespace{}
	require.NoError(t, w.tenant.Get(t.Context(), types.NamespacedName{Name: "gone"}, namespace))
	require.NoError(t, w.tenant.Delete(t.Context(), namespace))
	w.namespace(t, "gone-after", demoSlice)
	w.quota(t, "gone-after", "200m", "200Mi")
	w.wantShown(t, "gone-after", `{"r1":1,"r2":1}`) // by then vc-scheduler has seen the deletion
	np := w.placement(t, "gone")
	require.True(t, np != nil && np.DeletionTimestamp == nil, "a namespace that terminates keeps what its pods use")
	finalize(t, w.tenant, "gone")
	require.Eventually(t, func() bool { return w.released(t, "gone") }, patience, tick)
}
