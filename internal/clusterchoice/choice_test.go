package clusterchoice_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/clusterchoice"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/test/builders"
)

// whole has every field that a choice may have.
const whole = `{
	"nodeSelector": {"topology.kubernetes.io/region": "eu"},
	"nodeAffinity": {
		"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [
			{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["r1"]}
		]}]},
		"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {"matchExpressions": [
			{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]}
		]}}]
	},
	"tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
	"topologySpreadConstraints": [
		{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule", "nodeTaintsPolicy": "Honor"}
	]
}`

func TestParse(t *testing.T) {
	t.Parallel()
	const (
		affinity   = `{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[%s]}}}`
		constraint = `{"topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"zone","whenUnsatisfiable":"DoNotSchedule"%s}]}`
	)
	for name, tc := range map[string]struct{ text, wantErr string }{
		"every field": {text: whole},
		"nothing":     {text: `{}`},

		"no JSON":             {text: `region=eu`, wantErr: "it is no JSON object such as"},
		"a list":              {text: `[]`, wantErr: "it is no JSON object such as"},
		"more after it":       {text: `{}{}`, wantErr: "it is no JSON object such as"},
		"an unknown field":    {text: `{"nodeselector":{}}`, wantErr: `unknown field "nodeselector"`},
		"an unknown one deep": {text: fmt.Sprintf(affinity, `{"matchExpression":[]}`), wantErr: `unknown field`},
		"a field twice":       {text: `{"nodeSelector":{"a":"b"},"nodeSelector":{}}`, wantErr: `duplicate field "nodeSelector"`},
		"too long":            {text: `{"nodeSelector":{"a":"` + strings.Repeat("b", 8192) + `"}}`, wantErr: "longer than 8192 characters"},

		"a label that is none":        {text: `{"nodeSelector":{"a b":"c"}}`, wantErr: "nodeSelector"},
		"a value that is none":        {text: `{"nodeSelector":{"a":"b c"}}`, wantErr: "nodeSelector"},
		"too many labels":             {text: `{"nodeSelector":{` + many(33, `"a%d":"b"`) + `}}`, wantErr: "nodeSelector: Too many: 33: must have at most 32 items"},
		"an operator that is none":    {text: fmt.Sprintf(affinity, `{"matchExpressions":[{"key":"a","operator":"Is","values":["b"]}]}`), wantErr: "not a valid selector operator"},
		"an affinity without terms":   {text: fmt.Sprintf(affinity, ``), wantErr: "nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Required value"},
		"too many terms":              {text: fmt.Sprintf(affinity, many(17, `{"matchExpressions":[{"key":"a%d","operator":"Exists"}]}`)), wantErr: "nodeAffinity: Too many: 17"},
		"too many expressions":        {text: fmt.Sprintf(affinity, `{"matchExpressions":[`+many(17, `{"key":"a%d","operator":"Exists"}`)+`]}`), wantErr: "matchExpressions: Too many: 17"},
		"too many values":             {text: fmt.Sprintf(affinity, `{"matchExpressions":[{"key":"a","operator":"In","values":[`+many(65, `"%d"`)+`]}]}`), wantErr: "values: Too many: 65"},
		"the fields of a Node":        {text: fmt.Sprintf(affinity, `{"matchFields":[{"key":"metadata.name","operator":"In","values":["r1"]}]}`), wantErr: "use label kubernetes.io/hostname"},
		"a weight that is none":       {text: `{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":101,"preference":{}}]}}`, wantErr: "must be in the range 1-100"},
		"every taint":                 {text: `{"tolerations":[{"operator":"Exists","effect":"NoSchedule"}]}`, wantErr: "tolerations[0].key: Required value"},
		"every effect":                {text: `{"tolerations":[{"key":"a","operator":"Exists"}]}`, wantErr: `tolerations[0].effect: Unsupported value: ""`},
		"a drain":                     {text: `{"tolerations":[{"key":"a","operator":"Exists","effect":"NoExecute"}]}`, wantErr: `tolerations[0].effect: Unsupported value: "NoExecute"`},
		"a toleration that is none":   {text: `{"tolerations":[{"key":"a","operator":"Exists","value":"b","effect":"NoSchedule"}]}`, wantErr: "value must be empty"},
		"too many tolerations":        {text: `{"tolerations":[` + many(17, `{"key":"a%d","operator":"Exists","effect":"NoSchedule"}`) + `]}`, wantErr: "tolerations: Too many: 17"},
		"a skew that is none":         {text: `{"topologySpreadConstraints":[{"topologyKey":"zone","whenUnsatisfiable":"DoNotSchedule"}]}`, wantErr: "maxSkew: Invalid value: 0"},
		"a constraint twice":          {text: `{"topologySpreadConstraints":[` + many(2, `{"maxSkew":1,"topologyKey":"zone","whenUnsatisfiable":"DoNotSchedule","minDomains":1%d}`) + `]}`, wantErr: "Duplicate value"},
		"a selector of pods":          {text: fmt.Sprintf(constraint, `,"labelSelector":{}`), wantErr: "labelSelector: Forbidden: all slices of the namespace count"},
		"labels of pods":              {text: fmt.Sprintf(constraint, `,"labelSelector":{},"matchLabelKeys":["a"]`), wantErr: "matchLabelKeys: Forbidden: all slices of the namespace count"},
		"too many constraints":        {text: `{"topologySpreadConstraints":[` + many(5, `{"maxSkew":1,"topologyKey":"zone%d","whenUnsatisfiable":"DoNotSchedule"}`) + `]}`, wantErr: "topologySpreadConstraints: Too many: 5"},
		"an unknown inclusion policy": {text: fmt.Sprintf(constraint, `,"nodeTaintsPolicy":"Maybe"`), wantErr: "nodeTaintsPolicy: Unsupported value"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			choice, err := clusterchoice.Parse(tc.text)
			if tc.wantErr != "" {
				require.ErrorContains(t, err, tc.wantErr)
				require.Nil(t, choice)
				return
			}
			require.NoError(t, err)
			require.NotNil(t, choice)
		})
	}
}

