package podspec_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/podspec"
	"github.com/superpool/superpool/test/builders/kindtest"
)

func downwardFiles(n int, path string) corev1.Volume {
	return corev1.Volume{Name: "files", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
		Items: kindtest.List(n, func(i int) corev1.DownwardAPIVolumeFile {
			return corev1.DownwardAPIVolumeFile{Path: fmt.Sprint("f", i), FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
		}),
	}}}
}

func projectedFiles(n int, path string) corev1.Volume {
	files := downwardFiles(n, path).DownwardAPI.Items
	return corev1.Volume{Name: "files", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{{DownwardAPI: &corev1.DownwardAPIProjection{Items: files}}},
	}}}
}

// notReady are tolerations that the shipped policy allows.
func notReady(n int) []corev1.Toleration {
	return kindtest.List(n, func(i int) corev1.Toleration {
		return corev1.Toleration{
			Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To(int64(300 + i)),
		}
	})
}

func resourcesNamed(n int) corev1.ResourceList {
	resources := corev1.ResourceList{}
	for i := range n {
		resources[corev1.ResourceName(fmt.Sprint("a.b/x", i))] = resource.MustParse("1")
	}
	return resources
}

func servicesAt(n, ports int) []client.Object {
	return kindtest.List(n, func(i int) client.Object {
		return kindtest.ServiceAt("web", fmt.Sprint("service-", i), fmt.Sprintf("10.97.%d.%d", 1+i/250, 1+i%250), kindtest.List(ports, func(port int) corev1.ServicePort {
			return corev1.ServicePort{Name: fmt.Sprint("p", port), Port: int32(1 + port)}
		})...)
	})
}

func clusterDNS() []client.Object {
	return []client.Object{kindtest.ServiceAt(metav1.NamespaceSystem, "kube-dns", "10.97.0.10", corev1.ServicePort{Port: 53})}
}

func configMapOf(keys int) []client.Object {
	data := map[string]string{}
	for i := range keys {
		data[fmt.Sprint("KEY", i)] = ""
	}
	return []client.Object{&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "settings", UID: "settings"}, Data: data}}
}

func fromConfigMap(prefix string) corev1.EnvFromSource {
	return corev1.EnvFromSource{Prefix: prefix, ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}
}

// bounded is a pool that notes what is written of pods, and how to reconcile one.
type bounded struct {
	*kindtest.Pool
	created, updated int
	reconcile        func(pod *corev1.Pod)
}

func newBounded(t *testing.T) *bounded {
	t.Helper()
	b := &bounded{}
	b.Pool = kindtest.Governed(t, interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			b.created++
			return nil
		},
		Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error {
			b.updated++
			return nil
		},
		SubResourceUpdate: func(context.Context, client.Client, string, client.Object, ...client.SubResourceUpdateOption) error {
			b.updated++
			return nil
		},
	})
	reconciler := b.Kind(kind.Pod)
	b.reconcile = func(pod *corev1.Pod) {
		_, err := reconciler.Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Pod, Namespace: pod.Namespace, Name: pod.Name}, time.Minute)
		require.NoError(t, err)
	}
	return b
}

