package backend

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/superpool/superpool/internal/vnagent/pods"
	"github.com/superpool/superpool/internal/vnagent/rename"
	"github.com/superpool/superpool/internal/vnagent/route"
)

const (
	// upgradeTimeout bounds the time until a backend responds to a request for an upgrade. The stream itself has no
	// limit: the kubelet closes idle ones (streamingConnectionIdleTimeout). Logs have none either: a followed log of a
	// silent container may have its first byte tomorrow.
	upgradeTimeout = 30 * time.Second
	// maxError bounds the text of an error that is forwarded, in bytes; the rest is cut off.
	maxError = 64 << 10
	// scrapeTimeout bounds one node's response to a scrape.
	scrapeTimeout = 20 * time.Second
	// maxPods, maxMetrics and maxSummary bound one node's response in bytes, which is about all of its pods: of a list
	// of pods, which is read pod by pod, of metrics, read family by family, and of a summary, which is held whole.
	maxPods    = 256 << 20
	maxMetrics = 64 << 20
	maxSummary = 16 << 20
)

var (
	errRefused  = errors.New("the backend does not trust vn-agent")
	errRedirect = errors.New("the backend redirects")
	errNoStream = errors.New("the backend answers a request for a stream without one")
	errTimeout  = errors.New("the backend does not answer in time")
	errTooLarge = errors.New("the backend's answer is too large")
	// errRunTooLarge is what the tenant reads.
	errRunTooLarge = fmt.Errorf("the command's output is larger than the %d KiB that a run may have: use exec", maxRun>>10)
)

// forwarder sends requests to one server of the super cluster through transport. A timeout of 0 means upgradeTimeout.
// It is safe for concurrent use.
type forwarder struct {
	transport http.RoundTripper
	timeout   time.Duration
	buffers   buffers
}

// forward sends request to target and copies the response, or the stream, to w. See Backend.
func (f *forwarder) forward(w http.ResponseWriter, r *http.Request, target *url.URL, request route.Request, pod pods.Pod) {
	header, err := requestHeaders(r.Header, request.Upgrades())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	onResponse := func() {}
	if request.Upgrades() {
		timer := time.AfterFunc(f.waitForUpgrade(), func() { cancel(errTimeout) })
		defer timer.Stop()
		onResponse = func() { timer.Stop() }
	}
	proxy := httputil.ReverseProxy{
		Rewrite: func(out *httputil.ProxyRequest) {
			out.Out.URL, out.Out.Host = target, ""
			out.Out.Header = header
			out.Out.Body, out.Out.ContentLength, out.Out.TransferEncoding, out.Out.Trailer = http.NoBody, 0, nil, nil
		},
		Transport:     f.transport,
		FlushInterval: -1,
		BufferPool:    &f.buffers,
		ErrorLog:      log.New(logWriter{klog.FromContext(r.Context())}, "", 0),
		ModifyResponse: func(response *http.Response) error {
			onResponse()
			return f.modify(response, request, pod)
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			writeError(w, r, err)
		},
	}
	proxy.ServeHTTP(w, r.WithContext(ctx))
}

func (f *forwarder) waitForUpgrade() time.Duration {
	if f.timeout == 0 {
		return upgradeTimeout
	}
	return f.timeout
}

// modify reduces the backend's response to what the tenant may see. An error makes ReverseProxy call writeError
// instead.
func (f *forwarder) modify(response *http.Response, request route.Request, pod pods.Pod) error {
	keepResponseHeaders(response.Header)
	response.Trailer = nil
	switch code := response.StatusCode; {
	case code == http.StatusSwitchingProtocols:
		if stream, ok := response.Body.(io.ReadWriteCloser); ok {
			response.Body = &wholeStream{ReadWriteCloser: stream, buffers: &f.buffers, ended: make(chan struct{})}
		}
		return nil
	case backendFault(code) != nil:
		return backendFault(code)
	case code >= 400:
		return modifyError(response, pod)
	case request.Upgrades():
		return errNoStream
	}
	response.Header.Set("X-Content-Type-Options", "nosniff")
	return nil
}

// backendFault returns an error for the statuses that come of vn-agent's own credentials or address rather than of the
// tenant's request, nil for others.
func backendFault(code int) error {
	switch {
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return errRefused
	case code >= 300 && code < 400:
		return errRedirect
	}
	return nil
}

// wholeStream is a stream's connection to the backend. It hides CloseWrite: ReverseProxy would close only one half when
// the client is gone, and the other half might stay open for ever. Neither SPDY nor WebSocket closes halves of
// connections.
//
// httputil.ReverseProxy ends a stream when the first of its two copies fails. A command can end while its client still
// writes (an API server pings every five seconds), so Write returns its error only after Read has returned all that the
// backend sent.
type wholeStream struct {
	io.ReadWriteCloser
	buffers *buffers
	// ended is closed when Read has returned the backend's last bytes, or on Close.
	ended chan struct{}
	end   sync.Once
}

// Read implements io.Reader. It holds back an error that is returned with bytes: the next Read returns it.
func (s *wholeStream) Read(p []byte) (int, error) {
	n, err := s.ReadWriteCloser.Read(p)
	if n > 0 {
		return n, nil
	}
	if err != nil {
		s.end.Do(func() { close(s.ended) })
	}
	return n, err
}

