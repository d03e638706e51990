package superclusters

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/engage"
)

const (
	watchRetryAfter = 5 * time.Second
	// logEvery is how many failed tries share one line of the log.
	logEvery = 12
)

// clusterGroupKind is the kind of Cluster API that stands for a super cluster.
func clusterGroupKind() schema.GroupKind {
	return schema.GroupKind{Group: "cluster.x-k8s.io", Kind: "Cluster"}
}

// clusterVersions are the versions of that kind that will do, the best first.
func clusterVersions() []string { return []string{"v1beta2", "v1beta1"} }

type reconcileQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// clusterWatch starts the watch on Clusters once the meta cluster serves them, in the version that it serves.
type clusterWatch struct {
	controller *Controller
	mapper     meta.RESTMapper
	cache      cache.Cache
	// bound is closed when the controller's queue takes requests.
	bound <-chan struct{}
}

// Start implements controller-runtime's Runnable.
func (w *clusterWatch) Start(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-w.bound:
	}
	var registration toolscache.ResourceEventHandlerRegistration
	err := w.until(ctx, func() (err error) {
		registration, err = w.watch(ctx)
		return err
	})
	if err == nil && toolscache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		err = w.until(ctx, func() error { return w.adopt(ctx) })
	}
	if ctx.Err() == nil {
		return err
	}
	return nil // the end of ctx is the regular end
}

// until calls step until it succeeds or ctx ends. Only the latter returns an error.
func (w *clusterWatch) until(ctx context.Context, step func() error) error {
	for attempt := 0; ; attempt++ {
		err := step()
		if err == nil {
			return nil
		}
		if attempt%logEvery == 0 && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Clusters cannot be watched, trying again")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(watchRetryAfter):
		}
	}
}

// watch enqueues every Cluster that changes.
func (w *clusterWatch) watch(ctx context.Context) (toolscache.ResourceEventHandlerRegistration, error) {
	mapping, err := w.mapper.RESTMapping(clusterGroupKind(), clusterVersions()...)
	if err != nil {
		return nil, fmt.Errorf("finding a version of %s that the meta cluster serves (is the CRD of Cluster API installed?): %w", clusterGroupKind(), err)
	}
	kind := mapping.GroupVersionKind
	cluster := &metav1.PartialObjectMetadata{}
	cluster.SetGroupVersionKind(kind)
	informer, err := w.cache.GetInformer(ctx, cluster)
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", kind, err)
	}
	w.controller.kind.Store(&kind)
	klog.FromContext(ctx).V(2).Info("Watching Clusters", "kind", kind)
	handler := engage.ObjectHandler(w.changed, w.changed)
	registration, err := informer.AddEventHandler(engage.Handler(ctx, "informer of Clusters", nil, handler))
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", kind, err)
	}
	return registration, nil
}

func (w *clusterWatch) changed(cluster *metav1.PartialObjectMetadata) {
	w.controller.supervisor.Changed(client.ObjectKeyFromObject(cluster))
}

// adopt enqueues the Clusters that existing virtual Nodes name: a Cluster that was deleted while no process ran sends
// no event.
func (w *clusterWatch) adopt(ctx context.Context) error {
	var nodes corev1.NodeList
	if err := w.controller.Reader.List(ctx, &nodes, client.HasLabels{schedulerv1alpha1.LabelVirtualNode}); err != nil {
		return fmt.Errorf("listing virtual Nodes: %w", err)
	}
	for i := range nodes.Items {
		if cluster := parseName(nodes.Items[i].Annotations[AnnotationClusterRef]); cluster.Name != "" {
			w.controller.supervisor.Changed(cluster)
		}
	}
	return nil
}
