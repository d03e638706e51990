package syncer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/superpool/superpool/internal/shards"
)

const (
	// settles is how long a syncer that has begun to work waits for its tenants to connect, before their caches say
	// whether it is warm.
	settles = 3 * time.Second
	// cold is how long it waits for the caches of tenants that do not answer.
	cold = 30 * time.Second
)

// share implements engine.Share: a tenant's shard is that of its cluster key, which what is left of a tenant names,
// too.
type share struct{ *shards.Shards }

// Holds implements engine.Share.
func (s share) Holds(tenant string) bool { return s.Shards.Holds(types.UID(tenant)) }

// Enter implements engine.Share.
func (s share) Enter(ctx context.Context, tenant string) (held context.Context, leave func(), err error) {
	return s.Shards.Enter(ctx, types.UID(tenant)) //nolint:wrapcheck // the engine asks whether there is one
}

// share lets the syncer work on a share of the tenants, if Options.Shards are not nil.
func (s *Syncer) share(ctx context.Context, mgr manager.Manager, options *Options) error {
	s.warm.clock = options.Engine.Clock
	split := options.Shards
	if split == nil {
		return nil
	}
	options.Engine.Share, split.Ready = share{split}, s.isWarm
	split.OnTake(s.take(ctx, split.Count))
	if err := mgr.Add(split); err != nil {
		return fmt.Errorf("adding the shards to the manager: %w", err)
	}
	return nil
}

// take returns what is called before a shard is led: what was noted about its tenants may be of an earlier term, after
// which another process has worked on them. Then all their keys are reconciled.
func (s *Syncer) take(ctx context.Context, count int) func(shard int) func() {
	return func(shard int) func() {
		of := func(tenant string) bool { return shards.Of(types.UID(tenant), count) == shard }
		for _, tenant := range s.tenants() {
			if of(tenant.Key) {
				s.env.Forget(tenant.Key)
				tenant.Take(s.env.Clock.Now())
			}
		}
		return func() { s.engine.Take(ctx, of) }
	}
}

// warmth is since when the engine runs.
type warmth struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	begun time.Time
}

func (w *warmth) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begun = w.clock.Now()
}

// since returns for how long the engine has run, false if it does not.
func (w *warmth) since() (time.Duration, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.clock.Since(w.begun), !w.begun.IsZero()
}

// isWarm returns whether the syncer could lead a shard and lose no time: its engine runs, and the caches of all tenants
// are filled that have placements here and answer. Those that do not answer do not hold it up.
func (s *Syncer) isWarm() bool {
	since, begun := s.warm.since()
	if !begun || since < settles {
		return false
	}
	if since >= cold {
		return true
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, session := range s.sessions {
		if !session.left.Load() && !session.cache.synced() {
			return false
		}
	}
	return true
}
