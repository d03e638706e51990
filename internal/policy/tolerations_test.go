package policy_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
)

func TestTolerations(t *testing.T) {
	t.Parallel()
	var (
		notReady    = corev1.Toleration{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](300)}
		cordoned    = corev1.Toleration{Key: "node.kubernetes.io/unschedulable", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
		virtualNode = corev1.Toleration{Key: "virtual-kubelet.io/provider", Operator: corev1.TolerationOpExists}
		all         = corev1.Toleration{Operator: corev1.TolerationOpExists}
		allExecute  = corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
		gpu         = corev1.Toleration{Key: "gpu", Operator: corev1.TolerationOpEqual, Value: "a", Effect: corev1.TaintEffectNoSchedule}
		gpuAnyhow   = corev1.Toleration{Key: "gpu", Operator: corev1.TolerationOpExists}
	)
	const notAllowed = " is not allowed: " + onlyTaints
	refused := func(index, taint string) policy.Refusal {
		return policy.Refusal{Field: "spec.tolerations[" + index + "]", Message: "tolerating taint " + taint + notAllowed}
	}
	wildcard := func(index, effect string) policy.Refusal {
		return policy.Refusal{Field: "spec.tolerations[" + index + "]", Message: "a toleration without key tolerates every taint (effect \"" + effect + "\"): pods.securityLevel is baseline, and only privileged allows it"}
	}
	listed := func(rule tenancyv1alpha1.TolerationRule) func(*tenancyv1alpha1.TenantPolicySpec) {
		return func(spec *tenancyv1alpha1.TenantPolicySpec) {
			spec.Pods.Tolerations = []tenancyv1alpha1.TolerationRule{rule}
		}
	}
	type tolerations = []corev1.Toleration
	for name, tc := range map[string]struct {
		policy     func(*tenancyv1alpha1.TenantPolicySpec)
		daemon     bool
		has        tolerations
		want       tolerations
		wantLeft   []policy.Refusal
		wantInView tolerations
	}{
		"none": {},
		"what API servers add stays, with its seconds": {has: tolerations{notReady}, want: tolerations{notReady}, wantInView: tolerations{notReady}},
		"what the policy does not list goes, the rest stays": {
			has: tolerations{gpu, notReady, gpuAnyhow}, want: tolerations{notReady}, wantInView: tolerations{notReady},
			wantLeft: []policy.Refusal{refused("0", "gpu:NoSchedule"), refused("2", "gpu")},
		},
		"one without a key tolerates every taint": {has: tolerations{all, allExecute}, wantLeft: []policy.Refusal{wildcard("0", ""), wildcard("1", "NoExecute")}},
		"it does for who may": {
			policy: func(spec *tenancyv1alpha1.TenantPolicySpec) {
				spec.Pods.SecurityLevel = tenancyv1alpha1.PodSecurityPrivileged
			},
			has: tolerations{all}, want: tolerations{all}, wantInView: tolerations{all},
		},
		"one effect is listed": {
			policy: listed(tenancyv1alpha1.TolerationRule{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}), has: tolerations{gpu, gpuAnyhow},
			want: tolerations{gpu}, wantInView: tolerations{gpu},
			wantLeft: []policy.Refusal{{Field: "spec.tolerations[1]", Message: "tolerating taint gpu is not allowed: pods.tolerations allows gpu:NoSchedule"}},
		},
		"all effects are": {
			policy: listed(tenancyv1alpha1.TolerationRule{Key: "gpu"}), has: tolerations{gpu, gpuAnyhow},
			want: tolerations{gpu, gpuAnyhow}, wantInView: tolerations{gpu, gpuAnyhow},
		},
		"a cordon": {has: tolerations{cordoned}, wantLeft: []policy.Refusal{refused("0", "node.kubernetes.io/unschedulable:NoSchedule")}},
		"that of a DaemonSet stays in the tenant, and says nothing": {daemon: true, has: tolerations{cordoned, all}, wantInView: tolerations{cordoned}, wantLeft: []policy.Refusal{wildcard("1", "")}},
		"the view's own is for virtual Nodes": {
			has: tolerations{virtualNode}, wantInView: tolerations{virtualNode}, wantLeft: []policy.Refusal{refused("0", "virtual-kubelet.io/provider")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := &corev1.Pod{Spec: corev1.PodSpec{Tolerations: tc.has}}
			if tc.daemon {
				pod.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Controller: ptr.To(true)}}
			}
			before := pod.DeepCopy()
			rules := policyWith(t, tc.policy)
			got, left := policy.Tolerations(rules, pod)
			require.Empty(t, cmp.Diff(tc.want, got))
			require.Empty(t, cmp.Diff(tc.wantLeft, left))
			require.ElementsMatch(t, tc.wantInView, policy.TolerationsInView(rules, pod))
			require.Equal(t, before, pod)
			for _, refusal := range policy.Check(rules, &corev1.Pod{Spec: corev1.PodSpec{Tolerations: got}}, policy.Facts{}) {
				require.NotContains(t, refusal.Field, "tolerations", "what is left passes")
			}
		})
	}
}
