// Package nodegroups describes the nodes of a super cluster by groups of those that a pod's spec cannot tell apart:
// equal labels, equal taints, and how large they are. vc-scheduler publishes the groups on a virtual Node; plugin
// NodeGroups asks whether one of them takes a tenant's pod.
//
// A description is bounded, and where it must leave something out it promises too much: what no group takes, no node of
// the super cluster takes. Everything here is pure: no clients, no clock, no logging, and arguments are never changed.
package nodegroups

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
	pluginhelper "k8s.io/kubernetes/pkg/scheduler/framework/plugins/helper"

	"github.com/superpool/superpool/internal/slice"
)

const (
	// MaxGroups is the largest number of groups that a virtual Node publishes, and that Decode accepts.
	MaxGroups = 64
	// MaxBytes bounds the text that a virtual Node publishes, in bytes: an object has at most 256 KiB of annotations.
	MaxBytes = 32 * 1024
	// MaxShapes is the largest number of shapes of one group.
	MaxShapes = 4
	// Any among the dropped keys stands for all keys that no group has.
	Any = "*"

	// maxDropped is how many dropped keys are named; more are Any.
	maxDropped = 64
	// maxNodes bounds the nodes of one group. Kubernetes supports 5,000 in a cluster.
	maxNodes = 1 << 20
)

// Annotations of the Pods of a tenant's pod view. They never reach an API server.
const (
	// AnnotationBoundNode is the node that the Pod is bound to in the tenant control plane: the view's own
	// spec.nodeName is a super cluster.
	AnnotationBoundNode = "scheduler.tenancy.x-k8s.io/bound-node"
	// AnnotationExcess says that a Pod demands more of nodes and other Pods than is read, and how much: the view has
	// none of it.
	AnnotationExcess = "scheduler.tenancy.x-k8s.io/excess"
)

// Node is what a pod's spec can tell of a node. Labels do not name it: its host name is asked for by NodeName.
type Node struct {
	Labels map[string]string
	// Taints keep pods off, sorted: see TaintsOf.
	Taints      []corev1.Taint
	Allocatable slice.Amounts
}

// Group is a number of nodes with the same labels and taints.
type Group struct {
	// Nodes is how many there are, at least 1.
	Nodes int64
	// Labels are those of these nodes, without those that all nodes have (Groups.Labels).
	Labels map[string]string
	// Taints keep pods off these nodes.
	Taints []corev1.Taint
	// Shapes are allocatables: what fits none of them fits no node of the group.
	Shapes []slice.Amounts
}

// Groups are all nodes of a super cluster. The zero Groups has none.
type Groups struct {
	// Labels are those that all nodes have.
	Labels map[string]string
	// Dropped are the keys of labels that were left out, sorted: nothing is known of them. Any: nor of any key that no
	// group has.
	Dropped []string
	// Groups are in a fixed order, that of the most nodes first.
	Groups []Group
}

// Known reports whether the groups tell which nodes have a label of that key, and which not.
func (g *Groups) Known(key string) bool {
	if _, named := slices.BinarySearch(g.Dropped, key); named {
		return false
	}
	if len(g.Dropped) == 0 || g.Dropped[0] != Any {
		return true
	}
	if _, exists := g.Labels[key]; exists {
		return true
	}
	return slices.ContainsFunc(g.Groups, func(group Group) bool {
		_, exists := group.Labels[key]
		return exists
	})
}

// TaintsOf returns what keeps pods off a node, sorted and without times: its taints NoSchedule and NoExecute, and those
// that its state brings it, for being cordoned or not Ready.
func TaintsOf(node *corev1.Node) []corev1.Taint {
	var taints []corev1.Taint
	add := func(taint corev1.Taint) {
		if !slices.ContainsFunc(taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) }) {
			taints = append(taints, taint)
		}
	}
	keepsOff := pluginhelper.DoNotScheduleTaintsFilterFunc()
	for i := range node.Spec.Taints {
		if taint := &node.Spec.Taints[i]; keepsOff(taint) {
			add(corev1.Taint{Key: taint.Key, Value: taint.Value, Effect: taint.Effect})
		}
	}
	if node.Spec.Unschedulable {
		add(corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}
	isReady := slices.ContainsFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool {
		return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
	})
	if !isReady {
		add(corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule})
	}
	slices.SortFunc(taints, func(a, b corev1.Taint) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Effect, b.Effect), cmp.Compare(a.Value, b.Value))
	})
	return taints
}

