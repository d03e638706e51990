package simulation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode"
)

// Format is how results are printed.
type Format string

// The formats.
const (
	Table Format = "table"
	JSON  Format = "json"
)

// ParseFormat returns the format of that name.
func ParseFormat(name string) (Format, error) {
	if format := Format(name); format == Table || format == JSON {
		return format, nil
	}
	return "", fmt.Errorf("%q is no format: use %s or %s", name, Table, JSON)
}

// Print writes the report.
func (r *Report) Print(out io.Writer, format Format) error {
	if format == JSON {
		return PrintJSON(out, r)
	}
	p := NewPage(out)
	p.Row("TENANT", "NAMESPACE", "SLICES", "PLACEMENTS", "CHANGE")
	for i := range r.Namespaces {
		n := &r.Namespaces[i]
		p.Row(n.Tenant, n.Name, fmt.Sprintf("%d/%d", n.PlacedSlices, n.Slices), n.moved(), string(n.Change))
	}
	p.Line("")
	p.Row("SUPER CLUSTER", "STATE", "RESOURCE", "RESERVED", "ALLOCATABLE", "%")
	for i := range r.SuperClusters {
		one := &r.SuperClusters[i]
		if len(one.Resources) == 0 {
			p.Row(one.Name, one.State, "", "", "", "")
		}
		for _, u := range one.Resources {
			p.Row(one.Name, one.State, string(u.Resource), u.Used, u.Allocatable, percent(u.Percent))
		}
	}
	for i := range r.Namespaces {
		r.Namespaces[i].printWhy(p)
	}
	if len(r.Ignored) > 0 {
		p.Line("")
	}
	for _, kind := range slices.Sorted(maps.Keys(r.Ignored)) {
		p.Line("Ignored: %d of kind %s", r.Ignored[kind], kind)
	}
	return p.Flush()
}

// moved returns the placements, and where they were if that is another place.
func (n *Namespace) moved() string {
	if len(n.Before) == 0 || maps.Equal(n.Before, n.Placements) {
		return Summary(n.Placements)
	}
	return Summary(n.Before) + " -> " + Summary(n.Placements)
}

// printWhy says why a namespace waits.
func (n *Namespace) printWhy(p *Page) {
	if n.Change != Waits {
		return
	}
	p.Line("")
	p.Line("%s/%s waits%s", n.Tenant, n.Name, prefixed(" for ", n.Missing))
	n.printReasons(p)
}

func (n *Namespace) printReasons(p *Page) {
	p.Line("  %s", cmp.Or(n.Why, "it was not tried"))
	if n.Tried != "" {
		p.Line("    %s; for the next one:", n.Tried)
	}
	for _, reason := range n.SuperClusters {
		p.Line("    %s: %s (%s)", cmp.Or(reason.SuperCluster, "all others"), reason.Reason, reason.Plugin)
	}
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

func percent(value int64) string {
	if value < 0 {
		return "-"
	}
	return fmt.Sprintf("%d", value)
}

// Summary returns slices per super cluster in one line, as r1=1,r2=2.
func Summary(counts map[string]int32) string {
	if len(counts) == 0 {
		return "-"
	}
	parts := make([]string, 0, len(counts))
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s=%d", name, counts[name]))
	}
	return strings.Join(parts, ",")
}

// PrintJSON writes a value for programs.
func PrintJSON(out io.Writer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}

// Page is text with tables: rows that follow each other have their columns below each other.
type Page struct {
	out  io.Writer
	rows [][]string
	err  error
}

// NewPage returns an empty page that is written to out.
func NewPage(out io.Writer) *Page { return &Page{out: out} }

// Row adds a row to a table.
func (p *Page) Row(cells ...string) {
	for i := range cells {
		cells[i] = printable(cells[i])
	}
	p.rows = append(p.rows, cells)
}

// Line ends a table, and prints a line.
func (p *Page) Line(format string, args ...any) {
	p.endTable()
	p.print(printable(fmt.Sprintf(format, args...)) + "\n")
}

// printable replaces control characters and those that turn the direction of writing: files may hold anything, and a
// terminal obeys some of them.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
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
