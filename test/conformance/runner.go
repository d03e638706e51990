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
	// out is told how each test ended.
	out io.Writer
	// binary, kubectl and kubeconfig are absolute paths.
	binary, kubectl, kubeconfig string
	// timeout of one test.
	timeout time.Duration
	// again says that tests which failed before are run again.
	again bool
	// answers returns why the tenant that the run began with does not answer, nil if it does.
	answers func(context.Context) error
}

// run runs the tests that have no result yet, those that must be alone last. It returns when all are done, or ctx ends.
func (r *runner) run(ctx context.Context, tests []string, workers int) error {
	var parallel, serial []string
	for _, test := range tests {
		known, exists, err := r.store.get(test)
		switch {
		case err != nil:
			return err
		case exists && known.Outcome != skipped && (known.Outcome != failed || !r.again):
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

// one runs a test in a process of its own. Its error says that the test could not be run, or that ctx ended; the test has no result then.
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
		// The nodes of a tenant are kept unschedulable: its scheduler chooses super clusters. Looking for schedulable ones would find none and fail.
		"--num-nodes=1", "--allowed-not-ready-nodes=-1",
	)
	command.Dir = reports
	command.Stdout, command.Stderr = log, log
	// It ends as on Ctrl-C, so that it removes its namespaces.
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGINT) }
	command.WaitDelay = 2 * time.Minute
	// Ctrl-C reaches us alone; one interrupt is a request to clean up, two are not.
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
		// It died before it could say how the test ended.
		ended = result{Outcome: failed, Reason: fmt.Sprintf("the test process ended without a result: %v", runErr)}
	}
	if ended.Outcome == failed {
		// Without a tenant every test fails, which says nothing of the tenant: the next run goes on here.
		if err := r.answers(ctx); err != nil {
			return result{}, fmt.Errorf("%s failed, and has no result: %w", test, err)
		}
		ended.Reason += problemEvent(logPath)
	}
	ended.Name, ended.Seconds, ended.Log = test, time.Since(started).Seconds(), r.store.logPath(test)
	return ended, nil
}

// focusOf returns a regular expression for one test. The text that it is matched with begins with the suite's name, and keeps white space
// that the list of tests folds.
func focusOf(test string) string {
	return `^Kubernetes e2e suite ` + strings.ReplaceAll(regexp.QuoteMeta(test), " ", `\s+`) + "$"
}

// junitReport is what is read of ginkgo's report.
type junitReport struct {
	Cases []struct {
		Name    string        `xml:"name,attr"`
		Failure *junitMessage `xml:"failure"`
		Error   *junitMessage `xml:"error"`
		Skipped *junitMessage `xml:"skipped"`
	} `xml:"testsuite>testcase"`
}

// notFocused is what the report says of a test that was not asked for. One that skips itself says why.
const notFocused = "skipped"

type junitMessage struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// readJUnit returns how a test ended. A failure of the suite's own set-up is one of the test.
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
		found := &parsed.Cases[i]
		for _, problem := range []*junitMessage{found.Failure, found.Error} {
			if problem != nil {
				return result{Outcome: failed, Reason: firstLine(problem)}, nil
			}
		}
		if !strings.Contains(strings.Join(strings.Fields(found.Name), " "), test) {
			continue
		}
		if found.Skipped == nil {
			ended = result{Outcome: passed}
		} else if reason := firstLine(found.Skipped); reason != notFocused {
			ended = result{Outcome: skipped, Reason: reason}
		}
	}
	return ended, nil
}

// printedEvents are lines that tests which fail print of the Events in their namespaces: object, reason, message.
var printedEvents = regexp.MustCompile(`event for (\S+): \{[^}]*\} (\w+): (.*)`)

// problemEvent returns the first Event in a log that tells of a problem, in a form to be added to the reason: a test that waits in vain
// seldom says for what. A pod that was scheduled in the end was only too early.
func problemEvent(logPath string) string {
	content, err := os.ReadFile(logPath)
	if err != nil {
		return ""
	}
	events := printedEvents.FindAllStringSubmatch(string(content), -1)
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

// firstLine returns the beginning of what a failed test says, in one line.
func firstLine(problem *junitMessage) string {
	text := problem.Message
	if strings.TrimSpace(text) == "" {
		text = problem.Text
	}
	return oneLine(text)
}

func oneLine(text string) string {
	const limit = 300
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "") + " ..."
	}
	return text
}