// Of groups nodes. Where that would be more than MaxGroups, or a text longer than MaxBytes, labels are dropped: those
// of most distinct values first, those of Kubernetes' topology last. It returns no group where even one is too long.
func Of(nodes []Node) Groups {
	keys, dropped := keysOf(nodes)
	var best Groups
	fewest := sort.Search(len(keys), func(drop int) bool {
		groups := group(nodes, keys[drop:], dropped, keys[:drop])
		if !groups.isBounded() {
			return false
		}
		best = groups
		return true
	})
	if fewest == len(keys) {
		best = group(nodes, nil, dropped, keys)
	}
	if !best.isBounded() { // the taints are too many
		best = Groups{Dropped: []string{Any}, Groups: []Group{merged(nodes)}}
	}
	if !best.isBounded() {
		return Groups{Dropped: []string{Any}}
	}
	return best
}

func (g *Groups) isBounded() bool {
	return len(g.Groups) <= MaxGroups && len(Encode(*g)) <= MaxBytes
}

// lastDropped are the keys that are dropped last, the most important last.
var lastDropped = []string{
	corev1.LabelInstanceTypeStable, corev1.LabelArchStable, corev1.LabelOSStable, corev1.LabelTopologyRegion, corev1.LabelTopologyZone,
}

// keysOf returns the keys of labels in the order in which they are dropped, and those that would make more than
// MaxGroups groups alone.
func keysOf(nodes []Node) (keys, tooMany []string) {
	type counted struct {
		values map[string]bool
		nodes  int
	}
	all := map[string]*counted{}
	for i := range nodes {
		for key, value := range nodes[i].Labels {
			if all[key] == nil {
				all[key] = &counted{values: map[string]bool{}}
			}
			all[key].nodes++
			if len(all[key].values) <= MaxGroups {
				all[key].values[value] = true
			}
		}
	}
	distinct := func(key string) int {
		if all[key].nodes < len(nodes) {
			return len(all[key].values) + 1 // and those without it
		}
		return len(all[key].values)
	}
	for key := range all {
		if distinct(key) > MaxGroups {
			tooMany = append(tooMany, key)
		} else {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b string) int {
		return cmp.Or(
			cmp.Compare(slices.Index(lastDropped, a), slices.Index(lastDropped, b)),
			cmp.Compare(distinct(b), distinct(a)),
			cmp.Compare(a, b),
		)
	})
	return keys, tooMany
}

// group groups nodes by the labels of these keys.
func group(nodes []Node, keys []string, dropped ...[]string) Groups {
	ordered := slices.Sorted(slices.Values(keys))
	members := map[string][]Node{}
	var text strings.Builder
	for _, node := range nodes {
		text.Reset()
		for i, key := range ordered {
			if value, exists := node.Labels[key]; exists {
				fmt.Fprintf(&text, "%d=%s,", i, value)
			}
		}
		for _, taint := range node.Taints {
			fmt.Fprintf(&text, ";%s=%s:%s", taint.Key, taint.Value, taint.Effect)
		}
		members[text.String()] = append(members[text.String()], node)
	}
	groups := Groups{Labels: map[string]string{}, Dropped: slices.Sorted(slices.Values(slices.Concat(dropped...)))}
	if len(groups.Dropped) > maxDropped {
		groups.Dropped = []string{Any}
	}
	for _, key := range ordered {
		value, exists := nodes[0].Labels[key]
		if exists && !slices.ContainsFunc(nodes, func(node Node) bool { v, has := node.Labels[key]; return !has || v != value }) {
			groups.Labels[key] = value
		}
	}
	for _, text := range slices.Sorted(maps.Keys(members)) {
		one := merged(members[text])
		for _, key := range ordered {
			value, exists := members[text][0].Labels[key]
			if _, common := groups.Labels[key]; exists && !common {
				one.Labels[key] = value
			}
		}
		groups.Groups = append(groups.Groups, one)
	}
	slices.SortStableFunc(groups.Groups, func(a, b Group) int { return cmp.Compare(b.Nodes, a.Nodes) })
	return groups
}

