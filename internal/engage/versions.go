package engage

import (
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/superpool/superpool/internal/tenancy"
)

// ReasonRestored: the resource versions of a control plane have gone back, as after it was restored from a backup. The
// connection ends, and everything is listed anew: a watch that goes on from a version of before would miss changes.
const ReasonRestored = "Restored"

const (
	// restoredSoon is the time within which versions that go back again make the next try Costly, and restoredPause the
	// first pause after it was so twice: each time it is twice as long, up to restoredSoon.
	restoredSoon  = time.Hour
	restoredPause = 2 * time.Minute
)

// Versions notices that the resource versions of one API server go back. Keep one as long as something that was listed
// there is remembered, and beyond, so that it knows how often they have. The zero value is ready for use, by many
// goroutines.
type Versions struct {
	mu      sync.Mutex
	highest uint64
	// back is when versions last went back, again how often within restoredSoon of the time before, and pause what the
	// last Failure asked for.
	back  time.Time
	again int
	pause time.Duration
}

// Begin forgets the versions of before, when nothing that was listed there is remembered any more.
func (v *Versions) Begin() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.highest = 0
}

// Observe takes the resource version of a list that was not answered from a cache (no resourceVersion in the request,
// one resource of one API server, one request at a time). It returns a final Failure when that version is lower than
// one before, once: from then on the lower one counts. A version that is no number says nothing.
func (v *Versions) Observe(version string) error {
	number, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return nil // API servers other than kube-apiserver may write versions that cannot be compared
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	before := v.highest
	v.highest = number
	if number >= before {
		return nil
	}
	v.wentBack(time.Now())
	return &Failure{Final: true, Costly: v.again > 0, Pause: v.pause, Reason: tenancy.Reason{Reason: ReasonRestored, Message: fmt.Sprintf(
		"The control plane is at resource version %d and was at %d before, as after it was restored from a backup: everything is listed anew",
		number, before)}}
}

// wentBack counts that versions went back. To list everything anew costs the server one request, and its clients much:
// where it happens again and again, it is done ever more rarely. The caller holds mu.
func (v *Versions) wentBack(now time.Time) {
	again := !v.back.IsZero() && now.Sub(v.back) < restoredSoon+v.pause
	v.back = now
	if !again {
		v.again, v.pause = 0, 0
		return
	}
	if v.again++; v.again > 1 {
		v.pause = min(max(2*v.pause, restoredPause), restoredSoon)
	}
}