// WriteTo implements io.WriterTo with a buffer of burst bytes, so that what one Read of a gatheringConn returned is
// written to the client at once.
func (s *wholeStream) WriteTo(client io.Writer) (int64, error) {
	buffer := s.buffers.Get()
	defer s.buffers.Put(buffer)
	backend := struct{ io.Reader }{s} // hides WriteTo, which io.CopyBuffer would call again
	return io.CopyBuffer(client, backend, buffer)
}

// Write implements io.Writer. It returns an error only once ended is closed.
func (s *wholeStream) Write(p []byte) (int, error) {
	n, err := s.ReadWriteCloser.Write(p)
	if err != nil {
		<-s.ended
	}
	return n, err
}

// Close implements io.Closer.
func (s *wholeStream) Close() error {
	err := s.ReadWriteCloser.Close()
	s.end.Do(func() { close(s.ended) })
	return err
}

// modifyError replaces the body of an error response by its message, with the tenant's namespace and UID.
func modifyError(response *http.Response, pod pods.Pod) error {
	message, err := io.ReadAll(io.LimitReader(response.Body, maxError))
	if err != nil {
		return fmt.Errorf("reading an error: %w", err)
	}
	if err := response.Body.Close(); err != nil {
		return fmt.Errorf("reading an error: %w", err)
	}
	if text, isStatus := statusText(message); isStatus {
		message = text
		response.Header.Set("Content-Type", "text/plain; charset=utf-8")
	}
	message = rename.Text(message, pod)
	response.Body = io.NopCloser(bytes.NewReader(message))
	response.ContentLength = int64(len(message))
	response.Header.Set("Content-Length", strconv.Itoa(len(message)))
	response.Header.Set("X-Content-Type-Options", "nosniff")
	response.Header.Del("Connection")
	response.Header.Del("Upgrade")
	return nil
}

// statusText returns the message of a metav1.Status, which API servers answer errors with; false for any other text.
// Kubelets answer errors in plain text, which the tenant's API server wraps in a Status of its own; so does it with
// this message.
func statusText(message []byte) ([]byte, bool) {
	var status metav1.Status
	if err := json.Unmarshal(message, &status); err != nil || status.Kind != "Status" || status.Message == "" {
		return nil, false
	}
	return []byte(status.Message), true
}

// writeError answers 502 or 504 without details of the super cluster, and logs them unless the client is gone.
func writeError(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() == nil || errors.Is(err, errTimeout) {
		klog.FromContext(r.Context()).Error(err, "Forwarding to the super cluster")
	}
	code := http.StatusBadGateway
	if errors.Is(err, errTimeout) {
		code = http.StatusGatewayTimeout
	}
	http.Error(w, "the super cluster does not answer this request", code)
}

// maxScrape returns how many bytes one node's response may have.
func maxScrape(kind route.Kind) int64 {
	switch kind {
	case route.Pods:
		return maxPods
	case route.Summary:
		return maxSummary
	default:
		return maxMetrics
	}
}

// scrape calls read with the body of target's response, within scrapeTimeout and maxScrape. Any status but 200 is an
// error.
func (f *forwarder) scrape(ctx context.Context, target *url.URL, kind route.Kind, read func(io.Reader) error) error {
	ctx, cancel := context.WithTimeout(ctx, scrapeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), http.NoBody)
	if err != nil {
		return fmt.Errorf("asking for %s: %w", kind, err)
	}
	request.Header.Set("User-Agent", "vn-agent")
	request.Header.Set("Accept", "text/plain;version=0.0.4;q=0.9,application/json;q=0.8")
	response, err := f.transport.RoundTrip(request)
	if err != nil {
		return fmt.Errorf("asking for %s: %w", kind, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("asking for %s: status %d", kind, response.StatusCode)
	}
	most := maxScrape(kind)
	return read(&boundedReader{in: response.Body, left: most, most: most})
}

// boundedReader returns errTooLarge, where io.LimitReader would return io.EOF, after left of at most most bytes of in.
type boundedReader struct {
	in         io.Reader
	left, most int64
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("%w: it has more than %d bytes", errTooLarge, b.most)
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.in.Read(p)
	b.left -= int64(n)
	return n, err
}

// buffers is a pool of buffers of burst bytes. It is safe for concurrent use; the zero value is ready.
type buffers struct{ pool sync.Pool }

// Get implements httputil.BufferPool.
func (b *buffers) Get() []byte {
	if buffer, ok := b.pool.Get().(*[]byte); ok {
		return *buffer
	}
	return make([]byte, burst)
}

// Put implements httputil.BufferPool.
func (b *buffers) Put(buffer []byte) { b.pool.Put(&buffer) }

// logWriter is the io.Writer of ReverseProxy's ErrorLog. It logs broken streams at V(4).
type logWriter struct{ logger klog.Logger }

func (l logWriter) Write(message []byte) (int, error) {
	l.logger.V(4).Info("Stream broke", "message", string(bytes.TrimSpace(message)))
	return len(message), nil
}
