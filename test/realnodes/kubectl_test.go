//go:build realnodes

package realnodes_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
)

// TestLogs reads the log of a container that writes two lines, and then one a second.
func TestLogs(t *testing.T) {
	t.Parallel()
	tenant := tenant1(t)
	namespace := tenant.namespace(t, "logs", 1)
	tenant.create(t, namespace, newPod(t, "p", "echo line 1; echo line 2; n=3; while :; do sleep 1; echo line $n; n=$((n+1)); done"))

	t.Run("follow sees lines as they come", func(t *testing.T) {
		lines := tenant.start(t, namespace, "logs", "-f", "p")
		for n := 1; n <= 4; n++ {
			require.Equal(t, fmt.Sprintf("line %d", n), next(t, lines))
		}
		came := time.Now()
		for n := 5; n <= 9; n++ {
			require.Equal(t, fmt.Sprintf("line %d", n), next(t, lines))
		}
		require.Greater(t, time.Since(came), 2*time.Second, "five lines of five seconds came together")
	})
	t.Run("tail", func(t *testing.T) {
		require.Len(t, fields(tenant.run(t, namespace, "logs", "--tail=2", "p")), 2)
	})
	t.Run("since", func(t *testing.T) {
		require.NotContains(t, fields(tenant.run(t, namespace, "logs", "--since=2s", "p")), "line 1")
		require.Contains(t, fields(tenant.run(t, namespace, "logs", "--since=1h", "p")), "line 1")
	})
	t.Run("timestamps", func(t *testing.T) {
		stamp, text, _ := strings.Cut(fields(tenant.run(t, namespace, "logs", "--timestamps", "p"))[0], " ")
		require.Equal(t, "line 1", text)
		written, err := time.Parse(time.RFC3339Nano, stamp)
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), written, 5*time.Minute)
	})
	t.Run("limit", func(t *testing.T) {
		require.Equal(t, "line", tenant.run(t, namespace, "logs", "--limit-bytes=4", "p"))
	})
	t.Run("of a container that is not there", func(t *testing.T) {
		output, err := tenant.try(t, namespace, "logs", "p", "-c", "other")
		require.Error(t, err)
		require.Contains(t, output, "container other is not valid for pod p")
	})
}

func TestLogsOfThePreviousContainer(t *testing.T) {
	t.Parallel()
	tenant := tenant1(t)
	namespace := tenant.namespace(t, "previous", 1)
	pod := newPod(t, "p", "[ -e /keep/ran ] || { touch /keep/ran; echo first life; exit 1; }; echo second life; exec sleep 3600")
	pod.Spec.Volumes = []corev1.Volume{{Name: "keep", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "keep", MountPath: "/keep"}}
	tenant.create(t, namespace, pod)
	tenant.eventuallyPrints(t, namespace, "second life", "logs", "p")
	require.Equal(t, "first life\n", tenant.run(t, namespace, "logs", "--previous", "p"))
}

