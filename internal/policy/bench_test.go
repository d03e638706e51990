package policy_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/test/builders"
)

// large is a pod with 20 containers, 20 init containers and 50 volumes.
func large() *corev1.Pod {
	return plain(func(spec *corev1.PodSpec) {
		for i := range 20 {
			container := *spec.Containers[0].DeepCopy()
			container.Name, container.Resources = fmt.Sprint("c", i), builders.Requests("cpu", "10m", "memory", "1Mi")
			container.SecurityContext = &corev1.SecurityContext{RunAsNonRoot: ptr.To(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
			spec.Containers = append(spec.Containers, container)
			spec.InitContainers = append(spec.InitContainers, container)
		}
		for i := range 50 {
			spec.Volumes = append(spec.Volumes, corev1.Volume{Name: fmt.Sprint("v", i), VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}}})
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	facts := plenty()
	restricted := policyWith(b, func(spec *tenancyv1alpha1.TenantPolicySpec) {
		spec.Pods.SecurityLevel = tenancyv1alpha1.PodSecurityRestricted
	})
	for _, bm := range []struct {
		name   string
		policy *policy.Policy
		pod    *corev1.Pod
		want   bool
	}{
		{name: "small", policy: policy.Default(), pod: plain(nil)},
		{name: "large", policy: policy.Default(), pod: large()},
		{name: "forbidden", policy: restricted, pod: plain(nil), want: true},
	} {
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if found := policy.Check(bm.policy, bm.pod, facts); (len(found) > 0) != bm.want {
					b.Fatal(found)
				}
			}
		})
	}
}

// BenchmarkPolicies measures what 1,000 policies keep, each of its own generation. Tenants that follow one share it.
func BenchmarkPolicies(b *testing.B) {
	const policies = 1000
	spec := policy.Default().Spec()
	for b.Loop() {
		before := heap()
		kept := make([]*policy.Policy, 0, policies)
		for i := range policies {
			compiled, err := policy.New(fmt.Sprint("p", i), spec)
			require.NoError(b, err)
			kept = append(kept, compiled)
		}
		b.ReportMetric(float64(heap()-before)/policies, "bytes/policy")
		runtime.KeepAlive(kept)
	}
}

func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
