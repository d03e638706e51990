// Command reference writes docs/reference from the code: the fields of our kinds, annotations and labels with who
// writes and who reads them, Events and conditions, flags, feature gates and metrics. `make generate` runs it, and
// `make verify` fails where its pages differ from what is committed.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// notice begins every page.
const notice = "<!-- Written by `make generate` from the code: edit the doc comments there. -->\n\n"

func main() {
	if len(os.Args) > 1 {
		fmt.Fprintln(os.Stderr, "reference: takes no arguments: it writes docs/reference of the checkout in which it runs")
		os.Exit(2)
	}
	if err := run("."); err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

// pages are the files of docs/reference and what makes each.
func pages() map[string]func(*source) (string, error) {
	return map[string]func(*source) (string, error){
		"annotations-and-labels.md": keysPage,
		"crds.md":                   crdsPage,
		"events-and-conditions.md":  reasonsPage,
		"flags-and-gates.md":        flagsPage,
		"kubectl-vc.md":             cliPage,
		"metrics.md":                metricsPage,
		"plugins.md":                pluginsPage,
	}
}

// run reads the checkout at root and writes all pages, or none after an error.
func run(root string) error {
	code, err := parse(root, "apis", "internal", "plugins", "cmd")
	if err != nil {
		return err
	}
	texts := map[string]string{}
	for name, page := range pages() {
		if texts[name], err = page(code); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	dir := filepath.Join(root, "docs", "reference")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making %s: %w", dir, err)
	}
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil { //nolint:gosec // a page that everybody may read
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	return nil
}

// table returns a Markdown table with these columns and rows.
func table(columns []string, rows [][]string) string {
	var text strings.Builder
	line := func(cells []string) { fmt.Fprintf(&text, "| %s |\n", strings.Join(cells, " | ")) }
	line(columns)
	line(strings.Split(strings.Repeat("---,", len(columns)-1)+"---", ","))
	for _, row := range rows {
		for i := range row {
			row[i] = strings.ReplaceAll(strings.ReplaceAll(row[i], "|", `\|`), "\n", " ")
		}
		line(row)
	}
	return text.String()
}
