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

// burstReader coalesces reads. An isolated segment, or the first one after a Write, is returned at once. While segments arrive less than two
// pauses apart, SO_RCVLOWAT lets the kernel wake the reader only at a burst of bytes, or after one pause:
//
//	segment ──► returned ──next within two pauses, no Write──► gathering (SO_RCVLOWAT = burst) ──a pause without any──► SO_RCVLOWAT = 1
type burstReader struct {
	*net.TCPConn
	raw syscall.RawConn
	// blocks is false while Read is to return os.ErrDeadlineExceeded, after which TLS may go on, where it would wait.
	blocks bool
	// last is when something was read; more says that it filled all that there was room for; asked that something was written since.
	last  time.Time
	more  bool
	asked atomic.Bool
	// waits says that the kernel waits for a burst.
	waits bool
}

// Read implements io.Reader.
func (r *burstReader) Read(piece []byte) (int, error) {
	n := 0
	switch {
	case r.more:
		n = r.receive(piece)
	case r.blocks && time.Since(r.last) < 2*pause && !r.asked.Swap(false):
		n = r.gather(piece)
	}
	if n <= 0 && !r.blocks {
		r.more = false
		return 0, os.ErrDeadlineExceeded
	}
	if n <= 0 { // nothing yet, the end, or an error: waiting says which
		if r.waits {
			r.wakeAt(1)
		}
		var err error
		if n, err = r.TCPConn.Read(piece); n == 0 {
			return 0, err
		}
	}
	r.last, r.more = time.Now(), n == len(piece)
	return n, nil
}

// receive reads what is there. Without any it returns less than 1.
func (r *burstReader) receive(piece []byte) (n int) {
	_ = r.raw.Read(func(fd uintptr) bool { n, _ = syscall.Read(int(fd), piece); return true })
	return n
}

// gather waits until a burst is there, but no longer than a pause, and receives.
func (r *burstReader) gather(piece []byte) int {
	if !r.waits {
		r.wakeAt(burst)
	}
	_ = r.SetReadDeadline(time.Now().Add(pause))
	woken := true
	_ = r.raw.Read(func(uintptr) bool { woken = !woken; return woken })
	_ = r.SetReadDeadline(time.Time{})
	return r.receive(piece)
}

// wakeAt says how many bytes must be there before the kernel says so.
func (r *burstReader) wakeAt(size int) {
	r.waits = size > 1
	_ = r.raw.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVLOWAT, size) })
}
