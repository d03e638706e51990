package syncer

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenantclient"
)

// source names one informer: a kind in a namespace, "" for all namespaces.
type source struct{ kind, namespace string }

// informers is the cache of one control plane: informers that watch starts and stops one by one. It implements
// kind.Cache. All methods may be called concurrently.
type informers struct {
	client client.WithWatch
	// bounds are those of a tenant, whose budget the objects count towards; nil for the super cluster.
	bounds *tenantclient.Bounds
	// live is when the super cluster answered; nil for a tenant, whose caches are current once they are synced.
	live *liveness
	// watched is what is watched, by kind.
	watched map[string]watched
	// unserved is how often an API server is asked again that does not serve an optional type; 0 means a minute.
	unserved time.Duration
	// whole is whether informers of all namespaces keep what is in any of them.
	whole bool
	// changed is called after an object of the cache was added, updated or deleted; old is nil for an added one,
	// current for a deleted one.
	changed func(kind string, old, current client.Object)
	// filled is called once, when the informer of a source is synced.
	filled func(source)

	mu      sync.RWMutex
	running map[source]*informer
	// placed are the namespaces whose objects informers of all namespaces keep, see wide.
	placed []string
	group  sync.WaitGroup
}

type informer struct {
	toolscache.SharedIndexInformer
	// handled is whether the handler has had what the first list brought.
	handled func() bool
	// wide is not nil if the informer watches all namespaces and keeps the objects of some.
	wide *wide
	// stop ends it, and takes what it keeps off the tenant's budget.
	stop func()
}

// HasSynced returns whether the first list is in the cache and its objects are counted, which the event handler does:
// limits read before would let in more than there may be.
func (i *informer) HasSynced() bool { return i.handled() }

// knows returns whether the cache holds all objects of a namespace.
func (i *informer) knows(namespace string) bool {
	return i.wide == nil && i.HasSynced() || i.wide != nil && i.wide.knows(namespace)
}

var _ kind.Cache = &informers{}

// place sets the namespaces whose objects informers of all namespaces keep.
func (i *informers) place(namespaces []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.placed = namespaces
	for _, running := range i.running {
		if running.wide != nil {
			running.wide.place(namespaces)
		}
	}
}

// watch starts the informers of sources that do not run yet, and stops all others that run. Those of single namespaces
// run until the one of all namespaces that takes their place is synced, and the other way round. sources holds no
// source twice. Informers stop when ctx ends, too.
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
			if !wanted.Has(from) && !i.awaitsOther(from, wanted) {
				running.stop()
				delete(i.running, from)
				if i.live != nil {
					i.live.forget(from)
				}
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

// awaitsOther returns whether a source that is not wanted has to run until those that take its place are synced.
func (i *informers) awaitsOther(from source, wanted sets.Set[source]) bool {
	if !i.watched[from.kind].perNamespace {
		return false
	}
	if from.namespace != "" {
		all := source{kind: from.kind}
		return wanted.Has(all) && (i.running[all] == nil || !i.running[all].HasSynced())
	}
	for other := range wanted {
		if other.kind == from.kind && (i.running[other] == nil || !i.running[other].HasSynced()) {
			return true
		}
	}
	return false
}

// start starts the informer of a source. A panic in an event handler loses that event; the next patrol enqueues the key
// of its object.
func (i *informers) start(ctx context.Context, from source) error {
	ctx, stop := context.WithCancel(ctx)
	kind := i.watched[from.kind]
	listWatch, all := i.listWatch(from, &kind), (*wide)(nil)
	if kind.perNamespace && from.namespace == "" && !i.whole {
		all = i.newWide(from.kind, &kind)
		listWatch = all.listWatch()
	}
	shared := toolscache.NewSharedIndexInformer(listWatch, kind.object, 0, kind.indexers)
	if all != nil {
		all.cache = shared.GetIndexer()
	}
	if err := shared.SetWatchErrorHandlerWithContext(unlessEnded); err != nil {
		stop()
		return fmt.Errorf("setting the error handler of kind %s: %w", from.kind, err)
	}
	account := i.bounds.Account()
	account.Beside = besideOf(from.kind)
	registration, err := account.Follow(shared, trim, engage.Handler(ctx, "informer of kind "+from.kind, nil, i.handler(from.kind, all)))
	if err != nil {
		stop()
		return fmt.Errorf("following the informer of kind %s: %w", from.kind, err)
	}
	started := &informer{SharedIndexInformer: shared, handled: registration.HasSynced, wide: all, stop: func() { stop(); account.Close() }}
	i.running[from] = started
	i.group.Go(func() {
		defer account.Close()
		shared.RunWithContext(ctx)
	})
	i.group.Go(func() {
		defer engage.Recover(ctx, "first list of kind "+from.kind, nil)
		if all != nil && toolscache.WaitForCacheSync(ctx.Done(), shared.HasSynced) {
			all.synced() // before the handler has caught up: a deletion that it handles until then is none to it
		}
		if toolscache.WaitForCacheSync(ctx.Done(), started.HasSynced) {
			i.filled(from)
		}
	})
	return nil
}

// besideOf returns what counts for each object of a kind besides its size: what the syncer holds while it waits.
func besideOf(name string) func(any) int64 {
	held := kind.HeldBytes(name)
	return func(any) int64 { return held }
}

// unlessEnded is client-go's handler of errors, but for that of an informer that is stopped while it asks: kinds that a
// tenant has nothing to do with are stopped each time that one connects.
func unlessEnded(ctx context.Context, reflector *toolscache.Reflector, err error) {
	if ctx.Err() == nil {
		toolscache.DefaultWatchErrorHandler(ctx, reflector, err)
	}
}

func (i *informers) newWide(kind string, of *watched) *wide {
	all := &wide{
		from: func(namespace string) *toolscache.ListWatch {
			return i.listWatch(source{kind: kind, namespace: namespace}, of)
		},
		filled:  func(namespace string) { i.filled(source{kind: kind, namespace: namespace}) },
		goes:    i.group.Go,
		changed: make(chan struct{}, 1),
	}
	all.place(i.placed)
	return all
}

// wait blocks until all informers have returned, which they do when their context ends.
func (i *informers) wait() { i.group.Wait() }

// learn adds what the Specs watch of kinds that are new. That of a kind never changes.
func (i *informers) learn(env *kind.Env, specs []kind.Spec, side kind.Side) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	for at := range specs {
		if _, known := i.watched[specs[at].Name]; known {
			continue
		}
		added, err := watchedOf(env, specs[at:at+1], side)
		if err != nil {
			return err
		}
		maps.Copy(i.watched, added)
	}
	return nil
}

