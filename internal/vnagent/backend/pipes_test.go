package backend

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// pipes is a network in memory with one server: goroutines of a bubble of testing/synctest that wait for it let the
// time of the bubble go on, as those that wait for the kernel do not.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	close  sync.Once
}

var _ net.Listener = &pipes{}

// Accept implements net.Listener.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *pipes) Close() error {
	p.close.Do(func() { close(p.closed) })
	return nil
}

// Addr implements net.Listener.
func (*pipes) Addr() net.Addr { return &net.TCPAddr{} }

// dial connects to the server, whatever the address.
func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// serve returns a transport to a server in memory, which runs until the test ends.
func serve(t *testing.T, handler http.HandlerFunc) *http.Transport {
	t.Helper()
	network := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	transport := &http.Transport{DialContext: network.dial}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(network)
	}()
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = server.Close()
		<-served
	})
	return transport
}
