package policy_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/randfill"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/test/builders"
)

// policyWith returns the shipped policy with a change.
func policyWith(t testing.TB, change func(spec *tenancyv1alpha1.TenantPolicySpec)) *policy.Policy {
	t.Helper()
	spec := policy.Default().Spec().DeepCopy()
	if change != nil {
		change(spec)
	}
	compiled, err := policy.New("changed", spec)
	require.NoError(t, err)
	return compiled
}

func resources(requests, limits corev1.ResourceList) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: requests, Limits: limits}
}

func TestSetDefaults(t *testing.T) {
	t.Parallel()
	list := builders.Resources
	for _, tc := range []struct {
		name             string
		requests, limits corev1.ResourceList // of the policy
		pod              *corev1.ResourceRequirements
		container, want  corev1.ResourceRequirements
	}{
		{name: "the policy gives nothing", container: resources(list("cpu", "1"), nil), want: resources(list("cpu", "1"), nil)},
		{name: "a container names nothing", requests: list("cpu", "1"), limits: list("cpu", "2"), want: resources(list("cpu", "1"), list("cpu", "2"))},
		{name: "a request alone", requests: list("cpu", "1"), want: resources(list("cpu", "1"), nil)},
		{name: "a default limit is the request where there is no default request", limits: list("memory", "1Gi"), want: resources(list("memory", "1Gi"), list("memory", "1Gi"))},
		{
			name: "what a container names stays", requests: list("cpu", "1"), limits: list("cpu", "2"),
			container: resources(list("cpu", "3"), list("cpu", "4")), want: resources(list("cpu", "3"), list("cpu", "4")),
		},
		{
			name: "a limit without a request is the request", requests: list("cpu", "1"), limits: list("cpu", "2"),
			container: resources(nil, list("cpu", "4")), want: resources(list("cpu", "4"), list("cpu", "4")),
		},
		{
			name: "a default limit is not below the request", limits: list("cpu", "2"),
			container: resources(list("cpu", "3"), nil), want: resources(list("cpu", "3"), list("cpu", "3")),
		},
		{name: "a default request is not above the default limit", requests: list("cpu", "3"), limits: list("cpu", "2"), want: resources(list("cpu", "2"), list("cpu", "2"))},
		{
			name: "a request that nobody can write out", limits: list("cpu", "2"),
			container: resources(list("cpu", "1e999999999"), nil), want: resources(list("cpu", "1e999999999"), list("cpu", "1e999999999")),
		},
		{
			name: "another resource", requests: list("cpu", "1", "memory", "1Gi"),
			container: resources(list("cpu", "0"), nil), want: resources(list("cpu", "0", "memory", "1Gi"), nil),
		},
		{
			name: "the pod requests it", requests: list("cpu", "1", "memory", "1Gi"),
			pod: &corev1.ResourceRequirements{Requests: list("cpu", "1")}, want: resources(list("memory", "1Gi"), nil),
		},
		{
			name: "the pod requests what containers have a limit of", limits: list("cpu", "2"),
			pod: &corev1.ResourceRequirements{Requests: list("cpu", "1")}, want: resources(corev1.ResourceList{"cpu": *resource.NewQuantity(0, resource.DecimalSI)}, list("cpu", "2")),
		},
		{
			name: "the pod limits it", requests: list("cpu", "1"), limits: list("cpu", "2"),
			pod: &corev1.ResourceRequirements{Limits: list("cpu", "4")},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			compiled := policyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
				spec.Pods.DefaultRequests, spec.Pods.DefaultLimits = tc.requests, tc.limits
			})
			untouched := compiled.Spec().DeepCopy()
			spec := &corev1.PodSpec{
				Resources:           tc.pod,
				InitContainers:      []corev1.Container{{Resources: *tc.container.DeepCopy(), RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}},
				Containers:          []corev1.Container{{Resources: *tc.container.DeepCopy()}},
				EphemeralContainers: []corev1.EphemeralContainer{{}},
			}
			for range 2 { // twice: it is idempotent
				compiled.SetDefaults(spec)
				require.Equal(t, tc.want.String(), spec.Containers[0].Resources.String())
				require.Equal(t, tc.want.String(), spec.InitContainers[0].Resources.String())
				require.Empty(t, spec.EphemeralContainers[0].Resources)
			}
			require.Empty(t, cmp.Diff(untouched, compiled.Spec()))
		})
	}
}

