//go:build e2e

package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// demoTimeout bounds one run of the demo. A warm one takes well under a minute; with DEMO_CHAOS the restarts of
// programs add to it.
const demoTimeout = 6 * time.Minute

// demoTail is how much a failed demo has printed last, in bytes: the step that failed, and why.
const demoTail = 6 << 10

var pageAddress = regexp.MustCompile(`http://127\.0\.0\.1:\d+/\S+`)

// requireServed gets the page whose address the demo prints.
func requireServed(t *testing.T, output string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, pageAddress.FindString(output), http.NoBody)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	body, err := io.ReadAll(response.Body)
	require.NoError(t, errors.Join(err, response.Body.Close()))
	require.Equal(t, http.StatusOK, response.StatusCode, "%s", body)
	require.Contains(t, string(body), "<title>Pool")
}

// TestDemo runs the demo, runs it again over the pool of the first run with every program of ours killed after every
// action, and removes the pool. The script checks each result, so exit code 0 of both runs means equal results.
func TestDemo(t *testing.T) {
	dir := filepath.Join(root(t), "_output", "e2e")
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		logs, _ := filepath.Glob(filepath.Join(dir, "logs", "*.log"))
		for _, log := range logs {
			t.Logf("end of %s:\n%s", log, tail(t, log, 8<<10))
		}
		// t.Context() is cancelled before cleanups run, so the removal of the pool needs another context.
		output, err := run(context.WithoutCancel(t.Context()), t, "hack/demo-down.sh", "DEMO_DIR="+dir)
		t.Logf("demo-down: %v\n%s", err, output)
	})

	for _, tc := range []struct {
		name  string
		chaos string
		delay string
	}{
		{name: "from nothing"},
		{name: "again, with vc-scheduler killed right after every action", chaos: "vc-scheduler"},
		{name: "again, with the syncers killed soon after every action", chaos: "syncer-r1 syncer-r2", delay: "0.2"},
		{name: "again, with every program killed in the middle of its work", chaos: "vc-scheduler syncer-r1 syncer-r2", delay: "0.05"},
	} {
		ok := t.Run(tc.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), demoTimeout)
			defer cancel()
			started := time.Now()
			output, err := run(ctx, t, "hack/demo.sh", "DEMO_DIR="+dir, "DEMO_CHAOS="+tc.chaos, "DEMO_CHAOS_DELAY="+tc.delay)
			require.NoError(t, err, "the demo failed; its end:\n%s", output[max(0, len(output)-demoTail):])
			require.Contains(t, output, "every check passed")
			if tc.chaos != "" {
				require.Contains(t, output, "kill -9 "+strings.Fields(tc.chaos)[0], "no program was killed")
			}
			requireServed(t, output)
			t.Logf("the demo took %s", time.Since(started).Round(time.Second))
		})
		require.True(t, ok, "later cases need the pool of this one")
	}

	t.Run("its placement comes out every time", func(t *testing.T) { placements(t, dir) })

	t.Run("a DaemonSet runs on every node", func(t *testing.T) { daemons(t, dir) })

	t.Run("a tenant is a federation", func(t *testing.T) { federation(t, dir) })

	t.Run("a standby takes over from a leader that is killed", func(t *testing.T) { standby(t, dir) })

	t.Run("taken down", func(t *testing.T) {
		require.NotEmpty(t, processesOf(t, dir), "the pool must still run")
		output, err := run(t.Context(), t, "hack/demo-down.sh", "DEMO_DIR="+dir)
		require.NoError(t, err, output)
		require.NoDirExists(t, dir)
		require.Empty(t, processesOf(t, dir), "processes of the demo are left")
		output, err = run(t.Context(), t, "hack/demo-down.sh", "DEMO_DIR="+dir)
		require.NoError(t, err, "taking down nothing must succeed:\n%s", output)
	})
}

// TestDemoSingle runs the demo of a cluster without a pool, with the syncer killed after every action.
func TestDemoSingle(t *testing.T) {
	dir := filepath.Join(root(t), "_output", "e2e-single")
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of syncer.log:\n%s", tail(t, filepath.Join(dir, "logs", "syncer.log"), 8<<10))
		}
		output, err := run(context.WithoutCancel(t.Context()), t, "hack/demo-down.sh", "DEMO_DIR="+dir)
		if err != nil {
			t.Errorf("demo-down: %v\n%s", err, output)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), demoTimeout)
	defer cancel()
	output, err := run(ctx, t, "hack/demo-single.sh", "DEMO_DIR="+dir, "DEMO_CHAOS=syncer", "DEMO_CHAOS_DELAY=0.2")
	require.NoError(t, err, "the demo failed; its end:\n%s", output[max(0, len(output)-demoTail):])
	require.Contains(t, output, "every check passed")
	require.Contains(t, output, "kill -9 syncer", "the syncer was not killed")
}

// TestDemoNamesTheFailedStep checks that a failed run prints the step and the path of the logs.
func TestDemoNamesTheFailedStep(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	output, err := run(t.Context(), t, "hack/demo.sh", "DEMO_DIR="+filepath.Join(file, "demo"))
	require.Error(t, err, output)
	require.Contains(t, output, "FAILED in step: Start four control planes")
	require.Contains(t, output, filepath.Join(file, "demo", "logs"))
}

// run runs a script of the repository and returns what it printed on both streams.
func run(ctx context.Context, t *testing.T, script string, environment ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(ctx, filepath.Join(root(t), script))
	command.Dir = root(t)
	command.Env = append(os.Environ(), environment...)
	// The control planes of a killed script keep its output open; WaitDelay bounds the wait for its end.
	command.WaitDelay = 10 * time.Second
	output, err := command.CombinedOutput()
	return string(output), err
}

// root returns the root of the repository.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	return dir
}

// processesOf returns the command lines of running processes that contain dir.
func processesOf(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	var found []string
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			continue // it ended
		}
		line := string(bytes.ReplaceAll(content, []byte{0}, []byte{' '}))
		if strings.Contains(line, dir+string(filepath.Separator)) {
			found = append(found, line)
		}
	}
	return found
}

// tail returns the last bytes of a file, or why it cannot be read.
func tail(t *testing.T, file string, bytes int) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(content[max(0, len(content)-bytes):])
}
