package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	plainTest  = "[sig-node] Pods should be updated [NodeConformance] [Conformance]"
	slowTest   = "[sig-apps] Job should be [Slow] [Conformance]"
	serialTest = "[sig-api-machinery] Namespaces [Serial] should go [Conformance]"
)

func TestParseTests(t *testing.T) {
	got := parseTests("The following spec names can be used with 'ginkgo run --focus/skip':\n" +
		"    k8s.io/kubernetes/test/e2e/apps/job.go:1: [sig-apps] Job  should end \n" +
		"    k8s.io/kubernetes/test/e2e/apps/job.go:2: " + slowTest + "\n" +
		"    k8s.io/kubernetes/test/e2e/apps/job.go:3: [sig-apps] Job should end\n")
	require.Empty(t, cmp.Diff([]string{"[sig-apps] Job should end"}, got))
	require.Regexp(t, focusOf(got[0]), "Kubernetes e2e suite [sig-apps] Job  should end ")
}

func TestChoose(t *testing.T) {
	all, err := parseSuite([]byte("- testname: a\n  codename: '[sig-node] Pods should be updated [NodeConformance]\n    [Conformance]'\n- codename: '" + slowTest + "'\n- codename: '" + serialTest + "'\n"))
	require.NoError(t, err)
	require.Empty(t, cmp.Diff([]string{plainTest, slowTest, serialTest}, all))
	for name, tc := range map[string]struct {
		focus, skip     string
		chosen, skipped []string
		wantError       bool
	}{
		"all":               {chosen: all},
		"focus":             {focus: "Pods", chosen: []string{plainTest}},
		"skip":              {skip: `\[Slow\]|\[Serial\]`, chosen: []string{plainTest}, skipped: []string{slowTest, serialTest}},
		"both":              {focus: "sig-(node|apps)", skip: "Slow", chosen: []string{plainTest}, skipped: []string{slowTest}},
		"nothing":           {focus: "NoSuchTest", wantError: true},
		"not an expression": {focus: "(", wantError: true},
	} {
		t.Run(name, func(t *testing.T) {
			chosen, skipped, err := choose(all, tc.focus, tc.skip)
			require.Equal(t, tc.wantError, err != nil, "%v", err)
			require.Empty(t, cmp.Diff(tc.chosen, chosen))
			require.Empty(t, cmp.Diff(tc.skipped, skipped))
		})
	}
}

func TestIsSerial(t *testing.T) {
	for test, want := range map[string]bool{
		plainTest: false, slowTest: false, serialTest: true,
		"[sig-network] Service CIDRs should create Services and serve on different Service CIDRs":             true,
		"[sig-network] ServiceCIDR and IPAddress API should support ServiceCIDR API operations [Conformance]": false,
	} {
		require.Equal(t, want, isSerial(test), test)
	}
}

// TestKnownFailures: what is known to fail fails no run, and is told of when it passes.
func TestKnownFailures(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "known.txt")
	require.NoError(t, os.WriteFile(path, []byte("# nodes are shared\n"+plainTest+"\n\n  "+slowTest+"\n"), 0o600))
	known, err := readKnown(path, []string{plainTest, slowTest, serialTest})
	require.NoError(t, err)
	results, err := openStore(folder)
	require.NoError(t, err)
	results.known = known
	for name, outcome := range map[string]outcome{plainTest: failed, slowTest: passed, serialTest: failed} {
		require.NoError(t, results.put(result{Name: name, Outcome: outcome}))
	}
	report, err := results.report()
	require.NoError(t, err)
	require.Equal(t, "1 passed, 1 failed, 1 failed as known, 0 skipped", report.summary())
	require.Equal(t, serialTest, report.Failed[0].Name)
	require.Equal(t, slowTest, report.Mended[0].Name)

	_, err = readKnown(path, []string{plainTest})
	require.ErrorContains(t, err, slowTest, "a test that was renamed is known no more")
	_, err = readKnown(filepath.Join(folder, "none"), nil)
	require.Error(t, err)
	known, err = readKnown("", nil)
	require.NoError(t, err)
	require.Empty(t, known)
}

