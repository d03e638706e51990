// Package nodelabels answers what a pod requires of labels that its tenant has given to its own Nodes: no node of a
// super cluster has them, so a requirement on them becomes one on the host names of the tenant's Nodes. The pod
// scheduler and the syncer both ask here, before they translate the names.
//
// Everything here is pure: no clients, no clock, no logging. Arguments are never changed but by Translate.
package nodelabels

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/superpool/superpool/internal/tenancy"
)

const (
	// MaxHosts is how many host names a requirement may become.
	MaxHosts = 500
	// MaxAsked is how many requirements on a tenant's own labels, and values in them, a spec may have, over all terms.
	// A node selector counts once more for each term, for each term is answered with it.
	MaxAsked = 64
	// MaxNodes is how many Nodes a tenant may have for its labels to be looked at.
	MaxNodes = 10_000
	// MaxLabels is how many labels of one Node are looked at: the first in alphabetical order.
	MaxLabels = 64

	// maxWords bounds what is said of requirements, in bytes.
	maxWords = 256
)

// Node is a Node of a tenant.
type Node struct {
	// Host is the label of its host name.
	Host string
	// Labels are those that the tenant may have given it: at most MaxLabels, and none that IsReserved.
	Labels map[string]string
}

// Of returns what is asked of a tenant's Node with that name and these labels.
func Of(name string, labels map[string]string) Node {
	node := Node{Host: tenancy.HostName(name), Labels: map[string]string{}}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if len(node.Labels) == MaxLabels {
			break
		}
		if !IsReserved(key) {
			node.Labels[key] = labels[key]
		}
	}
	return node
}

// IsReserved reports whether a label is never a tenant's own, because it means something to Kubernetes or to us: all
// below kubernetes.io, k8s.io and x-k8s.io, and the names of nodes.
func IsReserved(key string) bool {
	switch key {
	case corev1.LabelHostname, corev1.LabelOSStable, corev1.LabelArchStable:
		return true
	}
	domain, _, _ := strings.Cut(key, "/")
	return domain != key && slices.ContainsFunc([]string{".kubernetes.io", ".k8s.io", ".x-k8s.io"}, func(suffix string) bool {
		return strings.HasSuffix(domain, suffix)
	})
}

// Uses reports whether a pod requires or prefers labels of which own is true.
func Uses(spec *corev1.PodSpec, own func(key string) bool) bool {
	for key := range spec.NodeSelector {
		if own(key) {
			return true
		}
	}
	isOwn := func(requirement corev1.NodeSelectorRequirement) bool { return own(requirement.Key) }
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil {
		return false
	}
	affinity := spec.Affinity.NodeAffinity
	if required := affinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		for i := range required.NodeSelectorTerms {
			if slices.ContainsFunc(required.NodeSelectorTerms[i].MatchExpressions, isOwn) {
				return true
			}
		}
	}
	for i := range affinity.PreferredDuringSchedulingIgnoredDuringExecution {
		if slices.ContainsFunc(affinity.PreferredDuringSchedulingIgnoredDuringExecution[i].Preference.MatchExpressions, isOwn) {
			return true
		}
	}
	return false
}

// Translate replaces what spec, which must be the caller's own copy, requires and prefers of labels of which own is
// true by host names of nodes:
//
//	In, Exists, Gt, Lt   host name In those of the Nodes that match; none: the term matches nothing
//	NotIn, DoesNotExist  host name NotIn those of the Nodes that do not match; none: left out
//
// A node that is no Node of the tenant yet has none of its labels.
//
// All such requirements of a term, and those of the node selector, are answered together, so that one Node meets them
// all. If no Node can, spec requires one empty term, which matches no node, and why is returned; else "".
//
// So it is where more is asked than MaxAsked, or of more Nodes than MaxNodes.
func Translate(spec *corev1.PodSpec, own func(key string) bool, nodes []Node) string {
	selected := takeSelector(spec, own)
	if why := exceeds(spec, selected, own, len(nodes)); why != "" {
		spec.Affinity = cmp.Or(spec.Affinity, &corev1.Affinity{})
		spec.Affinity.NodeAffinity = &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}},
		}
		return why
	}
	if len(selected) > 0 {
		spec.Affinity = cmp.Or(spec.Affinity, &corev1.Affinity{})
		spec.Affinity.NodeAffinity = cmp.Or(spec.Affinity.NodeAffinity, &corev1.NodeAffinity{})
	}
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil {
		return ""
	}
	affinity := spec.Affinity.NodeAffinity
	affinity.PreferredDuringSchedulingIgnoredDuringExecution = preferring(affinity.PreferredDuringSchedulingIgnoredDuringExecution, own, nodes)
	required := affinity.RequiredDuringSchedulingIgnoredDuringExecution
	switch {
	case required == nil && len(selected) == 0:
		return ""
	case required == nil:
		term := corev1.NodeSelectorTerm{}
		why := translate(&term, selected, own, nodes)
		affinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}}
		return why
	}
	terms, why := requiring(required.NodeSelectorTerms, selected, own, nodes)
	if terms == nil {
		affinity.RequiredDuringSchedulingIgnoredDuringExecution = nil
		return ""
	}
	required.NodeSelectorTerms = terms
	return why
}

