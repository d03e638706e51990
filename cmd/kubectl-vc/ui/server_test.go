package ui

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
	"github.com/superpool/superpool/internal/kubescheduler"
	"github.com/superpool/superpool/manifests/profiles"
	"github.com/superpool/superpool/test/builders/vctest"
)

// changing is a source whose facts a test changes.
type changing struct {
	facts   chan *facts
	changed chan struct{}
}

func (s *changing) look(context.Context) (*facts, error) { return <-s.facts, nil }
func (s *changing) changes() <-chan struct{}             { return s.changed }

// started serves a source, and returns the address of the page.
func started(t *testing.T, from source) (url string, s *server) {
	t.Helper()
	cfg, err := kubescheduler.LoadConfig("", profiles.NamespaceScheduler)
	require.NoError(t, err)
	h := newHub(from)
	require.NoError(t, h.look(t.Context()))
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	s = newServer(cli.New(genericiooptions.NewTestIOStreamsDiscard()), h, cfg, listener.Addr(), "TOKENTOKENTOKEN")
	ended := make(chan error, 1)
	go h.run(ctx)
	go func() { ended <- serve(ctx, listener, s.handler()) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return "http://" + listener.Addr().String() + s.path(), s
}

// get asks, and returns what is answered.
func get(t *testing.T, url string, change func(*http.Request)) (status int, header http.Header, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	if change != nil {
		change(request)
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	read, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, response.Header, string(read)
}

// TestWhoIsAnswered: a browser that asks by the address that was printed is, and nobody else: not a page of another site, not
// by another name of this machine, and nothing that would change anything.
func TestWhoIsAnswered(t *testing.T) {
	t.Parallel()
	url, _ := started(t, &still{testFacts()})
	of := strings.TrimSuffix(url, "TOKENTOKENTOKEN/")
	port := of[strings.LastIndex(of, ":"):]
	port = strings.TrimSuffix(port, "/")
	with := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	host := func(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }
	for name, test := range map[string]struct {
		path   string
		change func(*http.Request)
		want   int
	}{
		"the page":                     {path: url, want: 200},
		"its script":                   {path: url + "page.js", want: 200},
		"its own question":             {path: url + "tenant?key=" + vctest.AcmeRoot, change: with("Origin", "http://127.0.0.1"+port), want: 200},
		"localhost":                    {path: url, change: host("localhost" + port), want: 200},
		"HEAD":                         {path: url, change: func(r *http.Request) { r.Method = http.MethodHead }, want: 200},
		"a bookmark":                   {path: url, change: with("Sec-Fetch-Site", "none"), want: 200},
		"another host (DNS rebinding)": {path: url, change: host("evil.example.com" + port), want: 403},
		"another port":                 {path: url, change: host("127.0.0.1:1"), want: 403},
		"no port":                      {path: url, change: host("127.0.0.1"), want: 403},
		"another origin":               {path: url, change: with("Origin", "http://evil.example.com"), want: 403},
		"an origin by another scheme":  {path: url, change: with("Origin", "https://127.0.0.1"+port), want: 403},
		"no origin":                    {path: url, change: with("Origin", "null"), want: 403},
		"an empty origin":              {path: url, change: with("Origin", ""), want: 403},
		"two origins":                  {path: url, change: func(r *http.Request) { r.Header["Origin"] = []string{"http://127.0.0.1" + port, "null"} }, want: 403},
		"another site":                 {path: url, change: with("Sec-Fetch-Site", "cross-site"), want: 403},
		"another port of this machine": {path: url, change: with("Sec-Fetch-Site", "same-site"), want: 403},
		"no token":                     {path: of, want: 404},
		"another token":                {path: of + "TOKENTOKENTOKEM/", want: 404},
		"more than the token":          {path: of + "TOKENTOKENTOKENX/", want: 404},
		"a path below it":              {path: url + "page/page.js", want: 404},
		"a file beside it":             {path: url + "../ui.go", want: 404},
		"a POST":                       {path: url + "drain?name=r1", change: func(r *http.Request) { r.Method = http.MethodPost }, want: 405},
		"a PUT of what is not there":   {path: url + "x", change: func(r *http.Request) { r.Method = http.MethodPut }, want: 405},
		"no such super cluster":        {path: url + "supercluster?name=r77", want: 404},
		"no such tenant":               {path: url + "tenant", want: 404},
		"no such namespace":            {path: url + "namespace?key=a&name=b", want: 404},
		"a drain of none":              {path: url + "drain?name=r77", want: 500},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, header, body := get(t, test.path, test.change)
			require.Equal(t, test.want, status, body)
			require.Equal(t, policy, header.Get("Content-Security-Policy"))
			if test.want == http.StatusOK {
				require.Equal(t, "no-store", header.Get("Cache-Control"))
			}
			require.Equal(t, "nosniff", header.Get("X-Content-Type-Options"))
			require.Equal(t, "no-referrer", header.Get("Referrer-Policy"))
		})
	}
}