// fakeSuite is a program that reports as the conformance tests do. What it does depends on the focus it gets.
const fakeSuite = `#!/bin/bash
for arg in "$@"; do
  case $arg in
    --ginkgo.junit-report=*) report=${arg#*=} ;;
    --ginkgo.focus=*) focus=${arg#*=} ;;
  esac
done
echo "$focus" >>"$RUNS"
case $focus in
  *updated*) case='<testcase name="[It] ` + plainTest + `" status="passed"></testcase>' code=0 ;;
  *Job*) case='<testcase name="[It] ` + slowTest + `" status="failed"><failure message="timed out  waiting | for
   the condition">x</failure></testcase>' code=1 ;;
  *) exit 3 ;;
esac
echo "<testsuites><testsuite><testcase name=\"[SynchronizedBeforeSuite]\" status=\"passed\"></testcase>$case</testsuite></testsuites>" >"$report"
exit $code
`

func TestRunnerStoresResultsAndResumes(t *testing.T) {
	folder := t.TempDir()
	binary, runs := filepath.Join(folder, "e2e.test"), filepath.Join(folder, "runs")
	require.NoError(t, os.WriteFile(binary, []byte(fakeSuite), 0o755))
	t.Setenv("RUNS", runs)
	results, err := openStore(filepath.Join(folder, "out"))
	require.NoError(t, err)
	require.NoError(t, results.skip([]string{"[sig-x] other [Conformance]"}))
	started := func() int {
		content, err := os.ReadFile(runs)
		require.NoError(t, err)
		return strings.Count(string(content), "\n")
	}

	tests := []string{plainTest, slowTest, serialTest}
	subject := &runner{store: results, out: io.Discard, binary: binary, timeout: 1, checkTenant: func(context.Context) error { return nil }}
	require.NoError(t, subject.run(t.Context(), tests, 2))
	require.Equal(t, 3, started())
	report, err := results.report()
	require.NoError(t, err)
	require.Equal(t, "1 passed, 2 failed, 0 failed as known, 1 skipped", report.summary())
	require.Equal(t, serialTest, report.Failed[0].Name)
	require.Contains(t, report.Failed[0].Reason, "exit status 3")
	require.Equal(t, `timed out waiting \| for the condition`, report.Failed[1].Reason)
	require.FileExists(t, filepath.Join(folder, "out", report.Failed[1].Log))
	text, err := os.ReadFile(filepath.Join(folder, "out", reportFile))
	require.NoError(t, err)
	require.Contains(t, string(text), "| "+slowTest+" | timed out waiting \\| for the condition |")

	require.NoError(t, subject.run(t.Context(), tests, 1), "a second run has nothing to do")
	require.Equal(t, 3, started())
	subject.again = true
	require.NoError(t, subject.run(t.Context(), tests, 1), "or runs again what failed")
	require.Equal(t, 5, started())
}

// TestFailuresWithoutATenantAreNoResults takes the tenant away under a run, as when its bed is taken down.
func TestFailuresWithoutATenantAreNoResults(t *testing.T) {
	folder := t.TempDir()
	binary := filepath.Join(folder, "e2e.test")
	require.NoError(t, os.WriteFile(binary, []byte(fakeSuite), 0o755))
	t.Setenv("RUNS", filepath.Join(folder, "runs"))
	results, err := openStore(filepath.Join(folder, "out"))
	require.NoError(t, err)
	away := errors.New("the tenant is away")
	subject := &runner{store: results, out: io.Discard, binary: binary, timeout: 1, checkTenant: func(context.Context) error { return away }}
	tests := []string{plainTest, slowTest, serialTest}
	require.ErrorIs(t, subject.run(t.Context(), tests, 1), away)
	report, err := results.report()
	require.NoError(t, err)
	require.Equal(t, "1 passed, 0 failed, 0 failed as known, 0 skipped", report.summary())

	away = nil
	require.NoError(t, subject.run(t.Context(), tests, 1), "the next run goes on")
	report, err = results.report()
	require.NoError(t, err)
	require.Equal(t, "1 passed, 2 failed, 0 failed as known, 0 skipped", report.summary())
}

