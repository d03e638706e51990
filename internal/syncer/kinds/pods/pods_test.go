package pods_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/podspec"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// TestStatusOfAPodThatIsRefused lets the super cluster refuse a change: what becomes of the pod is told nevertheless.
func TestStatusOfAPodThatIsRefused(t *testing.T) {
	t.Parallel()
	refusal := apierrors.NewForbidden(corev1.Resource("pods"), "web-1", errors.New(`violates PodSecurity "baseline": privileged`))
	for _, tc := range []struct {
		name   string
		change func(pod *corev1.Pod)
	}{
		{name: "a container to debug with", change: func(pod *corev1.Pod) {
			pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}}
		}},
		{name: "another image", change: func(pod *corev1.Pod) { pod.Spec.Containers[0].Image = "registry.forbidden/image" }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.NewPool(t, interceptor.Funcs{
				Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error { return refusal },
				SubResourceUpdate: func(context.Context, client.Client, string, client.Object, ...client.SubResourceUpdateOption) error {
					return refusal
				},
			})
			pod, superPod, key := p.Running(t, nil)
			tc.change(pod)
			superPod.Status.Phase = corev1.PodFailed
			_, err := p.Kind(kind.Pod).Reconcile(t.Context(), key, 2*time.Second)
			require.ErrorContains(t, err, "baseline")
			require.Contains(t, <-p.Events.Events, "FailedUpdate")
			require.NoError(t, p.Tenant.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
			require.Equal(t, corev1.PodFailed, pod.Status.Phase)
		})
	}
}

// TestGrace looks at a pod that the tenant deletes, and whose super pod could not be deleted for ten seconds. The clock
// of the tenant is an hour ahead.
func TestGrace(t *testing.T) {
	t.Parallel()
	deleted := time.Unix(1_000_000, 0)
	for _, tc := range []struct {
		name string
		// tenant is the grace that the tenant gives, super that of the super pod if it is being deleted.
		tenant int64
		super  *int64
		// want is the grace of a deletion, nil for none.
		want *int64
	}{
		{name: "what is left of it goes down", tenant: 30, want: ptr.To[int64](20)},
		{name: "none is left", tenant: 5, want: ptr.To[int64](1)},
		{name: "a super pod that is ending is left alone", tenant: 30, super: ptr.To[int64](30)},
		{name: "so is one with less", tenant: 30, super: ptr.To[int64](29)},
		{name: "the tenant has given less since", tenant: 5, super: ptr.To[int64](30), want: ptr.To[int64](5)},
		{name: "the tenant gives none any more", tenant: 0, super: ptr.To[int64](30), want: ptr.To[int64](1)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var got *int64
			broken := errors.New("connection refused")
			p := kindtest.NewPool(t, interceptor.Funcs{Delete: func(_ context.Context, _ client.WithWatch, _ client.Object, options ...client.DeleteOption) error {
				all := &client.DeleteOptions{}
				all.ApplyOptions(options)
				got = all.GracePeriodSeconds
				return broken
			}})
			clock := testingclock.NewFakePassiveClock(deleted.Add(-time.Hour))
			p.Env.Clock = clock
			pod, superPod, key := p.Running(t, nil)
			pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = ptr.To(metav1.NewTime(deleted.Add(time.Duration(tc.tenant)*time.Second))), ptr.To(tc.tenant)
			if tc.super != nil {
				superPod.DeletionTimestamp, superPod.DeletionGracePeriodSeconds = ptr.To(metav1.NewTime(deleted)), tc.super
			}
			kind := p.Kind(kind.Pod)
			_, err := kind.Reconcile(t.Context(), key, 0)
			if tc.want == nil {
				require.NoError(t, err)
				require.Nil(t, got)
				return
			}
			require.ErrorIs(t, err, broken)
			clock.SetTime(clock.Now().Add(10 * time.Second))
			broken = nil
			_, err = kind.Reconcile(t.Context(), key, 0)
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(tc.want, got))
		})
	}
}

