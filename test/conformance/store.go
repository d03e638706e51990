package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
)

// outcome is the result of a test in one word.
type outcome string

const (
	passed  outcome = "passed"
	failed  outcome = "failed"
	skipped outcome = "skipped"
)

// result of one test.
type result struct {
	Name    string  `json:"name"`
	Outcome outcome `json:"outcome"`
	// Reason of a failure, or of skipping.
	Reason string `json:"reason,omitempty"`
	// Seconds that the test took.
	Seconds float64 `json:"seconds,omitempty"`
	// Log is the path of its output, relative to the output folder.
	Log string `json:"log,omitempty"`
}

const reportFile = "report.md"

// store keeps results in files, which it renames into place when they are complete. get and put may be called
// concurrently for different tests.
type store struct {
	folder string
	// lacks holds the programs that the images lack, for the report. readLacks sets it before the first test.
	lacks []lack
	// known holds the tests that are known to fail.
	known sets.Set[string]
}

// openStore creates the output folder where it is missing.
func openStore(folder string) (*store, error) {
	for _, part := range []string{"results", "logs"} {
		if err := os.MkdirAll(filepath.Join(folder, part), 0o755); err != nil {
			return nil, fmt.Errorf("making the output folder: %w", err)
		}
	}
	return &store{folder: folder}, nil
}

var unsafeInFileName = regexp.MustCompile(`[^a-zA-Z0-9]+`)

// fileName returns a readable name for the files of a test. A hash keeps the names of two tests apart.
func fileName(test string) string {
	const readable = 120
	name := strings.Trim(unsafeInFileName.ReplaceAllString(strings.ReplaceAll(test, "[Conformance]", ""), "-"), "-")
	digest := sha256.Sum256([]byte(test))
	return name[:min(len(name), readable)] + "-" + hex.EncodeToString(digest[:4])
}

func (s *store) resultPath(test string) string {
	return filepath.Join(s.folder, "results", fileName(test)+".json")
}

// logPath returns the path of a test's log, relative to the output folder.
func (s *store) logPath(test string) string { return filepath.Join("logs", fileName(test)+".log") }

// get returns the result of a test; false if it has none.
func (s *store) get(test string) (result, bool, error) {
	found, err := read(s.resultPath(test))
	if errors.Is(err, fs.ErrNotExist) {
		return result{}, false, nil
	}
	return found, err == nil, err
}

func read(path string) (result, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return result{}, fmt.Errorf("reading a result: %w", err)
	}
	var found result
	if err := json.Unmarshal(content, &found); err != nil {
		return result{}, fmt.Errorf("parsing %s (delete it to run the test again): %w", path, err)
	}
	return found, nil
}

// put writes the result of a test over a previous one.
func (s *store) put(r result) error {
	content, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding a result: %w", err)
	}
	return writeWhole(s.resultPath(r.Name), append(content, '\n'))
}

// readLacks prints the programs that the images lack and tests need, and keeps them for the report.
func (s *store) readLacks(path string, tests []string, out io.Writer) error {
	lacks, err := readLacks(path, tests)
	if err != nil {
		return err
	}
	s.lacks = lacks
	for _, lacking := range lacks {
		_, _ = fmt.Fprint(out, lacking)
	}
	return nil
}

// skip writes the result skipped for tests that --skip matches, unless they have a result.
func (s *store) skip(tests []string) error {
	for _, test := range tests {
		_, exists, err := s.get(test)
		if err != nil {
			return err
		}
		if exists {
			continue
		}
		if err := s.put(result{Name: test, Outcome: skipped, Reason: "--skip"}); err != nil {
			return err
		}
	}
	return nil
}

// writeWhole writes a file under another name and renames it, so that no reader sees a part of it.
func writeWhole(path string, content []byte) error {
	if err := os.WriteFile(path+".new", content, 0o644); err != nil { //nolint:gosec // results are readable for all users
		return fmt.Errorf("writing: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}

// report holds all results of an output folder; each list is sorted by name. What is known to fail is in Known, or, as
// what is better than known, in Passed and in Mended.
type report struct {
	Passed, Failed, Known, Skipped, Mended []result
	Lacks                                  []lack
	Written                                string
}

func (r *report) summary() string {
	return fmt.Sprintf("%d passed, %d failed, %d failed as known, %d skipped", len(r.Passed), len(r.Failed), len(r.Known), len(r.Skipped))
}

var reportTemplate = template.Must(template.New("report").Parse(`# Conformance: {{.Count}}

Written {{.Written}}.
{{with .Lacks}}
## What the images lack

| program | tests that can fail for it |
|---|---|
{{range .}}{{$lack := .}}{{range .Tests}}| {{$lack.Program}} ({{$lack.Package}}) | {{.}} |
{{end}}{{end}}{{end}}{{with .Failed}}
## Failed

| test | reason | log |
|---|---|---|
{{range .}}| {{.Name}} | {{.Reason}} | [log]({{.Log}}) |
{{end}}{{end}}{{with .Known}}
## Failed as known

| test | reason | log |
|---|---|---|
{{range .}}| {{.Name}} | {{.Reason}} | [log]({{.Log}}) |
{{end}}{{end}}{{with .Mended}}
## Known to fail, and passed

| test | seconds |
|---|---|
{{range .}}| {{.Name}} | {{printf "%.0f" .Seconds}} |
{{end}}{{end}}{{with .Skipped}}
## Skipped

| test | reason |
|---|---|
{{range .}}| {{.Name}} | {{.Reason}} |
{{end}}{{end}}{{with .Passed}}
## Passed

| test | seconds |
|---|---|
{{range .}}| {{.Name}} | {{printf "%.0f" .Seconds}} |
{{end}}{{end}}`))

// Count is the summary, for the template.
func (r *report) Count() string { return r.summary() }

// report reads all results, and writes and returns the report.
func (s *store) report() (*report, error) {
	paths, err := filepath.Glob(filepath.Join(s.folder, "results", "*.json"))
	if err != nil {
		return nil, fmt.Errorf("listing results: %w", err)
	}
	summary := &report{Lacks: s.lacks, Written: time.Now().UTC().Format(time.RFC3339)}
	for _, path := range paths {
		found, err := read(path)
		if err != nil {
			return nil, err
		}
		switch found.Outcome {
		case passed:
			summary.Passed = append(summary.Passed, found)
			if s.known.Has(found.Name) {
				summary.Mended = append(summary.Mended, found)
			}
		case failed:
			found.Reason = strings.ReplaceAll(found.Reason, "|", `\|`)
			if s.known.Has(found.Name) {
				summary.Known = append(summary.Known, found)
			} else {
				summary.Failed = append(summary.Failed, found)
			}
		case skipped:
			summary.Skipped = append(summary.Skipped, found)
		}
	}
	for _, list := range [][]result{summary.Passed, summary.Failed, summary.Known, summary.Skipped, summary.Mended} {
		slices.SortFunc(list, func(a, b result) int { return cmp.Compare(a.Name, b.Name) })
	}
	var text strings.Builder
	if err := reportTemplate.Execute(&text, summary); err != nil {
		return nil, fmt.Errorf("writing the report: %w", err)
	}
	return summary, writeWhole(filepath.Join(s.folder, reportFile), []byte(text.String()))
}