// TestPodsAreCountedFirst: nothing is made of a pod that would be many times as large below, and its tenant is told.
// What goes down nevertheless is made in one pass over its lists.
func TestPodsAreCountedFirst(t *testing.T) { //nolint:paralleltest // It measures what is allocated.
	for _, tc := range []struct {
		name string
		pod  func(pod *corev1.Pod)
		// services and configMaps are the tenant's.
		services, configMaps []client.Object
		// want is the Event; "": it goes down.
		want string
	}{
		{
			name: "files that show all annotations", pod: func(pod *corev1.Pod) {
				pod.Annotations = map[string]string{"a": strings.Repeat("\x01", 262_000)}
				pod.Spec.Volumes = []corev1.Volume{downwardFiles(200, "metadata.annotations")}
			},
			want: "the files of its downward API show 1048045 bytes of labels and annotations: at most 262144 go down",
		},
		{
			name: "projected files", pod: func(pod *corev1.Pod) {
				pod.Annotations = map[string]string{"a": strings.Repeat("\x01", 262_000)}
				pod.Spec.Volumes = []corev1.Volume{projectedFiles(200, "metadata.annotations"), downwardFiles(200, "metadata.annotations['a']")}
			},
			want: "the files of its downward API show 1310085 bytes of labels and annotations: at most 262144 go down",
		},
		{
			name: "variables with an annotation", pod: func(pod *corev1.Pod) {
				pod.Annotations = map[string]string{"a": strings.Repeat("$", 262_000)}
				pod.Spec.Containers[0].Env = kindtest.List(200, func(i int) corev1.EnvVar {
					variable := kindtest.FieldEnv("metadata.annotations['a']")
					variable.Name = fmt.Sprint("V", i)
					return variable
				})
			},
			want: "the variables of its containers show 52408000 bytes of labels and annotations: at most 262144 go down",
		},
		{
			name: "variables of Services in each container", services: servicesAt(250, 1),
			pod:  func(pod *corev1.Pod) { pod.Spec.Containers = kindtest.ManyContainers(450) },
			want: "bytes or more in its 450 containers: at most 1048576 go down, and with enableServiceLinks false only those of the API server do",
		},
		{
			name: "a Service of 10,000 ports", services: servicesAt(1, 10_000),
			want: "the variables of Services take 2549040 bytes or more in its 1 containers: at most 1048576 go down",
		},
		{
			name: "50,000 Services", services: servicesAt(50_000, 1),
			want: "bytes or more in its 1 containers: at most 1048576 go down",
		},
		{
			name: "Services within bounds", services: servicesAt(200, 1), pod: func(pod *corev1.Pod) { pod.Spec.Containers = kindtest.ManyContainers(10) },
		},
		{
			name: "a ConfigMap in many places", services: servicesAt(1, 1), configMaps: configMapOf(10_000),
			pod: func(pod *corev1.Pod) {
				pod.Spec.Containers[0].EnvFrom = kindtest.List(2_000, func(int) corev1.EnvFromSource { return fromConfigMap("") })
			},
			want: "envFrom of its containers defines 20000000 variables: at most 32768 are read",
		},
		{
			name: "a long prefix", services: servicesAt(1, 1), configMaps: configMapOf(10_000),
			pod: func(pod *corev1.Pod) {
				pod.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{fromConfigMap(strings.Repeat("P", 20_000))}
			},
		},
		{
			name: "variables with the node", pod: func(pod *corev1.Pod) {
				pod.Spec.Containers[0].Env = kindtest.List(20_000, func(i int) corev1.EnvVar {
					variable := kindtest.FieldEnv("spec.nodeName")
					variable.Name = fmt.Sprint("V", i)
					return variable
				})
			},
			want: "its lists and maps have 20002 entries together: at most 5000 go down",
		},
		{
			name: "as many variables with the node as go down", pod: func(pod *corev1.Pod) {
				pod.Spec.Containers[0].Env = kindtest.List(4_900, func(i int) corev1.EnvVar {
					variable := kindtest.FieldEnv("spec.nodeName")
					variable.Name = fmt.Sprint("V", i)
					return variable
				})
			},
		},
		{
			name: "a large argument", pod: func(pod *corev1.Pod) { pod.Spec.Containers[0].Args = []string{strings.Repeat("x", 1_400_000)} },
			want: "bytes: at most 524288 go down",
		},
		{
			name: "ports", pod: func(pod *corev1.Pod) {
				pod.Spec.Containers[0].Ports = kindtest.List(4_000, func(i int) corev1.ContainerPort {
					return corev1.ContainerPort{ContainerPort: int32(i + 1), Protocol: corev1.ProtocolTCP} //nolint:gosec // Few.
				})
			},
			want: "its containers have 4000 ports: at most 1000 go down",
		},
		{
			name: "options of the resolver", services: clusterDNS(), pod: func(pod *corev1.Pod) {
				pod.Spec.DNSConfig = &corev1.PodDNSConfig{Options: kindtest.List(50_000, func(i int) corev1.PodDNSConfigOption { return corev1.PodDNSConfigOption{Name: fmt.Sprint("o", i)} })}
			},
			want: "its dnsConfig has 50000 options: at most 64 go down",
		},
		{
			name: "searches", services: clusterDNS(), pod: func(pod *corev1.Pod) {
				pod.Spec.DNSConfig = &corev1.PodDNSConfig{Searches: kindtest.List(50_000, func(i int) string { return fmt.Sprint("search-", i) })}
			},
			want: "its dnsConfig has 50000 searches and 0 nameservers: at most 32 go down",
		},
		{
			name: "labels", pod: func(pod *corev1.Pod) { pod.Labels = kindtest.ManyLabels(30_000) },
			want: "it has 30001 labels: at most 128 go down",
		},
		{
			name: "containers", pod: func(pod *corev1.Pod) { pod.Spec.Containers = kindtest.ManyContainers(10_000) },
			want: "it has 10000 containers: at most 500 go down",
		},
		{
			name: "volumes", pod: func(pod *corev1.Pod) {
				pod.Spec.Volumes = kindtest.List(20_000, func(i int) corev1.Volume {
					return corev1.Volume{Name: fmt.Sprint("v", i), VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
				})
			},
			want: "it has 20000 volumes: at most 1000 go down",
		},
		{
			name: "readiness probes", pod: func(pod *corev1.Pod) {
				pod.Spec.Containers = kindtest.ManyContainers(500)
				for i := range pod.Spec.Containers {
					pod.Spec.Containers[i].ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, SuccessThreshold: 1, FailureThreshold: 1}
				}
				pod.Spec.Containers[0].Args = []string{strings.Repeat("x", 400_000)}
			},
			want: "that one of 500 readiness probes has another result",
		},
		{
			name: "resource names, in one of many containers", pod: func(pod *corev1.Pod) {
				pod.Spec.Containers = kindtest.ManyContainers(500)
				pod.Spec.Containers[499].Resources.Requests = resourcesNamed(5_000)
			},
			want: "it has 5000 resource names, more than 64 different ones: at most 64 are read",
		},
		{
			name: "resource names of a sidecar, in all that start after it", pod: func(pod *corev1.Pod) {
				pod.Spec.InitContainers = kindtest.ManyContainers(499)
				pod.Spec.InitContainers[0].RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
				pod.Spec.InitContainers[0].Resources.Limits = resourcesNamed(5_000)
			},
			want: "it has 5000 resource names, more than 64 different ones: at most 64 are read",
		},
		{
			name: "tolerations", pod: func(pod *corev1.Pod) { pod.Spec.Tolerations = notReady(20_000) },
			want: "the pod's affinity, node selector, tolerations and topology spread take 1083916 bytes: at most 65536 are read",
		},
		{
			name: "selectors of affinity", pod: func(pod *corev1.Pod) {
				pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
					TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: kindtest.ManyLabels(50_000)},
				}}}}
			},
			want: "the pod's affinity, node selector, tolerations and topology spread take 688973 bytes: at most 65536 are read",
		},
		{
			name: "names of labels to match", pod: func(pod *corev1.Pod) {
				keys := kindtest.List(20_000, func(i int) string { return fmt.Sprint("key", i) })
				pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
					TopologyKey: corev1.LabelHostname, MatchLabelKeys: keys, LabelSelector: &metav1.LabelSelector{
						MatchExpressions: kindtest.List(20_000, func(i int) metav1.LabelSelectorRequirement { return oneOf(fmt.Sprint("other", i), "v") }),
					},
				}}
			},
			want: "the pod's affinity, node selector, tolerations and topology spread take 597812 bytes: at most 65536 are read",
		},
		{
			name: "topology keys in each term of node affinity", pod: func(pod *corev1.Pod) {
				pod.Spec.TopologySpreadConstraints = kindtest.List(100, func(i int) corev1.TopologySpreadConstraint {
					return corev1.TopologySpreadConstraint{TopologyKey: fmt.Sprint("t", i), WhenUnsatisfiable: corev1.DoNotSchedule}
				})
				pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
					NodeSelectorTerms: kindtest.List(2_000, func(int) corev1.NodeSelectorTerm {
						return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "k", Operator: corev1.NodeSelectorOpExists}}}
					}),
				}}}
			},
			want: "the pod has 100 topology keys and 2000 terms of node affinity: their product may be at most 10000",
		},
	} {
		t.Run(tc.name, func(t *testing.T) { //nolint:paralleltest // As above.
			b := newBounded(t)
			pod := kindtest.TenantPod(func(pod *corev1.Pod) {
				pod.Labels = map[string]string{schedulerv1alpha1.LabelSuperCluster: "r1"}
				if tc.pod != nil {
					tc.pod(pod)
				}
			})
			b.TenantCache[kind.Pod], b.TenantCache[kind.Service], b.TenantCache[kind.ConfigMap] = []client.Object{pod}, tc.services, tc.configMaps
			require.LessOrEqual(t, pod.Size(), kindtest.Largest)
			kindtest.InBounds(t, func() { b.reconcile(pod) })
			events := strings.Join(b.Told(), "\n")
			if tc.want == "" {
				require.Equal(t, 1, b.created)
				require.NotContains(t, events, "TenantLimit")
				return
			}
			require.Zero(t, b.created)
			require.Contains(t, events, "Warning TenantLimit Super cluster r1: ")
			require.Contains(t, events, tc.want)
			b.reconcile(pod)
			require.Empty(t, b.Told(), "it is told once")

			pod.Annotations, pod.Spec = nil, kindtest.TenantPod(nil).Spec
			pod.Labels = map[string]string{schedulerv1alpha1.LabelSuperCluster: "r1"}
			b.TenantCache[kind.Service] = nil
			b.reconcile(pod)
			require.Equal(t, 1, b.created, "it fits now")
		})
	}
}

