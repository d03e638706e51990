package namespacescheduler

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/refusal"
	"github.com/superpool/superpool/internal/scheduling/placements"
	"github.com/superpool/superpool/internal/slicepod"
	"github.com/superpool/superpool/internal/tenancy"
)

const (
	// refusalWriters is how many refusals are written at a time.
	refusalWriters = 4
	// refusalTimeout bounds one write.
	refusalTimeout = 10 * time.Second
	// refusalsPerTenant bounds the refusals that wait per tenant. One that is dropped comes again with the next try.
	refusalsPerTenant = 2000
)

// refusals writes why gangs wait into condition Placed of their NamespacePlacements, beside the scheduling loop: a
// write takes milliseconds, and one tenant may have ten thousand gangs that wait. The latest message of a gang wins,
// and tenants take turns. It is safe for concurrent use.
type refusals struct {
	write func(ctx context.Context, gang string, facts placement.Facts) error
	clock clock.PassiveClock

	mu sync.Mutex
	// written holds what was written last, by NamespacePlacement. It only spares writes, and is empty after a restart.
	written map[client.ObjectKey]lastMessage
	// waiting holds what is to be written, and queue its order.
	waiting map[client.ObjectKey]lastMessage
	queue   *placements.Turns[client.ObjectKey]
	// more is sent to when there is something to write.
	more chan struct{}
}

// lastMessage is a message for a gang. A NamespacePlacement whose spec or placements changed is a new gang, whose
// refusal is written even if the message is equal.
type lastMessage struct {
	gang, message string
	// details are for the operator's log.
	details string
	at      time.Time
}

// isDue reports whether next is to be written after last.
func (last lastMessage) isDue(next lastMessage) bool {
	if last.gang != next.gang {
		return true
	}
	return last.message != next.message && next.at.Sub(last.at) >= refusalPeriod
}

func newRefusals(clock clock.PassiveClock, write func(ctx context.Context, gang string, facts placement.Facts) error) *refusals {
	return &refusals{
		write: write, clock: clock, written: map[client.ObjectKey]lastMessage{}, waiting: map[client.ObjectKey]lastMessage{},
		queue: placements.NewTurns(placements.TenantOf), more: make(chan struct{}, refusalWriters),
	}
}

// add keeps a refusal to be written, unless the same was written last, or only the message changed within
// refusalPeriod. It never waits.
func (r *refusals) add(gang string, why refusal.Refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := slicepod.PlacementOf(gang)
	next := lastMessage{gang: gang, message: tenancy.Cut(why.Message, tenancy.MaxConditionMessage), at: r.clock.Now()}
	if !r.written[key].isDue(next) {
		return
	}
	next.details = tenancy.Cut(why.Details(), tenancy.MaxConditionMessage)
	if _, waits := r.waiting[key]; waits {
		r.waiting[key] = next
		return
	}
	if r.queue.LenOf(key.Namespace) >= refusalsPerTenant {
		return
	}
	r.waiting[key] = next
	r.queue.Push(key)
	select {
	case r.more <- struct{}{}:
	default: // every writer is awake
	}
}

// next takes the refusal whose turn it is. It returns false when there is none.
func (r *refusals) next() (client.ObjectKey, lastMessage, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.queue.Len() > 0 {
		key := r.queue.Pop()
		message, waits := r.waiting[key]
		delete(r.waiting, key)
		if waits { // else it was placed or deleted meanwhile
			return key, message, true
		}
	}
	return client.ObjectKey{}, lastMessage{}, false
}

// forget drops what waits and what was written of a NamespacePlacement that was placed or deleted.
func (r *refusals) forget(key client.ObjectKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.written, key)
	delete(r.waiting, key)
}

// run writes until ctx ends.
func (r *refusals) run(ctx context.Context) {
	var writers sync.WaitGroup
	for range refusalWriters {
		writers.Go(func() {
			for {
				r.drain(ctx)
				select {
				case <-ctx.Done():
					return
				case <-r.more:
				}
			}
		})
	}
	writers.Wait()
}

// drain writes all that waits, one by one.
func (r *refusals) drain(ctx context.Context) {
	for ctx.Err() == nil {
		key, message, any := r.next()
		if !any {
			return
		}
		writing, stop := context.WithTimeout(ctx, refusalTimeout)
		err := r.write(writing, message.gang, placement.Facts{Unschedulable: message.message})
		stop()
		switch {
		case errors.Is(err, placements.ErrChanged):
			continue // the scheduler tries the new gang, if there is one
		case err != nil:
			klog.FromContext(ctx).Error(err, "Recording why a namespace is not placed failed, the next try does it", "gang", message.gang)
			continue
		}
		klog.FromContext(ctx).V(2).Info("A namespace is not placed", "tenant", key.Namespace, "namespace", key.Name,
			"reason", message.message, "superClusters", message.details)
		r.mu.Lock()
		message.details = "" // it is in the log
		r.written[key] = message
		r.mu.Unlock()
	}
}
