package backend

import (
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
	// maxRun bounds the output of a run, in bytes: it is buffered, because a command that fails after some output is
	// answered with its error alone. It is what any stream may buffer.
	maxRun = 512 << 10
	// pingPeriod is the interval of SPDY pings, the same as kubectl's.
	pingPeriod = 5 * time.Second
	// nodeTimeout bounds the wait for one node's response. It is shorter than the 10 seconds of metrics-server, which
	// thereby still gets the metrics of the nodes that do respond.
	nodeTimeout = 7 * time.Second
	// readTimeout bounds how long the others of a request wait while one node's response is read.
	readTimeout = 2 * time.Second
	// nodesAtOnce bounds the nodes that are scraped in parallel for one request.
	nodesAtOnce = 32
)

// APIServer forwards to the API server of the super cluster: to the subresources of pods and, for lists, to the proxy
// subresource of nodes. It serves pods on all nodes, and is safe for concurrent use.
type APIServer struct {
	base *url.URL
	forwarder
}

var _ Backend = &APIServer{}

// NewAPIServer returns a backend that authenticates with config's credentials, which client-go reloads when their files
// change. An error means that config cannot be used. config is not changed.
func NewAPIServer(config *rest.Config) (*APIServer, error) {
	config = rest.CopyConfig(config)
	config.NextProtos = []string{"http/1.1"}
	config.UserAgent = "vn-agent"
	config.Timeout = 0
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("reading the address of the super cluster: %w", err)
	}
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, fmt.Errorf("reading how to connect to the super cluster: %w", err)
	}
	transport := newTransport(tlsConfig)
	transport.Proxy = http.ProxyFromEnvironment
	if config.Proxy != nil {
		transport.Proxy = config.Proxy
	}
	authenticated, err := rest.HTTPWrappersForConfig(config, transport)
	if err != nil {
		return nil, fmt.Errorf("reading how to connect to the super cluster: %w", err)
	}
	return &APIServer{base: base, forwarder: forwarder{transport: authenticated}}, nil
}

// locate returns the URL of path at the API server.
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

// run executes the command by an exec at the API server, which has no run, and answers with stdout and stderr together,
// as a kubelet does.
func (a *APIServer) run(w http.ResponseWriter, r *http.Request, target *url.URL, pod pods.Pod) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	timer := time.AfterFunc(a.waitForUpgrade(), func() { cancel(errTimeout) })
	defer timer.Stop()
	upgrader := &upgrader{RoundTripper: a.transport, onResponse: timer.Stop}
	executor, err := remotecommand.NewSPDYExecutorForTransports(upgrader, upgrader, http.MethodPost, target)
	if err != nil {
		writeError(w, r, err)
		return
	}
	out := output{cancel: cancel}
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &out})
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if upgrader.err != nil {
		if !errors.Is(err, errTimeout) {
			err = upgrader.err
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
	_, _ = w.Write(out.bytes)
}

// upgrader requests the upgrade to SPDY for client-go's executor. It keeps the errors that are not the tenant's fault
// apart, because their text describes the super cluster. client-go's own upgrader keeps waiting for a response after
// the request's context has ended. One upgrader serves one request.
type upgrader struct {
	http.RoundTripper
	// onResponse is called when the response's header has arrived.
	onResponse func() bool
	// stream is the upgraded connection, nil without one.
	stream io.ReadWriteCloser
	// err is why there is no response, or the backendFault in it; nil where the tenant may see the response.
	err error
}

// RoundTrip implements http.RoundTripper.
func (u *upgrader) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.Header.Set("Connection", "Upgrade")
	request.Header.Set("Upgrade", upgradeSPDY)
	response, err := u.RoundTripper.RoundTrip(request)
	if err != nil {
		u.err = err
		return nil, err
	}
	u.onResponse()
	if u.err = backendFault(response.StatusCode); u.err != nil {
		_ = response.Body.Close()
		return nil, u.err
	}
	if response.StatusCode == http.StatusSwitchingProtocols {
		// The executor closes the body and goes on with what NewConnection returns.
		u.stream, _ = response.Body.(io.ReadWriteCloser)
		response.Body = http.NoBody
	}
	return response, nil
}

// NewConnection implements spdy.Upgrader.
func (u *upgrader) NewConnection(response *http.Response) (httpstream.Connection, error) {
	if u.stream != nil {
		return spdy.NewClientConnectionWithPings(streamConn{ReadWriteCloser: u.stream}, pingPeriod)
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

// streamConn makes a net.Conn of an upgraded connection. It has no deadlines of its own: the end of the request's
// context closes it.
type streamConn struct {
	io.ReadWriteCloser
	net.Conn
}

// Read implements net.Conn.
func (c streamConn) Read(p []byte) (int, error) { return c.ReadWriteCloser.Read(p) }

// Write implements net.Conn.
func (c streamConn) Write(p []byte) (int, error) { return c.ReadWriteCloser.Write(p) }

// Close implements net.Conn.
func (c streamConn) Close() error { return c.ReadWriteCloser.Close() }

// output buffers stdout and stderr together, up to maxRun bytes. client-go ignores a Writer's error, so output also
// cancels the run's context. It is safe for concurrent use.
type output struct {
	cancel context.CancelCauseFunc
	mu     sync.Mutex
	bytes  []byte
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	size := len(o.bytes) + len(p)
	if size > maxRun {
		o.cancel(errRunTooLarge)
		return 0, errRunTooLarge
	}
	if size > cap(o.bytes) {
		o.bytes = append(make([]byte, 0, min(2*size, maxRun)), o.bytes...)
	}
	o.bytes = append(o.bytes, p...)
	return len(p), nil
}

// Scrape implements Backend. Up to nodesAtOnce nodes are asked in parallel, and their responses are read one after the
// other as they come, none of them whole: what a request holds does not grow with the nodes. A node that does not
// respond within nodeTimeout, or whose response takes longer than readTimeout once it is its turn, is logged, and what
// is missing of it is left out; the others do not wait for it any longer.
func (a *APIServer) Scrape(ctx context.Context, request route.Request, nodes []string, read func(io.Reader) error) error {
	turn := make(chan struct{}, 1)
	errs := make([]error, len(nodes))
	var group errgroup.Group
	group.SetLimit(nodesAtOnce)
	for i, node := range nodes {
		group.Go(func() error {
			if errs[i] = a.scrapeNode(ctx, request, node, turn, read); errs[i] != nil {
				klog.FromContext(ctx).Error(errs[i], "Scraping a kubelet through the API server", "node", node)
			}
			return nil
		})
	}
	_ = group.Wait() // the functions return nil; errs holds their errors
	if len(nodes) == 0 || slices.Contains(errs, nil) {
		return nil
	}
	return errors.Join(errs...)
}

// scrapeNode asks one node, and calls read while it holds turn.
func (a *APIServer) scrapeNode(ctx context.Context, request route.Request, node string, turn chan struct{}, read func(io.Reader) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(nodeTimeout, func() { cancel(errTimeout) })
	defer timer.Stop()
	target := a.locate("/api/v1/nodes/"+node+"/proxy"+request.KubeletPath("", ""), request.KubeletQuery())
	return a.scrape(ctx, target, request.Kind, func(in io.Reader) error {
		timer.Stop()
		select {
		case turn <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		defer func() { <-turn }()
		defer time.AfterFunc(readTimeout, func() { cancel(errTimeout) }).Stop()
		return read(in)
	})
}
