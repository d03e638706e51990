//go:build realnodes

package realnodes_test

import (
	"bufio"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLogs reads the log of a container that writes two numbered lines and then one a second.
func TestLogs(t *testing.T) {
	t.Parallel()
	tenant := tenant1(t)
	namespace := tenant.namespace(t, "logs", 1)
	tenant.create(t, namespace, newPod(t, "p", "echo line 1; echo line 2; while read -r word; do echo $word; done </dev/null; n=3; while :; do sleep 1; echo line $n; n=$((n+1)); done"))

	t.Run("follow sees lines as they come", func(t *testing.T) {
		command := tenant.kubectl(t, namespace, "logs", "-f", "p")
		stdout, err := command.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, command.Start())
		lines := linesOf(stdout)
		require.Equal(t, "line 1", next(t, lines))
		require.Equal(t, "line 2", next(t, lines))
		// Lines that are one second apart must not come together.
		require.Equal(t, "line 3", next(t, lines))
		for line := next(t, lines); !strings.HasSuffix(line, " 6"); line = next(t, lines) {
			require.Contains(t, line, "line ")
		}
		require.NoError(t, command.Process.Kill())
	})
	t.Run("tail", func(t *testing.T) {
		require.Len(t, strings.Split(strings.TrimSpace(tenant.run(t, namespace, "logs", "--tail=2", "p")), "\n"), 2)
	})
}

// linesOf sends what is read, line by line, and closes at the end.
func linesOf(r io.Reader) <-chan string {
	lines := make(chan string)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(r); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	return lines
}

// next is the next line, which must come in time.
func next(t *testing.T, lines <-chan string) string {
	t.Helper()
	select {
	case line, open := <-lines:
		require.True(t, open, "the stream ended")
		return line
	case <-time.After(patience):
		require.FailNow(t, "no line came")
		return ""
	}
}
