package tenantclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

const (
	// headerTimeout bounds the time until an answer begins. It is longer than a webhook may take by default (10 s).
	headerTimeout = 15 * time.Second
	// answerTimeout bounds the time until an answer that is no watch has ended.
	answerTimeout = time.Minute
	// maxEventBytes bounds one event of a watch, which client-go's own bound does not: its JSON framing reads an event
	// to the end before it looks at the size. etcd takes objects of 1.5 MiB.
	maxEventBytes = 16 << 20
	// maxRead bounds one read of a watch: the limiter's burst is no smaller.
	maxRead = 1 << 20
	// bytesPerValue is how many bytes of an answer's bound go to one object of JSON in it. Pods of 8 kB have 30 bytes
	// per object, most of them in managedFields; a page of 500 of them has an eighth of what 64 MiB allow.
	bytesPerValue = 64
)

// Config returns a configuration of clients whose answers are bounded. All clients of a tenant are made from it.
//
// It asks for JSON alone, since the number of structures in a protobuf text cannot be counted without its schema, and
// for no compression, which would be undone below the bounds. A proxy that the program's environment names stays in
// use: the operator set it.
func (b *Bounds) Config(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.DisableCompression = true
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	config.WarningHandler, config.WarningHandlerWithContext = rest.NoWarnings{}, nil
	config.Wrap(func(inner http.RoundTripper) http.RoundTripper {
		return &transport{inner: inner, bounds: b, headerTimeout: headerTimeout, answerTimeout: answerTimeout}
	})
	return config
}

// transport refuses and cuts off answers that exceed bounds.
type transport struct {
	inner                        http.RoundTripper
	bounds                       *Bounds
	headerTimeout, answerTimeout time.Duration
}

// WrappedRoundTripper lets client-go find the transport below.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.inner }

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(request.Context())
	what := request.Method + " " + request.URL.Path
	late := fmt.Errorf("%s: no answer within %s", what, t.headerTimeout)
	timer := time.AfterFunc(t.headerTimeout, func() { cancel(late) })
	sent := request.Clone(ctx)
	// Go's transport undoes a compression that it asked for itself, and client-go's has it ask where a server has no
	// TLS.
	sent.Header.Set("Accept-Encoding", "identity")
	response, err := t.inner.RoundTrip(sent)
	timer.Stop()
	if err == nil {
		if err = refused(what, response); err != nil {
			_ = response.Body.Close() // the answer is not used
		}
	}
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, late) {
		err = late
	}
	if err != nil {
		cancel(nil)
		return nil, err
	}
	body := &body{ReadCloser: response.Body, bounds: t.bounds, ctx: ctx, what: what, query: request.URL.Query()}
	body.watch = body.query.Get("watch") != "" && body.query.Get("watch") != "false" && body.query.Get("watch") != "0"
	if !body.watch {
		body.list, body.before = t.bounds.list(request.URL, body.query)
		slow := fmt.Errorf("%s: the answer did not end within %s", what, t.answerTimeout)
		timer := time.AfterFunc(t.answerTimeout, func() { cancel(slow) })
		body.release = sync.OnceFunc(func() { timer.Stop(); cancel(nil) })
	} else {
		t.bounds.listed(request.URL, body.query)
		body.release = sync.OnceFunc(func() { cancel(nil) })
	}
	response.Body = body
	return response, nil
}

// refused returns why an answer is not read, nil if it is.
func refused(what string, response *http.Response) error {
	if response.StatusCode >= 300 && response.StatusCode < 400 && response.StatusCode != http.StatusNotModified {
		return fmt.Errorf("%s: %s leads elsewhere, and redirects of tenants' API servers are not followed", what, response.Status)
	}
	if encoding := response.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return fmt.Errorf("%s: the answer is compressed (%.32q), which was not asked for", what, encoding)
	}
	header := response.Header.Get("Content-Type")
	if response.StatusCode >= http.StatusBadRequest || header == "" {
		return nil // an error page of anyone in between: the client reads it as text
	}
	if kind, _, err := mime.ParseMediaType(header); err != nil || kind != runtime.ContentTypeJSON {
		return fmt.Errorf("%s: the answer has content type %.64q, and not %s", what, header, runtime.ContentTypeJSON)
	}
	return nil
}

