package nodegroups

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/superpool/superpool/internal/nodegroups"
)

// maxApart is how many anti-affinity terms of a pod are counted, its own and those of each pod that they avoid. One
// that is left out is never a wrong no: the super scheduler judges it.
const maxApart = 8

// apart is a required anti-affinity of a pod.
type apart struct {
	term *corev1.PodAffinityTerm
	fwk.AffinityTerm
}

// requiredApart returns the required anti-affinity of a pod.
func requiredApart(pod *corev1.Pod) []corev1.PodAffinityTerm {
	if affinity := pod.Spec.Affinity; affinity != nil && affinity.PodAntiAffinity != nil {
		return affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}

func apartOf(pod *corev1.Pod) ([]apart, error) {
	required := requiredApart(pod)
	required = required[:min(len(required), maxApart)]
	parsed, err := fwk.GetAffinityTerms(pod, required)
	if err != nil {
		return nil, fmt.Errorf("reading anti-affinity: %w", err)
	}
	terms := make([]apart, len(parsed))
	for i := range parsed {
		terms[i] = apart{term: &required[i], AffinityTerm: parsed[i]}
	}
	return terms, nil
}

// questionOf returns what is equal for pods of a namespace that avoid the same, and may be on the same nodes. It is ""
// for those that avoid nobody.
func questionOf(wanted *demand, terms []apart, namespace string) string {
	if len(terms) == 0 {
		return ""
	}
	text := namespace + "\n" + wanted.key
	for i := range terms {
		text += "\n" + terms[i].term.String()
	}
	return text
}

// firstFull returns the topology key of the first of terms that isFull, "" for none.
func firstFull(terms []apart, c *cluster, groups uint64, pods []fwk.PodInfo) string {
	for i := range terms {
		if terms[i].isFull(c, groups, pods) {
			return terms[i].TopologyKey
		}
	}
	return ""
}

// avoids reports whether the term names a pod. Of namespaces it reads the names: what it selects by label may be
// missed.
func (a *apart) avoids(pod *corev1.Pod) bool {
	return a.Namespaces.Has(pod.Namespace) && a.Selector.Matches(labels.Set(pod.Labels))
}

// isFull reports whether pods that the term avoids are in all domains of groups: as many domains are surely taken as
// there are. Which domain a pod is in, the super cluster does not say, but for its node. Pods that avoid each other are
// in as many domains as they are.
func (a *apart) isFull(c *cluster, groups uint64, pods []fwk.PodInfo) bool {
	domains, counted := c.domains(a.TopologyKey, groups)
	if !counted || int64(len(pods)) < domains {
		return false
	}
	nodes, each := sets.New[string](), 0
	for _, info := range pods {
		pod := info.GetPod()
		node := pod.Annotations[nodegroups.AnnotationBoundNode]
		onNode := a.TopologyKey == corev1.LabelHostname && node != ""
		if !a.avoids(pod) || !onNode && !a.isCarriedBy(pod) || !c.isWithin(pod, groups) {
			continue
		}
		if onNode {
			nodes.Insert(node)
		} else {
			each++
		}
		if int64(nodes.Len()+each) >= domains {
			return true
		}
	}
	return false
}

// isCarriedBy reports whether a pod has the term itself.
func (a *apart) isCarriedBy(pod *corev1.Pod) bool {
	terms := requiredApart(pod)
	for i := range terms[:min(len(terms), maxApart)] {
		if equality.Semantic.DeepEqual(&terms[i], a.term) {
			return true
		}
	}
	return false
}

// domains returns how many domains of a topology key groups have. It returns false if that is not known, or nodes lack
// the key: an anti-affinity does not hold there.
func (c *cluster) domains(key string, groups uint64) (domains int64, counted bool) {
	if key != corev1.LabelHostname && !c.knows(key) {
		return 0, false
	}
	values := sets.New[string]()
	counted = true
	c.where(groups, func(i int) bool {
		value, has := c.nodes[i].Labels[key]
		counted = counted && has
		values.Insert(value)
		domains += c.groups.Groups[i].Nodes
		return true
	})
	if key != corev1.LabelHostname {
		domains = int64(values.Len())
	}
	return domains, counted && domains > 0
}

// isWithin reports whether a pod can only be on nodes of groups.
func (c *cluster) isWithin(pod *corev1.Pod, groups uint64) bool {
	own := c.answer(demandOf(pod))
	return own.reason == "" && own.groups&^groups == 0
}
