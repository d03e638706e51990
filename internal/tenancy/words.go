package tenancy

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Words are pairs of what a super cluster says about a pod and what its tenant says.
type Words [][2]string

// WordsOf returns the words for the pod of owner that has this namespace and UID in a super cluster; what is "" has no word. UIDs have a
// second form in paths of cgroups.
func WordsOf(superNamespace string, superUID types.UID, owner Owner) Words {
	var words Words
	if superUID != "" {
		words = append(words,
			[2]string{string(superUID), string(owner.UID)},
			[2]string{underscored(superUID), underscored(owner.UID)})
	}
	if superNamespace != "" {
		words = append(words, [2]string{superNamespace, owner.Namespace})
	}
	return words
}

func underscored(uid types.UID) string { return strings.ReplaceAll(string(uid), "-", "_") }

// Translate returns a super cluster's text in the tenant's words.
func (w Words) Translate(text string) string {
	for _, pair := range w {
		text = strings.ReplaceAll(text, pair[0], pair[1])
	}
	return text
}

// Messages returns what kubelets and schedulers say in status about a pod and its containers; names of a super cluster can be among it.
func Messages(status *corev1.PodStatus) []*string {
	all := []*string{&status.Message}
	for i := range status.Conditions {
		all = append(all, &status.Conditions[i].Message)
	}
	for _, containers := range [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses, status.EphemeralContainerStatuses} {
		for i := range containers {
			for _, state := range []*corev1.ContainerState{&containers[i].State, &containers[i].LastTerminationState} {
				if state.Waiting != nil {
					all = append(all, &state.Waiting.Message)
				}
				if state.Terminated != nil {
					all = append(all, &state.Terminated.Message)
				}
			}
		}
	}
	return all
}
