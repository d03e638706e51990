package kinds_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kinds"
)

func TestLine(t *testing.T) {
	t.Parallel()
	var line kinds.Line
	first, second := engine.Key{Tenant: "a", Namespace: "web", Name: "1"}, engine.Key{Tenant: "a", Namespace: "web", Name: "2"}
	others := []engine.Key{{Tenant: "a", Namespace: "db", Name: "1"}, {Tenant: "b", Namespace: "web", Name: "1"}}
	none := func(tenant, namespace string) {
		t.Helper()
		_, waits := line.Next(tenant, namespace)
		require.False(t, waits)
	}
	none("a", "web")
	line.Leave(first)
	for _, key := range append(others, first, second, first) {
		line.Join(key)
	}
	got := map[engine.Key]bool{}
	for range 2 {
		key, waits := line.Next("a", "web")
		require.True(t, waits)
		got[key] = true
	}
	require.Equal(t, map[engine.Key]bool{first: true, second: true}, got)
	none("a", "web")
	line.Leave(others[0])
	none("a", "db")
	key, waits := line.Next("b", "web")
	require.True(t, waits)
	require.Equal(t, others[1], key)
}
