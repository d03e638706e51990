//go:build drills

package drills_test

import (
	"context"
	"net"
	"net/url"
	"sync"
)

// link is a way to an API server that can be cut: connections are accepted then, and nothing is answered.
type link struct {
	listener net.Listener
	to       string
	// way is held for writing while the link is cut.
	way   sync.RWMutex
	isCut bool
	group sync.WaitGroup
}

// newLink listens for those who want to a server until stop is called.
func newLink(ctx context.Context, server string) (l *link, stop func(), err error) {
	to, err := url.Parse(server)
	if err != nil {
		return nil, nil, err
	}
	l = &link{to: to.Host}
	if l.listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // as long as those who use it
	l.group.Go(func() { l.serve(ctx) })
	return l, func() {
		cancel()
		_ = l.listener.Close() // nobody listens any more
		l.heal()
		l.group.Wait()
	}, nil
}

func (l *link) url() string { return "https://" + l.listener.Addr().String() }

func (l *link) cut() {
	l.way.Lock()
	l.isCut = true
}

func (l *link) heal() {
	if l.isCut {
		l.isCut = false
		l.way.Unlock()
	}
}

func (l *link) serve(ctx context.Context) {
	for {
		in, err := l.listener.Accept()
		if err != nil {
			return // it was closed
		}
		l.group.Go(func() { l.carry(ctx, in) })
	}
}

// carry carries one connection.
func (l *link) carry(ctx context.Context, in net.Conn) {
	defer in.Close() //nolint:errcheck // nothing is left to send
	l.pass()
	out, err := (&net.Dialer{}).DialContext(ctx, "tcp", l.to)
	if err != nil {
		return // as a server that is not there
	}
	closeBoth := func() { _, _ = in.Close(), out.Close() }
	defer context.AfterFunc(ctx, closeBoth)()
	var group sync.WaitGroup
	for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
		group.Go(func() {
			defer closeBoth()
			l.copy(way[0], way[1])
		})
	}
	group.Wait()
}

// copy sends to one what the other says, as long as both are there.
func (l *link) copy(from, to net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		l.pass()
		if err != nil {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// pass returns once the link is not cut.
func (l *link) pass() {
	l.way.RLock()
	l.way.RUnlock() //nolint:staticcheck // it waits, and guards nothing
}
