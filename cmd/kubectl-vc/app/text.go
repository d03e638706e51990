package app

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"

	"github.com/superpool/superpool/internal/slice"
)

const (
	// narrow is how wide text is where no terminal says it, and least what is left for words at least.
	narrow, least = 80, 20
	// longestCell and longestText are how many characters of what others wrote are shown, in a table and elsewhere.
	longestCell, longestText = 63, 800
)

// line returns a text as a line for a terminal: some of it is that of a tenant, who may write what moves a cursor, or turns
// the direction of writing.
func line(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) {
			return ' '
		}
		return r
	}, text)
}

// shortened returns the beginning of a text as a line of that many characters at most.
func shortened(text string, most int) string {
	text = line(text)
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-len("...")]) + "..."
}

// cells returns texts as cells of a table.
func cells(texts ...string) []string {
	for i := range texts {
		texts[i] = shortened(texts[i], longestCell)
	}
	return texts
}

// units are those of bytes, each 1024 times the one before.
var units = []string{"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}

// brief returns an amount of a resource with one decimal at most, rounded down: 12.5, 500m, 15.2Gi.
func brief(name corev1.ResourceName, amount int64) string {
	const milli, binary = 1000, 1024
	dimension := slice.DimensionOf(name)
	switch {
	case dimension.Format == apiresource.BinarySI:
		unit, size := 0, int64(1)
		for unit < len(units)-1 && amount/size >= binary {
			unit++
			size *= binary
		}
		return decimal(amount, size) + units[unit]
	case dimension.Scale == apiresource.Milli && amount > 0 && amount < milli:
		return strconv.FormatInt(amount, 10) + "m"
	case dimension.Scale == apiresource.Milli:
		return decimal(amount, milli)
	}
	return strconv.FormatInt(amount, 10)
}

// decimal returns how often a size is in an amount, with one decimal where that says something.
func decimal(amount, size int64) string {
	const precise, tenths = 100, 10
	whole, tenth := amount/size, int64(uint64(amount%size)*tenths/uint64(size))
	if tenth == 0 || whole >= precise {
		return strconv.FormatInt(whole, 10)
	}
	return strconv.FormatInt(whole, 10) + "." + strconv.FormatInt(tenth, 10)
}

// amounts returns amounts in one line: cpu=4 memory=8Gi.
func amounts(of slice.Amounts) string {
	if of.IsZero() {
		return "nothing"
	}
	var parts []string
	for _, name := range of.Names() {
		if of[name] != 0 {
			parts = append(parts, string(name)+"="+brief(name, of[name]))
		}
	}
	return strings.Join(parts, " ")
}

// count returns a number with the word for what is counted.
func count(number int, one, many string) string {
	if number == 1 {
		return "1 " + one
	}
	return strconv.Itoa(number) + " " + many
}

// branch is a line of a tree with those below it.
type branch struct {
	text  string
	below []*branch
}

// add adds a branch, and returns it.
func (b *branch) add(text string) *branch {
	added := &branch{text: text}
	b.below = append(b.below, added)
	return added
}

// strokes are what a tree is drawn with: before a branch and the last one, and before what is below them.
type strokes struct{ branch, last, beside, beneath string }

var (
	plain   = strokes{branch: "|- ", last: "`- ", beside: "|  ", beneath: "   "}
	drawing = strokes{branch: "├─ ", last: "└─ ", beside: "│  ", beneath: "   "}
)

// strokesOf returns the strokes that a terminal of this environment shows.
func strokesOf(environment func(string) string) strokes {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if value := strings.ToLower(environment(name)); value != "" { // the first one holds
			if strings.Contains(value, "utf-8") || strings.Contains(value, "utf8") {
				return drawing
			}
			return plain
		}
	}
	return plain
}

// draw returns the lines of a tree, none wider than width but where it is too deep for that.
func (b *branch) draw(s strokes, width int) []string { return b.drawn(s, width, "", "") }

// drawn draws a branch: before is what is before its first line, and beside before those below.
func (b *branch) drawn(s strokes, width int, before, beside string) []string {
	var lines []string
	room := width - utf8.RuneCountInString(beside)
	if len(b.below) > 0 {
		room -= utf8.RuneCountInString(s.beside)
	}
	for i, text := range wrapped(shortened(b.text, longestText), max(room, least)) {
		switch {
		case i == 0:
			lines = append(lines, before+text)
		case len(b.below) > 0:
			lines = append(lines, beside+s.beside+text)
		default:
			lines = append(lines, beside+text)
		}
	}
	for i, below := range b.below {
		if i == len(b.below)-1 {
			lines = append(lines, below.drawn(s, width, beside+s.last, beside+s.beneath)...)
		} else {
			lines = append(lines, below.drawn(s, width, beside+s.branch, beside+s.beside)...)
		}
	}
	return lines
}

// wrapped breaks a text into lines at its spaces, and words that are longer than a line anywhere. There is one at least.
func wrapped(text string, width int) []string {
	lines := []string{""}
	for _, word := range strings.Fields(text) {
		for part := range slices.Chunk([]rune(word), width) {
			last := &lines[len(lines)-1]
			switch used := utf8.RuneCountInString(*last); {
			case used == 0:
				*last = string(part)
			case used+1+len(part) <= width:
				*last += " " + string(part)
			default:
				lines = append(lines, string(part))
			}
		}
	}
	return lines
}

// width returns how wide the terminal of the output is.
func (c *cli) width() int {
	if out, isFile := c.Out.(*os.File); isFile {
		if width, _, err := term.GetSize(int(out.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return narrow
}
