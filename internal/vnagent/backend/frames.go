package backend

import (
	"encoding/binary"
	"io"
)

const (
	// frameHeader is the length of what is before each frame of SPDY/3.1: the number of its stream, or for a control frame a set bit and its
	// kind; a byte of flags; the length of what follows, in three bytes.
	frameHeader = 8
	maxFrame    = 1<<24 - 1
)

// frameReader reads a connection that speaks SPDY. Frames of data of one stream that come together are read as one: a kubelet sends most of
// a command's output in frames of 4 KiB, and for each of them a client's library makes a buffer and wakes up two goroutines. Nothing waits
// for what is not there yet, but a header that has come in part.
type frameReader struct {
	in io.Reader
	// left is how much of the last frame is still to come.
	left int
	// header has held bytes of the next frame's.
	header [frameHeader]byte
	held   int
}

// Read implements io.Reader. piece must be longer than a header and shorter than maxFrame. An error that comes with the last bytes must come again after them.
func (r *frameReader) Read(piece []byte) (int, error) {
	for {
		held := copy(piece, r.header[:r.held])
		n, err := r.in.Read(piece[held:])
		if n == 0 && err != nil { // what there is of a header is no frame, but it is the client's
			r.held = 0
			return held, err
		}
		if n = r.join(piece[:held+n]); n > 0 {
			return n, nil
		}
	}
}

// join joins the frames in piece, holds back a header that is there in part, and returns how much of piece is left.
func (r *frameReader) join(piece []byte) int {
	in := min(r.left, len(piece))
	r.left -= in
	// first is where the header is to which the next frame may be joined, -1 where there is none.
	out, first := in, -1
	for len(piece)-in >= frameHeader {
		header := binary.BigEndian.Uint64(piece[in:])
		frame := piece[in:min(in+frameHeader+int(header&maxFrame), len(piece))]
		r.left = frameHeader + int(header&maxFrame) - len(frame)
		in += len(frame)
		// Equal but for the length: of the same stream, without flags.
		joins := first >= 0 && r.left == 0 && binary.BigEndian.Uint64(piece[first:])>>24 == header>>24
		if joins {
			length := uint64(len(frame) - frameHeader)
			binary.BigEndian.PutUint64(piece[first:], binary.BigEndian.Uint64(piece[first:])+length)
			frame = frame[frameHeader:]
		} else if first = -1; isPlainData(header) && r.left == 0 {
			first = out
		}
		out += copy(piece[out:], frame)
	}
	r.held = copy(r.header[:], piece[in:])
	return out
}

// isPlainData says whether a frame holds data and no flag, such as that it is the last of its stream.
func isPlainData(header uint64) bool { return header>>63 == 0 && header>>24&0xff == 0 }