// many repeats a format with a number, with commas between.
func many(count int, format string) string {
	parts := make([]string, count)
	for i := range parts {
		parts[i] = fmt.Sprintf(format, i)
	}
	return strings.Join(parts, ",")
}

func FuzzParse(f *testing.F) {
	f.Add(whole)
	f.Add(`{"tolerations":[{"key":"a","effect":"NoSchedule"}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		choice, err := clusterchoice.Parse(text)
		require.Equal(t, err == nil, choice != nil)
		if err != nil {
			return
		}
		np := &schedulerv1alpha1.NamespacePlacement{Spec: schedulerv1alpha1.NamespacePlacementSpec{ClusterChoice: choice}}
		before := np.DeepCopy()
		clusterchoice.ApplyTo(&corev1.Pod{}, np)
		require.Empty(t, cmp.Diff(before, np))
		for _, toleration := range choice.Tolerations {
			require.False(t, toleration.ToleratesTaint(klog.Background(), &corev1.Taint{Key: toleration.Key, Value: toleration.Value, Effect: corev1.TaintEffectNoExecute}, false))
		}
	})
}

func rulesOf(t *testing.T, change func(*tenancyv1alpha1.SchedulingRules)) *policy.Policy {
	t.Helper()
	spec := policy.Default().Spec().DeepCopy()
	change(&spec.Scheduling)
	rules, err := policy.New("gold", spec)
	require.NoError(t, err)
	return rules
}

func TestOf(t *testing.T) {
	t.Parallel()
	const (
		region = `{"nodeSelector":{"topology.kubernetes.io/region":"eu"}}`
		gpu    = `{"tolerations":[{"key":"gpu","operator":"Exists","effect":"NoSchedule"}]}`
	)
	tolerate := func(key string, effect corev1.TaintEffect) func(*tenancyv1alpha1.SchedulingRules) {
		return func(rules *tenancyv1alpha1.SchedulingRules) {
			rules.Tolerations = []tenancyv1alpha1.TolerationRule{{Key: "other"}, {Key: key, Effect: effect}}
		}
	}
	selectable := func(keys ...string) func(*tenancyv1alpha1.SchedulingRules) {
		return func(rules *tenancyv1alpha1.SchedulingRules) { rules.NodeSelectorKeys = keys }
	}
	tolerating := func(key string) string {
		return fmt.Sprintf(`{"tolerations":[{"key":%q,"operator":"Exists","effect":"NoSchedule"}]}`, key)
	}
	for name, tc := range map[string]struct {
		text     string
		rules    func(*tenancyv1alpha1.SchedulingRules)
		wantWhy  string // reason and a part of the message
		wantLast bool   // whether the last choice stays
	}{
		"none":                   {},
		"the shipped policy":     {text: region},
		"a hostname":             {text: `{"nodeSelector":{"kubernetes.io/hostname":"r1"}}`},
		"invalid":                {text: `{`, wantWhy: "InvalidChoice it is no JSON object", wantLast: true},
		"a label":                {text: `{"nodeSelector":{"tier":"gold"}}`, wantWhy: "ChoiceNotAllowed label tier is not allowed: scheduling.nodeSelectorKeys of TenantPolicy gold allows kubernetes.io/hostname, topology.kubernetes.io/zone, topology.kubernetes.io/region", wantLast: true},
		"a label that is listed": {text: `{"nodeSelector":{"tier":"gold"}}`, rules: selectable("tier")},
		"a prefix":               {text: `{"nodeSelector":{"example.com/tier":"gold"}}`, rules: selectable("example.com/")},
		"another prefix":         {text: `{"nodeSelector":{"example.com.org/tier":"gold"}}`, rules: selectable("example.com/"), wantWhy: "ChoiceNotAllowed", wantLast: true},
		"no label at all":        {text: region, rules: selectable(), wantWhy: "allows none", wantLast: true},
		"a label that is required": {
			text: `{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"tier","operator":"Exists"}]}]}}}`, wantWhy: "label tier", wantLast: true,
		},
		"a label that is preferred": {
			text: `{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1,"preference":{"matchExpressions":[{"key":"tier","operator":"Exists"}]}}]}}`, wantWhy: "label tier", wantLast: true,
		},
		"a topology": {text: `{"topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"rack","whenUnsatisfiable":"ScheduleAnyway"}]}`, wantWhy: "label rack", wantLast: true},

		"a taint":                {text: gpu, wantWhy: "ChoiceNotAllowed tolerating taint gpu:NoSchedule is not allowed: scheduling.tolerations of TenantPolicy gold allows none", wantLast: true},
		"a taint that is listed": {text: gpu, rules: tolerate("gpu", "NoSchedule")},
		"a taint that is listed with all effects": {text: gpu, rules: tolerate("gpu", "")},
		"a taint with another effect":             {text: gpu, rules: tolerate("gpu", "PreferNoSchedule"), wantWhy: "allows other, gpu:PreferNoSchedule", wantLast: true},
		"what is cordoned, whatever is listed":    {text: tolerating(corev1.TaintNodeUnschedulable), rules: tolerate(corev1.TaintNodeUnschedulable, ""), wantWhy: "ChoiceNotAllowed", wantLast: true},
		"what does not answer":                    {text: tolerating(corev1.TaintNodeUnreachable), rules: tolerate(corev1.TaintNodeUnreachable, ""), wantWhy: "ChoiceNotAllowed", wantLast: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.rules == nil {
				tc.rules = func(*tenancyv1alpha1.SchedulingRules) {}
			}
			namespace := builders.Namespace("web")
			if tc.text != "" {
				namespace.Annotations = map[string]string{schedulerv1alpha1.AnnotationClusterChoice: tc.text}
			}
			last := &schedulerv1alpha1.ClusterChoice{NodeSelector: map[string]string{"topology.kubernetes.io/region": "us"}}
			got, reason := clusterchoice.Of(namespace, &schedulerv1alpha1.NamespacePlacementSpec{ClusterChoice: last}, rulesOf(t, tc.rules))
			if tc.wantWhy == "" {
				require.Nil(t, reason)
				require.Equal(t, tc.text == "", got == nil)
			} else {
				require.Contains(t, reason.Reason+" "+strings.TrimPrefix(reason.Message, "Annotation scheduler.tenancy.x-k8s.io/cluster-choice: "), tc.wantWhy)
			}
			if tc.wantLast {
				require.Empty(t, cmp.Diff(last, got))
				got, _ = clusterchoice.Of(namespace, nil, rulesOf(t, tc.rules))
				require.Nil(t, got)
			}
			_, reason = clusterchoice.Of(namespace, nil, nil)
			require.Equal(t, strings.HasPrefix(tc.wantWhy, "InvalidChoice"), reason != nil, "without a policy all is allowed")
		})
	}
}

