package network

import (
	"cmp"
	"math/bits"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// maxTerms bounds the combinations that Unselected holds at a time: few of many may be left.
	maxTerms = 256
	// maxNext bounds the combinations of those with one more selector, before those that others contain are left out.
	maxNext = 4 * maxTerms
	// maxRequirements bounds the requirements of one selector, maxValues the values of one requirement, maxSelectors
	// the selectors, and maxAllValues the values of all of them, that it looks at.
	maxRequirements = 64
	maxValues       = 100
	maxSelectors    = 500
	maxAllValues    = 10_000
	// maxValueLength is that of a label's value, which API servers enforce.
	maxValueLength = 63
	// maxEffort bounds what it takes in all, in the units of effort.
	maxEffort = 20_000_000
)

// effort is what is left of the time and memory that Unselected may take: a unit is a few nanoseconds, and at most two
// bytes of values. A tenant decides how many selectors there are, and how much they have in common.
type effort int

// spend returns false once nothing is left.
func (e *effort) spend(units int) bool {
	*e -= effort(units)
	return *e >= 0
}

// Unselected returns selectors that together match exactly the objects which none of selectors matches; no selector if
// each object is matched by one. It returns false if that takes more than limit selectors, or if one of selectors is
// invalid, or exceeds a bound.
//
// The negation of a selector is that one of its requirements fails, and each requirement has an exact negation. All
// selectors fail where one requirement of each fails: a product, of which terms that another one contains are left out.
// So what applications usually write takes few: selectors of one requirement each together take one selector, and those
// of the instances of an application two.
func Unselected(selectors []metav1.LabelSelector, limit int) ([]metav1.LabelSelector, bool) {
	if len(selectors) > maxSelectors {
		return nil, false
	}
	values := 0
	for i := range selectors {
		if values += valuesOf(&selectors[i]); values > maxAllValues {
			return nil, false
		}
	}
	left := effort(maxEffort)
	conjunctions := make([]term, 0, len(selectors))
	for i := range selectors {
		conjunction, ok := requirementsOf(&selectors[i])
		switch {
		case !ok:
			return nil, false
		case len(conjunction) == 0:
			return nil, true
		}
		conjunctions = append(conjunctions, conjunction)
	}
	// What a selector matches, one with fewer of the same requirements matches too.
	conjunctions, ok := minimal(conjunctions, &left)
	if !ok {
		return nil, false
	}
	terms := []term{{}}
	for _, conjunction := range conjunctions {
		if terms, ok = combine(terms, conjunction, &left); !ok {
			return nil, false
		}
	}
	if len(terms) > limit {
		return nil, false
	}
	result := make([]metav1.LabelSelector, 0, len(terms))
	for _, each := range terms {
		result = append(result, each.selector())
	}
	return result, true
}

// combine returns the terms that match what one of terms does, and conjunction does not; false if they are too many, or
// if no effort is left.
func combine(terms []term, conjunction term, left *effort) ([]term, bool) {
	var next []term
	for _, before := range terms {
		for _, requirement := range conjunction {
			combined, possible := before.and(requirement.negation(), left)
			if possible {
				next = append(next, combined)
			}
			if len(next) > maxNext || *left < 0 {
				return nil, false
			}
		}
	}
	next, ok := minimal(next, left)
	return next, ok && len(next) <= maxTerms
}

// valuesOf counts the values of a selector.
func valuesOf(selector *metav1.LabelSelector) int {
	count := len(selector.MatchLabels)
	for i := range selector.MatchExpressions {
		count += len(selector.MatchExpressions[i].Values)
	}
	return count
}

// requirement is one requirement of a selector in a form that can be compared: values are sorted, distinct and joined,
// which no label value's characters hide.
type requirement struct {
	key      string
	operator metav1.LabelSelectorOperator
	values   string
}

const valueSeparator = ","

func newRequirement(key string, operator metav1.LabelSelectorOperator, values ...string) requirement {
	sorted := slices.Compact(slices.Sorted(slices.Values(values)))
	return requirement{key: key, operator: operator, values: strings.Join(sorted, valueSeparator)}
}

func (r requirement) list() []string { return strings.Split(r.values, valueSeparator) }

// negation returns the requirement that matches exactly where this one does not. NotIn matches where the key is absent,
// and In does not.
func (r requirement) negation() requirement {
	switch r.operator {
	case metav1.LabelSelectorOpIn:
		r.operator = metav1.LabelSelectorOpNotIn
	case metav1.LabelSelectorOpNotIn:
		r.operator = metav1.LabelSelectorOpIn
	case metav1.LabelSelectorOpExists:
		r.operator = metav1.LabelSelectorOpDoesNotExist
	case metav1.LabelSelectorOpDoesNotExist:
		r.operator = metav1.LabelSelectorOpExists
	}
	return r
}

// term is a conjunction of requirements, sorted and distinct. It is immutable.
type term []requirement

