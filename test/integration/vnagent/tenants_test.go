package vnagent_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/remotecommand"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// spdyUpgrade adds the headers of an upgrade to SPDY to a request.
func spdyUpgrade(r *http.Request) {
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "SPDY/3.1")
	r.Header.Set("X-Stream-Protocol-Version", "v4.channel.k8s.io")
}

// TestTenantsAreApart requests every route with names of the other tenant, of the super cluster, and of no pod: the
// responses are equal.
func TestTenantsAreApart(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, w *world) {
		client := w.client(t, w.tenants.tenant(t, "a").tls(t))
		for _, names := range []string{"nobody/p", "web/only-b", "only-b/p", "a-web/p", "b-web/p", "kube-system/p", "b/p"} {
			for _, path := range []string{
				"GET /containerLogs/%s/c", "GET /containerLogs/%s/c?follow=true", "POST /exec/%s/c?command=who&output=1", "GET /exec/%s/c?command=who&output=1",
				"POST /attach/%s/c?output=1", "POST /portForward/%s", "GET /portForward/%s?port=80", "POST /run/%s/c?cmd=who",
			} {
				method, path, _ := strings.Cut(fmt.Sprintf(path, names), " ")
				code, body := w.ask(t, client, method, path, spdyUpgrade)
				require.Equal(t, http.StatusNotFound, code, path)
				require.Equal(t, "pod not found", body, path)
			}
		}
		for _, path := range []string{"/exec/web/p/tenant-uid-b/c?output=1", "/exec/web/p/super-uid-a/c?output=1", "/attach/web/p/tenant-uid-b/c?output=1", "/portForward/web/p/tenant-uid-b", "/run/web/p/tenant-uid-b/c?cmd=who"} {
			code, body := w.ask(t, client, http.MethodPost, path, spdyUpgrade)
			require.Equal(t, http.StatusNotFound, code, path)
			require.Equal(t, "pod not found", body, path)
		}
		require.Empty(t, w.upstream.requests(), "nothing of this reaches the super cluster")
		code, body := w.ask(t, client, http.MethodGet, "/containerLogs/web/p/c")
		require.Equal(t, http.StatusOK, code)
		require.Contains(t, body, "a-web/p/c")
	})
}

func TestLists(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, w *world) {
		client := w.client(t, w.tenants.tenant(t, "a").tls(t))
		for path, wants := range map[string][]string{
			"/pods":             {`"kind":"PodList"`, `"namespace":"web"`, `"uid":"tenant-uid-a"`, `"nodeName":"r1.node-1"`, longNamespace},
			"/stats/summary":    {`"namespace":"web"`, `"uid":"tenant-uid-a"`, `"usageNanoCores":11`},
			"/metrics/resource": {`pod_cpu_usage_seconds_total{namespace="web",pod="p"} 11 1700000000000`},
			"/metrics/cadvisor": {`pod_cpu_usage_seconds_total{namespace="web",pod="p"} 11 1700000000000`},
			"/metrics/probes":   {`pod_cpu_usage_seconds_total{namespace="web",pod="p"} 11 1700000000000`},
		} {
			code, body := w.ask(t, client, http.MethodGet, path)
			require.Equal(t, http.StatusOK, code, path)
			for _, want := range wants {
				require.Contains(t, body, want, path)
			}
			for _, leak := range []string{"7777", "b-web", "a-web", "only-b", "super-uid", "tenancy.x-k8s.io", "kube-system", "tenant-uid-b"} {
				require.NotContains(t, body, leak, path)
			}
		}
		_, body := w.ask(t, client, http.MethodGet, "/metrics/resource")
		require.Contains(t, body, "node_cpu_usage_seconds_total 11 ")
		code, body := w.ask(t, w.client(t, w.tenants.tenant(t, "nobody").tls(t)), http.MethodGet, "/pods")
		require.Equal(t, http.StatusOK, code)
		require.Contains(t, body, `"items":[]`)
	})
}

