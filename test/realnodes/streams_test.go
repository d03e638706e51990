//go:build realnodes

package realnodes_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/utils/ptr"
)

// streams is the number of readers that follow one container.
const streams = 200

// TestManyStreams follows one container with many readers: each reads a line that is written after all of them are
// connected.
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
			// Each reader has its own connection.
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
			if err := context.Cause(ctx); err != nil {
				return err
			}
			return errors.New("a stream ended before its second line")
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

// TestVNAgentKilled kills the vn-agents of a super cluster while streams run; the kubelets restart them. Before the
// API server any of them may carry a stream. It does not run in parallel with other tests, whose streams would end.
func TestVNAgentKilled(t *testing.T) {
	tenant := tenant1(t)
	namespace := tenant.namespace(t, "killed", 1)
	pod := tenant.create(t, namespace, newPod(t, "p", "while :; do echo line; sleep 0.2; done"))

	var streams []<-chan string
	for range 3 {
		lines := tenant.start(t, namespace, "logs", "-f", "p")
		require.Equal(t, "line", next(t, lines))
		streams = append(streams, lines)
	}
	kill := `for process in /proc/[0-9]*; do [[ $(cat "$process/comm" 2>/dev/null) != vn-agent ]] || kill -KILL "${process#/proc/}"; done`
	superCluster, _, _ := strings.Cut(pod.Spec.NodeName, ".")
	for _, node := range bedNodes {
		if !strings.HasPrefix(node, superCluster+".") {
			continue
		}
		output, err := exec.CommandContext(t.Context(), filepath.Join(root(t), "hack", "realnodes", "node.sh"), hostOfNode(node), "bash", "-c", kill).CombinedOutput()
		require.NoError(t, err, string(output))
	}

	for _, lines := range streams {
		ends(t, lines)
	}
	tenant.eventuallyPrints(t, namespace, "line", "logs", "--tail=1", "p")
	require.Equal(t, "line", next(t, tenant.start(t, namespace, "logs", "-f", "--tail=1", "p")))
	require.Equal(t, "hello\n", tenant.run(t, namespace, "exec", "p", "--", "echo", "hello"))
}

// TestSlowReaders does not read from full streams: flow control stops the kubelet and the container, and vn-agent
// buffers a bounded amount. It does not run in parallel with other tests, whose streams need memory too.
func TestSlowReaders(t *testing.T) {
	const (
		readers = 4
		size    = 48 << 20
		// allowed covers the buffers of each stream, and garbage that is not collected yet.
		allowed = 24 << 20
	)
	tenant := tenant1(t)
	namespace := tenant.namespace(t, "slow", 1)
	tenant.create(t, namespace, newPod(t, "p", fmt.Sprintf("yes %s | head -c %d; echo; echo whole; exec sleep 3600", strings.Repeat("0123456789", 9), size)))
	eventually(t, "the log is written", logged(tenant, namespace, "p", "whole"))

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	before := agentMemory(t)
	var unread []io.ReadCloser
	for range readers {
		stream, err := tenant.client.CoreV1().Pods(namespace).GetLogs("p", &corev1.PodLogOptions{}).Stream(ctx)
		require.NoError(t, err)
		_, err = io.ReadFull(stream, make([]byte, 1))
		require.NoError(t, err)
		unread = append(unread, stream)
	}
	full := make(chan struct{}, readers)
	var group errgroup.Group
	for range readers {
		executor, err := remotecommand.NewSPDYExecutor(tenant.config, http.MethodPost, tenant.client.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name("p").
			SubResource("exec").VersionedParams(&corev1.PodExecOptions{Command: []string{"cat", "/dev/zero"}, Stdout: true}, scheme.ParameterCodec).URL())
		require.NoError(t, err)
		group.Go(func() error {
			return executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: stuck{ctx: ctx, full: full}})
		})
	}
	for range readers {
		<-full
	}
	grown := int64(0)
	_ = wait.PollUntilContextTimeout(ctx, interval, 5*time.Second, true, func(context.Context) (bool, error) {
		grown = max(grown, agentMemory(t)-before)
		return grown >= allowed, nil // else for all of the time
	})
	require.Less(t, grown, int64(allowed), "bytes for %d streams that nobody reads", 2*readers)
	t.Logf("vn-agents grew by %d KiB for %d unread streams", grown>>10, 2*readers)

	// A late reader still gets the whole log.
	for _, stream := range unread {
		n, err := io.Copy(io.Discard, stream)
		require.NoError(t, err)
		require.EqualValues(t, size+len("\nwhole\n"), n+1)
		require.NoError(t, stream.Close())
	}
	cancel()
	require.Error(t, group.Wait(), "the streams of a command that never ends")
}

// stuck is a writer that blocks until ctx ends. Each Write sends to full first.
type stuck struct {
	ctx  context.Context
	full chan<- struct{}
}

func (s stuck) Write([]byte) (int, error) {
	s.full <- struct{}{}
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}

// agentMemory returns the resident memory of this machine's vn-agents, in bytes.
func agentMemory(t *testing.T) int64 {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	require.NoError(t, err)
	var pages int64
	agents := 0
	for _, name := range names {
		// A process may have ended since it was listed.
		if comm, err := os.ReadFile(name); err != nil || string(comm) != "vn-agent\n" {
			continue
		}
		statm, err := os.ReadFile(filepath.Join(filepath.Dir(name), "statm"))
		if err != nil {
			continue
		}
		var size, resident int64
		_, err = fmt.Sscan(string(statm), &size, &resident)
		require.NoError(t, err)
		pages += resident
		agents++
	}
	require.Positive(t, agents)
	return pages * int64(os.Getpagesize())
}

// logged returns a condition: the last line of a pod's log is line.
func logged(tenant *cluster, namespace, pod, line string) wait.ConditionWithContextFunc {
	return func(ctx context.Context) (bool, error) {
		last, err := tenant.client.CoreV1().Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{TailLines: ptr.To[int64](1)}).DoRaw(ctx)
		return err == nil && string(last) == line+"\n", nil
	}
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