func TestExec(t *testing.T) {
	t.Parallel()
	tenant := tenant1(t)
	namespace := tenant.namespace(t, "exec", 1)
	tenant.create(t, namespace, newPod(t, "p", "exec sleep 3600"))

	t.Run("both outputs and the exit code", func(t *testing.T) {
		var stdout, stderr bytes.Buffer
		command := tenant.kubectl(t, namespace, "exec", "p", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
		command.Stdout, command.Stderr = &stdout, &stderr
		var exit *exec.ExitError
		require.ErrorAs(t, command.Run(), &exit)
		require.Equal(t, 7, exit.ExitCode())
		require.Equal(t, "out\n", stdout.String())
		require.Equal(t, "err", fields(stderr.String())[0])
	})
	t.Run("input, to its end", func(t *testing.T) {
		command := tenant.kubectl(t, namespace, "exec", "-i", "p", "--", "sh", "-c", "cat; echo end")
		command.Stdin = strings.NewReader("one\ntwo\n")
		output, err := command.Output()
		require.NoError(t, err)
		require.Equal(t, "one\ntwo\nend\n", string(output))
	})
	for name, executor := range map[string]func(*url.URL) (remotecommand.Executor, error){
		"SPDY": func(u *url.URL) (remotecommand.Executor, error) {
			return remotecommand.NewSPDYExecutor(tenant.config, http.MethodPost, u)
		},
		"WebSocket": func(u *url.URL) (remotecommand.Executor, error) {
			return remotecommand.NewWebSocketExecutor(tenant.config, http.MethodGet, u.String())
		},
	} {
		t.Run("a terminal of a size, by "+name, func(t *testing.T) {
			e, err := executor(tenant.client.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name("p").SubResource("exec").
				VersionedParams(&corev1.PodExecOptions{Command: []string{"sh", "-c", "until [ \"$size\" = '40 120' ]; do size=$(stty size 2>/dev/null); done; echo $size; exit 3"}, Stdin: true, Stdout: true, TTY: true}, scheme.ParameterCodec).URL())
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			var output bytes.Buffer
			stdin, _ := io.Pipe()
			err = e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: stdin, Stdout: &output, Tty: true, TerminalSizeQueue: &size{ctx: ctx, first: &remotecommand.TerminalSize{Width: 120, Height: 40}}})
			require.ErrorContains(t, err, "exit code 3")
			require.Equal(t, "40 120\r\n", output.String())
		})
	}
}

// size is a terminal size that never changes.
type size struct {
	ctx   context.Context
	first *remotecommand.TerminalSize
}

// Next implements remotecommand.TerminalSizeQueue.
func (s *size) Next() *remotecommand.TerminalSize {
	if first := s.first; first != nil {
		s.first = nil
		return first
	}
	<-s.ctx.Done()
	return nil
}

func TestAttach(t *testing.T) {
	t.Parallel()
	tenant := tenant1(t)
	namespace := tenant.namespace(t, "attach", 1)
	pod := newPod(t, "p", "while read -r word; do echo got $word; done; exec sleep 3600")
	pod.Spec.Containers[0].Stdin = true
	tenant.create(t, namespace, pod)

	command := tenant.kubectl(t, namespace, "attach", "-i", "p")
	stdin, err := command.StdinPipe()
	require.NoError(t, err)
	lines := start(t, command)
	for _, word := range []string{"this", "that"} {
		_, err := fmt.Fprintln(stdin, word)
		require.NoError(t, err)
		for line := next(t, lines); line != "got "+word; line = next(t, lines) {
			require.NotContains(t, line, "got ", "another's answer")
		}
	}
	require.Contains(t, tenant.run(t, namespace, "logs", "p"), "got that\n")
}

// copied is the size of the file that is copied, one gigabyte.
const copied = 1_000_000_000

// TestCopy copies a large file into a container and back.
func TestCopy(t *testing.T) {
	t.Parallel()
	tenant := tenant1(t)
	namespace := tenant.namespace(t, "copy-file", 1)
	tenant.create(t, namespace, newPod(t, "p", "exec sleep 3600"))

	there, back := filepath.Join(t.TempDir(), "there"), filepath.Join(t.TempDir(), "back")
	file, err := os.Create(there)
	require.NoError(t, err)
	written := sha256.New()
	_, err = io.CopyN(io.MultiWriter(file, written), rand.Reader, copied)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	sum := fmt.Sprintf("%x", written.Sum(nil))

	started := time.Now()
	tenant.run(t, namespace, "cp", there, "p:/tmp/file")
	t.Logf("copied there in %s", time.Since(started))
	require.Equal(t, sum+"  /tmp/file\n", tenant.run(t, namespace, "exec", "p", "--", "sha256sum", "/tmp/file"))
	started = time.Now()
	// Kubelets and API servers drop output that is not sent yet when a client's SPDY ping arrives after the end of a
	// command, as a slow client's does. With or without vn-agent, kubectl cp has to retry from there.
	said := tenant.run(t, namespace, "cp", "--retries=10", "p:/tmp/file", back)
	t.Logf("copied back in %s, cut off %d times", time.Since(started), strings.Count(said, "Resuming copy"))
	file, err = os.Open(back)
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	read := sha256.New()
	_, err = io.Copy(read, file)
	require.NoError(t, err)
	require.Equal(t, sum, fmt.Sprintf("%x", read.Sum(nil)))
}

