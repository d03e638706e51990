package kind

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/superpool/superpool/internal/memo"
	"github.com/superpool/superpool/internal/syncer/engine"
)

// liveReadsPerSecond and liveReadsBurst bound the live reads of the meta cluster and of nodes of the super cluster that
// objects of one tenant cost, which it may make up: all tenants share both.
const liveReadsPerSecond, liveReadsBurst = 20, 500

// TenantRates bound how often something happens for each tenant. A tenant that connects again has no other rate. The
// zero value is ready for use, by many goroutines.
type TenantRates struct {
	limiters memo.Map[string, *rate.Limiter]
}

// Allow returns whether it may happen for a tenant now, and counts it: so many times a second, and burst at once, which
// are those of each call.
func (r *TenantRates) Allow(tenant string, perSecond rate.Limit, burst int, now time.Time) (allowed bool) {
	r.limiters.Update(tenant, func(limiter *rate.Limiter, known bool) (*rate.Limiter, bool) {
		if !known {
			limiter = rate.NewLimiter(perSecond, burst)
		}
		allowed = limiter.AllowN(now, 1)
		return limiter, true
	})
	return allowed
}

// MayRead returns an error where an object of a tenant is to wait before a control plane of the pool is read for it.
func (e *Env) MayRead(tenant string) error {
	if e.liveReads.Allow(tenant, liveReadsPerSecond, liveReadsBurst, e.Clock.Now()) {
		return nil
	}
	return engine.Waitf("the turn of the tenant for a live read")
}
