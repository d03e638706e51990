package tenantevents

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"

	"github.com/superpool/superpool/test/builders"
)

// hungSink answers no request before its context ends.
type hungSink struct{}

func (hungSink) Create(ctx context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	<-ctx.Done()
	return event, ctx.Err()
}

func (s hungSink) Update(ctx context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	return s.Create(ctx, event)
}

func (s hungSink) Patch(ctx context.Context, event *eventsv1.Event, _ []byte) (*eventsv1.Event, error) {
	return s.Create(ctx, event)
}

// TestEventsThatNobodyTakes: however many Events are recorded for an API server that does not answer, few goroutines
// wait for it, also when the broadcaster refreshes series of Events.
func TestEventsThatNobodyTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		writer := &eventWriter{sink: hungSink{}}
		broadcaster := events.NewBroadcaster(writer)
		require.NoError(t, broadcaster.StartRecordingToSinkWithContext(ctx))
		recorder := broadcaster.NewRecorder(scheme.Scheme, "test")
		synctest.Wait()
		before := runtime.NumGoroutine()
		record := func(pods int) {
			for i := range 4_000 {
				pod := builders.Pod("web", fmt.Sprint(i%pods)).UID(fmt.Sprint(i % pods)).Obj()
				recorder.Eventf(pod, nil, corev1.EventTypeWarning, "Reason", "Action", "note")
				if i%500 == 0 {
					synctest.Wait() // the broadcaster has taken them
				}
			}
			synctest.Wait()
			goroutines := runtime.NumGoroutine() - before
			for range 100_000 { // those that have ended may count for a moment
				if goroutines <= eventWriters {
					break
				}
				runtime.Gosched()
				goroutines = runtime.NumGoroutine() - before
			}
			require.LessOrEqual(t, goroutines, eventWriters)
			writer.mu.Lock()
			defer writer.mu.Unlock()
			require.LessOrEqual(t, len(writer.waiting), maxEventsWaiting)
		}
		record(4_000)
		record(2)
		<-time.After(31 * time.Minute) // it refreshes series each 30 minutes
		record(2)
		cancel()
		broadcaster.Shutdown()
		synctest.Wait()
		require.Zero(t, writer.writers)
		require.Empty(t, writer.waiting)
	})
}

// scriptedSink notes requests, and answers each with the next error.
type scriptedSink struct {
	answers  []error
	requests []string
}

func (s *scriptedSink) answer(verb string, event *eventsv1.Event) (*eventsv1.Event, error) {
	s.requests = append(s.requests, fmt.Sprintf("%s %s %d", verb, event.Name, event.DeprecatedCount))
	if len(s.answers) == 0 {
		return event, nil
	}
	err := s.answers[0]
	s.answers = s.answers[1:]
	return event, err
}

func (s *scriptedSink) Create(_ context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	return s.answer("create", event)
}

func (s *scriptedSink) Update(_ context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	return s.answer("update", event)
}

func (s *scriptedSink) Patch(_ context.Context, event *eventsv1.Event, _ []byte) (*eventsv1.Event, error) {
	return s.answer("patch", event)
}

// TestEventWriter: what becomes of an Event that an API server does not take.
func TestEventWriter(t *testing.T) {
	t.Parallel()
	missing := apierrors.NewNotFound(schema.GroupResource{Resource: "events"}, "e")
	refused := &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusForbidden}}
	broken := errors.New("connection refused")
	for _, tc := range []struct {
		name    string
		patched bool
		answers []error
		want    []string
	}{
		{name: "created", want: []string{"create e 1"}},
		{name: "patched", patched: true, want: []string{"patch e 1"}},
		{name: "patched, and not there", patched: true, answers: []error{missing}, want: []string{"patch e 1", "create e 1"}},
		{name: "refused", answers: []error{refused}, want: []string{"create e 1"}},
		{name: "not answered at first", answers: []error{broken, broken}, want: []string{"create e 1", "create e 1", "create e 1"}},
		{name: "never answered", answers: []error{broken, broken, broken, broken, broken, broken}, want: []string{"create e 1", "create e 1", "create e 1", "create e 1", "create e 1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				sink := &scriptedSink{answers: tc.answers}
				writer := &eventWriter{sink: sink}
				event := &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e"}, DeprecatedCount: 1}
				write := writer.Create
				if tc.patched {
					write = func(ctx context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
						return writer.Patch(ctx, event, nil)
					}
				}
				returned, err := write(t.Context(), event)
				require.NoError(t, err)
				require.Same(t, event, returned)
				event.DeprecatedCount++ // the broadcaster counts on
				<-time.After(time.Hour)
				synctest.Wait()
				require.Empty(t, cmp.Diff(tc.want, sink.requests))
				require.Zero(t, writer.writers)
			})
		})
	}
}

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
