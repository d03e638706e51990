package syncer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/syncer/kinds"
)

// source names one informer: a kind in a namespace, "" for all namespaces.
type source struct{ kind, namespace string }

// informers is the cache of one control plane: informers that watch starts and stops one by one. It implements
// kinds.Cache. All methods may be called concurrently.
type informers struct {
	client client.WithWatch
	// watched is what is watched, by kind.
	watched map[string]watched
	// changed is called after an object of the cache was added, updated or deleted; old is nil for an added one,
	// current for a deleted one.
	changed func(kind string, old, current client.Object)
	// filled is called once, when the informer of a source is synced.
	filled func(source)

	mu      sync.RWMutex
	running map[source]*informer
	group   sync.WaitGroup
}

type informer struct {
	toolscache.SharedIndexInformer
	stop context.CancelFunc
}

var _ kinds.Cache = &informers{}

// watch starts the informers of sources that do not run yet, and stops all others that run. sources holds no source
// twice. Informers stop when ctx ends, too.
func (i *informers) watch(ctx context.Context, sources []source) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.running == nil {
		i.running = map[source]*informer{}
	}
	var missing []source
	for _, from := range sources {
		if _, exists := i.running[from]; !exists {
			missing = append(missing, from)
		}
	}
	// Usually no informer is to be stopped: then no set of thousands of sources is built.
	if len(sources)-len(missing) < len(i.running) {
		wanted := sets.New(sources...)
		for from, running := range i.running {
			if !wanted.Has(from) {
				running.stop()
				delete(i.running, from)
			}
		}
	}
	for _, from := range missing {
		if err := i.start(ctx, from); err != nil {
			return err
		}
	}
	return nil
}

// start starts the informer of a source. A panic in an event handler loses that event; the next patrol enqueues the key
// of its object.
func (i *informers) start(ctx context.Context, from source) error {
	ctx, stop := context.WithCancel(ctx)
	kind := i.watched[from.kind]
	shared := toolscache.NewSharedIndexInformer(i.listWatch(from), kind.object, 0, kind.indexers)
	if err := shared.SetTransform(trim); err != nil {
		stop()
		return fmt.Errorf("setting the transform of kind %s: %w", from.kind, err)
	}
	if _, err := shared.AddEventHandler(engage.Handler(ctx, "informer of kind "+from.kind, nil, i.handler(from.kind))); err != nil {
		stop()
		return fmt.Errorf("adding the handler of kind %s: %w", from.kind, err)
	}
	i.running[from] = &informer{SharedIndexInformer: shared, stop: stop}
	i.group.Go(func() { shared.RunWithContext(ctx) })
	i.group.Go(func() {
		defer engage.Recover(ctx, "first list of kind "+from.kind, nil)
		if toolscache.WaitForCacheSync(ctx.Done(), shared.HasSynced) {
			i.filled(from)
		}
	})
	return nil
}

// wait blocks until all informers have returned, which they do when their context ends.
func (i *informers) wait() { i.group.Wait() }

// synced returns whether all informers are synced, false if none runs.
func (i *informers) synced() bool {
	i.mu.RLock()
	defer i.mu.RUnlock()
	for _, running := range i.running {
		if !running.HasSynced() {
			return false
		}
	}
	return len(i.running) > 0
}

func (i *informers) listWatch(from source) *toolscache.ListWatch {
	kind := i.watched[from.kind]
	options := func(raw metav1.ListOptions) *client.ListOptions {
		raw.LabelSelector, raw.FieldSelector = kind.labels, kind.fields
		return &client.ListOptions{Namespace: from.namespace, Limit: raw.Limit, Continue: raw.Continue, Raw: &raw}
	}
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, raw metav1.ListOptions) (runtime.Object, error) {
			list := kind.list()
			return list, i.client.List(ctx, list, options(raw))
		},
		WatchFuncWithContext: func(ctx context.Context, raw metav1.ListOptions) (watch.Interface, error) {
			return i.client.Watch(ctx, kind.list(), options(raw))
		},
	}
}

func (i *informers) handler(kind string) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(added any) {
			if object, ok := added.(client.Object); ok {
				i.changed(kind, nil, object)
			}
		},
		UpdateFunc: func(before, after any) {
			old, isOld := before.(client.Object)
			current, ok := after.(client.Object)
			if ok && isOld {
				i.changed(kind, old, current)
			}
		},
		DeleteFunc: func(deleted any) {
			if object, ok := engage.Object[client.Object](deleted); ok {
				i.changed(kind, object, nil)
			}
		},
	}
}

// Get implements kinds.Cache.
func (i *informers) Get(kind, namespace, name string) (client.Object, bool) {
	from := i.at(kind, namespace)
	if from == nil || !from.HasSynced() {
		return nil, false
	}
	key := strings.TrimPrefix(namespace+"/"+name, "/")
	found, exists, err := from.GetStore().GetByKey(key)
	if err != nil || !exists {
		return nil, err == nil
	}
	object, ok := found.(client.Object)
	return object, ok
}

// at returns the informer whose cache holds the objects of a kind in a namespace, nil if none runs.
func (i *informers) at(kind, namespace string) *informer {
	i.mu.RLock()
	defer i.mu.RUnlock()
	if from, exists := i.running[source{kind: kind}]; exists {
		return from
	}
	return i.running[source{kind: kind, namespace: namespace}]
}

// InNamespace implements kinds.Cache. It reads one informer of the tenant's, which may be thousands.
func (i *informers) InNamespace(kind, namespace string) []client.Object {
	from := i.at(kind, namespace)
	if from == nil {
		return nil
	}
	found, err := from.GetIndexer().ByIndex(toolscache.NamespaceIndex, namespace)
	if err != nil {
		return nil // no such index: a bug that every test would show
	}
	return appendObjects(nil, found)
}

// Index implements kinds.Cache.
func (i *informers) Index(kind, index, value string) []client.Object {
	var objects []client.Object
	for _, from := range i.of(kind) {
		found, err := from.GetIndexer().ByIndex(index, value)
		if err != nil {
			continue // no such index: a bug that every test would show
		}
		objects = appendObjects(objects, found)
	}
	return objects
}

// List implements kinds.Cache.
func (i *informers) List(kind string) []client.Object {
	var objects []client.Object
	for _, from := range i.of(kind) {
		objects = appendObjects(objects, from.GetStore().List())
	}
	return objects
}

// of returns the informers of a kind, sorted by namespace.
func (i *informers) of(kind string) []*informer {
	i.mu.RLock()
	defer i.mu.RUnlock()
	if from, exists := i.running[source{kind: kind}]; exists {
		return []*informer{from}
	}
	var namespaces []string
	for from := range i.running {
		if from.kind == kind {
			namespaces = append(namespaces, from.namespace)
		}
	}
	slices.Sort(namespaces)
	found := make([]*informer, 0, len(namespaces))
	for _, namespace := range namespaces {
		found = append(found, i.running[source{kind: kind, namespace: namespace}])
	}
	return found
}

func appendObjects(objects []client.Object, found []any) []client.Object {
	for _, item := range found {
		if object, ok := item.(client.Object); ok {
			objects = append(objects, object)
		}
	}
	return objects
}

// trim is the transform of all informers: it drops managedFields, which nothing here reads.
func trim(item any) (any, error) {
	if object, ok := item.(client.Object); ok {
		object.SetManagedFields(nil)
	}
	return item, nil
}
