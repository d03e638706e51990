package podspec_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/superpool/superpool/internal/syncer/kinds/podspec"
	"github.com/superpool/superpool/test/builders/kindtest"
)

func values(env []corev1.EnvVar) string {
	var text []string
	for i := range env {
		text = append(text, env[i].Name+"="+env[i].Value)
	}
	return strings.Join(text, " ")
}

// TestServiceVariables compares with what a kubelet does: the container's own variables win, in whatever way it has
// them.
func TestServiceVariables(t *testing.T) {
	t.Parallel()
	env := &podspec.PodEnvironment{
		Services: []*corev1.Service{
			kindtest.ServiceAt("web", "front", "10.97.0.7", corev1.ServicePort{Port: 80}),
			kindtest.ServiceAt("default", "kubernetes", "10.97.0.1", corev1.ServicePort{Name: "https", Port: 443, Protocol: corev1.ProtocolTCP}),
		},
		Defines: func(source *corev1.EnvFromSource) []string { return []string{source.Prefix + "PORT"} },
	}
	pod := kindtest.TenantPod(func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "FRONT_SERVICE_HOST", Value: "mine"}, {Name: "URL", Value: "$(KUBERNETES_SERVICE_HOST)"}}
		pod.Spec.InitContainers = []corev1.Container{{Name: "init", EnvFrom: []corev1.EnvFromSource{{Prefix: "FRONT_"}, {Prefix: "KUBERNETES_"}}}}
		pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{
			{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "old"}},
			{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Env: []corev1.EnvVar{kindtest.FieldEnv("metadata.namespace")}}},
		}
	})
	superPod := &corev1.Pod{}
	podspec.SuperPod(pod, superPod, kindtest.OwnerOf("pod-uid"), nil, env)
	const front = "FRONT_SERVICE_HOST=10.97.0.7 FRONT_SERVICE_PORT=80 FRONT_PORT=tcp://10.97.0.7:80 FRONT_PORT_80_TCP=tcp://10.97.0.7:80 " +
		"FRONT_PORT_80_TCP_PROTO=tcp FRONT_PORT_80_TCP_PORT=80 FRONT_PORT_80_TCP_ADDR=10.97.0.7"
	const apiServer = "KUBERNETES_SERVICE_HOST=10.97.0.1 KUBERNETES_SERVICE_PORT=443 KUBERNETES_SERVICE_PORT_HTTPS=443 KUBERNETES_PORT=tcp://10.97.0.1:443 " +
		"KUBERNETES_PORT_443_TCP=tcp://10.97.0.1:443 KUBERNETES_PORT_443_TCP_PROTO=tcp KUBERNETES_PORT_443_TCP_PORT=443 KUBERNETES_PORT_443_TCP_ADDR=10.97.0.1"
	require.Equal(t, front+" "+apiServer+" FRONT_SERVICE_HOST=mine URL=$(KUBERNETES_SERVICE_HOST)", values(superPod.Spec.Containers[0].Env))
	require.Equal(t, strings.NewReplacer(" FRONT_PORT=tcp://10.97.0.7:80", "", " KUBERNETES_PORT=tcp://10.97.0.1:443", "").Replace(front+" "+apiServer),
		values(superPod.Spec.InitContainers[0].Env))

	require.Empty(t, superPod.Spec.EphemeralContainers, "they cannot be created with a pod")
	superPod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "old", Image: "super"}}}
	podspec.AddEphemeralContainers(pod, superPod, kindtest.OwnerOf("pod-uid"), nil, env)
	require.Len(t, superPod.Spec.EphemeralContainers, 2)
	require.Equal(t, "super", superPod.Spec.EphemeralContainers[0].Image)
	require.Equal(t, front+" "+apiServer+" V=web", values(superPod.Spec.EphemeralContainers[1].Env))
	require.NotEmpty(t, pod.Spec.EphemeralContainers[1].Env[0].ValueFrom, "the tenant's pod lies in a cache")
}

