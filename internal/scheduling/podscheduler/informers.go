package podscheduler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/kubescheduler"
	"github.com/superpool/superpool/internal/tenantclient"
	"github.com/superpool/superpool/internal/view"
)

const (
	// ListPatience is how long lists that fail are retried before Engage returns their error and the tenant counts as
	// unreachable.
	ListPatience = time.Minute

	// maxRefusal bounds what is read of the body of a refusal.
	maxRefusal = 4096
)

// NewInformers returns the informers of a tenant: its pods and volumes through the pod view's projection, and nodes
// from the view alone. With nil choices, another process makes them. All but what is the view's own counts
// towards bounds. A panic of the projection is passed to fail.
func NewInformers(
	ctx context.Context, api kubernetes.Interface, nodes *view.Source, chosen *Choices, bounds *tenantclient.Bounds,
	fail func(error),
) informers.SharedInformerFactory {
	shared := informers.NewSharedInformerFactoryWithOptions(api, 0, informers.WithTransform(ctrlcache.TransformStripManagedFields()))
	recovered := func(handler cache.ResourceEventHandler) cache.ResourceEventHandler {
		return engage.Handler(ctx, "informer of the tenant", fail, handler)
	}
	factory := &boundedFactory{
		SharedInformerFactory: shared, bounds: bounds, recovered: recovered, informers: map[reflect.Type]*countedInformer{},
	}
	pods := factory.InformerFor(&corev1.Pod{}, func(api kubernetes.Interface, _ time.Duration) cache.SharedIndexInformer {
		indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
		return coreinformers.NewFilteredPodInformer(api, metav1.NamespaceAll, 0, indexers, func(options *metav1.ListOptions) {
			tenantclient.Paged(options)
			options.FieldSelector = "status.phase!=Succeeded,status.phase!=Failed"
		})
	})
	counted := factory.informers[reflect.TypeFor[*corev1.Pod]()]
	counted.before = func(handler cache.ResourceEventHandler) cache.ResourceEventHandler {
		return recovered(kubescheduler.NewPodEvents(handler, chosen.missed, fail))
	}
	if chosen != nil {
		_, _ = pods.AddEventHandler(chosen.handler()) // adding a handler fails only on a stopped informer
	}
	counted.each = kubescheduler.TakenOff // the others are kube-scheduler's
	// InformerFor sets the factory's own transform, so ours comes after it. It fails only on a started informer.
	isChosen := view.IsLabeled
	if chosen != nil {
		isChosen = chosen.isChosen
		projectVolumes(ctx, shared, factory, fail)
	}
	_ = pods.SetTransform(engage.Transform(ctx, "projection of pods", fail, view.TenantPods(isChosen)))
	nodesOfView := func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
		return newCountedInformer(cache.NewSharedIndexInformer(nodes, &corev1.Node{}, 0, cache.Indexers{}), (*tenantclient.Bounds)(nil).Account(), recovered)
	}
	shared.InformerFor(&corev1.Node{}, nodesOfView) // they are the view's own, and count nothing
	return factory
}

// ReadFailures keeps why the last read of a tenant control plane failed. It sits in the client's transport, below all
// informers, so that none can be forgotten but those of kinds that need not be served. It is safe for concurrent use.
type ReadFailures struct{ last atomic.Pointer[error] }

// Wrap returns a transport that notes what inner refuses to read.
func (f *ReadFailures) Wrap(transport http.RoundTripper) http.RoundTripper {
	return readTransport{transport, f}
}

// take returns the last failure and clears it, nil if there was none.
func (f *ReadFailures) take() error {
	if err := f.last.Swap(nil); err != nil {
		return *err
	}
	return nil
}

type readTransport struct {
	http.RoundTripper
	failures *ReadFailures
}

// RoundTrip implements http.RoundTripper.
func (t readTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(request)
	if request.Method != http.MethodGet {
		return response, err //nolint:wrapcheck // a transport changes nothing
	}
	switch {
	case err != nil:
		t.failures.last.Store(&err)
	case response.StatusCode >= http.StatusBadRequest:
		reason := refusalOf(response)
		t.failures.last.Store(&reason)
	}
	return response, err //nolint:wrapcheck // a transport changes nothing
}

// WrappedRoundTripper lets client-go find the transport below.
func (t readTransport) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }

// refusalOf reads the beginning of a refusal, which the client reads again.
func refusalOf(response *http.Response) error {
	start, _ := io.ReadAll(io.LimitReader(response.Body, maxRefusal)) // what cannot be read, the client meets again
	rest := response.Body
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(start), rest), rest}
	status := &metav1.Status{}
	if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(start, nil, status); err == nil && status.Message != "" {
		return errors.New(status.Message)
	}
	return fmt.Errorf("%s for %s", response.Status, response.Request.URL.Path)
}

// WaitForCaches waits until all informers have synced. When that takes longer than patience because a read fails, it
// returns the error of the read: a kubeconfig that lacks permissions would else leave a tenant in Connecting for ever,
// with the reason in the log alone.
func WaitForCaches(ctx context.Context, factory informers.SharedInformerFactory, failures *ReadFailures, patience time.Duration) error {
	for ctx.Err() == nil {
		waiting, stop := context.WithTimeout(ctx, patience)
		synced := factory.WaitForCacheSync(waiting.Done())
		stop()
		if !slices.Contains(slices.Collect(maps.Values(synced)), false) {
			return nil
		}
		if reason := failures.take(); reason != nil && ctx.Err() == nil {
			return fmt.Errorf("reading objects: %w", reason)
		}
	}
	return nil
}
