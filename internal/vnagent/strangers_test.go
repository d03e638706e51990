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
	open := func(address string) (*batchConn, bool) {
		conn := &batchConn{Conn: &from{address: address}}
		return conn, all.admit(conn)
	}
	var pods []*batchConn
	for i := range maxStrangers {
		conn, admitted := open(fmt.Sprintf("10.0.0.%d", i%2))
		require.True(t, admitted)
		pods = append(pods, conn)
	}
	_, admitted := open("10.0.0.0")
	require.False(t, admitted, "it has as many as anybody")
	require.Zero(t, closed(pods))

	var server []*batchConn
	for range 300 {
		conn, admitted := open("192.0.2.1")
		require.True(t, admitted)
		server = append(server, conn)
	}
	require.Equal(t, 300, closed(pods), "one for each")
	require.Equal(t, maxStrangers, all.number)
	for range 300 {
		conn, _ := open("192.0.2.1")
		server = append(server, conn)
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
	begin := func() (func(), bool) { return known.begin(key, 1) }
	first, second := &batchConn{Conn: &from{address: "192.0.2.1"}}, &batchConn{Conn: &from{address: "192.0.2.1"}}
	require.True(t, all.admit(first))
	require.True(t, all.admit(second))
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
