// Package syncer syncs one super cluster with the tenants that hold placements in it: it owns the clients and informers
// of both sides, and its event handlers enqueue keys for the engine.
package syncer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/identities"
	"github.com/superpool/superpool/internal/leadership"
	"github.com/superpool/superpool/internal/proof"
	"github.com/superpool/superpool/internal/syncer/assign"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds"
	"github.com/superpool/superpool/internal/syncer/kinds/dynamic"
	"github.com/superpool/superpool/internal/syncer/kinds/namespaces"
	"github.com/superpool/superpool/internal/syncer/kinds/network"
	"github.com/superpool/superpool/internal/syncer/kinds/nodes"
	"github.com/superpool/superpool/internal/tenancy"
)

// Options configure a Syncer.
type Options struct {
	// Identity is that of the super cluster, see Identify.
	Identity Identity
	// Super is the client configuration of the super cluster.
	Super *rest.Config
	// Single is whether the super cluster is no part of a pool: it holds the VirtualClusters itself, everything of all
	// tenants belongs into it, and there is no vc-scheduler.
	Single bool
	// PodSecurityLevel is the least Pod Security Standard that is enforced in super namespaces, whatever policies say;
	// "" sets no label.
	PodSecurityLevel string
	// PodPatience is how long the super cluster may take to find a node for a pod before the pod goes to another one; 0
	// means for ever.
	PodPatience time.Duration
	// VNAgent is the kubelet endpoint that the tenants' Nodes name.
	VNAgent kind.VNAgent
	// NodeLinger is how long a tenant keeps a Node that none of its pods is bound to; 0 means 60 seconds.
	NodeLinger time.Duration
	// LeaseRenewal is how often the Lease of a tenant's Node is renewed; 0 means 20 seconds.
	LeaseRenewal time.Duration
	// ProbePeriod is how often the super cluster and the meta cluster are asked whether they are the same as before; 0
	// means 10 seconds.
	ProbePeriod time.Duration
	// Silence is how long the super cluster may not answer before what the caches hold of it is no news; 0 means 30
	// seconds.
	Silence time.Duration
	// Unserved is how often a control plane is asked again that does not serve a type, and how often the super cluster
	// is asked whether it serves the kinds of SyncPolicies; 0 means a minute.
	Unserved time.Duration
	// Shard is the part of the tenants that this process works on, by their cluster keys, which what is left of a
	// tenant names, too. It reads all.
	Shard leadership.Shard
	// Fence holds what is written in the super cluster and in tenants to the Lease; nil for none.
	Fence *leadership.Fence
	// Metrics counts reconciles and writes.
	Metrics *engine.Metrics
	// Engine configures queues, workers and patrol.
	Engine engine.Options
}

// Syncer syncs one super cluster. New adds it to a manager of the meta cluster; the controller of tenants calls its
// Engage for each tenant that is connected.
type Syncer struct {
	id     string
	guard  *guard
	env    *kind.Env
	engine *engine.Engine
	super  *informers
	// addresses are what super clusters tell each other; nil without a pool.
	addresses *addresses
	// types are those of the clients of both sides.
	types *typeMapper
	// unserved is Options.Unserved.
	unserved time.Duration
	// shard and fence are Options.Shard and Fence.
	shard leadership.Shard
	fence *leadership.Fence
	// leads is whether this process was elected.
	leads atomic.Bool
	// rewatches buffers one signal that other kinds may have to be watched in the super cluster (superCaches).
	rewatches chan struct{}

	mu       sync.RWMutex
	sessions map[string]*session
}

