package memo_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/superpool/superpool/internal/memo"
)

func all(known *memo.Map[string, int]) map[string]int {
	found := map[string]int{}
	known.Each(func(key string, value int) { found[key] = value })
	return found
}

func TestMap(t *testing.T) {
	t.Parallel()
	var known memo.Map[string, int]
	_, exists := known.Get("a")
	require.False(t, exists)
	known.Delete("a")
	known.Update("a", func(_ int, known bool) (int, bool) { return 1, known })
	require.Empty(t, all(&known), "what is not kept is not there")
	known.Set("a", 1)
	known.Set("b", 2)
	known.Set("c", 3)
	value, exists := known.Get("a")
	require.True(t, exists)
	require.Equal(t, 1, value)
	known.Update("b", func(value int, known bool) (int, bool) { return value + 10, known })
	known.DeleteFunc(func(key string, value int) bool { return key == "a" && value == 1 })
	require.Equal(t, map[string]int{"b": 12, "c": 3}, all(&known))
	known.Update("b", func(value int, _ bool) (int, bool) { return value, false })
	known.Delete("a", "c")
	require.Empty(t, all(&known))
}

func TestMapIsUsedByMany(t *testing.T) {
	t.Parallel()
	var known memo.Map[string, int]
	var group sync.WaitGroup
	for range 100 {
		group.Go(func() { known.Update("a", func(value int, _ bool) (int, bool) { return value + 1, true }) })
	}
	group.Wait()
	require.Equal(t, map[string]int{"a": 100}, all(&known))
}
