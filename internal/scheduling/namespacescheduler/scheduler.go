// Package namespacescheduler runs the namespace scheduler: it places the slices of all tenants' namespaces.
package namespacescheduler

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/utils/clock"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/placer"
	"github.com/superpool/superpool/internal/scheduling/placements"
	"github.com/superpool/superpool/internal/view"
)

// Scheduler runs the placer.Placer of the meta cluster: informers feed it NamespacePlacements and virtual
// Nodes, and StatusSink writes its decisions into the status of the NamespacePlacements. It is a runnable of a manager,
// for the leader only. All fields are required.
type Scheduler struct {
	// Informers are those of the meta cluster. Their Nodes are virtual Nodes only.
	Informers ctrlcache.Informers
	// Cached reads from Informers, Live from the meta cluster's API server.
	Cached, Live client.Reader
	// Store writes NamespacePlacements.
	Store *placements.Store
	// KubeConfig leads to the meta cluster, for plugins.
	KubeConfig *rest.Config
	// Config holds the profiles.
	Config *config.KubeSchedulerConfiguration
}

// NeedLeaderElection returns true: two schedulers would place a namespace twice.
func (s *Scheduler) NeedLeaderElection() bool { return true }

// Start runs until ctx ends.
func (s *Scheduler) Start(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.LoggerWithName(klog.FromContext(ctx), "namespace-scheduler"))
	if !placements.CatchUp(ctx, s.Live, s.Cached) {
		return nil
	}
	sink := NewStatusSink(s.Store, clock.RealClock{})
	p := &placer.Placer{
		Namespaces: view.NewNamespaces(), Nodes: view.NewNodeSource(), Config: s.Config, Sink: sink, KubeConfig: s.KubeConfig,
	}
	// feed waits until the sources hold all reservations and virtual Nodes, so the first decision counts them.
	placements := engage.ObjectHandler(
		func(np *schedulerv1alpha1.NamespacePlacement) {
			p.Namespaces.Set(ToBePlaced(np))
		},
		func(np *schedulerv1alpha1.NamespacePlacement) {
			key := client.ObjectKeyFromObject(np)
			p.Namespaces.Delete(key)
			sink.Forget(key)
		})
	stopPlacements, err := feed(ctx, s.Informers, &schedulerv1alpha1.NamespacePlacement{}, placements)
	if err != nil {
		return fmt.Errorf("watching NamespacePlacements: %w", err)
	}
	defer stopPlacements()
	nodes := engage.ObjectHandler(
		func(node *corev1.Node) { p.Nodes.Set(node.Name, view.NamespaceNode(node)) },
		func(node *corev1.Node) { p.Nodes.Set(node.Name) })
	stopNodes, err := feed(ctx, s.Informers, &corev1.Node{}, nodes)
	if err != nil {
		return fmt.Errorf("watching virtual Nodes: %w", err)
	}
	defer stopNodes()
	written := make(chan struct{})
	go func() {
		defer close(written)
		sink.run(ctx)
	}()
	defer func() { <-written }()
	if err := p.Run(ctx); err != nil {
		return fmt.Errorf("placing namespaces: %w", err)
	}
	return nil
}

// ToBePlaced returns np as the namespace scheduler is to see it. Of a NamespacePlacement whose status was never
// written, which may hold something already (namespaces.Reconciler), and of one that is being deleted, no slices wait
// to be placed.
func ToBePlaced(np *schedulerv1alpha1.NamespacePlacement) *schedulerv1alpha1.NamespacePlacement {
	if !placement.IsDecided(np) || np.DeletionTimestamp != nil {
		np = np.DeepCopy()
		np.Spec.Quota = nil
	}
	return np
}

// feed adds handler to the informer of kind's kind, waits until it was called for all objects that the informer has
// listed, or ctx ended, and returns what removes it. An object on which handler panics keeps its last projection.
func feed(ctx context.Context, informers ctrlcache.Informers, kind client.Object, handler cache.ResourceEventHandler) (func(), error) {
	informer, err := informers.GetInformer(ctx, kind)
	if err != nil {
		return nil, fmt.Errorf("getting an informer: %w", err)
	}
	registration, err := informer.AddEventHandler(engage.Handler(ctx, fmt.Sprintf("informer of %T", kind), nil, handler))
	if err != nil {
		return nil, fmt.Errorf("adding an event handler: %w", err)
	}
	cache.WaitForCacheSync(ctx.Done(), registration.HasSynced)
	return func() { _ = informer.RemoveEventHandler(registration) }, nil
}
