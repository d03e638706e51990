// Package shards splits the tenants of a pool over the replicas of a program: each tenant is in one shard, each shard
// has a Lease, and whoever holds it leads the shard. The replicas agree on who is to lead how many by what they all
// read from the Leases. A tenant is named by the UID of its VirtualCluster, or by its cluster key: all replicas of a
// program name it the same.
//
//	           planned for this replica                 nobody of another number of shards is left
//	(nobody's) ────────────────────────► campaigning ───────────────────────────────────────────► led
//	    ▲                                                                                           │
//	    ├── the Lease is lost, or could not be renewed: the Fence has closed ◄──────────────────────┤
//	    └── released, when no work is left ◄── handed over: planned for another replica, or the end ◄┘
package shards

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/superpool/superpool/internal/leadership"
)

const (
	// handOver is for how long a replica lets the work on the tenants of a shard end before it releases its Lease. The
	// Fence closes then, whatever still runs.
	handOver = 10 * time.Second
	// keepLost is after how long the Lease of a replica that was lost is deleted by any other.
	keepLost = 10 * time.Minute
	// maxShards bounds Count: each shard costs a write every RetryPeriod.
	maxShards = 256
	// givenBackJitter is by how many times RetryPeriod one that gave a shard back may wait longer than another.
	givenBackJitter = 4
)

// Options are what Shards are made of. All fields but Labels, Fence, Ready and Metrics are required.
type Options struct {
	// Leases are those of the namespace where all replicas have theirs. Their client has no Fence, and a timeout.
	Leases coordinationclient.LeaseInterface
	// Namespace is theirs, and Program what their names begin with, which is the name of the leader's Lease.
	Namespace, Program string
	// Labels are those of the Leases of shards and replicas, by which they are listed where others have many Leases in
	// the namespace. Nil: all of the namespace are listed.
	Labels map[string]string
	// Count is the number of shards, from 1 to 256. 1: the leader of the program holds the one shard, and there is no
	// Lease for it but the leader's.
	Count int
	// Fence is that of the leader's Lease, for Count 1. Nil: its writes have none.
	Fence *leadership.Fence
	// Ready returns whether this process could lead at once, because its caches are filled. Until it does, it takes no
	// shard while others live. Nil: it can.
	Ready func() bool
	// LeaseDuration, RenewDeadline and RetryPeriod are those of the leader election, of all Leases.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	// Metrics shows how many shards are led. Nil: there are none.
	Metrics *Metrics
}

// Validate returns why a number of shards cannot be used.
func Validate(count int, elects bool) error {
	switch {
	case count < 1 || count > maxShards:
		return fmt.Errorf("%d is not from 1 to %d", count, maxShards)
	case count > 1 && !elects:
		return errors.New("more than one needs --leader-elect")
	}
	return nil
}

// Shards are those that this process leads. It is a runnable of a manager, on every replica. It is safe for concurrent
// use.
type Shards struct {
	Options

	id, identity string

	mu sync.Mutex
	// terms are the shards for which this process campaigns, or which it leads.
	terms map[int]*term
	// alone is closed when this process leads the one shard.
	alone   chan struct{}
	changed func()
	take    func(shard int) (taken func())
	watched watched
	// joined is whether this process takes part: it was ready, or alone.
	joined bool
	// taking are the calls of what take returned.
	taking sync.WaitGroup
	// notBefore is when this process campaigns again after it gave a shard back.
	notBefore time.Time
}

// term is the work on one shard from the plan to its end.
type term struct {
	fence *leadership.Fence
	// held ends when the Lease is released or lost.
	held context.Context //nolint:containedctx // it is of the term, not of a call
	// stop ends the campaign, or releases the Lease.
	stop context.CancelFunc
	// led is whether tenants of the shard are worked on, and ending whether that is to end.
	led, ending bool
	// works are those who work on tenants, and idle is closed when there are none after ending was set.
	works map[*work]struct{}
	idle  chan struct{}
}

// work is that on one tenant. stop tells it to end; nil where it ends by itself.
type work struct{ stop context.CancelCauseFunc }

// newTerm returns a term that writes through fence, and whose campaign is over with held, which stop ends.
func newTerm(held context.Context, fence *leadership.Fence, stop context.CancelFunc) *term {
	return &term{held: held, fence: fence, stop: stop, works: map[*work]struct{}{}, idle: make(chan struct{})}
}

var _ manager.LeaderElectionRunnable = &Shards{}

