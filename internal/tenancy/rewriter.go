package tenancy

import (
	"regexp"
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

// figures are what kubelets say of a node in messages about one of its pods: what all pods use there, and what it has.
// Of both $1 and $2 stay.
var figures = regexp.MustCompile(`(Node didn't have enough [a-z]+: [^,]{1,300}, requested: [0-9]+)(?:, used: [0-9]+)?, capacity: [0-9]+|` +
	`(The node was low on resource: [^ ]{1,300} )Threshold quantity: [^ ]{1,100}, available: [^ ]{1,100} ?`)

// Rewrite returns text with the tenant's names, and without figures of nodes.
func (r Rewriter) Rewrite(text string) string {
	if text == "" {
		return "" // most messages; the replacer is built at its first use
	}
	if strings.Contains(text, "The node was low on resource") || strings.Contains(text, "Node didn't have enough") {
		text = figures.ReplaceAllString(text, "$1$2")
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
			for _, resource := range containers[i].AllocatedResourcesStatus {
				for j := range resource.Resources {
					if message := resource.Resources[j].Message; message != nil {
						all = append(all, message)
					}
				}
			}
		}
	}
	for i := range status.VolumeHealth {
		for j := range status.VolumeHealth[i].HealthConditions {
			all = append(all, &status.VolumeHealth[i].HealthConditions[j].Message)
		}
	}
	return all
}
