package syncer

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/syncer/kinds"
	"github.com/superpool/superpool/internal/tenants"
)

// session is the connection to one tenant, from Engage to the end of its context. A tenant without placements in this
// super cluster has a session without informers, once its Nodes are gone.
type session struct {
	syncer *Syncer
	tenant *kinds.Tenant
	cache  *informers
	// changed buffers one signal that the namespaces to watch may have changed (wake).
	changed chan struct{}
	// left is true once the tenant has no placement here and no object is left that the syncer wrote in it.
	left atomic.Bool
}

// Engage implements tenants.Engage: it syncs one tenant until ctx ends. It deletes nothing on either side when it
// returns.
func (s *Syncer) Engage(ctx context.Context, tenant *tenants.Tenant, ready func()) error {
	logger := klog.FromContext(ctx).WithValues("superCluster", s.id)
	ctx, cancel := context.WithCancel(klog.NewContext(ctx, logger))
	defer cancel()
	if !toolscache.WaitForCacheSync(ctx.Done(), s.super.synced) {
		return nil
	}
	session, err := s.newSession(tenant)
	if err != nil {
		return err
	}
	recorder, stop, err := newRecorder(ctx, tenant.Config)
	if err != nil {
		return err
	}
	defer stop()
	session.tenant.Recorder = recorder
	s.setSession(tenant.Key, session)
	// Reconciles that are under way still read the session's caches, which no longer change.
	defer session.cache.wait()
	defer cancel()
	// Super namespaces of a VirtualCluster that is being deleted go now, others stay.
	defer func() { s.add(s.env.SuperNamespaces(tenant.Key)) }()
	defer s.env.Forget(tenant.Key)
	defer s.setSession(tenant.Key, nil)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() { session.watchPolicy(ctx) })
	logger.V(2).Info("Tenant engaged")
	return session.run(ctx, sync.OnceFunc(ready))
}

func (s *Syncer) newSession(tenant *tenants.Tenant) (*session, error) {
	tenantClient, err := newClient(tenant.Config, s.specs)
	if err != nil {
		return nil, err
	}
	watched, err := watchedOf(s.env, s.specs, kinds.TenantSide)
	if err != nil {
		return nil, err
	}
	session := &session{syncer: s, changed: make(chan struct{}, 1)}
	session.cache = &informers{
		client: tenantClient, bounds: tenant.Bounds, watched: watched, changed: session.tenantChanged, filled: session.filled,
	}
	session.tenant = &kinds.Tenant{Tenant: tenant, Client: tenantClient, Cache: session.cache}
	return session, nil
}

// run starts and stops informers as the tenant's placements change, until ctx ends. It calls ready once they are
// synced.
func (s *session) run(ctx context.Context, ready func()) error {
	left, wide := false, false
	for {
		namespaces, err := s.syncer.env.Assignments.Namespaces(ctx, s.tenant.Key)
		if err != nil {
			return fmt.Errorf("reading which namespaces to watch: %w", err)
		}
		left = len(namespaces) == 0 && (left || s.cache.synced() && s.cleanedUp())
		s.left.Store(left)
		wide = watchWide(s.syncer.specs, len(namespaces), int(s.tenant.Policy.Get().Spec().Limits.Watches), wide)
		s.cache.place(namespaces)
		if err := s.cache.watch(ctx, sources(s.syncer.specs, namespaces, left, wide)); err != nil {
			return err
		}
		if len(namespaces) == 0 || s.cache.synced() {
			ready()
		}
		if len(namespaces) == 0 {
			// Super namespaces that exist for Services alone are no longer needed: their reconciles delete them.
			s.syncer.add(s.syncer.env.SuperNamespaces(s.tenant.Key))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.changed:
		}
	}
}

// watchPolicy enqueues all objects of the tenant each time that another TenantPolicy is in force, until ctx ends: what
// was refused is tried again, and what runs is held against it.
func (s *session) watchPolicy(ctx context.Context) {
	_, changed := s.tenant.Policy.Watch()
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		// Before the keys, so that none is reconciled with a policy whose successor is missed.
		_, changed = s.tenant.Policy.Watch()
		s.syncer.add(s.syncer.env.OfTenant(s.tenant))
	}
}

// cleanedUp returns whether the tenant's caches hold none of the objects that the syncer writes there.
func (s *session) cleanedUp() bool {
	for i := range s.syncer.specs {
		if spec := &s.syncer.specs[i]; spec.Scope == kinds.ScopeUp && spec.Tenant != nil && len(s.cache.List(spec.Name)) > 0 {
			return false
		}
	}
	return true
}

// watchWide returns whether to watch a tenant as a whole: beyond the limit of watches, until less than half of it would
// do.
func watchWide(specs []kinds.Spec, namespaces, limit int, wide bool) bool {
	watches := 0
	for i := range specs {
		switch {
		case specs[i].Tenant == nil:
		case specs[i].PerNamespace():
			watches += namespaces
		default:
			watches++
		}
	}
	if wide {
		return watches > limit/2
	}
	return watches > limit
}

// sources returns what to watch in a tenant with placements in namespaces; wide is whether in all namespaces. Of one
// without, it is the kinds that the syncer writes there (ScopeUp), and nothing once they are left behind: left is true.
func sources(specs []kinds.Spec, namespaces []string, left, wide bool) []source {
	if left {
		return nil
	}
	all := make([]source, 0, len(specs)*(1+len(namespaces)/2)) // some kinds are watched per namespace
	for i := range specs {
		spec := &specs[i]
		switch {
		case spec.Tenant == nil, len(namespaces) == 0 && spec.Scope != kinds.ScopeUp:
		case spec.PerNamespace() && !wide:
			for _, namespace := range namespaces {
				all = append(all, source{kind: spec.Name, namespace: namespace})
			}
		default:
			all = append(all, source{kind: spec.Name})
		}
	}
	return all
}

// wake lets run compute again which informers are needed. It does not block.
func (s *session) wake() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// filled is called once the informer of a source is synced: it enqueues the keys whose reconcile needs that cache.
func (s *session) filled(from source) {
	s.wake()
	s.syncer.add(s.syncer.env.Filled(s.tenant, from.kind, from.namespace))
}

// tenantChanged is called by the event handlers of the tenant's informers.
func (s *session) tenantChanged(kind string, old, current client.Object) {
	s.syncer.changed(kinds.Change{Kind: kind, Side: kinds.TenantSide, Tenant: s.tenant.Key, Old: old, Current: current})
}

// newRecorder returns a recorder of Events in a tenant, and the function that shuts it down.
func newRecorder(ctx context.Context, config *rest.Config) (record.EventRecorder, func(), error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst, config.Timeout = 20, 40, 10*time.Second
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("making a client for Events: %w", err)
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: clientset.CoreV1().Events("")})
	return broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "superpool-syncer"}), broadcaster.Shutdown, nil
}
