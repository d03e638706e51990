package backend

import (
	"io"
	"net/http"
	"sync"
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

// Read implements io.Reader; it is not called at once with another Read or Close.
func (a *readAhead) Read(piece []byte) (int, error) {
	a.mu.Lock()
	for a.head == a.tail && a.err == nil {
		a.changed.Wait()
	}
	begin := a.head % len(a.ring)
	end := min(len(a.ring), begin+a.tail-a.head)
	err := a.err
	a.mu.Unlock()
	if begin == end {
		return 0, err
	}
	n := copy(piece, a.ring[begin:end])
	a.mu.Lock()
	a.head += n
	a.changed.Signal()
	a.mu.Unlock()
	return n, nil
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
	<-a.filled
	a.once.Do(func() { a.free(a.ring) })
	return err
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