// exceeds returns why a spec is not translated, without selected, which were taken out of its node selector; "" if it
// is.
func exceeds(spec *corev1.PodSpec, selected []corev1.NodeSelectorRequirement, own func(key string) bool, nodes int) string {
	asked := weigh(selected, own)
	if spec.Affinity != nil && spec.Affinity.NodeAffinity != nil {
		affinity := spec.Affinity.NodeAffinity
		if required := affinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
			asked *= max(1, len(required.NodeSelectorTerms))
			for i := range required.NodeSelectorTerms {
				asked += weigh(required.NodeSelectorTerms[i].MatchExpressions, own)
			}
		}
		for i := range affinity.PreferredDuringSchedulingIgnoredDuringExecution {
			asked += weigh(affinity.PreferredDuringSchedulingIgnoredDuringExecution[i].Preference.MatchExpressions, own)
		}
	}
	switch {
	case asked > MaxAsked:
		return fmt.Sprintf("the pod names %d labels of Nodes and their values, with the node selector in each term: at most %d may be named", asked, MaxAsked)
	case asked > 0 && nodes > MaxNodes:
		return fmt.Sprintf("this control plane has %d Nodes: pods may name labels of Nodes where there are at most %d", nodes, MaxNodes)
	}
	return ""
}

// weigh returns how much requirements ask of labels of which own is true.
func weigh(requirements []corev1.NodeSelectorRequirement, own func(key string) bool) (asked int) {
	for i := range requirements {
		if own(requirements[i].Key) {
			asked += 1 + len(requirements[i].Values)
		}
	}
	return asked
}

// Without removes from spec, which must be the caller's own copy, what it requires and prefers of labels of which own
// is true. More Nodes may match it then, and none that matched does not.
func Without(spec *corev1.PodSpec, own func(key string) bool) {
	takeSelector(spec, own)
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil {
		return
	}
	affinity := spec.Affinity.NodeAffinity
	isOwn := func(requirement corev1.NodeSelectorRequirement) bool { return own(requirement.Key) }
	affinity.PreferredDuringSchedulingIgnoredDuringExecution = nil
	required := affinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil {
		return
	}
	for i := range required.NodeSelectorTerms {
		term := &required.NodeSelectorTerms[i]
		wasEmpty := isEmpty(term)
		if term.MatchExpressions = slices.DeleteFunc(term.MatchExpressions, isOwn); !wasEmpty && isEmpty(term) {
			affinity.RequiredDuringSchedulingIgnoredDuringExecution = nil // one of the terms is enough
			return
		}
	}
}

// preferring returns translated preferences without those that no Node meets, or every node.
func preferring(preferences []corev1.PreferredSchedulingTerm, own func(key string) bool, nodes []Node) (kept []corev1.PreferredSchedulingTerm) {
	for _, preference := range preferences {
		wasEmpty := isEmpty(&preference.Preference)
		if why := translate(&preference.Preference, nil, own, nodes); why == "" && (wasEmpty || !isEmpty(&preference.Preference)) {
			kept = append(kept, preference)
		}
	}
	return kept
}

// requiring returns translated terms of which one must match, nil where every node matches one. If no Node matches any,
// it is one empty term, and why is returned.
func requiring(
	terms []corev1.NodeSelectorTerm, selected []corev1.NodeSelectorRequirement, own func(key string) bool, nodes []Node,
) (kept []corev1.NodeSelectorTerm, why string) {
	for _, term := range terms {
		if isEmpty(&term) {
			continue // it matches no node
		}
		none := translate(&term, selected, own, nodes)
		switch {
		case none != "":
			why = cmp.Or(why, none)
		case isEmpty(&term):
			return nil, "" // one of the terms is enough
		default:
			kept = append(kept, term)
		}
	}
	if len(kept) > 0 {
		return kept, ""
	}
	return []corev1.NodeSelectorTerm{{}}, why
}

