package engage

import (
	"fmt"
	"strconv"
	"sync"

	"github.com/superpool/superpool/internal/tenancy"
)

// ReasonRestored: the resource versions of a control plane have gone back, as after it was restored from a backup. The
// connection ends, and everything is listed anew: a watch that goes on from a version of before would miss changes.
const ReasonRestored = "Restored"

// Versions notices that the resource versions of one API server go back. Keep one as long as something that was listed
// there is remembered. The zero value is ready for use, by many goroutines.
type Versions struct {
	mu      sync.Mutex
	highest uint64
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
	return &Failure{Final: true, Reason: tenancy.Reason{Reason: ReasonRestored, Message: fmt.Sprintf(
		"The control plane is at resource version %d and was at %d before, as after it was restored from a backup: everything is listed anew",
		number, before)}}
}
