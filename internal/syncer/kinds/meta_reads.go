package kinds

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/superpool/superpool/internal/syncer/engine"
)

// metaReadsPerSecond and metaReadsBurst bound the live reads of the meta cluster that objects of one tenant cost: all
// tenants share the meta cluster.
const metaReadsPerSecond, metaReadsBurst = 20, 500

// metaReads are the rates of live reads of the meta cluster, by tenant. A tenant that connects again has no other. The
// zero value is ready for use, by many goroutines.
type metaReads struct {
	mu    sync.Mutex
	rates map[string]*rate.Limiter
}

func (m *metaReads) allow(tenant string, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	limit, exists := m.rates[tenant]
	if !exists {
		limit = rate.NewLimiter(metaReadsPerSecond, metaReadsBurst)
		if m.rates == nil {
			m.rates = map[string]*rate.Limiter{}
		}
		m.rates[tenant] = limit
	}
	return limit.AllowN(now, 1)
}

// mayReadMeta returns an error where an object of a tenant is to wait before the meta cluster is read for it.
func (e *Env) mayReadMeta(tenant string) error {
	if e.metaReads.allow(tenant, e.Clock.Now()) {
		return nil
	}
	return engine.Waitf("the turn of the tenant to have the meta cluster read")
}
