package nodes

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/slice"
)

// NodeShare is what a tenant has of the nodes of a super cluster, and so what its Nodes show of them. The zero
// NodeShare has nothing: its Nodes are unschedulable.
type NodeShare struct {
	// Held are the requests that all pods of the tenant may have in the super cluster together; nil for none.
	Held corev1.ResourceList
	// Virtual is the Node of the super cluster in the meta cluster, nil if there is none. Operators cordon and taint
	// it.
	Virtual *corev1.Node
	// Policy says which labels the tenant may select, and which taints it may tolerate; nil is the shipped one.
	Policy *policy.Policy
}

// policy returns Policy, or the shipped one.
func (s *NodeShare) policy() *policy.Policy {
	if s.Policy == nil {
		return policy.Default()
	}
	return s.Policy
}

// unschedulable returns whether no new pods of the tenant go to a node, whatever they tolerate.
func (s *NodeShare) unschedulable(superNode *corev1.Node) bool {
	return superNode.Spec.Unschedulable || s.Virtual != nil && s.Virtual.Spec.Unschedulable || len(s.Held) == 0
}

// labels returns the labels of a node that pods of the tenant may name.
func (s *NodeShare) labels(superNode *corev1.Node) map[string]string {
	var shown map[string]string
	for key, value := range superNode.Labels {
		switch key {
		case corev1.LabelHostname, tenancyv1alpha1.LabelTenantNode, tenancyv1alpha1.LabelSuperClusterID:
			continue // a tenant's Node has its own
		}
		if slices.Contains(copiedNodeLabels[:], key) || !s.policy().MayName(key) {
			continue
		}
		if shown == nil {
			shown = map[string]string{}
		}
		shown[key] = value
	}
	return shown
}

// taints returns the taints of a node, and of its super cluster, as the tenant has them: those that its pods may
// tolerate, and for all others tenancyv1alpha1.TaintClosed.
func (s *NodeShare) taints(superNode *corev1.Node) []corev1.Taint {
	var shown []corev1.Taint
	known := sets.Set[taintIdentity]{}
	show := func(taint corev1.Taint) {
		if identity := identityOf(&taint); !known.Has(identity) {
			known.Insert(identity)
			shown = append(shown, taint)
		}
	}
	closed := corev1.Taint{Key: tenancyv1alpha1.TaintClosed, Effect: corev1.TaintEffectNoSchedule}
	for _, taint := range s.operators(superNode) {
		switch {
		case known.Has(identityOf(&taint)):
		case s.policy().MayTolerate(taint.Key, taint.Effect):
			taint.TimeAdded = nil
			show(taint)
		case taint.Effect != corev1.TaintEffectPreferNoSchedule:
			show(closed)
		}
	}
	if !s.selected(superNode) {
		show(closed)
	}
	return shown
}

// closed returns whether the tenant's policy keeps its pods off a node.
func (s *NodeShare) closed(superNode *corev1.Node) bool {
	return slices.ContainsFunc(s.taints(superNode), func(taint corev1.Taint) bool { return taint.Key == tenancyv1alpha1.TaintClosed })
}

// selected returns whether a node has the labels that the policy wants of all nodes of the tenant's pods.
func (s *NodeShare) selected(superNode *corev1.Node) bool {
	for key, value := range s.policy().Spec().Pods.NodeSelector {
		if superNode.Labels[key] != value {
			return false
		}
	}
	return true
}

// operators returns the taints of a node and of its super cluster that people put there. Kubernetes' own follow from
// conditions and spec.unschedulable, and the tenant's controllers add them likewise.
func (s *NodeShare) operators(superNode *corev1.Node) []corev1.Taint {
	all := slices.Clone(superNode.Spec.Taints)
	if s.Virtual != nil {
		all = append(all, s.Virtual.Spec.Taints...)
		for i := range all[len(superNode.Spec.Taints):] {
			// One that drains a super cluster is vc-scheduler's to execute, with the tenant's budgets.
			if taint := &all[len(superNode.Spec.Taints)+i]; taint.Effect == corev1.TaintEffectNoExecute {
				taint.Effect = corev1.TaintEffectNoSchedule
			}
		}
	}
	return slices.DeleteFunc(all, func(taint corev1.Taint) bool {
		domain, _, _ := strings.Cut(taint.Key, "/")
		return domain == "node.kubernetes.io" || domain == "node.cloudprovider.kubernetes.io" || taint.Key == schedulerv1alpha1.TaintProvider
	})
}