// New returns the Shards of this process.
func New(options Options) (*Shards, error) {
	identity, id, err := leadership.NewIdentity()
	if err != nil {
		return nil, err //nolint:wrapcheck // it says all
	}
	return &Shards{
		Options: options, id: id, identity: identity + sharded, terms: map[int]*term{}, alone: make(chan struct{}),
		watched: watched{program: options.Program, duration: options.LeaseDuration},
	}, nil
}

// Identity is whom the Lease of the program's leader is to name if it is this process and there are several shards.
func (s *Shards) Identity() string { return s.identity }

// Holds reports whether this process leads the shard of a tenant, by the UID of its VirtualCluster.
func (s *Shards) Holds(tenant types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	term := s.terms[Of(tenant, s.Count)]
	return term != nil && term.led
}

// OnChange sets what is called when another answer of Holds has become possible. It must not block.
func (s *Shards) OnChange(changed func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed = changed
}

// OnTake sets what is called before this process leads a shard, when nobody works on its tenants; what that returns is
// called, on a goroutine of its own, once it leads the shard, and has ended when Start returns. Call it before Start.
func (s *Shards) OnTake(take func(shard int) (taken func())) { s.take = take }

// ErrNotLed is the error of Lead and Enter for a tenant whose shard another process leads, or nobody yet.
var ErrNotLed = errors.New("the shard of the tenant is not led by this process")

