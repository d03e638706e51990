package vnagent

import (
	"maps"
	"net"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// handshakesPerSecond is the rate of one address, and handshakeBurst its burst: as many as there are streams. A
	// handshake takes a server up to a millisecond of a core, whoever the client is.
	handshakesPerSecond, handshakeBurst = 100, DefaultMaxAllStreams
	// unknownPerSecond is the rate of all addresses together from which nobody has shown a tenant's certificate for
	// knownFor, without the first of each; unknownBurst is its burst.
	unknownPerSecond, unknownBurst = 200, 2 * DefaultMaxAllStreams
	knownFor                       = time.Hour
	// quietFor is after how long without a handshake the next one of an address counts as its first.
	quietFor = time.Minute
	// maxAddresses bounds the addresses that are told apart: a super cluster has some thousand pods that are hostile at
	// most. Of more none has a rate of its own.
	maxAddresses = 4096
	// sweepPeriod is how often addresses that may be forgotten are looked for at most.
	sweepPeriod = time.Second
)

// handshakes bound how often vn-agent begins a TLS handshake. An address from which a tenant's API server came is bound
// by its own rate alone, so pods that try to keep it out have to come from its address. It is safe for concurrent use.
type handshakes struct {
	mu      sync.Mutex
	from    map[string]*caller
	unknown *rate.Limiter
	swept   time.Time
}

// caller is one address: when it came last, and when it showed a tenant's certificate last.
type caller struct {
	rate        *rate.Limiter
	seen, known time.Time
}

func newHandshakes() *handshakes {
	return &handshakes{from: map[string]*caller{}, unknown: rate.NewLimiter(unknownPerSecond, unknownBurst)}
}

// begin returns whether a handshake with an address may begin.
func (h *handshakes) begin(address string, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	from := h.from[address]
	if from == nil {
		from = h.add(address, now)
	}
	if from == nil {
		return h.unknown.AllowN(now, 1)
	}
	isFirst := now.Sub(from.seen) >= quietFor
	from.seen = now
	return from.rate.AllowN(now, 1) && (isFirst || now.Sub(from.known) < knownFor || h.unknown.AllowN(now, 1))
}

// add returns the caller of a new address, nil where there are too many.
func (h *handshakes) add(address string, now time.Time) *caller {
	if len(h.from) >= maxAddresses && now.Sub(h.swept) >= sweepPeriod {
		h.swept = now
		maps.DeleteFunc(h.from, func(_ string, from *caller) bool {
			return now.Sub(from.seen) >= quietFor && now.Sub(from.known) >= knownFor
		})
	}
	if len(h.from) >= maxAddresses {
		return nil
	}
	h.from[address] = &caller{rate: rate.NewLimiter(handshakesPerSecond, handshakeBurst)}
	return h.from[address]
}

// know notes that a client from an address has shown a tenant's certificate.
func (h *handshakes) know(address string, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	from := h.from[address]
	if from == nil {
		from = h.add(address, now)
	}
	if from != nil {
		from.known = now
	}
}

// addressOf returns the address from which a connection comes, without its port.
func addressOf(conn net.Conn) string {
	address := conn.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}