func TestIdentity(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, w *world) {
		expired := clientTemplate("a", tenancyv1alpha1.OrganisationTenants)
		expired.NotAfter = time.Now().Add(-time.Minute)
		_, _, selfSigned := sign(t, clientTemplate("a", tenancyv1alpha1.OrganisationTenants), nil, nil)
		other := newAuthority(t, "tenants")
		for name, shown := range map[string][]tls.Certificate{
			"none":                  nil,
			"self-signed":           {selfSigned.tls(t)},
			"expired":               {w.tenants.client(t, expired).tls(t)},
			"no organisation":       {w.tenants.client(t, clientTemplate("a")).tls(t)},
			"wrong organisation":    {w.tenants.client(t, clientTemplate("a", "system:masters", "superpool:tenants2")).tls(t)},
			"another authority":     {other.tenant(t, "a").tls(t)},
			"no common name":        {w.tenants.tenant(t, "").tls(t)},
			"a path as common name": {w.tenants.tenant(t, "a/../b").tls(t)},
			"upper case":            {w.tenants.tenant(t, "A").tls(t)},
			"a server's":            {w.tenants.server(t).tls(t)},
		} {
			client := w.client(t, shown...)
			for _, path := range []string{"/pods", "/containerLogs/web/p/c", "/exec/web/p/c?command=who&output=1", "/metrics/resource", "/nothing", "/healthz/", "//healthz"} {
				code, body := w.ask(t, client, http.MethodGet, path, spdyUpgrade, func(r *http.Request) {
					r.Header.Set("X-Remote-User", "a")
					r.Header.Set("X-Remote-Group", tenancyv1alpha1.OrganisationTenants)
					r.Header.Set("Impersonate-User", "a")
					r.Header.Set("Authorization", "Bearer a")
					r.Header.Set("X-Forwarded-Client-Cert", "Subject=CN=a")
				})
				require.Equal(t, http.StatusUnauthorized, code, "%s %s", name, path)
				require.Equal(t, "a client certificate of a tenant is needed", body)
			}
			code, _ := w.ask(t, client, http.MethodGet, "/healthz")
			require.Equal(t, http.StatusOK, code, name)
		}
		require.Empty(t, w.upstream.requests())
		code, _ := w.ask(t, w.client(t, w.tenants.client(t, clientTemplate("a", "other", tenancyv1alpha1.OrganisationTenants)).tls(t)), http.MethodGet, "/pods")
		require.Equal(t, http.StatusOK, code)
	})
}

// TestHeaders checks which headers reach the super cluster, for plain requests and for streams.
func TestHeaders(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, w *world) {
		client := w.client(t, w.tenants.tenant(t, "a").tls(t))
		secrets := func(r *http.Request) {
			for _, key := range []string{
				"Authorization", "Proxy-Authorization", "Cookie", "Impersonate-User", "Impersonate-Group", "Impersonate-Uid", "Impersonate-Extra-Scopes", "X-Remote-User", "X-Remote-Group",
				"X-Remote-Extra-Scopes", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Uri", "Forwarded", "X-Real-Ip", "Origin", "Referer", "X-Other",
			} {
				r.Header.Set(key, "forged")
			}
			r.Header.Set("Accept", "text/wanted")
		}
		code, _ := w.ask(t, client, http.MethodGet, "/containerLogs/web/p/c", secrets)
		require.Equal(t, http.StatusOK, code)
		code, _ = w.ask(t, client, http.MethodGet, "/exec/web/p/c?command=who&output=1", secrets, func(r *http.Request) {
			r.Header.Set("Connection", "Upgrade, X-Other")
			r.Header.Set("Upgrade", "websocket")
			r.Header.Set("Sec-Websocket-Version", "13")
			r.Header.Set("Sec-Websocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
			r.Header.Set("Sec-Websocket-Protocol", "base64url.bearer.authorization.k8s.io.Zm9yZ2Vk, v4.channel.k8s.io")
		})
		require.Equal(t, http.StatusSwitchingProtocols, code)
		w.eventually(t, "both arrive", func() bool { return len(w.upstream.requests()) == 2 })
		for _, seen := range w.upstream.requests() {
			for key, values := range seen.Header {
				require.NotContains(t, strings.Join(values, " "), "forged", key)
				require.NotContains(t, strings.Join(values, " "), "bearer", key)
				require.NotContains(t, key, "Forwarded")
			}
			require.Equal(t, "text/wanted", seen.Header.Get("Accept"))
			require.Equal(t, "vn-agent", seen.Header.Get("User-Agent"))
		}
		require.Equal(t, "v4.channel.k8s.io", w.upstream.requests()[1].Header.Get("Sec-Websocket-Protocol"))

		for name, change := range map[string]func(*http.Request){
			"no upgrade":      func(*http.Request) {},
			"unknown upgrade": func(r *http.Request) { r.Header.Set("Connection", "Upgrade"); r.Header.Set("Upgrade", "h2c") },
			"no connection":   func(r *http.Request) { r.Header.Set("Upgrade", "SPDY/3.1") },
			"a body": func(r *http.Request) {
				spdyUpgrade(r)
				r.Body, r.ContentLength = io.NopCloser(strings.NewReader("body")), 4
			},
		} {
			code, _ = w.ask(t, client, http.MethodPost, "/exec/web/p/c?command=who&output=1", change)
			require.Equal(t, http.StatusBadRequest, code, name)
		}
		code, _ = w.ask(t, client, http.MethodGet, "/containerLogs/web/p/c", func(r *http.Request) { r.Header.Set("X-Large", strings.Repeat("x", 130<<10)) })
		require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, code)
		require.Len(t, w.upstream.requests(), 2)
	})
}

