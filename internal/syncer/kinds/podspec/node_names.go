package podspec

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenancy"
)

// NodeNames translates the names of tenant Nodes, and their labels that are no labels of super nodes, in the spec of a
// pod. It is for one pod, and not safe for concurrent use.
type NodeNames struct {
	superCluster string
	nodes        kind.Cache
	// byName and byHost hold, once read, the nodes that tenants know by a name or host name that is cut.
	byName, byHost map[string][]*corev1.Node
}

// NewNodeNames returns the NodeNames of a super cluster with the nodes of a cache; nil has none.
func NewNodeNames(superCluster string, nodes kind.Cache) *NodeNames {
	return &NodeNames{superCluster: superCluster, nodes: nodes}
}

// verdict is what is known about a requirement, or about a term, in this super cluster.
type verdict int

const (
	// depends: it differs from node to node.
	depends verdict = iota
	// always: it holds for every node, and is left out.
	always
	// never: it holds for none.
	never
)

// Translate translates the node selector and the node affinity of a tenant's pod, in spec, which must be the caller's
// own copy. pinned is the tenant Node that the pod must run on, "" for any.
func (n *NodeNames) Translate(spec *corev1.PodSpec, pinned string) {
	extra, possible := n.selector(spec)
	if pinned != "" {
		pin := corev1.NodeSelectorRequirement{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{pinned}}
		possible = n.field(&pin) != never && possible
		extra.MatchFields = append(extra.MatchFields, pin)
	}
	required := n.affinity(spec)
	switch {
	case !possible:
		required = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}} // matches no node
	case len(extra.MatchExpressions)+len(extra.MatchFields) == 0:
	case required == nil:
		required = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{extra}}
	default:
		narrow(required, extra)
	}
	if required == nil && (spec.Affinity == nil || spec.Affinity.NodeAffinity == nil) {
		return
	}
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	if spec.Affinity.NodeAffinity == nil {
		spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = required
}

// narrow adds the requirements of extra to each term that is not empty: an empty term matches no node.
func narrow(required *corev1.NodeSelector, extra corev1.NodeSelectorTerm) {
	for i := range required.NodeSelectorTerms {
		if term := &required.NodeSelectorTerms[i]; len(term.MatchExpressions)+len(term.MatchFields) > 0 {
			term.MatchExpressions = append(term.MatchExpressions, extra.MatchExpressions...)
			term.MatchFields = append(term.MatchFields, extra.MatchFields...)
		}
	}
}

// selector translates the node selector of spec. It returns requirements that a node must meet besides, and whether any
// node can match.
func (n *NodeNames) selector(spec *corev1.PodSpec) (extra corev1.NodeSelectorTerm, possible bool) {
	possible = true
	for _, key := range [...]string{corev1.LabelHostname, tenancyv1alpha1.LabelTenantNode, tenancyv1alpha1.LabelSuperClusterID} {
		value, wanted := spec.NodeSelector[key]
		if !wanted {
			continue
		}
		delete(spec.NodeSelector, key)
		requirement := corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}
		switch n.label(&requirement) {
		case always:
		case never:
			possible = false
		case depends:
			if len(requirement.Values) == 1 {
				spec.NodeSelector[key] = requirement.Values[0]
			} else {
				extra.MatchExpressions = append(extra.MatchExpressions, requirement)
			}
		}
	}
	return extra, possible
}

// affinity translates the node affinity of spec and returns what of it is required, nil for nothing.
func (n *NodeNames) affinity(spec *corev1.PodSpec) *corev1.NodeSelector {
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil {
		return nil
	}
	affinity := spec.Affinity.NodeAffinity
	// What every node has, or none, prefers no node to another.
	var preferred []corev1.PreferredSchedulingTerm
	for _, term := range affinity.PreferredDuringSchedulingIgnoredDuringExecution {
		if n.term(&term.Preference) == depends {
			preferred = append(preferred, term)
		}
	}
	affinity.PreferredDuringSchedulingIgnoredDuringExecution = preferred
	required := affinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil {
		return nil
	}
	var terms []corev1.NodeSelectorTerm
	for _, term := range required.NodeSelectorTerms {
		switch n.term(&term) {
		case always:
			return nil // one of the terms is enough
		case depends:
			terms = append(terms, term)
		case never:
		}
	}
	if len(terms) == 0 {
		terms = []corev1.NodeSelectorTerm{{}} // matches no node
	}
	return &corev1.NodeSelector{NodeSelectorTerms: terms}
}

// term translates a term. An empty one matches no node.
func (n *NodeNames) term(term *corev1.NodeSelectorTerm) verdict {
	if len(term.MatchExpressions)+len(term.MatchFields) == 0 {
		return never
	}
	labels, labelsNever := all(term.MatchExpressions, n.label)
	fields, fieldsNever := all(term.MatchFields, n.field)
	term.MatchExpressions, term.MatchFields = labels, fields
	switch {
	case labelsNever || fieldsNever:
		return never
	case len(labels)+len(fields) == 0:
		return always
	}
	return depends
}