func TestAnswers(t *testing.T) {
	for name, tc := range map[string]struct {
		code int
		want string
	}{
		"ready":     {code: http.StatusOK},
		"not ready": {code: http.StatusInternalServerError, want: "does not answer"},
		"another's": {code: http.StatusUnauthorized, want: "does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(tc.code) }))
			defer server.Close()
			tenant, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
			require.NoError(t, err)
			err = checkReady(t.Context(), server.URL, tenant)
			require.Equal(t, tc.want == "", err == nil, "%v", err)
			if tc.want != "" {
				require.ErrorContains(t, err, tc.want)
			}
			server.Close()
			require.ErrorContains(t, checkReady(t.Context(), server.URL, tenant), "does not answer")
		})
	}
}

func TestFocusOf(t *testing.T) {
	focus := regexp.MustCompile(focusOf(plainTest))
	require.Regexp(t, focus, "Kubernetes e2e suite [sig-node] Pods should be  updated [NodeConformance] [Conformance]")
	require.NotRegexp(t, focus, "Kubernetes e2e suite "+plainTest+" [Slow]")
	require.NotRegexp(t, focus, "Kubernetes e2e suite [sig-x] "+plainTest)
}

func TestReadJUnit(t *testing.T) {
	for name, tc := range map[string]struct {
		cases string
		want  result
	}{
		"passed": {
			cases: `<testcase name="[It] [sig-node] Pods  should be updated [NodeConformance] [Conformance] [sig-node]"/>`,
			want:  result{Outcome: passed},
		},
		"skips itself": {
			cases: `<testcase name="[It] ` + plainTest + `"><skipped message="skipped - needs 2 nodes"/></testcase>`,
			want:  result{Outcome: skipped, Reason: "skipped - needs 2 nodes"},
		},
		"did not run": {
			cases: `<testcase name="[It] ` + plainTest + `"><skipped message="skipped"/></testcase>`,
			want:  result{Outcome: failed, Reason: "the test did not run: its name is not in bin/e2e.test"},
		},
		"is not there": {
			cases: `<testcase name="[It] ` + slowTest + `"/>`,
			want:  result{Outcome: failed, Reason: "the test did not run: its name is not in bin/e2e.test"},
		},
		"the set-up fails": {
			cases: `<testcase name="[SynchronizedBeforeSuite]"><error message="no nodes"/></testcase><testcase name="[It] ` + plainTest + `"/>`,
			want:  result{Outcome: failed, Reason: "no nodes"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "junit.xml")
			require.NoError(t, os.WriteFile(path, []byte("<testsuites><testsuite>"+tc.cases+"</testsuite></testsuites>"), 0o600))
			ended, err := readJUnit(path, plainTest)
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(tc.want, ended))
		})
	}
}

func TestProblemEvent(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	require.Empty(t, problemEvent(log))
	require.NoError(t, os.WriteFile(log, []byte(`dump.go:53] At 2026-11-21 - event for web: {kubelet r1.node-1} Started: Started container
dump.go:53] At 0001-01-01 00:00:00 +0000 UTC - event for early: { } FailedScheduling: 0/1 nodes are available
dump.go:53] At 0001-01-01 00:00:00 +0000 UTC - event for early: { } Scheduled: Successfully assigned ns/early to r1
dump.go:53] At 0001-01-01 00:00:00 +0000 UTC - event for web: { } FailedScheduling: 0/1 nodes  are available
dump.go:53] At 0001-01-01 00:00:00 +0000 UTC - event for other: { } FailedMount: no volume
`), 0o600))
	require.Equal(t, "; Event of web: FailedScheduling: 0/1 nodes are available", problemEvent(log))
}

func TestFileNamesAreDistinct(t *testing.T) {
	long := strings.Repeat("x", 300)
	require.NotEqual(t, fileName(long+"a"), fileName(long+"b"))
	require.NotEqual(t, fileName("a b"), fileName("a-b"))
	require.NotContains(t, fileName("../[sig] a/b"), "/")
}