// TestPodThatTheSuperClusterDeletes looks at a pod whose node is drained, while its containers stop.
func TestPodThatTheSuperClusterDeletes(t *testing.T) {
	t.Parallel()
	evicted := kindtest.Condition(corev1.DisruptionTarget, corev1.ConditionTrue, "Eviction API: evicting")
	for _, tc := range []struct {
		name   string
		change func(superPod *corev1.Pod)
		// want is the grace of the tenant pod's deletion, nil for none.
		want *int64
	}{
		{name: "it runs"},
		{name: "it is being deleted", want: ptr.To[int64](45), change: func(superPod *corev1.Pod) {
			superPod.DeletionTimestamp, superPod.DeletionGracePeriodSeconds = ptr.To(metav1.Now()), ptr.To[int64](45)
		}},
		{name: "it has finished", change: func(superPod *corev1.Pod) {
			superPod.DeletionTimestamp, superPod.DeletionGracePeriodSeconds = ptr.To(metav1.Now()), ptr.To[int64](45)
			superPod.Status.Phase = corev1.PodSucceeded
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.NewPool(t, interceptor.Funcs{})
			pod, superPod, key := p.Running(t, nil)
			superPod.Status.Conditions = []corev1.PodCondition{evicted}
			if tc.change != nil {
				tc.change(superPod)
			}
			var got *int64
			p.Tenant.Client = kindtest.NewClientBuilder().WithObjects(pod).WithStatusSubresource(pod).WithInterceptorFuncs(interceptor.Funcs{
				Delete: func(_ context.Context, _ client.WithWatch, _ client.Object, options ...client.DeleteOption) error {
					all := &client.DeleteOptions{}
					all.ApplyOptions(options)
					got = all.GracePeriodSeconds
					require.Equal(t, pod.UID, *all.Preconditions.UID)
					return nil
				},
			}).Build()
			for range 2 {
				require.Nil(t, got, "its status comes first: it says why")
				_, err := p.Kind(kind.Pod).Reconcile(t.Context(), key, 0)
				require.NoError(t, err)
				require.NoError(t, p.Tenant.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
				require.Empty(t, cmp.Diff([]corev1.PodCondition{evicted}, pod.Status.Conditions))
			}
			require.Empty(t, cmp.Diff(tc.want, got))
			require.Equal(t, tc.want != nil, len(p.Events.Events) == 1)
		})
	}
}

// TestPodWhoseEndWasMissed looks at a pod with a finalizer, as those of Jobs have, that the super cluster no longer
// has.
func TestPodWhoseEndWasMissed(t *testing.T) {
	t.Parallel()
	now := metav1.Unix(1_000_000, 0)
	for _, tc := range []struct {
		name string
		// grace is that of the tenant's deletion, nil when it did not delete the pod.
		grace      *int64
		phase      corev1.PodPhase
		want       corev1.PodPhase
		wantReason string
	}{
		{name: "the tenant deleted it", grace: ptr.To[int64](30), phase: corev1.PodRunning, want: corev1.PodFailed},
		{name: "the tenant deleted it at once", grace: ptr.To[int64](0), phase: corev1.PodRunning, want: corev1.PodFailed},
		{name: "its end is known", grace: ptr.To[int64](30), phase: corev1.PodSucceeded, want: corev1.PodSucceeded},
		{name: "the super cluster lost it", phase: corev1.PodRunning, want: corev1.PodFailed, wantReason: kind.ReasonSuperPodDeleted},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.NewPool(t, interceptor.Funcs{})
			p.Env.Clock = testingclock.NewFakePassiveClock(now.Time)
			pod, _, key := p.Running(t, func(pod *corev1.Pod) {
				pod.Finalizers = []string{"batch.kubernetes.io/job-tracking"}
				pod.Status.Phase = tc.phase
				pod.Status.Conditions = []corev1.PodCondition{kindtest.Condition(corev1.PodScheduled, corev1.ConditionTrue, "")}
				if tc.grace != nil {
					pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &now, tc.grace
				}
			})
			p.SuperCache[kind.Pod] = nil
			_, err := p.Kind(kind.Pod).Reconcile(t.Context(), key, 0)
			require.NoError(t, err)
			require.NoError(t, p.Tenant.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
			require.Equal(t, tc.want, pod.Status.Phase)
			require.NotNil(t, pod.DeletionTimestamp)
			reason := ""
			for i := range pod.Status.Conditions {
				if pod.Status.Conditions[i].Type == corev1.DisruptionTarget {
					reason = pod.Status.Conditions[i].Reason
				}
			}
			require.Equal(t, tc.wantReason, reason)
		})
	}
}

