package podscheduler

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/apps"
	"k8s.io/client-go/informers/core"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/informers/policy"
	"k8s.io/client-go/informers/resource"
	"k8s.io/client-go/informers/scheduling"
	"k8s.io/client-go/informers/storage"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/superpool/superpool/internal/tenantclient"
)

// boundedFactory is a factory whose informers read lists page by page and open an account of the tenant's budget,
// whoever requests them: kube-scheduler, its plugins and the tenant's controller.
type boundedFactory struct {
	informers.SharedInformerFactory
	bounds *tenantclient.Bounds
	// recovered returns a handler whose panics end the tenant's connection. Kube-scheduler's handlers would end the
	// process.
	recovered func(cache.ResourceEventHandler) cache.ResourceEventHandler

	mu        sync.Mutex
	informers map[reflect.Type]*countedInformer
}

// InformerFor implements informers.SharedInformerFactory.
func (f *boundedFactory) InformerFor(object runtime.Object, newFunc internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	f.mu.Lock()
	defer f.mu.Unlock()
	informer := f.SharedInformerFactory.InformerFor(object, func(api kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		account := f.bounds.Account()
		account.Beside = termsOf
		counted := newCountedInformer(newFunc(api, resync), account, f.recovered)
		f.informers[reflect.TypeOf(object)] = counted
		return counted
	})
	return informer
}

// Shutdown implements informers.SharedInformerFactory, and gives back what the informers took of the tenant's budget,
// which the next connection is to have.
func (f *boundedFactory) Shutdown() {
	f.SharedInformerFactory.Shutdown()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, counted := range f.informers {
		counted.account.Close()
	}
}

// countedInformer counts its objects, and calls all event handlers that it is given before it runs from one listener:
// each listener costs two goroutines and a buffer of 16 KiB.
type countedInformer struct {
	cache.SharedIndexInformer
	// account counts nothing for objects of the view's own.
	account *tenantclient.Account
	// recovered is that of boundedFactory. before returns what comes between the one listener and its handlers, nil for
	// recovered alone; it is set before the informer runs.
	recovered, before func(cache.ResourceEventHandler) cache.ResourceEventHandler
	// each returns what comes before a handler that is added from now on, nil for nothing.
	each func(cache.ResourceEventHandler) cache.ResourceEventHandler

	mu    sync.Mutex
	begun bool
	// transform is that of the informer, nil for none, and handlers what the one listener calls.
	transform cache.TransformFunc
	handlers  handlers
	// synced is closed once the listener was called with all that was listed first.
	synced chan struct{}
}

func newCountedInformer(
	informer cache.SharedIndexInformer, account *tenantclient.Account, recovered func(cache.ResourceEventHandler) cache.ResourceEventHandler,
) *countedInformer {
	return &countedInformer{SharedIndexInformer: informer, account: account, recovered: recovered, synced: make(chan struct{})}
}

// handlers are called one after the other. Nobody adds one while the informer runs.
type handlers struct{ all []*removable }

// removable is an event handler, and its registration.
type removable struct {
	informer *countedInformer
	handler  cache.ResourceEventHandler
	removed  atomic.Bool
}

// HasSynced implements cache.ResourceEventHandlerRegistration.
func (r *removable) HasSynced() bool { return cache.IsDone(r) }

// HasSyncedChecker implements cache.ResourceEventHandlerRegistration.
func (r *removable) HasSyncedChecker() cache.DoneChecker { return r }

// Name implements cache.DoneChecker.
func (r *removable) Name() string { return "event handler of a tenant's informer" }

// Done implements cache.DoneChecker.
func (r *removable) Done() <-chan struct{} { return r.informer.synced }

func (h *handlers) each(call func(cache.ResourceEventHandler)) {
	for _, one := range h.all {
		if !one.removed.Load() {
			call(one.handler)
		}
	}
}

// OnAdd implements cache.ResourceEventHandler.
func (h *handlers) OnAdd(object any, isInInitialList bool) {
	h.each(func(handler cache.ResourceEventHandler) { handler.OnAdd(object, isInInitialList) })
}

// OnUpdate implements cache.ResourceEventHandler.
func (h *handlers) OnUpdate(old, current any) {
	h.each(func(handler cache.ResourceEventHandler) { handler.OnUpdate(old, current) })
}

