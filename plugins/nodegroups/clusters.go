package nodegroups

import (
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/nodegroups"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/skew"
	"github.com/superpool/superpool/internal/slice"
)

const (
	// maxAnswers is how many demands a cluster remembers its answer to, and maxKey the length from which on their keys
	// are hashed, in bytes.
	maxAnswers = 128
	maxKey     = 512
)

// clusters are the groups of super clusters, by virtual Node. The zero value is ready for use, by many goroutines.
type clusters struct{ byName sync.Map }

// of returns the groups that a virtual Node publishes, which are read once per text.
func (c *clusters) of(node *corev1.Node) *cluster {
	text, says := textOf(node), node.Status.NodeInfo.KubeletVersion
	if known, ok := c.byName.Load(node.Name); ok && known.(*cluster).text == text && known.(*cluster).says == says {
		return known.(*cluster)
	}
	read := newCluster(node.Name, text)
	read.says, read.version = says, skew.Of(node)
	c.byName.Store(node.Name, read)
	return read
}

// cluster is the groups of one super cluster.
type cluster struct {
	text   string
	groups nodegroups.Groups
	// says is version as the Node has it.
	says    string
	version skew.Version
	// nodes hold, for each group, a Node of a tenant that stands in for its nodes. None: the super cluster is not
	// judged.
	nodes []*corev1.Node

	mu      sync.Mutex
	answers map[string]*answer
}

// answer is what the groups say to a demand.
type answer struct {
	// groups are those that take the pod, a bit for each.
	groups uint64
	// reason is why there are none, "" if there are some, or it is not known.
	reason string
	// taints are those that keep the pod off, one of each group, if that is the reason.
	taints []*corev1.Taint
	// score is the most that a node of one of them has of the pod's preferences.
	score int64
}

func newCluster(name, text string) *cluster {
	c := &cluster{text: text, answers: map[string]*answer{}}
	if text == "" {
		return c
	}
	groups, err := nodegroups.Decode(text)
	if err != nil {
		return c
	}
	c.groups = groups
	for _, group := range groups.Groups {
		labels := maps.Clone(group.Labels)
		if labels == nil {
			labels = map[string]string{}
		}
		maps.Copy(labels, groups.Labels)
		maps.Copy(labels, ownLabels(name))
		c.nodes = append(c.nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: corev1.NodeSpec{Taints: group.Taints}})
	}
	return c
}

// ownLabels are those that the Nodes of a super cluster have in tenants, and not there. The host name is that of the
// super cluster here, see demand.
func ownLabels(superCluster string) map[string]string {
	return map[string]string{
		corev1.LabelHostname:                superCluster,
		tenancyv1alpha1.LabelTenantNode:     "true",
		tenancyv1alpha1.LabelSuperClusterID: superCluster,
	}
}

// knows reports whether it is known which nodes have a label of that key.
func (c *cluster) knows(key string) bool {
	return key == tenancyv1alpha1.LabelTenantNode || key == tenancyv1alpha1.LabelSuperClusterID || c.groups.Known(key)
}

// answer returns what the version and the groups say to a demand. Groups are looked at once.
func (c *cluster) answer(wanted *demand) *answer {
	if lacks := c.version.Lacks(wanted.needs); lacks != "" {
		return &answer{reason: ErrReasonHad + lacks}
	}
	if len(c.nodes) == 0 {
		return &answer{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.answers[wanted.key]; known != nil {
		return known
	}
	found := c.look(wanted)
	if len(c.answers) >= maxAnswers {
		clear(c.answers)
	}
	c.answers[wanted.key] = found
	return found
}

func (c *cluster) look(wanted *demand) *answer {
	matching := c.matching(wanted.pod)
	if matching == 0 {
		return &answer{reason: ErrReasonNoNode + c.required(wanted.pod)}
	}
	tolerated := c.tolerated(matching, wanted.pod.Spec.Tolerations)
	if tolerated == 0 {
		return &answer{reason: ErrReasonNoNode + "for it whose taints it tolerates", taints: c.untolerated(matching, wanted.pod.Spec.Tolerations)}
	}
	large := c.large(tolerated, wanted.amounts)
	if large == 0 {
		return &answer{reason: ErrReasonNoNode + "large enough"}
	}
	return &answer{groups: large, score: c.score(large, preferredBy(wanted.pod))}
}

// where returns those of groups of which is is true.
func (c *cluster) where(groups uint64, is func(i int) bool) (found uint64) {
	for i := range c.nodes {
		if bit := uint64(1) << i; groups&bit != 0 && is(i) {
			found |= bit
		}
	}
	return found
}

// all are all groups.
const all = ^uint64(0)

// matching returns the groups with the labels that a pod requires.
func (c *cluster) matching(pod *corev1.Pod) uint64 {
	asked := &corev1.Pod{Spec: corev1.PodSpec{NodeSelector: c.known(pod.Spec.NodeSelector)}}
	if terms := c.knownTerms(requiredBy(pod)); terms != nil {
		asked.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}
	}
	affinity := nodeaffinity.GetRequiredNodeAffinity(asked)
	return c.where(all, func(i int) bool {
		matches, err := affinity.Match(c.nodes[i])
		return matches && err == nil
	})
}

// tolerated returns those of groups whose taints are tolerated.
func (c *cluster) tolerated(groups uint64, tolerations []corev1.Toleration) uint64 {
	return c.where(groups, func(i int) bool {
		_, isAway := placement.Untolerated(c.nodes[i].Spec.Taints, tolerations)
		return !isAway
	})
}

// large returns those of groups with nodes that could hold so much, if nothing else ran there.
func (c *cluster) large(groups uint64, amounts slice.Amounts) uint64 {
	if amounts.IsZero() {
		return groups
	}
	return c.where(groups, func(i int) bool {
		for _, shape := range c.groups.Groups[i].Shapes {
			if amounts.Fits(shape) {
				return true
			}
		}
		return false
	})
}

// score returns the most that one of groups has of preferences.
func (c *cluster) score(groups uint64, preferences []corev1.PreferredSchedulingTerm) (most int64) {
	known := make([]corev1.PreferredSchedulingTerm, 0, len(preferences))
	for i := range preferences {
		term, isAny := c.knownTerm(&preferences[i].Preference)
		if !isAny {
			known = append(known, corev1.PreferredSchedulingTerm{Weight: preferences[i].Weight, Preference: term})
		}
	}
	terms, err := nodeaffinity.NewPreferredSchedulingTerms(known)
	if err != nil {
		return 0
	}
	c.where(groups, func(i int) bool {
		most = max(most, terms.Score(c.nodes[i]))
		return true
	})
	return most
}

// IsLargeEnough reports whether a node of the super cluster could hold a pod that requests so much, if nothing else ran
// there and its taints were tolerated. A super cluster that publishes no groups is not judged.
func IsLargeEnough(node *corev1.Node, requests slice.Amounts) bool {
	needed := maps.Clone(requests)
	delete(needed, corev1.ResourcePods)
	c := newCluster(node.Name, textOf(node))
	return len(c.nodes) == 0 || c.large(all, needed) != 0
}
