package vnagent

import "sync"

const (
	// DefaultMaxStreams is how many requests about pods run for one tenant at a time: each holds up to half a MiB, and connections on both sides.
	DefaultMaxStreams = 500
	// maxLists is how many lists are made for one tenant at a time: each makes kubelets measure, and holds what they say of all pods.
	maxLists = 8
)

// work is what counts together.
type work struct {
	clusterKey string
	list       bool
}

// limits count what runs for each tenant, so that one cannot use up what all share: memory, connections, the kubelets' time.
type limits struct {
	mu      sync.Mutex
	running map[work]int
}

// begin counts one of what in, and out when the result is called; false if as many as there may be run already.
func (l *limits) begin(what work, most int) (func(), bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running[what] >= most {
		return nil, false
	}
	if l.running == nil {
		l.running = map[work]int{}
	}
	l.running[what]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.running[what]--; l.running[what] == 0 {
			delete(l.running, what)
		}
	}, true
}
