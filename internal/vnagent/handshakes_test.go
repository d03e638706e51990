package vnagent

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

// TestHandshakesHaveARate: whoever connects and goes again without end is refused beyond a rate, and nobody else is.
func TestHandshakesHaveARate(t *testing.T) {
	t.Parallel()
	now := time.Now()
	all := newHandshakes()
	pod := func(i int) string { return fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255) }
	begin := func(address string, times int) (begun int) {
		for range times {
			if all.begin(address, now) {
				begun++
			}
		}
		return begun
	}
	require.Equal(t, handshakeBurst, begin(pod(0), 3*handshakeBurst), "one address")
	require.Equal(t, 300, begin("192.0.2.1", 300), "others have their own rate")
	all.know("192.0.2.1", now)
	sum := 0
	for i := range 100 {
		sum += begin(pod(1+i), 100)
	}
	require.LessOrEqual(t, sum, unknownBurst+100, "all addresses that nobody knows, but for the first of each")
	require.Equal(t, 500, begin("192.0.2.1", 500), "one that is known is not one of them")
	require.Equal(t, 1, begin("192.0.2.2", 1), "one that comes for the first time is let in")

	now = now.Add(time.Second)
	require.InDelta(t, handshakesPerSecond, begin(pod(0), handshakeBurst), 1)
	for i := range 3 * maxAddresses {
		begin(pod(1000+i), 1)
	}
	require.LessOrEqual(t, len(all.from), maxAddresses)
	now = now.Add(time.Minute)
	require.True(t, all.begin("192.0.2.3", now))
	require.Less(t, len(all.from), 10, "who is quiet is forgotten")
	require.Equal(t, 800, begin("192.0.2.1", 800), "but for one that is known")

	now = now.Add(2 * time.Hour)
	for i := range 100 {
		begin(pod(1+i), 100)
	}
	require.Equal(t, 1, begin("192.0.2.1", 1), "one that was known, and quiet, is as good as a new one")
}

// connections is a net.Listener that accepts what it holds.
type connections struct {
	net.Listener
	accepted []net.Conn
}

func (c *connections) Accept() (net.Conn, error) {
	if len(c.accepted) == 0 {
		return nil, errors.New("there are no more")
	}
	next := c.accepted[0]
	c.accepted = c.accepted[1:]
	return next, nil
}

// TestAcceptRefusesHandshakes: a connection beyond the rate is closed before a byte is read, and counted.
func TestAcceptRefusesHandshakes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // no time passes
		metrics, err := NewMetrics(prometheus.NewRegistry())
		require.NoError(t, err)
		listener := &connections{}
		for range handshakeBurst + 200 {
			listener.accepted = append(listener.accepted, &from{address: "10.0.0.1"})
		}
		listener.accepted = append(listener.accepted, &from{address: "10.0.0.2"})
		accepting := batchListener{Listener: listener, strangers: &strangers{}, handshakes: newHandshakes(), refused: metrics.refused}
		var accepted []*batchConn
		for {
			conn, err := accepting.Accept()
			if err != nil {
				break
			}
			accepted = append(accepted, conn.(*batchConn))
		}
		require.Len(t, accepted, handshakeBurst+1)
		require.InDelta(t, 200, testutil.ToFloat64(metrics.refused), 0)
		last := accepted[handshakeBurst]
		require.Equal(t, "10.0.0.2", addressOf(last))
		require.True(t, last.become(func() (func(), bool) { return func() {}, true }))
		require.False(t, accepting.handshakes.from["10.0.0.2"].known.IsZero())
		require.True(t, accepting.handshakes.from["10.0.0.1"].known.IsZero())
	})
}