// requirementsOf returns the requirements of a selector, false for one that no API server accepts, or
// with more than maxRequirements, or maxValues in one of them.
func requirementsOf(selector *metav1.LabelSelector) (term, bool) {
	if len(selector.MatchLabels)+len(selector.MatchExpressions) > maxRequirements {
		return nil, false
	}
	all := term{}
	for key, value := range selector.MatchLabels {
		if len(value) > maxValueLength {
			return nil, false
		}
		all = append(all, newRequirement(key, metav1.LabelSelectorOpIn, value))
	}
	for _, expression := range selector.MatchExpressions {
		switch expression.Operator {
		case metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn:
			tooLong := func(value string) bool { return len(value) > maxValueLength }
			if len(expression.Values) == 0 || len(expression.Values) > maxValues || slices.ContainsFunc(expression.Values, tooLong) {
				return nil, false
			}
			all = append(all, newRequirement(expression.Key, expression.Operator, expression.Values...))
		case metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist:
			all = append(all, newRequirement(expression.Key, expression.Operator))
		default:
			return nil, false
		}
	}
	return all.normal(), true
}

func (t term) normal() term {
	slices.SortFunc(t, requirement.compare)
	return slices.Compact(t)
}

func (r requirement) compare(other requirement) int {
	return cmp.Or(cmp.Compare(r.key, other.key), cmp.Compare(r.operator, other.operator), cmp.Compare(r.values, other.values))
}

// and returns the term with one more requirement, false if nothing can match both, or if no effort is left.
func (t term) and(more requirement, left *effort) (term, bool) {
	if !left.spend(16 + 4*len(t)) {
		return nil, false
	}
	combined := slices.Clone(t)
	for i, own := range combined {
		if own.key != more.key {
			continue
		}
		if !left.spend((len(own.values) + len(more.values)) / 2) {
			return nil, false
		}
		switch merged, relation := own.merge(more); relation {
		case impossible:
			return nil, false
		case oneRequirement:
			combined[i] = merged
			return combined.normal(), true
		}
	}
	return append(combined, more).normal(), true
}

// relation is what two requirements of one key are to each other.
type relation int

const (
	bothNeeded relation = iota
	oneRequirement
	impossible
)

// merge returns the requirement that is equal to two of one key, if there is one.
func (r requirement) merge(other requirement) (requirement, relation) {
	if r.operator > other.operator {
		r, other = other, r // DoesNotExist, Exists, In, NotIn
	}
	switch {
	case r == other:
		return r, oneRequirement
	case r.operator == metav1.LabelSelectorOpDoesNotExist && other.operator == metav1.LabelSelectorOpNotIn:
		return r, oneRequirement
	case r.operator == metav1.LabelSelectorOpDoesNotExist:
		return requirement{}, impossible
	case r.operator == metav1.LabelSelectorOpExists && other.operator == metav1.LabelSelectorOpIn:
		return other, oneRequirement
	case r.operator == metav1.LabelSelectorOpExists:
		return requirement{}, bothNeeded
	case r.operator == metav1.LabelSelectorOpNotIn:
		return newRequirement(r.key, r.operator, slices.Concat(r.list(), other.list())...), oneRequirement
	}
	// In, with In or NotIn.
	values, others := r.list(), other.list()
	both := slices.DeleteFunc(slices.Clone(values), func(value string) bool {
		_, has := slices.BinarySearch(others, value)
		return has != (other.operator == metav1.LabelSelectorOpIn)
	})
	if len(both) == 0 {
		return requirement{}, impossible
	}
	return newRequirement(r.key, metav1.LabelSelectorOpIn, both...), oneRequirement
}

// weight is the effort to compare the term with another one.
func (t term) weight() int {
	weight := 1
	for i := range t {
		weight += 1 + len(t[i].values)/64
	}
	return weight
}

// has returns whether the term has all requirements of another one.
func (t term) has(all term) bool {
	next := 0
	for _, wanted := range all {
		for next < len(t) && t[next].compare(wanted) < 0 {
			next++
		}
		if next == len(t) || t[next] != wanted {
			return false
		}
	}
	return true
}

// minimal returns terms without those that hold all requirements of another one, shortest first; false if no effort is
// left.
func minimal(terms []term, left *effort) ([]term, bool) {
	for _, each := range terms {
		if !left.spend(4 * each.weight() * bits.Len(uint(len(terms)))) {
			return nil, false
		}
	}
	slices.SortFunc(terms, func(a, b term) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), slices.CompareFunc(a, b, requirement.compare))
	})
	var kept []term
	for _, each := range terms {
		weight := each.weight()
		contained := slices.ContainsFunc(kept, func(shorter term) bool { return !left.spend(weight) || each.has(shorter) })
		switch {
		case *left < 0:
			return nil, false
		case !contained:
			kept = append(kept, each)
		}
	}
	return kept, true
}

// selector returns the term as a selector; the empty one matches everything.
func (t term) selector() metav1.LabelSelector {
	selector := metav1.LabelSelector{}
	for _, each := range t {
		expression := metav1.LabelSelectorRequirement{Key: each.key, Operator: each.operator}
		if each.operator == metav1.LabelSelectorOpIn || each.operator == metav1.LabelSelectorOpNotIn {
			expression.Values = each.list()
		}
		selector.MatchExpressions = append(selector.MatchExpressions, expression)
	}
	return selector
}