// TestPodBeforeItsConfig lets a pod be faster than what it refers to. It is optional, so a kubelet would not wait for
// it.
func TestPodBeforeItsConfig(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		// tenant is the UID of the ConfigMap in the tenant, super that which the one in the super cluster was made for;
		// "" for none.
		tenant, super types.UID
		waited        time.Duration
		wantWait      bool
	}{
		{name: "there is none"},
		{name: "it has not come down yet", tenant: "new", wantWait: true},
		{name: "an older one is there", tenant: "new", super: "old", wantWait: true},
		{name: "it is there", tenant: "new", super: "new"},
		{name: "it does not come", tenant: "new", waited: 13 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.NewPool(t, interceptor.Funcs{})
			p.Placed(t)
			pod := kindtest.TenantPod(func(pod *corev1.Pod) {
				pod.Labels = map[string]string{schedulerv1alpha1.LabelSuperCluster: "r1"}
				pod.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}, Optional: ptr.To(true),
				}}}
			})
			p.TenantCache[kind.Pod] = []client.Object{pod}
			p.SuperCache[kind.ServiceAccount] = []client.Object{&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: kindtest.ClusterKey + "-web", Name: "default"}}}
			if tc.tenant != "" {
				p.TenantCache[kind.ConfigMap] = []client.Object{&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "settings", UID: tc.tenant}}}
			}
			if tc.super != "" {
				configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: kindtest.ClusterKey + "-web", Name: "settings"}}
				tenancy.SetOwner(configMap, kindtest.OwnerOf(tc.super))
				p.SuperCache[kind.ConfigMap] = []client.Object{configMap}
			}
			key := engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Pod, Namespace: "web", Name: pod.Name}
			_, err := p.Kind(kind.Pod).Reconcile(t.Context(), key, tc.waited)
			wait := &engine.WaitError{}
			require.Equal(t, tc.wantWait, errors.As(err, &wait), "%v", err)
			err = p.SuperClient.Get(t.Context(), client.ObjectKey{Namespace: kindtest.ClusterKey + "-web", Name: pod.Name}, &corev1.Pod{})
			require.Equal(t, tc.wantWait, apierrors.IsNotFound(err), "%v", err)
		})
	}
}

// TestResize lets a tenant change what a pod asks for while it runs.
func TestResize(t *testing.T) {
	t.Parallel()
	requests := func(cpu, memory string) corev1.ResourceRequirements {
		return builders.Requests("cpu", cpu, "memory", memory)
	}
	for _, tc := range []struct {
		name       string
		generation int64
		change     func(pod *corev1.Pod)
		// want are the requests of containers and init containers that go down, "" when nothing does.
		want string
	}{
		{name: "nothing has changed", generation: 2},
		{name: "a container", generation: 2, want: "200m 1Gi, 100m 1Gi", change: func(pod *corev1.Pod) { pod.Spec.Containers[0].Resources = requests("200m", "1Gi") }},
		{name: "a sidecar", generation: 2, want: "100m 1Gi, 100m 2Gi", change: func(pod *corev1.Pod) { pod.Spec.InitContainers[0].Resources = requests("100m", "2Gi") }},
		{name: "the super cluster's own policy", generation: 1, change: func(pod *corev1.Pod) { pod.Spec.Containers[0].Resources = requests("200m", "1Gi") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := ""
			p := kindtest.NewPool(t, interceptor.Funcs{
				SubResourceUpdate: func(_ context.Context, _ client.Client, subresource string, object client.Object, _ ...client.SubResourceUpdateOption) error {
					require.Equal(t, "resize", subresource)
					pod, ok := object.(*corev1.Pod)
					require.True(t, ok)
					of := func(container *corev1.Container) string {
						return container.Resources.Requests.Cpu().String() + " " + container.Resources.Requests.Memory().String()
					}
					got = of(&pod.Spec.Containers[0]) + ", " + of(&pod.Spec.InitContainers[0])
					return nil
				},
			})
			p.Placed(t)
			pod, _, key := p.Running(t, func(pod *corev1.Pod) {
				pod.Generation = tc.generation
				pod.Spec.Containers[0].Resources = requests("100m", "1Gi")
				pod.Spec.InitContainers = []corev1.Container{{Name: "side", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways), Resources: requests("100m", "1Gi")}}
			})
			if tc.change != nil {
				tc.change(pod)
			}
			_, err := p.Kind(kind.Pod).Reconcile(t.Context(), key, 0)
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		})
	}
}

