package syncer

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/test/builders"
)

// forgingSink answers each request with an Event of its own, and notes which Event was asked about.
type forgingSink struct {
	record.EventSink
	requests chan string
}

func (s *forgingSink) answer(verb string, event *corev1.Event) (*corev1.Event, error) {
	s.requests <- verb + " " + event.Name
	forged := event.DeepCopy()
	forged.Name = "forged"
	return forged, nil
}

func (s *forgingSink) Create(event *corev1.Event) (*corev1.Event, error) {
	return s.answer("create", event)
}

func (s *forgingSink) Patch(event *corev1.Event, _ []byte) (*corev1.Event, error) {
	return s.answer("patch", event)
}

// TestAnswersToEvents: what an API server answers to an Event is not kept: the next one like it is counted under the
// name that the first one was given.
func TestAnswersToEvents(t *testing.T) {
	t.Parallel()
	server := &forgingSink{requests: make(chan string, 3)}
	recorder, _ := recorderTo(t.Context(), server)
	var requests []string
	for range 3 {
		recorder.Event(builders.Pod("web", "p").UID("p").Obj(), corev1.EventTypeWarning, "Reason", "message")
		requests = append(requests, <-server.requests)
	}
	name, isCreated := strings.CutPrefix(requests[0], "create ")
	require.True(t, isCreated, requests[0])
	require.Empty(t, cmp.Diff([]string{"create " + name, "patch " + name, "patch " + name}, requests))
}

// heldSink takes no Event before it is let go, and counts by object what it has taken.
type heldSink struct {
	record.EventSink
	letGo chan struct{}
	mu    sync.Mutex
	taken map[string]int
}

func (s *heldSink) Create(event *corev1.Event) (*corev1.Event, error) {
	<-s.letGo
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken[event.InvolvedObject.Name]++
	return event, nil
}

// TestEventsAreSaidInTheEnd: what is to be said of thousands of objects at once is said of each of them once, some of
// it when they are looked at again.
func TestEventsAreSaidInTheEnd(t *testing.T) {
	t.Parallel()
	const pods = 3000
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		sink := &heldSink{letGo: make(chan struct{}), taken: map[string]int{}}
		recorder, stop := recorderTo(ctx, sink)
		env, tenant := &kind.Env{}, &kind.Tenant{Recorder: recorder}
		look := func() {
			for i := range pods {
				pod := builders.Pod("web", fmt.Sprint(i)).UID(fmt.Sprint(i)).Obj()
				env.WarnOnce(tenant, engine.Key{Kind: kind.Pod, Namespace: "web", Name: pod.Name}, pod, kind.ReasonFailedCreate, "message")
				if i%100 == 0 {
					synctest.Wait() // the broadcaster has taken them
				}
			}
			synctest.Wait()
		}
		look()
		close(sink.letGo)
		for range 4 {
			look()
		}
		cancel()
		stop()
		require.Len(t, sink.taken, pods)
		for pod, times := range sink.taken {
			require.Equal(t, 1, times, pod)
		}
	})
}
