package pods_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// TestClosedSuperCluster lets a tenant name a super cluster itself whose virtual Node takes no pods.
func TestClosedSuperCluster(t *testing.T) {
	t.Parallel()
	taint := func(key string, effect corev1.TaintEffect) func(*corev1.Node) {
		return func(node *corev1.Node) { node.Spec.Taints = []corev1.Taint{{Key: key, Effect: effect}} }
	}
	version := func(text string) func(*corev1.Node) {
		return func(node *corev1.Node) { node.Status.NodeInfo.KubeletVersion = text }
	}
	for _, tc := range []struct {
		name    string
		change  func(*corev1.Node)
		tolerat []corev1.Toleration
		want    bool
		why     string
	}{
		{name: "open", change: func(*corev1.Node) {}, want: true},
		{name: "the taint of virtual Nodes", change: taint("virtual-kubelet.io/provider", corev1.TaintEffectNoSchedule), want: true},
		{name: "cordoned", change: func(node *corev1.Node) { node.Spec.Unschedulable = true }},
		{
			name: "cordoned, and tolerated", change: func(node *corev1.Node) { node.Spec.Unschedulable = true },
			tolerat: []corev1.Toleration{{Key: "node.kubernetes.io/unschedulable", Operator: corev1.TolerationOpExists}},
		},
		{name: "NoSchedule", change: taint("maintenance", corev1.TaintEffectNoSchedule)},
		{name: "older than the pod", change: version("v1.34.10"), why: "it has Kubernetes 1.34.10, and spec.hostnameOverride needs 1.35"},
		{name: "as new as the pod", change: version("v1.35.0"), want: true},
		{name: "NoExecute", change: taint("maintenance", corev1.TaintEffectNoExecute)},
		{name: "PreferNoSchedule", change: taint("maintenance", corev1.TaintEffectPreferNoSchedule), want: true},
		{
			name: "tolerated", change: taint("maintenance", corev1.TaintEffectNoExecute), want: true,
			tolerat: []corev1.Toleration{{Key: "maintenance", Operator: corev1.TolerationOpExists}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			created := false
			p := kindtest.NewPool(t, interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
				created = true
				return nil
			}})
			p.Placed(t)
			p.Tenant.Policy = &policy.Ref{}
			p.Tenant.Policy.Set(kindtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
				spec.Pods.Tolerations = []tenancyv1alpha1.TolerationRule{{Key: "maintenance"}, {Key: "node.kubernetes.io/unschedulable"}}
			}))
			node := builders.Node("r1").Obj()
			tc.change(node)
			p.Env.VirtualNode = func() *corev1.Node { return node }
			p.SuperCache[kind.ServiceAccount] = []client.Object{&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: kindtest.ClusterKey + "-web", Name: "default"}}}
			pod := kindtest.TenantPod(func(pod *corev1.Pod) { pod.Spec.Tolerations, pod.Spec.HostnameOverride = tc.tolerat, new("web") })
			p.TenantCache[kind.Pod] = []client.Object{pod}
			key := engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Pod, Namespace: "web", Name: pod.Name}
			_, err := p.Kind(kind.Pod).Reconcile(t.Context(), key, 2e9)
			wait := &engine.WaitError{}
			require.Equal(t, tc.want, created)
			if tc.want {
				require.NoError(t, err)
				return
			}
			require.ErrorAs(t, err, &wait)
			require.Contains(t, <-p.Events.Events, "SuperClusterClosed Super cluster r1 does not take the pod: "+tc.why)
		})
	}
}
