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
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

const (
	// HeaderTimeout bounds the time until an answer begins. It is longer than a webhook may take by default (10 s).
	HeaderTimeout = 15 * time.Second
	// answerTimeout bounds the time until an answer that is no watch has ended.
	answerTimeout = time.Minute
	// maxHeaderBytes bounds the headers of an answer, of which 30 times as much memory may become. Those of an API
	// server take less than 2 KiB.
	maxHeaderBytes = 64 << 10
	// maxUnread is how much HTTP/2 takes in of an answer that is not read, as of a watch that waits for handlers. Go's
	// own is 4 MiB, of each of up to limits.watches. It is also what comes in a round trip: a page of 64 MiB takes 13 s
	// at 100 ms.
	maxUnread = 512 << 10
	// maxObjectBytes bounds the text of one object, in an answer or in an event of a watch, and of one string in a
	// list: errors of decoders quote it. client-go's own bound of events is none: its JSON framing reads an event to
	// the end before it looks at the size. etcd takes objects of 1.5 MiB.
	maxObjectBytes = 4 << 20
	// maxObjectMemory bounds what becomes of such a text. A ConfigMap becomes 1.1 times its text, a pod in protobuf 6
	// times, and a custom object that is full of pairs of short texts 20 times: of etcd's 1.5 MiB 30 MiB become.
	maxObjectMemory = 32 << 20
	// memoryPerWork is how many bytes of memory an event may become for each byte of its rate.
	memoryPerWork = 8
	// maxRead bounds one read of a watch: the limiter's burst is no smaller.
	maxRead = 1 << 20
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
		return &transport{inner: b.withHeaders(inner), bounds: b, headerTimeout: HeaderTimeout, answerTimeout: answerTimeout}
	})
	return config
}

// withHeaders returns inner, with headers of at most maxHeaderBytes: client-go shares its transports, and sets no
// bound. All clients of the tenant that had one share one still. client-go shares what wraps a transport, for as long
// as anybody has that wrapper.
func (b *Bounds) withHeaders(inner http.RoundTripper) http.RoundTripper {
	base := inner
	for wrapper, ok := base.(utilnet.RoundTripperWrapper); ok; wrapper, ok = base.(utilnet.RoundTripperWrapper) {
		base = wrapper.WrappedRoundTripper()
	}
	shared, ok := base.(*http.Transport)
	if !ok {
		return inner
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if own := b.transports[inner]; own != nil {
		return own
	}
	own := shared.Clone()
	own.MaxResponseHeaderBytes = maxHeaderBytes
	own.TLSNextProto = nil // HTTP/2 is set up anew: that of shared has its own bounds
	own.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: maxUnread}
	utilnet.SetTransportDefaults(own)
	if b.transports == nil {
		b.transports = map[http.RoundTripper]*http.Transport{}
	}
	b.transports[inner] = own
	return own
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
	if excess := t.bounds.listsTooOften(request); excess != nil {
		t.bounds.exceed(excess)
		return nil, excess
	}
	ctx, cancel := context.WithCancelCause(request.Context())
	what := request.Method + " " + request.URL.Path
	late := fmt.Errorf("%s: no answer within %s", what, t.headerTimeout)
	timer := time.AfterFunc(t.headerTimeout, func() { cancel(late) })
	sent := request.Clone(ctx)
	// Go's transport undoes a compression that it asked for itself, and client-go's has it ask where a server has no
	// TLS.
	sent.Header.Set("Accept-Encoding", "identity")
	response, err := t.inner.RoundTrip(sent)
	if err == nil {
		kind := mediaType(response)
		if err = refused(what, response); err != nil {
			_ = response.Body.Close() // the answer is not used
		} else if response.StatusCode >= http.StatusBadRequest {
			err = shorten(response, kind == runtime.ContentTypeProtobuf)
		}
	}
	timer.Stop()
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, late) {
		err = late
	}
	if err != nil {
		cancel(nil)
		return nil, err
	}
	if response.StatusCode >= http.StatusBadRequest {
		cancel(nil)
		return response, nil
	}
	response.Body = t.body(ctx, cancel, request, response)
	return response, nil
}

