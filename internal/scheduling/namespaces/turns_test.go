package namespaces

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestATurnIsUsedOnce: a namespace that has taken its turn has it until it has been looked at without an error, also
// where it asks again meanwhile, and longer where it could not use it.
func TestATurnIsUsedOnce(t *testing.T) {
	t.Parallel()
	turns, now := newTurns(1, 1), time.Now()
	take := func(namespace string) time.Duration {
		after, _, _ := turns.take(namespace, now)
		return after
	}
	turns.begin()
	require.Zero(t, take("first"))
	require.Positive(t, take("second"))
	require.Zero(t, take("first"), "its write met a conflict")
	turns.keep()
	turns.end("first")
	turns.begin()
	require.Zero(t, take("first"), "it could not use it")
	turns.end("first")

	turns.begin()
	require.Positive(t, take("first"))
	turns.end("first")
	now = now.Add(time.Second)
	turns.begin()
	require.Zero(t, take("second"), "it came before")
	turns.end("second")
	require.Equal(t, []string{"first"}, turns.waiting)
	turns.begin()
	turns.end("first")
	require.Empty(t, turns.waiting, "it is gone")
	require.Empty(t, turns.granted)
}