// amounts returns what the tenant may use of a node's resources: at most what it holds in the super cluster. CPU,
// memory and pods are there in any case, because programs expect them.
func (s *NodeShare) amounts(ofNode corev1.ResourceList) corev1.ResourceList {
	held, has, shown := slice.Of(s.Held), slice.Of(ofNode), slice.Amounts{}
	for _, name := range [...]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods} {
		shown[name] = 0
	}
	for name, amount := range held {
		shown[name] = min(amount, has[name])
	}
	maps.DeleteFunc(shown, func(name corev1.ResourceName, _ int64) bool {
		_, exists := ofNode[name]
		return !exists
	})
	return shown.List()
}

// taintIdentity is what identifies a taint of a node.
type taintIdentity struct {
	key    string
	effect corev1.TaintEffect
}

func identityOf(taint *corev1.Taint) taintIdentity { return taintIdentity{taint.Key, taint.Effect} }

// identitiesOf returns those of all taints of lists.
func identitiesOf(lists ...[]corev1.Taint) sets.Set[taintIdentity] {
	all := sets.Set[taintIdentity]{}
	for _, taints := range lists {
		for i := range taints {
			all.Insert(identityOf(&taints[i]))
		}
	}
	return all
}

// annotationTakenOver holds, on a tenant's Node, which labels and taints are those of the super node. What is not in it
// is the tenant's. Written by the syncer; read by the syncer.
const annotationTakenOver = "tenancy.x-k8s.io/from-super-node"

// takeover is what a tenant's Node has of the super node, besides what every Node has.
type takeover struct {
	Labels map[string]string
	Taints []corev1.Taint
}

// takeoverRecord is the text of annotationTakenOver: keys, and taints as <key>:<effect>.
type takeoverRecord struct {
	Labels []string `json:"labels,omitempty"`
	Taints []string `json:"taints,omitempty"`
}

// maxTakenOver bounds what is read of annotationTakenOver, in bytes: a node has few labels and taints to show.
const maxTakenOver = 16 << 10

// takenOver reads the takeover of a tenant's Node. Labels have no values, nor have taints. A tenant can write the text:
// one that cannot be read says nothing, and labels and taints of its Node are all that any text concerns.
func takenOver(tenantNode *corev1.Node) takeover {
	var record takeoverRecord
	if text := tenantNode.Annotations[annotationTakenOver]; text == "" || len(text) > maxTakenOver || json.Unmarshal([]byte(text), &record) != nil {
		return takeover{}
	}
	read := takeover{Labels: make(map[string]string, len(record.Labels))}
	for _, key := range record.Labels {
		read.Labels[key] = ""
	}
	for _, text := range record.Taints {
		key, effect, _ := strings.Cut(text, ":")
		read.Taints = append(read.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffect(effect)})
	}
	return read
}

// writeTo writes annotationTakenOver, or removes it.
func (t *takeover) writeTo(tenantNode *corev1.Node) {
	if len(t.Labels)+len(t.Taints) == 0 {
		delete(tenantNode.Annotations, annotationTakenOver)
		return
	}
	record := takeoverRecord{Labels: slices.Sorted(maps.Keys(t.Labels))}
	for _, taint := range t.Taints {
		record.Taints = append(record.Taints, taint.Key+":"+string(taint.Effect))
	}
	slices.Sort(record.Taints)
	text, err := json.Marshal(record)
	if err != nil {
		panic(err) // texts can always be encoded
	}
	tenantNode.Annotations[annotationTakenOver] = string(text)
}
