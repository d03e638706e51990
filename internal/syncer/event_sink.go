package syncer

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
)

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
