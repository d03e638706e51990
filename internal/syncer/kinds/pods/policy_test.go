package pods_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/podspec"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// TestForbiddenPod lets a tenant create pods that its policy forbids, until the policy allows them.
func TestForbiddenPod(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		pod  func(*corev1.Pod)
		want string
		// allow changes the policy so that it allows the pod; nil if none does.
		allow func(*tenancyv1alpha1.TenantPolicySpec)
	}{
		{
			name: "a privileged container", pod: func(pod *corev1.Pod) {
				pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
			},
			want: `spec: Pod Security forbids privileged (container "main" must not set securityContext.privileged=true): pods.securityLevel is baseline`,
			allow: func(spec *tenancyv1alpha1.TenantPolicySpec) {
				spec.Pods.SecurityLevel = tenancyv1alpha1.PodSecurityPrivileged
			},
		},
		{
			name: "a volume of a node", pod: func(pod *corev1.Pod) {
				pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
					VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "host", StorageClassName: ptr.To("")}},
				}}}}
			},
			want: "spec.volumes[0].ephemeral: volumes of kind ephemeral are not allowed: pods.volumes allows configMap, secret, downwardAPI, projected, emptyDir, image",
		},
		{
			name: "nodes of others", pod: func(pod *corev1.Pod) { pod.Spec.NodeSelector = map[string]string{"pool": "others"} },
			want:  "spec.nodeSelector[pool]: node label pool (is others) is not allowed: pods.nodeSelectorKeys allows kubernetes.io/os, kubernetes.io/arch, kubernetes.io/hostname, ",
			allow: func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Pods.NodeSelectorKeys = []string{"pool"} },
		},
		{
			name: "a RuntimeClass", pod: func(pod *corev1.Pod) { pod.Spec.RuntimeClassName = ptr.To("kata") },
			want:  `spec.runtimeClassName: RuntimeClass "kata" is not allowed: pods.runtimeClasses allows none`,
			allow: func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Pods.RuntimeClasses = []string{"kata"} },
		},
		{
			name: "more than the namespace holds", pod: func(pod *corev1.Pod) { pod.Spec.Containers[0].Resources = builders.Requests("memory", "11Gi") },
			want: "spec.containers[0].resources.requests[memory]: requests 11Gi memory in total, and the namespace holds 10Gi in this super cluster: ",
		},
		{
			name: "what the namespace does not hold", pod: func(pod *corev1.Pod) { pod.Spec.Containers[0].Resources = builders.Requests("nvidia.com/gpu", "1") },
			want: "spec.containers[0].resources.requests[nvidia.com/gpu]: requests 1 nvidia.com/gpu in total, and the namespace holds no nvidia.com/gpu in this super cluster: ",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.Governed(t, interceptor.Funcs{})
			pod := kindtest.TenantPod(func(pod *corev1.Pod) {
				pod.Labels = map[string]string{schedulerv1alpha1.LabelSuperCluster: "r1"}
				tc.pod(pod)
			})
			p.TenantCache[kind.Pod] = []client.Object{pod}
			key := engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Pod, Namespace: "web", Name: pod.Name}
			reconcile := func() bool {
				t.Helper()
				_, err := p.Kind(kind.Pod).Reconcile(t.Context(), key, 0)
				require.NoError(t, err)
				err = p.SuperClient.Get(t.Context(), client.ObjectKey{Namespace: kindtest.ClusterKey + "-web", Name: pod.Name}, &corev1.Pod{})
				require.NoError(t, client.IgnoreNotFound(err))
				return !apierrors.IsNotFound(err)
			}
			require.False(t, reconcile())
			events := p.Told()
			require.Len(t, events, 1)
			require.Contains(t, events[0], "Warning PolicyForbids Super cluster r1: TenantPolicy default forbids: "+tc.want)
			require.False(t, reconcile())
			require.Empty(t, p.Told(), "it is told once")
			if tc.allow == nil {
				return
			}
			p.Tenant.Policy.Set(kindtest.PolicyWith(t, tc.allow))
			require.Contains(t, p.Env.OfTenant(p.Tenant), key, "a change of the policy tries it again")
			require.True(t, reconcile())
			for _, event := range p.Told() {
				require.NotContains(t, event, "PolicyForbids")
			}
		})
	}
}

