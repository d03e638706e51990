package nodelabels_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/superpool/superpool/internal/nodelabels"
)

const host = corev1.LabelHostname

func isOwn(key string) bool { return !strings.Contains(key, "kubernetes.io/") && key != "zone" }

// nodes are a (disk=ssd, gen=3), b (disk=hdd, gen=5, rack=1) and c (no labels of the tenant's), all in r1.
func nodes() []nodelabels.Node {
	of := func(name string, labels map[string]string) nodelabels.Node {
		return nodelabels.Of("r1."+name, labels)
	}
	return []nodelabels.Node{
		of("a", map[string]string{"disk": "ssd", "gen": "3", host: "r1.a", "zone": "z"}),
		of("b", map[string]string{"disk": "hdd", "gen": "5", "rack": "1"}),
		of("c", nil),
	}
}

type operator = corev1.NodeSelectorOperator

func expression(key string, operator operator, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: operator, Values: values}
}

func term(expressions ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: expressions}
}

func TestTranslate(t *testing.T) {
	t.Parallel()
	const in, notIn, exists, doesNotExist, gt, lt = corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpExists,
		corev1.NodeSelectorOpDoesNotExist, corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt
	type terms = []corev1.NodeSelectorTerm
	on := func(names ...string) terms { return terms{term(expression(host, in, names...))} }
	off := func(names ...string) terms { return terms{term(expression(host, notIn, names...))} }
	nowhere := terms{{}}
	for name, tc := range map[string]struct {
		selector     map[string]string
		required     terms
		want         terms
		wantSelector map[string]string
		wantWhy      string
	}{
		"nothing":                        {},
		"others' labels stay":            {selector: map[string]string{"zone": "z"}, required: terms{term(expression("zone", in, "z"))}, wantSelector: map[string]string{"zone": "z"}, want: terms{term(expression("zone", in, "z"))}},
		"node selector":                  {selector: map[string]string{"disk": "ssd", "zone": "z"}, wantSelector: map[string]string{"zone": "z"}, want: on("r1.a")},
		"node selector, none":            {selector: map[string]string{"disk": "tape"}, want: nowhere, wantWhy: "no Node of this control plane has label disk=tape"},
		"node selector, one Node for it": {selector: map[string]string{"disk": "ssd", "rack": "1"}, want: nowhere, wantWhy: "no Node of this control plane has label disk=ssd and label rack=1"},
		"In":                             {required: terms{term(expression("disk", in, "ssd", "hdd"))}, want: on("r1.a", "r1.b")},
		"Exists":                         {required: terms{term(expression("rack", exists))}, want: on("r1.b")},
		"Gt":                             {required: terms{term(expression("gen", gt, "4"))}, want: on("r1.b")},
		"Lt":                             {required: terms{term(expression("gen", lt, "4"))}, want: on("r1.a")},
		"NotIn":                          {required: terms{term(expression("disk", notIn, "ssd"))}, want: off("r1.a")},
		"NotIn, of no Node":              {required: terms{term(expression("disk", notIn, "tape"))}, want: nil},
		"DoesNotExist":                   {required: terms{term(expression("disk", doesNotExist))}, want: off("r1.a", "r1.b")},
		"both kinds":                     {required: terms{term(expression("disk", exists), expression("rack", doesNotExist))}, want: on("r1.a")},
		"beside others": {
			required: terms{term(expression("disk", in, "ssd"), expression("zone", in, "z"))},
			want:     terms{term(expression("zone", in, "z"), expression(host, in, "r1.a"))},
		},
		"beside names of nodes": {
			required: terms{{MatchExpressions: []corev1.NodeSelectorRequirement{expression("disk", exists)}, MatchFields: []corev1.NodeSelectorRequirement{expression("metadata.name", in, "r1.b")}}},
			want:     terms{{MatchExpressions: []corev1.NodeSelectorRequirement{expression(host, in, "r1.a", "r1.b")}, MatchFields: []corev1.NodeSelectorRequirement{expression("metadata.name", in, "r1.b")}}},
		},
		"selector and terms": {
			selector: map[string]string{"disk": "hdd"}, required: terms{term(expression("zone", in, "z")), term(expression("rack", doesNotExist))},
			want: terms{term(expression("zone", in, "z"), expression(host, in, "r1.b"))},
		},
		"a term that matches nothing goes":     {required: terms{term(expression("disk", in, "tape")), term(expression("rack", exists))}, want: on("r1.b")},
		"a term that always holds is enough":   {required: terms{term(expression("zone", in, "y")), term(expression("disk", notIn, "tape"))}, want: nil},
		"an empty term still matches no node":  {required: terms{{}}, want: nowhere},
		"an empty term beside a selector":      {selector: map[string]string{"disk": "ssd"}, required: terms{{}}, want: nowhere},
		"none of the terms matches":            {required: terms{term(expression("disk", in, "tape")), term(expression("gen", gt, "9"))}, want: nowhere, wantWhy: "no Node of this control plane has label disk=tape"},
		"not a number":                         {required: terms{term(expression("disk", gt, "1"))}, want: nowhere, wantWhy: "no Node of this control plane has label disk > 1"},
		"a host name beside narrows, no wider": {required: terms{term(expression(host, in, "r2.x"), expression("disk", exists))}, want: terms{term(expression(host, in, "r2.x"), expression(host, in, "r1.a", "r1.b"))}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := corev1.PodSpec{NodeSelector: tc.selector}
			if tc.required != nil {
				spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: tc.required}}}
			}
			spec = *spec.DeepCopy()
			why := nodelabels.Translate(&spec, isOwn, nodes())
			require.Equal(t, tc.wantWhy, why)
			var got terms
			if spec.Affinity != nil && spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
				got = spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
			}
			require.Empty(t, cmp.Diff(tc.want, got))
			require.Empty(t, cmp.Diff(tc.wantSelector, spec.NodeSelector, cmpopts.EquateEmpty()))
			require.False(t, nodelabels.Uses(&spec, isOwn), "none is left")
		})
	}
}

