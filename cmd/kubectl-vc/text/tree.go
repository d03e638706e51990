package text

import (
	"strings"
	"unicode/utf8"

	"github.com/superpool/superpool/internal/page"
)

// Branch is a line of a tree with those below it.
type Branch struct {
	Text  string    `json:"text"`
	Below []*Branch `json:"below,omitempty"`
}

// Add adds a branch, and returns it.
func (b *Branch) Add(text string) *Branch {
	added := &Branch{Text: text}
	b.Below = append(b.Below, added)
	return added
}

// Strokes are what a tree is drawn with: before a branch and the last one, and before what is below them.
type Strokes struct{ branch, last, beside, beneath string }

// What trees are drawn with where the environment says no other, and where it is UTF-8.
var (
	Plain   = Strokes{branch: "|- ", last: "`- ", beside: "|  ", beneath: "   "}
	Drawing = Strokes{branch: "├─ ", last: "└─ ", beside: "│  ", beneath: "   "}
)

// StrokesOf returns the strokes that a terminal of this environment shows.
func StrokesOf(environment func(string) string) Strokes {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if value := strings.ToLower(environment(name)); value != "" { // the first one holds
			if strings.Contains(value, "utf-8") || strings.Contains(value, "utf8") {
				return Drawing
			}
			return Plain
		}
	}
	return Plain
}

// Draw returns the lines of a tree, none wider than width but where it is too deep for that.
func (b *Branch) Draw(s Strokes, width int) []string { return b.drawn(s, width, "", "") }

// drawn draws a branch: before is what is before its first line, and beside before those below.
func (b *Branch) drawn(s Strokes, width int, before, beside string) []string {
	var lines []string
	room := width - utf8.RuneCountInString(beside)
	if len(b.Below) > 0 {
		room -= utf8.RuneCountInString(s.beside)
	}
	for i, text := range page.Wrapped(Shortened(b.Text, LongestText), max(room, least)) {
		switch {
		case i == 0:
			lines = append(lines, before+text)
		case len(b.Below) > 0:
			lines = append(lines, beside+s.beside+text)
		default:
			lines = append(lines, beside+text)
		}
	}
	for i, below := range b.Below {
		if i == len(b.Below)-1 {
			lines = append(lines, below.drawn(s, width, beside+s.last, beside+s.beneath)...)
		} else {
			lines = append(lines, below.drawn(s, width, beside+s.branch, beside+s.beside)...)
		}
	}
	return lines
}