// TestPodsThatRunAreCountedFirst: a pod that runs and grows stays as it is below, its status comes up, and its tenant
// is told.
func TestPodsThatRunAreCountedFirst(t *testing.T) { //nolint:paralleltest // It measures what is allocated.
	for _, tc := range []struct {
		name           string
		before, change func(pod *corev1.Pod)
		want           string
		updated        int
	}{
		{
			name: "an annotation that many files show", before: func(pod *corev1.Pod) {
				pod.Annotations = map[string]string{"a": "a"}
				pod.Spec.Volumes = []corev1.Volume{downwardFiles(200, "metadata.annotations")}
			},
			change: func(pod *corev1.Pod) { pod.Annotations["a"] = strings.Repeat("\x01", 262_000) },
			want:   "Warning TenantLimit Super cluster r1: the files of its downward API show 1048045 bytes of labels and annotations: at most 262144 go down",
		},
		{
			name: "labels", change: func(pod *corev1.Pod) { pod.Labels = kindtest.ManyLabels(30_000) },
			want: "Warning TenantLimit Super cluster r1: it has 30001 labels: at most 128 go down",
		},
		{
			name: "tolerations", change: func(pod *corev1.Pod) { pod.Spec.Tolerations = notReady(1_500) }, updated: 1,
		},
		{
			name: "as many tolerations as an object can have", change: func(pod *corev1.Pod) { pod.Spec.Tolerations = notReady(25_000) }, updated: 1,
		},
		{
			name: "ephemeral containers", change: func(pod *corev1.Pod) {
				pod.Spec.EphemeralContainers = kindtest.List(10_000, func(i int) corev1.EphemeralContainer {
					return corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: fmt.Sprint("e", i), Image: "i"}}
				})
			},
			want: "Warning TenantLimit Super cluster r1: it has 10000 containers: at most 500 go down",
		},
		{
			name: "a large ephemeral container", change: func(pod *corev1.Pod) {
				debug := corev1.EphemeralContainerCommon{Name: "e", Image: "i", Args: []string{strings.Repeat("x", 1_200_000)}}
				pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: debug}}
			},
			want: "bytes: at most 1048576 go down",
		},
		{
			name: "the name of an image", change: func(pod *corev1.Pod) { pod.Spec.Containers[0].Image = strings.Repeat("x", 60_000) },
			want: "has 60000 characters: at most 1024 go down",
		},
		{
			name: "a quick readiness probe of a pod that grows", before: func(pod *corev1.Pod) {
				pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, SuccessThreshold: 1, FailureThreshold: 1}
			},
			change: func(pod *corev1.Pod) {
				debug := corev1.EphemeralContainerCommon{Name: "e", Image: "i", Args: []string{strings.Repeat("x", 400_000)}}
				pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: debug}}
			},
			want: "and its node would write all of them each time that one of 1 readiness probes has another result",
		},
	} {
		t.Run(tc.name, func(t *testing.T) { //nolint:paralleltest // As above.
			b := newBounded(t)
			pod, superPod, _ := b.Running(t, tc.before)
			b.SuperCache[kind.Pod] = []client.Object{superPod}
			tc.change(pod)
			require.LessOrEqual(t, pod.Size(), kindtest.Largest)
			kindtest.InBounds(t, func() { b.reconcile(pod) })
			require.Equal(t, tc.updated, b.updated)
			require.Contains(t, strings.Join(b.Told(), "\n"), tc.want)
			stored := &corev1.Pod{}
			require.NoError(t, b.Tenant.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), stored))
			require.Equal(t, corev1.PodRunning, stored.Status.Phase)
		})
	}
}

