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

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kinds"
	"github.com/superpool/superpool/internal/tenants"
)

// session is the connection to one tenant, from Engage to the end of its context. A tenant that holds nothing in this super cluster
// has a session without informers, once its Nodes are gone.
type session struct {
	syncer *Syncer
	tenant *kinds.Tenant
	cache  *informers
	// changed has room for one signal that the namespaces to watch may have changed.
	changed chan struct{}
}

// Engage implements tenants.Engage: it syncs one tenant until ctx ends. Nothing is deleted when it ends, on either side.
func (s *Syncer) Engage(ctx context.Context, tenant *tenants.Tenant, ready func()) error {
	logger := klog.FromContext(ctx).WithValues("superCluster", s.id)
	ctx, cancel := context.WithCancel(klog.NewContext(ctx, logger))
	defer cancel()
	if !toolscache.WaitForCacheSync(ctx.Done(), s.super.synced) {
		return nil
	}
	made, err := s.newSession(tenant)
	if err != nil {
		return err
	}
	recorder, stop, err := newRecorder(ctx, tenant.Config)
	if err != nil {
		return err
	}
	defer stop()
	made.tenant.Recorder = recorder
	s.setSession(tenant.Key, made)
	// Workers may still hold the session for a moment: it keeps its caches, which no longer change.
	defer made.cache.wait()
	defer cancel()
	defer s.env.Forget(tenant.Key)
	defer s.setSession(tenant.Key, nil)
	logger.V(2).Info("Tenant engaged")
	return made.run(ctx, sync.OnceFunc(ready))
}

func (s *Syncer) newSession(tenant *tenants.Tenant) (*session, error) {
	reach, err := newClient(tenant.Config)
	if err != nil {
		return nil, err
	}
	made := &session{syncer: s, changed: make(chan struct{}, 1)}
	made.cache = &informers{
		client: reach,
		selectors: map[string]string{
			kinds.KindPod:  s.env.Assignments.PodSelector(),
			kinds.KindNode: tenancyv1alpha1.LabelVirtualNode + "=true," + tenancyv1alpha1.LabelSuperClusterID + "=" + s.id,
		},
		changed: made.tenantChanged,
		filled:  made.filled,
	}
	made.tenant = &kinds.Tenant{Tenant: tenant, Client: reach, Cache: made.cache}
	return made, nil
}

// run keeps the informers of what is to be watched until ctx ends.
func (s *session) run(ctx context.Context, ready func()) error {
	// left says that the tenant holds nothing here and that no Node of this super cluster is left in it.
	left := false
	for {
		namespaces, err := s.syncer.env.Assignments.Namespaces(ctx, s.tenant.Key)
		if err != nil {
			return fmt.Errorf("reading which namespaces to watch: %w", err)
		}
		left = len(namespaces) == 0 && (left || s.cache.synced() && len(s.cache.List(kinds.KindNode)) == 0)
		if err := s.cache.watch(ctx, sources(namespaces, left)); err != nil {
			return err
		}
		if len(namespaces) == 0 || s.cache.synced() {
			ready()
		}
		if len(namespaces) == 0 {
			s.leave()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.changed:
		}
	}
}

// sources returns what is to be watched: of a tenant that holds nothing here, the Nodes that it still has.
func sources(namespaces []string, left bool) []source {
	switch {
	case left:
		return nil
	case len(namespaces) == 0:
		return []source{{kind: kinds.KindNode}}
	}
	all := make([]source, 0, len(wideKinds)+len(namespaces)*len(namespacedKinds))
	for _, kind := range wideKinds {
		all = append(all, source{kind: kind})
	}
	for _, namespace := range namespaces {
		for _, kind := range namespacedKinds {
			all = append(all, source{kind: kind, namespace: namespace})
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

// leave wakes the super namespaces of a tenant that holds nothing here: those that are there for Services alone may go.
func (s *session) leave() {
	for _, object := range s.syncer.super.Index(kinds.KindNamespace, kinds.IndexTenant, s.tenant.Key) {
		if key, ok := kinds.SuperKey(kinds.KindNamespace, object); ok {
			s.syncer.engine.Add(key)
		}
	}
}

// filled wakes what waited for a source: what the super cluster holds of it and the tenant may not.
func (s *session) filled(from source) {
	s.wake()
	for _, kind := range kinds.Derived(from.kind) {
		for _, object := range s.syncer.super.Index(kind, kinds.IndexTenant, s.tenant.Key) {
			if key, ok := kinds.SuperKey(kind, object); ok && (from.namespace == "" || from.namespace == key.Namespace) {
				s.syncer.engine.Add(key)
			}
		}
	}
	for _, object := range s.cache.List(from.kind) {
		if from.namespace == "" || from.namespace == object.GetNamespace() {
			s.tenantChanged(from.kind, object, object)
		}
	}
}

// enqueue wakes all that the tenant has in a namespace.
func (s *session) enqueue(namespace string) {
	for kind := range watched {
		for _, object := range s.cache.InNamespace(kind, namespace) {
			s.add(kind, object)
		}
	}
}

// add wakes what is made of an object of the tenant.
func (s *session) add(kind string, object client.Object) {
	for _, derived := range kinds.Derived(kind) {
		s.syncer.engine.Add(kinds.TenantKey(derived, s.tenant.Key, object))
	}
}

// tenantChanged turns a change in the tenant into keys.
func (s *session) tenantChanged(kind string, old, current client.Object) {
	object := current
	if object == nil {
		object = old
	}
	switch kind {
	case kinds.KindNode:
		if key, ok := kinds.NodeKey(s.tenant.Key, object); ok {
			s.syncer.engine.Add(key)
		}
		if current == nil {
			s.wake() // it may have been the last of a tenant that left
		}
		return
	case kinds.KindNamespace:
		if old == nil || current == nil {
			s.enqueue(object.GetName())
		}
	case kinds.KindPod, kinds.KindService:
		if current == nil || old == nil && kind == kinds.KindService {
			// The first or the last one decides whether a namespace that is not placed here has a super namespace.
			s.syncer.engine.Add(engine.Key{Tenant: s.tenant.Key, Kind: kinds.KindNamespace, Name: object.GetNamespace()})
		}
	}
	s.add(kind, object)
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