// TestThePageObeysItsPolicy: no script, style or handler is in the page itself, and no text becomes markup.
func TestThePageObeysItsPolicy(t *testing.T) {
	t.Parallel()
	for name, never := range map[string][]string{
		"page/index.html": {"<style", " style=", " onclick", "<script>", "http:", "https:"},
		"page/page.js":    {"innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "http:", "https:", "setAttribute('style'"},
		"page/page.css":   {"url(", "@import"},
	} {
		text, err := embedded.ReadFile(name)
		require.NoError(t, err)
		for _, part := range never {
			require.NotContains(t, string(text), part, name)
		}
		require.Less(t, len(text), 30_000, name)
	}
}

// stream opens events, and returns what reads the next event.
func stream(t *testing.T, url string, headers ...string) (status int, next func() (id, data string), end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"events", nil)
	require.NoError(t, err)
	for _, id := range headers {
		request.Header.Set("Last-Event-ID", id)
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	lines := bufio.NewReader(response.Body)
	next = func() (id, data string) {
		for {
			line, err := lines.ReadString('\n')
			require.NoError(t, err)
			line = strings.TrimSuffix(line, "\n")
			switch {
			case strings.HasPrefix(line, "id: "):
				id = line[len("id: "):]
			case strings.HasPrefix(line, "data: "):
				data = line[len("data: "):]
			case line == ":":
				data = "beat"
			case data != "":
				return id, data
			}
		}
	}
	end = func() {
		cancel()
		_ = response.Body.Close()
	}
	t.Cleanup(end)
	return response.StatusCode, next, end
}

// TestEvents: a page gets what there is, then what has become something else, and nothing where it has not; one that comes
// again with the number of the last one gets it no second time.
func TestEvents(t *testing.T) {
	t.Parallel()
	from := &changing{facts: make(chan *facts, 1), changed: make(chan struct{})}
	from.facts <- testFacts()
	url, _ := started(t, from)
	status, next, _ := stream(t, url)
	require.Equal(t, http.StatusOK, status)
	id, data := next()
	require.Equal(t, "TOKENTOK-1", id)
	require.Contains(t, data, `"notes":["a note"]`)
	_, again, _ := stream(t, url, "TOKENTOK-1")
	_, data = again()
	require.Equal(t, "beat", data)

	from.changed <- struct{}{} // nothing is another
	from.facts <- testFacts()
	other := testFacts()
	other.notes = []string{"another"}
	from.changed <- struct{}{}
	from.facts <- other
	for _, read := range []func() (string, string){next, again} {
		id, data = read()
		require.Equal(t, "TOKENTOK-2", id)
		require.Contains(t, data, `"notes":["another"]`)
	}
}

// TestStreamsAreBounded: so many pages are told of changes, and one that is closed makes room.
func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	url, _ := started(t, &still{testFacts()})
	var ends []func()
	for range mostStreams {
		status, next, end := stream(t, url)
		require.Equal(t, http.StatusOK, status)
		next()
		ends = append(ends, end)
	}
	status, _, _ := stream(t, url)
	require.Equal(t, http.StatusServiceUnavailable, status)
	ends[0]()
	require.Eventually(t, func() bool {
		status, _, end := stream(t, url)
		defer end()
		return status == http.StatusOK
	}, 10*time.Second, 10*time.Millisecond)
}

// TestOneIsTriedAtATime: another one waits, and whoever goes away while it waits is answered no more.
func TestOneIsTriedAtATime(t *testing.T) {
	t.Parallel()
	url, s := started(t, &still{testFacts()})
	s.trials <- struct{}{}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"drain?name=r1", nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	if err == nil {
		_ = response.Body.Close()
	}
	require.ErrorIs(t, err, context.DeadlineExceeded)
	<-s.trials
	status, _, body := get(t, url+"drain?name=r1", nil)
	require.Equal(t, http.StatusOK, status, body)
	require.Contains(t, body, `"superCluster":"r1"`)
	require.Empty(t, s.trials)
}
