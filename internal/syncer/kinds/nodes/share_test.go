package nodes_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/nodes"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// TestNodeShare holds what a tenant's Node shows against what its super node and its super cluster are, under a policy
// that lets pods name label "disk" and tolerate taint "gpu".
func TestNodeShare(t *testing.T) {
	t.Parallel()
	const prefer, noSchedule, noExecute = corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute
	taint := func(key string, effect corev1.TaintEffect) corev1.Taint {
		return corev1.Taint{Key: key, Value: "v", Effect: effect}
	}
	closed := corev1.Taint{Key: tenancyv1alpha1.TaintClosed, Effect: noSchedule}
	held := builders.Resources("cpu", "2", "memory", "64Gi", "pods", "20", "example.com/gpu", "1")
	for _, tc := range []struct {
		name string
		// super changes the super node, virtual the virtual Node, policy the policy, before the tenant's Node as it
		// was.
		super, virtual, before func(node *corev1.Node)
		policy                 func(spec *tenancyv1alpha1.TenantPolicySpec)
		// holds is what the tenant holds, nil for held.
		holds             corev1.ResourceList
		want              []corev1.Taint
		wantUnschedulable bool
		wantLabels        map[string]string // besides those of every Node; "" for none
		wantAllocatable   corev1.ResourceList
	}{
		{name: "an ordinary node"},
		{name: "the node is cordoned", super: func(node *corev1.Node) { node.Spec.Unschedulable = true }, wantUnschedulable: true},
		{name: "the super cluster is cordoned", virtual: func(node *corev1.Node) { node.Spec.Unschedulable = true }, wantUnschedulable: true},
		{name: "the tenant has uncordoned it", wantUnschedulable: true, super: func(node *corev1.Node) { node.Spec.Unschedulable = true }, before: func(node *corev1.Node) {
			node.Spec.Unschedulable = false
		}},
		{name: "the tenant has cordoned it", before: func(node *corev1.Node) { node.Spec.Unschedulable = true }},
		{
			name: "nothing of the tenant stays there", holds: corev1.ResourceList{}, wantUnschedulable: true,
			wantAllocatable: builders.Resources("cpu", "0", "memory", "0", "pods", "0"),
		},
		{name: "a label that pods may name", super: func(node *corev1.Node) { node.Labels["disk"] = "ssd" }, wantLabels: map[string]string{"disk": "ssd"}},
		{name: "a label that they may not", super: func(node *corev1.Node) { node.Labels["rack"] = "7" }, wantLabels: map[string]string{"rack": ""}},
		{name: "a label that the tenant has made up", before: func(node *corev1.Node) { node.Labels["rack"] = "1" }, wantLabels: map[string]string{"rack": "1"}},
		{
			name:  "a label that the policy no longer shows",
			super: func(node *corev1.Node) { node.Labels["old"] = "1" }, wantLabels: map[string]string{"old": ""},
			before: func(node *corev1.Node) {
				node.Labels["old"], node.Annotations["tenancy.x-k8s.io/from-super-node"] = "1", `{"labels":["old"]}`
			},
		},
		{name: "marks of Superpool on the super node", super: func(node *corev1.Node) {
			node.Labels[tenancyv1alpha1.LabelSuperClusterID], node.Labels[corev1.LabelHostname] = "r9", "x"
		}, policy: func(spec *tenancyv1alpha1.TenantPolicySpec) {
			spec.Pods.NodeSelectorKeys = append(spec.Pods.NodeSelectorKeys, tenancyv1alpha1.LabelSuperClusterID)
		}},
		{
			name: "a taint that pods may tolerate", want: []corev1.Taint{taint("gpu", noSchedule)},
			super: func(node *corev1.Node) { node.Spec.Taints = []corev1.Taint{taint("gpu", noSchedule)} },
		},
		{name: "a taint that pods may not tolerate", want: []corev1.Taint{closed}, super: func(node *corev1.Node) {
			node.Spec.Taints = []corev1.Taint{taint("team-a", noSchedule), taint("team-b", noExecute)}
		}},
		{name: "one that only keeps others off", super: func(node *corev1.Node) { node.Spec.Taints = []corev1.Taint{taint("team-a", prefer)} }},
		{name: "all taints, for a tenant that may tolerate all", want: []corev1.Taint{taint("team-a", noExecute), taint("team-b", prefer)}, super: func(node *corev1.Node) {
			node.Spec.Taints = []corev1.Taint{taint("team-a", noExecute), taint("team-b", prefer)}
		}, policy: func(spec *tenancyv1alpha1.TenantPolicySpec) {
			spec.Pods.SecurityLevel = tenancyv1alpha1.PodSecurityPrivileged
		}},
		{name: "taints of the node's own conditions", super: func(node *corev1.Node) {
			node.Spec.Taints = []corev1.Taint{taint(corev1.TaintNodeNotReady, noExecute), taint(corev1.TaintNodeUnschedulable, noSchedule)}
		}},
		{name: "the super cluster is drained", want: []corev1.Taint{closed}, virtual: func(node *corev1.Node) { node.Spec.Taints = []corev1.Taint{taint("repair", noExecute)} }},
		{name: "it is drained of those that do not tolerate it", want: []corev1.Taint{taint("gpu", noSchedule)}, virtual: func(node *corev1.Node) {
			node.Spec.Taints = []corev1.Taint{taint("gpu", noExecute)}
		}},
		{name: "the tenant's pods go to other nodes", want: []corev1.Taint{closed}, policy: func(spec *tenancyv1alpha1.TenantPolicySpec) {
			spec.Pods.NodeSelector = map[string]string{"pool": "tenants"}
		}},
		{name: "a taint that is gone", before: func(node *corev1.Node) {
			node.Spec.Taints = []corev1.Taint{taint("gpu", noSchedule)}
			node.Annotations["tenancy.x-k8s.io/from-super-node"] = `{"taints":["gpu:NoSchedule"]}`
		}},
		{name: "a taint of the tenant", want: []corev1.Taint{taint("mine", noSchedule)}, before: func(node *corev1.Node) {
			node.Spec.Taints = []corev1.Taint{taint("mine", noSchedule)}
		}},
		{name: "a tenant that has spoilt the record", want: []corev1.Taint{taint("gpu", noSchedule)}, before: func(node *corev1.Node) {
			node.Spec.Taints = []corev1.Taint{taint("gpu", noSchedule)}
			node.Annotations["tenancy.x-k8s.io/from-super-node"] = `{"taints":7`
		}},
		{name: "a tenant that has made the record too long to be read", want: []corev1.Taint{taint("gpu", noSchedule)}, before: func(node *corev1.Node) {
			node.Spec.Taints = []corev1.Taint{taint("gpu", noSchedule)}
			node.Annotations["tenancy.x-k8s.io/from-super-node"] = `{"taints":["gpu:NoSchedule"` + strings.Repeat(`,"x:NoSchedule"`, 2_000) + `]}`
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			node := func(change func(*corev1.Node)) *corev1.Node {
				made := builders.Node("n1", "cpu", "8", "memory", "32Gi", "pods", "110", "ephemeral-storage", "1Ti").Obj()
				made.Labels, made.Annotations, made.Spec = map[string]string{}, map[string]string{}, corev1.NodeSpec{}
				if change != nil {
					change(made)
				}
				return made
			}
			share := nodes.NodeShare{Held: held, Virtual: node(tc.virtual), Policy: kindtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
				spec.Pods.NodeSelectorKeys = append(spec.Pods.NodeSelectorKeys, "disk")
				spec.Pods.Tolerations = append(spec.Pods.Tolerations, tenancyv1alpha1.TolerationRule{Key: "gpu"})
				if tc.policy != nil {
					tc.policy(spec)
				}
			})}
			if tc.holds != nil {
				share.Held = tc.holds
			}
			if tc.wantAllocatable == nil {
				tc.wantAllocatable = builders.Resources("cpu", "2", "memory", "32Gi", "pods", "20")
			}
			got := node(tc.before)
			nodes.TenantNode(node(tc.super), got, "r1", kind.VNAgent{}, share)
			require.Empty(t, cmp.Diff(tc.want, got.Spec.Taints, kindtest.EmptyIsNil))
			require.Equal(t, tc.wantUnschedulable, got.Spec.Unschedulable)
			for key, value := range tc.wantLabels {
				require.Equal(t, value, got.Labels[key], key)
			}
			require.Equal(t, "r1.n1", got.Labels[corev1.LabelHostname])
			require.Equal(t, "r1", got.Labels[tenancyv1alpha1.LabelSuperClusterID])
			for _, list := range []corev1.ResourceList{got.Status.Capacity, got.Status.Allocatable} {
				require.Empty(t, cmp.Diff(tc.wantAllocatable, list))
			}
			again := got.DeepCopy()
			nodes.TenantNode(node(tc.super), again, "r1", kind.VNAgent{}, share)
			require.Empty(t, cmp.Diff(got, again), "a second time changes nothing")
		})
	}
}
