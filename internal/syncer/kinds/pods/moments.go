package pods

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/superpool/superpool/internal/syncer/engine"
)

// Moments holds, by key, when something happened to a pod. A pod that is created again under the name is another one.
// The zero value holds none. All methods may be called concurrently.
type Moments struct{ engine.Memo[moment] }

type moment struct {
	pod types.UID
	at  time.Time
}

// Note notes that it happened to a pod now.
func (m *Moments) Note(key engine.Key, pod types.UID, now time.Time) { m.Set(key, moment{pod, now}) }

// First notes that it happened to a pod now, unless that is noted already, and returns how long ago it did.
func (m *Moments) First(key engine.Key, pod types.UID, now time.Time) (ago time.Duration) {
	m.Update(key, func(known moment, exists bool) (moment, bool) {
		if !exists || known.pod != pod {
			known = moment{pod, now}
		}
		ago = now.Sub(known.at)
		return known, true
	})
	return ago
}

// Age returns how long ago it happened to a pod, false if nothing is noted of it.
func (m *Moments) Age(key engine.Key, pod types.UID, now time.Time) (time.Duration, bool) {
	known, exists := m.Get(key)
	return now.Sub(known.at), exists && known.pod == pod
}
