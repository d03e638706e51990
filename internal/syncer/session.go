package syncer

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenants"
)

// session is the connection to one tenant, from Engage to the end of its context. A tenant without placements in this
// super cluster has a session without informers, once its Nodes are gone.
type session struct {
	syncer *Syncer
	tenant *kind.Tenant
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
	session, err := s.newSession(tenant)
	if err != nil {
		return err
	}
	recorder, stop, err := newRecorder(ctx, s.fence.Config(tenant.Config))
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
	defer func() { s.resync(s.env.SuperNamespaces(tenant.Key)) }()
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
	tenantClient, err := newClientFor(s.fence.Config(tenant.Config), s.types)
	if err != nil {
		return nil, err
	}
	watched, err := watchedOf(s.env, s.env.Specs(), kind.TenantSide)
	if err != nil {
		return nil, err
	}
	session := &session{syncer: s, changed: make(chan struct{}, 1)}
	session.cache = &informers{
		client: tenantClient, bounds: tenant.Bounds, watched: watched, unserved: s.unserved, whole: s.env.Assignments.Whole(), changed: session.tenantChanged,
		filled: session.filled,
	}
	session.tenant = &kind.Tenant{Tenant: tenant, Client: tenantClient, Cache: session.cache, Since: s.env.Clock.Now()}
	return session, nil
}

// run starts and stops informers as the tenant's placements change, until ctx ends. It calls ready once they are
// synced, and those of the super cluster.
func (s *session) run(ctx context.Context, ready func()) error {
	whole, before := s.syncer.env.Assignments.Whole(), &looked{unwanted: map[string]bool{}}
	for {
		namespaces, err := s.syncer.env.Assignments.Namespaces(ctx, s.tenant.Key)
		if err != nil {
			return fmt.Errorf("reading which namespaces to watch: %w", err)
		}
		served, superSynced := whole || len(namespaces) > 0, s.syncer.super.synced()
		// A tenant that is served is read beside the super cluster. What another has left behind depends on that.
		if served || superSynced {
			if err := s.watch(ctx, namespaces, served, before); err != nil {
				return err
			}
		}
		if superSynced && (!served || s.cache.synced()) {
			ready()
		}
		if superSynced && !served {
			// Super namespaces that exist for Services alone are no longer needed: their reconciles delete them.
			s.syncer.resync(s.syncer.env.SuperNamespaces(s.tenant.Key))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.changed:
		}
	}
}

// looked is what run found when it looked before: whether the tenant has left, whether it is watched as a whole, and
// the kinds of which it has nothing and wants none (wanted).
type looked struct {
	left, wide bool
	unwanted   map[string]bool
}

// watch starts and stops informers for a tenant with placements in namespaces; served is whether it has any, or needs
// none.
func (s *session) watch(ctx context.Context, namespaces []string, served bool, before *looked) error {
	before.left = !served && (before.left || s.cache.synced() && s.cleanedUp(before.unwanted))
	s.left.Store(before.left)
	if err := s.cache.learn(s.syncer.env, s.syncer.env.Specs(), kind.TenantSide); err != nil {
		return err
	}
	specs := s.wanted(ctx, served, before.unwanted)
	before.wide = s.syncer.env.Assignments.Whole() || watchWide(specs, len(namespaces), int(s.tenant.Policy.Get().Spec().Limits.Watches), before.wide)
	s.cache.place(namespaces)
	return s.cache.watch(ctx, sources(specs, namespaces, served, before.left, before.wide))
}

// watchPolicy enqueues all objects of the tenant each time that another TenantPolicy is in force, until ctx ends: what
// was refused is tried again, and what runs is held against it.
func (s *session) watchPolicy(ctx context.Context) {
	_, changed := s.tenant.Policy.Watch()
	s.tenant.Policy.Follow(ctx, changed, func() {
		s.wake()
		s.syncer.resync(s.syncer.env.OfTenant(s.tenant))
	})
}

// wanted returns the kinds that the tenant has to do with. Of a kind of which its policy wants none (Spec.Wanted)
// nothing is watched, unless it has left something behind: then it is until a synced cache shows that it has not.
// unwanted holds those that have not, and those that were asked, from one call to the next.
func (s *session) wanted(ctx context.Context, served bool, unwanted map[string]bool) []kind.Spec {
	ctx, cancel := context.WithTimeout(ctx, lacksPatience)
	defer cancel()
	specs := s.syncer.env.Specs()
	wanted := make([]kind.Spec, 0, len(specs))
	for i := range specs {
		spec := &specs[i]
		if spec.Wanted == nil || spec.Wanted(s.syncer.env, s.tenant) {
			delete(unwanted, spec.Name)
			wanted = append(wanted, *spec)
			continue
		}
		if !spec.MayRemain() || !served && spec.Scope != kind.ScopeUp {
			continue // it has written nothing in the tenant that could be left behind, or waits until it is served
		}
		if left, asked := unwanted[spec.Name]; !left {
			if _, synced := s.cache.Get(spec.Name, "", ""); synced || asked {
				unwanted[spec.Name] = synced && spec.LeftBehind(s.syncer.env, s.tenant)
			} else {
				unwanted[spec.Name] = s.lacks(ctx, spec)
			}
		}
		if !unwanted[spec.Name] {
			wanted = append(wanted, *spec)
		}
	}
	return wanted
}

