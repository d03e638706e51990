package main

import (
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// excerptLines is how many lines of a failed test's output the report shows.
const excerptLines = 20

// event is a line of `go test -json`: go doc test2json.
type event struct {
	Action  string
	Package string
	// ImportPath is the package of a compiler's message.
	ImportPath string
	Test       string
	Elapsed    float64
	Output     string
}

// parseEvent reads a line; false for one that is something else, such as what a script prints.
func parseEvent(line string) (event, bool) {
	var e event
	if !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &e) != nil || e.Action == "" {
		return event{}, false
	}
	return e, e.Package != "" || e.ImportPath != ""
}

// testName names a test; Test is "" for its package.
type testName struct{ pkg, test string }

func (n testName) String() string { return strings.TrimSuffix(n.pkg+" "+n.test, " ") }

// testRun is a test that has run, or runs.
type testRun struct {
	testName
	seconds float64
	failed  bool
	ended   bool
	output  []string
}

// tests are those of a target that have run. The zero value has none.
type tests struct {
	runs map[testName]*testRun
	// passed is how many there were, without their subtests.
	passed int
}

// add takes an event, and returns the test that it ended, if it has failed.
func (t *tests) add(e event) *testRun {
	if t.runs == nil {
		t.runs = map[testName]*testRun{}
	}
	name := testName{pkg: cmp.Or(e.Package, e.ImportPath), test: e.Test}
	run := t.runs[name]
	if run == nil {
		run = &testRun{testName: name}
		t.runs[name] = run
	}
	switch e.Action {
	case "output", "build-output":
		run.output = append(run.output, strings.TrimRight(e.Output, "\n"))
	case "pass", "skip":
		run.seconds, run.output, run.ended = e.Elapsed, nil, true
		if e.Action == "pass" && e.Test != "" && !strings.Contains(e.Test, "/") {
			t.passed++
		}
	case "fail", "build-fail":
		run.seconds, run.failed, run.ended = e.Elapsed, true, true
		return run
	}
	return nil
}

// failures returns what has failed, without what only contains it: the subtest, not its test; the test, not its
// package.
func (t *tests) failures() []*testRun {
	var all []*testRun
	for _, run := range t.runs {
		if run.failed {
			all = append(all, run)
		}
	}
	slices.SortFunc(all, func(a, b *testRun) int { return cmp.Or(cmp.Compare(a.pkg, b.pkg), cmp.Compare(a.test, b.test)) })
	return innermost(all)
}

// unfinished returns the tests that have begun and not ended: when a target is ended, one of them may hang.
func (t *tests) unfinished() []*testRun {
	var all []*testRun
	for _, run := range t.runs {
		if !run.ended && run.test != "" {
			all = append(all, run)
		}
	}
	slices.SortFunc(all, func(a, b *testRun) int { return cmp.Or(cmp.Compare(a.pkg, b.pkg), cmp.Compare(a.test, b.test)) })
	return innermost(all)
}

func innermost(all []*testRun) []*testRun {
	return slices.DeleteFunc(slices.Clone(all), func(run *testRun) bool {
		return slices.ContainsFunc(all, func(other *testRun) bool { return run.contains(other.testName) })
	})
}

func (r *testRun) contains(other testName) bool {
	if r.pkg != other.pkg || r.test == other.test {
		return false
	}
	return r.test == "" || strings.HasPrefix(other.test, r.test+"/")
}

// slowest returns the n tests that took longest, without subtests.
func (t *tests) slowest(n int) []*testRun {
	var all []*testRun
	for _, run := range t.runs {
		if run.test != "" && !strings.Contains(run.test, "/") {
			all = append(all, run)
		}
	}
	slices.SortFunc(all, func(a, b *testRun) int {
		return cmp.Or(-cmp.Compare(a.seconds, b.seconds), cmp.Compare(a.String(), b.String()))
	})
	return all[:min(n, len(all))]
}

// telling matches a line that says why a test failed: testify's, the testing package's, the race detector's, a panic's.
// What programs have logged before may be thousands of lines.
var telling = regexp.MustCompile(`Error Trace:|^panic: |^fatal error: |DATA RACE|^\s*\S+_test\.go:\d+: |^# `)

// excerpt returns the lines from the first one that says why, or else the last ones.
func excerpt(output []string) []string {
	start := slices.IndexFunc(output, telling.MatchString)
	if start < 0 {
		return output[max(0, len(output)-excerptLines):]
	}
	return output[start:min(start+excerptLines, len(output))]
}