// New returns a Syncer that runs within mgr, a manager of the meta cluster: its informers on every replica, its
// reconcilers on the leader.
func New(ctx context.Context, mgr manager.Manager, options Options) (*Syncer, error) {
	options.Super = options.Fence.Config(options.Super)
	super, types, err := newLearningClient(options.Super)
	if err != nil {
		return nil, err
	}
	if options.Engine.Clock == nil {
		options.Engine.Clock = clock.RealClock{}
	}
	s := &Syncer{
		id: options.Identity.ID, types: types, unserved: cmp.Or(options.Unserved, engage.UnservedRetry), rewatches: make(chan struct{}, 1), sessions: map[string]*session{},
		shard: options.Shard, fence: options.Fence,
	}
	// The caller has just asked for its identity.
	live := newLiveness(options.Engine.Clock, cmp.Or(options.Silence, silence), func(ctx context.Context) { s.engine.Patrol(ctx) })
	answers := &engage.Answers{}
	s.super = &informers{client: super, live: live, unserved: s.unserved, changed: s.superChanged, filled: s.superFilled}
	s.env = &kind.Env{
		Declared: kinds.Specs(), ID: s.id, SuperUID: options.Identity.UID, SuperCache: s.super, SuperHost: options.Super.Host, Answered: live.answered,
		Tenant: s.tenant, Tenants: s.tenants, Resync: s.resync, MetaRecorder: mgr.GetEventRecorderFor("superpool-syncer"),
		PodSecurityLevel: options.PodSecurityLevel, PodPatience: options.PodPatience, VNAgent: options.VNAgent, NodeLinger: options.NodeLinger, LeaseRenewal: options.LeaseRenewal, Clock: options.Engine.Clock, Metrics: options.Metrics,
	}
	s.env.LimitWrites(super)
	if kind.NamesHost(options.Super.Host) {
		klog.FromContext(ctx).Info("The kubeconfig of the super cluster names its API server by a name: list the addresses that it resolves to in network.poolCIDRs of "+
			"TenantPolicies, or pods may reach them", "superCluster", s.id, "host", options.Super.Host)
	}
	meta := &proof.ControlPlane{Name: "the meta cluster", Reader: mgr.GetAPIReader()}
	if meta.UID, _, err = proof.Identify(ctx, proof.By(meta.Reader)); err != nil {
		return nil, fmt.Errorf("asking which meta cluster it is: %w", err)
	}
	s.guard = &guard{identity: options.Identity, super: super, meta: meta.Reader, metaUID: meta.UID, pooled: !options.Single, identities: &identities.Registry{Live: meta.Reader, Cached: mgr.GetClient()}, period: options.ProbePeriod, answers: answers}
	if s.env.Assignments, err = s.assignments(mgr, meta, &options); err != nil {
		return nil, err
	}
	s.env.Missing = missingIn(mgr.GetClient(), meta)
	if err := errors.Join(options.Metrics.SuperCluster(live.answered), options.Metrics.MissingVirtualClusters(func() int { return namespaces.MissingVirtualClusters(s.env) })); err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	if err := s.prepareSuper(answers.Held(options.Super)); err != nil {
		return nil, err
	}
	s.order(&options.Engine)
	options.Engine.Serves = s.works
	if s.engine, err = engine.New(options.Engine, options.Metrics, s.env.Reconcilers()...); err != nil {
		return nil, err
	}
	if err := s.watchMeta(ctx, mgr, meta, options.Single); err != nil {
		return nil, err
	}
	followed, err := s.newSyncPolicies(mgr, meta, options.Super, s.unserved)
	if err != nil {
		return nil, err
	}
	ofMeta := &proof.Guard{Name: meta.Name, Namespaces: proof.By(meta.Reader), UID: meta.UID, Period: options.ProbePeriod}
	for _, runnable := range []manager.Runnable{ofMeta, s.guard.ofSuper(live.answer), followed, superCaches{s}, work{s}} {
		if err := mgr.Add(runnable); err != nil {
			return nil, fmt.Errorf("adding %T: %w", runnable, err)
		}
	}
	return s, nil
}

