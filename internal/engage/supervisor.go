package engage

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Supervisor runs at most one connection per object. A connection has an identity (the object's UID, its credentials);
// when the identity changes, the old connection is cancelled and its end awaited before another starts:
//
//	none ──Ensure──► running ──other identity, or Stop──► ending ──Serve returns──► none (and a notification)
//
// Set the exported fields before the first call. All methods are safe for concurrent use and none of them waits for a
// connection, except Start.
type Supervisor[W Work] struct {
	// Kind is the kind of the objects in the connections' logs: "tenant" or "cluster".
	Kind string
	// HealthPeriod is how often a server is probed while it is served.
	HealthPeriod time.Duration
	// LongestDelay bounds the delay between two tries. The first delay is one second, each is twice the one before it.
	LongestDelay time.Duration
	// RetryPeriod is how often a server is asked again that does not answer, before it is served and while it is. A
	// Failure is an answer. 0: as HealthPeriod and LongestDelay say.
	RetryPeriod time.Duration

	mu     sync.Mutex
	byName map[types.NamespacedName]*instance[W]
	notify func(types.NamespacedName)
	closed bool
	group  sync.WaitGroup
}

type instance[W Work] struct {
	identity string
	work     W
	conn     *connection
	cancel   context.CancelFunc
}

// OnChange sets what is called with an object's name when the state of its connection has changed, or the connection
// has ended. It must not block.
func (s *Supervisor[W]) OnChange(notify func(types.NamespacedName)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notify = notify
}

// Changed calls the callback of OnChange with an object's name.
func (s *Supervisor[W]) Changed(name types.NamespacedName) {
	s.mu.Lock()
	notify := s.notify
	s.mu.Unlock()
	if notify != nil {
		notify(name)
	}
}

// Ensure starts the connection of an object unless the one of identity runs already. It returns the state of the
// running one, and false while an older one is still ending: the callback of OnChange follows, and Ensure is to be
// called again. A connection ends by Stop, by another identity, or with Start's context; it outlives its caller, and
// takes nothing from the caller's context.
func (s *Supervisor[W]) Ensure(name types.NamespacedName, identity string, build func() W) (State, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if current, exists := s.byName[name]; exists {
		if current.identity == identity {
			return current.conn.state(), true
		}
		cancelLocked(current)
		return State{}, false
	}
	if s.closed {
		return State{}, false
	}
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // a connection ends by Stop, not with a caller's context
	work := build()
	conn := newConnection(work, periods{s.HealthPeriod, s.LongestDelay, s.RetryPeriod}, func() { s.Changed(name) })
	started := &instance[W]{identity: identity, work: work, conn: conn, cancel: cancel}
	if s.byName == nil {
		s.byName = map[types.NamespacedName]*instance[W]{}
	}
	s.byName[name] = started
	s.group.Go(func() {
		defer s.ended(name, started)
		conn.run(ctx, s.Kind, name)
	})
	return conn.state(), true
}

// Stop cancels the object's connection. It returns true when none is left, false while it is still ending: the callback
// of OnChange follows.
func (s *Supervisor[W]) Stop(name types.NamespacedName) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	current, exists := s.byName[name]
	if !exists {
		return true
	}
	cancelLocked(current)
	return false
}

// Get returns the work of the object's connection, if there is one that is not ending.
func (s *Supervisor[W]) Get(name types.NamespacedName) (W, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	current, exists := s.byName[name]
	if !exists || current.identity == "" {
		var none W
		return none, false
	}
	return current.work, true
}

// Start waits for the end of ctx, then cancels all connections and waits for their end. None starts after that.
// It implements controller-runtime's Runnable.
func (s *Supervisor[W]) Start(ctx context.Context) error {
	<-ctx.Done()
	s.mu.Lock()
	s.closed = true
	for _, current := range s.byName {
		cancelLocked(current)
	}
	s.mu.Unlock()
	s.group.Wait()
	return nil
}

// cancelLocked cancels a connection and takes its identity, so that no later Ensure takes it for a running one.
func cancelLocked[W Work](current *instance[W]) {
	current.identity = ""
	current.cancel()
}

func (s *Supervisor[W]) ended(name types.NamespacedName, which *instance[W]) {
	which.cancel()
	s.mu.Lock()
	if s.byName[name] == which {
		delete(s.byName, name)
	}
	s.mu.Unlock()
	s.Changed(name)
}
