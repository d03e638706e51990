package nodegroups

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/superpool/superpool/internal/nodegroups"
)

// Judge says whether a super cluster has any node that may run a pod, as the plugin does, without topology spread and
// other pods. It remembers the groups of super clusters. The zero value is ready for use, by many goroutines.
type Judge struct{ clusters clusters }

// Demand is what a pod of the pod view demands of the node that it runs on: labels, tolerated taints, size and version.
type Demand struct {
	demand *demand
	excess bool
}

// DemandOf returns what a pod of the pod view demands.
func DemandOf(pod *corev1.Pod) Demand {
	if pod.Annotations[nodegroups.AnnotationExcess] != "" {
		return Demand{demand: &demand{pod: pod, key: "excess"}, excess: true} // no demand that is read has this key
	}
	return Demand{demand: demandOf(pod)}
}

// Key is equal for pods that demand the same.
func (d Demand) Key() string { return d.demand.key }

// Lacks says what a super cluster has that does not meet a demand, as "no node with zone=a", "" where Meets is true.
func (j *Judge) Lacks(node *corev1.Node, wanted Demand) string {
	if wanted.excess {
		return wanted.demand.pod.Annotations[nodegroups.AnnotationExcess]
	}
	found := j.clusters.of(node).answer(wanted.demand)
	if found.reason == "" {
		return ""
	}
	return strings.TrimPrefix(found.reason, ErrReasonHad) + keysOf(found.taints, nil)
}

// Meets reports whether a node of a super cluster may meet a demand. A super cluster that publishes no groups is not
// judged. One that demands more than is read is met nowhere.
func (j *Judge) Meets(node *corev1.Node, wanted Demand) bool {
	return !wanted.excess && j.clusters.of(node).answer(wanted.demand).reason == ""
}
