package scheduling

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
)

func TestPodRecorder(t *testing.T) {
	t.Parallel()
	recorded := events.NewFakeRecorder(3)
	recorder := podRecorder{recorded}
	pod := &corev1.Pod{}
	recorder.Eventf(pod, nil, corev1.EventTypeNormal, "Scheduled", "Binding", "Successfully assigned %s to %s", "web/p", "r1")
	recorder.Eventf(pod, nil, corev1.EventTypeWarning, "FailedScheduling", "Scheduling", "%d nodes", 0)
	recorder.Eventf(pod, pod, corev1.EventTypeNormal, "Preempted", "Preempting", "by %s", "q")
	close(recorded.Events)
	var got []string
	for event := range recorded.Events {
		got = append(got, event)
	}
	require.Empty(t, cmp.Diff([]string{"Warning FailedScheduling 0 nodes", "Normal Preempted by q"}, got), "the super cluster's scheduler says that it is scheduled")
}
