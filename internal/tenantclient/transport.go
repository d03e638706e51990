package tenantclient

import (
	"bytes"
	"context"
	"encoding/binary"
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
	// HeaderTimeout bounds the time until an answer begins. It is longer than a webhook may take by default (10 s).
	HeaderTimeout = 15 * time.Second
	// answerTimeout bounds the time until an answer that is no watch has ended.
	answerTimeout = time.Minute
	// maxEventBytes bounds one event of a watch, which client-go's own bound does not: its JSON framing reads an event
	// to the end before it looks at the size. etcd takes objects of 1.5 MiB.
	maxEventBytes = 16 << 20
	// maxRead bounds one read of a watch: the limiter's burst is no smaller.
	maxRead = 1 << 20
	// bytesPerValue is how many bytes of an answer's bound go to one value in it: an object of JSON, or what becomes a
	// structure or an item of a list or a map of protobuf. Pods of 8 kB have 30 bytes
	// per object, most of them in managedFields; a page of 500 of them has an eighth of what 64 MiB allow.
	bytesPerValue = 64
	// maxAhead bounds the memory that is taken for an event before it comes.
	maxAhead = 64 << 10
)

// Config returns a configuration of clients whose answers are bounded. All clients of a tenant are made from it.
//
// Clients ask for protobuf where they know the kind and for JSON otherwise, as their libraries choose, and for no
// compression, which would be undone below the bounds. A proxy that the program's environment names stays in use: the
// operator set it.
func (b *Bounds) Config(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.DisableCompression = true
	config.ContentType, config.AcceptContentTypes = "", ""
	config.WarningHandler, config.WarningHandlerWithContext = rest.NoWarnings{}, nil
	config.Wrap(func(inner http.RoundTripper) http.RoundTripper {
		return &transport{inner: inner, bounds: b, headerTimeout: HeaderTimeout, answerTimeout: answerTimeout}
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
	body := &body{ReadCloser: response.Body, bounds: t.bounds, ctx: ctx, what: what, query: request.URL.Query(), protobuf: mediaType(response) == runtime.ContentTypeProtobuf}
	body.watch = body.query.Get("watch") != "" && body.query.Get("watch") != "false" && body.query.Get("watch") != "0"
	body.trimmer.watch = body.watch
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

// refused returns why an answer is not read, nil if it is. What is read is JSON or protobuf, or else the text of an
// error: clients know other types.
func refused(what string, response *http.Response) error {
	if response.StatusCode >= 300 && response.StatusCode < 400 && response.StatusCode != http.StatusNotModified {
		return fmt.Errorf("%s: %s leads elsewhere, and redirects of tenants' API servers are not followed", what, response.Status)
	}
	if encoding := response.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return fmt.Errorf("%s: the answer is compressed (%.32q), which was not asked for", what, encoding)
	}
	kind := mediaType(response)
	switch {
	case kind == runtime.ContentTypeJSON, kind == runtime.ContentTypeProtobuf:
	case response.StatusCode >= http.StatusBadRequest:
		response.Header.Set("Content-Type", "text/plain") // an error page of anyone in between
	case response.Header.Get("Content-Type") == "":
		response.Header.Set("Content-Type", runtime.ContentTypeJSON)
	default:
		return fmt.Errorf("%s: the answer has content type %.64q, and neither %s nor %s", what, response.Header.Get("Content-Type"), runtime.ContentTypeJSON, runtime.ContentTypeProtobuf)
	}
	return nil
}

// mediaType returns the type of an answer, "" if it says none.
func mediaType(response *http.Response) string {
	kind, _, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return kind
}

// body is the body of an answer. It is read by one goroutine.
type body struct {
	io.ReadCloser
	bounds *Bounds
	ctx    context.Context //nolint:containedctx // a body is read by Read alone, which has no context
	what   string
	query  url.Values
	watch  bool
	// protobuf is whether the answer is protobuf, and no JSON or error in words.
	protobuf bool
	// text is what was read of it and counted, and the client has not read yet.
	text []byte
	// list names the list of which the answer is a page, "" for none; before is what the pages before it brought.
	list    string
	before  content
	release func()

	// read is how many bytes were read: of an answer, or of an event of a watch.
	read    int64
	scanner scanner
	trimmer trimmer
	most    content
	// failed is why there is no more.
	failed error

	mu sync.Mutex
	// held is what is in memory of it, as part of Bounds.inFlight. It is nothing any more once it is closed, which a
	// watch is while it is read.
	held   int64
	closed bool
}

// Read implements io.Reader. It fails once a bound is exceeded. What it leaves out is counted (trimmer).
func (b *body) Read(into []byte) (int, error) {
	if b.protobuf {
		return b.readMessages(into)
	}
	for {
		n, err := b.readAll(into)
		if kept := len(b.trimmer.trim(into[:n])); kept > 0 || err != nil || n == 0 {
			return kept, err
		}
	}
}

// readAll is Read of JSON without leaving anything out.
func (b *body) readAll(into []byte) (int, error) {
	if b.failed != nil {
		return 0, b.failed
	}
	if b.watch && len(into) > maxRead {
		into = into[:maxRead]
	}
	n, err := b.receive(into)
	most := b.scanner.scan(into[:n])
	if b.watch {
		b.read = b.scanner.current.bytes // the client keeps an event until it ends
	}
	b.hold(b.read)
	if b.failed = b.admit(most, int64(n)+b.scanner.cost); b.failed != nil {
		return 0, b.failed
	}
	b.scanner.cost = 0
	if errors.Is(err, io.EOF) {
		b.page()
	}
	return n, err
}

// readMessages is Read of protobuf. The client sees nothing of an answer or an event that was not counted as a whole.
func (b *body) readMessages(into []byte) (int, error) {
	for len(b.text) == 0 {
		if b.failed != nil {
			return 0, b.failed
		}
		if b.watch {
			b.text, b.failed = b.nextEvent()
		} else {
			b.text, b.failed = b.answer()
		}
	}
	n := copy(into, b.text)
	b.text = b.text[n:]
	if b.watch && len(b.text) == 0 {
		b.text = nil
		b.hold(0)
	}
	return n, nil
}

// answer reads the whole answer. It returns io.EOF with it.
func (b *body) answer() ([]byte, error) {
	text, err := io.ReadAll(receiver{b})
	if err != nil {
		return nil, err //nolint:wrapcheck // a transport changes nothing
	}
	b.hold(2 * int64(len(text))) // the client keeps another copy of it
	if err := b.prepare(text); err != nil {
		return nil, err
	}
	b.page()
	return text, io.EOF
}

// nextEvent reads one event: four bytes that say how long it is, and its text. It counts as held from its first byte
// until the client has read it.
func (b *body) nextEvent() ([]byte, error) {
	b.read = 0
	var header [4]byte
	if _, err := io.ReadFull(receiver{b}, header[:]); err != nil {
		return nil, err //nolint:wrapcheck // the client knows io.EOF
	}
	length := int64(binary.BigEndian.Uint32(header[:]))
	if err := b.admit(content{bytes: length}, 0); err != nil {
		return nil, err
	}
	// Memory is taken for what comes, not for what was announced.
	event := bytes.NewBuffer(make([]byte, 0, min(length, maxAhead)+bytes.MinRead))
	event.Write(header[:])
	if _, err := io.CopyN(event, receiver{b}, length); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err //nolint:wrapcheck // as above
	}
	if err := b.prepare(event.Bytes()[len(header):]); err != nil {
		return nil, err
	}
	return event.Bytes(), nil
}

// prepare makes a whole text in protobuf what the client may see of it.
func (b *body) prepare(text []byte) error {
	counted, err := prepared(text, b.watch)
	if err != nil {
		return fmt.Errorf("%s: %w", b.what, err)
	}
	return b.admit(counted, counted.bytes-int64(len(text)))
}

// receiver reads what the tenant's API server sends in protobuf.
type receiver struct{ *body }

// Read implements io.Reader.
func (r receiver) Read(into []byte) (int, error) {
	n, err := r.receive(into[:min(len(into), maxRead)])
	most := content{}
	if !r.watch {
		most.bytes = r.read
	}
	r.hold(r.read)
	if exceeded := r.admit(most, int64(n)); exceeded != nil {
		return n, exceeded
	}
	return n, err
}

// receive reads what the tenant's API server sends.
func (b *body) receive(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	if err != nil && !errors.Is(err, io.EOF) {
		if cause := context.Cause(b.ctx); cause != nil && !errors.Is(cause, context.Canceled) {
			err = cause
		}
	}
	b.read += int64(n)
	return n, err
}

// hold sets how many bytes are in memory, until Close.
func (b *body) hold(bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.bounds.inFlight.Add(bytes - b.held)
		b.held = bytes
	}
}

