package vnagent

import (
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// from is a connection from an address. Its client sees nothing but whether it is closed.
type from struct {
	net.Conn
	address string
	closed  int
}

func (f *from) RemoteAddr() net.Addr {
	return &net.TCPAddr{IP: net.ParseIP(f.address), Port: 40_000}
}

func (f *from) Close() error {
	f.closed++
	return nil
}

func closed(connections []*batchConn) (number int) {
	for _, conn := range connections {
		number += conn.Conn.(*from).closed
	}
	return number
}

// TestStrangers: pods that open connections without end keep out each other, and nobody else.
func TestStrangers(t *testing.T) {
	t.Parallel()
	var all strangers
	open := func(address string) *batchConn {
		conn := &batchConn{Conn: &from{address: address}}
		all.admit(conn)
		return conn
	}
	var pods []*batchConn
	for i := range maxStrangers {
		pods = append(pods, open(fmt.Sprintf("10.0.0.%d", i%2)))
	}
	require.Zero(t, closed(pods))
	last := open("10.0.0.0")
	require.Equal(t, 1, closed(pods), "one for each that comes")
	require.Zero(t, closed([]*batchConn{last}), "also from an address that has the most")
	pods = append(pods, last)

	var server []*batchConn
	for range 300 {
		server = append(server, open("192.0.2.1"))
	}
	require.Equal(t, 301, closed(pods))
	require.Zero(t, closed(server), "others have more")
	require.Equal(t, maxStrangers, all.number)
	for range 300 {
		server = append(server, open("192.0.2.1"))
	}
	require.InDelta(t, maxStrangers/3, len(all.from["192.0.2.1"]), 1, "three addresses have as many each")

	for _, conn := range append(pods, server...) {
		require.NoError(t, conn.Close())
		require.NoError(t, conn.Close(), "again, as http.Server does")
	}
	require.Zero(t, all.number)
	require.Empty(t, all.from)
}

// TestKnown: a connection that has shown a tenant's certificate is that tenant's, once, until it is closed.
func TestKnown(t *testing.T) {
	t.Parallel()
	var all strangers
	var known limits
	key := limitKey{clusterKey: "a", what: connection}
	begin := func() (func(), bool) {
		forget, err := known.begin(key, 1, 0)
		return forget, err == nil
	}
	first, second := &batchConn{Conn: &from{address: "192.0.2.1"}}, &batchConn{Conn: &from{address: "192.0.2.1"}}
	all.admit(first)
	all.admit(second)
	require.True(t, first.become(begin))
	require.True(t, first.become(begin), "with its next request")
	require.Equal(t, 1, all.number)
	require.Equal(t, 1, known.running[key])

	require.False(t, second.become(begin))
	require.Equal(t, 1, all.number, "it is a stranger still")
	require.NoError(t, first.Close())
	require.True(t, second.become(begin))
	require.NoError(t, second.Close())
	require.Zero(t, all.number)
	require.Empty(t, known.running)
	require.True(t, second.become(begin), "nobody waits for its answer")
	require.Empty(t, known.running)
}
