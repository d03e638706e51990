package copier

import (
	"maps"
	"sync"
	"time"

	"github.com/superpool/superpool/internal/syncer/engine"
)

const (
	// initialDelay is the least time between two attempts to write the same, and maxDelay the longest.
	initialDelay, maxDelay = time.Second, time.Hour
	// resetAfter is how long what was written must stay before attempts begin anew.
	resetAfter = 10 * time.Minute
)

// Attempt is what is written over and over where one side does not keep it: the super object of a key, or what comes
// Up to the tenant's.
type Attempt struct {
	Key        engine.Key
	Up, Status bool
}

type lastAttempt struct {
	hash  string
	at    time.Time
	pause time.Duration
}

// Attempts holds when the same was last written of each object whose other side differed from what had been written.
// The zero value holds none. All methods may be called concurrently.
type Attempts struct {
	mu   sync.Mutex
	last map[Attempt]lastAttempt
}

// May returns whether to write something with that hash now, and counts it: at once if it is new, and after a pause,
// twice as long each time, if it is the same again.
func (a *Attempts) May(of Attempt, hash string, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	last, tried := a.last[of]
	switch {
	case !tried || last.hash != hash:
		last = lastAttempt{hash: hash, pause: initialDelay}
	case now.Sub(last.at) < last.pause:
		return false
	default:
		last.pause = min(2*last.pause, maxDelay)
	}
	last.at = now
	if a.last == nil {
		a.last = map[Attempt]lastAttempt{}
	}
	a.last[of] = last
	return true
}

// Succeeded forgets attempts at what has stayed for a while.
func (a *Attempts) Succeeded(of Attempt, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if last, tried := a.last[of]; tried && now.Sub(last.at) > resetAfter {
		delete(a.last, of)
	}
}

// Drop forgets the attempts of a key that is gone.
func (a *Attempts) Drop(key engine.Key) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, of := range [...]Attempt{{Key: key}, {Key: key, Up: true}, {Key: key, Up: true, Status: true}} {
		delete(a.last, of)
	}
}

// Forget drops the attempts of a tenant.
func (a *Attempts) Forget(tenant string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.last, func(of Attempt, _ lastAttempt) bool { return of.Key.Tenant == tenant })
}
