package kinds

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/superpool/superpool/internal/syncer/engine"
)

// liveReadsPerSecond and liveReadsBurst bound the live reads of the meta cluster and of nodes of the super cluster that
// objects of one tenant cost, which it may make up: all tenants share both.
const liveReadsPerSecond, liveReadsBurst = 20, 500

// liveReads are the rates of live reads, by tenant. A tenant that connects again has no other. The
// zero value is ready for use, by many goroutines.
type liveReads struct {
	mu    sync.Mutex
	rates map[string]*rate.Limiter
}

func (m *liveReads) allow(tenant string, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	limit, exists := m.rates[tenant]
	if !exists {
		limit = rate.NewLimiter(liveReadsPerSecond, liveReadsBurst)
		if m.rates == nil {
			m.rates = map[string]*rate.Limiter{}
		}
		m.rates[tenant] = limit
	}
	return limit.AllowN(now, 1)
}

// mayRead returns an error where an object of a tenant is to wait before a control plane of the pool is read for it.
func (e *Env) mayRead(tenant string) error {
	if e.liveReads.allow(tenant, e.Clock.Now()) {
		return nil
	}
	return engine.Waitf("the turn of the tenant for a live read")
}
