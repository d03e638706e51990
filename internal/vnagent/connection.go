package vnagent

import (
	"crypto/tls"
	"fmt"
	"net"
	"sync"
)

// clientStream is a client's connection that became a stream. TLS writes a record for each 16 KiB, and each that is written by itself wakes
// the client up; of a stream those of one Write are written together.
type clientStream struct {
	*tls.Conn
	below *batchConn
}

// newClientStream returns conn as a stream. It must come of a batchListener, by way of TLS.
func newClientStream(conn net.Conn) (*clientStream, error) {
	if encrypted, ok := conn.(*tls.Conn); ok {
		if below, ok := encrypted.NetConn().(*batchConn); ok {
			return &clientStream{Conn: encrypted, below: below}, nil
		}
	}
	return nil, fmt.Errorf("%T is no TLS connection of a batchListener", conn)
}

// Write implements net.Conn.
func (s *clientStream) Write(piece []byte) (int, error) {
	s.below.hold()
	n, err := s.Conn.Write(piece)
	if flushErr := s.below.flush(); err == nil && flushErr != nil {
		return 0, flushErr
	}
	return n, err
}

// Close implements net.Conn. Like tls.Conn it says goodbye only if it need not wait for a Write.
func (s *clientStream) Close() error {
	if !s.below.mu.TryLock() {
		return s.below.Close()
	}
	s.below.mu.Unlock()
	return s.Conn.Close()
}

// batchListener accepts connections as batchConns.
type batchListener struct{ net.Listener }

// Accept implements net.Listener.
func (l batchListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &batchConn{Conn: conn}, nil
}

// batchConn writes together what is written between hold and flush. It is the connection below TLS.
type batchConn struct {
	net.Conn
	// mu is held while something is written, however long the client takes.
	mu    sync.Mutex
	holds bool
	held  []byte
}

// Write implements net.Conn.
func (c *batchConn) Write(record []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holds {
		c.held = append(c.held, record...)
		return len(record), nil
	}
	return c.Conn.Write(record)
}

func (c *batchConn) hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holds = true
}

func (c *batchConn) flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.Conn.Write(c.held)
	c.holds, c.held = false, c.held[:0]
	return err
}
