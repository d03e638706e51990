// Command conformance runs the Kubernetes conformance tests against a tenant, one process per test, and writes a
// report.
//
// It skips tests that have a result, so the next run continues one that was interrupted. All state is in the output
// folder:
//
//	results/<test>.json  the test's result
//	logs/<test>.log      its output
//	report.md            passed, failed and skipped tests, and the reason of each failure
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	// SetupSignalHandler cancels the context at the first interrupt, and exits at the second.
	err := run(ctrl.SetupSignalHandler(), os.Args[1:], os.Stdout)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errFailures):
		os.Exit(1)
	default:
		_, _ = fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(2)
	}
}

// readyTimeout bounds a request for /readyz. It is long because on a busy machine an API server responds slowly.
const readyTimeout = 30 * time.Second

// errFailures means that tests failed: exit code 1. The report names them.
var errFailures = errors.New("some tests failed")

const usage = `Usage: conformance --kubeconfig FILE [flags]

Runs the Kubernetes conformance tests against a tenant control plane, one process per test, and writes OUT/report.md. A test that has
a result in OUT is not run again; delete its file in OUT/results, or use --again-failed.

Example:
  conformance --kubeconfig _output/realnodes/vc-sample-1.kubeconfig --focus 'ConfigMap' --skip 'Slow'

Exit code: 0 all passed, but for those that --known names; 1 some failed; 2 could not run.

Flags:
`

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("conformance", flag.ContinueOnError)
	flags.Usage = func() {
		_, _ = fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	kubeconfig := flags.String("kubeconfig", "", "kubeconfig of the tenant")
	binary := flags.String("e2e-test", "bin/e2e.test", "the conformance tests, built from k8s.io/kubernetes/test/e2e")
	kubectl := flags.String("kubectl", "bin/kubectl", "kubectl, which some tests run")
	folder := flags.String("out", "_output/conformance", "folder of results, logs and the report")
	focus := flags.String("focus", "", "run only tests whose name matches this regular expression")
	skip := flags.String("skip", "", "do not run tests whose name matches this regular expression")
	beyond := flags.Bool("beyond", false, "choose among the tests of the binary that are not conformance tests")
	workers := flags.Int("workers", 1, "tests that run in parallel; those marked [Serial] run alone, at the end")
	timeout := flags.Duration("timeout", 15*time.Minute, "time limit of one test")
	again := flags.Bool("again-failed", false, "run tests again that failed before")
	known := flags.String("known", "", "file with the tests that are known to fail, one a line; # begins a comment")
	asked := &room{}
	asked.addFlags(flags)
	quota := flags.Bool("quota", true, "create a ResourceQuota in every namespace of a test, as a tenant does to have a namespace placed")
	missing := flags.String("images-missing", "bin/images/missing", "file with the programs that the images of the bed lack; make realnodes-images writes it")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *kubeconfig == "" {
		return errors.New("--kubeconfig is missing (see --help)")
	}
	results, err := openStore(*folder)
	if err != nil {
		return err
	}
	config, tenant, err := connect(*kubeconfig)
	if err != nil {
		return err
	}
	runner := &runner{store: results, out: out, timeout: *timeout, again: *again, checkTenant: func(ctx context.Context) error { return checkReady(ctx, config.Host, tenant) }}
	for field, path := range map[*string]string{&runner.binary: *binary, &runner.kubectl: *kubectl, &runner.kubeconfig: *kubeconfig} {
		if *field, err = existing(path); err != nil {
			return err
		}
	}
	all, err := suite(ctx, runner.binary, *beyond)
	if err != nil {
		return err
	}
	chosen, err := results.choose(all, *focus, *skip, *known)
	if err != nil {
		return err
	}
	if err := results.readLacks(*missing, chosen, out); err != nil {
		return err
	}
	stopQuotas, err := setQuotas(ctx, config.Host, tenant, *quota, asked, out)
	if err != nil {
		return err
	}
	defer stopQuotas()
	runErr := runner.run(ctx, chosen, max(1, *workers))
	report, err := results.report()
	if err != nil {
		return err
	}
	for _, mended := range report.Mended {
		_, _ = fmt.Fprintf(out, "known to fail, and passed: %s\n", mended.Name)
	}
	_, _ = fmt.Fprintf(out, "%s\nreport: %s\n", report.summary(), filepath.Join(*folder, reportFile))
	switch {
	case runErr != nil:
		return runErr
	case len(report.Failed) > 0:
		return errFailures
	}
	return nil
}

// choose returns which of all tests are to be run, and records that the others are not, and which are known to fail.
func (s *store) choose(all []string, focus, skip, known string) (_ []string, err error) {
	if s.known, err = readKnown(known, all); err != nil {
		return nil, err
	}
	chosen, left, err := choose(all, focus, skip)
	if err != nil {
		return nil, err
	}
	return chosen, s.skip(left)
}

// connect returns a client of the tenant of kubeconfig, and its configuration. It sends no request.
func connect(kubeconfig string) (*rest.Config, kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	tenant, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("making a client of the tenant: %w", err)
	}
	return config, tenant, nil
}

// checkReady returns an error unless the tenant's /readyz is ok. A control plane that has replaced it at the same
// address refuses the client's certificate, which is an error too.
func checkReady(ctx context.Context, host string, tenant kubernetes.Interface) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := tenant.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return fmt.Errorf("the tenant at %s does not answer: %w", host, err)
	}
	return nil
}

// existing returns the absolute path of path, or an error where no file is there.
func existing(path string) (string, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("finding %s: %w", path, err)
	}
	if _, err := os.Stat(absolute); err != nil {
		return "", fmt.Errorf("a file is missing (make conformance builds what it needs): %w", err)
	}
	return absolute, nil
}
