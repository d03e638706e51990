package backend

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

// frames returns the bytes of frames such as "1:ab", data of stream 1; "1!:ab", its last; "c6:ab", a control frame of kind 6.
func frames(text string) []byte {
	var encoded []byte
	for frame := range strings.FieldsSeq(text) {
		head, data, _ := strings.Cut(frame, ":")
		stream, isLast := strings.CutSuffix(head, "!")
		kind, isControl := strings.CutPrefix(stream, "c")
		number, _ := strconv.ParseUint(kind, 10, 31)
		header := number<<32 | uint64(len(data))
		if isLast {
			header |= 1 << 24
		}
		if isControl {
			header |= 1<<63 | 3<<48
		}
		encoded = append(binary.BigEndian.AppendUint64(encoded, header), data...)
	}
	return encoded
}

// pieces gives one of its pieces at a time.
type pieces [][]byte

func (p *pieces) Read(piece []byte) (int, error) {
	if len(*p) == 0 {
		return 0, io.EOF
	}
	n := copy(piece, (*p)[0])
	*p = (*p)[1:]
	return n, nil
}

func TestFrameReader(t *testing.T) {
	t.Parallel()
	whole := frames("1:abc 1:def")
	for name, test := range map[string]struct {
		pieces []string
		want   []string
	}{
		"frames of one stream":                   {[]string{string(frames("1:a 1:bc 1:d"))}, []string{string(frames("1:abcd"))}},
		"frames of two streams":                  {[]string{string(frames("1:a 3:b 3:c 1:d"))}, []string{string(frames("1:a 3:bc 1:d"))}},
		"a control frame between":                {[]string{string(frames("1:a 1:b c6:ping 1:c 1:d"))}, []string{string(frames("1:ab c6:ping 1:cd"))}},
		"control frames":                         {[]string{string(frames("c6:a c6:b"))}, []string{string(frames("c6:a c6:b"))}},
		"the last of a stream":                   {[]string{string(frames("1:a 1:b 1!:c 1:d"))}, []string{string(frames("1:ab 1!:c 1:d"))}},
		"empty frames":                           {[]string{string(frames("1: 1: 1:a 1!:"))}, []string{string(frames("1:a 1!:"))}},
		"each comes alone":                       {[]string{string(frames("1:a")), string(frames("1:b"))}, []string{string(frames("1:a")), string(frames("1:b"))}},
		"a frame in part is passed on, unjoined": {[]string{string(whole[:21]), string(whole[21:]) + string(frames("1:g 1:h"))}, []string{string(whole[:21]), string(whole[21:]) + string(frames("1:gh"))}},
		"a header in part waits":                 {[]string{string(whole[:13]), string(whole[13:])}, []string{string(whole[:11]), string(whole[11:])}},
		"a header comes byte by byte":            {strings.Split(string(frames("1:a")), ""), []string{string(frames("1:")[:7]) + "\x01", "a"}},
		"the end is in a header":                 {[]string{string(whole[:13])}, []string{string(whole[:11]), string(whole[11:13])}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var in pieces
			for _, piece := range test.pieces {
				in = append(in, []byte(piece))
			}
			reader := &frameReader{in: &in}
			var got []string
			for {
				buffer := make([]byte, 64)
				n, err := reader.Read(buffer)
				if n > 0 {
					got = append(got, string(buffer[:n]))
				}
				if err != nil {
					require.ErrorIs(t, err, io.EOF)
					break
				}
			}
			require.Empty(t, cmp.Diff(test.want, got))
		})
	}
}

// meaning is what a client makes of frames: control frames, what each stream says between them, and what is there of a last frame.
func meaning(encoded []byte) []string {
	var said []string
	before := uint64(1) // of no frame
	for len(encoded) >= frameHeader {
		header := binary.BigEndian.Uint64(encoded)
		end := frameHeader + int(header&maxFrame)
		if end > len(encoded) {
			break
		}
		data := string(encoded[frameHeader:end])
		if isPlainData(header) && before == header>>24 {
			said[len(said)-1] += data
		} else {
			said = append(said, fmt.Sprintf("%x %s", header>>24, data))
		}
		before, encoded = 1, encoded[end:]
		if isPlainData(header) {
			before = header >> 24
		}
	}
	return append(said, string(encoded))
}

func FuzzFrameReader(f *testing.F) {
	f.Add(frames("1:a 1:bc c6:ping 1:d 3:e 3:f 1!:g"), uint8(40), uint8(13))
	f.Add(frames("1:a 1:bc")[:12], uint8(9), uint8(1))
	f.Add([]byte{0, 0, 0, 1, 0, 255, 255, 255, 1}, uint8(255), uint8(255))
	f.Fuzz(func(t *testing.T, encoded []byte, room, size uint8) {
		var in pieces
		for rest := bytes.Clone(encoded); len(rest) > 0; {
			n := min(len(rest), 1+int(size), 1+int(room))
			in, rest = append(in, rest[:n]), rest[n:]
		}
		reader := &frameReader{in: &in}
		var out []byte
		buffer := make([]byte, 1+int(room)+frameHeader)
		for {
			n, err := reader.Read(buffer)
			out = append(out, buffer[:n]...)
			if err != nil {
				break
			}
		}
		require.Empty(t, cmp.Diff(meaning(encoded), meaning(out)))
	})
}

// TestFrameReaderTellsErrors: an error that comes with bytes comes after them.
func TestFrameReaderTellsErrors(t *testing.T) {
	t.Parallel()
	got, err := io.ReadAll(&frameReader{in: iotest.DataErrReader(bytes.NewReader(frames("1:a 1:b")))})
	require.NoError(t, err)
	require.Equal(t, frames("1:ab"), got)
}

func BenchmarkFrameReader(b *testing.B) {
	for _, size := range []int{4 << 10, 32 << 10} {
		b.Run(fmt.Sprintf("frames=%dKiB", size>>10), func(b *testing.B) {
			encoded := bytes.Repeat(frames("1:"+strings.Repeat("x", size)), burst/size)
			encoded = encoded[:burst]
			buffer := make([]byte, burst)
			b.SetBytes(burst)
			for b.Loop() {
				reader := &frameReader{in: bytes.NewReader(encoded)}
				for {
					if _, err := reader.Read(buffer); err != nil {
						break
					}
				}
			}
		})
	}
}
