package network_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/superpool/superpool/internal/syncer/kinds/network"
)

const (
	opIn      = metav1.LabelSelectorOpIn
	opNotIn   = metav1.LabelSelectorOpNotIn
	opExists  = metav1.LabelSelectorOpExists
	opMissing = metav1.LabelSelectorOpDoesNotExist
)

func need(key string, operator metav1.LabelSelectorOperator, values ...string) metav1.LabelSelectorRequirement {
	return metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: values}
}

// TestUnselected: how few selectors it takes for what applications write, and what takes too many.
func TestUnselected(t *testing.T) {
	t.Parallel()
	all := func(selectors ...*metav1.LabelSelector) []metav1.LabelSelector {
		var list []metav1.LabelSelector
		for _, selector := range selectors {
			list = append(list, *selector)
		}
		return list
	}
	labelled := func(pairs ...string) *metav1.LabelSelector {
		selector := &metav1.LabelSelector{MatchLabels: map[string]string{}}
		for i := 0; i < len(pairs); i += 2 {
			selector.MatchLabels[pairs[i]] = pairs[i+1]
		}
		return selector
	}
	var single, instances, pairs []*metav1.LabelSelector
	for i := range 500 {
		single = append(single, labelled("app", fmt.Sprintf("a%03d", i)))
	}
	for i := range 100 {
		instances = append(instances, labelled("instance", "shop", "name", fmt.Sprintf("n%02d", i)))
		pairs = append(pairs, labelled("instance", fmt.Sprintf("i%02d", i), "name", fmt.Sprintf("n%02d", i)))
	}
	var full []*metav1.LabelSelector
	for i := range 100 {
		values := make([]string, 100)
		for j := range values {
			values[j] = fmt.Sprintf("%063d", 100*i+j)
		}
		full = append(full, matching(need("app", opIn, values...)))
	}
	for _, tc := range []struct {
		name      string
		selectors []metav1.LabelSelector
		want      []metav1.LabelSelector
		wantCount int
		refused   bool
	}{
		{name: "no selectors: everything", want: all(&metav1.LabelSelector{})},
		{name: "all pods", selectors: all(labelled("app", "a"), labelled()), want: nil},
		{name: "one label", selectors: all(labelled("app", "a")), want: all(matching(need("app", opNotIn, "a")))},
		{name: "one label of two applications", selectors: all(labelled("app", "b"), labelled("app", "a")), want: all(matching(need("app", opNotIn, "a", "b")))},
		{name: "two labels", selectors: all(labelled("app", "a", "tier", "x")), want: all(matching(need("app", opNotIn, "a")), matching(need("tier", opNotIn, "x")))},
		{name: "a selector within another", selectors: all(labelled("app", "a", "tier", "x"), labelled("app", "a")), want: all(matching(need("app", opNotIn, "a")))},
		{name: "it exists, or not", selectors: all(matching(need("app", opExists)), matching(need("app", opMissing))), want: []metav1.LabelSelector{}},
		{name: "in, or not in", selectors: all(matching(need("app", opIn, "a", "b")), matching(need("app", opNotIn, "b"))), want: []metav1.LabelSelector{}},
		{
			name: "not in a set", selectors: all(matching(need("app", opNotIn, "a", "b", "c")), labelled("app", "b")),
			want: all(matching(need("app", opIn, "a", "c"))),
		},
		{name: "five hundred applications", selectors: all(single...), wantCount: 1},
		{name: "a hundred parts of one application", selectors: all(instances...), wantCount: 2},
		{name: "four of two labels", selectors: all(pairs[:4]...), wantCount: 16},
		{name: "five of two labels", selectors: all(pairs[:5]...), refused: true},
		{name: "a hundred of two labels", selectors: all(pairs...), refused: true},
		{name: "as many values as may be", selectors: all(full...), wantCount: 1},
		{name: "too many selectors", selectors: all(append(single, labelled("b", "c"))...), refused: true},
		{name: "an operator that no API server lets through", selectors: all(matching(need("app", "Resembles", "a"))), refused: true},
		{name: "no values", selectors: all(matching(need("app", opIn))), refused: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, ok := network.Unselected(tc.selectors, 16)
			require.Equal(t, !tc.refused, ok)
			if tc.wantCount > 0 {
				require.Len(t, got, tc.wantCount)
				return
			}
			require.Empty(t, cmp.Diff(tc.want, got))
		})
	}
}

// TestUnselectedProperty: for random selectors and labels, an object is selected by the result iff no selector selects
// it.
func TestUnselectedProperty(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 6))
	keys, values := []string{"a", "b", "c"}, []string{"", "1", "2", "3"}
	refused := 0
	for range 600 {
		selectors := randomSelectors(random, keys, values, random.IntN(6))
		result, ok := network.Unselected(selectors, 16)
		if !ok {
			refused++
			continue
		}
		require.LessOrEqual(t, len(result), 16)
		for range 30 {
			object := labels.Set{}
			for _, key := range keys {
				if random.IntN(3) > 0 {
					object[key] = values[random.IntN(len(values))]
				}
			}
			require.Equal(t, !selectedBy(t, selectors, object), selectedBy(t, result, object), "%v of %v: %v", object, selectors, result)
		}
	}
	require.Less(t, refused, 120, "most are within the bound")
}

func randomSelectors(random *rand.Rand, keys, values []string, count int) []metav1.LabelSelector {
	var selectors []metav1.LabelSelector
	for range count {
		selector := metav1.LabelSelector{}
		for range 1 + random.IntN(3) {
			requirement := metav1.LabelSelectorRequirement{Key: keys[random.IntN(len(keys))]}
			requirement.Operator = []metav1.LabelSelectorOperator{opIn, opNotIn, opExists, opMissing}[random.IntN(4)]
			if requirement.Operator == opIn || requirement.Operator == opNotIn {
				for range 1 + random.IntN(2) {
					requirement.Values = append(requirement.Values, values[random.IntN(len(values))])
				}
			}
			if random.IntN(4) == 0 {
				selector.MatchLabels = map[string]string{keys[random.IntN(len(keys))]: values[random.IntN(len(values))]}
			}
			selector.MatchExpressions = append(selector.MatchExpressions, requirement)
		}
		selectors = append(selectors, selector)
	}
	return selectors
}

func selectedBy(t *testing.T, selectors []metav1.LabelSelector, object labels.Set) bool {
	t.Helper()
	for i := range selectors {
		selector, err := metav1.LabelSelectorAsSelector(&selectors[i])
		require.NoError(t, err)
		if selector.Matches(object) {
			return true
		}
	}
	return false
}
