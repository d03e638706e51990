package syncer

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/engage"
)

// readAgainAfter is the delay after a namespace could not be listed.
const readAgainAfter = time.Second

// wide lists and watches all namespaces of a tenant for one informer, and drops the objects of namespaces that are not
// placed here as they are read. A namespace that is placed later is listed by itself between two events of the watch:
//
//	watch: e1 e2 ──placed──► list of the namespace: o1 o2 ──► e3 e4, without those of the namespace that the list had
//
// So a namespace costs one request, and neither a watch nor a goroutine, and no event is lost. All methods may be
// called concurrently.
type wide struct {
	// from lists and watches a namespace, "" for all of them.
	from func(namespace string) *toolscache.ListWatch
	// filled is called when the objects of a namespace that was placed later are in the cache.
	filled func(namespace string)
	// goes runs a function on a goroutine that is awaited at the end.
	goes func(func())
	// cache is the informer's.
	cache toolscache.Indexer

	mu     sync.Mutex
	placed map[string]*coverage
	// removed lists namespaces that are not placed any more and whose objects may be in the cache.
	removed []string
	// watched is whether the first list is complete.
	watched bool
	// changed buffers one signal that placed or removed has changed.
	changed chan struct{}
}

// coverage is how far the objects of a namespace have come.
type coverage struct {
	// read is whether they are read: events are passed on. since is the resource version that was listed, 0 for any.
	read  bool
	since uint64
	// pending are the keys of objects that were listed and are not in the cache yet.
	pending map[string]struct{}
	// known is whether the cache holds them: what it does not hold does not exist.
	known bool
}

// place sets which namespaces are placed here.
func (w *wide) place(namespaces []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	placed := make(map[string]*coverage, len(namespaces))
	for _, namespace := range namespaces {
		of, exists := w.placed[namespace]
		if !exists {
			of = &coverage{}
		}
		placed[namespace] = of
	}
	same := len(placed) == len(w.placed)
	for namespace := range w.placed {
		if placed[namespace] == nil {
			w.removed = append(w.removed, namespace)
			same = false
		}
	}
	w.placed = placed
	if same {
		return
	}
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// knows returns whether the cache holds all objects of a namespace.
func (w *wide) knows(namespace string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	of := w.placed[namespace]
	return of != nil && of.known
}

// synced is called when what the first list brought is in the cache.
func (w *wide) synced() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, of := range w.placed {
		if of.read && of.pending == nil && of.since == 0 {
			of.known = true
		}
	}
}

// arrived is called when an object was added to the cache, or updated there.
func (w *wide) arrived(object client.Object) {
	if namespace := object.GetNamespace(); w.complete(namespace, object.GetName()) {
		w.filled(namespace)
	}
}

// complete returns whether an object was the last one of its namespace that was missing.
func (w *wide) complete(namespace, name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	of := w.placed[namespace]
	if of == nil || of.pending == nil {
		return false
	}
	delete(of.pending, name)
	if len(of.pending) > 0 {
		return false
	}
	of.pending, of.known = nil, true
	return true
}

// listWatch returns what the informer lists and watches.
func (w *wide) listWatch() *toolscache.ListWatch {
	return &toolscache.ListWatch{ListWithContextFunc: w.list, WatchFuncWithContext: w.watch}
}

// list returns a page of the objects of all namespaces, without those that are not placed here.
func (w *wide) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if options.Continue == "" {
		w.mu.Lock()
		for _, of := range w.placed {
			// Later lists leave a namespace that has not come into the cache to the watch, which lists it by itself.
			of.read, of.pending, of.since = !w.watched || of.known, nil, 0
		}
		w.mu.Unlock()
	}
	page, err := w.from("").ListWithContext(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("listing all namespaces: %w", err)
	}
	items, err := meta.ExtractList(page)
	if err != nil {
		return nil, fmt.Errorf("reading a page: %w", err)
	}
	w.mu.Lock()
	kept := slices.DeleteFunc(items, func(item runtime.Object) bool { return !w.wantsLocked(item, 0) })
	w.mu.Unlock()
	if err := meta.SetList(page, kept); err != nil {
		return nil, fmt.Errorf("shortening a page: %w", err)
	}
	return page, nil
}

