package text

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestShortened: the beginning of what others wrote is a line, of so many characters.
func TestShortened(t *testing.T) {
	t.Parallel()
	require.Equal(t, "a b...", Shortened("a\nbcdefgh", 6))
	require.Equal(t, "üüü", Shortened("üüü", 3))
	require.Equal(t, []string{"a", "\ufffd[2J"}, Cells("a", "\x1b[2J"))
}