// assignments returns what tells which namespaces belong into the super cluster.
func (s *Syncer) assignments(mgr manager.Manager, meta *proof.ControlPlane, options *Options) (assign.Assignments, error) {
	switch {
	case !options.Single && meta.UID == options.Identity.UID:
		return nil, fmt.Errorf("the super cluster is the meta cluster itself, with UID %s of namespace kube-system: a pool needs two clusters", meta.UID)
	case !options.Single:
		return &assign.Pooled{SuperCluster: s.id, Meta: mgr.GetClient(), Live: meta, Informers: mgr.GetCache(), Sides: namespaces.Sides(s.env)}, nil
	case meta.UID != options.Identity.UID:
		return nil, fmt.Errorf("without a pool the super cluster holds the VirtualClusters itself, and these are two clusters, with UID %s and %s of namespace kube-system",
			meta.UID, options.Identity.UID)
	}
	return &assign.Single{Live: meta, Sides: namespaces.Sides(s.env)}, nil
}

// missingIn returns what implements kind.Env.Missing: it asks a cache of the meta cluster, and then the meta cluster.
func missingIn(cached client.Reader, meta *proof.ControlPlane) func(context.Context, types.NamespacedName, types.UID) (bool, error) {
	return func(ctx context.Context, name types.NamespacedName, uid types.UID) (bool, error) {
		vc := &tenancyv1alpha1.VirtualCluster{}
		is := func() bool { return vc.UID == uid }
		err := cached.Get(ctx, name, vc)
		switch {
		case err == nil && is():
			return false, nil
		case client.IgnoreNotFound(err) != nil:
			return false, fmt.Errorf("reading VirtualCluster %s: %w", name, err)
		}
		_, lacks, err := meta.Lacks(ctx, name, vc, is)
		return lacks, err //nolint:wrapcheck // it names what was read
	}
}

// watchMeta watches what the meta cluster says of the super cluster, and of namespaces.
func (s *Syncer) watchMeta(ctx context.Context, mgr manager.Manager, meta *proof.ControlPlane, single bool) (err error) {
	if !single {
		s.addresses, err = watchAddresses(ctx, mgr.GetCache(), func(namespace, superCluster string) {
			s.engine.Add(network.AddressesChanged(s.env, namespace, superCluster))
		})
		if err != nil {
			return err
		}
		s.env.Told, s.env.Meta = s.addresses.in, mgr.GetClient()
		s.env.Member = memberIn(meta)
		if s.env.VirtualNode, err = watchVirtualNode(ctx, mgr.GetCache(), s.id, func() { s.resync(nodes.NodeSets(s.env)) }); err != nil {
			return err
		}
	}
	if err := s.env.Assignments.Watch(ctx, s.namespaceChanged); err != nil {
		return fmt.Errorf("watching which namespaces belong here: %w", err)
	}
	return nil
}

// prepareSuper gives the informers of the super cluster a client, and what they watch.
func (s *Syncer) prepareSuper(config *rest.Config) (err error) {
	if s.super.client, err = newClientFor(config, s.types); err != nil {
		return err
	}
	s.super.watched, err = watchedOf(s.env, s.env.Specs(), kind.SuperSide)
	return err
}

// Ready is a readiness check that passes once the caches of the super cluster are synced.
func (s *Syncer) Ready() healthz.Checker {
	return func(*http.Request) error {
		if !s.super.synced() {
			return fmt.Errorf("the caches of super cluster %s are not synced", s.id)
		}
		return nil
	}
}

// Answers is a readiness check that fails once the super cluster has not answered for Options.Silence: the process is
// well then, and can do nothing.
func (s *Syncer) Answers() healthz.Checker {
	return func(*http.Request) error {
		if last, silent := s.super.live.silent(); silent {
			return fmt.Errorf("super cluster %s has not answered since %s", s.id, last.UTC().Format(time.RFC3339))
		}
		return nil
	}
}

