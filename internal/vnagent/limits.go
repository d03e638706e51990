package vnagent

import (
	"errors"
	"sync"
	"time"
)

const (
	// DefaultMaxStreams bounds the requests about single pods that run for one tenant at a time: each holds up to half
	// a MiB of buffers, a connection to the client and one to the backend.
	DefaultMaxStreams = 500
	// DefaultMaxAllStreams bounds those of all tenants together: half a GiB of buffers. One alone has half of them at
	// most.
	DefaultMaxAllStreams = 1000
	// maxLists bounds the lists that run for one tenant at a time: for each, kubelets collect metrics, and vn-agent
	// holds their responses about all pods.
	maxLists = 8
	// maxAllLists bounds those of all tenants together. One alone has half of them at most.
	maxAllLists = 32
	// listTimeout bounds the time from when a list begins until its client has read it. A kubelet may take 20 s of it.
	listTimeout = 40 * time.Second
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

// Why begin refuses.
var (
	errOwnLimit = errors.New("too many requests of this tenant run")
	errShare    = errors.New("too many requests of this tenant run: it may begin another while more than it has are free for all tenants")
	errFull     = errors.New("too many requests of all tenants run")
)

// begin counts one more under key, of which there may be limit, and all of all tenants together; all is 0 for no bound.
// The caller calls the function that it returns once, when the request or connection ends.
//
// Where there is a bound for all, a tenant that has N may have another while more than N are free, as buffers of a
// switch are shared by dynamic thresholds (Choudhury and Hahne, 1998, with alpha 1): one tenant alone has half at most,
// k that begin in turn have 1/(k+1) each, and as much stays free for one that comes later. What runs is not ended.
func (l *limits) begin(key limitKey, limit, all int) (func(), error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own, total := l.running[key], limitKey{what: key.what}
	if own >= limit {
		return nil, errOwnLimit
	}
	counted := []limitKey{key}
	if all > 0 {
		switch free := all - l.running[total]; {
		case own == 0 && free == 0:
			return nil, errFull
		case own >= free:
			return nil, errShare
		}
		counted = append(counted, total)
	}
	l.add(counted, 1)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.add(counted, -1)
	}, nil
}

// add adds to what runs under keys. The caller holds mu.
func (l *limits) add(keys []limitKey, more int) {
	if l.running == nil {
		l.running = map[limitKey]int{}
	}
	for _, key := range keys {
		if l.running[key] += more; l.running[key] == 0 {
			delete(l.running, key)
		}
	}
}