func TestForce(t *testing.T) {
	t.Parallel()
	forced := func(spec *tenancyv1alpha1.TenantPolicySpec) {
		spec.Pods.NodeSelector = map[string]string{"pool": "shared"}
		spec.Pods.RuntimeClass = "gvisor"
	}
	for _, tc := range []struct {
		name       string
		policy     func(*tenancyv1alpha1.TenantPolicySpec)
		spec, want corev1.PodSpec
	}{
		{name: "the shipped policy leaves a plain pod as it is"},
		{
			name: "images are pulled",
			spec: corev1.PodSpec{
				InitContainers: []corev1.Container{{ImagePullPolicy: corev1.PullNever}}, Containers: []corev1.Container{{}},
				EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{ImagePullPolicy: corev1.PullIfNotPresent}}},
				Volumes:             []corev1.Volume{{VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{PullPolicy: corev1.PullNever}}}, {}},
			},
			want: corev1.PodSpec{
				InitContainers: []corev1.Container{{ImagePullPolicy: corev1.PullAlways}}, Containers: []corev1.Container{{ImagePullPolicy: corev1.PullAlways}},
				EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{ImagePullPolicy: corev1.PullAlways}}},
				Volumes:             []corev1.Volume{{VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{PullPolicy: corev1.PullAlways}}}, {}},
			},
		},
		{
			name: "or not",
			policy: func(spec *tenancyv1alpha1.TenantPolicySpec) {
				spec.Pods.ImagePull = tenancyv1alpha1.ImagePullAsRequested
			},
			spec: corev1.PodSpec{Containers: []corev1.Container{{ImagePullPolicy: corev1.PullNever}}},
			want: corev1.PodSpec{Containers: []corev1.Container{{ImagePullPolicy: corev1.PullNever}}},
		},
		{
			name: "node selector and RuntimeClass", policy: forced,
			want: corev1.PodSpec{NodeSelector: map[string]string{"pool": "shared"}, RuntimeClassName: ptr.To("gvisor")},
		},
		{
			name: "the policy's keys win, a named RuntimeClass stays", policy: forced,
			spec: corev1.PodSpec{NodeSelector: map[string]string{"pool": "other", "a": "b"}, RuntimeClassName: ptr.To("runc")},
			want: corev1.PodSpec{NodeSelector: map[string]string{"pool": "shared", "a": "b"}, RuntimeClassName: ptr.To("runc")},
		},
		{
			name: "a year of grace",
			spec: corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To[int64](31536000), Containers: []corev1.Container{{
				LivenessProbe: &corev1.Probe{TerminationGracePeriodSeconds: ptr.To[int64](31536000)},
				StartupProbe:  &corev1.Probe{TerminationGracePeriodSeconds: ptr.To[int64](10)},
				Lifecycle: &corev1.Lifecycle{
					PreStop:   &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 31536000}},
					PostStart: &corev1.LifecycleHandler{},
				},
			}}},
			want: corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To[int64](600), Containers: []corev1.Container{{
				ImagePullPolicy: corev1.PullAlways,
				LivenessProbe:   &corev1.Probe{TerminationGracePeriodSeconds: ptr.To[int64](600)},
				StartupProbe:    &corev1.Probe{TerminationGracePeriodSeconds: ptr.To[int64](10)},
				Lifecycle: &corev1.Lifecycle{
					PreStop:   &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 600}},
					PostStart: &corev1.LifecycleHandler{},
				},
			}}},
		},
		{
			name:   "the API server's 30 seconds are too long",
			policy: func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Pods.MaxGracePeriodSeconds = 5 },
			want:   corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To[int64](5)},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			compiled := policyWith(t, tc.policy)
			untouched := compiled.Spec().DeepCopy()
			got := tc.spec.DeepCopy()
			for range 2 { // twice: it is idempotent
				compiled.Force(got)
				require.Empty(t, cmp.Diff(&tc.want, got))
			}
			require.Empty(t, cmp.Diff(untouched, compiled.Spec()))
		})
	}
}

// TestPodSpecOfAnySpec gives random specs to what changes them: nothing panics, and a second call changes nothing.
func TestPodSpecOfAnySpec(t *testing.T) {
	t.Parallel()
	compiled := policyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
		spec.Pods.NodeSelector, spec.Pods.RuntimeClass = map[string]string{"a": "b"}, "gvisor"
		spec.Pods.DefaultRequests, spec.Pods.DefaultLimits = builders.Resources("cpu", "1"), builders.Resources("cpu", "2", "memory", "1Gi")
	})
	for seed := range int64(100) {
		spec := &corev1.PodSpec{}
		randfill.NewWithSeed(seed).NilChance(0.3).NumElements(0, 3).MaxDepth(12).Fill(spec)
		compiled.SetDefaults(spec)
		compiled.Force(spec)
		once := spec.DeepCopy()
		compiled.SetDefaults(spec)
		compiled.Force(spec)
		require.Empty(t, cmp.Diff(once, spec))
	}
}
