package backend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apimachinery/pkg/util/httpstream/spdy"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/klog/v2"

	"github.com/superpool/superpool/internal/vnagent/pods"
	"github.com/superpool/superpool/internal/vnagent/rename"
	"github.com/superpool/superpool/internal/vnagent/route"
)

const (
	// maxRun bounds what the output of a run may be.
	maxRun = 16 << 20
	// pingPeriod is that of kubectl's streams.
	pingPeriod = 5 * time.Second
	// nodeTimeout bounds one node's answer. Who asks for a list of many nodes waits for 10 seconds, as metrics-server does, and wants those of
	// the nodes that live.
	nodeTimeout = 7 * time.Second
	nodesAtOnce = 32
)

// APIServer asks the API server of the super cluster, for pods on all its nodes.
type APIServer struct {
	base *url.URL
	forwarder
}

var _ Backend = &APIServer{}

// NewAPIServer returns a backend that asks with config's credentials, which client-go reads again when they change.
func NewAPIServer(config *rest.Config) (*APIServer, error) {
	config = rest.CopyConfig(config)
	config.NextProtos = []string{"http/1.1"}
	config.UserAgent = "vn-agent"
	config.Timeout = 0
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("reading the address of the super cluster: %w", err)
	}
	secure, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, fmt.Errorf("reading how to connect to the super cluster: %w", err)
	}
	plain := newTransport(secure)
	plain.Proxy = http.ProxyFromEnvironment
	if config.Proxy != nil {
		plain.Proxy = config.Proxy
	}
	connections, err := rest.HTTPWrappersForConfig(config, plain)
	if err != nil {
		return nil, fmt.Errorf("reading how to connect to the super cluster: %w", err)
	}
	return &APIServer{base: base, forwarder: forwarder{transport: connections}}, nil
}

func (a *APIServer) locate(path string, query url.Values) *url.URL {
	target := *a.base
	target.Path = strings.TrimSuffix(target.Path, "/") + path
	target.RawQuery = query.Encode()
	return &target
}

// Forward implements Backend.
func (a *APIServer) Forward(w http.ResponseWriter, r *http.Request, request route.Request, pod pods.Pod) {
	target := a.locate(request.APIServerPath(pod.Super.Namespace), request.APIServerQuery())
	if request.Kind == route.Run {
		a.run(w, r, target, pod)
		return
	}
	a.forward(w, r, target, request, pod)
}

// run executes the command and answers with its output, as a kubelet does.
func (a *APIServer) run(w http.ResponseWriter, r *http.Request, target *url.URL, pod pods.Pod) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	timer := time.AfterFunc(a.waitForUpgrade(), func() { cancel(errTimeout) })
	defer timer.Stop()
	asked := &question{RoundTripper: a.transport, answered: timer.Stop}
	executor, err := remotecommand.NewSPDYExecutorForTransports(asked, asked, http.MethodPost, target)
	if err != nil {
		writeError(w, r, err)
		return
	}
	out := output{refuse: cancel}
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &out})
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if asked.failed != nil {
		if !errors.Is(err, errTimeout) {
			err = asked.failed
		}
		writeError(w, r, err)
		return
	}
	if err != nil {
		klog.FromContext(r.Context()).V(4).Info("Run failed", "err", err)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		http.Error(w, string(rename.Text([]byte(err.Error()), pod)), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = w.Write(out.bytes.Bytes())
}

// question asks for a stream, and remembers why there is none for which the tenant is not to blame: the text of such an error tells of the
// super cluster. client-go's own waits for an answer beyond the end of its request.
type question struct {
	http.RoundTripper
	// answered is called when there is an answer.
	answered func() bool
	stream   io.ReadWriteCloser
	failed   error
}

// RoundTrip implements http.RoundTripper.
func (q *question) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.Header.Set("Connection", "Upgrade")
	request.Header.Set("Upgrade", upgradeSPDY)
	response, err := q.RoundTripper.RoundTrip(request)
	if err != nil {
		q.failed = err
		return nil, err
	}
	q.answered()
	if q.failed = mistrust(response.StatusCode); q.failed != nil {
		_ = response.Body.Close()
		return nil, q.failed
	}
	if response.StatusCode == http.StatusSwitchingProtocols {
		// Who asked closes the body, and goes on with the stream.
		q.stream, _ = response.Body.(io.ReadWriteCloser)
		response.Body = http.NoBody
	}
	return response, nil
}

// NewConnection implements spdy.Upgrader.
func (q *question) NewConnection(response *http.Response) (httpstream.Connection, error) {
	if q.stream != nil {
		return spdy.NewClientConnectionWithPings(streamConn{ReadWriteCloser: q.stream}, pingPeriod)
	}
	message, err := io.ReadAll(io.LimitReader(response.Body, maxError))
	if err != nil {
		return nil, fmt.Errorf("reading an error: %w", err)
	}
	if text, isStatus := statusText(message); isStatus {
		message = text
	}
	return nil, errors.New(strings.TrimSpace(string(message)))
}

// streamConn is a stream as a connection. Its deadlines are those of the request.
type streamConn struct {
	io.ReadWriteCloser
	net.Conn
}

// Read implements net.Conn.
func (c streamConn) Read(piece []byte) (int, error) { return c.ReadWriteCloser.Read(piece) }

// Write implements net.Conn.
func (c streamConn) Write(piece []byte) (int, error) { return c.ReadWriteCloser.Write(piece) }

// Close implements net.Conn.
func (c streamConn) Close() error { return c.ReadWriteCloser.Close() }

// output joins two streams and refuses to grow over maxRun. client-go drops what a Writer does not take, and says nothing; so refuse is told
// too.
type output struct {
	refuse context.CancelCauseFunc
	mu     sync.Mutex
	bytes  bytes.Buffer
}

func (o *output) Write(piece []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.bytes.Len()+len(piece) > maxRun {
		o.refuse(errTooLarge)
		return 0, errTooLarge
	}
	return o.bytes.Write(piece)
}

// Scrape implements Backend. Nodes are asked at once: one that does not answer, or not to the end, is left out, an error is logged, and no
// other waits for it.
func (a *APIServer) Scrape(ctx context.Context, request route.Request, nodes []string, read func(io.Reader) error) error {
	var mu sync.Mutex
	one := func(in io.Reader) error {
		whole, err := io.ReadAll(in)
		if err != nil {
			return fmt.Errorf("reading an answer: %w", err)
		}
		mu.Lock()
		defer mu.Unlock()
		return read(bytes.NewReader(whole))
	}
	errs := make([]error, len(nodes))
	var group errgroup.Group
	group.SetLimit(nodesAtOnce)
	for i, node := range nodes {
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
			defer cancel()
			target := a.locate("/api/v1/nodes/"+node+"/proxy"+request.KubeletPath("", ""), request.KubeletQuery())
			if errs[i] = a.scrape(ctx, target, request.Kind, one); errs[i] != nil {
				klog.FromContext(ctx).Error(errs[i], "Asking a kubelet by way of the API server", "node", node)
			}
			return nil
		})
	}
	_ = group.Wait() // none returns an error
	if len(nodes) == 0 || slices.Contains(errs, nil) {
		return nil
	}
	return errors.Join(errs...)
}