func TestPortForward(t *testing.T) {
	t.Parallel()
	tenant := tenant1(t)
	namespace := tenant.namespace(t, "forward", 1)
	tenant.create(t, namespace, newWebPod(t, "web"))

	lines := tenant.start(t, namespace, "port-forward", "web", ":8080")
	port := regexp.MustCompile(`^Forwarding from 127\.0\.0\.1:(\d+) -> 8080$`).FindStringSubmatch(next(t, lines))
	require.Len(t, port, 2)
	go func() {
		for range lines { // kubectl must never wait for a reader
		}
	}()
	for range 3 {
		require.Equal(t, "web", get(t, "http://127.0.0.1:"+port[1]+"/hostname"))
	}
}

func TestDebug(t *testing.T) {
	t.Parallel()
	tenant := tenant1(t)
	namespace := tenant.namespace(t, "debug", 1)
	tenant.create(t, namespace, newWebPod(t, "web"))

	tenant.run(t, namespace, "debug", "web", "--profile=baseline", "--image="+image(t, "agnhost"), "--image-pull-policy=IfNotPresent", "-c", "look", "--target=main", "--",
		"sh", "-c", "ps; /agnhost connect 127.0.0.1:8080 && echo connected; exec sleep 3600")
	tenant.eventuallyPrints(t, namespace, "connected", "logs", "web", "-c", "look")
	require.Contains(t, tenant.run(t, namespace, "logs", "web", "-c", "look"), "agnhost netexec", "processes of the target")
	require.Contains(t, tenant.run(t, namespace, "get", "pod", "web", "-o", "jsonpath={.status.ephemeralContainerStatuses[0].state}"), "running")
	require.Equal(t, "in it\n", tenant.run(t, namespace, "exec", "web", "-c", "look", "--", "echo", "in it"))
}

// newWebPod returns a pod that serves HTTP at port 8080: /hostname, /clientip and the other paths of agnhost netexec.
func newWebPod(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	pod := newPod(t, name, "exec /agnhost netexec --http-port=8080")
	pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 8080}}
	pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(8080)}}}
	return pod
}

// get returns the body of the response to a GET of a URL.
func get(t *testing.T, address string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { require.NoError(t, response.Body.Close()) }()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode, string(body))
	return string(body)
}

// fields returns the lines of a text.
func fields(text string) []string { return strings.Split(strings.TrimSuffix(text, "\n"), "\n") }

// eventuallyPrints waits until kubectl succeeds and prints a text.
func (c *cluster) eventuallyPrints(t *testing.T, namespace, text string, arguments ...string) {
	t.Helper()
	var output string
	err := wait.PollUntilContextTimeout(t.Context(), interval, patience, true, func(context.Context) (bool, error) {
		var err error
		output, err = c.try(t, namespace, arguments...)
		return err == nil && strings.Contains(output, text), nil
	})
	require.NoError(t, err, "kubectl %s must print %q:\n%s", strings.Join(arguments, " "), text, output)
}

// start runs kubectl until the test ends, and returns the lines that it writes.
func (c *cluster) start(t *testing.T, namespace string, arguments ...string) <-chan string {
	t.Helper()
	return start(t, c.kubectl(t, namespace, arguments...))
}

func start(t *testing.T, command *exec.Cmd) <-chan string {
	t.Helper()
	stdout, err := command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
			select {
			case lines <- scanner.Text():
			case <-t.Context().Done():
				return
			}
		}
	}()
	t.Cleanup(func() {
		// It may have ended already.
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	return lines
}

// next returns the next line, and fails the test where none arrives in time.
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
