package vnagent

import (
	"crypto/tls"
	"fmt"
	"net"
	"syscall"
)

// record is the size of TLS' largest record.
const record = 16 << 10

// clientStream is a client's connection that became a stream. TLS writes a record for each 16 KiB, and each that is sent by itself wakes the
// client up; of a stream the kernel sends those of one Write together.
type clientStream struct {
	*tls.Conn
	below syscall.RawConn
}

// newClientStream returns conn, which must be TLS over TCP, as a stream.
func newClientStream(conn net.Conn) (*clientStream, error) {
	encrypted, ok := conn.(*tls.Conn)
	if !ok {
		return nil, fmt.Errorf("%T is not TLS", conn)
	}
	below, ok := encrypted.NetConn().(*net.TCPConn)
	if !ok {
		return nil, fmt.Errorf("%T is not TCP", encrypted.NetConn())
	}
	raw, err := below.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &clientStream{Conn: encrypted, below: raw}, nil
}

// Write implements net.Conn.
func (s *clientStream) Write(piece []byte) (int, error) {
	if len(piece) <= record {
		return s.Conn.Write(piece)
	}
	s.cork(1)
	defer s.cork(0)
	return s.Conn.Write(piece)
}

// cork says whether the kernel waits for whole segments. Where it cannot be said nothing is lost but time.
func (s *clientStream) cork(on int) {
	_ = s.below.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_TCP, syscall.TCP_CORK, on) })
}