func TestTranslatePreferred(t *testing.T) {
	t.Parallel()
	prefer := func(weight int32, expressions ...corev1.NodeSelectorRequirement) corev1.PreferredSchedulingTerm {
		return corev1.PreferredSchedulingTerm{Weight: weight, Preference: term(expressions...)}
	}
	spec := corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{
		prefer(1, expression("disk", corev1.NodeSelectorOpIn, "ssd")), prefer(2, expression("disk", corev1.NodeSelectorOpIn, "tape")),
		prefer(3, expression("disk", corev1.NodeSelectorOpNotIn, "tape")), prefer(4, expression("zone", corev1.NodeSelectorOpExists)),
	}}}}
	require.True(t, nodelabels.Uses(&spec, isOwn))
	require.Empty(t, nodelabels.Translate(&spec, isOwn, nodes()), "what is preferred never keeps a pod off")
	require.Empty(t, cmp.Diff([]corev1.PreferredSchedulingTerm{
		prefer(1, expression(host, corev1.NodeSelectorOpIn, "r1.a")), prefer(4, expression("zone", corev1.NodeSelectorOpExists)),
	}, spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution))
	require.Nil(t, spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
}

func TestBounds(t *testing.T) {
	t.Parallel()
	many := make([]nodelabels.Node, 0, nodelabels.MaxHosts+1)
	for i := range nodelabels.MaxHosts + 1 {
		many = append(many, nodelabels.Of(fmt.Sprintf("r1.%d", i), map[string]string{"disk": "ssd"}))
	}
	spec := corev1.PodSpec{NodeSelector: map[string]string{"disk": "ssd"}}
	require.Equal(t, "501 Nodes answer to label disk=ssd: at most 500 may", nodelabels.Translate(&spec, isOwn, many))
	spec = corev1.PodSpec{NodeSelector: map[string]string{"disk": "ssd"}}
	require.Empty(t, nodelabels.Translate(&spec, isOwn, many[1:]))

	labels := map[string]string{}
	for i := range 1000 {
		labels[fmt.Sprintf("key-%03d", i)] = ""
	}
	require.Len(t, nodelabels.Of("r1.a", labels).Labels, nodelabels.MaxLabels)
}

