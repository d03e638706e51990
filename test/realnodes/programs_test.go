//go:build realnodes

package realnodes_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

// TestWhoReachesOurPrograms puts the shipped NetworkPolicies on a pod with the labels and ports of our programs, in a
// namespace of r1 that no tenant has: Prometheus reaches its metrics and nothing else, other pods reach nothing, and
// the kubelet's probes come through.
func TestWhoReachesOurPrograms(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"base", "single"} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			cluster := connect(t, "r1")
			programs, prometheus, other := file+"-programs", file+"-prometheus", file+"-other"
			cluster.plainNamespace(t, programs, nil)
			cluster.plainNamespace(t, prometheus, map[string]string{"tenancy.x-k8s.io/metrics": "true"})
			cluster.plainNamespace(t, other, nil)
			pod := newPod(t, "program", "/agnhost netexec --http-port=8443 & exec /agnhost netexec --http-port=8081 --udp-port=-1")
			pod.Labels = map[string]string{"app.kubernetes.io/part-of": "superpool"}
			pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "metrics", ContainerPort: 8443}, {Name: "probes", ContainerPort: 8081}}
			program := cluster.create(t, programs, pod)
			for _, namespace := range []string{prometheus, other} {
				cluster.create(t, namespace, newPod(t, "client", "sleep 3600"))
			}
			reaches := func(want bool, namespace, port string) {
				t.Helper()
				output := ""
				require.Eventually(t, func() bool {
					var err error
					output, err = cluster.try(t, namespace, "exec", "client", "--", "/agnhost", "connect", net.JoinHostPort(program.Status.PodIP, port), "--timeout=2s")
					return want && err == nil || !want && err != nil && strings.Contains(output, "TIMEOUT")
				}, 30*time.Second, interval, "%s reaches port %s: want %v: %s", namespace, port, want, output)
			}
			for _, namespace := range []string{prometheus, other} { // before there is a policy
				reaches(true, namespace, "8443")
				reaches(true, namespace, "8081")
			}
			policy := &networkingv1.NetworkPolicy{}
			content, err := os.ReadFile(filepath.Join(root(t), "manifests", file, "networkpolicy.yaml"))
			require.NoError(t, err)
			require.NoError(t, yaml.UnmarshalStrict(content, policy))
			_, err = cluster.client.NetworkingV1().NetworkPolicies(programs).Create(t.Context(), &networkingv1.NetworkPolicy{
				ObjectMeta: metav1.ObjectMeta{Name: policy.Name}, Spec: policy.Spec,
			}, metav1.CreateOptions{})
			require.NoError(t, err)
			reaches(false, other, "8443")
			reaches(false, other, "8081")
			reaches(false, prometheus, "8081")
			reaches(true, prometheus, "8443")
			probed := pod.DeepCopy()
			probed.Name = "probed"
			probed.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("probes")}}}
			cluster.create(t, programs, probed) // once its kubelet reaches it
		})
	}
}

// plainNamespace makes a namespace without a quota until the end of the test.
func (c *cluster) plainNamespace(t *testing.T, name string, labels map[string]string) {
	t.Helper()
	_, err := c.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
	require.NoError(t, err)
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() { require.NoError(t, c.client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{})) })
}