// TestResizeThatAdds: a resize may name what the pod has not named before. Until that is below, no generation is
// observed.
func TestResizeThatAdds(t *testing.T) {
	t.Parallel()
	added := builders.Resources("cpu", "200m", "memory", "100Mi")
	podLevel := func(of corev1.ResourceList) *corev1.ResourceRequirements {
		return &corev1.ResourceRequirements{Requests: of}
	}
	for _, tc := range []struct {
		name string
		// before is what the pod begins with; change what the tenant resizes.
		before, change func(spec *corev1.PodSpec)
		// got is what of the spec must be as the tenant wants it.
		got func(spec *corev1.PodSpec) corev1.ResourceList
	}{
		{
			name: "limits", change: func(spec *corev1.PodSpec) { spec.Containers[0].Resources.Limits = added },
			got: func(spec *corev1.PodSpec) corev1.ResourceList { return spec.Containers[0].Resources.Limits },
		},
		{
			name: "limits of a sidecar", change: func(spec *corev1.PodSpec) { spec.InitContainers[0].Resources.Limits = added },
			got: func(spec *corev1.PodSpec) corev1.ResourceList { return spec.InitContainers[0].Resources.Limits },
		},
		{
			name:   "requests beside those of the pod",
			before: func(spec *corev1.PodSpec) { spec.Resources = podLevel(builders.Resources("cpu", "1", "memory", "1Gi")) },
			change: func(spec *corev1.PodSpec) { spec.Containers[0].Resources.Requests = added },
			got:    func(spec *corev1.PodSpec) corev1.ResourceList { return spec.Containers[0].Resources.Requests },
		},
		{
			name:   "requests of the pod",
			before: func(spec *corev1.PodSpec) { spec.Resources = podLevel(builders.Resources("cpu", "1")) },
			change: func(spec *corev1.PodSpec) { spec.Resources = podLevel(added) },
			got:    func(spec *corev1.PodSpec) corev1.ResourceList { return spec.Resources.Requests },
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var resized *corev1.Pod
			p := kindtest.NewPool(t, interceptor.Funcs{
				SubResourceUpdate: func(_ context.Context, _ client.Client, _ string, object client.Object, _ ...client.SubResourceUpdateOption) error {
					resized, _ = object.(*corev1.Pod)
					return nil
				},
			})
			p.Placed(t)
			pod, superPod, key := p.Running(t, func(pod *corev1.Pod) {
				pod.Spec.InitContainers = []corev1.Container{{Name: "side", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}}
				if tc.before != nil {
					tc.before(&pod.Spec)
				}
			})
			superPod.Generation, superPod.Status.ObservedGeneration = 3, 3
			pod.Generation = 2
			tc.change(&pod.Spec)
			for _, done := range []bool{false, true} {
				_, err := p.Kind(kind.Pod).Reconcile(t.Context(), key, 0)
				require.NoError(t, err)
				require.NotNil(t, resized)
				require.Empty(t, cmp.Diff(added, tc.got(&resized.Spec)))
				live := &corev1.Pod{}
				require.NoError(t, p.Tenant.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), live))
				require.Equal(t, done, live.Status.ObservedGeneration == 2)
				superPod.Spec, pod.ResourceVersion = resized.Spec, live.ResourceVersion
			}
		})
	}
}

// TestObservedGeneration: when a kubelet has seen what the tenant wants now.
func TestObservedGeneration(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name            string
		change          func(pod *corev1.Pod)
		super, observed int64
		want            int64
	}{
		{name: "it has", super: 3, observed: 3, want: 7},
		{name: "it has seen what was before", super: 3, observed: 2},
		{name: "the change has not come down", super: 3, observed: 3, change: func(pod *corev1.Pod) { pod.Spec.Containers[0].Image = "image:2" }},
		{name: "a container to debug with has not come down", super: 3, observed: 3, change: func(pod *corev1.Pod) {
			pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{}}
		}},
		{name: "the super cluster is too old to say"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			nothing := func(context.Context, client.Client, string, client.Object, ...client.SubResourceUpdateOption) error {
				return nil
			}
			p := kindtest.NewPool(t, interceptor.Funcs{
				Update:            func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error { return nil },
				SubResourceUpdate: nothing,
			})
			pod, superPod, key := p.Running(t, func(pod *corev1.Pod) { pod.Generation = 7 })
			superPod.Generation, superPod.Status.ObservedGeneration = tc.super, tc.observed
			if tc.change != nil {
				tc.change(pod)
			}
			_, err := p.Kind(kind.Pod).Reconcile(t.Context(), key, 2*time.Second)
			require.NoError(t, err)
			require.NoError(t, p.Tenant.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
			require.Equal(t, corev1.PodRunning, pod.Status.Phase)
			require.Equal(t, tc.want, pod.Status.ObservedGeneration)
		})
	}
}

