package vnagent

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
)

// maxStrangers bounds the connections whose clients have not shown a tenant's certificate. Every pod reaches vn-agent,
// and each connection holds some 50 KiB.
const maxStrangers = 1024

// strangers are the connections whose clients nobody knows. At maxStrangers one of the address with the most of them
// gives way to each that comes: a tenant's API server, which is a stranger for a handshake and a request, is let in
// while pods try to keep it out, be it from their address. It is safe for concurrent use; the zero value is ready.
type strangers struct {
	mu     sync.Mutex
	from   map[string]map[*batchConn]struct{}
	number int
}

// admit counts the connection until it is closed or becomes a tenant's.
func (s *strangers) admit(conn *batchConn) {
	if instead := s.add(conn, addressOf(conn)); instead != nil {
		_ = instead.Close()
	}
}

// add returns what is to be closed for the connection, nil for nothing.
func (s *strangers) add(conn *batchConn, address string) (instead *batchConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.number >= maxStrangers {
		instead = s.takeOne()
	}
	if s.from == nil {
		s.from = map[string]map[*batchConn]struct{}{}
	}
	if s.from[address] == nil {
		s.from[address] = map[*batchConn]struct{}{}
	}
	s.from[address][conn] = struct{}{}
	s.number++
	conn.forget = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.remove(conn, address)
	}
	return instead
}

// takeOne takes out any connection of the address that has the most.
func (s *strangers) takeOne() *batchConn {
	most := ""
	for address, connections := range s.from {
		if len(connections) > len(s.from[most]) {
			most = address
		}
	}
	for conn := range s.from[most] {
		s.remove(conn, most)
		return conn
	}
	return nil
}

// remove takes out a connection, if it is there.
func (s *strangers) remove(conn *batchConn, address string) {
	if _, found := s.from[address][conn]; !found {
		return
	}
	delete(s.from[address], conn)
	if len(s.from[address]) == 0 {
		delete(s.from, address)
	}
	s.number--
}

// connectionKey is the key of a request's batchConn in its context.
type connectionKey struct{}

// withConnection puts a connection that a batchListener accepted into the contexts of its requests: http.Server's
// ConnContext.
func withConnection(ctx context.Context, conn net.Conn) context.Context {
	if encrypted, ok := conn.(*tls.Conn); ok {
		if below, ok := encrypted.NetConn().(*batchConn); ok {
			return context.WithValue(ctx, connectionKey{}, below)
		}
	}
	return ctx
}
