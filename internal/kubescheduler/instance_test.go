package kubescheduler

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/featuregate"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler"

	"github.com/superpool/superpool/internal/refusal"
	"github.com/superpool/superpool/plugins"
	"github.com/superpool/superpool/test/builders"
)

func TestFeatureGates(t *testing.T) {
	require.False(t, utilfeature.DefaultFeatureGate.Enabled(features.SchedulerPopFromBackoffQ))
	require.False(t, utilfeature.DefaultFeatureGate.Enabled(features.NominatedNodeNameForExpectation))
	require.False(t, utilfeature.DefaultFeatureGate.Enabled(features.DRADeviceTaintRules))
	require.False(t, utilfeature.DefaultFeatureGate.Enabled(features.StorageCapacityScoring))
	require.False(t, utilfeature.DefaultFeatureGate.Enabled(features.OpportunisticBatching))
	require.NoError(t, CheckFeatures())
	for _, feature := range []featuregate.Feature{features.GenericWorkload, features.InPlacePodVerticalScalingSchedulerPreemption} {
		t.Run(string(feature), func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, feature, true)
			require.ErrorContains(t, CheckFeatures(), string(feature)+" of kube-scheduler must be false")
		})
	}
}

func TestBuildRefuses(t *testing.T) {
	cfg, err := LoadConfig("", []byte("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"))
	require.NoError(t, err)
	cfg.Profiles = nil
	api := builders.Clientset()
	_, err = Instance{Client: api, Informers: informers.NewSharedInformerFactory(api, 0), Config: cfg, Recorders: NoEvents}.Build(t.Context())
	require.ErrorContains(t, err, "building a scheduler: ")
}

// run runs the scheduler of an instance until stop is called.
func run(ctx context.Context, t *testing.T, instance *Instance) (sched *scheduler.Scheduler, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	sched, err := instance.Build(ctx)
	require.NoError(t, err)
	instance.Informers.StartWithContext(ctx)
	instance.Informers.WaitForCacheSync(ctx.Done())
	require.NoError(t, sched.WaitForHandlersSync(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		sched.Run(ctx)
	}()
	return sched, func() {
		cancel()
		<-ended
		instance.Informers.Shutdown()
	}
}

// TestFailed runs a scheduler whose only node is too small: Failed is called with the pod and the reason, the status
// that it returns decides what kube-scheduler does, and condition and Event say the reason.
func TestFailed(t *testing.T) {
	for name, tc := range map[string]struct {
		replace    bool
		wantReason string
	}{
		"the status as it is": {wantReason: corev1.PodReasonUnschedulable},
		"another status":      {replace: true, wantReason: corev1.PodReasonSchedulerError},
	} {
		t.Run(name, func(t *testing.T) {
			_, ctx := ktesting.NewTestContext(t)
			api := builders.Clientset(builders.Node("r1", "cpu", "1", "pods", "10").Obj(),
				builders.Pod("web", "large", "cpu", "2").SchedulerName(corev1.DefaultSchedulerName).Obj())
			cfg, err := LoadConfig("", []byte("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"))
			require.NoError(t, err)
			var mu sync.Mutex
			failed := map[string]string{}
			recorder := events.NewFakeRecorder(100)
			instance := Instance{
				Client: api, Informers: informers.NewSharedInformerFactory(api, 0), Config: cfg, Plugins: plugins.Options{},
				Recorders: func(string) events.EventRecorderLogger { return recorder },
				Failed: func(_ context.Context, pod *corev1.Pod, status *fwk.Status, why refusal.Refusal) *fwk.Status {
					mu.Lock()
					defer mu.Unlock()
					failed[pod.Namespace+"/"+pod.Name] = why.Message
					if tc.replace {
						return fwk.AsStatus(errors.New("in other words"))
					}
					return status
				},
			}
			_, stop := run(ctx, t, &instance)
			defer stop()

			const want = "0/1 super clusters are available: 1 has too little free cpu"
			require.EventuallyWithT(t, func(c *assert.CollectT) {
				mu.Lock()
				message := failed["web/large"]
				mu.Unlock()
				require.Equal(c, want, message)
				pod, err := api.CoreV1().Pods("web").Get(t.Context(), "large", metav1.GetOptions{})
				require.NoError(c, err)
				require.Len(c, pod.Status.Conditions, 1)
				require.Equal(c, want, pod.Status.Conditions[0].Message)
				require.Equal(c, tc.wantReason, pod.Status.Conditions[0].Reason)
			}, 20*time.Second, 10*time.Millisecond)
			require.Equal(t, "Warning FailedScheduling "+want, <-recorder.Events)
		})
	}
}

// TestRefused: a Pod that must wait is not scheduled, and its Event has the reason of those that must.
func TestRefused(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	api := builders.Clientset(builders.Node("r1", "cpu", "1", "pods", "10").Obj(),
		builders.Pod("web", "small", "cpu", "1").SchedulerName(corev1.DefaultSchedulerName).Obj())
	cfg, err := LoadConfig("", []byte("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"))
	require.NoError(t, err)
	recorder := events.NewFakeRecorder(100)
	instance := Instance{
		Client: api, Informers: informers.NewSharedInformerFactory(api, 0), Config: cfg,
		Recorders: func(string) events.EventRecorderLogger { return recorder },
		Refused:   func(*corev1.Pod) string { return "not on Mondays" }, RefusedReason: "Closed",
	}
	_, stop := run(ctx, t, &instance)
	defer stop()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		pod, err := api.CoreV1().Pods("web").Get(t.Context(), "small", metav1.GetOptions{})
		require.NoError(c, err)
		require.Len(c, pod.Status.Conditions, 1)
		require.Equal(c, "not on Mondays", pod.Status.Conditions[0].Message)
		require.Empty(c, pod.Spec.NodeName)
	}, 20*time.Second, 10*time.Millisecond)
	require.Equal(t, "Warning Closed not on Mondays", <-recorder.Events)
}

