package app

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// TestLine: what others say is a line without what moves a cursor or turns the direction of writing.
func TestLine(t *testing.T) {
	t.Parallel()
	require.Equal(t, " ]0;x [2J   0s  the pool serves it ü", line("\x1b]0;x\x1b[2J\r\n 0s  the pool serves it\u009bü"))
	require.Equal(t, "a b c d", line("a\u202eb\u2028c\u200bd"))
	require.Equal(t, "a b...", shortened("a\nbcdefgh", 6))
	require.Equal(t, "üüü", shortened("üüü", 3))
}

// TestBrief: figures have one decimal at most, and are rounded down.
func TestBrief(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   corev1.ResourceName
		amount int64
		want   string
	}{
		{name: "cpu", amount: 0, want: "0"},
		{name: "cpu", amount: 500, want: "500m"},
		{name: "cpu", amount: 1000, want: "1"},
		{name: "cpu", amount: 1590, want: "1.5"},
		{name: "cpu", amount: 123_900, want: "123"},
		{name: "memory", amount: 1023, want: "1023"},
		{name: "memory", amount: 1536 << 20, want: "1.5Gi"},
		{name: "memory", amount: 64379560 << 10, want: "61.3Gi"},
		{name: "memory", amount: 1 << 53, want: "8Pi"},
		{name: "memory", amount: 1<<63 - 1, want: "7.9Ei"},
		{name: "pods", amount: 1500, want: "1500"},
		{name: "nvidia.com/gpu", amount: 2, want: "2"},
	} {
		require.Equal(t, test.want, brief(test.name, test.amount), "%s %d", test.name, test.amount)
	}
}

// TestTree: no line is wider than the terminal, whatever a text is, and lines that go on are below the first.
func TestTree(t *testing.T) {
	t.Parallel()
	tree := &branch{text: "a"}
	b := tree.add("b is a text of several words that go on and on for ever")
	b.add("c " + strings.Repeat("x", 60))
	tree.add("d is the last one, and goes on, too")
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
	require.Equal(t, want, strings.Join(tree.draw(plain, 30), "\n"))
	require.Equal(t, strings.NewReplacer("|  |", "│  │", "|- ", "├─ ", "|  ", "│  ", "`- ", "└─ ").Replace(want), strings.Join(tree.draw(drawing, 30), "\n"))
	hostile := (&branch{text: strings.Repeat("y", 10_000)}).draw(plain, 40)
	require.Len(t, hostile, 20)
	for _, text := range hostile {
		require.LessOrEqual(t, utf8.RuneCountInString(text), 40)
	}
	for _, text := range tree.draw(drawing, 30) {
		require.LessOrEqual(t, utf8.RuneCountInString(text), 30)
	}
	for environment, want := range map[string]strokes{
		"": plain, "LANG=de_DE.UTF-8": drawing, "LANG=C.utf8": drawing, "LC_ALL=C LANG=de_DE.UTF-8": plain, "LC_CTYPE=C.UTF-8 LANG=C": drawing,
	} {
		require.Equal(t, want, strokesOf(func(name string) string {
			for part := range strings.FieldsSeq(environment) {
				if value, is := strings.CutPrefix(part, name+"="); is {
					return value
				}
			}
			return ""
		}), environment)
	}
}
