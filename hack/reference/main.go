// Command reference writes docs/reference from the code: annotations and labels with who writes and who reads them, Events and conditions,
// flags, feature gates and metrics. `make generate` runs it, and `make verify` fails where its pages differ from what is committed.
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
	if err := run("."); err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

// run reads the checkout at root and writes its pages.
func run(root string) error {
	code, err := parse(root, "apis", "internal", "plugins", "cmd")
	if err != nil {
		return err
	}
	dir := filepath.Join(root, "docs", "reference")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making %s: %w", dir, err)
	}
	for name, page := range map[string]func(*source) (string, error){
		"annotations-and-labels.md": keysPage,
		"events-and-conditions.md":  reasonsPage,
		"flags-and-gates.md":        flagsPage,
		"metrics.md":                metricsPage,
	} {
		text, err := page(code)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
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
