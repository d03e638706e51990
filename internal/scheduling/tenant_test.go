package scheduling

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"

	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/view"
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

// TestTenantWithoutRights reads a tenant control plane that refuses one of the lists.
func TestTenantWithoutRights(t *testing.T) {
	t.Parallel()
	for name, refused := range map[string]string{"all is allowed": "", "no pods": "pods", "no quotas": "resourcequotas"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := fake.NewClientset()
			api.PrependReactor("list", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
				resource := action.GetResource().GroupResource()
				return resource.Resource == refused, nil, apierrors.NewForbidden(resource, "", nil)
			})
			ctx, cancel := context.WithCancel(schedulertest.Context(t))
			factory := tenantInformers(api, view.NewNodeSource())
			failure := watchFailure(factory)
			factory.Start(ctx.Done())
			defer factory.Shutdown()
			defer cancel()
			err := waitForCaches(ctx, factory, failure, 100*time.Millisecond)
			if refused == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, refused+" is forbidden")
		})
	}
}
