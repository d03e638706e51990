package syncer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/kinds"
)

// watched are the types of the kinds that are cached.
var watched = map[string]struct {
	object client.Object
	list   func() client.ObjectList
}{
	kinds.KindNamespace:      {&corev1.Namespace{}, func() client.ObjectList { return &corev1.NamespaceList{} }},
	kinds.KindPod:            {&corev1.Pod{}, func() client.ObjectList { return &corev1.PodList{} }},
	kinds.KindNode:           {&corev1.Node{}, func() client.ObjectList { return &corev1.NodeList{} }},
	kinds.KindServiceAccount: {&corev1.ServiceAccount{}, func() client.ObjectList { return &corev1.ServiceAccountList{} }},
	kinds.KindSecret:         {&corev1.Secret{}, func() client.ObjectList { return &corev1.SecretList{} }},
	kinds.KindConfigMap:      {&corev1.ConfigMap{}, func() client.ObjectList { return &corev1.ConfigMapList{} }},
	kinds.KindService:        {&corev1.Service{}, func() client.ObjectList { return &corev1.ServiceList{} }},
	kinds.KindEndpointSlice:  {&discoveryv1.EndpointSlice{}, func() client.ObjectList { return &discoveryv1.EndpointSliceList{} }},
	kinds.KindToken:          {&corev1.Secret{}, func() client.ObjectList { return &corev1.SecretList{} }},
	kinds.KindEvent:          {&corev1.Event{}, func() client.ObjectList { return &corev1.EventList{} }},
	kinds.KindQuota:          {&corev1.ResourceQuota{}, func() client.ObjectList { return &corev1.ResourceQuotaList{} }},
}

// What is watched in a tenant that holds anything here: wideKinds in all namespaces, namespacedKinds in those that are placed here.
var (
	wideKinds       = [...]string{kinds.KindNamespace, kinds.KindPod, kinds.KindNode, kinds.KindService, kinds.KindEndpointSlice}
	namespacedKinds = [...]string{kinds.KindServiceAccount, kinds.KindSecret, kinds.KindConfigMap}
)

// fieldSelectors bound what is watched of a kind, by field.
var fieldSelectors = map[string]string{kinds.KindEvent: "involvedObject.kind=Pod"}

// superSelectors bound what is watched of each kind in the super cluster, by label.
func superSelectors() map[string]string {
	selectors := map[string]string{}
	for kind := range watched {
		selectors[kind] = tenancyv1alpha1.LabelCluster
	}
	selectors[kinds.KindNode] = ""
	selectors[kinds.KindEvent] = ""
	selectors[kinds.KindSecret] += ",!" + kinds.LabelTokens
	selectors[kinds.KindToken] += "," + kinds.LabelTokens
	return selectors
}

// newClient returns a client of a control plane. It holds no cache, knows the types that the syncer needs and so needs no discovery.
// The server's priority and fairness bounds its rate, and the engine's workers do.
func newClient(config *rest.Config) (client.WithWatch, error) {
	scheme := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(scheme))
	utilruntime.Must(coordinationv1.AddToScheme(scheme))
	utilruntime.Must(discoveryv1.AddToScheme(scheme))
	utilruntime.Must(authenticationv1.AddToScheme(scheme))
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"Pod", "Secret", "ConfigMap", "Service", "ServiceAccount", "ResourceQuota", "Event"} {
		mapper.Add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	mapper.Add(discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), meta.RESTScopeNamespace)
	mapper.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	config = rest.CopyConfig(config)
	config.QPS = -1
	made, err := client.NewWithWatch(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("making a client of %s: %w", config.Host, err)
	}
	return made, nil
}

// source is what one informer watches. Namespace "" means all.
type source struct{ kind, namespace string }

// informers is the cache of one control plane: informers that start and stop one by one. It implements kinds.Cache.
type informers struct {
	client client.WithWatch
	// selectors bound what is watched of a kind, by label.
	selectors map[string]string
	// changed is called after an object of the cache has changed; old is nil for a new one, and current nil for one that is gone.
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

// watch starts the informers of sources that do not run yet and stops all others. Informers end with ctx too.
func (i *informers) watch(ctx context.Context, sources []source) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.running == nil {
		i.running = map[source]*informer{}
	}
	wanted := sets.New(sources...)
	for from, running := range i.running {
		if !wanted.Has(from) {
			running.stop()
			delete(i.running, from)
		}
	}
	for _, from := range sources {
		if _, exists := i.running[from]; exists {
			continue
		}
		if err := i.start(ctx, from); err != nil {
			return err
		}
	}
	return nil
}

func (i *informers) start(ctx context.Context, from source) error {
	ctx, stop := context.WithCancel(ctx)
	made := toolscache.NewSharedIndexInformer(i.listWatch(from), watched[from.kind].object, 0, indexers())
	if err := made.SetTransform(trim); err != nil {
		stop()
		return fmt.Errorf("setting the transform of kind %s: %w", from.kind, err)
	}
	if _, err := made.AddEventHandler(i.handler(from.kind)); err != nil {
		stop()
		return fmt.Errorf("adding the handler of kind %s: %w", from.kind, err)
	}
	i.running[from] = &informer{SharedIndexInformer: made, stop: stop}
	i.group.Go(func() { made.RunWithContext(ctx) })
	i.group.Go(func() {
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
	options := func(raw metav1.ListOptions) *client.ListOptions {
		raw.LabelSelector = i.selectors[from.kind]
		raw.FieldSelector = fieldSelectors[from.kind]
		return &client.ListOptions{Namespace: from.namespace, Limit: raw.Limit, Continue: raw.Continue, Raw: &raw}
	}
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, raw metav1.ListOptions) (runtime.Object, error) {
			list := watched[from.kind].list()
			return list, i.client.List(ctx, list, options(raw))
		},
		WatchFuncWithContext: func(ctx context.Context, raw metav1.ListOptions) (watch.Interface, error) {
			return i.client.Watch(ctx, watched[from.kind].list(), options(raw))
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

func indexers() toolscache.Indexers {
	index := func(values func(client.Object) []string) toolscache.IndexFunc {
		return func(item any) ([]string, error) {
			object, ok := item.(client.Object)
			if !ok {
				return nil, fmt.Errorf("%T is not an object", item)
			}
			return values(object), nil
		}
	}
	return toolscache.Indexers{
		kinds.IndexTenant: index(func(object client.Object) []string {
			return []string{object.GetLabels()[tenancyv1alpha1.LabelCluster]}
		}),
		toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc,
		kinds.IndexNode: index(func(object client.Object) []string {
			pod, ok := object.(*corev1.Pod)
			if !ok || pod.Spec.NodeName == "" {
				return nil
			}
			return []string{kinds.OnNode("", pod.Spec.NodeName), kinds.OnNode(pod.Labels[tenancyv1alpha1.LabelCluster], pod.Spec.NodeName)}
		}),
	}
}

// trim drops what nobody reads.
func trim(item any) (any, error) {
	if object, ok := item.(client.Object); ok {
		object.SetManagedFields(nil)
	}
	return item, nil
}
