package tenantevents

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
)

const (
	// maxEventsWaiting bounds the Events of one tenant that are to be written, those that are being written apart.
	maxEventsWaiting = 2 * eventBurst
	// eventWriters bounds the Events of one tenant that are being written.
	eventWriters = 10
	// eventTimeout bounds one request.
	eventTimeout = time.Minute
)

// eventBackoff is how often, and after what pauses, an Event is written that was not answered.
func eventBackoff() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 3, Jitter: 0.25, Steps: 5}
}

// eventWriter is an events.EventSink that answers at once, and writes afterwards. client-go's broadcaster has a
// goroutine for each Event until its sink has answered, and where that fails, for up to twelve attempts; while it
// refreshes series of Events, one request after another, all those goroutines wait. So an API server that is slow to
// answer would make a process keep Events without end. Here at most maxEventsWaiting of one tenant wait, and what is
// beyond is dropped. So is what the API server refuses, or does not answer several times. An Event that was patched
// before it was created, or after it has expired, is created as it is then.
//
// What it returns is the Event that it was given, nothing that an API server says: the broadcaster keeps that.
//
// It is safe for concurrent use. Its goroutines are there while Events wait, and end with the context of those.
type eventWriter struct {
	sink events.EventSink

	mu sync.Mutex
	// waiting are the writes that have not begun, the oldest first, and writers is how many goroutines make them.
	waiting []func()
	writers int
}

var _ events.EventSink = &eventWriter{}

// Create implements events.EventSink.
func (w *eventWriter) Create(ctx context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	w.later(ctx, event, func(ctx context.Context, event *eventsv1.Event) error {
		_, err := w.sink.Create(ctx, event)
		return err //nolint:wrapcheck // written looks at it
	})
	return event, nil
}

// Update implements events.EventSink.
func (w *eventWriter) Update(ctx context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	w.later(ctx, event, func(ctx context.Context, event *eventsv1.Event) error {
		_, err := w.sink.Update(ctx, event)
		return err //nolint:wrapcheck // written looks at it
	})
	return event, nil
}

// Patch implements events.EventSink.
func (w *eventWriter) Patch(ctx context.Context, event *eventsv1.Event, data []byte) (*eventsv1.Event, error) {
	w.later(ctx, event, func(ctx context.Context, event *eventsv1.Event) error {
		_, err := w.sink.Patch(ctx, event, data)
		if apierrors.IsNotFound(err) {
			event.ResourceVersion = ""
			_, err = w.sink.Create(ctx, event)
		}
		return err //nolint:wrapcheck // written looks at it
	})
	return event, nil
}

// later lets write be called with a copy of event: the broadcaster goes on counting in its own. It drops it where too
// many wait.
func (w *eventWriter) later(ctx context.Context, event *eventsv1.Event, write func(context.Context, *eventsv1.Event) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) >= maxEventsWaiting {
		return
	}
	event = event.DeepCopy()
	w.waiting = append(w.waiting, func() {
		if err := written(ctx, func(ctx context.Context) error { return write(ctx, event) }); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(4).Info("Event not recorded", "event", klog.KObj(event), "err", err)
		}
	})
	if w.writers < eventWriters {
		w.writers++
		go w.run()
	}
}

// run makes writes as long as any wait.
func (w *eventWriter) run() {
	for {
		write := w.next()
		if write == nil {
			return
		}
		write()
	}
}

// next returns the oldest write that waits. If there is none it returns nil, and the goroutine that asked does not
// count any more.
func (w *eventWriter) next() func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) == 0 {
		w.waiting = nil
		w.writers--
		return nil
	}
	next := w.waiting[0]
	w.waiting[0] = nil
	w.waiting = w.waiting[1:]
	return next
}

// written calls write until an API server has answered, or for the last time. It returns the last error.
func written(ctx context.Context, write func(context.Context) error) (last error) {
	_ = wait.ExponentialBackoffWithContext(ctx, eventBackoff(), func(ctx context.Context) (answered bool, _ error) { // last says more
		ctx, cancel := context.WithTimeout(ctx, eventTimeout)
		defer cancel()
		last = write(ctx)
		var status apierrors.APIStatus
		return last == nil || errors.As(last, &status), nil
	})
	return last
}

// eventsPerSecond and eventBurst bound the Events that are recorded in one tenant control plane.
const eventsPerSecond, eventBurst = 50, 1000

// Recorders makes the event recorders of one tenant. All of them together record at most eventsPerSecond.
type Recorders struct {
	broadcaster events.EventBroadcaster
	rate        *rate.Limiter
}

// StartRecorders returns the recorders of the tenant whose API server api asks, until Shutdown.
func StartRecorders(ctx context.Context, api kubernetes.Interface) (*Recorders, error) {
	broadcaster := events.NewBroadcaster(&eventWriter{sink: &events.EventSinkImpl{Interface: api.EventsV1()}})
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return nil, fmt.Errorf("recording Events: %w", err)
	}
	return &Recorders{broadcaster, rate.NewLimiter(eventsPerSecond, eventBurst)}, nil
}

// Shutdown ends the recording.
func (r *Recorders) Shutdown() { r.broadcaster.Shutdown() }

// Of returns a recorder of the reporting controller with that name.
func (r *Recorders) Of(name string) events.EventRecorderLogger {
	return boundedRecorder{r.broadcaster.NewRecorder(scheme.Scheme, name), r.rate}
}

// OfPods returns the recorder of a profile of kube-scheduler. It is a profile.RecorderFactory.
func (r *Recorders) OfPods(name string) events.EventRecorderLogger { return podRecorder{r.Of(name)} }

// boundedRecorder drops Events beyond a rate: each one is a request to the tenant's API server, and the broadcaster
// remembers it for some minutes. How many wait for that API server is bounded by eventWriter.
type boundedRecorder struct {
	events.EventRecorderLogger
	rate *rate.Limiter
}

// Eventf implements events.EventRecorder.
func (r boundedRecorder) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	if r.rate.Allow() {
		r.EventRecorderLogger.Eventf(regarding, related, kind, reason, action, note, args...)
	}
}

// WithLogger implements events.EventRecorderLogger.
func (r boundedRecorder) WithLogger(logger klog.Logger) events.EventRecorderLogger {
	return boundedRecorder{r.EventRecorderLogger.WithLogger(logger), r.rate}
}

// kubeSchedulerScheduled: kube-scheduler bound a pod. podRecorder drops these Events.
const kubeSchedulerScheduled = "Scheduled"

// podRecorder drops the Events Scheduled, each of which costs the tenant's API server a request: the super cluster's
// scheduler records one next, and the syncer copies it to the tenant with the node's name.
type podRecorder struct{ events.EventRecorderLogger }

// Eventf implements events.EventRecorder.
func (r podRecorder) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	if reason != kubeSchedulerScheduled {
		r.EventRecorderLogger.Eventf(regarding, related, kind, reason, action, note, args...)
	}
}

// WithLogger implements events.EventRecorderLogger.
func (r podRecorder) WithLogger(logger klog.Logger) events.EventRecorderLogger {
	return podRecorder{r.EventRecorderLogger.WithLogger(logger)}
}

// ControllerName is the reporting controller of Events in tenant control planes.
const ControllerName = "vc-scheduler"
