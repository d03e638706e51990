package syncer

import (
	"context"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/reference"

	"github.com/superpool/superpool/internal/syncer/kind"
)

// maxEventsWaiting bounds the Events of one tenant that wait for its API server. client-go's broadcaster has room for
// as many, and drops what is beyond without a word.
const maxEventsWaiting = 1000

// boundedRecorder is a kind.Recorder that takes no Event which the broadcaster would drop.
type boundedRecorder struct {
	recorder record.EventRecorder
	// waiting is the number of Events that the broadcaster has, but for the one that it writes.
	waiting atomic.Int64
}

// recorderTo returns a recorder of Events into sink, and the function that shuts it down.
func recorderTo(ctx context.Context, sink record.EventSink) (kind.Recorder, func()) {
	bounded := &boundedRecorder{}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx), record.WithCorrelatorOptions(record.CorrelatorOptions{
		KeyFunc: func(event *corev1.Event) (string, string) { // it is called once, before an Event is written
			bounded.waiting.Add(-1)
			return record.EventAggregatorByReasonFunc(event)
		},
	}))
	broadcaster.StartRecordingToSink(ownEvents{sink})
	bounded.recorder = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "superpool-syncer"})
	return bounded, broadcaster.Shutdown
}

// Event implements kind.Recorder. An Event about what is no object of the API is dropped.
func (r *boundedRecorder) Event(object runtime.Object, eventType, reason, message string) bool {
	if _, err := reference.GetReference(scheme.Scheme, object); err != nil {
		return true
	}
	if r.waiting.Add(1) > maxEventsWaiting {
		r.waiting.Add(-1)
		return false
	}
	r.recorder.Event(object, eventType, reason, message)
	return true
}

// ownEvents is a record.EventSink that returns the Events that it was given, nothing that an API server says of them:
// the broadcaster keeps what it is returned of some thousand Events, and a tenant's API server may answer each request
// with one of many megabytes, or with the name of another.
type ownEvents struct{ record.EventSink }

// Create implements record.EventSink.
func (s ownEvents) Create(event *corev1.Event) (*corev1.Event, error) {
	_, err := s.EventSink.Create(event)
	return event, err //nolint:wrapcheck // the broadcaster looks at its type
}

// Update implements record.EventSink.
func (s ownEvents) Update(event *corev1.Event) (*corev1.Event, error) {
	_, err := s.EventSink.Update(event)
	return event, err //nolint:wrapcheck // as above
}

// Patch implements record.EventSink.
func (s ownEvents) Patch(event *corev1.Event, data []byte) (*corev1.Event, error) {
	_, err := s.EventSink.Patch(event, data)
	return event, err //nolint:wrapcheck // as above
}