// TestTolerationsThatGoDown: the first of them do, and a change of their order does not bring down all.
func TestTolerationsThatGoDown(t *testing.T) {
	t.Parallel()
	all := notReady(300)
	superPod := &corev1.Pod{}
	for i := range 300 {
		pod := kindtest.TenantPod(func(pod *corev1.Pod) {
			pod.Spec.Tolerations = append(append([]corev1.Toleration{}, all[i:]...), all[:i]...)
		})
		podspec.SuperPod(pod, superPod, kindtest.OwnerOf("pod-uid"), nil, &podspec.PodEnvironment{})
		if i == 0 {
			require.Equal(t, all[:policy.MaxTolerations], superPod.Spec.Tolerations)
		}
		superPod.UID = "super-uid"
		require.LessOrEqual(t, len(superPod.Spec.Tolerations), 2*policy.MaxTolerations)
	}
}

// TestTolerationsWithoutRoom: a running pod that has had as many as it may is told of those that are added.
func TestTolerationsWithoutRoom(t *testing.T) {
	t.Parallel()
	b := newBounded(t)
	valued := func(from, n int) []corev1.Toleration {
		return kindtest.List(n, func(i int) corev1.Toleration {
			return corev1.Toleration{Key: corev1.TaintNodeNotReady, Value: fmt.Sprint("v", from+i), Effect: corev1.TaintEffectNoExecute}
		})
	}
	pod, superPod, _ := b.Running(t, nil)
	superPod.Spec.Tolerations = valued(0, 2*policy.MaxTolerations)
	b.SuperCache[kind.Pod] = []client.Object{superPod}
	pod.Generation, pod.Spec.Tolerations = 2, valued(2*policy.MaxTolerations-1, 3)
	b.reconcile(pod)
	const want = "Warning TolerationsLeftOut Super cluster r1: the pod is there without 2 tolerations that were added: those that it ever had stay, and it has 128."
	require.Contains(t, strings.Join(b.Told(), "\n"), want)
	b.Shown(t, pod)
	b.reconcile(pod)
	require.Empty(t, b.Told(), "it is told once")
}