// body returns the body of an answer that is no error, whose end calls cancel.
func (t *transport) body(ctx context.Context, cancel context.CancelCauseFunc, request *http.Request, response *http.Response) *body {
	what, query := request.Method+" "+request.URL.Path, request.URL.Query()
	body := &body{ReadCloser: response.Body, bounds: t.bounds, ctx: ctx, what: what, protobuf: mediaType(response) == runtime.ContentTypeProtobuf}
	body.weigher = newWeigher(anyWeights)
	if strings.Contains(request.Header.Get("Accept"), runtime.ContentTypeProtobuf) {
		body.weigher = newWeigher(typedWeights)
	}
	body.watch = query.Get("watch") != "" && query.Get("watch") != "false" && query.Get("watch") != "0"
	body.trimmer.watch = body.watch
	if !body.watch {
		body.list, body.before = t.bounds.list(request, query)
		slow := fmt.Errorf("%s: the answer did not end within %s", what, t.answerTimeout)
		timer := time.AfterFunc(t.answerTimeout, func() { cancel(slow) })
		body.release = sync.OnceFunc(func() { timer.Stop(); cancel(nil) })
	} else {
		t.bounds.listed(listOf(request.URL, query))
		body.release = sync.OnceFunc(func() { cancel(nil) })
	}
	return body
}

