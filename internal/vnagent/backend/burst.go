package backend

import (
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// pause bounds how long small segments that follow each other wait for each other.
const pause = time.Millisecond

// burstReader coalesces reads. An isolated segment, or the first one after a Write, is returned at once. While segments
// arrive less than two pauses apart, SO_RCVLOWAT lets the kernel wake the reader only at a burst of bytes, or after one
// pause:
//
//	segment ──► returned ──next within two pauses, no Write──► gathering (SO_RCVLOWAT = burst)
//	                                                           gathering ──a pause without any──► SO_RCVLOWAT = 1
type burstReader struct {
	*net.TCPConn
	raw syscall.RawConn
	// blocking is false while Read returns os.ErrDeadlineExceeded rather than wait. crypto/tls treats that error as
	// temporary.
	blocking bool
	// lastRead is when bytes were last read; full is true where they filled the buffer, so that more may be there.
	lastRead time.Time
	full     bool
	// wrote is true after a Write to the connection, until the next gathering Read: what follows is a response, and is
	// not held back.
	wrote atomic.Bool
	// gathering is true while SO_RCVLOWAT is burst.
	gathering bool
}

// Read implements io.Reader.
func (r *burstReader) Read(p []byte) (int, error) {
	n := 0
	switch {
	case r.full:
		n = r.receive(p)
	case r.blocking && time.Since(r.lastRead) < 2*pause && !r.wrote.Swap(false):
		n = r.gather(p)
	}
	if n <= 0 && !r.blocking {
		r.full = false
		return 0, os.ErrDeadlineExceeded
	}
	if n <= 0 { // nothing yet, the end, or an error: a blocking Read returns which
		if r.gathering {
			r.setLowWater(1)
		}
		var err error
		if n, err = r.TCPConn.Read(p); n == 0 {
			return 0, err
		}
	}
	r.lastRead, r.full = time.Now(), n == len(p)
	return n, nil
}

// receive reads without waiting. It returns less than 1 where nothing is there, at the end, and on an error.
func (r *burstReader) receive(p []byte) (n int) {
	_ = r.raw.Read(func(fd uintptr) bool { n, _ = syscall.Read(int(fd), p); return true })
	return n
}

// gather waits until burst bytes have arrived, but no longer than one pause, and receives.
func (r *burstReader) gather(p []byte) int {
	if !r.gathering {
		r.setLowWater(burst)
	}
	_ = r.SetReadDeadline(time.Now().Add(pause))
	woken := true
	_ = r.raw.Read(func(uintptr) bool { woken = !woken; return woken })
	_ = r.SetReadDeadline(time.Time{})
	return r.receive(p)
}

// setLowWater sets SO_RCVLOWAT: how many bytes must have arrived before the kernel reports the socket as readable.
func (r *burstReader) setLowWater(size int) {
	r.gathering = size > 1
	_ = r.raw.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVLOWAT, size) })
}
