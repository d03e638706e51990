package vnagent

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/superpool/superpool/internal/vnagent/route"
)

// streams tracks the running requests, since http.Server.Shutdown does not wait for hijacked connections. It is safe
// for concurrent use; the zero value is open:
//
//	open ──drain──► draining (begin refuses) ──all ended, or ctx ended: their contexts are cancelled──► empty
type streams struct {
	mu       sync.Mutex
	draining bool
	lastID   int
	cancels  map[int]context.CancelFunc
	group    sync.WaitGroup
}

// begin returns the context of a request, which drain may cancel, and a function that the caller calls once when the
// request has ended. False once drain was called.
func (s *streams) begin(ctx context.Context) (context.Context, func(), bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return ctx, nil, false
	}
	ctx, cancel := context.WithCancel(ctx)
	s.lastID++
	id := s.lastID
	if s.cancels == nil {
		s.cancels = map[int]context.CancelFunc{}
	}
	s.cancels[id] = cancel
	s.group.Add(1)
	return ctx, func() {
		s.mu.Lock()
		delete(s.cancels, id)
		s.mu.Unlock()
		cancel()
		s.group.Done()
	}, true
}

// drain makes begin refuse, and returns when all requests have ended. When ctx ends first, it cancels their contexts.
func (s *streams) drain(ctx context.Context) {
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	ended := make(chan struct{})
	go func() { defer close(ended); s.group.Wait() }()
	select {
	case <-ended:
		return
	case <-ctx.Done():
	}
	s.mu.Lock()
	for _, cancel := range s.cancels {
		cancel()
	}
	s.mu.Unlock()
	<-ended
}

// observer is the ResponseWriter of one request. It records route and status for the metrics, and end can abort the
// response from another goroutine.
type observer struct {
	http.ResponseWriter
	// route and code are the values of the metrics' labels. code is 0 until a status is sent.
	route route.Kind
	code  int

	mu sync.Mutex
	// conn is the hijacked connection, nil before Hijack.
	conn  net.Conn
	ended bool
}

// end makes writes to the client fail from now on, so that a client that does not read cannot block the end of its
// request.
func (o *observer) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	if o.conn != nil {
		_ = o.conn.Close()
		return
	}
	_ = http.NewResponseController(o.ResponseWriter).SetWriteDeadline(time.Now())
}

// WriteHeader implements http.ResponseWriter.
func (o *observer) WriteHeader(code int) {
	if o.code == 0 && code >= http.StatusOK {
		o.code = code
	}
	o.ResponseWriter.WriteHeader(code)
}

// Hijack implements http.Hijacker. The connection that it returns is a clientStream.
func (o *observer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return nil, nil, context.Canceled
	}
	conn, buffer, err := http.NewResponseController(o.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	stream, err := newClientStream(conn)
	if err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	o.code, o.conn = http.StatusSwitchingProtocols, stream
	return stream, buffer, nil
}

// Unwrap gives http.ResponseController the ResponseWriter below, whose Flush and deadlines it calls.
func (o *observer) Unwrap() http.ResponseWriter { return o.ResponseWriter }

func (o *observer) status() int {
	if o.code == 0 {
		return http.StatusOK
	}
	return o.code
}
