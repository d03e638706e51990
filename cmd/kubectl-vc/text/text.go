// Package text is how texts, figures and trees are printed for a person at a terminal.
package text

import (
	"unicode/utf8"

	"github.com/superpool/superpool/internal/page"
)

const (
	// Narrow is how wide text is where no terminal says it, and least what is left for words at least.
	Narrow, least = 80, 20
	// longestCell is how many characters of what others wrote are shown in a cell of a table.
	longestCell = 63
	// LongestText is how many are shown elsewhere.
	LongestText = 800
)

// Shortened returns the beginning of a text as a line of that many characters at most.
func Shortened(text string, most int) string {
	text = page.Printable(text)
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