// refused returns why an answer is not read, nil if it is. What is read is JSON or protobuf, or else the text of an
// error: clients know other types.
func refused(what string, response *http.Response) error {
	if response.StatusCode >= 300 && response.StatusCode < 400 && response.StatusCode != http.StatusNotModified {
		return fmt.Errorf("%s: %.64s leads elsewhere, and redirects of tenants' API servers are not followed", what, response.Status)
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
	watch  bool
	// protobuf is whether the answer is protobuf, and no JSON.
	protobuf bool
	// event is what was read of an event in JSON that has not ended.
	event []byte
	// text is what was read and counted, and the client has not read yet.
	text []byte
	// list names the list of which the answer is a page, "" if it is one object; before is what the pages before it
	// brought.
	list    string
	before  content
	release func()

	// read is how many bytes were read: of an answer, or of an event of a watch in protobuf.
	read    int64
	scanner scanner
	trimmer trimmer
	weigher weigher
	most    content
	// failed is why there is no more.
	failed error

	mu sync.Mutex
	// held is what is in memory of it, as part of Bounds.inFlight. It is nothing any more once it is closed, which a
	// watch is while it is read.
	held int64
	// becomes is what becomes of it in memory, as part of Bounds.decoding: of an answer until it was read, of the
	// largest one of the events that the client has, or that is read, until it asks for more.
	becomes int64
	closed  bool
}

// Read implements io.Reader. It fails once a bound is exceeded. What it leaves out is counted (trimmer). The client
// sees nothing of an event, or of an answer in protobuf, that was not counted as a whole.
func (b *body) Read(into []byte) (int, error) {
	for len(b.text) == 0 {
		if b.watch { // client-go asks for more when it has handed over what it has
			b.most = content{}
			b.become(0)
			if b.failed == nil {
				b.failed = b.bounds.catchUp(b.ctx)
			}
		}
		switch {
		case b.failed != nil:
			return 0, b.failed
		case !b.protobuf:
			b.failed = b.readJSON(into)
		case b.watch:
			b.text, b.failed = b.nextEvent()
		default:
			b.text, b.failed = b.answer()
		}
		if b.watch && b.failed == nil && len(b.text) > 0 { // they may have taken long to come
			b.failed = b.bounds.catchUp(b.ctx)
		}
	}
	n := copy(into, b.text)
	b.text = b.text[n:]
	if b.watch && len(b.text) == 0 {
		b.text = nil
		b.hold(int64(len(b.event)))
	}
	return n, nil
}

// readJSON reads more of what is JSON. It uses buffer for what it receives.
func (b *body) readJSON(buffer []byte) error {
	n, err := b.receive(buffer[:min(len(buffer), maxRead)])
	for data := buffer[:n]; len(data) > 0; {
		before := b.scanner.current.work()
		length, ended := b.scanner.scan(data)
		current := &b.scanner.current
		kept := b.trimmer.trim(data[:length])
		current.memory += b.weigher.weigh(kept)
		data = data[length:]
		b.keep(kept)
		work := current.work() - before
		if ended {
			work = max(current.work(), minEventBytes) - before
		}
		if exceeded := b.admit(*current, work); exceeded != nil {
			b.text = nil
			return exceeded
		}
		if ended && b.watch {
			event, err := shortEvent(b.event, false)
			if err != nil {
				return err
			}
			b.text, b.event, *current, b.weigher = append(b.text, event...), nil, content{}, newWeigher(b.weigher.weights)
		}
	}
	if err != nil {
		b.text, b.event = append(b.text, b.event...), nil
	}
	if errors.Is(err, io.EOF) {
		b.ended()
	}
	return err
}

// keep keeps more of a text in JSON, which the client may see at once unless it is an event.
func (b *body) keep(text []byte) {
	if b.watch {
		b.event = append(b.event, text...)
		b.hold(int64(len(b.text) + len(b.event)))
	} else {
		b.text = append(b.text, text...)
		b.hold(b.read)
	}
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
	b.ended()
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
	text, err := shortEvent(event.Bytes()[len(header):], true)
	if err != nil || len(text) == int(length) {
		return event.Bytes(), err
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...), nil //nolint:gosec // it is shorter
}

// prepare makes a whole text in protobuf what the client may see of it.
func (b *body) prepare(text []byte) error {
	counted, err := prepared(text, b.watch)
	if err != nil {
		return fmt.Errorf("%s: %w", b.what, err)
	}
	return b.admit(counted, max(counted.work(), minEventBytes)-int64(len(text)))
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

// become sets what becomes of it, until Close.
func (b *body) become(memory int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed && memory != b.becomes {
		b.bounds.decodes(memory - b.becomes)
		b.becomes = memory
	}
}

// admit returns an error if a text holds too much, alone or with what else is decoded. In between it waits until as
// many bytes of events may be read as are as much work.
func (b *body) admit(most content, work int64) error {
	excess := b.excess(most)
	if excess == nil && b.watch {
		if err := b.wait(work); err != nil {
			return fmt.Errorf("%s: %w", b.what, err)
		}
	}
	if excess == nil && most.memory > 0 {
		b.most = b.most.most(most)
		b.become(b.most.memory)
		excess = b.bounds.decodesTooMuch()
	}
	if excess == nil {
		return nil
	}
	b.bounds.exceed(excess)
	return excess
}

// ended notes what an answer held once it was read, and counts for what is decoded from then on without it: client-go
// closes it first, and decodes it later.
func (b *body) ended() {
	if b.watch {
		return
	}
	b.become(0) // first: for a moment it counts too little rather than twice
	if b.list != "" {
		b.bounds.page(b.list, b.before, b.most)
		return
	}
	b.bounds.object(b.most.memory)
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
	b.bounds.decodes(-b.becomes)
	b.held, b.becomes, b.closed = 0, 0, true
	b.mu.Unlock()
	return b.ReadCloser.Close() //nolint:wrapcheck // a transport changes nothing
}

// excess returns which bound is exceeded by a text that holds most.
func (b *body) excess(most content) *ExcessError {
	current := b.bounds.policy.Get()
	limits := &current.Spec().Limits
	answerBytes, cachedBytes := limits.AnswerBytes.Value(), limits.CachedBytes.Value()
	over := func(what string, limit int64, field string) *ExcessError {
		return &ExcessError{What: what, Limit: bytesOf(limit), Field: field, Policy: current.Name()}
	}
	answer := "The answer to " + b.what
	if b.watch {
		answer = "An event of " + b.what
	}
	objectBytes, objectMemory := min(answerBytes, maxObjectBytes), min(answerBytes, maxObjectMemory)
	overObject := func(what string, limit int64) *ExcessError {
		if limit < answerBytes {
			return &ExcessError{What: what, Limit: bytesOf(limit)}
		}
		return over(what, limit, "answerBytes")
	}
	allBytes := cachedBytes + answerBytes
	switch {
	case b.list == "" && most.bytes > objectBytes:
		return overObject(answer, objectBytes)
	case b.list == "" && most.memory > objectMemory:
		return overObject("What becomes of "+lower(answer), objectMemory)
	case most.bytes > answerBytes:
		return over(answer, answerBytes, "answerBytes")
	case int64(b.trimmer.length) > objectBytes: // all of it is in what was read last
		return overObject("A string in "+lower(answer), objectBytes)
	case b.bounds.kept()+b.bounds.inFlight.Load() > allBytes:
		return over("What is kept, with all answers that are being read,", allBytes, "cachedBytes")
	case b.list == "":
		return nil
	}
	switch all := b.before.plus(most); {
	case all.bytes > max(answerBytes, cachedBytes):
		return over("The list "+b.what+", all pages together,", max(answerBytes, cachedBytes), "cachedBytes")
	case all.items > limits.CachedObjects:
		return &ExcessError{What: "The number of objects in the list " + b.what, Limit: strconv.FormatInt(limits.CachedObjects, 10), Field: "cachedObjects", Policy: current.Name()}
	case all.memory > allBytes:
		return over("What becomes of "+lower(answer)+", with the pages before it,", allBytes, "cachedBytes")
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