// TestHinted: a Pod is tried again when a taint ends for which it was refused, though it has a toleration of it that it
// is judged without.
func TestHinted(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	tainted := builders.Node("r1", "cpu", "1", "pods", "10").Obj()
	tainted.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
	pod := builders.Pod("web", "small", "cpu", "1").SchedulerName(corev1.DefaultSchedulerName).Obj()
	pod.Spec.Tolerations = []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}
	api := builders.Clientset(tainted, pod)
	cfg, err := LoadConfig("", []byte("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"+
		"profiles: [{schedulerName: default-scheduler, plugins: {multiPoint: {enabled: [{name: NodeNameOrder}]}}}]\n"))
	require.NoError(t, err)
	without := func(pod *corev1.Pod) *corev1.Pod {
		judged := pod.DeepCopy()
		judged.Spec.Tolerations = nil
		return judged
	}
	instance := Instance{
		Client: api, Informers: informers.NewSharedInformerFactory(api, 0), Config: cfg, Recorders: NoEvents,
		Judged: func(pod *corev1.Pod) (*corev1.Pod, string) { return without(pod), "" }, Hinted: without,
	}
	_, stop := run(ctx, t, &instance)
	defer stop()
	// It is in the queue before its condition is written. What the queue holds of it is not to be read meanwhile.
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		pod, err := api.CoreV1().Pods("web").Get(t.Context(), "small", metav1.GetOptions{})
		require.NoError(c, err)
		require.Len(c, pod.Status.Conditions, 1)
		require.Equal(c, "0/1 super clusters are available: 1 tainted by the operator (gpu)", pod.Status.Conditions[0].Message)
	}, 20*time.Second, time.Millisecond, "a taint alone refuses it")
	open := tainted.DeepCopy()
	open.ResourceVersion, open.Spec.Taints = "2", nil
	_, err = api.CoreV1().Nodes().Update(ctx, open, metav1.UpdateOptions{})
	require.NoError(t, err)
	isBound := func() bool {
		return slices.ContainsFunc(api.Actions(), func(action clienttesting.Action) bool { return action.GetSubresource() == "binding" })
	}
	require.Eventually(t, isBound, 20*time.Second, time.Millisecond, "it is tried again")
}