// all translates requirements and returns those that depend on the node, and whether one of the others never holds.
func all(requirements []corev1.NodeSelectorRequirement, translate func(*corev1.NodeSelectorRequirement) verdict) (kept []corev1.NodeSelectorRequirement, none bool) {
	for _, requirement := range requirements {
		switch translate(&requirement) {
		case depends:
			kept = append(kept, requirement)
		case never:
			none = true
		case always:
		}
	}
	return kept, none
}

// label translates a requirement about a label.
func (n *NodeNames) label(requirement *corev1.NodeSelectorRequirement) verdict {
	switch requirement.Key {
	case tenancyv1alpha1.LabelTenantNode, tenancyv1alpha1.LabelSuperClusterID:
		return n.shared(requirement)
	case corev1.LabelHostname:
	default:
		return depends
	}
	switch requirement.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		return listed(requirement, n.hosts)
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		return never // <super cluster>.<node> is no number, while the host name of a super node may be one
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
	}
	return depends
}

// shared answers a requirement about a label that all tenant Nodes of a super cluster have in common.
func (n *NodeNames) shared(requirement *corev1.NodeSelectorRequirement) verdict {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
		tenancyv1alpha1.LabelTenantNode: "true", tenancyv1alpha1.LabelSuperClusterID: n.superCluster,
	}}}
	terms := []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{*requirement}}}
	if holds, err := nodeaffinity.NewLazyErrorNodeSelector(&corev1.NodeSelector{NodeSelectorTerms: terms}).Match(node); err == nil && holds {
		return always
	}
	return never
}

// field translates a requirement about a field: API servers know the name alone, with the operators In and NotIn and
// one value.
func (n *NodeNames) field(requirement *corev1.NodeSelectorRequirement) verdict {
	if requirement.Key != metav1.ObjectNameField {
		return depends
	}
	return listed(requirement, n.names)
}

// listed translates the values of an In or NotIn: each into those that stand for it here.
func listed(requirement *corev1.NodeSelectorRequirement, translate func(value string) []string) verdict {
	var values []string
	seen := sets.New[string]()
	for _, value := range requirement.Values {
		for _, here := range translate(value) {
			if !seen.Has(here) {
				seen.Insert(here)
				values = append(values, here)
			}
		}
	}
	requirement.Values = values
	switch {
	case len(values) > 0:
		return depends
	case requirement.Operator == corev1.NodeSelectorOpNotIn:
		return always
	}
	return never
}

// names returns the name of the node whose tenant Node has this name, none for a name of another super cluster.
func (n *NodeNames) names(tenantName string) []string {
	node, ours := strings.CutPrefix(tenantName, n.superCluster+".")
	if !ours || node == "" {
		return nil
	}
	n.readCut()
	if cut := n.byName[tenantName]; len(cut) > 0 {
		return []string{cut[0].Name} // API servers take one; two have the same hash of 64 bits
	}
	return []string{node}
}

// hosts returns the host names of the nodes whose tenant Nodes have this host name: several where it is cut.
func (n *NodeNames) hosts(tenantHost string) []string {
	n.readCut()
	var hosts []string
	for _, node := range n.byHost[tenantHost] {
		if host := node.Labels[corev1.LabelHostname]; host != "" {
			hosts = append(hosts, host)
		}
	}
	name, ours := strings.CutPrefix(tenantHost, n.superCluster+".")
	if !ours || name == "" {
		return hosts
	}
	if n.nodes != nil && len(tenantHost) <= validation.LabelValueMaxLength {
		if node, exists, _ := kind.Get[*corev1.Node](n.nodes, kind.Node, "", name); exists && node.Labels[corev1.LabelHostname] != "" {
			return append(hosts, node.Labels[corev1.LabelHostname])
		}
	}
	if len(hosts) == 0 && len(validation.IsValidLabelValue(name)) == 0 {
		hosts = append(hosts, name) // a node that is gone for now; kubelets use its name
	}
	return hosts
}

// readCut reads the nodes whose name or host name is cut in tenants.
func (n *NodeNames) readCut() {
	if n.byHost != nil || n.nodes == nil {
		return
	}
	n.byName, n.byHost = map[string][]*corev1.Node{}, map[string][]*corev1.Node{}
	for _, object := range n.nodes.List(kind.Node) {
		length := len(n.superCluster) + len(".") + len(object.GetName())
		node, ok := object.(*corev1.Node)
		if !ok || length <= validation.LabelValueMaxLength {
			continue
		}
		name := tenancy.NodeName(n.superCluster, node.Name)
		n.byHost[tenancy.HostName(name)] = append(n.byHost[tenancy.HostName(name)], node)
		if length > validation.DNS1123SubdomainMaxLength {
			n.byName[name] = append(n.byName[name], node)
		}
	}
}