// Left implements virtualclusters.Owner.Left where there is no pool: the super cluster's id, if a live read shows super
// namespaces of a VirtualCluster there.
func (s *Syncer) Left(ctx context.Context, key string, uid types.UID) ([]string, error) {
	var list corev1.NamespaceList
	if err := s.env.Super.List(ctx, &list, client.MatchingLabels{tenancyv1alpha1.LabelCluster: key}); err != nil {
		return nil, fmt.Errorf("listing the super namespaces of tenant %s: %w", key, err)
	}
	for i := range list.Items {
		if owner, ours := tenancy.GetOwner(&list.Items[i]); ours && owner.VirtualClusterUID == uid {
			return []string{s.id}, nil
		}
	}
	return nil, nil
}

// servesPeriod is how often a tenant is looked at that has no placement here.
const servesPeriod = time.Minute

// Serves implements tenants.Controller.Serves: the tenant has placements here, or super namespaces, or objects that a
// session has yet to remove from its control plane.
func (s *Syncer) Serves(ctx context.Context, key string) (bool, time.Duration, error) {
	namespaces, err := s.env.Assignments.Namespaces(ctx, key)
	if err != nil {
		return false, 0, fmt.Errorf("reading which namespaces belong here: %w", err)
	}
	if len(namespaces) > 0 {
		return true, 0, nil
	}
	session := s.session(key)
	if !s.super.synced() {
		return session != nil, time.Second, nil
	}
	return len(s.env.SuperNamespaces(key)) > 0 || session != nil && !session.left.Load(), servesPeriod, nil
}

// superCaches runs the informers of the super cluster on every replica, so that a new leader starts with synced caches.
type superCaches struct{ *Syncer }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (superCaches) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (s superCaches) Start(ctx context.Context) error {
	defer s.super.wait()
	for {
		specs := s.env.Specs()
		if err := s.super.learn(s.env, specs, kind.SuperSide); err != nil {
			return err
		}
		if err := s.super.watch(ctx, superSources(specs, s.super.synced())); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.rewatches:
		}
	}
}

// superSources returns what to watch in the super cluster, without the kinds that come last or with them.
func superSources(specs []kind.Spec, last bool) []source {
	var sources []source
	for i := range specs {
		if specs[i].Super != nil && (last || !specs[i].Last) {
			sources = append(sources, source{kind: specs[i].Name})
		}
	}
	return sources
}

// rewatchSuper lets superCaches compute again what to watch. It does not block.
func (s *Syncer) rewatchSuper() {
	select {
	case s.rewatches <- struct{}{}:
	default:
	}
}

// setCustom lets the syncer sync the kinds of SyncPolicies, and no others besides its own.
func (s *Syncer) setCustom(customs []dynamic.Custom) {
	kinds.SetCustom(s.env, customs)
	s.rewatchSuper()
	for _, tenant := range s.tenants() {
		s.rewatch(tenant.Key)
	}
	s.resync(dynamic.CustomKeys(s.env))
}

// superFilled is called once an informer of the super cluster is synced. Those that the engine waits for are followed,
// all together, by those that come last, and tenants may be ready. Each of the others comes while the engine runs: what
// tenants have to do with may depend on it (Spec.Wanted), and whether a namespace may go.
func (s *Syncer) superFilled(from source) {
	aside := s.super.isAside(from.kind)
	if !aside && !s.super.synced() {
		return
	}
	if !aside {
		s.rewatchSuper()
	}
	for _, tenant := range s.tenants() {
		s.rewatch(tenant.Key)
		if aside {
			s.resync(s.env.Filled(tenant, from.kind, from.namespace))
			s.resync(s.env.SuperNamespaces(tenant.Key))
		}
	}
}

// works implements engine.Options.Serves: the tenant belongs to the shard, and this process was elected to work on it.
func (s *Syncer) works(tenant string) bool { return s.leads.Load() && s.shard.Has(tenant) }

// work runs the engine on the leader of the shard.
type work struct{ *Syncer }

// Start implements manager.Runnable. It begins once the meta cluster records this super cluster, this one the meta
// cluster, and its caches are synced.
func (w work) Start(ctx context.Context) error {
	if err := w.guard.wait(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	if err := w.guard.claim(ctx, w.env.Super); err != nil {
		return err
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), w.super.synced, w.addresses.filled) {
		return nil
	}
	w.lead()
	return w.engine.Run(ctx)
}

