package engage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// Answers knows whether a control plane answers, and holds the requests of informers back while it does not: a
// reflector whose requests fail waits for up to a minute before the next, however soon the control plane is back.
//
//	answers ──an informer's request fails (Doubts), or Failed──► held back
//	   ▲                                                           │
//	   └──Answered, asked after that───────────────────────────────┘
//
// The zero value is of one that answers. All methods may be called concurrently.
type Answers struct {
	mu sync.Mutex
	// answered is when the last answer was asked for, and failed when a request got none.
	answered, failed time.Time
	// next is closed by the next answer, nil while nobody waits.
	next chan struct{}
	// doubts holds one signal that a request got no answer.
	doubts chan struct{}
}

// Answered records that the control plane has answered what was asked at that time.
func (a *Answers) Answered(asked time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if asked.After(a.answered) {
		a.answered = asked
	}
	if !a.holdsLocked() && a.next != nil {
		close(a.next)
		a.next = nil
	}
}

// Failed records that the control plane does not answer.
func (a *Answers) Failed() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failed = time.Now()
}

// Doubts signals that a request of an informer got no answer, and others are held back until Answered is called.
func (a *Answers) Doubts() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.doubtsLocked()
}

func (a *Answers) doubtsLocked() chan struct{} {
	if a.doubts == nil {
		a.doubts = make(chan struct{}, 1)
	}
	return a.doubts
}

// Held returns the configuration of a client for informers, whose requests are held back. Whoever calls Answered asks
// with another client.
func (a *Answers) Held(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(a.Hold)
	return config
}

// Hold wraps the transport of Held.
func (a *Answers) Hold(next http.RoundTripper) http.RoundTripper {
	return holding{answers: a, next: next}
}

func (a *Answers) holdsLocked() bool { return a.failed.After(a.answered) }

// await blocks while requests are held back. An error is that of ctx.
func (a *Answers) await(ctx context.Context) error {
	for {
		a.mu.Lock()
		holds := a.holdsLocked()
		if holds && a.next == nil {
			a.next = make(chan struct{})
		}
		next := a.next
		a.mu.Unlock()
		if !holds {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for an answer: %w", ctx.Err())
		case <-next:
		}
	}
}

// doubt is called when a request got no answer.
func (a *Answers) doubt() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failed = time.Now()
	select {
	case a.doubtsLocked() <- struct{}{}:
	default:
	}
}

// holding is a transport whose requests are held back.
type holding struct {
	answers *Answers
	next    http.RoundTripper
}

// RoundTrip implements http.RoundTripper. An API server whose etcd does not answer has no answer either.
func (h holding) RoundTrip(request *http.Request) (*http.Response, error) {
	if err := h.answers.await(request.Context()); err != nil {
		return nil, err
	}
	response, err := h.next.RoundTrip(request)
	switch {
	case err != nil && !errors.Is(err, context.Canceled), err == nil && response.StatusCode >= http.StatusInternalServerError:
		h.answers.doubt()
	}
	return response, err //nolint:wrapcheck // it stands in for the transport
}
