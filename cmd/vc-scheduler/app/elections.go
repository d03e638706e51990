package app

import (
	"context"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/superpool/superpool/internal/leadership"
	"github.com/superpool/superpool/internal/scheduling"
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/shards"
	"github.com/superpool/superpool/internal/tenants"
	"github.com/superpool/superpool/internal/virtualclusters"
)

// elections are what this process may be elected to: to lead the pool, and to schedule the pods of shards of tenants.
// Without --leader-elect all fields are nil, and it does both.
type elections struct {
	// fence and lock are of the leader's Lease.
	fence *leadership.Fence
	lock  resourcelock.Interface
	// shards are what the pods of tenants are scheduled by.
	shards *shards.Shards
}

// newElections returns what options ask for. cfg leads to the meta cluster without a Fence.
func newElections(cfg *rest.Config, options *Options) (*elections, error) {
	if !options.LeaderElect {
		return &elections{}, nil
	}
	patient := rest.CopyConfig(cfg)
	patient.Timeout = renewDeadline / 2
	api, err := coordinationclient.NewForConfig(rest.AddUserAgent(patient, component))
	if err != nil {
		return nil, fmt.Errorf("making a client of Leases: %w", err)
	}
	metrics, err := shards.NewMetrics(ctrlmetrics.Registry, prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: "vc_scheduler", Name: "shards_led",
		Help: "[ALPHA] Shards of tenants whose pods this process schedules: with --shards=1 it is 1 on the leader and 0 on the others. Over all replicas it is the number of shards, but for moments in which one moves.",
	}))
	if err != nil {
		return nil, fmt.Errorf("setting up shards: %w", err)
	}
	fence := &leadership.Fence{RenewDeadline: renewDeadline, LeaseDuration: leaseDuration}
	split, err := shards.New(shards.Options{
		Leases: api.Leases(options.LeaderElectNamespace), Namespace: options.LeaderElectNamespace, Program: leaseName,
		Count: options.Shards, Fence: fence,
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod, Metrics: metrics,
	})
	if err != nil {
		return nil, fmt.Errorf("setting up shards: %w", err)
	}
	if options.Shards > 1 {
		fence.Identity = split.Identity()
	}
	lock, err := fence.NewLock(cfg, options.LeaderElectNamespace, leaseName)
	if err != nil {
		return nil, fmt.Errorf("electing a leader: %w", err)
	}
	return &elections{fence: fence, lock: lock, shards: split}, nil
}

// splits reports whether others than the leader schedule pods.
func (e *elections) splits() bool { return e.shards != nil && e.shards.Count > 1 }

// part is what the leader does for each tenant.
func (e *elections) part() scheduling.Part {
	if e.splits() {
		return scheduling.PartPlacements
	}
	return scheduling.PartAll
}

// lead is scheduling.Tenants.Lead of the leader, whose process ends when it leads no more.
func (e *elections) lead() func(context.Context, types.UID) (context.Context, func(http.RoundTripper) http.RoundTripper, func(), error) {
	switch {
	case e.shards == nil:
		return nil
	case e.splits():
		return func(ctx context.Context, _ types.UID) (context.Context, func(http.RoundTripper) http.RoundTripper, func(), error) {
			return ctx, e.fence.Wrap, func() {}, nil
		}
	}
	return e.shards.Lead
}

// setup adds shards to mgr, and, if there are several, the pod schedulers of those that this process leads. leader is
// what the leader runs for each tenant.
func (e *elections) setup(ctx context.Context, mgr ctrl.Manager, leader *scheduling.Tenants) error {
	if e.shards == nil {
		return nil
	}
	if err := mgr.Add(e.shards); err != nil {
		return fmt.Errorf("adding them to the manager: %w", err)
	}
	if !e.splits() {
		return nil
	}
	dispatcher := dispatch.New(true)
	if err := dispatcher.Watch(ctx, mgr.GetCache()); err != nil {
		return fmt.Errorf("following placements: %w", err)
	}
	pods := e.pods(leader, dispatcher)
	reader := virtualclusters.Reader{Reader: mgr.GetAPIReader(), Recorder: mgr.GetEventRecorderFor(component)}
	controller := &tenants.Controller{Client: mgr.GetClient(), Lifecycle: reader, Engage: pods.Engage, Shards: e.shards}
	if err := controller.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("following tenants: %w", err)
	}
	return nil
}

// pods returns what is run for each tenant of the shards that this process leads: as the leader does it, without what
// the leader alone knows.
func (e *elections) pods(leader *scheduling.Tenants, dispatcher *dispatch.Dispatcher) *scheduling.Tenants {
	pods := *leader
	pods.Part, pods.Lead, pods.Dispatcher, pods.Usage = scheduling.PartPods, e.shards.Lead, dispatcher, nil
	return &pods
}
