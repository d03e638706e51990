package nftpolicy_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/superpool/superpool/test/nftpolicy"
)

func pod(namespace, name, node, ip string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}}}},
		Status:     corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: ip}}},
	}
}

// TestRuleset holds the ruleset of a state with each kind of rule against testdata/ruleset.nft, which nft loads.
func TestRuleset(t *testing.T) {
	t.Parallel()
	web, db := map[string]string{"app": "web"}, map[string]string{"app": "db"}
	ended := pod("a", "ended", "n1", "10.214.1.2", web)
	ended.Status.Phase = corev1.PodSucceeded
	host := pod("a", "host", "n1", "10.213.0.11", web)
	host.Spec.HostNetwork = true
	tcp := func(port intstr.IntOrString) networkingv1.NetworkPolicyPort {
		return networkingv1.NetworkPolicyPort{Port: &port}
	}
	state := &nftpolicy.State{
		Node: "n1",
		Pods: []*corev1.Pod{
			pod("a", "web", "n1", "10.214.1.2", web), pod("a", "db", "n2", "10.214.2.2", db), pod("b", "web", "n1", "10.214.1.3", web), pod("b", "six", "n1", "fd00::5", db), ended, host,
		},
		Namespaces: []*corev1.Namespace{
			{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"tenant": "x"}}}, {ObjectMeta: metav1.ObjectMeta{Name: "b"}},
		},
		Policies: []*networkingv1.NetworkPolicy{
			{
				ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "floor"},
				Spec:       networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{"Ingress", "Egress"}},
			},
			{
				ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web"},
				Spec: networkingv1.NetworkPolicySpec{
					PodSelector: metav1.LabelSelector{MatchLabels: web}, PolicyTypes: []networkingv1.PolicyType{"Ingress", "Egress"},
					Ingress: []networkingv1.NetworkPolicyIngressRule{
						{
							Ports: []networkingv1.NetworkPolicyPort{tcp(intstr.FromString("http")), tcp(intstr.FromInt32(90))},
							From:  []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tenant": "x"}}}},
						},
						{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: db}}}},
					},
					Egress: []networkingv1.NetworkPolicyEgressRule{
						{To: []networkingv1.NetworkPolicyPeer{
							{IPBlock: &networkingv1.IPBlock{CIDR: "0.0.0.0/0", Except: []string{"10.213.0.0/24", "10.214.0.0/16"}}}, {IPBlock: &networkingv1.IPBlock{CIDR: "::/0"}},
						}},
						{
							Ports: []networkingv1.NetworkPolicyPort{{Protocol: ptr.To(corev1.ProtocolUDP), Port: ptr.To(intstr.FromInt32(53)), EndPort: ptr.To[int32](54)}},
							To:    []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "10.213.0.1/32"}}},
						},
					},
				},
			},
			{
				ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "all"},
				Spec: networkingv1.NetworkPolicySpec{
					PodSelector: metav1.LabelSelector{MatchLabels: db}, PolicyTypes: []networkingv1.PolicyType{"Egress"},
					Egress: []networkingv1.NetworkPolicyEgressRule{{Ports: []networkingv1.NetworkPolicyPort{{Protocol: ptr.To(corev1.ProtocolSCTP)}}}},
				},
			},
		},
	}
	got := nftpolicy.Ruleset(state)
	golden := filepath.Join("testdata", "ruleset.nft")
	if os.Getenv("UPDATE") != "" {
		require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(string(want), got))
	slices.Reverse(state.Pods)
	slices.Reverse(state.Policies)
	require.Equal(t, got, nftpolicy.Ruleset(state), "in any order")
}