func TestDNS(t *testing.T) {
	t.Parallel()
	option := func(name, value string) corev1.PodDNSConfigOption {
		if value == "" {
			return corev1.PodDNSConfigOption{Name: name}
		}
		return corev1.PodDNSConfigOption{Name: name, Value: ptr.To(value)}
	}
	searches := []string{"web.svc.example.org", "svc.example.org", "example.org"}
	var many []string
	for i := range 40 {
		many = append(many, fmt.Sprintf("s%d", i))
	}
	clusterFirst := &corev1.PodDNSConfig{Nameservers: []string{"10.97.0.10"}, Searches: searches, Options: []corev1.PodDNSConfigOption{option("ndots", "5")}}
	own := &corev1.PodDNSConfig{Nameservers: []string{"1.1.1.1"}, Searches: []string{"a"}, Options: []corev1.PodDNSConfigOption{option("debug", "")}}
	for _, tc := range []struct {
		name        string
		policy      corev1.DNSPolicy
		hostNetwork bool
		own         *corev1.PodDNSConfig
		noDNS       bool
		wantPolicy  corev1.DNSPolicy
		want        *corev1.PodDNSConfig
	}{
		{name: "cluster first", policy: corev1.DNSClusterFirst, wantPolicy: corev1.DNSNone, want: clusterFirst},
		{name: "without a DNS Service", policy: corev1.DNSClusterFirst, noDNS: true, wantPolicy: corev1.DNSDefault},
		{name: "without a DNS Service, with words of its own", policy: corev1.DNSClusterFirst, noDNS: true, own: own, wantPolicy: corev1.DNSDefault, want: own},
		{name: "on the node's network", policy: corev1.DNSClusterFirst, hostNetwork: true, wantPolicy: corev1.DNSDefault},
		{name: "on the node's network and cluster first", policy: corev1.DNSClusterFirstWithHostNet, hostNetwork: true, wantPolicy: corev1.DNSNone, want: clusterFirst},
		{name: "the node's", policy: corev1.DNSDefault, own: own, wantPolicy: corev1.DNSDefault, want: own},
		{name: "none", policy: corev1.DNSNone, own: own, wantPolicy: corev1.DNSNone, want: own},
		{
			name: "the pod's own words come after", policy: corev1.DNSClusterFirst, wantPolicy: corev1.DNSNone,
			own: &corev1.PodDNSConfig{
				Nameservers: []string{"10.97.0.10", "1.1.1.1", "2.2.2.2", "3.3.3.3"}, Searches: []string{"example.org", "a"},
				Options: []corev1.PodDNSConfigOption{option("ndots", "2"), option("debug", ""), option("debug", "x")},
			},
			want: &corev1.PodDNSConfig{
				Nameservers: []string{"10.97.0.10", "1.1.1.1", "2.2.2.2"}, Searches: append(append([]string{}, searches...), "a"),
				Options: []corev1.PodDNSConfigOption{option("ndots", "2"), option("debug", "x")},
			},
		},
		{
			name: "too many domains", policy: corev1.DNSClusterFirst, wantPolicy: corev1.DNSNone, own: &corev1.PodDNSConfig{Searches: many},
			want: &corev1.PodDNSConfig{Nameservers: []string{"10.97.0.10"}, Searches: append(append([]string{}, searches...), many[:29]...), Options: clusterFirst.Options},
		},
		{
			name: "too long domains", policy: corev1.DNSClusterFirst, wantPolicy: corev1.DNSNone,
			own:  &corev1.PodDNSConfig{Searches: []string{strings.Repeat("a", 2000), "b"}},
			want: &corev1.PodDNSConfig{Nameservers: []string{"10.97.0.10"}, Searches: append(append([]string{}, searches...), strings.Repeat("a", 2000)), Options: clusterFirst.Options},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			env := &podspec.PodEnvironment{Nameservers: []string{"10.97.0.10"}, Domain: "example.org"}
			if tc.noDNS {
				env.Nameservers = nil
			}
			pod := kindtest.TenantPod(func(pod *corev1.Pod) {
				pod.Spec.DNSPolicy, pod.Spec.HostNetwork, pod.Spec.DNSConfig = tc.policy, tc.hostNetwork, tc.own.DeepCopy()
			})
			untouched := pod.DeepCopy()
			superPod := &corev1.Pod{}
			podspec.SuperPod(pod, superPod, kindtest.OwnerOf("pod-uid"), nil, env)
			require.Equal(t, tc.wantPolicy, superPod.Spec.DNSPolicy)
			require.Empty(t, cmp.Diff(tc.want, superPod.Spec.DNSConfig))
			require.Empty(t, cmp.Diff(untouched, pod), "the tenant's pod lies in a cache")
		})
	}
}
