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
	// upgradeTimeout bounds the time until a backend has answered a request for a stream. The stream itself has no limit: kubelet ends
	// those that are idle. Logs have none either: the first byte of a silent container's log may come tomorrow.
	upgradeTimeout = 30 * time.Second
	// maxError is the size of an error's text that is passed on.
	maxError = 64 << 10
	// scrapeTimeout bounds one node's answer in time, maxScrape in size.
	scrapeTimeout = 20 * time.Second
	maxScrape     = 256 << 20
)

var (
	errRefused  = errors.New("the backend does not trust vn-agent")
	errRedirect = errors.New("the backend redirects")
	errNoStream = errors.New("the backend answers a request for a stream without one")
	errTimeout  = errors.New("the backend does not answer in time")
	errTooLarge = errors.New("the backend's answer is too large")
)

// forwarder passes requests to a server of the super cluster. The zero value of timeout is upgradeTimeout.
type forwarder struct {
	transport http.RoundTripper
	timeout   time.Duration
	buffers   buffers
}

// forward answers r with what target says about pod.
func (f *forwarder) forward(w http.ResponseWriter, r *http.Request, target *url.URL, request route.Request, pod pods.Pod) {
	header, err := requestHeaders(r.Header, request.Upgrades())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	answered := func() {}
	if request.Upgrades() {
		timer := time.AfterFunc(f.waitForUpgrade(), func() { cancel(errTimeout) })
		defer timer.Stop()
		answered = func() { timer.Stop() }
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
			answered()
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

// modify makes of the backend's answer what the tenant may see.
func (f *forwarder) modify(response *http.Response, request route.Request, pod pods.Pod) error {
	keepResponseHeaders(response.Header)
	response.Trailer = nil
	switch code := response.StatusCode; {
	case code == http.StatusSwitchingProtocols:
		if stream, ok := response.Body.(io.ReadWriteCloser); ok {
			response.Body = &wholeStream{ReadWriteCloser: stream, buffers: &f.buffers, ended: make(chan struct{})}
		}
		return nil
	case mistrust(code) != nil:
		return mistrust(code)
	case code >= 400:
		return modifyError(response, pod)
	case request.Upgrades():
		return errNoStream
	}
	response.Header.Set("X-Content-Type-Options", "nosniff")
	return nil
}

// mistrust returns what an answer with this status says about vn-agent rather than about the tenant's request, nil for others.
func mistrust(code int) error {
	switch {
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return errRefused
	case code >= 300 && code < 400:
		return errRedirect
	}
	return nil
}

// wholeStream is the connection to the backend of a stream. It hides CloseWrite: a client that is gone ends the stream, while half of a
// connection might stay open for ever. Neither SPDY nor WebSocket closes halves of connections.
//
// httputil.ReverseProxy ends a stream with the first copy that fails. A command can end while its client still writes (an API server does
// every five seconds), so what the backend refuses is not told before all that it has sent was passed on.
type wholeStream struct {
	io.ReadWriteCloser
	buffers *buffers
	// ended is closed when nothing more comes from the backend.
	ended chan struct{}
	end   sync.Once
}

// Read implements io.Reader. An error that comes with the last bytes comes again after them.
func (s *wholeStream) Read(piece []byte) (int, error) {
	n, err := s.ReadWriteCloser.Read(piece)
	if n > 0 {
		return n, nil
	}
	if err != nil {
		s.end.Do(func() { close(s.ended) })
	}
	return n, err
}

// WriteTo implements io.WriterTo: what one Read of the connection gathered is written in one piece, byte for byte as the backend sent it.
func (s *wholeStream) WriteTo(client io.Writer) (int64, error) {
	buffer := s.buffers.Get()
	defer s.buffers.Put(buffer)
	backend := struct{ io.Reader }{s} // without WriteTo, which io.CopyBuffer would call again
	return io.CopyBuffer(client, backend, buffer)
}

// Write implements io.Writer.
func (s *wholeStream) Write(piece []byte) (int, error) {
	n, err := s.ReadWriteCloser.Write(piece)
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

// statusText returns the message of an API server's error. A kubelet's errors are plain text, which a tenant's API server puts into one of
// its own.
func statusText(message []byte) ([]byte, bool) {
	var status metav1.Status
	if err := json.Unmarshal(message, &status); err != nil || status.Kind != "Status" || status.Message == "" {
		return nil, false
	}
	return []byte(status.Message), true
}

// writeError tells the tenant that the super cluster fails, and the operator how.
func writeError(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() == nil || errors.Is(err, errTimeout) {
		klog.FromContext(r.Context()).Error(err, "Asking the super cluster")
	}
	code := http.StatusBadGateway
	if errors.Is(err, errTimeout) {
		code = http.StatusGatewayTimeout
	}
	http.Error(w, "the super cluster does not answer this request", code)
}

// scrape gives read what target answers, within bounds of time and size.
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
	return read(&boundedReader{in: response.Body, left: maxScrape})
}

// boundedReader fails, rather than ends, where in is longer than it may be.
type boundedReader struct {
	in   io.Reader
	left int64
}

func (b *boundedReader) Read(piece []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLarge
	}
	if int64(len(piece)) > b.left {
		piece = piece[:b.left]
	}
	n, err := b.in.Read(piece)
	b.left -= int64(n)
	return n, err
}

// buffers is a pool of buffers of burst bytes.
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

// logWriter takes what ReverseProxy says about broken streams.
type logWriter struct{ logger klog.Logger }

func (l logWriter) Write(message []byte) (int, error) {
	l.logger.V(4).Info("Stream broke", "message", string(bytes.TrimSpace(message)))
	return len(message), nil
}
