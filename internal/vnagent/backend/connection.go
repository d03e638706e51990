package backend

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	dialTimeout = 10 * time.Second
	keepAlive   = 30 * time.Second
	// burst bounds what is read of a connection at a time, and passed on.
	burst = 128 << 10
	// pause bounds how long small pieces that come one after the other wait for each other.
	pause = time.Millisecond
)

// newTransport returns what connects to a server of the super cluster with config. It asks no proxy.
func newTransport(config *tls.Config) *http.Transport {
	return &http.Transport{
		TLSClientConfig: config, // where somebody sets a proxy
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return dial(ctx, network, address, config)
		},
		TLSHandshakeTimeout: dialTimeout,
		DisableCompression:  true,
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     90 * time.Second,
		ReadBufferSize:      burst,
		// A stream has a connection of its own, so one slow reader slows no other: HTTP/1.1.
		ForceAttemptHTTP2: false,
	}
}

// dial connects and shakes hands.
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

// gatheringConn is a TLS connection whose Read returns together what has come in many small records. A kubelet sends each line of a log, and
// each piece of what a command writes, in a record of its own; to wake up, read and write for each of them costs all that the pieces
// pass more than what is in them.
type gatheringConn struct {
	*tls.Conn
	below *burstConn
}

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
	gathering := &gatheringConn{below: &burstConn{TCPConn: below, raw: raw, blocks: true}}
	gathering.Conn = tls.Client(gathering.below, config)
	return gathering, nil
}

// Read implements net.Conn.
func (c *gatheringConn) Read(piece []byte) (int, error) {
	n, err := c.Conn.Read(piece)
	c.below.blocks = false
	for err == nil && n < len(piece) {
		var more int
		more, err = c.Conn.Read(piece[n:])
		n += more
	}
	c.below.blocks = true
	if n > 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		return n, nil
	}
	return n, err
}

// burstConn reads as much as there is. A piece that comes alone, or after something was written (a question, then), is returned at once;
// where they come faster than every other pause, Read waits until a burst of them is there, or for a pause, and the kernel wakes nobody
// up before:
//
//	piece ──► returned ──next within two pauses, nothing written──► gathering (wake-up at a burst) ──a pause without any──► wake-up at 1 byte
type burstConn struct {
	*net.TCPConn
	raw        syscall.RawConn
	buffer     []byte
	head, tail int
	// blocks is false while Read is to return os.ErrDeadlineExceeded, after which TLS may go on, where it would wait.
	blocks bool
	// last is when something was read; asked says that something was written since.
	last  time.Time
	asked atomic.Bool
	// waits says that the kernel waits for a burst.
	waits bool
}

// Read implements net.Conn.
func (c *burstConn) Read(piece []byte) (int, error) {
	if c.head == c.tail {
		if !c.blocks {
			return 0, os.ErrDeadlineExceeded
		}
		if err := c.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(piece, c.buffer[c.head:c.tail])
	c.head += n
	return n, nil
}

// Write implements net.Conn.
func (c *burstConn) Write(piece []byte) (int, error) {
	c.asked.Store(true)
	return c.TCPConn.Write(piece)
}

func (c *burstConn) fill() error {
	if c.buffer == nil {
		c.buffer = make([]byte, burst)
	}
	follows := time.Since(c.last) < 2*pause && !c.asked.Swap(false)
	// After a full buffer there is more.
	if follows && c.tail < len(c.buffer) && c.gather() {
		return nil
	}
	if c.waits {
		c.wakeAt(1)
	}
	n, err := c.TCPConn.Read(c.buffer)
	if n == 0 {
		return err
	}
	c.filled(n)
	return nil
}

func (c *burstConn) filled(n int) { c.last, c.head, c.tail = time.Now(), 0, n }

// gather waits until a burst is there, but no longer than a pause, and reads. It returns false where that gave nothing.
func (c *burstConn) gather() bool {
	if !c.waits {
		c.wakeAt(burst)
	}
	_ = c.SetReadDeadline(time.Now().Add(pause))
	woken := true
	_ = c.raw.Read(func(uintptr) bool { woken = !woken; return woken })
	_ = c.SetReadDeadline(time.Time{})
	n := 0
	_ = c.raw.Read(func(fd uintptr) bool { n, _ = syscall.Read(int(fd), c.buffer); return true })
	if n <= 0 {
		return false // nothing yet, the end, or an error: reading says which
	}
	c.filled(n)
	return true
}

// wakeAt says how many bytes must be there before the kernel says so.
func (c *burstConn) wakeAt(size int) {
	c.waits = size > 1
	_ = c.raw.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVLOWAT, size) })
}
