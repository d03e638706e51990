package namespacescheduler

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
	"github.com/superpool/superpool/internal/scheduling/placements"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/slicepod"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/plugins/namespacegang"
)

// refusalPeriod limits the rate of updates in which only the message of a refusal changed, per gang. How many super
// clusters have which reason changes with decisions about others, and each update is a write of a status and an Event
// in the tenant's control plane.
const refusalPeriod = time.Minute

// StatusSink is the placer.Sink that writes into the status of NamespacePlacements. It is safe for concurrent use.
type StatusSink struct {
	store *placements.Store
	clock clock.PassiveClock

	refusals *refusals
}

var _ placer.Sink = &StatusSink{}

// NewStatusSink returns the sink of decisions that are written by store.
func NewStatusSink(store *placements.Store, clock clock.PassiveClock) *StatusSink {
	s := &StatusSink{store: store, clock: clock}
	s.refusals = newRefusals(clock, func(ctx context.Context, gang string, facts placement.Facts) error {
		_, err := s.Change(ctx, gang, facts)
		return err
	})
	return s
}

// Commit implements namespacegang.Committer. It writes a decision if the NamespacePlacement still has the spec and the
// placements for which it was made.
func (s *StatusSink) Commit(ctx context.Context, gang string, assignments []namespacegang.Assignment) error {
	granted := map[string]slice.Amounts{}
	for _, assignment := range assignments {
		size := slicepod.AmountsOf(assignment.Pod)
		granted[assignment.Cluster] = granted[assignment.Cluster].Plus(size)
	}
	np, err := s.Change(ctx, gang, placement.Facts{Granted: granted})
	s.store.Metrics.Decided(decisionOf(err))
	if err != nil {
		return fmt.Errorf("placing gang %s: %w", gang, err)
	}
	s.Forget(client.ObjectKeyFromObject(np))
	klog.FromContext(ctx).V(2).Info("Placed a namespace", "tenant", np.Namespace, "namespace", np.Name,
		"placements", placement.Encode(np.Status.Placements))
	return nil
}

// Refuse implements placer.Sink. The refusal is written later, by run.
func (s *StatusSink) Refuse(ctx context.Context, gang string, why refusal.Refusal) error {
	result := placements.DecisionRefused
	if np, err := s.store.Get(ctx, slicepod.PlacementOf(gang)); err == nil && np != nil && len(placement.Pinned(np)) > 0 {
		result = placements.DecisionDenied
	}
	s.store.Metrics.Decided(result)
	s.refusals.add(gang, why)
	return nil
}

// decisionOf returns what became of a decision whose commit had that outcome.
func decisionOf(err error) placements.DecisionResult {
	switch {
	case err == nil:
		return placements.DecisionPlaced
	case errors.Is(err, placements.ErrChanged):
		return placements.DecisionChanged
	}
	return placements.DecisionError
}

// run writes refusals until ctx ends.
func (s *StatusSink) run(ctx context.Context) { s.refusals.run(ctx) }

// Forget forgets the refusal of a NamespacePlacement that was placed or deleted.
func (s *StatusSink) Forget(key client.ObjectKey) { s.refusals.forget(key) }

// Change writes what follows from facts into the status of the NamespacePlacement that gang was projected from. It
// returns placements.ErrChanged when that is not the same gang any more.
func (s *StatusSink) Change(ctx context.Context, gang string, facts placement.Facts) (*schedulerv1alpha1.NamespacePlacement, error) {
	facts.Now = s.clock.Now()
	return s.store.Change(ctx, slicepod.PlacementOf(gang), func(np *schedulerv1alpha1.NamespacePlacement) error {
		if view.Gang(np) != gang || np.DeletionTimestamp != nil {
			return fmt.Errorf("NamespacePlacement %s %w", klog.KObj(np), placements.ErrChanged)
		}
		np.Status, _, _ = placement.Next(np, facts)
		return nil
	})
}
