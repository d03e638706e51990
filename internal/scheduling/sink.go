package scheduling

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/placer"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/slicepod"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/plugins/namespacegang"
)

// refusalPeriod limits the rate of updates in which only the numbers of a refusal changed, per gang. What is free
// changes with every decision about others, and each update is a blocking write of a status and an Event in the
// tenant's control plane.
const refusalPeriod = time.Minute

// errChanged is the error for a gang whose NamespacePlacement has another spec or other placements now, or was deleted.
var errChanged = errors.New("changed since the decision")

// statusSink is the placer.Sink that writes into the status of NamespacePlacements. It is safe for concurrent use.
type statusSink struct {
	store *Store
	clock clock.PassiveClock

	mu sync.Mutex
	// lastMessage holds the refusal that was last written, by NamespacePlacement. It only spares writes, and is empty
	// after a restart.
	lastMessage map[client.ObjectKey]lastMessage
}

// lastMessage is the last Unschedulable message that was written for a gang. A NamespacePlacement whose spec or
// placements changed is a new gang, whose refusal is written even if the message is equal.
type lastMessage struct {
	gang, message string
	at            time.Time
}

var _ placer.Sink = &statusSink{}

func newStatusSink(store *Store, clock clock.PassiveClock) *statusSink {
	return &statusSink{store: store, clock: clock, lastMessage: map[client.ObjectKey]lastMessage{}}
}

// Commit implements namespacegang.Committer. It writes a decision if the NamespacePlacement still has the spec and the
// placements for which it was made.
func (s *statusSink) Commit(ctx context.Context, gang string, assignments []namespacegang.Assignment) error {
	granted := map[string]slice.Amounts{}
	for _, assignment := range assignments {
		size := slice.Of(assignment.Pod.Spec.Containers[0].Resources.Requests)
		granted[assignment.Cluster] = granted[assignment.Cluster].Plus(size)
	}
	np, err := s.change(ctx, gang, placement.Facts{Granted: granted})
	if err != nil {
		return fmt.Errorf("placing gang %s: %w", gang, err)
	}
	s.forget(client.ObjectKeyFromObject(np))
	klog.FromContext(ctx).V(2).Info("Placed a namespace", "tenant", np.Namespace, "namespace", np.Name,
		"placements", placement.Encode(np.Status.Placements))
	return nil
}

// Refuse implements placer.Sink. It writes a refusal into condition Placed, unless the same was written last, or only
// the numbers changed within refusalPeriod.
func (s *statusSink) Refuse(ctx context.Context, gang string, why placer.Refusal) error {
	key := slicepod.PlacementOf(gang)
	next := lastMessage{gang: gang, message: why.Message, at: s.clock.Now()}
	if !s.last(key).isDue(next) {
		return nil
	}
	_, err := s.change(ctx, gang, placement.Facts{Unschedulable: why.Message})
	if errors.Is(err, errChanged) {
		return nil // the scheduler tries the new gang, if there is one
	}
	if err != nil {
		return fmt.Errorf("refusing gang %s: %w", gang, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastMessage[key] = next
	return nil
}

// isDue reports whether next is to be written after last.
func (last lastMessage) isDue(next lastMessage) bool {
	if last.gang != next.gang {
		return true
	}
	return last.message != next.message && next.at.Sub(last.at) >= refusalPeriod
}

func (s *statusSink) last(key client.ObjectKey) lastMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastMessage[key]
}

// forget forgets the refusal of a NamespacePlacement that was placed or deleted.
func (s *statusSink) forget(key client.ObjectKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.lastMessage, key)
}

// change writes what follows from facts into the status of the NamespacePlacement that gang was projected from. It
// returns errChanged when that is not the same gang any more.
func (s *statusSink) change(ctx context.Context, gang string, facts placement.Facts) (*schedulerv1alpha1.NamespacePlacement, error) {
	facts.Now = s.clock.Now()
	return s.store.Change(ctx, slicepod.PlacementOf(gang), func(np *schedulerv1alpha1.NamespacePlacement) error {
		if view.Gang(np) != gang {
			return fmt.Errorf("NamespacePlacement %s %w", klog.KObj(np), errChanged)
		}
		np.Status, _, _ = placement.Next(np, facts)
		return nil
	})
}
