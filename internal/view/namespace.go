package view

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slice"
)

// DefaultNamespaceScheduler is the profile that places namespaces which name none.
const DefaultNamespaceScheduler = "namespace-scheduler"

// Scope is the scope, in the namespace view, of what one NamespacePlacement projects to.
func Scope(namespace, name string) string {
	return namespace + "/" + name
}

// Slices projects a NamespacePlacement onto Pods: one bound Pod per super cluster with what is reserved there, and one pending Pod per
// slice that is still to be placed. All pending Pods of a namespace form a gang.
func Slices(np *schedulerv1alpha1.NamespacePlacement) []client.Object {
	var pods []client.Object
	for i := range np.Status.Placements {
		held := &np.Status.Placements[i]
		pod := slicePod(np, "held."+held.Cluster, slice.Of(held.Reserved))
		pod.UID = types.UID(fmt.Sprintf("%s/held/%s", np.UID, held.Cluster))
		pod.Spec.NodeName = held.Cluster
		pods = append(pods, pod)
	}
	runs := placement.Missing(np)
	size := int64(0)
	for _, run := range runs {
		size += run.Count
	}
	gang := Gang(np)
	total, err := json.Marshal(slice.Total(runs).List())
	if err != nil {
		panic(err) // resource lists can always be encoded
	}
	annotations := map[string]string{
		schedulerv1alpha1.AnnotationGangTotal: string(total),
		schedulerv1alpha1.AnnotationGang:      gang,
		schedulerv1alpha1.AnnotationGangSize:  strconv.FormatInt(size, 10),
		schedulerv1alpha1.AnnotationHeld:      placement.Encode(np.Status.Placements),
	}
	index := 0
	for _, run := range runs {
		for range run.Count {
			pod := slicePod(np, fmt.Sprintf("slice.%04d", index), run.Size)
			pod.UID = types.UID(fmt.Sprintf("%s/%d", gang, index))
			pod.Annotations = annotations
			pods = append(pods, pod)
			index++
		}
	}
	return pods
}

// Gang names a decision about a NamespacePlacement: what is asked for, on top of what is held. Equal inputs give equal names, others
// do not.
func Gang(np *schedulerv1alpha1.NamespacePlacement) string {
	text, err := json.Marshal([]any{np.UID, np.Spec, np.Status.Placements})
	if err != nil {
		panic(err) // API objects can always be encoded
	}
	digest := sha256.Sum256(text)
	return Scope(np.Namespace, np.Name) + "@" + hex.EncodeToString(digest[:8])
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
			Tolerations:   []corev1.Toleration{providerToleration()},
			Containers: []corev1.Container{{
				Name:      "slice",
				Resources: corev1.ResourceRequirements{Requests: amounts.List()},
			}},
		},
	}
}

func providerToleration() corev1.Toleration {
	return corev1.Toleration{Key: schedulerv1alpha1.TaintProvider, Operator: corev1.TolerationOpExists}
}

// NamespaceNode is an informer transform: a virtual Node as the namespace scheduler sees it. Slices are not pods, so the number of
// pods is no limit. The object belongs to the caller and is changed.
func NamespaceNode(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	node.ManagedFields = nil
	if node.Status.Allocatable == nil {
		node.Status.Allocatable = corev1.ResourceList{}
	}
	node.Status.Allocatable[corev1.ResourcePods] = *resource.NewQuantity(math.MaxInt32, resource.DecimalSI)
	return node, nil
}
