package syncer

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// silence is how long the super cluster may not answer before what the caches hold of it is no news. It is longer than
// a period and two timeouts of proof.Guard, so that one lost answer changes nothing, and shorter than the grace period
// of Nodes, after which a tenant's node lifecycle controller writes what the caches would contradict.
const silence = 30 * time.Second

// liveness is when the super cluster last answered, and which of its caches show what it says since:
//
//	current ──no answer for silence──► none is current
//	   ▲                                      │ it answers: no watch survives
//	   │                                      ▼
//	   └──it answers, asked after the ──── behind
//	      cache's next watch was open
//
// A reflector opens a watch after it has listed, or from the last version that it has seen. All methods may be called
// concurrently.
type liveness struct {
	clock clock.PassiveClock
	// silence is how long it may not answer.
	silence time.Duration
	// resumed is called when it answers again, and each time that caches are current again.
	resumed func(context.Context)

	mu   sync.RWMutex
	last time.Time
	// watches holds the open watch of each source that has ever had one, nil if it has ended.
	watches map[source]*followed
	// behind holds the sources whose caches are not current.
	behind map[source]bool
}

func newLiveness(clock clock.PassiveClock, silence time.Duration, resumed func(context.Context)) *liveness {
	return &liveness{clock: clock, silence: silence, resumed: resumed, last: clock.Now(), watches: map[source]*followed{}, behind: map[source]bool{}}
}

// followed is an open watch. Reflectors stop every watch, also one that the API server has ended.
type followed struct {
	watch.Interface
	opened time.Time
	ended  func(*followed)
}

// Stop implements watch.Interface.
func (f *followed) Stop() {
	f.Interface.Stop()
	f.ended(f)
}

// answered returns when the super cluster last answered.
func (l *liveness) answered() time.Time {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.last
}

// silent returns when the super cluster last answered, and whether that is longer ago than silence.
func (l *liveness) silent() (last time.Time, silent bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.last, l.clock.Since(l.last) > l.silence
}

// current returns whether the cache of a source shows what the super cluster says.
func (l *liveness) current(from source) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.clock.Since(l.last) <= l.silence && !l.behind[from]
}

// follow is called with each watch that a source has opened, and returns it for its reflector.
func (l *liveness) follow(from source, opened watch.Interface) watch.Interface {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := &followed{Interface: opened, opened: l.clock.Now(), ended: func(f *followed) { l.ended(from, f) }}
	l.watches[from] = f
	return f
}

// forget is called when the informer of a source is stopped.
func (l *liveness) forget(from source) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.watches, from)
	delete(l.behind, from)
}

func (l *liveness) ended(from source, f *followed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watches[from] == f {
		l.watches[from] = nil
	}
}

// answer is called with the time at which an answer of the super cluster was asked for. The first one after a silence
// ends the watches: an API server may answer while the connection of a watch hangs, or lacks what happened meanwhile.
// It returns whether the next answer is urgent, because caches are behind.
func (l *liveness) answer(ctx context.Context, asked time.Time) bool {
	l.mu.Lock()
	quiet, behind := l.clock.Since(l.last), len(l.behind)
	l.last = asked
	var hanging []watch.Interface
	for from, open := range l.watches {
		switch {
		case quiet > l.silence:
			l.behind[from] = true
			if open != nil {
				hanging = append(hanging, open)
			}
		case open != nil && open.opened.Before(asked):
			delete(l.behind, from)
		}
	}
	returned, caughtUp, urgent := quiet > l.silence, len(l.behind) < behind, len(l.behind) > 0
	l.mu.Unlock()
	for _, open := range hanging {
		open.Stop()
	}
	if returned {
		klog.FromContext(ctx).Info("The super cluster answers again", "silence", quiet)
	}
	if returned || caughtUp {
		l.resumed(ctx)
	}
	return urgent
}
