package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

const module = "github.com/superpool/superpool/"

// say prints for who reads. That nobody can is no reason to end a target.
func say(out io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(out, format, args...) }

// report of all targets of one call.
type report struct {
	commit  string
	clean   bool
	results []result
}

// failed returns whether any target has. One that this machine cannot run has not, unless every change is judged by it.
func (r *report) failed() bool {
	return slices.ContainsFunc(r.results, func(result result) bool {
		switch result.outcome { //nolint:exhaustive // the others have not failed
		case failed, timedOut, cutOff:
			return true
		case cannotRun:
			return result.target.lands
		}
		return false
	})
}

// unbuilt returns whether what the other targets need could not be built.
func (r *report) unbuilt() bool {
	return slices.ContainsFunc(r.results, func(result result) bool { return result.target.builds && result.outcome != passed })
}

// print writes the report, and the table of targets to a file besides.
func (r *report) print(out io.Writer, path string) error {
	for i := range r.results {
		printFailures(out, &r.results[i])
	}
	r.printSlowest(out)
	table := r.table()
	say(out, "\n%s", table)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("writing the table of targets: %w", err)
	}
	if err := os.WriteFile(path, []byte(table), 0o644); err != nil {
		return fmt.Errorf("writing the table of targets: %w", err)
	}
	return nil
}

// printFailures prints each test of a target that failed, and what it said; where no test has, the target's last lines.
func printFailures(out io.Writer, done *result) {
	if done.outcome == passed || done.outcome == notRun {
		return
	}
	failures := done.tests.failures()
	if done.outcome != failed {
		failures = append(failures, done.tests.unfinished()...)
	}
	for _, test := range failures {
		say(out, "\n--- FAIL: %s (%.2fs)\n    target %s, package %s\n", cmp.Or(test.test, "the package"), test.seconds, done.target.name, test.pkg)
		printLines(out, excerpt(test.output))
		if done.target.again != "" && test.test != "" {
			say(out, "    again: %s\n", done.target.rerun(test.testName))
		}
	}
	if len(failures) == 0 || done.target.again == "" {
		say(out, "\n%s: %s\n", done.target.name, done.outcome)
		printLines(out, done.lines[max(0, len(done.lines)-excerptLines):])
		say(out, "    again: %s\n", done.target.command(done.seed))
	}
	say(out, "    all of it: %s\n", done.log)
}

// maxLine is how many bytes of a line are printed.
const maxLine = 400

func printLines(out io.Writer, lines []string) {
	for _, line := range lines {
		say(out, "      %s\n", line[:min(len(line), maxLine)])
	}
}

// rerun returns what runs a test alone.
func (t *target) rerun(test testName) string {
	name, _, _ := strings.Cut(test.test, "/")
	return strings.NewReplacer("{package}", strings.TrimPrefix(test.pkg, module), "{test}", name).Replace(t.again)
}

// slowestTests is how many the report lists.
const slowestTests = 10

func (r *report) printSlowest(out io.Writer) {
	var all []*testRun
	for i := range r.results {
		all = append(all, r.results[i].tests.slowest(slowestTests)...)
	}
	slices.SortStableFunc(all, func(a, b *testRun) int { return -cmp.Compare(a.seconds, b.seconds) })
	if len(all) == 0 {
		return
	}
	say(out, "\nThe slowest tests:\n")
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, test := range all[:min(slowestTests, len(all))] {
		say(table, "%.1f s\t  %s %s\n", test.seconds, strings.TrimPrefix(test.pkg, module), test.test)
	}
	_ = table.Flush()
}

// table is one row for each target.
func (r *report) table() string {
	var text strings.Builder
	tree := ""
	if !r.clean {
		tree = ", with changes"
	}
	say(&text, "Targets at %s%s:\n", short(r.commit), tree)
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	var all time.Duration
	for i := range r.results {
		done := &r.results[i]
		all += done.took
		say(table, "  %s\t%s\t%s\t%d tests\t%s\n", done.target.name, done.outcome, minutes(done.took), done.tests.passed, done.remark())
	}
	whole := passed
	if r.failed() {
		whole = failed
	}
	say(table, "  all\t%s\t%s\t\t\n", whole, minutes(all))
	_ = table.Flush()
	return text.String()
}

// remark says why a target was not run, or the seed of one that was.
func (r *result) remark() string {
	if r.seed != 0 {
		return fmt.Sprintf("seed %d", r.seed)
	}
	return r.why
}

func minutes(d time.Duration) string {
	d = d.Round(time.Second)
	return fmt.Sprintf("%3d min %02d s", int(d.Minutes()), int(d.Seconds())%60)
}

// printRan prints a table of what is kept.
func printRan(ctx context.Context, out io.Writer, kept store, repository repository, now time.Time) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	say(table, "TARGET\tLAST PASSED\tINPUTS SINCE\tLAST RUN\tSEED\tTAKES\n")
	for i := range targets {
		target := &targets[i]
		past, err := kept.get(target.name)
		if err != nil {
			return err
		}
		say(table, "%s\n", strings.Join(ranColumns(ctx, target, &past, repository, now), "\t"))
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("printing the table: %w", err)
	}
	return nil
}

func ranColumns(ctx context.Context, target *target, past *history, repository repository, now time.Time) []string {
	columns := []string{target.name, "never", "", "never", "", ""}
	if green := past.Green; green != nil {
		columns[1] = fmt.Sprintf("%s, %s ago", short(green.Commit), ago(now.Sub(green.Started)))
		columns[2] = "unknown"
		if changed, known := repository.changedSince(ctx, green.Commit, target.inputs); known {
			columns[2] = fmt.Sprintf("%d commits", changed)
		}
		columns[5] = minutes(time.Duration(green.Seconds) * time.Second)
	}
	if last := past.Last; !last.Started.IsZero() {
		columns[3] = fmt.Sprintf("%s at %s, %s ago", last.Outcome, short(last.Commit), ago(now.Sub(last.Started)))
		if !last.Clean {
			columns[3] += ", with changes"
		}
		if last.Seed != 0 {
			columns[4] = fmt.Sprint(last.Seed)
		}
	}
	if len(past.FailedSeeds) > 0 {
		columns[4] += fmt.Sprintf(", failed %v", past.FailedSeeds)
	}
	return columns
}

// ago rounds to what a reader wants to know.
func ago(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d >= 2*day:
		return fmt.Sprintf("%d d", int(d/day))
	case d >= 2*time.Hour:
		return fmt.Sprintf("%d h", int(d/time.Hour))
	}
	return fmt.Sprintf("%d min", int(d/time.Minute))
}
