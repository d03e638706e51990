// Package scheduling runs the schedulers of vc-scheduler and the controllers around them. It composes: for each tenant
// one controller, whose reconcilers are those of the packages below, and one pod scheduler.
package scheduling

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/scheduling/placements"
	"github.com/superpool/superpool/internal/scheduling/podscheduler"
	"github.com/superpool/superpool/internal/scheduling/tenantevents"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/tenants"
	"github.com/superpool/superpool/internal/view"
)

const (
	// tenantQPS and tenantBurst bound the requests to one tenant control plane. A burst of pods costs one request each.
	tenantQPS, tenantBurst = 500, 1000
)

// Part is what a Tenants does for each tenant.
type Part int

const (
	// PartAll is all of it.
	PartAll Part = iota
	// PartPlacements is the controller of the tenant's NamespacePlacements: it needs the Usage of the pool's leader.
	PartPlacements
	// PartPods is the tenant's pod scheduler, and the repair of what pods say about their super clusters. It needs
	// nothing but the two API servers.
	PartPods
)

// Tenants runs, for each tenant, a pod scheduler and the controller of its NamespacePlacements, or one of them.
type Tenants struct {
	// Part is what it does. Of the other fields, PartPods needs Client, Store, Holds, Dispatcher, PodConfig and
	// OutOfTree.
	Part Part
	// Fence makes a transport that writes nothing in tenants once another process may do the same. Nil: this process is
	// the only one.
	Fence func(http.RoundTripper) http.RoundTripper
	// Client reads the meta cluster from a cache.
	Client client.Reader
	// Store reads and writes NamespacePlacements.
	Store *placements.Store
	// Usage tells what super clusters run.
	Usage placements.Usage
	// Holds reads live of which namespaces of the VirtualCluster with that cluster key and UID a super cluster of the
	// pool holds super namespaces. Nil: nobody can say.
	Holds func(ctx context.Context, superCluster, key string, uid types.UID) (sets.Set[string], error)
	// Dispatcher routes the events of the meta cluster.
	Dispatcher *dispatch.Dispatcher
	// PodConfig holds the profiles of the pod schedulers.
	PodConfig *config.KubeSchedulerConfiguration
	// Profiles are the names of the namespace scheduler's profiles.
	Profiles sets.Set[string]
	// DefaultSlice is the slice size for resources that a tenant does not name.
	DefaultSlice slice.Amounts
	// QuotaGrace is how long a namespace keeps what it has once it has no quota any more. 0: it keeps nothing.
	QuotaGrace time.Duration
	// Metrics counts evictions; nil counts none.
	Metrics *placements.Metrics
	// OutOfTree are further plugins of the pod schedulers.
	OutOfTree frameworkruntime.Registry

	// patience is how long lists that fail are retried, 0: podscheduler.ListPatience.
	patience time.Duration
}

// heldOf returns the memory of what super clusters hold of a tenant.
func (t *Tenants) heldOf(tenant *tenants.Tenant) *dispatch.HeldNamespaces {
	held := &dispatch.HeldNamespaces{Clock: clock.RealClock{}}
	if t.Holds != nil {
		held.Read = func(ctx context.Context, superCluster string) (sets.Set[string], error) {
			return t.Holds(ctx, superCluster, tenant.Key, tenant.UID)
		}
	}
	return held
}

// Engage works on one tenant until ctx ends. It is a tenants.Engage. A panic of an event handler or of the projection
// of pods ends it with a Failure, so that the next connection reads everything again. A panic in kube-scheduler's own
// goroutines, its plugins' included, still ends the process.
func (t *Tenants) Engage(ctx context.Context, tenant *tenants.Tenant, ready func()) error {
	cfg := rest.CopyConfig(tenant.Config)
	cfg.QPS, cfg.Burst = tenantQPS, tenantBurst
	if t.Fence != nil {
		cfg.Wrap(t.Fence)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := t.engage(ctx, tenant, cfg, ready, cancel)
	var panicked *engage.Failure
	switch cause := context.Cause(ctx); {
	case errors.As(cause, &panicked):
		return panicked
	case cause != nil && !errors.Is(cause, context.Canceled):
		return cause
	}
	return err
}

// engage is Engage, by a client of cfg, until ctx ends. fail ends ctx.
func (t *Tenants) engage(ctx context.Context, tenant *tenants.Tenant, cfg *rest.Config, ready func(), fail func(error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	optional := rest.CopyConfig(cfg) // what the control plane need not serve is no failure
	failures := &podscheduler.ReadFailures{}
	cfg.Wrap(failures.Wrap)
	api, err := kubernetes.NewForConfig(rest.AddUserAgent(cfg, tenantevents.ControllerName))
	if err != nil {
		return fmt.Errorf("building a client: %w", err)
	}
	recorders, err := tenantevents.StartRecorders(ctx, api)
	if err != nil {
		return err
	}
	defer recorders.Shutdown()

	nodes := view.NewNodeSource()
	chosen := t.choices()
	factory := podscheduler.NewInformers(ctx, api, nodes, chosen, tenant.Bounds, fail)
	recorder := recorders.Of(tenantevents.ControllerName)
	controller := newTenantController(t, tenant, api, factory, nodes, chosen, recorder, fail)
	if err := controller.releaseSnapshots(optional); err != nil {
		return err
	}
	pods := &podscheduler.Scheduler{}
	if t.Part != PartPlacements {
		pods, err = podscheduler.Instance{
			Config: t.PodConfig, OutOfTree: t.OutOfTree, Tenant: tenant, Choices: chosen, KubeConfig: cfg, Optional: optional,
			Client: api, Informers: factory, Recorder: recorder, Recorders: recorders.OfPods,
		}.Build(ctx)
		if err != nil {
			return err
		}
		ended := pods.Start(ctx, tenant.Bounds, fail)
		defer ended()
		defer cancel()
		// kube-scheduler tries pods as soon as its informers have synced: the nodes must be in the view by then.
		if err := controller.nodes.Project(ctx); err != nil {
			return err
		}
	}
	factory.StartWithContext(ctx)
	defer factory.Shutdown()
	defer cancel() // before Shutdown, which waits for the informers
	if err := podscheduler.WaitForCaches(ctx, factory, failures, cmp.Or(t.patience, podscheduler.ListPatience)); err != nil {
		return err
	}
	chosen.Listed()
	if !pods.Begin(ctx, fail) {
		return nil // ctx ended
	}
	ready()
	klog.FromContext(ctx).Info("Tenant engaged")
	ended := pods.Run(ctx)
	err = controller.run(ctx)
	cancel()
	<-ended
	return err
}

// choices returns the choices of a tenant's pod scheduler, nil where it runs in another process.
func (t *Tenants) choices() *podscheduler.Choices {
	if t.Part == PartPlacements {
		return nil
	}
	return podscheduler.NewChoices(podscheduler.ProfileNames(t.PodConfig)...)
}
