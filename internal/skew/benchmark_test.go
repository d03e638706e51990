package skew_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/superpool/superpool/internal/skew"
	"github.com/superpool/superpool/test/builders"
)

// BenchmarkPod measures what skew costs a pod with so many containers: once in the pod view, and twice where it is
// created. Deep copies are the yardstick.
func BenchmarkPod(b *testing.B) {
	for _, containers := range []int{1, 10, 100} {
		pod := builders.Pod("web", "p", "cpu", "1", "memory", "1Gi").Obj()
		for len(pod.Spec.Containers) < containers {
			next := pod.Spec.Containers[0].DeepCopy()
			next.Name = fmt.Sprintf("c%d", len(pod.Spec.Containers))
			next.Env = []corev1.EnvVar{{Name: "A", Value: "a"}, {Name: "B", Value: "b"}}
			pod.Spec.Containers = append(pod.Spec.Containers, *next)
		}
		got := pod.Spec.DeepCopy()
		for name, run := range map[string]func(){
			"needs": func() { skew.Needs(&pod.Spec) }, "lost": func() { skew.Lost(&pod.Spec, got) }, "copy": func() { pod.Spec.DeepCopy() },
		} {
			b.Run(fmt.Sprintf("%s/containers=%d", name, containers), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					run()
				}
			})
		}
	}
}
