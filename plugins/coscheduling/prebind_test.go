package coscheduling

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
)

// clientHandle is a handle with nothing but a client.
type clientHandle struct {
	framework.Handle
	api kubernetes.Interface
}

func (h clientHandle) ClientSet() kubernetes.Interface { return h.api }

// letGo returns a plugin whose gang web/mpi of these members was let go into r1. They wait for a second.
func letGo(t *testing.T, api kubernetes.Interface, names ...string) (*Coscheduling, map[string]*corev1.Pod) {
	t.Helper()
	pl := &Coscheduling{handle: clientHandle{api: api}, gangs: NewState(), writes: time.Second}
	pods := map[string]*corev1.Pod{}
	for _, name := range names {
		pods[name] = member("mpi", name)
		pl.gangs.reserve(mpi, pods[name].UID, "r1")
	}
	_, _, what := pl.gangs.permit(mpi, pods[names[0]].UID, len(names))
	require.Equal(t, goes, what)
	return pl, pods
}

// preBinds runs PreBind of each pod at once, and returns the outcomes.
func preBinds(t *testing.T, pl *Coscheduling, pods map[string]*corev1.Pod) map[string]<-chan *fwk.Status {
	t.Helper()
	outcomes := map[string]<-chan *fwk.Status{}
	for name, pod := range pods {
		outcome, state := make(chan *fwk.Status, 1), framework.NewCycleState()
		state.Write(stateKey, &cycle{group: mpi})
		outcomes[name] = outcome
		go func() { outcome <- pl.PreBind(t.Context(), state, pod, "r1") }()
	}
	return outcomes
}

// patches returns a clientset that does as it is told with patches of a pod.
func patches(name string, do func() error) *fake.Clientset {
	api := fake.NewClientset()
	api.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if patch, ok := action.(clienttesting.PatchAction); ok && patch.GetName() == name {
			if err := do(); err != nil {
				return true, nil, err
			}
		}
		return true, &corev1.Pod{}, nil
	})
	return api
}

// TestPreBind: all members of a gang have one outcome.
func TestPreBind(t *testing.T) {
	t.Parallel()
	down := apierrors.NewInternalError(errors.New("down"))
	for name, tc := range map[string]struct {
		do   func() error
		want string
	}{
		"all are written":      {do: func() error { return nil }},
		"one write is refused": {do: func() error { return down }, want: "down"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pl, pods := letGo(t, patches("b", tc.do), "a", "b", "c")
			for pod, outcome := range preBinds(t, pl, pods) {
				status := <-outcome
				require.Equal(t, tc.want == "", status.IsSuccess(), pod)
				require.Contains(t, status.Message(), tc.want, pod)
			}
			require.Empty(t, pl.gangs.decisions)
		})
	}
}

// TestPreBindOfASlowWrite: a member that has waited too long for the write of another one, and is released, takes all
// with it, also the one whose write comes through after that.
func TestPreBindOfASlowWrite(t *testing.T) {
	t.Parallel()
	written := make(chan struct{})
	pl, pods := letGo(t, patches("b", func() error {
		<-written
		return nil
	}), "a", "b", "c")
	for _, name := range []string{"a", "c"} { // they have theirs: the clientset writes one at a time
		pods[name].Annotations = map[string]string{schedulerv1alpha1.AnnotationSuperCluster: "r1"}
	}
	outcomes := preBinds(t, pl, pods)
	for _, name := range []string{"a", "c"} {
		require.False(t, (<-outcomes[name]).IsSuccess(), name)
	}
	close(written)
	require.False(t, (<-outcomes["b"]).IsSuccess())
	require.Empty(t, pl.gangs.decisions)
}

// TestPreBindOfAHangingServer: a server that does not answer holds no member for longer than it may wait.
func TestPreBindOfAHangingServer(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the end of a connection is noticed once the body is read
		<-r.Context().Done()
	}))
	api, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	pl, pods := letGo(t, api, "a", "b")
	for name, outcome := range preBinds(t, pl, pods) {
		select {
		case status := <-outcome:
			require.False(t, status.IsSuccess(), name)
		case <-time.After(30 * time.Second):
			t.Error("it hangs", name)
		}
	}
	server.CloseClientConnections()
	server.Close()
}

// TestPreBindOfAGangGivenUp: a member that is so late that its gang was given up, and placed anew, is released.
func TestPreBindOfAGangGivenUp(t *testing.T) {
	t.Parallel()
	pl, pods := letGo(t, patches("", nil), "a", "late")
	pl.gangs.wrote(mpi, pods["a"].UID, errors.New("down"))
	pl.gangs.outcome(mpi, pods["a"].UID)
	pl.gangs.reserve(mpi, pods["a"].UID, "r2")
	_, _, what := pl.gangs.permit(mpi, pods["a"].UID, 1)
	require.Equal(t, goes, what)
	for name, outcome := range preBinds(t, pl, pods) {
		require.Equal(t, name == "a", (<-outcome).IsSuccess(), name)
	}
}

// TestPreBindOfAFollower: a pod that was placed because a gang is whole has the outcome of that gang, also when it asks
// after all others.
func TestPreBindOfAFollower(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ err error }{"written": {}, "failed": {err: errors.New("down")}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pl, pods := letGo(t, patches("", nil), "a")
			follows := pl.gangs.decided(mpi)
			require.NotNil(t, follows)
			pl.gangs.wrote(mpi, pods["a"].UID, tc.err)
			pl.gangs.outcome(mpi, pods["a"].UID)
			state := framework.NewCycleState()
			state.Write(stateKey, &cycle{group: mpi, isWhole: true, follows: follows})
			require.ErrorIs(t, pl.PreBind(t.Context(), state, member("mpi", "b"), "r1").AsError(), tc.err)
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	pl := &Coscheduling{gangs: NewState(), writes: time.Second}
	require.True(t, pl.PreBind(ctx, framework.NewCycleState(), member("", "plain"), "r1").IsSuccess(), "no member")
	require.Empty(t, pl.gangs.decided(types.NamespacedName{}))
}
