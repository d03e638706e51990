package leadership

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
)

// Options are how the replicas of a program elect the leader of a shard.
type Options struct {
	// Elect makes replicas elect a leader; Namespace of the meta cluster holds their Lease.
	Elect     bool
	Namespace string
	// LeaseDuration is how long after its last renewal the leader is taken for lost, in whole seconds; RenewDeadline how
	// long it tries to renew before it ends, and RetryPeriod how often all look.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	// Shard is what the leader is elected for.
	Shard Shard
}

// NewOptions returns the defaults: an election in that namespace for all tenants, in which another leads 3.5 to 6.2 s
// after the leader was killed: it looks each 0.5 to 1.1 s, sees the last renewal at one look, and that the Lease is 4 s
// older at another.
func NewOptions(namespace string) Options {
	return Options{
		Elect: true, Namespace: namespace, LeaseDuration: 4 * time.Second, RenewDeadline: 3 * time.Second, RetryPeriod: 500 * time.Millisecond,
		Shard: Shard{Count: 1},
	}
}

// AddFlags adds a flag for every option but the shard, of whose use each program says more. namespaceUsage says which
// namespace it is without the flag, where that is not Namespace; "" where it is.
func (o *Options) AddFlags(flags *pflag.FlagSet, namespaceUsage string) {
	flags.BoolVar(&o.Elect, "leader-elect", o.Elect, "elect a leader before working; needed when more than one replica runs")
	flags.StringVar(&o.Namespace, "leader-elect-namespace", o.Namespace, "namespace of the meta cluster that holds the Leases"+namespaceUsage)
	flags.DurationVar(&o.LeaseDuration, "leader-elect-lease-duration", o.LeaseDuration, "how long after its last renewal of the Lease the leader is taken for lost, by replicas that wait to take its place")
	flags.DurationVar(&o.RenewDeadline, "leader-elect-renew-deadline", o.RenewDeadline, "how long the leader tries to renew the Lease before it ends; shorter than --leader-elect-lease-duration. The meta cluster may be away for as long")
	flags.DurationVar(&o.RetryPeriod, "leader-elect-retry-period", o.RetryPeriod, "how often the leader renews the Lease, and the others look at it")
}

// Validate returns an error for times by which two replicas would lead at once, and for a shard that no election
// guards.
func (o *Options) Validate() error {
	if err := o.Shard.Validate(o.Elect); err != nil {
		return fmt.Errorf("--shard: %w", err)
	}
	if !o.Elect {
		return nil
	}
	if o.LeaseDuration%time.Second != 0 { // of which a Lease has whole ones
		return fmt.Errorf("--leader-elect-lease-duration %s: use whole seconds", o.LeaseDuration)
	}
	if o.LeaseDuration > o.RenewDeadline && o.RetryPeriod > 0 && o.RenewDeadline > time.Duration(leaderelection.JitterFactor*float64(o.RetryPeriod)) {
		return nil
	}
	return fmt.Errorf("--leader-elect-lease-duration %s, --leader-elect-renew-deadline %s, --leader-elect-retry-period %s: use a deadline that is shorter than the duration, and more than %g times the period",
		o.LeaseDuration, o.RenewDeadline, o.RetryPeriod, leaderelection.JitterFactor)
}

// NewLock returns the Lease of the shard, of that name, and the Fence that it tells of renewals; both nil without an
// election. meta leads to the meta cluster, without that Fence.
func (o *Options) NewLock(meta *rest.Config, name string) (*Fence, resourcelock.Interface, error) {
	if !o.Elect {
		return nil, nil, nil
	}
	fence := &Fence{RenewDeadline: o.RenewDeadline, LeaseDuration: o.LeaseDuration, Clock: clock.RealClock{}}
	lock, err := fence.NewLock(meta, o.Namespace, name, o.Shard)
	if err != nil {
		return nil, nil, fmt.Errorf("electing a leader: %w", err)
	}
	return fence, lock, nil
}
