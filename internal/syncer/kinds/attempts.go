package kinds

import (
	"maps"
	"sync"
	"time"

	"github.com/superpool/superpool/internal/syncer/engine"
)

const (
	// firstPause is the least time between two attempts to write the same, and lastPause the longest.
	firstPause, lastPause = time.Second, time.Hour
	// calm is how long what was written must stay before attempts begin anew.
	calm = 10 * time.Minute
)

// attempt is what is written over and over where one side does not keep it: the super object of a key, or what comes
// up to the tenant's.
type attempt struct {
	key        engine.Key
	up, status bool
}

type lastAttempt struct {
	hash  string
	at    time.Time
	pause time.Duration
}

// attempts holds when the same was last written of each object whose other side differed from what had been written.
// The zero value holds none. All methods may be called concurrently.
type attempts struct {
	mu   sync.Mutex
	last map[attempt]lastAttempt
}

// may returns whether to write something with that hash now, and counts it: at once if it is new, and after a pause,
// twice as long each time, if it is the same again.
func (a *attempts) may(of attempt, hash string, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	last, tried := a.last[of]
	switch {
	case !tried || last.hash != hash:
		last = lastAttempt{hash: hash, pause: firstPause}
	case now.Sub(last.at) < last.pause:
		return false
	default:
		last.pause = min(2*last.pause, lastPause)
	}
	last.at = now
	if a.last == nil {
		a.last = map[attempt]lastAttempt{}
	}
	a.last[of] = last
	return true
}

// succeeded forgets attempts at what has stayed for a while.
func (a *attempts) succeeded(of attempt, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if last, tried := a.last[of]; tried && now.Sub(last.at) > calm {
		delete(a.last, of)
	}
}

// drop forgets the attempts of a key that is gone.
func (a *attempts) drop(key engine.Key) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, of := range [...]attempt{{key: key}, {key: key, up: true}, {key: key, up: true, status: true}} {
		delete(a.last, of)
	}
}

// forget drops the attempts of a tenant.
func (a *attempts) forget(tenant string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.last, func(of attempt, _ lastAttempt) bool { return of.key.Tenant == tenant })
}
