package namespaces

import (
	"fmt"
	"slices"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/superpool/superpool/internal/scheduling/tenantevents"
)

const (
	// longestPause is the longest time after which a namespace that waits for its turn is looked at again: those before
	// it may not want theirs any more.
	longestPause = 10 * time.Second
	// silentWait is for how long a namespace waits for its turn without an Event.
	silentWait = 3 * time.Second
)

// turns gives out a rate in the order in which namespaces asked. It is for one goroutine.
type turns struct {
	rate *rate.Limiter
	// waiting are the namespaces that wait, the first to come first.
	waiting []string
	// granted are the namespaces that have a turn which they have not used yet.
	granted sets.Set[string]
	// asked is the namespace that is looked at, once it has asked, and kept whether it has not used its turn.
	asked string
	kept  bool
}

func newTurns(perSecond rate.Limit, burst int) turns {
	return turns{rate: rate.NewLimiter(perSecond, burst), granted: sets.New[string]()}
}

// take takes the turn of a namespace and returns 0 where it has come, and else after how long it comes, and how many
// are before it. isNew is whether the namespace did not wait before.
func (t *turns) take(namespace string, now time.Time) (after time.Duration, before int, isNew bool) {
	t.asked = namespace
	if t.granted.Has(namespace) {
		return 0, 0, false
	}
	before = slices.Index(t.waiting, namespace)
	if isNew = before < 0; isNew {
		before = len(t.waiting)
	}
	missing := float64(before+1) - t.rate.TokensAt(now)
	if missing <= 0 && t.rate.AllowN(now, 1) {
		t.leave(namespace)
		t.granted.Insert(namespace)
		return 0, before, isNew
	}
	if isNew {
		t.waiting = append(t.waiting, namespace)
	}
	after = time.Duration(missing / float64(t.rate.Limit()) * float64(time.Second))
	return max(after.Truncate(time.Millisecond)+time.Millisecond, time.Millisecond), before, isNew
}

// leave lets a namespace wait no longer.
func (t *turns) leave(namespace string) {
	t.waiting = slices.DeleteFunc(t.waiting, func(waiting string) bool { return waiting == namespace })
}

// keep lets the namespace that is looked at keep the turn that it has taken for the next time.
func (t *turns) keep() { t.kept = true }

// begin is called before a namespace is looked at, and end once that has ended without an error: one that has asked for
// no turn needs none any more, and one that has taken its turn has used it.
func (t *turns) begin() { t.asked, t.kept = "", false }

func (t *turns) end(namespace string) {
	if t.asked != namespace {
		t.leave(namespace)
	}
	if !t.kept {
		t.granted.Delete(namespace)
	}
}

// takesTurn takes the turn of a namespace and returns 0, or after how long to look again. It records once why a
// namespace waits that waits for longer than silentWait.
func (r *Reconciler) takesTurn(turns *turns, namespace *corev1.Namespace) (again time.Duration) {
	after, before, isNew := turns.take(namespace.Name, r.Clock.Now())
	if isNew && after > silentWait {
		r.Events.Record(namespace, tenantevents.Announcement{Kind: corev1.EventTypeWarning, Reason: tenantevents.ReasonWaitsForTurn, Message: fmt.Sprintf(
			"Namespaces of the tenant begin and change faster than %v in a second: this one waits for its turn, after %d others", turns.rate.Limit(), before)})
	}
	return min(after, longestPause)
}
