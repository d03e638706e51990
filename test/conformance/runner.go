package main

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// runner runs tests and stores their results.
type runner struct {
	store *store
	// out gets a line for each test that ended.
	out io.Writer
	// binary, kubectl and kubeconfig are absolute paths.
	binary, kubectl, kubeconfig string
	// timeout bounds one test.
	timeout time.Duration
	// again makes run repeat tests whose result is failed.
	again bool
	// checkTenant returns an error where the tenant that the run began with is not ready.
	checkTenant func(context.Context) error
}

// run runs the tests that have no result yet, serial ones last and one by one. It returns when all have ended, with an
// error when one could not be run or ctx ended.
func (r *runner) run(ctx context.Context, tests []string, workers int) error {
	var parallel, serial []string
	for _, test := range tests {
		previous, exists, err := r.store.get(test)
		switch {
		case err != nil:
			return err
		case exists && previous.Outcome != skipped && (previous.Outcome != failed || !r.again):
			continue
		case isSerial(test):
			serial = append(serial, test)
		default:
			parallel = append(parallel, test)
		}
	}
	left := len(parallel) + len(serial)
	_, _ = fmt.Fprintf(r.out, "%d tests, %d have a result already\n", len(tests), len(tests)-left)
	var done atomic.Int64
	for _, batch := range []struct {
		tests   []string
		workers int
	}{{parallel, workers}, {serial, 1}} {
		group, groupCtx := errgroup.WithContext(ctx)
		group.SetLimit(batch.workers)
		for _, test := range batch.tests {
			group.Go(func() error {
				if groupCtx.Err() != nil {
					return groupCtx.Err()
				}
				ended, err := r.one(groupCtx, test)
				if err != nil {
					return err
				}
				line := fmt.Sprintf("%4d/%d %-7s %5.0f s  %s\n", done.Add(1), left, ended.Outcome, ended.Seconds, test)
				if ended.Reason != "" {
					line += fmt.Sprintf("                         %s\n", ended.Reason)
				}
				_, _ = io.WriteString(r.out, line)
				return r.store.put(ended)
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// one runs a test in its own process. An error means that the test has no result: it could not be run, the tenant is
// not ready, or ctx ended.
func (r *runner) one(ctx context.Context, test string) (result, error) {
	logPath := filepath.Join(r.store.folder, r.store.logPath(test))
	log, err := os.Create(logPath)
	if err != nil {
		return result{}, fmt.Errorf("making a log: %w", err)
	}
	defer func() { _ = log.Close() }()
	reports, err := os.MkdirTemp("", "conformance-")
	if err != nil {
		return result{}, fmt.Errorf("making a folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(reports) }()

	junit := filepath.Join(reports, "junit.xml")
	command := exec.CommandContext(ctx, r.binary,
		"--ginkgo.focus="+focusOf(test), "--ginkgo.no-color", "--ginkgo.timeout="+r.timeout.String(), "--ginkgo.junit-report="+junit,
		"--kubeconfig="+r.kubeconfig, "--kubectl-path="+r.kubectl, "--provider=skeleton",
	)
	command.Dir = reports
	command.Stdout, command.Stderr = log, log
	// SIGINT makes ginkgo clean up, which deletes the test's namespaces.
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGINT) }
	command.WaitDelay = 2 * time.Minute
	// In its own process group it gets no second SIGINT from the terminal, which would end it without cleaning up.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	started := time.Now()
	runErr := command.Run()
	if ctx.Err() != nil {
		return result{}, ctx.Err()
	}
	if exit := (&exec.ExitError{}); runErr != nil && !errors.As(runErr, &exit) {
		return result{}, fmt.Errorf("running %s: %w", r.binary, runErr)
	}
	ended, err := readJUnit(junit, test)
	if err != nil {
		// The process ended before it wrote a report.
		ended = result{Outcome: failed, Reason: fmt.Sprintf("the test process ended without a result: %v", runErr)}
	}
	if ended.Outcome == failed {
		// Every test fails while the tenant's control plane is down. Without a result the next run repeats it.
		if err := r.checkTenant(ctx); err != nil {
			return result{}, fmt.Errorf("%s failed, and has no result: %w", test, err)
		}
		ended.Reason += problemEvent(logPath)
	}
	ended.Name, ended.Seconds, ended.Log = test, time.Since(started).Seconds(), r.store.logPath(test)
	return ended, nil
}

// focusOf returns a regular expression that matches one test. ginkgo matches it with a text that begins with the
// suite's name and keeps the white space that parseSuite folds.
func focusOf(test string) string {
	return `^Kubernetes e2e suite ` + strings.ReplaceAll(regexp.QuoteMeta(test), " ", `\s+`) + `\s*$`
}

// junitReport holds the fields of ginkgo's JUnit report that readJUnit reads.
type junitReport struct {
	Cases []struct {
		Name    string        `xml:"name,attr"`
		Failure *junitMessage `xml:"failure"`
		Error   *junitMessage `xml:"error"`
		Skipped *junitMessage `xml:"skipped"`
	} `xml:"testsuite>testcase"`
}

// notFocused is the skip message of a test that --ginkgo.focus does not match. A test that skips itself has another.
const notFocused = "skipped"

type junitMessage struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// readJUnit returns the outcome and reason of test in a JUnit report. A failure of the suite's own set-up counts as one
// of the test.
func readJUnit(path, test string) (result, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return result{}, fmt.Errorf("reading the report: %w", err)
	}
	var parsed junitReport
	if err := xml.Unmarshal(content, &parsed); err != nil {
		return result{}, fmt.Errorf("parsing the report: %w", err)
	}
	ended := result{Outcome: failed, Reason: "the test did not run: its name is not in bin/e2e.test"}
	for i := range parsed.Cases {
		testCase := &parsed.Cases[i]
		for _, problem := range []*junitMessage{testCase.Failure, testCase.Error} {
			if problem != nil {
				return result{Outcome: failed, Reason: firstLine(problem)}, nil
			}
		}
		if !strings.Contains(strings.Join(strings.Fields(testCase.Name), " "), test) {
			continue
		}
		if testCase.Skipped == nil {
			ended = result{Outcome: passed}
		} else if reason := firstLine(testCase.Skipped); reason != notFocused {
			ended = result{Outcome: skipped, Reason: reason}
		}
	}
	return ended, nil
}

// eventPattern matches the lines in which a failed test prints the Events of its namespace: object, reason, message.
var eventPattern = regexp.MustCompile(`event for (\S+): \{[^}]*\} (\w+): (.*)`)

// problemEvent returns a suffix for the reason of a failure: the first Event in the log with a reason Failed..., ""
// without one. The message of a test that timed out seldom names the cause. FailedScheduling of a pod that was
// Scheduled later does not count.
func problemEvent(logPath string) string {
	content, err := os.ReadFile(logPath)
	if err != nil {
		return ""
	}
	events := eventPattern.FindAllStringSubmatch(string(content), -1)
	scheduled := map[string]bool{}
	for _, event := range events {
		if event[2] == "Scheduled" {
			scheduled[event[1]] = true
		}
	}
	for _, event := range events {
		object, reason := event[1], event[2]
		if !strings.HasPrefix(reason, "Failed") || reason == "FailedScheduling" && scheduled[object] {
			continue
		}
		return fmt.Sprintf("; Event of %s: %s: %s", object, reason, oneLine(event[3]))
	}
	return ""
}

// firstLine returns the beginning of a JUnit message, in one line.
func firstLine(problem *junitMessage) string {
	text := problem.Message
	if strings.TrimSpace(text) == "" {
		text = problem.Text
	}
	return oneLine(text)
}

// oneLine folds white space, and cuts text at limit bytes.
func oneLine(text string) string {
	const limit = 300
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "") + " ..."
	}
	return text
}
