package view

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/clusterchoice"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/slicepod"
)

// DefaultNamespaceScheduler is the profile that places namespaces which name none.
const DefaultNamespaceScheduler = "namespace-scheduler"

// Slices projects a NamespacePlacement onto Pods: one bound Pod per super cluster with what is reserved there, and one
// pending Pod per slice that is still to be placed. All pending Pods of a namespace form a gang. Where they are to
// spread over topologies, each slice that is reserved and stays is a bound Pod of its own: kube-scheduler counts Pods.
func Slices(np *schedulerv1alpha1.NamespacePlacement) []client.Object {
	return projectSlices(np, 0, math.MaxInt64)
}

// projectSlices is Slices with the turn of a namespace that waits (Namespaces), and at most so many pending Pods.
func projectSlices(np *schedulerv1alpha1.NamespacePlacement, turn int, most int64) []client.Object {
	pods := heldPods(np)
	held := make(map[string]int32, len(np.Status.Placements))
	for i := range np.Status.Placements {
		held[np.Status.Placements[i].Cluster] = np.Status.Placements[i].Slices
	}
	runs := placement.Missing(np)
	if len(runs) == 0 {
		return pods
	}
	missing := int64(0)
	for _, run := range runs {
		missing += run.Count
	}
	gang := slicepod.Gang{Name: Gang(np), Size: missing, Total: slice.Total(runs), Held: held, Turn: turn, Replaces: placement.Replaces(np)}
	pending := make([]*corev1.Pod, 0, min(missing, most))
	for _, run := range runs {
		like := &corev1.Pod{Spec: podSpec(np, run.Size)}
		clusterchoice.ApplyTo(like, np)
		for range min(run.Count, most-int64(len(pending))) {
			pod := slicePod(np, fmt.Sprintf("slice.%04d", len(pending)), &like.Spec)
			pod.Labels = like.Labels
			pod.UID = slicepod.UID(gang.Name, len(pending))
			pending = append(pending, pod)
			pods = append(pods, pod)
		}
	}
	slicepod.Encode(gang, pending...)
	pin(pending, placement.Pinned(np))
	nominate(pending, np.Status.Nominated)
	return pods
}

// heldPods returns the Pods that stand for what is reserved. Beyond clusterchoice.MaxSpreadSlices no slice is a Pod of
// its own: the slice may have become smaller since they were placed.
func heldPods(np *schedulerv1alpha1.NamespacePlacement) (pods []client.Object) {
	size := slice.Of(np.Spec.Slice)
	equal := map[string]*corev1.Pod{} // of Pods that stand for equal amounts, one
	hold := func(kind, cluster string, amounts slice.Amounts) *corev1.Pod {
		like := equal[amounts.Key()]
		if like == nil {
			like = &corev1.Pod{Spec: podSpec(np, amounts)}
			like.Annotations = map[string]string{slicepod.AnnotationSlices: slicepod.EncodeRuns(slice.Cut(amounts, size))}
			equal[amounts.Key()] = like
		}
		pod := slicePod(np, kind+"."+cluster, &like.Spec)
		pod.Annotations = like.Annotations
		pod.UID = types.UID(fmt.Sprintf("%s/%s/%s", np.UID, kind, cluster))
		pod.Spec.NodeName = cluster
		pods = append(pods, pod)
		return pod
	}
	replaced := map[string]string{slicepod.LabelReplaced: "true"}
	labels, counted := clusterchoice.Labels(np), 0
	for i := range np.Status.Placements {
		part := &np.Status.Placements[i]
		rest := slice.Of(part.Reserved)
		if isReplaced := placement.IsReplaced(np, part); isReplaced || !clusterchoice.Spreads(&np.Spec) {
			if pod := hold("held", part.Cluster, rest); isReplaced {
				pod.Labels = replaced
			}
			continue
		}
		number := 0
		for _, run := range slice.Cut(placement.StayingIn(part), size) {
			for n := int64(0); n < run.Count && counted < clusterchoice.MaxSpreadSlices; n++ {
				hold(fmt.Sprintf("held-%04d", number), part.Cluster, run.Size).Labels = labels
				rest = rest.Minus(run.Size)
				number++
				counted++
			}
		}
		if !rest.IsZero() {
			hold("held", part.Cluster, rest)
		}
	}
	return pods
}

// pin lets the pending slices of a request go where they are requested. Their order is that of runs.
func pin(pending []*corev1.Pod, runs []placement.PinnedRun) {
	for _, run := range runs {
		count := min(run.Count, int64(len(pending)))
		slicepod.Pin(run.Cluster, pending[:count]...)
		pending = pending[count:]
	}
}

// nominate nominates pending slices for the super clusters where others give way for them, the first for each that fit
// into what is left of it: they are not of one size.
func nominate(pending []*corev1.Pod, nominated *schedulerv1alpha1.Nominated) {
	if nominated == nil {
		return
	}
	for i := range nominated.Placements {
		p := &nominated.Placements[i]
		rest := slice.Of(p.Reserved)
		pending = slices.DeleteFunc(slices.Clone(pending), func(pod *corev1.Pod) bool {
			size := slicepod.AmountsOf(pod)
			fits := size.Fits(rest)
			if fits {
				pod.Status.NominatedNodeName, rest = p.Cluster, rest.Minus(size)
			}
			return fits
		})
	}
}

// Gang names a decision about a NamespacePlacement, by a hash of its UID, generation and spec, its placements, and what
// is displaced and requested. Equal inputs give equal names, others do not: nor does a spec that has changed and
// changed back, which an informer may yet have to show.
func Gang(np *schedulerv1alpha1.NamespacePlacement) string {
	text, err := json.Marshal([]any{np.UID, np.Generation, np.Spec, np.Status.Placements, np.Status.Displaced, np.Status.Requested})
	if err != nil {
		panic(err) // API objects can always be encoded
	}
	digest := sha256.Sum256(text)
	return client.ObjectKeyFromObject(np).String() + "@" + hex.EncodeToString(digest[:8])
}

// slicePod returns a Pod with that spec, which it shares with others: nobody changes what is in it.
func slicePod(np *schedulerv1alpha1.NamespacePlacement, suffix string, spec *corev1.PodSpec) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         np.Namespace,
			Name:              np.Name + "." + suffix,
			CreationTimestamp: np.CreationTimestamp,
		},
		Spec: *spec,
	}
}

func podSpec(np *schedulerv1alpha1.NamespacePlacement, amounts slice.Amounts) corev1.PodSpec {
	priority := placement.Priority(np)
	return corev1.PodSpec{
		SchedulerName: cmp.Or(np.Spec.SchedulerName, DefaultNamespaceScheduler),
		Priority:      &priority,
		Tolerations:   SliceTolerations(),
		Containers: []corev1.Container{{
			Name:      "slice",
			Resources: corev1.ResourceRequirements{Requests: slicepod.Requests(amounts)},
		}},
	}
}

// SliceTolerations are what slices tolerate.
func SliceTolerations() []corev1.Toleration { return []corev1.Toleration{providerToleration()} }

func providerToleration() corev1.Toleration {
	return corev1.Toleration{Key: schedulerv1alpha1.TaintProvider, Operator: corev1.TolerationOpExists}
}