// TestStatusInOnePass: no list of a status is looked through for each element of another.
func TestStatusInOnePass(t *testing.T) { //nolint:paralleltest // It measures what is allocated.
	const many = 20_000
	kind := func(i int) corev1.PodConditionType { return corev1.PodConditionType(fmt.Sprint("c", i)) }
	pod := kindtest.TenantPod(func(pod *corev1.Pod) {
		pod.Spec.NodeName = "r1.n1"
		pod.Spec.ReadinessGates = kindtest.List(many, func(i int) corev1.PodReadinessGate { return corev1.PodReadinessGate{ConditionType: kind(many + i)} })
		pod.Status.Conditions = kindtest.List(many, func(i int) corev1.PodCondition { return kindtest.Condition(kind(i), corev1.ConditionTrue, "") })
		kindtest.Bound("r1.n1")(pod)
	})
	require.LessOrEqual(t, pod.Size(), kindtest.Largest)
	superPod := kindtest.PodWith("n1", corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{kindtest.Condition(corev1.PodReady, corev1.ConditionTrue, "")}})
	kindtest.InBounds(t, func() {
		status, ok := podspec.TenantPodStatus(pod, superPod, "r1", time.Unix(300, 0))
		require.True(t, ok)
		require.Len(t, status.Conditions, many+2)
	})

	pod.Spec.Containers = kindtest.ManyContainers(many / 4)
	superPod.Status.ContainerStatuses = kindtest.List(many/4, func(i int) corev1.ContainerStatus { return corev1.ContainerStatus{Name: fmt.Sprint("c", many/4-1-i)} })
	kindtest.InBounds(t, func() { podspec.TenantPodStatus(pod, superPod, "r1", time.Unix(300, 0)) })
}

// shapes are how many there are of what a pod may have many of.
type shapes struct{ files, text, variables, containers, services, ports, keys, places, prefix, tolerations, options, labels, terms uint16 }