// OnDelete implements cache.ResourceEventHandler.
func (h *handlers) OnDelete(object any) {
	h.each(func(handler cache.ResourceEventHandler) { handler.OnDelete(object) })
}

// SetTransform implements cache.SharedInformer.
func (c *countedInformer) SetTransform(transform cache.TransformFunc) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.begun {
		return errors.New("the informer has begun")
	}
	c.transform = transform
	return nil
}

// begin registers the one listener.
func (c *countedInformer) begin(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.begun {
		return errors.New("the informer has begun")
	}
	c.begun = true
	listener := c.recovered(&c.handlers)
	if c.before != nil {
		listener = c.before(&c.handlers)
	}
	first, err := c.account.Follow(c.SharedIndexInformer, c.transform, listener)
	if err != nil {
		return err //nolint:wrapcheck // it is the informer's
	}
	go func() {
		select {
		case <-first.HasSyncedChecker().Done():
			close(c.synced)
		case <-ctx.Done():
		}
	}()
	return nil
}

// Run implements cache.SharedInformer.
func (c *countedInformer) Run(stop <-chan struct{}) { c.RunWithContext(wait.ContextForChannel(stop)) }

// RunWithContext implements cache.SharedInformer.
func (c *countedInformer) RunWithContext(ctx context.Context) {
	if err := c.begin(ctx); err != nil { // it has run
		utilruntime.HandleErrorWithContext(ctx, err, "An informer of a tenant cannot run")
		return
	}
	c.SharedIndexInformer.RunWithContext(ctx)
}

// AddEventHandler implements cache.SharedInformer. A handler that comes once the informer runs has a listener of its
// own, whose buffer nobody counts: it may do no more than add a key to a queue.
func (c *countedInformer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.begun {
		return c.SharedIndexInformer.AddEventHandler(c.recovered(handler)) //nolint:wrapcheck // it is the informer's
	}
	if c.each != nil {
		handler = c.each(handler)
	}
	added := &removable{informer: c, handler: handler}
	c.handlers.all = append(c.handlers.all, added)
	return added, nil
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer.
func (c *countedInformer) AddEventHandlerWithResyncPeriod(
	handler cache.ResourceEventHandler, period time.Duration,
) (cache.ResourceEventHandlerRegistration, error) {
	return c.AddEventHandlerWithOptions(handler, cache.HandlerOptions{ResyncPeriod: &period})
}

// AddEventHandlerWithOptions implements cache.SharedInformer. No handler is called without a change.
func (c *countedInformer) AddEventHandlerWithOptions(
	handler cache.ResourceEventHandler, options cache.HandlerOptions,
) (cache.ResourceEventHandlerRegistration, error) {
	if ptr.Deref(options.ResyncPeriod, 0) != 0 {
		return nil, errors.New("a tenant's informers have no resyncs")
	}
	return c.AddEventHandler(handler)
}

// RemoveEventHandler implements cache.SharedInformer.
func (c *countedInformer) RemoveEventHandler(registration cache.ResourceEventHandlerRegistration) error {
	if ours, shares := registration.(*removable); shares {
		ours.removed.Store(true)
		return nil
	}
	return c.SharedIndexInformer.RemoveEventHandler(registration) //nolint:wrapcheck // it is the informer's
}

// Apps implements informers.SharedInformerFactory.
func (f *boundedFactory) Apps() apps.Interface {
	return apps.New(f, metav1.NamespaceAll, tenantclient.Paged)
}

// Core implements informers.SharedInformerFactory.
func (f *boundedFactory) Core() core.Interface {
	return core.New(f, metav1.NamespaceAll, tenantclient.Paged)
}

// Policy implements informers.SharedInformerFactory.
func (f *boundedFactory) Policy() policy.Interface {
	return policy.New(f, metav1.NamespaceAll, tenantclient.Paged)
}

// Resource implements informers.SharedInformerFactory.
func (f *boundedFactory) Resource() resource.Interface {
	return resource.New(f, metav1.NamespaceAll, tenantclient.Paged)
}

// Scheduling implements informers.SharedInformerFactory. Plugin PreemptionToleration reads PriorityClasses.
func (f *boundedFactory) Scheduling() scheduling.Interface {
	return scheduling.New(f, metav1.NamespaceAll, tenantclient.Paged)
}

// Storage implements informers.SharedInformerFactory.
func (f *boundedFactory) Storage() storage.Interface {
	return storage.New(f, metav1.NamespaceAll, tenantclient.Paged)
}
