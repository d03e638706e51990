// Command conformance runs the Kubernetes conformance tests against a tenant, one process per test, and writes a report.
//
// A test that has a result is not run again, so a run that was interrupted goes on where it was. Everything lies in the output folder:
//
//	results/<test>.json  how the test ended
//	logs/<test>.log      what it printed
//	report.md            passed, failed and skipped, and the reason of each failure
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:])
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errFailures):
		os.Exit(1)
	default:
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(2)
	}
}

// errFailures says that tests failed, which the report shows.
var errFailures = errors.New("some tests failed")

const usage = `Usage: conformance --kubeconfig FILE [flags]

Runs the Kubernetes conformance tests against a tenant control plane, one process per test, and writes OUT/report.md. A test that has
a result in OUT is not run again; delete its file in OUT/results, or use --again-failed.

Example:
  conformance --kubeconfig _output/realnodes/vc-sample-1.kubeconfig --focus 'ConfigMap' --skip 'Slow'

Exit code: 0 all passed, 1 some failed, 2 could not run.

Flags:
`

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("conformance", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	kubeconfig := flags.String("kubeconfig", "", "kubeconfig of the tenant")
	binary := flags.String("e2e-test", "bin/e2e.test", "the conformance tests, built from k8s.io/kubernetes/test/e2e")
	kubectl := flags.String("kubectl", "bin/kubectl", "kubectl, which some tests run")
	out := flags.String("out", "_output/conformance", "folder of results, logs and the report")
	focus := flags.String("focus", "", "run only tests whose name matches this regular expression")
	skip := flags.String("skip", "", "do not run tests whose name matches this regular expression")
	workers := flags.Int("workers", 1, "tests that run at once; those marked [Serial] run alone, at the end")
	timeout := flags.Duration("timeout", 15*time.Minute, "time that one test may take")
	again := flags.Bool("again-failed", false, "run tests again that failed before")
	quota := flags.Bool("quota", true, "put a ResourceQuota into every namespace of a test, as a tenant does for a namespace that is to hold pods")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *kubeconfig == "" {
		return errors.New("--kubeconfig is missing (see --help)")
	}
	results, err := openStore(*out)
	if err != nil {
		return err
	}
	runner := &runner{store: results, timeout: *timeout, again: *again}
	for field, path := range map[*string]string{&runner.binary: *binary, &runner.kubectl: *kubectl, &runner.kubeconfig: *kubeconfig} {
		if *field, err = filepath.Abs(path); err != nil {
			return fmt.Errorf("finding %s: %w", path, err)
		}
		if _, err := os.Stat(*field); err != nil {
			return fmt.Errorf("a file is missing (make conformance builds what it needs): %w", err)
		}
	}
	all, err := suite(ctx, runner.binary)
	if err != nil {
		return err
	}
	chosen, left, err := choose(all, *focus, *skip)
	if err != nil {
		return err
	}
	for _, name := range left {
		if err := results.skip(name); err != nil {
			return err
		}
	}
	if *quota {
		stop, err := keepQuotas(ctx, *kubeconfig)
		if err != nil {
			return err
		}
		defer stop()
	}
	runErr := runner.run(ctx, chosen, max(1, *workers))
	report, err := results.report()
	if err != nil {
		return err
	}
	fmt.Printf("%s\nreport: %s\n", report.summary(), filepath.Join(*out, reportFile))
	switch {
	case runErr != nil:
		return runErr
	case len(report.Failed) > 0:
		return errFailures
	}
	return nil
}
