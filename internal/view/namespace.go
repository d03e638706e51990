package view

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/slicepod"
)

// DefaultNamespaceScheduler is the profile that places namespaces which name none.
const DefaultNamespaceScheduler = "namespace-scheduler"

// Slices projects a NamespacePlacement onto Pods: one bound Pod per super cluster with what is reserved there, and one
// pending Pod per slice that is still to be placed. All pending Pods of a namespace form a gang.
func Slices(np *schedulerv1alpha1.NamespacePlacement) []client.Object {
	return projectSlices(np, 0, math.MaxInt64)
}

// projectSlices is Slices with the turn of a namespace that waits (Namespaces), and at most so many pending Pods.
func projectSlices(np *schedulerv1alpha1.NamespacePlacement, turn int, most int64) []client.Object {
	var pods []client.Object
	size := slice.Of(np.Spec.Slice)
	held := make(map[string]int32, len(np.Status.Placements))
	annotations := map[string]map[string]string{} // shared by Pods that stand for equal slices
	for i := range np.Status.Placements {
		part := &np.Status.Placements[i]
		held[part.Cluster] = part.Slices
		reserved := slice.Of(part.Reserved)
		pod := slicePod(np, "held."+part.Cluster, reserved)
		runs := slicepod.EncodeRuns(slice.Cut(reserved, size))
		if annotations[runs] == nil {
			annotations[runs] = map[string]string{slicepod.AnnotationSlices: runs}
		}
		pod.Annotations = annotations[runs]
		pod.UID = types.UID(fmt.Sprintf("%s/held/%s", np.UID, part.Cluster))
		pod.Spec.NodeName = part.Cluster
		pods = append(pods, pod)
	}
	runs := placement.Missing(np)
	missing := int64(0)
	for _, run := range runs {
		missing += run.Count
	}
	gang := slicepod.Gang{Name: Gang(np), Size: missing, Total: slice.Total(runs), Held: held, Turn: turn}
	pending := make([]*corev1.Pod, 0, min(missing, most))
	for _, run := range runs {
		for range min(run.Count, most-int64(len(pending))) {
			pod := slicePod(np, fmt.Sprintf("slice.%04d", len(pending)), run.Size)
			pod.UID = slicepod.UID(gang.Name, len(pending))
			pending = append(pending, pod)
			pods = append(pods, pod)
		}
	}
	slicepod.Encode(gang, pending...)
	return pods
}

// Gang names a decision about a NamespacePlacement, by a hash of its UID, spec and placements. Equal inputs give equal
// names, others do not.
func Gang(np *schedulerv1alpha1.NamespacePlacement) string {
	text, err := json.Marshal([]any{np.UID, np.Spec, np.Status.Placements})
	if err != nil {
		panic(err) // API objects can always be encoded
	}
	digest := sha256.Sum256(text)
	return client.ObjectKeyFromObject(np).String() + "@" + hex.EncodeToString(digest[:8])
}

func slicePod(np *schedulerv1alpha1.NamespacePlacement, suffix string, amounts slice.Amounts) *corev1.Pod {
	schedulerName := np.Spec.SchedulerName
	if schedulerName == "" {
		schedulerName = DefaultNamespaceScheduler
	}
	priority := np.Spec.Priority
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         np.Namespace,
			Name:              np.Name + "." + suffix,
			CreationTimestamp: np.CreationTimestamp,
		},
		Spec: corev1.PodSpec{
			SchedulerName: schedulerName,
			Priority:      &priority,
			Tolerations:   SliceTolerations(),
			Containers: []corev1.Container{{
				Name:      "slice",
				Resources: corev1.ResourceRequirements{Requests: slicepod.Requests(amounts)},
			}},
		},
	}
}

// SliceTolerations are what slices tolerate.
func SliceTolerations() []corev1.Toleration { return []corev1.Toleration{providerToleration()} }

func providerToleration() corev1.Toleration {
	return corev1.Toleration{Key: schedulerv1alpha1.TaintProvider, Operator: corev1.TolerationOpExists}
}
