package vnagent

import (
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// clientStream is a hijacked client connection. crypto/tls splits a Write into records of 16 KiB and writes each to the
// connection below, which costs a system call and wakes the client up each time; clientStream corks the batchConn
// below, so that the records of one Write leave in one. Write and Close may run at the same time.
type clientStream struct {
	*tls.Conn
	below *batchConn
}

// newClientStream wraps conn, which must be a *tls.Conn over a batchConn, as http.Server makes of what a batchListener
// accepts. Any other conn is an error.
func newClientStream(conn net.Conn) (*clientStream, error) {
	if encrypted, ok := conn.(*tls.Conn); ok {
		if below, ok := encrypted.NetConn().(*batchConn); ok {
			return &clientStream{Conn: encrypted, below: below}, nil
		}
	}
	return nil, fmt.Errorf("%T is not a TLS connection accepted by a batchListener", conn)
}

// Write implements net.Conn.
func (s *clientStream) Write(p []byte) (int, error) {
	s.below.cork()
	n, err := s.Conn.Write(p)
	if flushErr := s.below.flush(); err == nil && flushErr != nil {
		return 0, flushErr
	}
	return n, err
}

// Close implements net.Conn. While a Write holds the connection it closes without TLS' close_notify alert, as tls.Conn
// does: a client that does not read would block the alert.
func (s *clientStream) Close() error {
	if !s.below.mu.TryLock() {
		return s.below.Close()
	}
	s.below.mu.Unlock()
	return s.Conn.Close()
}

// batchListener wraps each accepted connection in a batchConn, which is a stranger's. It closes those that come faster
// than handshakes may begin.
type batchListener struct {
	net.Listener
	strangers  *strangers
	handshakes *handshakes
	refused    prometheus.Counter
}

// Accept implements net.Listener.
func (l batchListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		address := addressOf(conn)
		if !l.handshakes.begin(address, time.Now()) {
			l.refused.Inc()
			_ = conn.Close()
			continue
		}
		accepted := &batchConn{Conn: conn, recognized: func() { l.handshakes.know(address, time.Now()) }}
		l.strangers.admit(accepted)
		return accepted, nil
	}
}

// batchConn is the connection below TLS. Writes between cork and flush are collected, and flush writes them as one.
type batchConn struct {
	net.Conn
	// recognized is called at each request of a tenant.
	recognized func()
	// life guards what the connection counts for: until it is closed, forget takes it out there; nil if it counts for
	// nothing. known is whether that is a tenant.
	life   sync.Mutex
	forget func()
	known  bool
	closed bool
	// mu is held during a write to the client, however long it takes to read. It guards the fields below.
	mu      sync.Mutex
	corked  bool
	pending []byte
}

// become counts the connection as a tenant's, by begin, where it is not yet: its certificate is that of the handshake.
// A begin that returns false leaves it what it was.
func (c *batchConn) become(begin func() (func(), bool)) bool {
	c.life.Lock()
	defer c.life.Unlock()
	if c.closed {
		return true
	}
	if !c.known {
		forget, granted := begin()
		if !granted {
			return false
		}
		if c.forget != nil {
			c.forget()
		}
		c.forget, c.known = forget, true
	}
	if c.recognized != nil {
		c.recognized()
	}
	return true
}

// Close implements net.Conn.
func (c *batchConn) Close() error {
	c.life.Lock()
	if !c.closed && c.forget != nil {
		c.forget()
	}
	c.closed = true
	c.life.Unlock()
	return c.Conn.Close()
}

// Write implements net.Conn.
func (c *batchConn) Write(record []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.corked {
		c.pending = append(c.pending, record...)
		return len(record), nil
	}
	return c.Conn.Write(record)
}

// cork makes Write collect instead of write, until flush.
func (c *batchConn) cork() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.corked = true
}

// flush writes what was collected, and ends cork.
func (c *batchConn) flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.Conn.Write(c.pending)
	c.corked, c.pending = false, c.pending[:0]
	return err
}