// Lead begins the work on a tenant, by the UID of its VirtualCluster, which goes on until leave is called. led is ctx
// until the work is to end: its cause is ErrNotLed when the shard was lost or is handed over, whether or not it is led
// again by now. wrap makes a transport of one that writes nothing once another process may lead the shard, not even
// when the shard is led again. With one shard, Lead waits for it.
func (s *Shards) Lead(ctx context.Context, tenant types.UID) (
	led context.Context, wrap func(http.RoundTripper) http.RoundTripper, leave func(), err error,
) {
	if s.Count == 1 {
		select {
		case <-ctx.Done():
			return nil, nil, nil, ctx.Err() //nolint:wrapcheck // the work ends
		case <-s.alone:
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	term := s.terms[Of(tenant, s.Count)]
	if term == nil || !term.led {
		return nil, nil, nil, ErrNotLed
	}
	led, stop := context.WithCancelCause(ctx)
	begun := &work{stop}
	term.works[begun] = struct{}{}
	return led, term.fence.Wrap, func() {
		stop(nil)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(term.works, begun)
		term.settle()
	}, nil
}

// Enter begins a piece of work on a tenant that ends soon by itself, with leave. Unlike with Lead, it is not told of a
// handover, which waits for it. held is ctx until the Lease is released or lost, and carries the Fence for
// leadership.Guard.
func (s *Shards) Enter(ctx context.Context, tenant types.UID) (held context.Context, leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	term := s.terms[Of(tenant, s.Count)]
	if term == nil || !term.led {
		return nil, nil, ErrNotLed
	}
	held, cancel := context.WithCancel(ctx)
	if term.fence != nil {
		held = term.fence.NewContext(held)
	}
	lost := context.AfterFunc(term.held, cancel)
	begun := &work{}
	term.works[begun] = struct{}{}
	return held, func() {
		lost()
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(term.works, begun)
		term.settle()
	}, nil
}

// settle closes idle when nobody works on a shard that is to be handed over. The caller holds Shards.mu.
func (t *term) settle() {
	if t.ending && len(t.works) == 0 {
		select {
		case <-t.idle:
		default:
			close(t.idle)
		}
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: with several shards each has an election of its own.
func (s *Shards) NeedLeaderElection() bool { return s.Count == 1 }

// Start leads what the plan gives this process until ctx ends, and hands it over then. One shard is led at once, and
// not handed over: its Lease is the leader's.
func (s *Shards) Start(ctx context.Context) error {
	if s.Count == 1 {
		return s.leadAlone(ctx)
	}
	var campaigns sync.WaitGroup
	ticker := time.NewTicker(s.RetryPeriod)
	defer ticker.Stop()
	for ctx.Err() == nil {
		if err := s.look(ctx, &campaigns); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Finding out which shards to lead failed, those that are led stay")
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	ending := context.WithoutCancel(ctx)
	s.leave(ending) // first, so that others plan without this one
	s.follow(ending, nil, &campaigns)
	campaigns.Wait()
	s.mu.Lock() // elected, whose context has ended, adds no more calls
	taking := &s.taking
	s.mu.Unlock()
	taking.Wait()
	return nil
}

// look renews the Lease of this replica, reads those of all, and follows the plan.
func (s *Shards) look(ctx context.Context, campaigns *sync.WaitGroup) error {
	ctx, cancel := context.WithTimeout(ctx, s.RenewDeadline)
	defer cancel()
	if s.joined = s.joined || s.Ready == nil || s.Ready(); s.joined {
		if err := s.renew(ctx); err != nil {
			return err
		}
	}
	planned, other, err := s.plan(ctx)
	if err != nil {
		return err
	}
	if !s.joined {
		if others := s.others(); others > 0 || other != "" {
			klog.FromContext(ctx).V(4).Info("Taking no shard yet: this process is not ready, and others are", "others", others, "lease", other)
			return nil
		}
		s.joined = true // nobody else is: better it leads and is not ready
		if err := s.renew(ctx); err != nil {
			return err
		}
	}
	if other != "" {
		klog.FromContext(ctx).Info("Taking no shard: another number of them is in force", "lease", other, "shards", s.Count)
	}
	s.follow(context.WithoutCancel(ctx), planned, campaigns)
	s.forget(ctx)
	return nil
}

// plan reads all Leases and returns which shards this process is to lead, and the Lease for which it may take none.
func (s *Shards) plan(ctx context.Context) (planned map[int]bool, other string, err error) {
	leases, err := s.list(ctx)
	if err != nil {
		return nil, "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.watched.read(leases, now)
	planned = map[int]bool{}
	if other = s.watched.other(s.Count, now); other == s.Program {
		// That leader may be a program that knows of no shards, and waits for none. One that does waits for these.
		return planned, other, nil
	}
	if other != "" || now.Before(s.notBefore) {
		for shard := range s.terms { // others wait until these have ended
			planned[shard] = true
		}
		return planned, other, nil
	}
	replicas := append(s.watched.replicas(s.Count, now), s.identity)
	for shard, replica := range plan(replicas, s.watched.leads(s.Count, now), s.Count) {
		if replica == s.identity {
			planned[shard] = true
		}
	}
	return planned, "", nil
}

// list reads all Leases of the program.
func (s *Shards) list(ctx context.Context) ([]coordinationv1.Lease, error) {
	list, err := s.Leases.List(ctx, metav1.ListOptions{LabelSelector: labels.Set(s.Labels).String()})
	if err != nil {
		return nil, fmt.Errorf("listing Leases: %w", err)
	}
	if len(s.Labels) == 0 {
		return list.Items, nil
	}
	leader, err := s.Leases.Get(ctx, s.Program, metav1.GetOptions{}) // any version of the program wrote it
	if apierrors.IsNotFound(err) {
		return list.Items, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading Lease %s of the leader: %w", s.Program, err)
	}
	return append(list.Items, *leader), nil
}

// others returns how many replicas live besides this one, those with another number of shards among them.
func (s *Shards) others() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watched.living(time.Now())
}

// forget deletes the Leases of replicas that were lost long ago.
func (s *Shards) forget(ctx context.Context) {
	s.mu.Lock()
	lost := s.watched.lost(time.Now())
	s.mu.Unlock()
	for name, version := range lost {
		err := s.Leases.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &version}})
		if err != nil && !apierrors.IsNotFound(err) {
			klog.FromContext(ctx).V(2).Info("Deleting the Lease of a replica that was lost failed, the next look does it", "lease", name, "err", err)
		}
	}
}

// renew writes the Lease of this replica.
func (s *Shards) renew(ctx context.Context) error {
	now := metav1.NowMicro()
	spec := coordinationv1.LeaseSpec{
		HolderIdentity: ptr.To(s.identity), RenewTime: &now, LeaseDurationSeconds: ptr.To(int32(s.LeaseDuration / time.Second)),
	}
	name := s.watched.replicaName(s.id, s.Count)
	lease, err := s.Leases.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name, Labels: s.Labels}, Spec: spec}
		_, err = s.Leases.Create(ctx, lease, metav1.CreateOptions{})
	} else if err == nil {
		lease.Spec = spec
		_, err = s.Leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("renewing Lease %s of this replica: %w", name, err)
	}
	return nil
}

// leave deletes the Lease of this replica.
func (s *Shards) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.RetryPeriod)
	defer cancel()
	err := s.Leases.Delete(ctx, s.watched.replicaName(s.id, s.Count), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		klog.FromContext(ctx).V(2).Info("Deleting the Lease of this replica failed, others wait until it has expired", "err", err)
	}
}