// metadata lets list be one of the metadata of a kind, and returns the options by which informers select. It returns
// false for a kind that is not watched.
func (i *informers) metadata(kind string, list *metav1.PartialObjectMetadataList) (*client.ListOptions, bool) {
	i.mu.RLock()
	defer i.mu.RUnlock()
	of, watched := i.watched[kind]
	if !watched {
		return nil, false
	}
	gvk, err := apiutil.GVKForObject(of.list(), scheme.Scheme)
	if err != nil {
		return nil, false
	}
	list.SetGroupVersionKind(gvk)
	return &client.ListOptions{Raw: &metav1.ListOptions{LabelSelector: of.labels, FieldSelector: of.fields}}, true
}

// isAside returns whether nothing waits until the informers of a kind are synced.
func (i *informers) isAside(kind string) bool {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.watched[kind].aside
}

// synced returns whether all informers are synced, but for those that nothing else waits for; false if none runs.
func (i *informers) synced() bool {
	i.mu.RLock()
	defer i.mu.RUnlock()
	for from, running := range i.running {
		if !i.watched[from.kind].aside && !running.HasSynced() {
			return false
		}
	}
	return len(i.running) > 0
}

func (i *informers) listWatch(from source, kind *watched) *toolscache.ListWatch {
	options := func(raw metav1.ListOptions) *client.ListOptions {
		raw.LabelSelector, raw.FieldSelector = kind.labels, kind.fields
		return &client.ListOptions{Namespace: from.namespace, Limit: raw.Limit, Continue: raw.Continue, Raw: &raw}
	}
	source := &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, raw metav1.ListOptions) (runtime.Object, error) {
			if i.bounds != nil {
				tenantclient.Paged(&raw)
			}
			list := kind.list()
			return list, i.client.List(ctx, list, options(raw))
		},
		WatchFuncWithContext: func(ctx context.Context, raw metav1.ListOptions) (watch.Interface, error) {
			return i.client.Watch(ctx, kind.list(), options(raw)) //nolint:wrapcheck // the informer asks what kind of error it is
		},
	}
	if kind.optional {
		source = engage.Optional(source, kind.list, cmp.Or(i.unserved, engage.UnservedRetry)).ListWatch
	}
	if i.live != nil {
		opens := source.WatchFuncWithContext
		source.WatchFuncWithContext = func(ctx context.Context, raw metav1.ListOptions) (watch.Interface, error) {
			opened, err := opens(ctx, raw)
			if err != nil {
				return nil, err
			}
			return i.live.follow(from, opened), nil
		}
	}
	return source
}

// handler returns the event handler of a kind's informers; all is nil for those of one namespace. An object that goes
// because its namespace is not placed here any more has not been deleted, and is no change.
func (i *informers) handler(kind string, all *wide) toolscache.ResourceEventHandler {
	arrived := func(object client.Object) {
		if all != nil {
			all.arrived(object)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(added any) {
			if object, ok := added.(client.Object); ok {
				defer arrived(object)
				i.changed(kind, nil, object)
			}
		},
		UpdateFunc: func(before, after any) {
			old, isOld := before.(client.Object)
			current, ok := after.(client.Object)
			if ok && isOld {
				defer arrived(current)
				i.changed(kind, old, current)
			}
		},
		DeleteFunc: func(deleted any) {
			if object, ok := engage.Object[client.Object](deleted); ok && (all == nil || all.knows(object.GetNamespace())) {
				i.changed(kind, object, nil)
			}
		},
	}
}

// Get implements kind.Cache.
func (i *informers) Get(kind, namespace, name string) (client.Object, bool) {
	from := i.at(kind, namespace)
	if from == nil || !from.knows(namespace) {
		return nil, false
	}
	current := i.live == nil || i.live.current(source{kind: kind})
	key := strings.TrimPrefix(namespace+"/"+name, "/")
	found, exists, err := from.GetStore().GetByKey(key)
	if err != nil || !exists {
		return nil, err == nil && current
	}
	object, ok := found.(client.Object)
	return object, ok && current
}

// at returns the informer whose cache holds the objects of a kind in a namespace, nil if none runs.
func (i *informers) at(kind, namespace string) *informer {
	i.mu.RLock()
	defer i.mu.RUnlock()
	all, one := i.running[source{kind: kind}], i.running[source{kind: kind, namespace: namespace}]
	if all == nil || one != nil && !all.knows(namespace) {
		return one
	}
	return all
}

// InNamespace implements kind.Cache. It reads one informer of the tenant's, which may be thousands.
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

// Index implements kind.Cache.
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

// List implements kind.Cache.
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
	all := i.running[source{kind: kind}]
	if all != nil && (all.wide == nil || all.HasSynced()) {
		return []*informer{all}
	}
	var namespaces []string
	for from := range i.running {
		if from.kind == kind && from.namespace != "" {
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
