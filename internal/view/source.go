// Package view projects API objects onto what kube-scheduler understands: Pods and Nodes. The projections are pure
// functions; a Source holds their results and serves them to informers.
package view

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// historyLimit is the number of events that a Source keeps for watches. A watch that falls further behind ends with
// Expired, as on an API server, and its informer lists again.
const historyLimit = 4096

// Source holds projected objects of one kind and serves list and watch like an API server, so that an informer can read
// them. Objects are grouped in scopes: what one API object projects to is one scope, and is replaced as a whole.
//
// It is safe for concurrent use. Objects handed in belong to the Source and must not be changed afterwards; objects
// handed out must not be changed either.
type Source struct {
	newList func() runtime.Object

	mu sync.Mutex
	// objects by scope, then by namespace/name. A key is in one scope only.
	objects map[string]map[string]client.Object
	// version numbers events; the last one given is the resource version of a list.
	version int64
	// history holds the last events in order, the newest with number version.
	history []watch.Event
	// changed is closed and replaced with each event.
	changed chan struct{}
}

// NewPodSource returns an empty Source of Pods.
func NewPodSource() *Source {
	return newSource(func() runtime.Object { return &corev1.PodList{} })
}

// NewNodeSource returns an empty Source of Nodes.
func NewNodeSource() *Source {
	return newSource(func() runtime.Object { return &corev1.NodeList{} })
}

func newSource(newList func() runtime.Object) *Source {
	return &Source{newList: newList, objects: map[string]map[string]client.Object{}, version: 1, changed: make(chan struct{})}
}

// Set makes the objects of scope exactly those given: it adds, updates and deletes, in that order, and leaves equal
// ones alone. An object whose UID differs from the one of the same name replaces it.
func (s *Source) Set(scope string, objects ...client.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.objects[scope]
	next := make(map[string]client.Object, len(objects))
	for _, object := range objects {
		key := client.ObjectKeyFromObject(object).String()
		next[key] = s.put(known[key], object)
	}
	for _, key := range slices.Sorted(maps.Keys(known)) {
		if _, wanted := next[key]; !wanted {
			s.emit(watch.Deleted, known[key].DeepCopyObject().(client.Object))
		}
	}
	s.objects[scope] = next
	if len(next) == 0 {
		delete(s.objects, scope)
	}
}

// Update replaces one object of scope. If there is none with its UID any more, watchers receive Added and Deleted for
// it, so that the scheduler's cache confirms and drops the pod that it has assumed.
func (s *Source) Update(scope string, object client.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := client.ObjectKeyFromObject(object).String()
	known, exists := s.objects[scope][key]
	if exists && known.GetUID() == object.GetUID() {
		s.objects[scope][key] = s.put(known, object)
		return
	}
	if exists {
		s.emit(watch.Deleted, known.DeepCopyObject().(client.Object))
	}
	s.emit(watch.Added, object)
	s.emit(watch.Deleted, object.DeepCopyObject().(client.Object))
	if exists {
		again := known.DeepCopyObject().(client.Object)
		s.emit(watch.Added, again)
		s.objects[scope][key] = again
	}
}

// put stores next in place of known, nil if there was none, and returns what is stored now. The caller holds mu.
func (s *Source) put(known, next client.Object) client.Object {
	if known != nil && known.GetUID() != next.GetUID() {
		s.emit(watch.Deleted, known.DeepCopyObject().(client.Object))
		known = nil
	}
	if known == nil {
		s.emit(watch.Added, next)
		return next
	}
	next.SetResourceVersion(known.GetResourceVersion())
	if equality.Semantic.DeepEqual(known, next) {
		return known
	}
	s.emit(watch.Modified, next)
	return next
}

// emit numbers an object and records the event. The caller holds mu and owns object.
func (s *Source) emit(event watch.EventType, object client.Object) {
	s.version++
	object.SetResourceVersion(strconv.FormatInt(s.version, 10))
	s.history = append(s.history, watch.Event{Type: event, Object: object})
	if len(s.history) > 2*historyLimit {
		s.history = slices.Clone(s.history[len(s.history)-historyLimit:])
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// List returns all objects, sorted by namespace and name.
func (s *Source) List(metav1.ListOptions) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]runtime.Object{}
	for _, scope := range s.objects {
		for key, object := range scope {
			all[key] = object
		}
	}
	items := make([]runtime.Object, 0, len(all))
	for _, key := range slices.Sorted(maps.Keys(all)) {
		items = append(items, all[key])
	}
	list := s.newList()
	if err := meta.SetList(list, items); err != nil {
		return nil, fmt.Errorf("listing a view: %w", err)
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return nil, fmt.Errorf("listing a view: %w", err)
	}
	accessor.SetResourceVersion(strconv.FormatInt(s.version, 10))
	return list, nil
}

// Watch streams the events after the resource version in options. It answers Expired when they are no longer
// remembered.
func (s *Source) Watch(options metav1.ListOptions) (watch.Interface, error) {
	if options.SendInitialEvents != nil && *options.SendInitialEvents {
		return nil, apierrors.NewBadRequest("a view serves list and watch, not streaming lists")
	}
	from, err := strconv.ParseInt(options.ResourceVersion, 10, 64)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("resource version %q is not a number", options.ResourceVersion))
	}
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // a watch ends by Stop, not with a caller's context
	events := make(chan watch.Event)
	go s.stream(ctx, from, events)
	return &stream{events: events, stop: cancel}, nil
}

func (s *Source) stream(ctx context.Context, from int64, events chan<- watch.Event) {
	defer close(events)
	for {
		batch, last, changed := s.after(from)
		for _, event := range batch {
			select {
			case events <- event:
			case <-ctx.Done():
				return
			}
			if event.Type == watch.Error {
				return
			}
		}
		from = last
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// after returns the events since version from, the version of the last one, and a channel that closes with the next.
func (s *Source) after(from int64) ([]watch.Event, int64, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	missed := s.version - from
	if missed < 0 || missed > int64(len(s.history)) {
		status := apierrors.NewResourceExpired(fmt.Sprintf("version %d is no longer remembered", from)).Status()
		return []watch.Event{{Type: watch.Error, Object: &status}}, from, s.changed
	}
	return slices.Clone(s.history[int64(len(s.history))-missed:]), s.version, s.changed
}

// stream is a running watch of a Source.
type stream struct {
	events chan watch.Event
	stop   context.CancelFunc
}

func (w *stream) ResultChan() <-chan watch.Event { return w.events }

func (w *stream) Stop() { w.stop() }
