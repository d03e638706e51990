package text

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// TestTree: no line is wider than the terminal, whatever a text is, and lines that go on are below the first.
func TestTree(t *testing.T) {
	t.Parallel()
	tree := &Branch{Text: "a"}
	b := tree.Add("b is a text of several words that go on and on for ever")
	b.Add("c " + strings.Repeat("x", 60))
	tree.Add("d is the last one, and goes on, too")
	want := `a
|- b is a text of several
|  |  words that go on and on
|  |  for ever
|  ` + "`" + `- c
|     xxxxxxxxxxxxxxxxxxxxxxxx
|     xxxxxxxxxxxxxxxxxxxxxxxx
|     xxxxxxxxxxxx
` + "`" + `- d is the last one, and goes
   on, too`
	require.Equal(t, want, strings.Join(tree.Draw(Plain, 30), "\n"))
	require.Equal(t, strings.NewReplacer("|  |", "│  │", "|- ", "├─ ", "|  ", "│  ", "`- ", "└─ ").Replace(want), strings.Join(tree.Draw(Drawing, 30), "\n"))
	hostile := (&Branch{Text: strings.Repeat("y", 10_000)}).Draw(Plain, 40)
	require.Len(t, hostile, 20)
	for _, text := range hostile {
		require.LessOrEqual(t, utf8.RuneCountInString(text), 40)
	}
	for _, text := range tree.Draw(Drawing, 30) {
		require.LessOrEqual(t, utf8.RuneCountInString(text), 30)
	}
	for environment, want := range map[string]Strokes{
		"": Plain, "LANG=de_DE.UTF-8": Drawing, "LANG=C.utf8": Drawing, "LC_ALL=C LANG=de_DE.UTF-8": Plain, "LC_CTYPE=C.UTF-8 LANG=C": Drawing,
	} {
		require.Equal(t, want, StrokesOf(func(name string) string {
			for part := range strings.FieldsSeq(environment) {
				if value, is := strings.CutPrefix(part, name+"="); is {
					return value
				}
			}
			return ""
		}), environment)
	}
}
