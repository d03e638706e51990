package syncer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/syncer/kinds"
)

// watched is what the informers of one kind watch.
type watched struct {
	object client.Object
	// list returns an empty list of the type.
	list func() client.ObjectList
	// labels and fields are selectors; "" watches all.
	labels, fields string
	indexers       toolscache.Indexers
}

// watchedOf returns what is watched on one side, by kind.
func watchedOf(env *kinds.Env, specs []kinds.Spec, side kinds.Side) (map[string]watched, error) {
	all := map[string]watched{}
	for i := range specs {
		spec := &specs[i]
		watch := spec.Tenant
		if side == kinds.SuperSide {
			watch = spec.Super
		}
		if watch == nil {
			continue
		}
		list, err := listOf(watch.Object)
		if err != nil {
			return nil, fmt.Errorf("finding the list of kind %s: %w", spec.Name, err)
		}
		made := watched{object: watch.Object, list: list, fields: watch.Fields, indexers: indexers(spec)}
		if watch.Labels != nil {
			made.labels = watch.Labels(env)
		}
		all[spec.Name] = made
	}
	return all, nil
}

// listOf returns what makes an empty list of an object's type.
func listOf(object client.Object) (func() client.ObjectList, error) {
	gvk, err := apiutil.GVKForObject(object, scheme.Scheme)
	if err != nil {
		return nil, fmt.Errorf("finding the type of %T: %w", object, err)
	}
	made, err := scheme.Scheme.New(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	if err != nil {
		return nil, fmt.Errorf("finding the list of %T: %w", object, err)
	}
	empty, ok := made.(client.ObjectList)
	if !ok {
		return nil, fmt.Errorf("%T is not a list", made)
	}
	return func() client.ObjectList {
		list, _ := empty.DeepCopyObject().(client.ObjectList)
		return list
	}, nil
}

// newClient returns a client of a control plane. It holds no cache, knows the types that kinds need and so needs no
// discovery. The server's priority and fairness bounds its rate, and the engine's workers do.
func newClient(config *rest.Config, specs []kinds.Spec) (client.WithWatch, error) {
	mapper, err := mapperOf(specs)
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.QPS = -1
	made, err := client.NewWithWatch(config, client.Options{Scheme: scheme.Scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("making a client of %s: %w", config.Host, err)
	}
	return made, nil
}

// mapperOf returns the resources of all types that kinds watch or use.
func mapperOf(specs []kinds.Spec) (meta.RESTMapper, error) {
	mapper := meta.NewDefaultRESTMapper(nil)
	add := func(object client.Object, scope meta.RESTScope) error {
		gvk, err := apiutil.GVKForObject(object, scheme.Scheme)
		if err != nil {
			return fmt.Errorf("finding the type of %T: %w", object, err)
		}
		mapper.Add(gvk, scope)
		return nil
	}
	for i := range specs {
		scope := meta.RESTScopeNamespace
		if specs[i].ClusterScoped {
			scope = meta.RESTScopeRoot
		}
		for _, watch := range []*kinds.Watch{specs[i].Tenant, specs[i].Super} {
			if watch == nil {
				continue
			}
			if err := add(watch.Object, scope); err != nil {
				return nil, err
			}
		}
		for _, object := range specs[i].Uses {
			if err := add(object, meta.RESTScopeNamespace); err != nil {
				return nil, err
			}
		}
	}
	return mapper, nil
}

// source is what one informer watches. Namespace "" means all.
type source struct{ kind, namespace string }

// informers is the cache of one control plane: informers that start and stop one by one. It implements kinds.Cache.
type informers struct {
	client client.WithWatch
	// watched is what is watched, by kind.
	watched map[string]watched
	// changed is called after an object of the cache has changed; old is nil for a new one, and current nil for one
	// that is gone.
	changed func(kind string, old, current client.Object)
	// filled is called when the informer of a source has its first full list.
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

// watch starts the informers of sources, which differ, that do not run yet and stops all others. Informers end with ctx
// too.
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
	// Mostly all that runs is wanted: then no set of thousands is made.
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

// start starts the informer of a source. A panic in what it calls costs one event, which the next patrol makes good.
func (i *informers) start(ctx context.Context, from source) error {
	ctx, stop := context.WithCancel(ctx)
	what := i.watched[from.kind]
	made := toolscache.NewSharedIndexInformer(i.listWatch(from), what.object, 0, what.indexers)
	if err := made.SetTransform(trim); err != nil {
		stop()
		return fmt.Errorf("setting the transform of kind %s: %w", from.kind, err)
	}
	if _, err := made.AddEventHandler(engage.Handler(ctx, "informer of kind "+from.kind, nil, i.handler(from.kind))); err != nil {
		stop()
		return fmt.Errorf("adding the handler of kind %s: %w", from.kind, err)
	}
	i.running[from] = &informer{SharedIndexInformer: made, stop: stop}
	i.group.Go(func() { made.RunWithContext(ctx) })
	i.group.Go(func() {
		defer engage.Recover(ctx, "first list of kind "+from.kind, nil)
		if toolscache.WaitForCacheSync(ctx.Done(), made.HasSynced) {
			i.filled(from)
		}
	})
	return nil
}

// wait blocks until all informers have ended, which they do with their context.
func (i *informers) wait() { i.group.Wait() }

// synced says whether all informers are filled.
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
	what := i.watched[from.kind]
	options := func(raw metav1.ListOptions) *client.ListOptions {
		raw.LabelSelector, raw.FieldSelector = what.labels, what.fields
		return &client.ListOptions{Namespace: from.namespace, Limit: raw.Limit, Continue: raw.Continue, Raw: &raw}
	}
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, raw metav1.ListOptions) (runtime.Object, error) {
			list := what.list()
			return list, i.client.List(ctx, list, options(raw))
		},
		WatchFuncWithContext: func(ctx context.Context, raw metav1.ListOptions) (watch.Interface, error) {
			return i.client.Watch(ctx, what.list(), options(raw))
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
			if tombstone, ok := deleted.(toolscache.DeletedFinalStateUnknown); ok {
				deleted = tombstone.Obj
			}
			if object, ok := deleted.(client.Object); ok {
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

// at returns the informer that holds the objects of a kind in a namespace, nil if none does.
func (i *informers) at(kind, namespace string) *informer {
	i.mu.RLock()
	defer i.mu.RUnlock()
	if from, exists := i.running[source{kind: kind}]; exists {
		return from
	}
	return i.running[source{kind: kind, namespace: namespace}]
}

// InNamespace implements kinds.Cache. It asks one informer: a tenant may have a thousand namespaces.
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

// indexers returns those of a kind's caches.
func indexers(spec *kinds.Spec) toolscache.Indexers {
	index := func(values func(client.Object) []string) toolscache.IndexFunc {
		return func(item any) ([]string, error) {
			object, ok := item.(client.Object)
			if !ok {
				return nil, fmt.Errorf("%T is not an object", item)
			}
			return indexed(values, object), nil
		}
	}
	all := toolscache.Indexers{
		kinds.IndexTenant: index(func(object client.Object) []string {
			return []string{object.GetLabels()[tenancyv1alpha1.LabelCluster]}
		}),
		toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc,
	}
	for name, values := range spec.Indexes {
		all[name] = index(values)
	}
	return all
}

// indexed returns the values of an index for object, none where values panics: the informer would end the process.
func indexed(values func(client.Object) []string, object client.Object) (found []string) {
	defer func() {
		if recover() != nil {
			found = nil
		}
	}()
	return values(object)
}

// trim drops what nobody reads.
func trim(item any) (any, error) {
	if object, ok := item.(client.Object); ok {
		object.SetManagedFields(nil)
	}
	return item, nil
}
