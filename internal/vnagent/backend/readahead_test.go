package backend

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net/http/httptest"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func TestReadAhead(t *testing.T) {
	t.Parallel()
	random := rand.NewChaCha8([32]byte{})
	want := make([]byte, 100_003)
	_, _ = random.Read(want)
	for name, wrap := range map[string]func(io.Reader) io.Reader{
		"whole": func(r io.Reader) io.Reader { return r }, "bytes": iotest.OneByteReader, "halves": iotest.HalfReader, "end with data": iotest.DataErrReader,
	} {
		for _, size := range []int{1, 7, 4096, 200_000} {
			var freed []byte
			ahead := newReadAhead(io.NopCloser(wrap(bytes.NewReader(want))), make([]byte, size), func(ring []byte) { freed = ring })
			got, err := io.ReadAll(ahead)
			require.NoError(t, err)
			require.NoError(t, ahead.Close())
			require.Len(t, freed, size)
			require.True(t, bytes.Equal(want, got), "%s by way of %d bytes", name, size)
		}
	}
}

func TestReadAheadFails(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	ahead := newReadAhead(io.NopCloser(io.MultiReader(bytes.NewBufferString("before"), iotest.ErrReader(broken))), make([]byte, 16), func([]byte) {})
	got, err := io.ReadAll(ahead)
	require.ErrorIs(t, err, broken)
	require.Equal(t, "before", string(got), "what came before the error is read")
	require.NoError(t, ahead.Close())
}

// TestReadAheadCloses ends a goroutine that waits for the backend, and one that waits for the reader.
func TestReadAheadCloses(t *testing.T) {
	t.Parallel()
	in, out := io.Pipe()
	ahead := newReadAhead(in, make([]byte, 4), func([]byte) {})
	require.NoError(t, ahead.Close())
	_, err := out.Write([]byte("x"))
	require.ErrorIs(t, err, io.ErrClosedPipe)

	ahead = newReadAhead(io.NopCloser(bytes.NewBufferString("more than it holds")), make([]byte, 4), func([]byte) {})
	_, err = ahead.Read(make([]byte, 1))
	require.NoError(t, err)
	require.NoError(t, ahead.Close())
}

// TestLazyFlusher sees that a line that is alone is flushed, and that one with others behind it is not.
func TestLazyFlusher(t *testing.T) {
	t.Parallel()
	in, out := io.Pipe()
	recorder := httptest.NewRecorder()
	flusher := &lazyFlusher{ResponseWriter: recorder, ahead: newReadAhead(in, make([]byte, 64), func([]byte) {})}
	_, err := out.Write([]byte("two lines"))
	require.NoError(t, err)
	_, err = flusher.ahead.Read(make([]byte, 3))
	require.NoError(t, err)
	require.NoError(t, flusher.FlushError())
	require.False(t, recorder.Flushed)
	_, err = flusher.ahead.Read(make([]byte, 64))
	require.NoError(t, err)
	require.NoError(t, flusher.FlushError())
	require.True(t, recorder.Flushed)
	require.NoError(t, flusher.ahead.Close())
}