// TestAsked: what a pod may ask is bounded, for every term is answered over all Nodes, and becomes names.
func TestAsked(t *testing.T) {
	t.Parallel()
	repeated := func(count int, expressions ...corev1.NodeSelectorRequirement) *corev1.Affinity {
		all := make([]corev1.NodeSelectorTerm, count)
		for i := range all {
			all[i] = term(expressions...)
		}
		return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: all}}}
	}
	own, other := expression("disk", corev1.NodeSelectorOpExists), expression("zone", corev1.NodeSelectorOpExists)
	for _, tc := range []struct {
		name  string
		spec  corev1.PodSpec
		nodes []nodelabels.Node
		want  string
	}{
		{name: "as many terms as may be", spec: corev1.PodSpec{Affinity: repeated(nodelabels.MaxAsked, own)}, nodes: nodes()},
		{
			name: "one more", spec: corev1.PodSpec{Affinity: repeated(nodelabels.MaxAsked+1, own)}, nodes: nodes(),
			want: "the pod names 65 labels of Nodes and their values, with the node selector in each term: at most 64 may be named",
		},
		{name: "many terms of others'", spec: corev1.PodSpec{Affinity: repeated(1000, other)}, nodes: nodes()},
		{
			name: "the node selector in each of them", spec: corev1.PodSpec{NodeSelector: map[string]string{"disk": "ssd"}, Affinity: repeated(1000, other)}, nodes: nodes(),
			want: "the pod names 2000 labels of Nodes and their values, with the node selector in each term: at most 64 may be named",
		},
		{
			name: "many Nodes", spec: corev1.PodSpec{Affinity: repeated(1, own)}, nodes: make([]nodelabels.Node, nodelabels.MaxNodes+1),
			want: "this control plane has 10001 Nodes: pods may name labels of Nodes where there are at most 10000",
		},
		{name: "many Nodes, and nothing asked", spec: corev1.PodSpec{Affinity: repeated(1, other)}, nodes: make([]nodelabels.Node, nodelabels.MaxNodes+1)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, nodelabels.Translate(&tc.spec, isOwn, tc.nodes))
			require.False(t, nodelabels.Uses(&tc.spec, isOwn), "none is left")
			if tc.want != "" {
				require.Equal(t, []corev1.NodeSelectorTerm{{}}, tc.spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms)
			}
		})
	}
}

// TestWithout: what is left never matches fewer Nodes.
func TestWithout(t *testing.T) {
	t.Parallel()
	own, other := expression("disk", corev1.NodeSelectorOpExists), expression("zone", corev1.NodeSelectorOpExists)
	for _, tc := range []struct {
		name        string
		terms, want []corev1.NodeSelectorTerm
	}{
		{name: "no terms"},
		{name: "of others", terms: []corev1.NodeSelectorTerm{term(other)}, want: []corev1.NodeSelectorTerm{term(other)}},
		{name: "of both", terms: []corev1.NodeSelectorTerm{term(own, other)}, want: []corev1.NodeSelectorTerm{term(other)}},
		{name: "one of its own alone", terms: []corev1.NodeSelectorTerm{term(other), term(own)}},
		{name: "one that matches nothing", terms: []corev1.NodeSelectorTerm{{}, term(own, other)}, want: []corev1.NodeSelectorTerm{{}, term(other)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			spec := corev1.PodSpec{NodeSelector: map[string]string{"disk": "ssd", "zone": "a"}, Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}}
			if tc.terms != nil {
				spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: tc.terms}
			}
			nodelabels.Without(&spec, isOwn)
			require.Equal(t, map[string]string{"zone": "a"}, spec.NodeSelector)
			var got []corev1.NodeSelectorTerm
			if required := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
				got = required.NodeSelectorTerms
			}
			require.Empty(t, cmp.Diff(tc.want, got))
		})
	}
}

func TestReserved(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]bool{
		"disk": false, "example.com/disk": false, "kubernetes.io/e2e-1": false, "notkubernetes.io/a": false, "kubernetes.io": false,
		"kubernetes.io/hostname": true, "kubernetes.io/os": true, "kubernetes.io/arch": true, "node-role.kubernetes.io/worker": true,
		"topology.kubernetes.io/zone": true, "beta.kubernetes.io/os": true, "tenancy.x-k8s.io/superclusterid": true, "a.k8s.io/b": true,
	} {
		require.Equal(t, want, nodelabels.IsReserved(key), key)
	}
	require.Equal(t, nodelabels.Node{Host: "r1.a", Labels: map[string]string{"disk": "ssd"}},
		nodelabels.Of("r1.a", map[string]string{"disk": "ssd", host: "r9.x", "topology.kubernetes.io/zone": "z"}), "the host name is the Node's own, whatever its label says")
}