const (
	// lacksPatience is how long a tenant may take to say what it lacks. Then all is watched until that is known.
	lacksPatience = 5 * time.Second
	// lacksPerPage is how many objects it is asked for in one request, but for the first, and lacksPages how many
	// requests there are at most.
	lacksPerPage, lacksPages = 500, 20
)

// lacks returns whether a tenant has no object of a kind that is to be left behind, by lists of metadata: first of one
// object, as most tenants have none. It returns false where that cannot be told.
func (s *session) lacks(ctx context.Context, spec *kind.Spec) bool {
	list := &metav1.PartialObjectMetadataList{}
	options, known := s.cache.metadata(spec.Name, list)
	if !known {
		return false
	}
	options.Limit = 1
	for range lacksPages {
		err := s.cache.client.List(ctx, list, options)
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			return spec.Tenant.Optional // as engage.Optional has it
		}
		if err != nil {
			return false
		}
		for i := range list.Items {
			if spec.IsRemaining(s.syncer.env, &list.Items[i]) {
				return false
			}
		}
		if list.Continue == "" {
			return true
		}
		options.Limit, options.Continue = lacksPerPage, list.Continue
	}
	return false
}

// cleanedUp returns whether the tenant's caches hold none of the objects that the syncer writes there. Those of
// unwanted held none when their informers ended (wanted).
func (s *session) cleanedUp(unwanted map[string]bool) bool {
	specs := s.syncer.env.Specs()
	for i := range specs {
		spec := &specs[i]
		if spec.Scope != kind.ScopeUp || spec.Tenant == nil || unwanted[spec.Name] {
			continue
		}
		if _, synced := s.cache.Get(spec.Name, "", ""); spec.Aside && !synced || !spec.LeftBehind(s.syncer.env, s.tenant) {
			return false
		}
	}
	return true
}

// narrow is the number of namespaces beyond which a tenant is watched as a whole, whatever its limit of watches: each
// costs four watches of its API server and about 190 kB here (BenchmarkWatches), and one that is read in a wide watch a
// request and less than 1 kB. Below that a wide watch may cost more than it saves: it reads what the tenant has in all
// other namespaces, too.
const narrow = 50

// watchWide returns whether to watch a tenant as a whole: beyond its limit of watches, or beyond narrow namespaces,
// until less than half of both would do.
func watchWide(specs []kind.Spec, namespaces, limit int, wide bool) bool {
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
		return watches > limit/2 || namespaces > narrow/2
	}
	return watches > limit || namespaces > narrow
}

// sources returns what to watch in a tenant that is served, with placements in namespaces; wide is whether in all
// namespaces. Of one that is not, it is the kinds that the syncer writes there (ScopeUp), and nothing once they are
// left behind: left is true.
func sources(specs []kind.Spec, namespaces []string, served, left, wide bool) []source {
	if left {
		return nil
	}
	all := make([]source, 0, len(specs)*(1+len(namespaces)/2)) // some kinds are watched per namespace
	for i := range specs {
		spec := &specs[i]
		switch {
		case spec.Tenant == nil, !served && spec.Scope != kind.ScopeUp:
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
	s.syncer.resync(s.syncer.env.Filled(s.tenant, from.kind, from.namespace))
}

// tenantChanged is called by the event handlers of the tenant's informers.
func (s *session) tenantChanged(kindName string, old, current client.Object) {
	s.syncer.changed(kind.Change{Kind: kindName, Side: kind.TenantSide, Tenant: s.tenant.Key, Old: old, Current: current})
}

// newRecorder returns a recorder of Events in a tenant, and the function that shuts it down.
func newRecorder(ctx context.Context, config *rest.Config) (kind.Recorder, func(), error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst, config.Timeout = 20, 40, 10*time.Second
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("making a client for Events: %w", err)
	}
	recorder, stop := recorderTo(ctx, &typedcorev1.EventSinkImpl{Interface: clientset.CoreV1().Events("")})
	return recorder, stop, nil
}