// pod returns a pod of these shapes, and Services and ConfigMaps.
func (s shapes) pod() (pod *corev1.Pod, services, configMaps []client.Object) {
	pod = kindtest.TenantPod(func(pod *corev1.Pod) {
		pod.Labels = kindtest.ManyLabels(int(s.labels))
		pod.Annotations = map[string]string{"a": strings.Repeat("\x01", int(s.text)), "b": strings.Repeat("$", int(s.text))}
		path := [...]string{"metadata.annotations", "metadata.labels", "metadata.annotations['a']"}[s.files%3]
		pod.Spec.Volumes = []corev1.Volume{downwardFiles(int(s.files), path)}
		pod.Spec.Containers = kindtest.ManyContainers(1 + int(s.containers))
		first := &pod.Spec.Containers[0]
		first.Env = kindtest.List(int(s.variables), func(i int) corev1.EnvVar {
			variable := kindtest.FieldEnv([...]string{"metadata.annotations['b']", "spec.nodeName", "metadata.labels['app']"}[i%3])
			variable.Name = fmt.Sprint("V", i)
			return variable
		})
		prefix := strings.Repeat("P", int(s.prefix))
		first.EnvFrom = kindtest.List(int(s.places), func(int) corev1.EnvFromSource { return fromConfigMap(prefix) })
		pod.Spec.Tolerations = notReady(int(s.tolerations))
		pod.Spec.DNSConfig = &corev1.PodDNSConfig{Options: kindtest.List(int(s.options), func(i int) corev1.PodDNSConfigOption { return corev1.PodDNSConfigOption{Name: fmt.Sprint("o", i)} })}
		pod.Spec.TopologySpreadConstraints = kindtest.List(int(s.terms), func(i int) corev1.TopologySpreadConstraint {
			return corev1.TopologySpreadConstraint{TopologyKey: fmt.Sprint("t", i), LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}
		})
	})
	return pod, servicesAt(int(s.services), 1+int(s.ports)), configMapOf(int(s.keys))
}

// check translates a pod of these shapes, new, and as one that has grown.
func (s shapes) check(t *testing.T) {
	if int(s.services)*(1+int(s.ports)) > 50_000 {
		return
	}
	pod, services, configMaps := s.pod()
	if pod.Size() > kindtest.Largest {
		return // no API server takes it
	}
	b := newBounded(t)
	b.TenantCache[kind.Pod], b.TenantCache[kind.Service], b.TenantCache[kind.ConfigMap] = []client.Object{pod}, services, configMaps
	kindtest.InBounds(t, func() { b.reconcile(pod) })
	_, superPod, _ := b.Running(t, nil)
	pod.Spec.NodeName = "r1.n1"
	kindtest.Bound("r1.n1")(pod)
	pod.Status.Phase = corev1.PodRunning
	b.TenantCache[kind.Pod], b.SuperCache[kind.Pod] = []client.Object{pod}, []client.Object{superPod}
	kindtest.InBounds(t, func() { b.reconcile(pod) })
}

// TestPodsOfAnyShape translates pods that have many of some things.
func TestPodsOfAnyShape(t *testing.T) { //nolint:paralleltest // It measures what is allocated.
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // Not for secrets.
		some := func() uint16 {
			if random.IntN(3) > 0 {
				return uint16(random.IntN(3))
			}
			return uint16(1) << random.IntN(16) //nolint:gosec // At most 2^15.
		}
		s := shapes{some(), some(), some(), some(), some(), some(), some(), some(), some(), some(), some(), some(), some()}
		t.Run(fmt.Sprint(seed), func(t *testing.T) { //nolint:paralleltest // As above.
			t.Logf("%+v", s)
			s.check(t)
		})
	}
}

// FuzzPodsOfAnyShape is TestPodsOfAnyShape with any numbers.
func FuzzPodsOfAnyShape(f *testing.F) {
	const n uint16 = 200
	f.Add(n, n, n, n, n, n, n, n, n, n, n, n, n)
	f.Fuzz(func(t *testing.T, files, text, variables, containers, services, ports, keys, places, prefix, tolerations, options, labels, terms uint16) {
		shapes{files, text, variables, containers, services, ports, keys, places, prefix, tolerations, options, labels, terms}.check(t)
	})
}
