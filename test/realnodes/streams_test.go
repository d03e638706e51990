//go:build realnodes

package realnodes_test

import (
	"bufio"
	"context"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// streams is how many readers follow one container.
const streams = 200

// TestManyStreams follows one container with many readers: each sees a line that is written when all of them are there.
func TestManyStreams(t *testing.T) {
	t.Parallel()
	tenant := tenant1(t)
	namespace := tenant.namespace(t, "streams", 1)
	tenant.create(t, namespace, newPod(t, "p", "echo first; until [ -e /tmp/go ]; do sleep 0.2; done; echo second; exec sleep 3600"))

	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	all := make(chan struct{}, streams)
	for range streams {
		group.Go(func() error {
			// A connection of its own for each.
			config := rest.CopyConfig(tenant.config)
			config.Dial = (&net.Dialer{Timeout: patience}).DialContext
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				return err
			}
			stream, err := client.CoreV1().Pods(namespace).GetLogs("p", &corev1.PodLogOptions{Follow: true}).Stream(ctx)
			if err != nil {
				return err
			}
			defer func() { _ = stream.Close() }()
			for lines := bufio.NewScanner(stream); lines.Scan(); {
				switch lines.Text() {
				case "first":
					all <- struct{}{}
				case "second":
					return nil
				}
			}
			return context.Cause(ctx)
		})
	}
	for n := range streams {
		select {
		case <-all:
		case <-ctx.Done():
			require.FailNow(t, "not all streams started", "%d of %d: %v", n, streams, context.Cause(ctx))
		}
	}
	tenant.run(t, namespace, "exec", "p", "--", "touch", "/tmp/go")
	require.NoError(t, group.Wait())
}

// TestVNAgentKilled kills the vn-agents of a node under streams, and the kubelet starts them again. It does not run beside other tests, whose streams would end.
func TestVNAgentKilled(t *testing.T) {
	tenant := tenant1(t)
	namespace := tenant.namespace(t, "killed", 1)
	pod := tenant.create(t, namespace, newPod(t, "p", "while :; do echo line; sleep 0.2; done"))
	id, _, _ := strings.Cut(pod.Spec.NodeName, ".")

	var streams []<-chan string
	for range 3 {
		lines := tenant.start(t, namespace, "logs", "-f", "p")
		require.Equal(t, "line", next(t, lines))
		streams = append(streams, lines)
	}
	kill := `for process in /proc/[0-9]*; do [[ $(cat "$process/comm" 2>/dev/null) != vn-agent ]] || kill -KILL "${process#/proc/}"; done`
	output, err := exec.CommandContext(t.Context(), filepath.Join(root(t), "hack", "realnodes", "node.sh"), id, "bash", "-c", kill).CombinedOutput()
	require.NoError(t, err, string(output))

	for _, lines := range streams {
		ends(t, lines)
	}
	tenant.eventuallyPrints(t, namespace, "line", "logs", "--tail=1", "p")
	require.Equal(t, "line", next(t, tenant.start(t, namespace, "logs", "-f", "--tail=1", "p")))
	require.Equal(t, "hello\n", tenant.run(t, namespace, "exec", "p", "--", "echo", "hello"))
}

// ends waits until a stream has ended.
func ends(t *testing.T, lines <-chan string) {
	t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case _, open := <-lines:
			if !open {
				return
			}
		case <-deadline:
			require.FailNow(t, "a stream goes on without its vn-agent")
		}
	}
}
