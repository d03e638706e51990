package policy

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRefTells: whoever watches is told of another policy and of a pause, and of nothing else.
func TestRefTells(t *testing.T) {
	t.Parallel()
	ref := &Ref{}
	told := func(change func()) bool {
		_, changed := ref.Watch()
		change()
		select {
		case <-changed:
			return true
		default:
			return false
		}
	}
	shipped := Default()
	require.True(t, told(func() { ref.Set(shipped) }))
	require.False(t, told(func() { ref.Set(shipped) }))
	require.True(t, told(func() { ref.Pause(true) }))
	require.False(t, told(func() { ref.Pause(true) }))
	require.True(t, ref.Paused())
	require.Same(t, shipped, ref.Get())
	require.True(t, told(func() { ref.Pause(false) }))
	require.False(t, ref.Paused())
	require.False(t, (*Ref)(nil).Paused())
}
