// Package text is how texts, figures and trees are printed for a person at a terminal.
package text

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// Narrow is how wide text is where no terminal says it, and least what is left for words at least.
	Narrow, least = 80, 20
	// longestCell is how many characters of what others wrote are shown in a cell of a table.
	longestCell = 63
	// LongestText is how many are shown elsewhere.
	LongestText = 800
)

// Line returns a text as a line for a terminal: some of it is that of a tenant, who may write what moves a cursor, or turns
// the direction of writing.
func Line(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) {
			return ' '
		}
		return r
	}, text)
}

// Shortened returns the beginning of a text as a line of that many characters at most.
func Shortened(text string, most int) string {
	text = Line(text)
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-len("...")]) + "..."
}

// Cells returns texts as cells of a table.
func Cells(texts ...string) []string {
	for i := range texts {
		texts[i] = Shortened(texts[i], longestCell)
	}
	return texts
}
