package scheduling

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/placer"
	"github.com/superpool/superpool/internal/refusal"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/slicepod"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/plugins/namespacegang"
)

// refusalPeriod limits the rate of updates in which only the message of a refusal changed, per gang. How many super
// clusters have which reason changes with decisions about others, and each update is a write of a status and an Event
// in the tenant's control plane.
const refusalPeriod = time.Minute

// statusSink is the placer.Sink that writes into the status of NamespacePlacements. It is safe for concurrent use.
type statusSink struct {
	store *Store
	clock clock.PassiveClock

	refusals *refusals
}

var _ placer.Sink = &statusSink{}

func newStatusSink(store *Store, clock clock.PassiveClock) *statusSink {
	s := &statusSink{store: store, clock: clock}
	s.refusals = newRefusals(clock, func(ctx context.Context, gang string, facts placement.Facts) error {
		_, err := s.change(ctx, gang, facts)
		return err
	})
	return s
}

// Commit implements namespacegang.Committer. It writes a decision if the NamespacePlacement still has the spec and the
// placements for which it was made.
func (s *statusSink) Commit(ctx context.Context, gang string, assignments []namespacegang.Assignment) error {
	granted := map[string]slice.Amounts{}
	for _, assignment := range assignments {
		size := slicepod.AmountsOf(assignment.Pod)
		granted[assignment.Cluster] = granted[assignment.Cluster].Plus(size)
	}
	np, err := s.change(ctx, gang, placement.Facts{Granted: granted})
	s.store.Metrics.decided(decisionOf(err))
	if err != nil {
		return fmt.Errorf("placing gang %s: %w", gang, err)
	}
	s.forget(client.ObjectKeyFromObject(np))
	klog.FromContext(ctx).V(2).Info("Placed a namespace", "tenant", np.Namespace, "namespace", np.Name,
		"placements", placement.Encode(np.Status.Placements))
	return nil
}

// Refuse implements placer.Sink. The refusal is written later, by run.
func (s *statusSink) Refuse(ctx context.Context, gang string, why refusal.Refusal) error {
	result := decisionRefused
	if np, err := s.store.Get(ctx, slicepod.PlacementOf(gang)); err == nil && np != nil && len(placement.Pinned(np)) > 0 {
		result = decisionDenied
	}
	s.store.Metrics.decided(result)
	s.refusals.add(gang, why)
	return nil
}

// decisionOf returns what became of a decision whose commit had that outcome.
func decisionOf(err error) decisionResult {
	switch {
	case err == nil:
		return decisionPlaced
	case errors.Is(err, errChanged):
		return decisionChanged
	}
	return decisionError
}

// run writes refusals until ctx ends.
func (s *statusSink) run(ctx context.Context) { s.refusals.run(ctx) }

// forget forgets the refusal of a NamespacePlacement that was placed or deleted.
func (s *statusSink) forget(key client.ObjectKey) { s.refusals.forget(key) }

// change writes what follows from facts into the status of the NamespacePlacement that gang was projected from. It
// returns errChanged when that is not the same gang any more.
func (s *statusSink) change(ctx context.Context, gang string, facts placement.Facts) (*schedulerv1alpha1.NamespacePlacement, error) {
	facts.Now = s.clock.Now()
	return s.store.Change(ctx, slicepod.PlacementOf(gang), func(np *schedulerv1alpha1.NamespacePlacement) error {
		if view.Gang(np) != gang || np.DeletionTimestamp != nil {
			return fmt.Errorf("NamespacePlacement %s %w", klog.KObj(np), errChanged)
		}
		np.Status, _, _ = placement.Next(np, facts)
		return nil
	})
}
