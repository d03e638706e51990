package backend

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"
)

const (
	// dialTimeout bounds connecting and the TLS handshake together.
	dialTimeout = 10 * time.Second
	keepAlive   = 30 * time.Second
	// burst bounds the bytes that are read from a connection, and forwarded, at a time.
	burst = 128 << 10
	// readAhead is the size of the buffer below TLS, which reads small records in few system calls. Reads of more than
	// this go straight into TLS' own buffer: one more copy costs most where other programs share the CPU's caches.
	readAhead = 16 << 10
)

// newTransport returns a transport for one server of the super cluster, whose connections are gatheringConns. It uses
// no proxy unless the caller sets one.
func newTransport(config *tls.Config) *http.Transport {
	return &http.Transport{
		TLSClientConfig: config, // used only through a proxy, where DialTLSContext is not called
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return dial(ctx, network, address, config)
		},
		TLSHandshakeTimeout: dialTimeout,
		DisableCompression:  true,
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     90 * time.Second,
		ReadBufferSize:      burst,
		// HTTP/1.1: each stream has its own connection, so TCP's flow control holds back that stream alone.
		ForceAttemptHTTP2: false,
	}
}

// dial connects and completes the TLS handshake, within dialTimeout.
func dial(ctx context.Context, network, address string, config *tls.Config) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := (&net.Dialer{KeepAlive: keepAlive}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	gathering, err := newGatheringConn(conn, config, address)
	if err == nil {
		err = gathering.HandshakeContext(ctx)
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("connecting to %s: %w", address, err)
	}
	return gathering, nil
}

// gatheringConn is a TLS connection whose Read returns the contents of many small records together. A kubelet sends
// each line of a log, and each write of a command, in a record of its own; a wake-up, a read and a write per record
// cost every program on the way more than its bytes do. Read is for one goroutine, as net/http's is; Write may run at
// the same time.
type gatheringConn struct {
	*tls.Conn
	bursts *burstReader
}

// newGatheringConn returns the client's side of TLS over conn, before the handshake. An error means that conn is not
// TCP, or address has no port.
func newGatheringConn(conn net.Conn, config *tls.Config, address string) (*gatheringConn, error) {
	below, ok := conn.(*net.TCPConn)
	if !ok {
		return nil, fmt.Errorf("%T is not TCP", conn)
	}
	raw, err := below.SyscallConn()
	if err != nil {
		return nil, err
	}
	config = config.Clone()
	if config.ServerName == "" {
		if config.ServerName, _, err = net.SplitHostPort(address); err != nil {
			return nil, err
		}
	}
	bursts := &burstReader{TCPConn: below, raw: raw, blocking: true}
	return &gatheringConn{Conn: tls.Client(&burstConn{TCPConn: below, buffered: bufio.NewReaderSize(bursts, readAhead), bursts: bursts}, config), bursts: bursts}, nil
}

// Read implements net.Conn. It reads until nothing more has arrived or p is full, and waits for the first bytes only.
func (c *gatheringConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.bursts.blocking = false
	for err == nil && n < len(p) {
		var more int
		more, err = c.Conn.Read(p[n:])
		n += more
	}
	c.bursts.blocking = true
	if n > 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		return n, nil
	}
	return n, err
}

// burstConn is the connection below TLS. It reads through a buffer over a burstReader, and notes each Write for it.
type burstConn struct {
	*net.TCPConn
	buffered *bufio.Reader
	bursts   *burstReader
}

// Read implements net.Conn.
func (c *burstConn) Read(p []byte) (int, error) { return c.buffered.Read(p) }

// Write implements net.Conn.
func (c *burstConn) Write(p []byte) (int, error) {
	c.bursts.wrote.Store(true)
	return c.TCPConn.Write(p)
}
