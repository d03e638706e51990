package syncer

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"

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
	broadcaster := record.NewBroadcaster(record.WithContext(t.Context()))
	broadcaster.StartRecordingToSink(ownEvents{server})
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "test"})
	var requests []string
	for range 3 {
		recorder.Event(builders.Pod("web", "p").UID("p").Obj(), corev1.EventTypeWarning, "Reason", "message")
		requests = append(requests, <-server.requests)
	}
	name, isCreated := strings.CutPrefix(requests[0], "create ")
	require.True(t, isCreated, requests[0])
	require.Empty(t, cmp.Diff([]string{"create " + name, "patch " + name, "patch " + name}, requests))
}
