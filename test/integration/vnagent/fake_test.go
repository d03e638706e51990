package vnagent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	remotecommandconsts "k8s.io/apimachinery/pkg/util/remotecommand"
	utilexec "k8s.io/client-go/util/exec"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// upstream is a fake kubelet, or API server in front of it. Streams are served by the kubelet's own library; the
// containers are fake. Every response begins with the super namespace, the pod and the container.
type upstream struct {
	mu sync.Mutex
	// seen holds the received requests, without bodies, and without those for the pods of the node, which vn-agent asks
	// for itself.
	seen []*http.Request
	// sent counts the bytes of endless logs.
	sent atomic.Int64
	// running counts streams that have not ended.
	running atomic.Int64
	// blocked counts started commands "block", whose streams are all connected.
	blocked atomic.Int64
}

func (u *upstream) requests() []*http.Request {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.seen)
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/pods" {
		list := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}}
		for _, pod := range podsOfTenants() {
			list.Items = append(list.Items, *pod.(*corev1.Pod))
		}
		_ = json.NewEncoder(w).Encode(list)
		return
	}
	u.mu.Lock()
	u.seen = append(u.seen, r.Clone(context.WithoutCancel(r.Context())))
	u.mu.Unlock()
	segments := strings.Split(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if segments[0] == "api" {
		u.asAPIServer(w, r, segments)
		return
	}
	u.asKubelet(w, r, segments)
}

// asAPIServer translates /api/v1/namespaces/<namespace>/pods/<pod>/<subresource> and /api/v1/nodes/<node>/proxy/....
func (u *upstream) asAPIServer(w http.ResponseWriter, r *http.Request, segments []string) {
	if len(segments) > 5 && segments[2] == "nodes" && segments[4] == "proxy" {
		u.asKubelet(w, r, segments[5:])
		return
	}
	kind := map[string]string{"log": "containerLogs", "exec": "exec", "attach": "attach", "portforward": "portForward"}[segments[6]]
	query := r.URL.Query()
	for from, to := range map[string]string{"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"} {
		if query.Get(from) == "true" {
			query.Set(to, "1")
		}
	}
	if ports := query["ports"]; len(ports) > 0 {
		query["port"] = ports
	}
	path := []string{kind, segments[3], segments[5]}
	if container := query.Get("container"); container != "" {
		path = append(path, container)
	}
	r.URL.RawQuery = query.Encode()
	u.asKubelet(w, r, path)
}

