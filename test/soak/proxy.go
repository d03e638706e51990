package soak

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/superpool/superpool/test/controlplane"
)

// write is a request that changed something, as the API server answered it.
type write struct {
	// at names the control plane, program who asked: the name of its process, by the User-Agent.
	at, program  string
	method, path string
	// request and answer are bodies. The answer is the object after the write, or a Status.
	request, answer []byte
}

// proxy stands between programs and one API server, and fails as networks and API servers do. It says to the API server
// who asks, as an authenticating proxy does.
type proxy struct {
	at     string
	target *url.URL
	next   http.RoundTripper
	server *http.Server
	// wrote is called with each write that succeeded.
	wrote func(write)
	// decide returns what happens to a request.
	decide func(*http.Request) plan
	url    string

	mu          sync.Mutex
	random      *rand.Rand
	weather     weather
	connections map[net.Conn]bool
	counts      map[fault]int
}

// errFault ends a stream.
var errFault = errors.New("a fault of the proxy")

// startProxy serves until close is called.
func startProxy(ctx context.Context, at string, front *controlplane.Front, random *rand.Rand, wrote func(write)) (*proxy, error) {
	target, err := url.Parse(front.URL)
	if err != nil {
		return nil, fmt.Errorf("reading the address of an API server: %w", err)
	}
	p := &proxy{at: at, target: target, next: front.Transport, random: random, wrote: wrote, connections: map[net.Conn]bool{}, counts: map[fault]int{}}
	p.decide = p.plan
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	p.url = "https://" + listener.Addr().String()
	p.server = &http.Server{
		Handler: &httputil.ReverseProxy{
			Rewrite: p.rewrite, Transport: p, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
			ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		},
		TLSConfig: front.Serving, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0),
		ConnState: p.connection,
		ConnContext: func(ctx context.Context, connection net.Conn) context.Context {
			return context.WithValue(ctx, connectionKey{}, connection)
		},
	}
	go func() { _ = p.server.ServeTLS(listener, "", "") }() // it ends with close
	return p, nil
}

func (p *proxy) close() { _ = p.server.Close() }

// connectionKey is that of a request's connection in its context.
type connectionKey struct{}

// connection is http.Server.ConnState.
func (p *proxy) connection(connection net.Conn, state http.ConnState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch state {
	case http.StateNew:
		if p.weather.down {
			_ = connection.Close() // nobody has written to it
			return
		}
		p.connections[connection] = true
	case http.StateClosed, http.StateHijacked:
		delete(p.connections, connection)
	}
}

// set changes the weather.
func (p *proxy) set(next weather) {
	p.mu.Lock()
	p.weather = next
	var ends []net.Conn
	if next.down {
		ends = slices.Collect(maps.Keys(p.connections))
	}
	p.mu.Unlock()
	for _, connection := range ends {
		_ = connection.Close() // as a network does
	}
}

// rewrite directs a request to the API server.
func (p *proxy) rewrite(request *httputil.ProxyRequest) {
	request.SetURL(p.target)
	for name := range request.Out.Header {
		if strings.HasPrefix(name, "X-Remote-") {
			request.Out.Header.Del(name)
		}
	}
	if certificates := request.In.TLS.PeerCertificates; len(certificates) > 0 {
		request.Out.Header.Set("X-Remote-User", certificates[0].Subject.CommonName)
		for _, group := range certificates[0].Subject.Organization {
			request.Out.Header.Add("X-Remote-Group", group)
		}
	}
}

// plan is what happens to a request.
type plan struct {
	fault fault
	// delay is that of a slow answer; kept is the part of a truncated one, of 1.
	delay time.Duration
	kept  float64
	// lasts is how long a watch lasts, 0 for as long as it likes; clean is whether it ends as an API server ends it.
	lasts time.Duration
	clean bool
}

// plan draws what happens to a request, as the weather is.
func (p *proxy) plan(request *http.Request) plan {
	p.mu.Lock()
	defer p.mu.Unlock()
	made := plan{fault: p.weather.draw(p.random, request)}
	switch made.fault {
	case slow:
		made.delay = between(p.random, 100*time.Millisecond, 5*time.Second)
	case truncated:
		made.kept = p.random.Float64()
	}
	if isWatch(request) && p.weather.watches > 0 {
		made.lasts = time.Duration(p.random.ExpFloat64()*float64(p.weather.watches)) + time.Millisecond
		made.clean = p.random.IntN(2) == 0
	}
	p.counts[made.fault]++
	return made
}

// summary returns how many requests had which fault.
func (p *proxy) summary() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var counts []string
	for _, fault := range slices.Sorted(maps.Keys(p.counts)) {
		name := string(fault)
		if fault == none {
			name = "passed"
		}
		counts = append(counts, fmt.Sprintf("%s %d", name, p.counts[fault]))
	}
	return strings.Join(counts, ", ")
}