// BenchmarkPodInSync is a look at a pod that runs and is as it should be: each patrol takes one at every pod.
func BenchmarkPodInSync(b *testing.B) {
	for _, containers := range []int{1, 10} {
		b.Run(fmt.Sprintf("containers=%d", containers), func(b *testing.B) {
			p := kindtest.NewPool(b, interceptor.Funcs{})
			pod := kindtest.TenantPod(func(pod *corev1.Pod) {
				pod.Spec.NodeName = "r1.node-1"
				for i := range containers - 1 {
					pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", i), Image: "app:1", Env: []corev1.EnvVar{kindtest.FieldEnv("metadata.namespace")}})
				}
			})
			superPod := &corev1.Pod{}
			podspec.SuperPod(pod, superPod, kindtest.OwnerOf(pod.UID), nil, &podspec.PodEnvironment{})
			superPod.UID, superPod.Spec.NodeName = "super-uid", "node-1"
			superPod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}}
			for _, kind := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady} {
				superPod.Status.Conditions = append(superPod.Status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue})
			}
			for i := range superPod.Spec.Containers {
				superPod.Status.ContainerStatuses = append(superPod.Status.ContainerStatuses, corev1.ContainerStatus{
					Name: superPod.Spec.Containers[i].Name, Image: "app:1", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
				})
			}
			status, _ := podspec.TenantPodStatus(pod, superPod, "r1", time.Unix(300, 0))
			pod.Status = *status
			p.TenantCache[kind.Pod], p.SuperCache[kind.Pod] = []client.Object{pod}, []client.Object{superPod}
			key := engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Pod, Namespace: pod.Namespace, Name: pod.Name}
			kind := p.Kind(kind.Pod)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := kind.Reconcile(b.Context(), key, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestWhatGoesDown looks at the writes to a super pod for what the tenant has changed.
func TestWhatGoesDown(t *testing.T) {
	t.Parallel()
	debug := func(pod *corev1.Pod) {
		pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}}
	}
	resize := func(pod *corev1.Pod) {
		pod.Generation = 2
		pod.Spec.Containers[0].Resources.Requests = builders.Resources("cpu", "200m")
	}
	label := func(pod *corev1.Pod) { pod.Labels["team"] = "a" }
	for _, tc := range []struct {
		name    string
		changes []func(pod *corev1.Pod)
		// deleted is whether the super cluster deletes the super pod.
		deleted bool
		want    []string
	}{
		{name: "nothing"},
		{name: "a label", changes: []func(*corev1.Pod){label}, want: []string{"update"}},
		{name: "an ephemeral container", changes: []func(*corev1.Pod){debug}, want: []string{"ephemeralcontainers"}},
		{name: "a size", changes: []func(*corev1.Pod){resize}, want: []string{"resize"}},
		{name: "an ephemeral container and a size", changes: []func(*corev1.Pod){debug, resize}, want: []string{"ephemeralcontainers", "resize"}},
		{name: "a label first", changes: []func(*corev1.Pod){debug, resize, label}, want: []string{"update"}},
		{name: "nothing to a pod that is being deleted", changes: []func(*corev1.Pod){debug, resize, label}, deleted: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			p := kindtest.NewPool(t, interceptor.Funcs{
				Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error {
					got = append(got, "update")
					return nil
				},
				SubResourceUpdate: func(_ context.Context, _ client.Client, subresource string, _ client.Object, _ ...client.SubResourceUpdateOption) error {
					got = append(got, subresource)
					return nil
				},
			})
			p.Placed(t)
			pod, superPod, key := p.Running(t, func(pod *corev1.Pod) {
				pod.Spec.Containers[0].Resources.Requests = builders.Resources("cpu", "100m")
			})
			for _, change := range tc.changes {
				change(pod)
			}
			if tc.deleted {
				superPod.DeletionTimestamp = ptr.To(metav1.Now())
			}
			_, err := p.Kind(kind.Pod).Reconcile(t.Context(), key, 0)
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(tc.want, got))
		})
	}
}

// TestStatusOfAnyExponent: the status of a tenant's pod is compared with that of its super pod.
func TestStatusOfAnyExponent(t *testing.T) {
	t.Parallel()
	for _, written := range []string{"1e2147483647", "0e2147483647"} {
		t.Run(written, func(t *testing.T) {
			t.Parallel()
			p := kindtest.NewPool(t, interceptor.Funcs{})
			status := func(memory string) []corev1.ContainerStatus {
				return []corev1.ContainerStatus{{Name: "main", AllocatedResources: builders.Resources("memory", memory)}}
			}
			_, superPod, key := p.Running(t, func(pod *corev1.Pod) {
				pod.Status.Phase, pod.Status.ContainerStatuses = corev1.PodRunning, status(written)
			})
			superPod.Status.ContainerStatuses = status("4")
			done := make(chan error, 1)
			go func() {
				_, err := p.Kind(kind.Pod).Reconcile(t.Context(), key, 0)
				done <- err
			}()
			select {
			case err := <-done:
				require.NoError(t, err)
			case <-time.After(10 * time.Second):
				t.Fatal("the reconcile takes more than 10 s")
			}
		})
	}
}