// body is the body of an answer. It is read by one goroutine.
type body struct {
	io.ReadCloser
	bounds *Bounds
	ctx    context.Context //nolint:containedctx // a body is read by Read alone, which has no context
	what   string
	query  url.Values
	watch  bool
	// list names the list of which the answer is a page, "" for none; before is what the pages before it brought.
	list    string
	before  content
	release func()

	// read is how many bytes of an answer that is no watch were read, and may be in memory still.
	read    int64
	scanner scanner
	most    content
	failed  error
}

// Read implements io.Reader. It fails once a bound is exceeded.
func (b *body) Read(into []byte) (int, error) {
	if b.failed != nil {
		return 0, b.failed
	}
	if b.watch && len(into) > maxRead {
		into = into[:maxRead]
	}
	n, err := b.ReadCloser.Read(into)
	if err != nil && !errors.Is(err, io.EOF) {
		if cause := context.Cause(b.ctx); cause != nil && !errors.Is(cause, context.Canceled) {
			err = cause
		}
	}
	most := b.scanner.scan(into[:n])
	if !b.watch {
		b.read += int64(n)
		b.bounds.inFlight.Add(int64(n))
	}
	b.most = b.most.most(most)
	if excess := b.excess(most); excess != nil {
		b.failed = excess
		b.bounds.exceed(excess)
		return 0, excess
	}
	if b.watch {
		if waited := b.wait(int64(n) + b.scanner.cost); waited != nil {
			return n, fmt.Errorf("%s: %w", b.what, waited)
		}
		b.scanner.cost = 0
	}
	if errors.Is(err, io.EOF) && b.list != "" {
		b.bounds.page(b.list, b.before.plus(b.most))
	}
	return n, err
}

// wait waits until that many bytes of events may be read.
func (b *body) wait(bytes int64) error {
	for bytes > 0 {
		some := min(bytes, maxRead)
		if err := b.bounds.events.WaitN(b.ctx, int(some)); err != nil {
			return err //nolint:wrapcheck // the caller does
		}
		bytes -= some
	}
	return nil
}

// Close implements io.Closer.
func (b *body) Close() error {
	b.release()
	b.bounds.inFlight.Add(-b.read)
	b.read = 0
	return b.ReadCloser.Close() //nolint:wrapcheck // a transport changes nothing
}

// excess returns which bound is exceeded by a text that holds most.
func (b *body) excess(most content) *ExcessError {
	current := b.bounds.policy.Get()
	limits := &current.Spec().Limits
	answerBytes, cachedBytes := limits.AnswerBytes.Value(), limits.CachedBytes.Value()
	over := func(what, limit, field string) *ExcessError {
		return &ExcessError{What: what, Limit: limit, Field: field, Policy: current.Name()}
	}
	answer := "The answer to " + b.what
	if b.watch {
		answerBytes = min(answerBytes, maxEventBytes)
		answer = "An event of " + b.what
	}
	switch {
	case most.bytes > answerBytes:
		return over(answer, bytesOf(answerBytes), "answerBytes")
	case most.values > max(1, answerBytes/bytesPerValue):
		return over("The number of JSON objects in "+lower(answer), strconv.FormatInt(answerBytes/bytesPerValue, 10), "answerBytes")
	case b.watch:
		return nil
	}
	all := b.before.plus(most)
	_, kept := b.bounds.Kept()
	switch {
	case kept+b.bounds.inFlight.Load() > cachedBytes+answerBytes:
		return over("What is kept, with all answers that are being read,", bytesOf(cachedBytes+answerBytes), "cachedBytes")
	case all.bytes > max(answerBytes, cachedBytes):
		return over("The list "+b.what+", all pages together,", bytesOf(max(answerBytes, cachedBytes)), "cachedBytes")
	case all.items > limits.CachedObjects:
		return over("The number of objects in the list "+b.what, strconv.FormatInt(limits.CachedObjects, 10), "cachedObjects")
	}
	return nil
}

// asExcess returns the ExcessError in err, nil if there is none.
func asExcess(err error) *ExcessError {
	var excess *ExcessError
	if errors.As(err, &excess) {
		return excess
	}
	return nil
}
