package text

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLine: what others say is a line without what moves a cursor or turns the direction of writing.
func TestLine(t *testing.T) {
	t.Parallel()
	require.Equal(t, " ]0;x [2J   0s  the pool serves it ü", Line("\x1b]0;x\x1b[2J\r\n 0s  the pool serves it\u009bü"))
	require.Equal(t, "a b c d", Line("a\u202eb\u2028c\u200bd"))
	require.Equal(t, "a b...", Shortened("a\nbcdefgh", 6))
	require.Equal(t, "üüü", Shortened("üüü", 3))
}
