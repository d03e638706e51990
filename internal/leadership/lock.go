package leadership

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// lock is that of the Lease of a shard. It tells the Fence of each renewal, and lets nobody lead while another counts
// another number of shards: a tenant would be in a shard of each.
//
// The proof: who is elected has written its own Lease, and reads all Leases after that (others.none). Of two with
// different numbers the one that writes last so finds the Lease of the first, and gives its own back; if each finds the
// other's, both do, and try again after another random time. It is bound to what the Fence is bound to:
//
//   - Clocks of two processes run equally fast. A Lease counts as expired when it was read unchanged for its duration,
//     so not before the Fence of its holder has closed and what that has sent was given up.
//   - Who has led and renews its Lease after its duration, as one that was paused does, or has no answer before that,
//     or reads that it does not hold it, may have been taken for lost. It leads no more (errLost), so that its process
//     ends: another one begins with nothing noted of tenants that others have worked on.
//   - Lists of Leases that name no resource version show all that was written before, and processes of the program have
//     their Leases in one namespace, under one name of the program. One in another namespace is seen by nobody.
//   - A process without an election holds no Lease, and is seen by nobody.
//
// Who waits stays ready: a rollout replaces a pod of a StatefulSet once the one before it is, and those that are to end
// would stay for ever. The elector logs why it waits, and leader_election_master_status of the shard is 0 everywhere.
type lock struct {
	resourcelock.Interface
	fence  *Fence
	others others
	// read is whether the Lease was read since it was written last, and holder who held it then, "" for nobody.
	read   bool
	holder string
	// lost is whether another may have been elected since this process was.
	lost bool
}

// errLost is the error of a leader that may have been taken for lost. It has it until its process ends.
var errLost = errors.New("another may have been elected since the last renewal of the Lease: this process leads no more")

// Get implements resourcelock.Interface.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	switch {
	case err == nil:
		l.read, l.holder = true, record.HolderIdentity
	case apierrors.IsNotFound(err):
		l.read, l.holder = true, ""
	}
	return record, raw, err //nolint:wrapcheck // the elector asks what kind of error it is
}

// Create implements resourcelock.Interface.
func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Create)
}

// Update implements resourcelock.Interface.
func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Update)
}

func (l *lock) write(
	ctx context.Context, record resourcelock.LeaderElectionRecord, write func(context.Context, resourcelock.LeaderElectionRecord) error,
) error {
	if record.HolderIdentity != l.Identity() {
		l.fence.released() // before the write, by which another may be elected at once
		if l.read && l.holder != l.Identity() {
			return nil // it is another's by now
		}
		return write(ctx, record)
	}
	if l.fence.hasLed() {
		return l.renew(ctx, record, write)
	}
	if err := l.others.none(ctx); err != nil { // so that who has to wait holds nothing for which others wait
		return err
	}
	started := l.fence.Clock.Now()
	if err := write(ctx, record); err != nil {
		return err
	}
	if err := l.others.none(ctx); err != nil {
		record.HolderIdentity = ""
		return errors.Join(err, l.Interface.Update(ctx, record))
	}
	l.read = false
	l.fence.renewed(started)
	l.others.clear(ctx)
	return nil
}

// renew writes the Lease of a leader.
func (l *lock) renew(
	ctx context.Context, record resourcelock.LeaderElectionRecord, write func(context.Context, resourcelock.LeaderElectionRecord) error,
) error {
	started := l.fence.Clock.Now()
	if l.lost = l.lost || l.fence.hasExpired() || l.read && l.holder != l.Identity(); l.lost {
		l.fence.close()
		return errLost
	}
	if err := write(ctx, record); err != nil {
		return err
	}
	if l.lost = l.fence.hasExpired(); l.lost {
		return errLost
	}
	l.read = false
	l.fence.renewed(started)
	return nil
}

// others are the Leases of those that count another number of shards of a program.
type others struct {
	leases  coordinationclient.LeaseInterface
	program string
	// count is the number of shards that this process counts; 0: there are no others.
	count int
	// duration is the least for which a Lease is read unchanged before it counts as expired.
	duration time.Duration
	now      func() time.Time
	// seen are those that somebody holds, by name, and expired those of them that have expired.
	seen    map[string]seen
	expired []*coordinationv1.Lease
}

// seen is a version of a Lease, and when it was first read, by this process's clock.
type seen struct {
	version string
	since   time.Time
}

// none returns an error that names a Lease of those whose holder may work on tenants.
func (o *others) none(ctx context.Context) error {
	if o.count == 0 {
		return nil
	}
	asked := o.now()
	list, err := o.leases.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("reading whether another number of shards is in force: %w", err)
	}
	before := o.seen
	o.seen, o.expired = map[string]seen{}, nil
	for i := range list.Items {
		lease := &list.Items[i]
		count := countOf(o.program, lease.Name)
		holder := ptr.Deref(lease.Spec.HolderIdentity, "")
		if count == 0 || count == o.count || holder == "" {
			continue
		}
		current := seen{version: lease.ResourceVersion, since: o.now()}
		if known := before[lease.Name]; known.version == current.version {
			current = known
		}
		o.seen[lease.Name] = current
		duration := max(o.duration, time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0))*time.Second)
		switch {
		case asked.Sub(current.since) >= duration:
			o.expired = append(o.expired, lease)
		case err == nil:
			err = fmt.Errorf("another number of shards than %d is in force: %s holds Lease %s", o.count, holder, lease.Name)
		}
	}
	return err
}

// clear lets nobody hold the Leases that had expired when they were read last: who stands by would else have to see
// each of them expire before it leads. One that was written since, or cannot be written, stays.
func (o *others) clear(ctx context.Context) {
	for _, lease := range o.expired {
		lease.Spec.HolderIdentity = nil
		if _, err := o.leases.Update(ctx, lease, metav1.UpdateOptions{}); err != nil {
			klog.FromContext(ctx).V(2).Info("Clearing an expired Lease", "lease", lease.Name, "err", err)
		}
	}
	o.expired = nil
}
