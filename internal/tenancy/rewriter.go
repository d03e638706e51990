package tenancy

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Rewriter replaces the UID and namespace of a super pod in a text by those of the tenant's pod. It is safe for
// concurrent use.
type Rewriter struct{ replacer *strings.Replacer }

// NewRewriter returns the Rewriter for the super pod with this namespace and UID that carries owner; "" is not
// replaced. It replaces a UID in the form with underscores too, which the paths of cgroups have.
func NewRewriter(superNamespace string, superUID types.UID, owner Owner) Rewriter {
	var pairs []string
	if superUID != "" {
		pairs = append(pairs, string(superUID), string(owner.UID), underscored(superUID), underscored(owner.UID))
	}
	if superNamespace != "" {
		pairs = append(pairs, superNamespace, owner.Namespace)
	}
	return Rewriter{strings.NewReplacer(pairs...)}
}

func underscored(uid types.UID) string { return strings.ReplaceAll(string(uid), "-", "_") }

// Rewrite returns text with the tenant's names.
func (r Rewriter) Rewrite(text string) string {
	if text == "" {
		return "" // most messages; the replacer is built at its first use
	}
	return r.replacer.Replace(text)
}

// Messages returns pointers to the messages of a status. Kubelets and schedulers write them, with names of the super
// cluster.
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
