package app

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/superpool/superpool/internal/leadership"
	"github.com/superpool/superpool/internal/scheduling"
	"github.com/superpool/superpool/internal/tenants"
)

// election is how this process is elected to lead its shard. The leader of the first shard leads the pool, too. Without
// --leader-elect fence and lock are nil.
type election struct {
	shard leadership.Shard
	fence *leadership.Fence
	lock  resourcelock.Interface
}

// newElection returns what options ask for. cfg leads to the meta cluster without a Fence.
func newElection(cfg *rest.Config, options *Options) (*election, error) {
	fence, lock, err := options.Election.NewLock(cfg, leaseName)
	if err != nil {
		return nil, err //nolint:wrapcheck // it says all
	}
	return &election{shard: options.Election.Shard, fence: fence, lock: lock}, nil
}

// wrap is scheduling.Tenants.Fence.
func (e *election) wrap() func(http.RoundTripper) http.RoundTripper {
	if e.fence == nil {
		return nil
	}
	return e.fence.Wrap
}

// has is tenants.Controller.Has.
func (e *election) has(tenant types.UID) bool { return e.shard.Has(string(tenant)) }

// engage returns what the leader of the pool does for a tenant: all if it is of its shard, else what takes the whole
// pool to decide.
func (e *election) engage(all *scheduling.Tenants) tenants.Engage {
	others := *all
	others.Part = scheduling.PartPlacements
	return func(ctx context.Context, tenant *tenants.Tenant, ready func()) error {
		if e.has(tenant.UID) {
			return all.Engage(ctx, tenant, ready)
		}
		return others.Engage(ctx, tenant, ready)
	}
}
