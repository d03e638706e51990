package scheduling

import (
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/apps"
	"k8s.io/client-go/informers/core"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/informers/policy"
	"k8s.io/client-go/informers/resource"
	"k8s.io/client-go/informers/storage"
	"k8s.io/client-go/tools/cache"

	"github.com/superpool/superpool/internal/tenantclient"
)

// boundedFactory is a factory whose informers read lists page by page and open an account of the tenant's budget,
// whoever requests them: kube-scheduler, its plugins and the tenant's controller.
type boundedFactory struct {
	informers.SharedInformerFactory
	bounds *tenantclient.Bounds

	mu        sync.Mutex
	informers map[reflect.Type]*countedInformer
}

// InformerFor implements informers.SharedInformerFactory.
func (f *boundedFactory) InformerFor(object runtime.Object, newFunc internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	informer := f.SharedInformerFactory.InformerFor(object, newFunc)
	f.mu.Lock()
	defer f.mu.Unlock()
	counted, exists := f.informers[reflect.TypeOf(object)]
	if !exists {
		counted = &countedInformer{SharedIndexInformer: informer, account: f.bounds.Account()}
		f.informers[reflect.TypeOf(object)] = counted
	}
	return counted
}

// Start implements informers.SharedInformerFactory. Informers that have no event handler get one that counts.
func (f *boundedFactory) Start(stop <-chan struct{}) {
	f.mu.Lock()
	for _, counted := range f.informers {
		counted.count()
	}
	f.mu.Unlock()
	f.SharedInformerFactory.Start(stop)
}

// Shutdown implements informers.SharedInformerFactory, and gives back what the informers took of the tenant's budget,
// which the next connection is to have.
func (f *boundedFactory) Shutdown() {
	f.SharedInformerFactory.Shutdown()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, counted := range f.informers {
		if counted.account != nil { // nodes are the view's own
			counted.account.Close()
		}
	}
}

// countedInformer counts its objects in the first event handler that it is given. The handler is never removed.
type countedInformer struct {
	cache.SharedIndexInformer
	account *tenantclient.Account
	counts  atomic.Bool
}

// handler returns the handler to add in place of one.
func (c *countedInformer) handler(next cache.ResourceEventHandler) cache.ResourceEventHandler {
	if c.counts.Swap(true) {
		return next
	}
	return c.account.Handler(next)
}

func (c *countedInformer) count() {
	if !c.counts.Load() {
		// Adding a handler fails only on a stopped informer.
		_, _ = c.AddEventHandler(nil)
	}
}

// AddEventHandler implements cache.SharedInformer.
func (c *countedInformer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return c.SharedIndexInformer.AddEventHandler(c.handler(handler)) //nolint:wrapcheck // it is the informer's
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer.
func (c *countedInformer) AddEventHandlerWithResyncPeriod(
	handler cache.ResourceEventHandler, period time.Duration,
) (cache.ResourceEventHandlerRegistration, error) {
	return c.SharedIndexInformer.AddEventHandlerWithResyncPeriod(c.handler(handler), period) //nolint:wrapcheck // it is the informer's
}

// AddEventHandlerWithOptions implements cache.SharedInformer.
func (c *countedInformer) AddEventHandlerWithOptions(
	handler cache.ResourceEventHandler, options cache.HandlerOptions,
) (cache.ResourceEventHandlerRegistration, error) {
	return c.SharedIndexInformer.AddEventHandlerWithOptions(c.handler(handler), options) //nolint:wrapcheck // it is the informer's
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

// Storage implements informers.SharedInformerFactory.
func (f *boundedFactory) Storage() storage.Interface {
	return storage.New(f, metav1.NamespaceAll, tenantclient.Paged)
}
