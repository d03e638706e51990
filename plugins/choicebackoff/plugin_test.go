package choicebackoff_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/failedchoice"
	"github.com/superpool/superpool/internal/slicepod"
	"github.com/superpool/superpool/plugins/choicebackoff"
	"github.com/superpool/superpool/plugins/internal/plugintest"
)

// holding returns a Node of the pod view where a namespace holds room for pods.
func holding(name, namespace, pods string) *corev1.Node {
	return st.MakeNode().Name(name).Capacity(map[corev1.ResourceName]string{slicepod.Resource(corev1.ResourcePods, namespace): pods}).Obj()
}

// failed returns a pod of namespace web that super clusters did not take, so long ago.
func failed(ago map[string]time.Duration) *corev1.Pod {
	failures := failedchoice.Failures{}
	for name, before := range ago {
		failures[name] = failedchoice.Failures(nil).Plus(name, failedchoice.Quota, time.Now().Add(-before))[name]
	}
	return st.MakePod().Namespace("web").Name("p").Annotation(schedulerv1alpha1.AnnotationFailedSuperClusters, failures.String()).Obj()
}

func TestFilter(t *testing.T) {
	const out = choicebackoff.ErrReasonFailed
	asking := failed(map[string]time.Duration{"r1": 0})
	asking.Annotations[schedulerv1alpha1.AnnotationSuperCluster] = "r1"
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want map[string]string
	}{
		"it never failed":        {pod: st.MakePod().Namespace("web").Obj()},
		"nonsense":               {pod: st.MakePod().Namespace("web").Annotation(schedulerv1alpha1.AnnotationFailedSuperClusters, "x").Obj()},
		"one failed":             {pod: failed(map[string]time.Duration{"r1": time.Minute}), want: map[string]string{"r1": out}},
		"two failed":             {pod: failed(map[string]time.Duration{"r1": time.Minute, "r3": 0}), want: map[string]string{"r1": out, "r3": out}},
		"long ago":               {pod: failed(map[string]time.Duration{"r1": 6 * time.Minute})},
		"one that holds nothing": {pod: failed(map[string]time.Duration{"r4": 0, "r5": 0})},
		"all failed":             {pod: failed(map[string]time.Duration{"r1": time.Minute, "r2": 2 * time.Minute, "r3": 0}), want: map[string]string{"r1": out, "r3": out}},
		"all failed, and one that has nothing before them": {
			pod:  failed(map[string]time.Duration{"r1": time.Minute, "r2": 2 * time.Minute, "r3": 0, "r4": 4 * time.Minute}),
			want: map[string]string{"r1": out, "r3": out},
		},
		"it asks": {pod: asking},
	} {
		t.Run(name, func(t *testing.T) {
			f := plugintest.NewFramework(t, choicebackoff.Name, choicebackoff.New, []*corev1.Node{
				holding("r1", "web", "10"), holding("r2", "web", "10"), holding("r3", "web", "10"), holding("r4", "other", "10"), holding("r5", "web", "0"),
			})
			got, status := f.Filter(t.Context(), tc.pod)
			require.True(t, status.IsSuccess() || status.IsSkip(), status.Message())
			for name, message := range got {
				if message == "" {
					delete(got, name)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" && len(tc.want)+len(got) > 0 {
				t.Errorf("refused (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHint(t *testing.T) {
	f := plugintest.NewFramework(t, choicebackoff.Name, choicebackoff.New, nil)
	for name, tc := range map[string]struct {
		action        fwk.ActionType
		before, after any
		want          plugintest.Hint
	}{
		"another super cluster":             {fwk.Add, nil, holding("r2", "web", "1"), plugintest.Queues},
		"one of another namespace":          {fwk.Add, nil, holding("r2", "other", "1"), plugintest.Skips},
		"the namespace gets something":      {fwk.UpdateNodeAllocatable, holding("r2", "web", "0"), holding("r2", "web", "1"), plugintest.Queues},
		"it gets more":                      {fwk.UpdateNodeAllocatable, holding("r2", "web", "1"), holding("r2", "web", "2"), plugintest.Skips},
		"it loses what it has there":        {fwk.UpdateNodeAllocatable, holding("r2", "web", "1"), holding("r2", "web", "0"), plugintest.Queues},
		"the super cluster leaves the pool": {fwk.Delete, holding("r2", "web", "1"), nil, plugintest.Queues},
		"a taint":                           {fwk.UpdateNodeTaint, holding("r2", "web", "1"), holding("r2", "web", "1"), plugintest.Sleeps},
	} {
		t.Run(name, func(t *testing.T) {
			event := fwk.ClusterEvent{Resource: fwk.Node, ActionType: tc.action}
			require.Equal(t, tc.want, f.Hint(t, choicebackoff.Name, event, failed(map[string]time.Duration{"r1": 0}), tc.before, tc.after))
		})
	}
}
