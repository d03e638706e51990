// Package page prints what was found: for a person as lines and tables, for programs as JSON or YAML. Some of it others
// wrote, tenants among them, who may write what moves a cursor or turns the direction of writing: none of that comes to
// a terminal as it is, in no format.
package page

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"
)

// isUnprintable reports whether a terminal may obey a character, or turn what follows it: control characters of ASCII
// and of Latin 1, and what formats text.
func isUnprintable(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)
}

// Printable returns a text as a line for a terminal: what breaks lines or moves on is a space, and any other character
// that a terminal may obey is U+FFFD.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case !isUnprintable(r):
			return r
		case unicode.IsSpace(r):
			return ' '
		}
		return unicode.ReplacementChar
	}, text)
}

// Wrapped breaks a text into lines at its spaces, and words that are longer than a line anywhere. width is in
// characters, 1 at least. There is one line at least.
func Wrapped(text string, width int) []string {
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

// Page is text with tables: rows that follow each other have their columns below each other.
type Page struct {
	out   io.Writer
	width int
	rows  [][]string
	err   error
}

// New returns an empty page that is written to out. Lines that are longer than width characters go on below, indented;
// 0 leaves them as they are. Tables are as wide as they are.
func New(out io.Writer, width int) *Page { return &Page{out: out, width: width} }

// Row adds a row to a table.
func (p *Page) Row(cells ...string) {
	for i := range cells {
		cells[i] = Printable(cells[i])
	}
	p.rows = append(p.rows, cells)
}

// Line ends a table, and prints a line.
func (p *Page) Line(format string, args ...any) {
	p.endTable()
	line := Printable(fmt.Sprintf(format, args...))
	const further, least = "  ", 20
	if p.width <= 0 || utf8.RuneCountInString(line) <= p.width {
		p.print(line + "\n")
		return
	}
	indent := line[:len(line)-len(strings.TrimLeft(line, " "))] + further
	for i, part := range Wrapped(line, max(p.width-len(indent), least)) {
		if i == 0 {
			p.print(strings.TrimSuffix(indent, further) + part + "\n")
			continue
		}
		p.print(indent + part + "\n")
	}
}

func (p *Page) endTable() {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range p.rows {
		_, _ = fmt.Fprintln(table, strings.Join(row, "\t")) // a Builder takes everything
	}
	_ = table.Flush()
	p.rows = nil
	for line := range strings.Lines(text.String()) {
		p.print(strings.TrimRight(line, " \n") + "\n")
	}
}

func (p *Page) print(text string) {
	if p.err == nil {
		_, p.err = io.WriteString(p.out, text)
	}
}

// Flush ends a table. It returns why anything could not be written.
func (p *Page) Flush() error {
	p.endTable()
	if p.err != nil {
		return fmt.Errorf("printing: %w", p.err)
	}
	return nil
}