// isEmpty returns whether a term has no requirements.
func isEmpty(term *corev1.NodeSelectorTerm) bool {
	return len(term.MatchExpressions)+len(term.MatchFields) == 0
}

// takeSelector takes labels of which own is true out of the node selector, and returns them as requirements.
func takeSelector(spec *corev1.PodSpec, own func(key string) bool) (taken []corev1.NodeSelectorRequirement) {
	for _, key := range slices.Sorted(maps.Keys(spec.NodeSelector)) {
		if own(key) {
			taken = append(taken, corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{spec.NodeSelector[key]}})
			delete(spec.NodeSelector, key)
		}
	}
	return taken
}

// translate replaces requirements of a term, and adds selected. It returns why no Node matches it, "" if one may; the
// term is then empty.
func translate(term *corev1.NodeSelectorTerm, selected []corev1.NodeSelectorRequirement, own func(key string) bool, nodes []Node) string {
	var others []corev1.NodeSelectorRequirement
	asked := slices.Clone(selected)
	for _, requirement := range term.MatchExpressions {
		if own(requirement.Key) {
			asked = append(asked, requirement)
		} else {
			others = append(others, requirement)
		}
	}
	if len(asked) == 0 {
		return ""
	}
	host, why := answer(asked, nodes)
	if why != "" {
		*term = corev1.NodeSelectorTerm{}
		return why
	}
	term.MatchExpressions = append(others, host...)
	return ""
}

// answer returns requirements on labels as one on host names, none where they hold for every node, or why they hold
// for none.
func answer(asked []corev1.NodeSelectorRequirement, nodes []Node) ([]corev1.NodeSelectorRequirement, string) {
	selector := nodeaffinity.NewLazyErrorNodeSelector(&corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: asked}}})
	onlyRulesOut := !slices.ContainsFunc(asked, func(requirement corev1.NodeSelectorRequirement) bool {
		return requirement.Operator != corev1.NodeSelectorOpNotIn && requirement.Operator != corev1.NodeSelectorOpDoesNotExist
	})
	var hosts []string
	for i := range nodes {
		matches, err := selector.Match(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: nodes[i].Labels}})
		if matches = matches && err == nil; matches != onlyRulesOut {
			hosts = append(hosts, nodes[i].Host)
		}
	}
	slices.Sort(hosts)
	hosts = slices.Compact(hosts)
	switch {
	case len(hosts) > MaxHosts:
		return nil, tenancy.Cut(fmt.Sprintf("%d Nodes answer to %s: at most %d may", len(hosts), wordsOf(asked), MaxHosts), maxWords)
	case onlyRulesOut && len(hosts) == 0:
		return nil, ""
	case onlyRulesOut:
		return []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpNotIn, Values: hosts}}, ""
	case len(hosts) == 0:
		return nil, tenancy.Cut("no Node of this control plane has "+wordsOf(asked), maxWords)
	}
	return []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: hosts}}, ""
}

// wordsOf says what labels a Node must have.
func wordsOf(asked []corev1.NodeSelectorRequirement) string {
	words := make([]string, 0, len(asked))
	for _, requirement := range asked {
		key, values := requirement.Key, strings.Join(requirement.Values, ", ")
		switch requirement.Operator {
		case corev1.NodeSelectorOpIn:
			words = append(words, fmt.Sprintf("label %s=%s", key, values))
		case corev1.NodeSelectorOpNotIn:
			words = append(words, fmt.Sprintf("label %s not in (%s)", key, values))
		case corev1.NodeSelectorOpExists:
			words = append(words, "label "+key)
		case corev1.NodeSelectorOpDoesNotExist:
			words = append(words, "no label "+key)
		case corev1.NodeSelectorOpGt:
			words = append(words, fmt.Sprintf("label %s > %s", key, values))
		case corev1.NodeSelectorOpLt:
			words = append(words, fmt.Sprintf("label %s < %s", key, values))
		}
	}
	return strings.Join(words, " and ")
}