// TestPolicyOfAPodThatRuns changes the policy of a tenant while a pod runs.
func TestPolicyOfAPodThatRuns(t *testing.T) {
	t.Parallel()
	var updated []*corev1.Pod
	deleted := false
	p := kindtest.Governed(t, interceptor.Funcs{
		Update: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.UpdateOption) error {
			if pod, ok := object.(*corev1.Pod); ok {
				updated = append(updated, pod)
			}
			return nil
		},
		Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
			deleted = true
			return nil
		},
	})
	pod, superPod, key := p.Running(t, func(pod *corev1.Pod) {
		pod.Spec.RuntimeClassName = ptr.To("kata")
		pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsUser: ptr.To[int64](0)}
	})
	kata := kindtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Pods.RuntimeClasses = []string{"kata"} })
	reconcile := func() (events []string) {
		t.Helper()
		_, err := p.Kind(kind.Pod).Reconcile(t.Context(), key, 0)
		require.NoError(t, err)
		require.False(t, deleted, "what runs stays")
		p.Shown(t, pod)
		return p.Told()
	}
	p.Tenant.Policy.Set(kata)
	require.Empty(t, reconcile())

	p.Tenant.Policy.Set(kindtest.PolicyWith(t, nil))
	events := reconcile()
	require.Len(t, events, 1)
	require.Contains(t, events[0], `PolicyForbids Super cluster r1: TenantPolicy small forbids: spec.runtimeClassName: RuntimeClass "kata" is not allowed: pods.runtimeClasses allows none`)
	require.Empty(t, reconcile(), "it is told once")
	require.Empty(t, updated)

	pod.Spec.Containers[0].Image = "image:2"
	reconcile()
	require.Len(t, updated, 1, "an update that adds nothing forbidden goes down")
	require.Equal(t, "image:2", updated[0].Spec.Containers[0].Image)
	superPod.Spec.Containers[0].Image = "image:2"

	superPod.Spec.Containers[0].ImagePullPolicy = corev1.PullIfNotPresent // of an earlier policy
	pod.Spec.Containers[0].Image = "registry.example.com/others/private:1"
	events = reconcile()
	require.Len(t, events, 1)
	require.Contains(t, events[0], `forbids: spec.containers[0]: image "registry.example.com/others/private:1" is pulled IfNotPresent: pods.imagePull is Always`)
	require.Len(t, updated, 1, "a node may have it, pulled by another tenant")
	pod.Spec.Containers[0].Image, superPod.Spec.Containers[0].ImagePullPolicy = "image:2", corev1.PullAlways

	pod.Spec.Tolerations, pod.Generation = []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}, 2
	events = reconcile()
	require.Len(t, events, 2)
	require.Contains(t, events[1], "kata", "it was told of a container last")
	require.Contains(t, events[0], "TolerationsLeftOut Super cluster r1: the pod is there without some tolerations: TenantPolicy small forbids: spec.tolerations[0]: tolerating taint gpu is not allowed: ")
	require.Len(t, updated, 1, "it goes not down")
	require.Empty(t, reconcile(), "each is told once")
	pod.Spec.Tolerations, pod.Generation = nil, 1

	p.Tenant.Policy.Set(kata)
	require.Empty(t, reconcile())
	p.Tenant.Policy.Set(kindtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Pods.RuntimeClass = "gvisor" }))
	require.Contains(t, reconcile()[0], "allows gvisor", "it is told anew")
	require.Len(t, updated, 1)
}

// TestTolerationsLeftOut: a pod runs without the tolerations that its policy does not allow, and has them once it does.
func TestTolerationsLeftOut(t *testing.T) {
	t.Parallel()
	p := kindtest.Governed(t, interceptor.Funcs{})
	notReady := corev1.Toleration{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](30)}
	gpu := corev1.Toleration{Key: "gpu", Operator: corev1.TolerationOpExists}
	pod := kindtest.TenantPod(func(pod *corev1.Pod) {
		pod.Labels = map[string]string{schedulerv1alpha1.LabelSuperCluster: "r1"}
		pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}, notReady, gpu}
	})
	p.TenantCache[kind.Pod] = []client.Object{pod}
	key := engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Pod, Namespace: "web", Name: pod.Name}
	superPod := &corev1.Pod{}
	reconcile := func() []corev1.Toleration {
		t.Helper()
		_, err := p.Kind(kind.Pod).Reconcile(t.Context(), key, 2e9)
		require.NoError(t, err)
		superPod = &corev1.Pod{}
		require.NoError(t, p.SuperClient.Get(t.Context(), client.ObjectKey{Namespace: kindtest.ClusterKey + "-web", Name: pod.Name}, superPod))
		superPod.UID = "super-uid"
		p.SuperCache[kind.Pod] = []client.Object{superPod}
		return superPod.Spec.Tolerations
	}
	require.Equal(t, []corev1.Toleration{notReady}, reconcile())
	require.Contains(t, p.Told(), `Warning TolerationsLeftOut Super cluster r1: the pod is there without some tolerations: TenantPolicy default forbids: `+
		`spec.tolerations[0]: a toleration without key tolerates every taint (effect ""): pods.securityLevel is baseline, and only privileged allows it; `+
		`spec.tolerations[2]: tolerating taint gpu is not allowed: pods.tolerations allows node.kubernetes.io/not-ready:NoExecute, node.kubernetes.io/unreachable:NoExecute`)
	reconcile()
	require.Empty(t, p.Told(), "it is told once")

	p.Tenant.Policy.Set(kindtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
		spec.Pods.Tolerations = append(spec.Pods.Tolerations, tenancyv1alpha1.TolerationRule{Key: "gpu"})
	}))
	require.Contains(t, p.Env.OfTenant(p.Tenant), key, "a change of the policy tries it again")
	require.Equal(t, []corev1.Toleration{notReady, gpu}, reconcile())
	require.Empty(t, p.Told())
}

