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
		return printJSON(out, r)
	}
	p := newPage(out)
	p.row("TENANT", "NAMESPACE", "SLICES", "PLACEMENTS", "CHANGE")
	for i := range r.Namespaces {
		n := &r.Namespaces[i]
		p.row(n.Tenant, n.Name, fmt.Sprintf("%d/%d", n.PlacedSlices, n.Slices), n.moved(), string(n.Change))
	}
	p.line("")
	p.row("SUPER CLUSTER", "STATE", "RESOURCE", "RESERVED", "ALLOCATABLE", "%")
	for i := range r.SuperClusters {
		one := &r.SuperClusters[i]
		if len(one.Resources) == 0 {
			p.row(one.Name, one.State, "", "", "", "")
		}
		for _, u := range one.Resources {
			p.row(one.Name, one.State, string(u.Resource), u.Used, u.Allocatable, percent(u.Percent))
		}
	}
	for i := range r.Namespaces {
		r.Namespaces[i].printWhy(p)
	}
	if len(r.Ignored) > 0 {
		p.line("")
	}
	for _, kind := range slices.Sorted(maps.Keys(r.Ignored)) {
		p.line("Ignored: %d of kind %s", r.Ignored[kind], kind)
	}
	return p.flush()
}

// moved returns the placements, and where they were if that is another place.
func (n *Namespace) moved() string {
	if len(n.Before) == 0 || maps.Equal(n.Before, n.Placements) {
		return summary(n.Placements)
	}
	return summary(n.Before) + " -> " + summary(n.Placements)
}

// printWhy says why a namespace waits.
func (n *Namespace) printWhy(p *page) {
	if n.Change != Waits {
		return
	}
	p.line("")
	p.line("%s/%s waits%s", n.Tenant, n.Name, prefixed(" for ", n.Missing))
	n.printReasons(p)
}

func (n *Namespace) printReasons(p *page) {
	p.line("  %s", cmp.Or(n.Why, "it was not tried"))
	if n.Tried != "" {
		p.line("    %s; for the next one:", n.Tried)
	}
	for _, reason := range n.SuperClusters {
		p.line("    %s: %s (%s)", cmp.Or(reason.SuperCluster, "all others"), reason.Reason, reason.Plugin)
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

func summary(counts map[string]int32) string {
	if len(counts) == 0 {
		return "-"
	}
	parts := make([]string, 0, len(counts))
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s=%d", name, counts[name]))
	}
	return strings.Join(parts, ",")
}

func printJSON(out io.Writer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}

// page is text with tables: rows that follow each other have their columns below each other.
type page struct {
	out  io.Writer
	rows [][]string
	err  error
}

func newPage(out io.Writer) *page { return &page{out: out} }

func (p *page) row(cells ...string) {
	for i := range cells {
		cells[i] = printable(cells[i])
	}
	p.rows = append(p.rows, cells)
}

// line ends a table, and prints a line.
func (p *page) line(format string, args ...any) {
	p.endTable()
	p.print(printable(fmt.Sprintf(format, args...)) + "\n")
}

// printable replaces control characters: files may hold anything, and a terminal obeys some of them.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

func (p *page) endTable() {
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

func (p *page) print(text string) {
	if p.err == nil {
		_, p.err = io.WriteString(p.out, text)
	}
}

func (p *page) flush() error {
	p.endTable()
	if p.err != nil {
		return fmt.Errorf("printing: %w", p.err)
	}
	return nil
}