// lead begins the work on the tenants of the shard: others may have worked on them until now, so what was noted of them
// is forgotten.
func (s *Syncer) lead() {
	for _, tenant := range s.tenants() {
		if s.shard.Has(tenant.Key) {
			s.env.Forget(tenant.Key)
			tenant.Take(s.env.Clock.Now())
		}
	}
	s.leads.Store(true)
}

// superChanged is called by the event handlers of the super cluster's informers.
func (s *Syncer) superChanged(kindName string, old, current client.Object) {
	s.changed(kind.Change{Kind: kindName, Side: kind.SuperSide, Old: old, Current: current})
}

// changed enqueues the keys that a change concerns, and lets the session of its tenant start and stop informers. What
// the super cluster says of an object that is there goes to its tenant before new objects go down, and so does what is
// left of it once the tenant's pod is bound. What is in sync, and itself has not changed, goes last.
func (s *Syncer) changed(change kind.Change) {
	first, found := s.env.HighPriority(change)
	for _, key := range s.env.Changed(change) {
		switch {
		case found && key == first:
			s.engine.AddHighPriority(key)
		case change.Found() || key.Kind != change.Kind:
			s.engine.Resync(key)
		default:
			s.engine.Add(key)
		}
	}
	if tenant, found := s.env.Rewatches(change); found {
		s.rewatch(tenant)
	}
}

// namespaceChanged enqueues a tenant namespace whose NamespacePlacement has changed, and the objects in it.
func (s *Syncer) namespaceChanged(tenant, namespace string) {
	s.rewatch(tenant)
	s.resync(s.env.NamespaceChanged(tenant, namespace))
}

// rewatch lets the session of a tenant compute again which informers it needs (session.run).
func (s *Syncer) rewatch(tenant string) {
	if session := s.session(tenant); session != nil {
		session.wake()
	}
}

// resync enqueues objects of which it is not known whether they have changed.
func (s *Syncer) resync(keys []engine.Key) {
	for _, key := range keys {
		s.engine.Resync(key)
	}
}

// tenant returns the connected tenant with that key, nil if there is none.
func (s *Syncer) tenant(key string) *kind.Tenant {
	if session := s.session(key); session != nil {
		return session.tenant
	}
	return nil
}

// order lets the engine ask which keys go first: by tenants' weights, unless options have others, and by what is in
// sync. What reconciles log of a tenant has the bounds of what its session does.
func (s *Syncer) order(options *engine.Options) {
	options.Logger = s.logger
	if options.Weight == nil {
		options.Weight = s.weight
	}
	options.InSync = s.env.InSync
}

// weight returns a tenant's share of the workers' time.
func (s *Syncer) weight(tenant string) int {
	if session := s.session(tenant); session != nil {
		return int(session.tenant.Policy.Get().Spec().Scheduling.Weight)
	}
	return 1
}

// logger returns a logger of what a tenant causes.
func (s *Syncer) logger(tenant string, logger klog.Logger) klog.Logger {
	if session := s.session(tenant); session != nil {
		return session.tenant.Bounds.Logger(logger)
	}
	return logger
}

// tenants returns the connected tenants, sorted by key.
func (s *Syncer) tenants() []*kind.Tenant {
	s.mu.RLock()
	defer s.mu.RUnlock()
	connected := make([]*kind.Tenant, 0, len(s.sessions))
	for _, session := range s.sessions {
		connected = append(connected, session.tenant)
	}
	slices.SortFunc(connected, func(a, b *kind.Tenant) int { return cmp.Compare(a.Key, b.Key) })
	return connected
}

func (s *Syncer) session(key string) *session {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.sessions[key]
}

func (s *Syncer) setSession(key string, session *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if session == nil {
		delete(s.sessions, key)
		return
	}
	s.sessions[key] = session
}
