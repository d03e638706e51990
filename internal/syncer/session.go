package syncer

import (
	"context"
	"fmt"
	"sync"
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

// session is the connection to one tenant, from Engage to the end of its context. A tenant that holds nothing in this
// super cluster has a session without informers, once its Nodes are gone.
type session struct {
	syncer *Syncer
	tenant *kinds.Tenant
	cache  *informers
	// changed has room for one signal that the namespaces to watch may have changed.
	changed chan struct{}
}

// Engage implements tenants.Engage: it syncs one tenant until ctx ends. Nothing is deleted when it ends, on either
// side.
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
	// Workers may still hold the session for a moment: it keeps its caches, which no longer change.
	defer session.cache.wait()
	defer cancel()
	defer s.env.Forget(tenant.Key)
	defer s.setSession(tenant.Key, nil)
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
	made := &session{syncer: s, changed: make(chan struct{}, 1)}
	made.cache = &informers{client: tenantClient, watched: watched, changed: made.tenantChanged, filled: made.filled}
	made.tenant = &kinds.Tenant{Tenant: tenant, Client: tenantClient, Cache: made.cache}
	return made, nil
}

// run keeps the informers of what is to be watched until ctx ends.
func (s *session) run(ctx context.Context, ready func()) error {
	// left says that the tenant holds nothing here and that nothing which the syncer wrote is left in it.
	left := false
	for {
		namespaces, err := s.syncer.env.Assignments.Namespaces(ctx, s.tenant.Key)
		if err != nil {
			return fmt.Errorf("reading which namespaces to watch: %w", err)
		}
		left = len(namespaces) == 0 && (left || s.cache.synced() && s.cleanedUp())
		if err := s.cache.watch(ctx, sources(s.syncer.specs, namespaces, left)); err != nil {
			return err
		}
		if len(namespaces) == 0 || s.cache.synced() {
			ready()
		}
		if len(namespaces) == 0 {
			// Super namespaces that are there for Services alone may go.
			s.syncer.add(s.syncer.env.SuperNamespaces(s.tenant.Key))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.changed:
		}
	}
}

// cleanedUp says whether nothing is left in the tenant of what the syncer writes there.
func (s *session) cleanedUp() bool {
	for i := range s.syncer.specs {
		if spec := &s.syncer.specs[i]; spec.Scope == kinds.ScopeUp && spec.Tenant != nil && len(s.cache.List(spec.Name)) > 0 {
			return false
		}
	}
	return true
}

// sources returns what is to be watched: of a tenant that holds nothing here, what the syncer wrote there and is still
// there.
func sources(specs []kinds.Spec, namespaces []string, left bool) []source {
	if left {
		return nil
	}
	all := make([]source, 0, len(specs)*(1+len(namespaces)/2)) // some kinds are watched per namespace
	for i := range specs {
		spec := &specs[i]
		switch {
		case spec.Tenant == nil, len(namespaces) == 0 && spec.Scope != kinds.ScopeUp:
		case spec.PerNamespace():
			for _, namespace := range namespaces {
				all = append(all, source{kind: spec.Name, namespace: namespace})
			}
		default:
			all = append(all, source{kind: spec.Name})
		}
	}
	return all
}

// wake lets run look again at what is to be watched.
func (s *session) wake() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// filled is called by informers: it enqueues what waited for a source.
func (s *session) filled(from source) {
	s.wake()
	s.syncer.add(s.syncer.env.Filled(s.tenant, from.kind, from.namespace))
}

// tenantChanged is called by informers of the tenant.
func (s *session) tenantChanged(kind string, old, current client.Object) {
	s.syncer.changed(kinds.Change{Kind: kind, Side: kinds.TenantSide, Tenant: s.tenant.Key, Old: old, Current: current})
}

// newRecorder returns a recorder of Events in a tenant, and what stops it.
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
