package policy_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
)

func TestDemands(t *testing.T) {
	t.Parallel()
	const required = "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey"
	peers := func(key string) *corev1.PodAffinity {
		return &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: key}}}
	}
	nodes := func(terms ...corev1.NodeSelectorTerm) *corev1.NodeAffinity {
		return &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}
	}
	exists := func(key string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpExists}}}
	}
	for name, tc := range map[string]struct {
		policy func(spec *tenancyv1alpha1.TenantPolicySpec)
		spec   corev1.PodSpec
		want   []policy.Refusal
	}{
		"nothing": {},
		"what the policy lists, and labels of tenant Nodes": {spec: corev1.PodSpec{
			NodeSelector:              map[string]string{"topology.kubernetes.io/zone": "a", "tenancy.x-k8s.io/superclusterid": "r1", "tenancy.x-k8s.io/virtualnode": "true"},
			Affinity:                  &corev1.Affinity{PodAffinity: peers("scheduler.tenancy.x-k8s.io/super-cluster"), NodeAffinity: nodes(exists("tenancy.x-k8s.io/superclusterid"))},
			TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{TopologyKey: "tenancy.x-k8s.io/superclusterid", WhenUnsatisfiable: corev1.DoNotSchedule}},
		}},
		"labels": {spec: corev1.PodSpec{
			NodeSelector: map[string]string{"team": "operator"}, Affinity: &corev1.Affinity{PodAffinity: peers("rack"), NodeAffinity: nodes(exists("rack"), exists("row"))},
		}, want: []policy.Refusal{
			{Field: "spec.nodeSelector[team]", Message: "node label team (is operator) is not allowed: " + onlyNodeKeys},
			{Field: required, Message: "node label rack (Exists) is not allowed: " + onlyNodeKeys},
			{Message: "node label row (Exists) is not allowed: " + onlyNodeKeys},
		}},
		"the policy's own node selector overwrites the pod's": {
			policy: func(spec *tenancyv1alpha1.TenantPolicySpec) {
				spec.Pods.NodeSelector = map[string]string{"pool": "small"}
			},
			spec: corev1.PodSpec{NodeSelector: map[string]string{"pool": "large"}},
		},
		"tolerations are left out instead": {spec: corev1.PodSpec{Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Empty(t, cmp.Diff(tc.want, policy.Demands(policyWith(t, tc.policy), &tc.spec)))
		})
	}
	words := policy.Words(policy.Default(), []policy.Refusal{{Field: "spec.a", Message: "is bad"}, {Message: "2 more fields are forbidden"}})
	require.Equal(t, "TenantPolicy default forbids: spec.a: is bad; 2 more fields are forbidden", words)
}

func TestIsTenants(t *testing.T) {
	t.Parallel()
	listed := policyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
		spec.Pods.NodeSelectorKeys = append(spec.Pods.NodeSelectorKeys, "disk")
		spec.Pods.NodeSelector = map[string]string{"pool": "a"}
	})
	noNames := policyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Pods.NodeSelectorKeys = nil })
	for key, want := range map[string]bool{
		"rack": true, "kubernetes.io/e2e": true, "disk": false, "pool": false, "kubernetes.io/hostname": false,
		"topology.kubernetes.io/zone": false, "tenancy.x-k8s.io/superclusterid": false,
	} {
		require.Equal(t, want, listed.IsTenants(key), key)
		require.False(t, noNames.IsTenants(key), key)
	}
}

func TestShows(t *testing.T) {
	t.Parallel()
	current := policyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
		spec.Pods.Tolerations = append(spec.Pods.Tolerations, tenancyv1alpha1.TolerationRule{Key: "gpu", Effect: corev1.TaintEffectNoSchedule})
	})
	for taint, want := range map[corev1.Taint]bool{
		{Key: "node.kubernetes.io/unschedulable", Effect: corev1.TaintEffectNoSchedule}: true,
		{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}:                              true,
		{Key: "gpu", Effect: corev1.TaintEffectNoExecute}:                               false,
		{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}:                        false,
	} {
		require.Equal(t, want, current.Shows(&taint), taint)
	}
}