// TestWithdrawnToleration: a taint that a tenant was allowed to tolerate keeps its new slices away once it is not.
func TestWithdrawnToleration(t *testing.T) {
	t.Parallel()
	namespace := builders.Namespace("web")
	namespace.Annotations = map[string]string{schedulerv1alpha1.AnnotationClusterChoice: whole}
	accepted, reason := clusterchoice.Of(namespace, nil, rulesOf(t, func(rules *tenancyv1alpha1.SchedulingRules) {
		rules.Tolerations = []tenancyv1alpha1.TolerationRule{{Key: "gpu"}}
	}))
	require.Nil(t, reason)
	require.Len(t, accepted.Tolerations, 1)
	got, reason := clusterchoice.Of(namespace, &schedulerv1alpha1.NamespacePlacementSpec{ClusterChoice: accepted}, policy.Default())
	require.Equal(t, schedulerv1alpha1.ReasonChoiceNotAllowed, reason.Reason)
	want := accepted.DeepCopy()
	want.Tolerations = []corev1.Toleration{}
	require.Empty(t, cmp.Diff(want, got))
}

func TestOnto(t *testing.T) {
	t.Parallel()
	choice, err := clusterchoice.Parse(whole)
	require.NoError(t, err)
	np := builders.Placement("tenant", "web").Obj()
	np.Spec.ClusterChoice, np.Spec.NodeSelector = choice, map[string]string{"topology.kubernetes.io/region": "us"}
	before := np.DeepCopy()
	tolerated := corev1.Toleration{Key: "first", Operator: corev1.TolerationOpExists}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Tolerations: []corev1.Toleration{tolerated}}}
	clusterchoice.ApplyTo(pod, np)
	require.Empty(t, cmp.Diff(before, np))

	region := corev1.NodeSelectorRequirement{Key: "topology.kubernetes.io/region", Operator: corev1.NodeSelectorOpIn, Values: []string{"eu"}}
	affinity := choice.NodeAffinity.DeepCopy()
	term := &affinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0]
	term.MatchExpressions = append(term.MatchExpressions, region)
	labels := map[string]string{"scheduler.tenancy.x-k8s.io/namespace": "web"}
	constraint := choice.TopologySpreadConstraints[0]
	constraint.LabelSelector = &metav1.LabelSelector{MatchLabels: labels}
	require.Empty(t, cmp.Diff(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{
			NodeSelector:              map[string]string{"topology.kubernetes.io/region": "us"},
			Affinity:                  &corev1.Affinity{NodeAffinity: affinity},
			Tolerations:               []corev1.Toleration{tolerated, choice.Tolerations[0]},
			TopologySpreadConstraints: []corev1.TopologySpreadConstraint{constraint},
		},
	}, pod))

	np.Spec.ClusterChoice = &schedulerv1alpha1.ClusterChoice{NodeSelector: choice.NodeSelector}
	pod = &corev1.Pod{}
	clusterchoice.ApplyTo(pod, np)
	required := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	require.Empty(t, cmp.Diff([]corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{region}}}, required.NodeSelectorTerms))

	np.Spec.ClusterChoice.NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}}}
	pod = &corev1.Pod{}
	clusterchoice.ApplyTo(pod, np)
	required = pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	require.Empty(t, required.NodeSelectorTerms[0].MatchExpressions, "a term that matches nothing does so still")

	np.Spec.ClusterChoice = nil
	pod = &corev1.Pod{}
	clusterchoice.ApplyTo(pod, np)
	require.Empty(t, cmp.Diff(corev1.PodSpec{NodeSelector: np.Spec.NodeSelector}, pod.Spec))
}
