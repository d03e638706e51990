// Package losses says of each super cluster whether the pool survives its loss: whether what namespaces have there has
// room in the others.
package losses

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/simulation"
	"github.com/superpool/superpool/internal/view"
)

const (
	// DefaultPeriod is the shortest time from the beginning of one round over all super clusters to that of the next.
	DefaultPeriod = 5 * time.Minute
	// roundShare is how many times as long as its simulations took a round lasts at least, with the rest after it: all
	// of them take a fiftieth of a core. A thousand tenants with ten thousand namespaces in a hundred super clusters
	// take half a minute on a core that others use, so there is a round in 25 minutes.
	roundShare = 50
	// rest is how many times as long as the simulation of one loss took the next one does not begin: within a round
	// they take a quarter of a core.
	rest = 3
	// messagePeriod limits how often a condition is written of which nothing but figures have changed.
	messagePeriod = 15 * time.Minute
)

// Simulator simulates the loss of each super cluster, one after another and again and again where anything changed that
// decides, and tells what comes of it as condition Replaceable. It reads a cache and asks no API server. It is a runnable
// of a manager, for the leader only. All fields but Period are required.
type Simulator struct {
	// Reader reads virtual Nodes, and no others, and NamespacePlacements, from a cache.
	Reader client.Reader
	// Config holds the profiles of the namespace scheduler.
	Config *config.KubeSchedulerConfiguration
	// Tell takes the condition of a super cluster, without times, nil where there is none of that id any more. It must
	// not block.
	Tell func(superCluster string, condition *corev1.NodeCondition)
	// Clock tells the time.
	Clock clock.Clock
	// Period is in place of DefaultPeriod where it is not 0.
	Period time.Duration

	// simulated is the fingerprint of the pool of the last round, 0 before the first and after one of which something is
	// left to tell.
	simulated uint64
	told      map[string]told
}

// told is what was told last of a super cluster.
type told struct {
	condition corev1.NodeCondition
	at        time.Time
}

// NeedLeaderElection returns true: one process tells.
func (s *Simulator) NeedLeaderElection() bool { return true }

// Start runs until ctx ends.
func (s *Simulator) Start(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.LoggerWithName(klog.FromContext(ctx), "losses"))
	period := cmp.Or(s.Period, DefaultPeriod)
	for next := period / 5; s.pause(ctx, next); { // what has just started has other things to do
		began := s.Clock.Now()
		busy, err := s.Round(ctx)
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Simulating losses of super clusters, trying again")
		}
		next = until(period, busy, s.Clock.Since(began))
	}
	return nil
}

// until returns the time from the end of a round to the beginning of the next: it took so long, and was busy for a part
// of that.
func until(period, busy, took time.Duration) time.Duration {
	return max(period, roundShare*busy) - took
}

// pause waits, and returns false once ctx has ended.
func (s *Simulator) pause(ctx context.Context, duration time.Duration) bool {
	if ctx.Err() != nil || duration <= 0 {
		return ctx.Err() == nil
	}
	timer := s.Clock.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}

// Round simulates the loss of each super cluster, unless the pool is that of the last round. It returns how long that
// took without the rests.
func (s *Simulator) Round(ctx context.Context) (busy time.Duration, err error) {
	pool, err := s.pool(ctx)
	if err != nil {
		return 0, err
	}
	s.forget(pool.Nodes)
	fingerprint := fingerprintOf(pool)
	if fingerprint == s.simulated {
		return 0, nil
	}
	s.simulated = 0
	whole, began := true, s.Clock.Now()
	quiet := klog.NewContext(ctx, logr.Discard()) // what a scheduler logs about objects in memory is about no cluster
	err = simulation.Losses(quiet, s.Config, pool, func(loss simulation.Loss) error {
		took := s.Clock.Since(began)
		busy += took
		if loss.Err != nil {
			whole = false
			klog.FromContext(ctx).Error(loss.Err, "Simulating the loss of a super cluster", "superCluster", loss.SuperCluster)
		}
		whole = s.tell(loss.SuperCluster, conditionOf(&loss)) && whole
		s.pause(ctx, rest*took)
		began = s.Clock.Now()
		return nil
	})
	if err != nil {
		return busy, fmt.Errorf("simulating losses: %w", err)
	}
	klog.FromContext(ctx).V(4).Info("Simulated the loss of each super cluster", "superClusters", len(pool.Nodes), "namespaces", len(pool.Placements), "took", busy)
	if whole {
		s.simulated = fingerprint
	}
	return busy, nil
}

// pool returns the pool as the cache has it, whose objects nobody changes.
func (s *Simulator) pool(ctx context.Context) (*simulation.Pool, error) {
	nodes, placements := &corev1.NodeList{}, &schedulerv1alpha1.NamespacePlacementList{}
	if err := s.Reader.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing virtual Nodes: %w", err)
	}
	if err := s.Reader.List(ctx, placements, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing NamespacePlacements: %w", err)
	}
	pool := &simulation.Pool{}
	for i := range nodes.Items {
		pool.Nodes = append(pool.Nodes, &nodes.Items[i])
	}
	for i := range placements.Items {
		pool.Placements = append(pool.Placements, &placements.Items[i])
	}
	slices.SortFunc(pool.Nodes, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(pool.Placements, func(a, b *schedulerv1alpha1.NamespacePlacement) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return pool, nil
}

// fingerprintOf returns a hash of all that decides in a pool. Heartbeats and conditions of virtual Nodes do not.
func fingerprintOf(pool *simulation.Pool) uint64 {
	hash := fnv.New64a()
	encoder := json.NewEncoder(hash)
	for _, node := range pool.Nodes {
		_ = encoder.Encode([]any{node.UID, node.Name, node.Labels, node.Annotations, node.Spec, view.Taints(node), node.Status.Allocatable}) // it never fails
	}
	for _, np := range pool.Placements {
		_ = encoder.Encode([]any{np.UID, np.ResourceVersion})
	}
	return hash.Sum64()
}

// tell tells a condition, unless it is the one that was told last. One of which only figures have changed is told no
// more often than once in messagePeriod: then it returns false.
func (s *Simulator) tell(superCluster string, condition corev1.NodeCondition) bool {
	before, known := s.told[superCluster]
	now := s.Clock.Now()
	if known && before.condition == condition {
		return true
	}
	if known && before.condition.Status == condition.Status && before.condition.Reason == condition.Reason && now.Sub(before.at) < messagePeriod {
		return false
	}
	if s.told == nil {
		s.told = map[string]told{}
	}
	s.told[superCluster] = told{condition: condition, at: now}
	s.Tell(superCluster, &condition)
	return true
}

// forget forgets the super clusters that nodes has not.
func (s *Simulator) forget(nodes []*corev1.Node) {
	for superCluster := range s.told {
		if !slices.ContainsFunc(nodes, func(node *corev1.Node) bool { return node.Name == superCluster }) {
			delete(s.told, superCluster)
			s.Tell(superCluster, nil)
		}
	}
}