// TestPaths sends paths as no client library would.
func TestPaths(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, w *world) {
		shown := w.tenants.tenant(t, "a").tls(t)
		client := w.client(t, shown)
		for path, want := range map[string]int{
			"/containerLogs/web/../p/c": 404, "/containerLogs/../web/p/c": 404, "/containerLogs/../p/c": 400, "/containerLogs//p/c": 400, "//containerLogs/web/p/c": 404,
			"/containerLogs/web/p//c": 404, "/containerLogs/web/p/c/": 404, "/containerLogs/web%2Fp/c": 400, "/containerLogs/web/p%2Fc": 400, "/containerLogs/web/%2e%2e/c": 400,
			"/containerLogs/web/p/%63": 400, "/exec/web/p/../only-b/c": 404, "/logs/": 404, "/logs/syslog": 404, "/configz": 404, "/metrics": 404, "/debug/pprof/": 404,
			"/runningpods/": 404, "/pods?": 200, "/pods/": 404, "/PODS": 404, "/": 404,
		} {
			require.Equal(t, want, w.raw(t, shown, path), path)
		}
		for _, request := range []string{"POST /pods", "DELETE /containerLogs/web/p/c", "PUT /exec/web/p/c", "GET /run/web/p/c?cmd=x", "HEAD /pods"} {
			method, path, _ := strings.Cut(request, " ")
			code, _ := w.ask(t, client, method, path)
			require.Equal(t, http.StatusMethodNotAllowed, code, request)
		}
		require.Empty(t, w.upstream.requests())
	})
}

// raw sends path unchanged and returns the status.
func (w *world) raw(t *testing.T, shown tls.Certificate, path string) int {
	t.Helper()
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: w.serving.pool(), MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{shown}}}
	conn, err := dialer.DialContext(t.Context(), "tcp", w.address)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", path, w.address)
	require.NoError(t, err)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response.StatusCode
}

// TestErrors checks how the super cluster's errors are forwarded to a tenant.
func TestErrors(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, w *world) {
		client := w.client(t, w.tenants.tenant(t, "a").tls(t))
		code, body := w.ask(t, client, http.MethodGet, "/containerLogs/web/p/broken")
		require.Equal(t, http.StatusBadRequest, code)
		require.Contains(t, body, "open /var/log/pods/")
		require.NotContains(t, body, "a-web")
		require.NotContains(t, body, "super-uid")
		for _, container := range []string{"forbidden", "redirect"} {
			code, body = w.ask(t, client, http.MethodGet, "/containerLogs/web/p/"+container)
			require.Equal(t, http.StatusBadGateway, code, container)
			require.Equal(t, "the super cluster does not answer this request", body)
		}
		code, body = w.ask(t, client, http.MethodPost, "/exec/web/p/c?command=who", spdyUpgrade)
		require.Equal(t, http.StatusBadRequest, code)
		require.Contains(t, body, "at least 1 of stdin")
		w.upstreamServer.CloseClientConnections()
		require.NoError(t, w.upstreamServer.Listener.Close())
		code, body = w.ask(t, client, http.MethodGet, "/containerLogs/web/p/c")
		codes := []int{http.StatusBadGateway}
		if w.mode == "kubelet" { // its pods may not be remembered any more
			codes = append(codes, http.StatusServiceUnavailable)
		}
		require.Contains(t, codes, code)
		require.Equal(t, "the super cluster does not answer this request", body)
		families, err := w.registry.Gather()
		require.NoError(t, err)
		for _, family := range families {
			for _, series := range family.GetMetric() {
				require.NotContains(t, series.String(), "web")
			}
		}
	})
}

