package policy

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzQuotedLen: what is counted is what fieldpath.FormatMap would write.
func FuzzQuotedLen(f *testing.F) {
	for _, text := range []string{
		"", "a", "a\nb\t\a\b\f\r\v\\ \" '", "\x00\x01\x1f\x7f", "\xff", "\xef", "\xef\xbf", "\uFFFD", "\u00a0\u00ad\u2028\ufeff", "h\u00e9llo, \u4e16\u754c", "\U0001F600\U000E0001\U0010FFFF", "\xed\xa0\x80",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		require.Len(t, strconv.Quote(text), quotedLen(text), "%q", text)
	})
}

// TestQuotedLenMakesNothing: it is asked about 256 KiB before anything is made of them.
func TestQuotedLenMakesNothing(t *testing.T) { //nolint:paralleltest // it counts what is allocated
	text := strings.Repeat("\x01", 262_000)
	require.Zero(t, testing.AllocsPerRun(10, func() { quotedLen(text) }))
}
