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

// strangers are the connections whose clients nobody knows. At maxStrangers the address with the most of them gives way
// to one with fewer: a tenant's API server is let in while pods try to keep it out. It is safe for concurrent use; the
// zero value is ready.
type strangers struct {
	mu     sync.Mutex
	from   map[string]map[*batchConn]struct{}
	number int
}

// admit counts the connection until it is closed or becomes a tenant's. False if it is one too many: the caller closes
// it.
func (s *strangers) admit(conn *batchConn) bool {
	address := conn.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host
	}
	instead, admitted := s.add(conn, address)
	if instead != nil {
		_ = instead.Close()
	}
	return admitted
}

// add returns whether the connection was added, and what is to be closed for it.
func (s *strangers) add(conn *batchConn, address string) (instead *batchConn, added bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.number >= maxStrangers {
		most := address
		for other, connections := range s.from {
			if len(connections) > len(s.from[most])+1 {
				most = other
			}
		}
		for instead = range s.from[most] {
			break
		}
		if most == address || instead == nil {
			return nil, false
		}
		s.remove(instead, most)
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
	return instead, true
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