// admit returns an error if a text holds too much. It waits until as many bytes of events may be read as are as much
// work.
func (b *body) admit(most content, work int64) error {
	b.most = b.most.most(most)
	if excess := b.excess(most); excess != nil {
		b.bounds.exceed(excess)
		return excess
	}
	if !b.watch {
		return nil
	}
	if err := b.wait(work); err != nil {
		return fmt.Errorf("%s: %w", b.what, err)
	}
	return nil
}

// page notes what a page of a list held, once it was read.
func (b *body) page() {
	if b.list != "" {
		b.bounds.page(b.list, b.before.plus(b.most))
	}
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
	b.mu.Lock()
	b.bounds.inFlight.Add(-b.held)
	b.held, b.closed = 0, true
	b.mu.Unlock()
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
	values := "JSON objects"
	if b.protobuf {
		values = "values"
	}
	switch {
	case most.bytes > answerBytes:
		return over(answer, bytesOf(answerBytes), "answerBytes")
	case most.values > max(1, answerBytes/bytesPerValue):
		return over("The number of "+values+" in "+lower(answer), strconv.FormatInt(answerBytes/bytesPerValue, 10), "answerBytes")
	}
	all := b.before.plus(most)
	_, kept := b.bounds.Kept()
	switch allBytes := cachedBytes + limits.AnswerBytes.Value(); {
	case kept+b.bounds.inFlight.Load() > allBytes:
		return over("What is kept, with all answers that are being read,", bytesOf(allBytes), "cachedBytes")
	case b.watch:
		return nil
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
