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

// streams are the requests that run. A server does not know of those whose connections were taken over, so they are counted here:
//
//	open ──drain──► draining (new ones refused) ──all ended, or drain's context: all cancelled──► empty
type streams struct {
	mu       sync.Mutex
	draining bool
	last     int
	cancels  map[int]context.CancelFunc
	group    sync.WaitGroup
}

// begin returns the context of a request, and what to call at its end; false while draining.
func (s *streams) begin(ctx context.Context) (context.Context, func(), bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return ctx, nil, false
	}
	ctx, cancel := context.WithCancel(ctx)
	s.last++
	id := s.last
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

// observer is the ResponseWriter of one request: it remembers route and status for the metrics, and can end the answer.
type observer struct {
	http.ResponseWriter
	// route is the metrics' label, code the status that was sent, 0 before.
	route route.Kind
	code  int

	mu sync.Mutex
	// conn is what was taken over for a stream, nil before.
	conn net.Conn
	cut  bool
}

// end lets what is written to the client fail from now on: a client that does not read would hold up the end of its request.
func (o *observer) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cut = true
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

// Hijack implements http.Hijacker: the connection becomes a stream.
func (o *observer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.cut {
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

// Unwrap lets http.ResponseController flush.
func (o *observer) Unwrap() http.ResponseWriter { return o.ResponseWriter }

func (o *observer) status() int {
	if o.code == 0 {
		return http.StatusOK
	}
	return o.code
}
