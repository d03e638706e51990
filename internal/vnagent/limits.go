package vnagent

import "sync"

const (
	// DefaultMaxStreams bounds the requests about single pods that run for one tenant at a time: each holds up to half
	// a MiB of buffers, a connection to the client and one to the backend.
	DefaultMaxStreams = 500
	// DefaultMaxAllStreams bounds those of all tenants together: half a GiB of buffers.
	DefaultMaxAllStreams = 1000
	// maxLists bounds the lists that run for one tenant at a time: for each, kubelets collect metrics, and vn-agent
	// holds their responses about all pods.
	maxLists = 8
	// connectionsPerStream is how many connections a tenant may have for each stream that it may: those of streams, and
	// those that wait for a request.
	connectionsPerStream = 2
)

// limited is what limits count.
type limited int

const (
	stream limited = iota
	list
	connection
)

// limitKey is what is counted together.
type limitKey struct {
	// clusterKey is "" for all tenants together.
	clusterKey string
	what       limited
}

// limits counts the connections and running requests of each tenant, so that one tenant cannot exhaust what all share:
// memory, connections, the kubelets' time. It is safe for concurrent use; the zero value is ready.
type limits struct {
	mu      sync.Mutex
	running map[limitKey]int
}

// begin counts one more under key. The caller calls the function that it returns once, when the request or connection
// ends. False, and no function, if there are limit of them already.
func (l *limits) begin(key limitKey, limit int) (func(), bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running[key] >= limit {
		return nil, false
	}
	if l.running == nil {
		l.running = map[limitKey]int{}
	}
	l.running[key]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.running[key]--; l.running[key] == 0 {
			delete(l.running, key)
		}
	}, true
}