// merged returns the group of nodes, at least one, with the taints that all have and no labels.
func merged(nodes []Node) Group {
	one := Group{Nodes: int64(len(nodes)), Labels: map[string]string{}, Taints: nodes[0].Taints}
	shapes := make([]slice.Amounts, 0, len(nodes))
	for _, node := range nodes {
		if !slices.Equal(one.Taints, node.Taints) {
			one.Taints = slices.DeleteFunc(slices.Clone(one.Taints), func(taint corev1.Taint) bool { return !slices.Contains(node.Taints, taint) })
		}
		shapes = append(shapes, node.Allocatable)
	}
	one.Shapes = Shapes(shapes)
	return one
}

// encodedGroups and encodedGroup are the form of the annotation.
type encodedGroups struct {
	Labels  map[string]string `json:"labels,omitempty"`
	Dropped []string          `json:"dropped,omitempty"`
	Groups  []encodedGroup    `json:"groups"`
}

type encodedGroup struct {
	Nodes  int64                 `json:"nodes"`
	Labels map[string]string     `json:"labels,omitempty"`
	Taints []corev1.Taint        `json:"taints,omitempty"`
	Shapes []corev1.ResourceList `json:"shapes,omitempty"`
}

// Encode writes groups as JSON:
// {"labels":{},"dropped":[],"groups":[{"nodes":3,"labels":{"zone":"a"},"shapes":[{"cpu":"4"}]}]}.
func Encode(groups Groups) string {
	encoded := encodedGroups{Labels: groups.Labels, Dropped: groups.Dropped, Groups: make([]encodedGroup, 0, len(groups.Groups))}
	for _, group := range groups.Groups {
		one := encodedGroup{Nodes: group.Nodes, Labels: group.Labels, Taints: group.Taints}
		for _, shape := range group.Shapes {
			one.Shapes = append(one.Shapes, shape.List())
		}
		encoded.Groups = append(encoded.Groups, one)
	}
	text, err := json.Marshal(encoded)
	if err != nil {
		panic(err) // strings and quantities can always be encoded
	}
	return string(text)
}

// Decode reads what Encode writes.
func Decode(text string) (Groups, error) {
	if len(text) > MaxBytes {
		return Groups{}, fmt.Errorf("node groups are longer than %d characters", MaxBytes)
	}
	var encoded encodedGroups
	if err := json.Unmarshal([]byte(text), &encoded); err != nil {
		return Groups{}, fmt.Errorf(`node groups are no JSON such as {"groups":[{"nodes":3,"shapes":[{"cpu":"4"}]}]}: %w`, err)
	}
	if len(encoded.Groups) > MaxGroups {
		return Groups{}, fmt.Errorf("there are %d node groups, and at most %d are read", len(encoded.Groups), MaxGroups)
	}
	groups := Groups{Labels: encoded.Labels, Dropped: slices.Sorted(slices.Values(encoded.Dropped))}
	for _, group := range encoded.Groups {
		if group.Nodes < 1 || group.Nodes > maxNodes {
			return Groups{}, fmt.Errorf("a node group is that of %d nodes: want a number from 1 to %d", group.Nodes, maxNodes)
		}
		one := Group{Nodes: group.Nodes, Labels: group.Labels, Taints: group.Taints}
		for _, shape := range group.Shapes {
			one.Shapes = append(one.Shapes, slice.Of(shape))
		}
		groups.Groups = append(groups.Groups, one)
	}
	return groups, nil
}
