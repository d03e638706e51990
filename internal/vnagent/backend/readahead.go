package backend

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// What is written to a stream is smaller than smallPiece only after smallPause: a kubelet sends what a container writes in pieces of 30 bytes to
// 4 KiB, each of which costs system calls here and at the reader. On a busy node a pause of 100 µs gave exec half as much again; 50 and
// 300 µs gave less (docs/performance.md). Who types does not notice it.
const (
	smallPiece = 16 << 10
	smallPause = 100 * time.Microsecond
)

// readAheadSize bounds what a stream of logs holds in memory for a reader that is slower than the backend.
const readAheadSize = 128 << 10

// readAhead reads from a body while what was read before is written: a kubelet sends each line by itself, and without it one goroutine would
// decrypt and encrypt in turn. Read returns what is there, so lines that come faster than they are passed on are passed on together, and
// a line that comes alone is not held back.
//
//	written by fill ──► [head, tail) of ring, both counted from the beginning ──► taken by Read
type readAhead struct {
	body io.ReadCloser
	ring []byte
	free func([]byte)

	mu         sync.Mutex
	changed    sync.Cond
	head, tail int
	// err ends the stream once all before it was read.
	err    error
	closed bool
	filled chan struct{}
	once   sync.Once
}

// newReadAhead reads body into ring, which is given to free at the end. Close must be called.
func newReadAhead(body io.ReadCloser, ring []byte, free func([]byte)) *readAhead {
	ahead := &readAhead{body: body, ring: ring, free: free, filled: make(chan struct{})}
	ahead.changed.L = &ahead.mu
	go ahead.fill()
	return ahead
}

func (a *readAhead) fill() {
	defer close(a.filled)
	for {
		a.mu.Lock()
		for a.tail-a.head == len(a.ring) && !a.closed {
			a.changed.Wait()
		}
		begin := a.tail % len(a.ring)
		end := min(len(a.ring), begin+len(a.ring)-(a.tail-a.head))
		closed := a.closed
		a.mu.Unlock()
		if closed {
			return
		}
		n, err := a.body.Read(a.ring[begin:end])
		a.mu.Lock()
		a.tail += n
		a.err = err
		a.changed.Signal()
		a.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Read implements io.Reader; it is not called at once with another Read, WriteTo or Close.
func (a *readAhead) Read(piece []byte) (int, error) {
	there, err := a.next()
	if len(there) == 0 {
		return 0, err
	}
	n := copy(piece, there)
	a.taken(n)
	return n, nil
}

// next waits for what is there to be read, and returns the beginning of it, or nothing and why nothing comes any more.
func (a *readAhead) next() ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.head == a.tail && a.err == nil {
		a.changed.Wait()
	}
	begin := a.head % len(a.ring)
	return a.ring[begin:min(len(a.ring), begin+a.tail-a.head)], a.err
}

// taken makes room: so much of what next returned was used.
func (a *readAhead) taken(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.head += n
	a.changed.Signal()
}

// WriteTo implements io.WriterTo: it writes what there is, after a pause if that is little, until the body ends. An error is one of the body or of
// out.
func (a *readAhead) WriteTo(out io.Writer) (int64, error) {
	var written int64
	for {
		piece, err := a.next()
		if len(piece) == 0 {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return written, err
		}
		if a.little() {
			time.Sleep(smallPause) //nolint:forbidigo // more may come meanwhile, and nothing says when
			piece, _ = a.next()
		}
		n, err := out.Write(piece)
		written += int64(n)
		a.taken(n)
		if err != nil {
			return written, fmt.Errorf("passing on: %w", err)
		}
	}
}

// little says whether a small piece is all there is, and more may come.
func (a *readAhead) little() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.tail-a.head < min(smallPiece, len(a.ring)) && a.err == nil
}

// more says whether the next Read returns data at once.
func (a *readAhead) more() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.head != a.tail
}

// Close implements io.Closer.
func (a *readAhead) Close() error {
	a.mu.Lock()
	a.closed = true
	a.changed.Signal()
	a.mu.Unlock()
	// A Read that waits for the backend ends with the connection.
	err := a.body.Close()
	a.release()
	return err
}

// release waits until the body has ended and gives the ring back.
func (a *readAhead) release() {
	<-a.filled
	a.once.Do(func() { a.free(a.ring) })
}

// lazyFlusher flushes when nothing more is there to be written.
type lazyFlusher struct {
	http.ResponseWriter
	// ahead is nil until the backend has answered.
	ahead *readAhead
}

// FlushError is what http.ResponseController looks for.
func (l *lazyFlusher) FlushError() error {
	if l.ahead != nil && l.ahead.more() {
		return nil
	}
	return http.NewResponseController(l.ResponseWriter).Flush()
}

// Unwrap lets http.ResponseController hijack.
func (l *lazyFlusher) Unwrap() http.ResponseWriter { return l.ResponseWriter }
