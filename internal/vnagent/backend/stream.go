package backend

import (
	"context"
	"errors"
	"io"
)

// streamAheadSize bounds what each direction of a stream holds in memory for a reader that is slower than the writer.
const streamAheadSize = 64 << 10

// stream is the connection to the backend after an upgrade, as httputil.ReverseProxy copies to and from it. Both directions read ahead, and
// what came together goes on together. It hides CloseWrite: a
// client that is gone ends the stream, while half of a connection might stay open for ever. Neither SPDY nor WebSocket closes halves of
// connections.
type stream struct {
	io.ReadWriteCloser
	// ctx ends the stream, also that of a client that does not read.
	ctx   context.Context
	rings *buffers
	// down is closed when all that the backend sent was passed on, or cannot be.
	down chan struct{}
}

var (
	_ io.WriterTo   = &stream{}
	_ io.ReaderFrom = &stream{}
)

func newStream(ctx context.Context, connection io.ReadWriteCloser, rings *buffers) *stream {
	return &stream{ReadWriteCloser: connection, ctx: ctx, rings: rings, down: make(chan struct{})}
}

// WriteTo implements io.WriterTo for the direction to the client.
func (s *stream) WriteTo(client io.Writer) (int64, error) {
	defer close(s.down)
	if closer, ok := client.(io.Closer); ok {
		defer context.AfterFunc(s.ctx, func() { _ = closer.Close() })()
	}
	ahead := newReadAhead(s.ReadWriteCloser, s.rings.get(streamAheadSize), s.rings.Put)
	n, err := ahead.WriteTo(client)
	if err == nil {
		ahead.release() // the other direction may go on
		return n, nil
	}
	return n, errors.Join(err, ahead.Close())
}

// ReadFrom implements io.ReaderFrom for the direction to the backend. Where the backend takes no more, what it has sent goes to the
// client first: a command can end while its client still writes.
func (s *stream) ReadFrom(client io.Reader) (int64, error) {
	connection, ok := client.(io.ReadCloser)
	if !ok {
		return io.Copy(struct{ io.Writer }{s.ReadWriteCloser}, client)
	}
	ahead := newReadAhead(connection, s.rings.get(streamAheadSize), s.rings.Put)
	n, err := ahead.WriteTo(s.ReadWriteCloser)
	if err == nil {
		ahead.release()
		return n, nil
	}
	<-s.down
	return n, errors.Join(err, ahead.Close())
}