// follow campaigns for what is planned, and hands over what is not. ctx does not end with one look.
func (s *Shards) follow(ctx context.Context, planned map[int]bool, campaigns *sync.WaitGroup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for shard := range planned {
		if s.terms[shard] != nil {
			continue
		}
		campaigning, stop := context.WithCancel(ctx)
		begun := newTerm(campaigning, &leadership.Fence{RenewDeadline: s.RenewDeadline, LeaseDuration: s.LeaseDuration}, stop)
		s.terms[shard] = begun
		campaigns.Go(func() {
			defer s.ended(shard, begun)
			s.campaign(campaigning, shard, begun)
		})
	}
	for shard, term := range s.terms {
		if planned[shard] || term.ending {
			continue
		}
		klog.FromContext(ctx).V(2).Info("Handing a shard over", "shard", shard, "led", term.led, "tenants", len(term.works))
		s.end(term)
		campaigns.Go(func() {
			defer term.stop()
			select {
			case <-term.idle:
			case <-time.After(handOver):
				klog.FromContext(ctx).Info("Work on tenants of a shard goes on, its writes end now", "shard", shard)
			}
		})
	}
}

// end lets nobody enter a term any more, and tells those in it to leave. The caller holds mu.
func (s *Shards) end(term *term) {
	term.ending = true
	for work := range term.works {
		if work.stop != nil {
			work.stop(ErrNotLed)
		}
	}
	term.settle()
	s.lead(term, false)
}

// lead sets whether a term is led. The caller holds mu.
func (s *Shards) lead(term *term, led bool) {
	if term.led == led {
		return
	}
	term.led = led
	s.Metrics.add(led)
	if s.changed != nil {
		go s.changed() // it may ask Holds
	}
}

// ended forgets a term. What still works there has a Fence that has closed.
func (s *Shards) ended(shard int, term *term) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(term)
	term.stop()
	if s.terms[shard] == term {
		delete(s.terms, shard)
	}
}

// campaign holds the Lease of a shard, or tries to, until ctx ends or it is lost.
func (s *Shards) campaign(ctx context.Context, shard int, begun *term) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "shard", shard)
	ctx = klog.NewContext(ctx, logger)
	name := s.watched.shardName(shard, s.Count)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            begun.fence.Lock(s.lock(name)),
		LeaseDuration:   s.LeaseDuration,
		RenewDeadline:   s.RenewDeadline,
		RetryPeriod:     s.RetryPeriod,
		ReleaseOnCancel: true,
		Name:            name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { s.elected(ctx, shard, begun) },
			OnStoppedLeading: func() { logger.V(2).Info("Not leading the shard any more") },
		},
	})
	if err != nil {
		logger.Error(err, "Building the election of a shard failed")
		return
	}
	elector.Run(ctx)
}

// elected looks once more for those who know other shards: they may have got a Lease at the same time, and then both
// give theirs back.
func (s *Shards) elected(ctx context.Context, shard int, begun *term) {
	_, other, err := s.plan(ctx)
	taken := func() {}
	if s.take != nil {
		taken = s.take(shard)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil || other != "":
		klog.FromContext(ctx).Info("Giving a shard back", "lease", other, "err", err)
		s.notBefore = time.Now().Add(wait.Jitter(s.RetryPeriod, givenBackJitter))
		begun.stop()
	case ctx.Err() == nil && !begun.ending && s.terms[shard] == begun:
		klog.FromContext(ctx).V(2).Info("Leading the shard")
		s.lead(begun, true)
		s.taking.Go(taken) // it may ask Holds
	}
}

// expired reports whether this process has seen a Lease expire in that version.
func (s *Shards) expired(name, version string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watched.expired(name, version, time.Now())
}

// leadAlone leads the one shard once no process that knows several leads any.
func (s *Shards) leadAlone(ctx context.Context) error {
	err := wait.PollUntilContextCancel(ctx, s.RetryPeriod, true, func(ctx context.Context) (bool, error) {
		_, other, err := s.plan(ctx)
		switch {
		case apierrors.IsForbidden(err):
			klog.FromContext(ctx).Info("May not list Leases, so nobody else leads shards", "err", err)
			return true, nil
		case err != nil:
			klog.FromContext(ctx).Error(err, "Finding out whether another number of shards is in force failed, trying again")
			return false, nil
		case other != "":
			klog.FromContext(ctx).Info("Leading nothing yet: another number of shards is in force", "lease", other)
		}
		return other == "", nil
	})
	if err != nil {
		return nil //nolint:nilerr // ctx ended
	}
	only := newTerm(ctx, s.Fence, func() {})
	taken := func() {}
	if s.take != nil {
		taken = s.take(0)
	}
	s.mu.Lock()
	s.terms[0] = only
	s.lead(only, true)
	s.mu.Unlock()
	close(s.alone)
	s.taking.Go(taken)
	<-ctx.Done()
	s.mu.Lock()
	s.end(only)
	s.mu.Unlock()
	s.taking.Wait()
	return nil
}