// wantsLocked returns whether an object is in a namespace that is read, and, if its version is not 0, not of an older
// one than was listed there.
func (w *wide) wantsLocked(item runtime.Object, version uint64) bool {
	object, err := meta.Accessor(item)
	if err != nil {
		return false
	}
	of := w.placed[object.GetNamespace()]
	return of != nil && of.read && (version == 0 || version > of.since)
}

// watch watches all namespaces.
func (w *wide) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	all, err := w.from("").WatchWithContext(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("watching all namespaces: %w", err)
	}
	w.mu.Lock()
	w.watched = true
	w.mu.Unlock()
	events := make(chan watch.Event)
	passed := watch.NewProxyWatcher(events)
	w.goes(func() {
		defer close(events)
		defer all.Stop()
		defer engage.Recover(ctx, "watch of all namespaces", nil)
		w.pass(ctx, all.ResultChan(), func(event watch.Event) bool {
			select {
			case events <- event:
				return true
			case <-passed.StopChan():
			case <-ctx.Done():
			}
			return false
		}, passed.StopChan())
	})
	return passed, nil
}

// pass passes events on until their end. send returns false when nobody reads any more.
func (w *wide) pass(ctx context.Context, events <-chan watch.Event, send func(watch.Event) bool, stop <-chan struct{}) {
	for readAgain := w.catchUp(ctx, send); ; {
		select {
		case <-ctx.Done():
			return
		case <-stop:
			return
		case <-w.changed:
			readAgain = w.catchUp(ctx, send)
		case <-readAgain:
			readAgain = w.catchUp(ctx, send)
		case event, open := <-events:
			if !open || w.wants(event) && !send(event) {
				return
			}
		}
	}
}

func (w *wide) wants(event watch.Event) bool {
	if event.Type == watch.Bookmark || event.Type == watch.Error {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wantsLocked(event.Object, versionOf(event.Object))
}

// catchUp deletes from the cache what is in namespaces that are not placed any more, and adds what is in those that
// were placed since. It returns when to call it again because a list failed, nil for never.
func (w *wide) catchUp(ctx context.Context, send func(watch.Event) bool) <-chan time.Time {
	w.mu.Lock()
	removed := w.removed
	w.removed = nil
	missing := map[string]*coverage{}
	for namespace, of := range w.placed {
		if !of.read {
			missing[namespace] = of
		}
	}
	w.mu.Unlock()
	for _, namespace := range removed {
		objects, err := w.cache.ByIndex(toolscache.NamespaceIndex, namespace)
		if err != nil {
			continue // no such index: a bug that every test would show
		}
		for _, item := range objects {
			// A copy: the informer's transform writes to what a watch brings, while others read what is in the cache.
			if object, ok := item.(runtime.Object); ok && !send(watch.Event{Type: watch.Deleted, Object: object.DeepCopyObject()}) {
				return nil
			}
		}
	}
	var again <-chan time.Time
	for namespace, of := range missing {
		if err := w.read(ctx, namespace, of, send); err != nil {
			klog.FromContext(ctx).V(2).Info("Listing a namespace failed, trying again", "namespace", namespace, "err", err)
			again = time.After(readAgainAfter)
		}
	}
	return again
}

// read lists a namespace and adds its objects to the cache.
func (w *wide) read(ctx context.Context, namespace string, of *coverage, send func(watch.Event) bool) error {
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return w.from(namespace).ListWithContext(ctx, options)
	})
	list, _, err := pages.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing namespace %s: %w", namespace, err)
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return fmt.Errorf("reading the list of namespace %s: %w", namespace, err)
	}
	pending := make(map[string]struct{}, len(items))
	for _, item := range items {
		if object, err := meta.Accessor(item); err == nil {
			pending[object.GetName()] = struct{}{}
		}
	}
	w.mu.Lock()
	of.read, of.since = true, versionOf(list)
	if of.known = len(pending) == 0; !of.known {
		of.pending = pending
	}
	w.mu.Unlock()
	if len(pending) == 0 {
		w.filled(namespace)
	}
	for _, item := range items {
		if !send(watch.Event{Type: watch.Added, Object: item}) {
			return nil
		}
	}
	return nil
}

// versionOf returns the resource version of an object or a list, 0 if it is no number.
func versionOf(object runtime.Object) uint64 {
	var text string
	if item, err := meta.Accessor(object); err == nil {
		text = item.GetResourceVersion()
	} else if list, err := meta.ListAccessor(object); err == nil {
		text = list.GetResourceVersion()
	}
	version, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	return version
}