// TestRotation replaces the serving certificate and the client authority while a stream runs.
func TestRotation(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, w *world) {
		old := w.tenants.tenant(t, "a")
		body := w.follow(t.Context(), t, w.client(t, old.tls(t)))
		defer func() { _ = body.Close() }()

		next := w.serving.server(t)
		write(t, w.file("server.key"), next.key)
		write(t, w.file("server.crt"), next.cert)
		want := next.tls(t).Leaf.SerialNumber
		w.eventually(t, "the new serving certificate is shown", func() bool {
			conn, err := (&tls.Dialer{Config: &tls.Config{RootCAs: w.serving.pool(), MinVersion: tls.VersionTLS12}}).DialContext(t.Context(), "tcp", w.address)
			if err != nil {
				return false
			}
			defer func() { _ = conn.Close() }()
			return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.Cmp(want) == 0
		})

		authority := newAuthority(t, "next tenants")
		fresh := w.client(t, authority.tenant(t, "a").tls(t))
		code, _ := w.ask(t, fresh, http.MethodGet, "/pods")
		require.Equal(t, http.StatusUnauthorized, code)
		write(t, w.file("clients.crt"), authority.pem)
		w.eventually(t, "the new authority counts", func() bool { code, _ := w.ask(t, fresh, http.MethodGet, "/pods"); return code == http.StatusOK })
		code, _ = w.ask(t, w.client(t, old.tls(t)), http.MethodGet, "/pods")
		require.Equal(t, http.StatusUnauthorized, code, "the old authority counts no more")
		require.Error(t, w.execute(t.Context(), t, old, "spdy", "/exec/web/p/c", url.Values{"command": {"who"}, "output": {"1"}}, remotecommand.StreamOptions{Stdout: io.Discard}))
		require.Equal(t, int64(1), w.upstream.running.Load(), "the stream goes on")
	})
}

// TestKubeletCredentialsRotate replaces vn-agent's client certificate for the kubelet, and the authorities on both
// sides of that connection.
func TestKubeletCredentialsRotate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "kubelet")
	client := w.client(t, w.tenants.tenant(t, "a").tls(t))
	body := w.follow(t.Context(), t, client)
	defer func() { _ = body.Close() }()
	status := func() int {
		code, _ := w.ask(t, client, http.MethodGet, "/containerLogs/web/p/c")
		return code
	}
	require.Equal(t, http.StatusOK, status())

	authority, serving := newAuthority(t, "next super clients"), newAuthority(t, "next serving")
	next := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{serving.server(t).tls(t)}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authority.pool()}
	w.upstreamTLS.Store(next)
	fresh := authority.client(t, clientTemplate("vn-agent"))
	write(t, w.file("agent.key"), fresh.key)
	write(t, w.file("agent.crt"), fresh.cert)
	write(t, w.file("kubelet-ca.crt"), serving.pem)
	w.eventually(t, "the new credentials count on both sides", func() bool {
		return status() == http.StatusOK && len(w.upstream.requests()) > 0 && slices.ContainsFunc(w.upstream.requests(), func(r *http.Request) bool {
			return r.TLS.PeerCertificates[0].Equal(fresh.tls(t).Leaf)
		})
	})
	require.NoError(t, w.execute(t.Context(), t, w.tenants.tenant(t, "a"), "spdy", "/exec/web/p/c", url.Values{"command": {"who"}, "output": {"1"}}, remotecommand.StreamOptions{Stdout: io.Discard}))
	requests := w.upstream.requests()
	require.True(t, requests[len(requests)-1].TLS.PeerCertificates[0].Equal(fresh.tls(t).Leaf))
	require.Equal(t, int64(1), w.upstream.running.Load(), "the stream of the old credentials goes on")
}