func (u *upstream) asKubelet(w http.ResponseWriter, r *http.Request, segments []string) {
	u.running.Add(1)
	defer u.running.Add(-1)
	switch segments[0] {
	case "containerLogs":
		u.logs(w, r, strings.Join(segments[1:], "/"))
	case "exec", "attach":
		options, err := remotecommand.NewOptions(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if segments[0] == "attach" {
			remotecommand.ServeAttach(w, r, u, identity(segments), "", "", options, time.Hour, time.Minute, remotecommandconsts.SupportedStreamingProtocols)
			return
		}
		remotecommand.ServeExec(w, r, u, identity(segments), "", "", r.URL.Query()["command"], options, time.Hour, time.Minute, remotecommandconsts.SupportedStreamingProtocols)
	case "portForward":
		options, err := portforward.NewV4Options(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		portforward.ServePortForward(w, r, u, strings.Join(segments[1:3], "/"), "", options, time.Hour, time.Minute, portforward.SupportedProtocols)
	case "run":
		_, _ = io.WriteString(w, identity(segments)+" "+r.URL.Query().Get("cmd"))
	case "stats":
		_, _ = io.WriteString(w, summaryText)
	case "metrics":
		_, _ = io.WriteString(w, metricsText)
	default:
		http.NotFound(w, r)
	}
}

// identity is namespace/pod/container, without the UID that may lie between.
func identity(segments []string) string {
	return strings.Join([]string{segments[1], segments[2], segments[len(segments)-1]}, "/")
}

func (u *upstream) logs(w http.ResponseWriter, r *http.Request, name string) {
	switch query := r.URL.Query(); {
	case strings.HasSuffix(name, "/broken"):
		http.Error(w, "open /var/log/pods/"+name+": none of super-uid-a", http.StatusBadRequest)
	case strings.HasSuffix(name, "/forbidden"):
		http.Error(w, "user vn-agent may not", http.StatusForbidden)
	case strings.HasSuffix(name, "/redirect"):
		http.Redirect(w, r, "https://example.com/", http.StatusFound)
	case strings.HasSuffix(name, "/silent"):
		// Like a kubelet it sends no response header before the first line.
		<-r.Context().Done()
	case strings.HasSuffix(name, "/lines"):
		u.flood(lineWriter{w}, query.Get("limitBytes"))
	case query.Get("limitBytes") != "":
		u.flood(w, query.Get("limitBytes"))
	default:
		w.Header().Set("Set-Cookie", "secret=1")
		_, _ = io.WriteString(w, name+"\n"+query.Encode()+"\n")
		if query.Get("follow") == "true" {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	}
}

// lineWriter flushes each line, as a kubelet does.
type lineWriter struct{ http.ResponseWriter }

// Write implements io.Writer.
func (l lineWriter) Write(piece []byte) (int, error) {
	const line = 128
	for begin := 0; begin < len(piece); begin += line {
		if _, err := l.ResponseWriter.Write(piece[begin:min(begin+line, len(piece))]); err != nil {
			return begin, err
		}
		if err := http.NewResponseController(l.ResponseWriter).Flush(); err != nil {
			return begin, err
		}
	}
	return len(piece), nil
}

var piece = bytes.Repeat([]byte("0123456789abcde\n"), 2048)

func (u *upstream) flood(w io.Writer, limit string) {
	left, _ := strconv.ParseInt(limit, 10, 64)
	for left > 0 {
		n, err := w.Write(piece[:min(int64(len(piece)), left)])
		u.sent.Add(int64(n))
		left -= int64(n)
		if err != nil {
			return
		}
	}
}

// ExecInContainer implements remotecommand.Executor; name is what identity returned.
func (u *upstream) ExecInContainer(_ context.Context, name, _, _ string, command []string, in io.Reader, out, errOut io.WriteCloser, tty bool, _ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	switch command[0] {
	case "who":
		_, err := fmt.Fprintf(out, "%s tty=%t %s", name, tty, strings.Join(command[1:], " "))
		return err
	case "complain":
		_, err := io.WriteString(errOut, name)
		return err
	case "cat":
		_, err := io.Copy(out, in)
		return err
	case "flood":
		u.flood(out, command[1])
		return nil
	case "exit":
		return utilexec.CodeExitError{Err: errors.New("exit 3"), Code: 3}
	}
	u.blocked.Add(1)
	// "block" runs until the connection, and with it stdin, is closed.
	_, err := io.Copy(io.Discard, in)
	return err
}

// AttachContainer implements remotecommand.Attacher.
func (u *upstream) AttachContainer(_ context.Context, name, _, _ string, in io.Reader, out, _ io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize) error {
	if _, err := io.WriteString(out, name+" "); err != nil || in == nil {
		return err
	}
	_, err := io.Copy(out, in)
	return err
}

// PortForward implements portforward.PortForwarder: it writes the pod's identity and echoes a line.
func (u *upstream) PortForward(_ context.Context, name, _ string, port int32, stream io.ReadWriteCloser) error {
	defer func() { _ = stream.Close() }()
	line := make([]byte, 64)
	n, err := stream.Read(line)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stream, "%s:%d %s", name, port, line[:n])
	return err
}

// Both tenants have web/p on node-1; b has web/only-b too.
const summaryText = `{"node":{"nodeName":"node-1","cpu":{"usageNanoCores":7777},"fs":{"usedBytes":7777}},"pods":[
 {"podRef":{"name":"p","namespace":"a-web","uid":"super-uid-a"},"cpu":{"usageNanoCores":11},"memory":{"workingSetBytes":12},"containers":[]},
 {"podRef":{"name":"p","namespace":"b-web","uid":"super-uid-b"},"cpu":{"usageNanoCores":7777},"memory":{"workingSetBytes":7777},"containers":[]}]}`

const metricsText = `# HELP node_cpu_usage_seconds_total CPU
# TYPE node_cpu_usage_seconds_total counter
node_cpu_usage_seconds_total 7777 1700000000000
# HELP pod_cpu_usage_seconds_total CPU
# TYPE pod_cpu_usage_seconds_total counter
pod_cpu_usage_seconds_total{namespace="a-web",pod="p"} 11 1700000000000
pod_cpu_usage_seconds_total{namespace="b-web",pod="p"} 7777 1700000000000
`