// RoundTrip implements http.RoundTripper: it is the transport of the reverse proxy.
func (p *proxy) RoundTrip(request *http.Request) (*http.Response, error) {
	made := p.decide(request)
	if response, err := refuse(request, made.fault); response != nil || err != nil {
		return response, err
	}
	if isWatch(request) {
		return p.watch(request, made)
	}
	response, answer, err := p.pass(request)
	if err != nil {
		return nil, err
	}
	switch made.fault {
	case lost:
		return nil, errFault
	case slow:
		return response, sleep(request.Context(), made.delay)
	case truncated:
		kept := answer[:int(made.kept*float64(len(answer)))]
		response.Body = io.NopCloser(io.MultiReader(bytes.NewReader(kept), broken{}))
	}
	return response, nil
}

// refuse returns how a request ends that the API server does not see: with an answer or an error. It returns neither
// for others.
func refuse(request *http.Request, how fault) (*http.Response, error) {
	switch how {
	case severed:
		if connection, ok := request.Context().Value(connectionKey{}).(net.Conn); ok {
			_ = connection.Close() // as a network does
		}
		return nil, errFault
	case reset:
		return nil, errFault
	case internal:
		return failure(request, http.StatusInternalServerError, metav1.StatusReasonInternalError), nil
	case unavailable:
		return failure(request, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable), nil
	case throttled:
		response := failure(request, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)
		response.Header.Set("Retry-After", "1")
		return response, nil
	case conflict:
		return failure(request, http.StatusConflict, metav1.StatusReasonConflict), nil
	}
	return nil, nil
}

// pass asks the API server, and tells of a write. It returns the answer with its body, which can be read again.
func (p *proxy) pass(request *http.Request) (*http.Response, []byte, error) {
	var asked []byte
	if request.Body != nil && writes(request) {
		var err error
		if asked, err = io.ReadAll(request.Body); err != nil {
			return nil, nil, err
		}
		request.Body = io.NopCloser(bytes.NewReader(asked))
	}
	response, err := p.next.RoundTrip(request)
	if err != nil {
		return nil, nil, err
	}
	answer, err := io.ReadAll(response.Body)
	_ = response.Body.Close() // it was read
	if err != nil {
		return nil, nil, err
	}
	if writes(request) && response.StatusCode < http.StatusMultipleChoices {
		program, _, _ := strings.Cut(request.Header.Get("User-Agent"), "/")
		p.wrote(write{at: p.at, program: program, method: request.Method, path: request.URL.Path, request: asked, answer: answer})
	}
	response.Body = io.NopCloser(bytes.NewReader(answer))
	return response, answer, nil
}

// watch passes a watch on, which ends as planned.
func (p *proxy) watch(request *http.Request, made plan) (*http.Response, error) {
	if made.fault == slow {
		if err := sleep(request.Context(), made.delay); err != nil {
			return nil, err
		}
	}
	if made.lasts == 0 {
		return p.next.RoundTrip(request)
	}
	ctx, cancel := context.WithTimeout(request.Context(), made.lasts)
	response, err := p.next.RoundTrip(request.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	response.Body = &ending{ReadCloser: response.Body, ctx: ctx, cancel: cancel, clean: made.clean}
	return response, nil
}

// ending is the body of a watch that ends with its context.
type ending struct {
	io.ReadCloser
	ctx    context.Context //nolint:containedctx // it is the body's
	cancel context.CancelFunc
	clean  bool
}

// Read implements io.Reader.
func (e *ending) Read(into []byte) (int, error) {
	read, err := e.ReadCloser.Read(into)
	switch {
	case err == nil || e.ctx.Err() == nil:
	case e.clean:
		err = io.EOF
	case errors.Is(err, io.EOF): // the API server was faster to see that nobody asks any more
		err = io.ErrUnexpectedEOF
	}
	return read, err
}

// Close implements io.Closer.
func (e *ending) Close() error {
	e.cancel()
	return e.ReadCloser.Close()
}

// broken is the end of a body that does not come.
type broken struct{}

// Read implements io.Reader.
func (broken) Read([]byte) (int, error) { return 0, errFault }

// sleep returns after a delay, or with an error once ctx has ended.
func sleep(ctx context.Context, delay time.Duration) error {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// failure is an answer of an API server that refuses.
func failure(request *http.Request, code int, reason metav1.StatusReason) *http.Response {
	content, err := json.Marshal(&metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Message: "a fault of the proxy", Reason: reason, Code: int32(code), //nolint:gosec // one of HTTP's
	})
	if err != nil {
		panic(err) // it holds strings and numbers
	}
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: request,
		Header: http.Header{"Content-Type": []string{"application/json"}}, Body: io.NopCloser(bytes.NewReader(content)), ContentLength: int64(len(content)),
	}
}
