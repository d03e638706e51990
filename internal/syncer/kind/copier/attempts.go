package copier

import (
	"time"

	"github.com/superpool/superpool/internal/memo"
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
	last memo.Map[Attempt, lastAttempt]
}

// May returns whether to write something with that hash now, and counts it: at once if it is new, and after a pause,
// twice as long each time, if it is the same again.
func (a *Attempts) May(of Attempt, hash string, now time.Time) (may bool) {
	a.last.Update(of, func(last lastAttempt, tried bool) (lastAttempt, bool) {
		switch {
		case !tried || last.hash != hash:
			last = lastAttempt{hash: hash, pause: initialDelay}
		case now.Sub(last.at) < last.pause:
			return last, true
		default:
			last.pause = min(2*last.pause, maxDelay)
		}
		may, last.at = true, now
		return last, true
	})
	return may
}

// Succeeded forgets attempts at what has stayed for a while.
func (a *Attempts) Succeeded(of Attempt, now time.Time) {
	a.last.Update(of, func(last lastAttempt, tried bool) (lastAttempt, bool) {
		return last, tried && now.Sub(last.at) <= resetAfter
	})
}

// Drop forgets the attempts of a key that is gone.
func (a *Attempts) Drop(key engine.Key) {
	a.last.Delete(Attempt{Key: key}, Attempt{Key: key, Up: true}, Attempt{Key: key, Up: true, Status: true})
}

// Forget drops the attempts of a tenant.
func (a *Attempts) Forget(tenant string) {
	a.last.DeleteFunc(func(of Attempt, _ lastAttempt) bool { return of.Key.Tenant == tenant })
}