// TestReadinessSlowed: a large pod whose readiness probe is slower in its super cluster says so.
func TestReadinessSlowed(t *testing.T) {
	t.Parallel()
	p := kindtest.Governed(t, interceptor.Funcs{})
	pod := kindtest.TenantPod(func(pod *corev1.Pod) {
		pod.Labels = map[string]string{schedulerv1alpha1.LabelSuperCluster: "r1"}
		pod.Spec.Containers[0].Args = []string{strings.Repeat("x", 200_000)}
		pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 3, SuccessThreshold: 1}
	})
	p.TenantCache[kind.Pod] = []client.Object{pod}
	_, err := p.Kind(kind.Pod).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Pod, Namespace: "web", Name: pod.Name}, 2e9)
	require.NoError(t, err)
	require.Contains(t, strings.Join(p.Told(), "\n"),
		"Warning ReadinessSlowed Super cluster r1: the pod is large, and the readiness probe of container main has a period of 13 s there, ")
}

// TestFieldLeftOut: a pod runs without what names objects that its tenant alone has, and says so.
func TestFieldLeftOut(t *testing.T) {
	t.Parallel()
	p := kindtest.Governed(t, interceptor.Funcs{})
	pod := kindtest.TenantPod(func(pod *corev1.Pod) {
		pod.Labels = map[string]string{schedulerv1alpha1.LabelSuperCluster: "r1"}
		pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: ptr.To("g")}
		pod.Spec.EvictionResponders = []corev1.EvictionResponder{{Name: "example.com/r"}}
	})
	p.TenantCache[kind.Pod] = []client.Object{pod}
	key := engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Pod, Namespace: "web", Name: pod.Name}
	_, err := p.Kind(kind.Pod).Reconcile(t.Context(), key, 2e9)
	require.NoError(t, err)
	superPod := &corev1.Pod{}
	require.NoError(t, p.SuperClient.Get(t.Context(), client.ObjectKey{Namespace: kindtest.ClusterKey + "-web", Name: pod.Name}, superPod))
	require.Nil(t, superPod.Spec.SchedulingGroup)
	require.Empty(t, superPod.Spec.EvictionResponders)
	require.Contains(t, p.Told(), "Warning FieldLeftOut Super cluster r1: the pod is there without spec.schedulingGroup and spec.evictionResponders: what it names is in the tenant alone")
}

// TestForbiddenDebugContainer lets a tenant debug a pod that runs with a privileged container.
func TestForbiddenDebugContainer(t *testing.T) {
	t.Parallel()
	written := 0
	p := kindtest.Governed(t, interceptor.Funcs{
		SubResourceUpdate: func(context.Context, client.Client, string, client.Object, ...client.SubResourceUpdateOption) error {
			written++
			return nil
		},
	})
	pod, _, key := p.Running(t, nil)
	debug := func(privileged bool) {
		pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "debug", SecurityContext: &corev1.SecurityContext{Privileged: &privileged},
		}}}
		_, err := p.Kind(kind.Pod).Reconcile(t.Context(), key, 2e9)
		require.NoError(t, err)
		p.Shown(t, pod)
	}
	debug(true)
	require.Zero(t, written)
	require.Contains(t, p.Told()[0], `forbids: spec: Pod Security forbids privileged (container "debug" must not set securityContext.privileged=true)`)
	debug(false)
	require.Equal(t, 1, written)
}

// TestShippedPolicyAllowsPlainPods: a pod of a Deployment, as the tenant's API server stores it, passes as translated.
func TestShippedPolicyAllowsPlainPods(t *testing.T) {
	t.Parallel()
	pod := kindtest.TenantPod(func(pod *corev1.Pod) {
		pod.Labels = map[string]string{"app": "web", "pod-template-hash": "7d4b9", "example.com/team": "a", schedulerv1alpha1.LabelSuperCluster: "r1"}
		pod.Annotations = map[string]string{"kubectl.kubernetes.io/restartedAt": "now", "k8s.v1.cni.cncf.io/networks": "host"}
		pod.Spec.NodeName, pod.Spec.SchedulerName, pod.Spec.PriorityClassName, pod.Spec.Priority = "", "pods", "high", ptr.To[int32](1)
		pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](86_400)
		for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
				Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](300),
			})
		}
		pod.Spec.Volumes = []corev1.Volume{{Name: "kube-api-access", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}}}},
		}}}}}
	})
	superPod := &corev1.Pod{}
	podspec.SuperPod(pod, superPod, kindtest.OwnerOf(pod.UID), nil, &podspec.PodEnvironment{})
	p := kindtest.Governed(t, interceptor.Funcs{})
	p.TenantCache[kind.Pod] = []client.Object{pod}
	_, err := p.Kind(kind.Pod).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Pod, Namespace: "web", Name: pod.Name}, 20e9)
	require.NoError(t, err)
	for _, event := range p.Told() {
		require.NotContains(t, event, "PolicyForbids")
	}
	require.NoError(t, p.SuperClient.Get(t.Context(), client.ObjectKeyFromObject(superPod), superPod))
}
