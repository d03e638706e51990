package tenancy_test

import (
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/superpool/superpool/internal/tenancy"
)

func TestCutKeepsCharacters(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		text string
		most int
		want string
	}{
		"nothing":           {"", 3, ""},
		"exactly":           {"abcdef", 6, "abcdef"},
		"too long":          {"abcdefg", 6, "abc..."},
		"no half character": {"abéfgh", 6, "ab..."},
		"a whole character": {"aéfghi", 6, "aé..."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := tenancy.Cut(tc.text, tc.most)
			require.Equal(t, tc.want, got)
			require.True(t, utf8.ValidString(got))
		})
	}
}
