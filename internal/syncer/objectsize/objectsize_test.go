package objectsize

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestStoredSize: what counts is at least half of what an object takes in etcd with its managedFields, which may be
// seven times as large as the object, and no more than they are for what people write.
func TestStoredSize(t *testing.T) {
	t.Parallel()
	converter := applyconfigurations.NewTypeConverter(scheme.Scheme)
	for _, tc := range []struct {
		name   string
		object client.Object
		kind   string
	}{
		{"ports of a Service", &corev1.Service{Spec: corev1.ServiceSpec{Ports: many(4_500, func(i int) corev1.ServicePort {
			return corev1.ServicePort{Name: fmt.Sprint("p", i), Port: int32(i + 1), Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(int32(i + 1))} //nolint:gosec // Few.
		})}}, "v1 Service"},
		{"keys of a ConfigMap", &corev1.ConfigMap{Data: keys(7_000)}, "v1 ConfigMap"},
		{"keys of a Secret", &corev1.Secret{Data: keysOf([]byte(nil), 7_000)}, "v1 Secret"},
		{"labels", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Labels: keys(5_000), Finalizers: many(100, func(i int) string { return fmt.Sprint("a/b", i) })}}, "v1 ConfigMap"},
		{"variables of a pod", inContainer(func(container *corev1.Container) {
			container.Env = many(10_000, func(i int) corev1.EnvVar { return corev1.EnvVar{Name: fmt.Sprint("V", i)} })
		}), "v1 Pod"},
		{"ports of a pod", inContainer(func(container *corev1.Container) {
			container.Ports = many(10_000, func(i int) corev1.ContainerPort {
				return corev1.ContainerPort{ContainerPort: int32(i + 1), Protocol: corev1.ProtocolTCP} //nolint:gosec // Few.
			})
		}), "v1 Pod"},
		{"paths with characters that are escaped twice", inContainer(func(container *corev1.Container) {
			container.VolumeMounts = many(100, func(i int) corev1.VolumeMount {
				return corev1.VolumeMount{Name: "v", MountPath: strings.Repeat("\x01<\"\\", 250) + fmt.Sprint(i)}
			})
		}), "v1 Pod"},
		{"volumes", &corev1.Pod{Spec: corev1.PodSpec{Volumes: many(1_000, func(i int) corev1.Volume {
			return corev1.Volume{Name: fmt.Sprint("v", i), VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
		})}}, "v1 Pod"},
		{"containers", &corev1.Pod{Spec: corev1.PodSpec{Containers: many(500, func(i int) corev1.Container { return corev1.Container{Name: fmt.Sprint("c", i)} })}}, "v1 Pod"},
		{"pull secrets and addresses", &corev1.Pod{Spec: corev1.PodSpec{
			ImagePullSecrets: many(1_000, func(i int) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: fmt.Sprint("s", i)} }),
			HostAliases:      many(200, func(i int) corev1.HostAlias { return corev1.HostAlias{IP: fmt.Sprint("10.0.0.", i)} }),
		}}, "v1 Pod"},
		{"names of resources", inContainer(func(container *corev1.Container) {
			container.Resources.Requests = corev1.ResourceList{}
			for key := range keys(1_000) {
				container.Resources.Requests[corev1.ResourceName(key)] = resource.MustParse("1")
			}
		}), "v1 Pod"},
		{"endpoints, which are one field", &discoveryv1.EndpointSlice{Endpoints: many(1_000, func(i int) discoveryv1.Endpoint {
			return discoveryv1.Endpoint{Addresses: []string{fmt.Sprint("10.0.0.", i)}}
		})}, "discovery.k8s.io/v1 EndpointSlice"},
		{"rules, which are one field", &networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{
			Ingress: make([]networkingv1.NetworkPolicyIngressRule, 1_000),
		}}, "networking.k8s.io/v1 NetworkPolicy"},
		{"a selector", &policyv1.PodDisruptionBudget{Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: keys(100)}}}, "policy/v1 PodDisruptionBudget"},
		{"a pod as people write them", usual(), "v1 Pod"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			object, ok := tc.object.DeepCopyObject().(client.Object)
			require.True(t, ok)
			version, kind, _ := strings.Cut(tc.kind, " ")
			object.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(version, kind))
			typed, err := converter.ObjectToTyped(object)
			require.NoError(t, err)
			set, err := typed.ToFieldSet()
			require.NoError(t, err)
			managed, err := set.ToJSON()
			require.NoError(t, err)
			counted := Stored(tc.object)
			t.Logf("%d bytes, managedFields %d, counted %d", tc.object.(interface{ Size() int }).Size(), len(managed), counted) //nolint:forcetypeassert // It is of the API.
			require.GreaterOrEqual(t, 2*counted, Of(tc.object)+int64(len(managed)))
			require.LessOrEqual(t, counted, max(Of(tc.object), int64(len(managed)))*3/2, "it is not counted twice")
		})
	}
	of := func(element any) client.Object {
		return &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"ports": many(1_000, func(int) any { return element })}}}
	}
	for _, element := range []any{map[string]any{"a": int64(1)}, "\x01"} { // whether they are managed one by one is not known
		require.Equal(t, Of(of(element))*3/2, Stored(of(element)))
	}
}

func many[T any](n int, element func(i int) T) []T {
	elements := make([]T, n)
	for i := range elements {
		elements[i] = element(i)
	}
	return elements
}

func keys(n int) map[string]string { return keysOf("", n) }

func keysOf[T any](value T, n int) map[string]T {
	keys := map[string]T{}
	for i := range n {
		keys[fmt.Sprint("k", i)] = value
	}
	return keys
}

func inContainer(change func(container *corev1.Container)) *corev1.Pod {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "app"}}}}
	change(&pod.Spec.Containers[0])
	return pod
}

func usual() *corev1.Pod {
	pod := inContainer(func(container *corev1.Container) {
		container.Args = []string{"--config=/etc/app/config.yaml", "--log-level=info"}
		container.Env = many(10, func(i int) corev1.EnvVar {
			return corev1.EnvVar{Name: fmt.Sprint("SETTING_", i), Value: "https://example.com/settings"}
		})
		container.ReadinessProbe = &corev1.Probe{PeriodSeconds: 10, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8080)}}}
	})
	pod.Name, pod.Labels = "app", map[string]string{"app.kubernetes.io/name": "app", "pod-template-hash": "7d9c5b"}
	return pod
}

// BenchmarkStoredSize shows what it takes to count each write, and each change that a cache shows.
func BenchmarkStoredSize(b *testing.B) {
	pod := usual()
	b.ReportAllocs()
	for b.Loop() {
		Stored(pod)
	}
}
