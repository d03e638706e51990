package soak

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/superpool/superpool/internal/pki"
	"github.com/superpool/superpool/test/controlplane"
)

// served is an API server that says who asks, and a proxy before it.
type served struct {
	proxy  *proxy
	client *http.Client
	// asked counts the requests that reached the server.
	asked atomic.Int32
	wrote []write
}

func serve(t *testing.T) *served {
	t.Helper()
	s := &served{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		s.asked.Add(1)
		if !isWatch(request) {
			_, _ = fmt.Fprintf(w, "%s of %s", request.Header.Get("X-Remote-User"), request.Header.Values("X-Remote-Group"))
			return
		}
		_, _ = fmt.Fprint(w, "event")
		_ = http.NewResponseController(w).Flush()
		<-request.Context().Done()
	}))
	t.Cleanup(server.Close)
	authority, err := pki.NewAuthority("ca")
	require.NoError(t, err)
	issue := func(wanted pki.Certificate) tls.Certificate {
		pair, err := authority.Issue(wanted)
		require.NoError(t, err)
		certificate, err := tls.X509KeyPair(pair.Certificate, pair.Key)
		require.NoError(t, err)
		return certificate
	}
	own, err := authority.Pair()
	require.NoError(t, err)
	trusted := x509.NewCertPool()
	require.True(t, trusted.AppendCertsFromPEM(own.Certificate))
	transport, ok := server.Client().Transport.(*http.Transport)
	require.True(t, ok)
	front := &controlplane.Front{URL: server.URL, Transport: transport, Serving: &tls.Config{
		Certificates: []tls.Certificate{issue(pki.Certificate{IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})}, ClientCAs: trusted, ClientAuth: tls.VerifyClientCertIfGiven,
	}}
	s.proxy, err = startProxy(t.Context(), "r1", front, rand.New(rand.NewPCG(1, 1)), func(w write) { s.wrote = append(s.wrote, w) })
	require.NoError(t, err)
	t.Cleanup(s.proxy.close)
	s.client = &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{
		RootCAs: trusted, Certificates: []tls.Certificate{issue(pki.Certificate{User: "syncer", Groups: []string{"a", "b"}})},
	}}}
	t.Cleanup(s.client.CloseIdleConnections)
	return s
}

// ask sends a request, and returns status and body, or that there was an error.
func (s *served) ask(ctx context.Context, method, path string) string {
	request, err := http.NewRequestWithContext(ctx, method, s.proxy.url+path, strings.NewReader(""))
	if err != nil {
		return err.Error()
	}
	request.Header.Set("User-Agent", "syncer-r1/v1")
	request.Header.Set("X-Remote-User", "forged")
	response, err := s.client.Do(request)
	if err != nil {
		return "error"
	}
	defer response.Body.Close() //nolint:errcheck // it was read
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "cut: " + string(body)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Sprint(response.StatusCode)
	}
	return string(body)
}

func TestProxy(t *testing.T) {
	t.Parallel()
	const answer = "syncer of [a b]"
	for name, tc := range map[string]struct {
		plan   plan
		method string
		path   string
		want   string
		// asked is how many requests reach the API server, wrote how many the auditor sees.
		asked, wrote int
	}{
		"who asks is who shows the certificate":  {want: answer, asked: 1},
		"a write is seen":                        {method: http.MethodPut, want: answer, asked: 1, wrote: 1},
		"a reset comes before":                   {plan: plan{fault: reset}, method: http.MethodPut, want: "error"},
		"an answer is lost":                      {plan: plan{fault: lost}, method: http.MethodPut, want: "error", asked: 1, wrote: 1},
		"a connection is severed":                {plan: plan{fault: severed}, method: http.MethodPut, want: "error"},
		"the API server fails":                   {plan: plan{fault: internal}, want: "500"},
		"it is not there":                        {plan: plan{fault: unavailable}, want: "503"},
		"it has too much to do":                  {plan: plan{fault: throttled}, want: "429"},
		"somebody else was first":                {plan: plan{fault: conflict}, method: http.MethodPut, want: "409"},
		"an answer is slow":                      {plan: plan{fault: slow, delay: time.Millisecond}, want: answer, asked: 1},
		"an answer is cut":                       {plan: plan{fault: truncated, kept: 0.5}, want: "cut: " + answer[:len(answer)/2], asked: 1},
		"a watch is cut":                         {plan: plan{lasts: 200 * time.Millisecond}, path: "/?watch=true", want: "cut: event", asked: 1},
		"a watch ends":                           {plan: plan{lasts: 200 * time.Millisecond, clean: true}, path: "/?watch=true", want: "event", asked: 1},
		"a watch that is refused reaches nobody": {plan: plan{fault: internal, lasts: time.Hour}, path: "/?watch=true", want: "500"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			s.proxy.decide = func(*http.Request) plan { return tc.plan }
			method := tc.method
			if method == "" {
				method = http.MethodGet
			}
			require.Empty(t, cmp.Diff(tc.want, s.ask(t.Context(), method, tc.path)))
			require.EqualValues(t, tc.asked, s.asked.Load())
			require.Len(t, s.wrote, tc.wrote)
			for _, w := range s.wrote {
				require.Equal(t, "syncer-r1 r1 PUT", w.program+" "+w.at+" "+w.method)
			}
		})
	}
}

// TestProxyIsCutOff: watches that are there end, nobody connects, and afterwards all is as before.
func TestProxyIsCutOff(t *testing.T) {
	t.Parallel()
	s := serve(t)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.proxy.url+"/?watch=true", http.NoBody)
	require.NoError(t, err)
	watched, err := s.client.Do(request)
	require.NoError(t, err)
	defer func() { require.NoError(t, watched.Body.Close()) }()
	event := make([]byte, len("event"))
	_, err = io.ReadFull(watched.Body, event)
	require.NoError(t, err)
	require.Equal(t, "event", string(event))
	s.proxy.set(cutOff)
	_, err = io.ReadAll(watched.Body)
	require.Error(t, err)
	require.Equal(t, "error", s.ask(t.Context(), http.MethodGet, "/"))
	s.proxy.set(calm)
	require.Equal(t, "syncer of [a b]", s.ask(t.Context(), http.MethodGet, "/"))
}

// TestDraw: all faults come, a conflict only where there can be one, and none when it is calm.
func TestDraw(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	drawn := func(w weather, method, path string) map[fault]bool {
		request := httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody)
		all := map[fault]bool{}
		for range 1000 {
			all[w.draw(random, request)] = true
		}
		return all
	}
	every := map[fault]bool{none: true, reset: true, lost: true, severed: true, internal: true, unavailable: true, throttled: true, slow: true, truncated: true, conflict: true}
	require.Empty(t, cmp.Diff(every, drawn(storm, http.MethodPut, "/")))
	delete(every, conflict)
	require.Empty(t, cmp.Diff(every, drawn(storm, http.MethodGet, "/")))
	require.Empty(t, cmp.Diff(map[fault]bool{none: true, reset: true, severed: true, internal: true, throttled: true, slow: true}, drawn(storm, http.MethodGet, "/?watch=1")))
	require.Empty(t, cmp.Diff(map[fault]bool{none: true}, drawn(calm, http.MethodPut, "/")))
}
