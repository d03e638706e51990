package route_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/superpool/superpool/internal/vnagent/route"
)

func TestParse(t *testing.T) {
	t.Parallel()
	const uid = "0b1c5d3e-8f5e-4a8e-9d3b-1f2e3d4c5b6a"
	long := strings.Repeat("n", 63)
	for _, tc := range []struct {
		name, method, path, query string
		want                      route.Request
		// wantKubelet and wantAPIServer are path and query in super namespace "super", with UID "u".
		wantKubelet, wantAPIServer string
	}{
		{name: "health", path: "/healthz", want: route.Request{Kind: route.Health}, wantKubelet: "/healthz"},
		{name: "pods", path: "/pods", want: route.Request{Kind: route.Pods}, wantKubelet: "/pods"},
		{
			name: "summary", path: "/stats/summary", query: "only_cpu_and_memory=true",
			want:        route.Request{Kind: route.Summary, Options: route.Options{OnlyCPUAndMemory: true}},
			wantKubelet: "/stats/summary?only_cpu_and_memory=true",
		},
		{name: "resource", path: "/metrics/resource", want: route.Request{Kind: route.Resource}, wantKubelet: "/metrics/resource"},
		{name: "cadvisor", path: "/metrics/cadvisor", want: route.Request{Kind: route.Cadvisor}, wantKubelet: "/metrics/cadvisor"},
		{name: "probes", path: "/metrics/probes", want: route.Request{Kind: route.Probes}, wantKubelet: "/metrics/probes"},
		{
			name: "logs", path: "/containerLogs/web/p-1/c",
			query: "follow=true&previous=false&sinceSeconds=5&tailLines=0&limitBytes=7&timestamps=1&stream=Stdout&pretty=1&insecureSkipTLSVerifyBackend=true",
			want: route.Request{Kind: route.Logs, Namespace: "web", Pod: "p-1", Container: "c", Options: route.Options{
				Follow: true, Timestamps: true, SinceSeconds: ptr.To[int64](5), TailLines: ptr.To[int64](0), LimitBytes: ptr.To[int64](7), Stream: "Stdout",
			}},
			wantKubelet:   "/containerLogs/super/p-1/c?follow=true&limitBytes=7&sinceSeconds=5&stream=Stdout&tailLines=0&timestamps=true",
			wantAPIServer: "/api/v1/namespaces/super/pods/p-1/log?container=c&follow=true&limitBytes=7&sinceSeconds=5&stream=Stdout&tailLines=0&timestamps=true",
		},
		{
			name: "logs since a time", path: "/containerLogs/web/p/c", query: "sinceTime=2026-11-21T04%3A00%3A00%2B01%3A00&previous=1",
			want: route.Request{Kind: route.Logs, Namespace: "web", Pod: "p", Container: "c", Options: route.Options{
				Previous: true, SinceTime: "2026-11-21T03:00:00Z",
			}},
			wantKubelet:   "/containerLogs/super/p/c?previous=true&sinceTime=2026-11-21T03%3A00%3A00Z",
			wantAPIServer: "/api/v1/namespaces/super/pods/p/log?container=c&previous=true&sinceTime=2026-11-21T03%3A00%3A00Z",
		},
		{
			name: "exec as an API server asks it", method: http.MethodPost, path: "/exec/web/p.with.dots/c", query: "command=sh&command=-c&command=echo+%22a%26b%22&error=1&input=1&output=1&tty=1",
			want: route.Request{Kind: route.Exec, Namespace: "web", Pod: "p.with.dots", Container: "c", Options: route.Options{
				Stdin: true, Stdout: true, Stderr: true, TTY: true, Command: []string{"sh", "-c", `echo "a&b"`},
			}},
			wantKubelet:   "/exec/super/p.with.dots/u/c?command=sh&command=-c&command=echo+%22a%26b%22&error=1&input=1&output=1&tty=1",
			wantAPIServer: "/api/v1/namespaces/super/pods/p.with.dots/exec?command=sh&command=-c&command=echo+%22a%26b%22&container=c&stderr=true&stdin=true&stdout=true&tty=true",
		},
		{
			name: "tty=0 leaves stdout on", path: "/exec/web/p/" + uid + "/c", query: "command=ls&output=1&tty=0&stdin=false",
			want: route.Request{Kind: route.Exec, Namespace: "web", Pod: "p", UID: uid, Container: "c", Options: route.Options{
				Stdout: true, Command: []string{"ls"},
			}},
			wantKubelet:   "/exec/super/p/u/c?command=ls&output=1",
			wantAPIServer: "/api/v1/namespaces/super/pods/p/exec?command=ls&container=c&stdout=true",
		},
		{
			name: "attach", path: "/attach/" + long + "/p/c", query: "stdin=true&stdout=true&command=ignored&Authorization=x",
			want:          route.Request{Kind: route.Attach, Namespace: long, Pod: "p", Container: "c", Options: route.Options{Stdin: true, Stdout: true}},
			wantKubelet:   "/attach/super/p/u/c?input=1&output=1",
			wantAPIServer: "/api/v1/namespaces/super/pods/p/attach?container=c&stdin=true&stdout=true",
		},
		{
			name: "port forward", path: "/portForward/web/p", query: "port=80,443&ports=8080",
			want:          route.Request{Kind: route.PortForward, Namespace: "web", Pod: "p", Options: route.Options{Ports: []int32{80, 443, 8080}}},
			wantKubelet:   "/portForward/super/p/u?port=80&port=443&port=8080",
			wantAPIServer: "/api/v1/namespaces/super/pods/p/portforward?ports=80&ports=443&ports=8080",
		},
		{
			name: "port forward of a UID", method: http.MethodPost, path: "/portForward/web/p/" + uid,
			want:          route.Request{Kind: route.PortForward, Namespace: "web", Pod: "p", UID: uid},
			wantKubelet:   "/portForward/super/p/u",
			wantAPIServer: "/api/v1/namespaces/super/pods/p/portforward?",
		},
		{
			name: "run", method: http.MethodPost, path: "/run/web/p/c", query: "cmd=ls+-l",
			want:          route.Request{Kind: route.Run, Namespace: "web", Pod: "p", Container: "c", Options: route.Options{Cmd: "ls -l"}},
			wantKubelet:   "/run/super/p/u/c?cmd=ls+-l",
			wantAPIServer: "/api/v1/namespaces/super/pods/p/exec?command=ls&command=-l&container=c&stderr=true&stdout=true",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if tc.method == "" {
				tc.method = http.MethodGet
			}
			got, err := route.Parse(tc.method, tc.path, tc.query)
			require.Nil(t, err)
			require.Empty(t, cmp.Diff(tc.want, got))
			wantKubelet, _ := url.Parse(tc.wantKubelet)
			require.Equal(t, wantKubelet.Path, got.KubeletPath("super", "u"))
			require.Equal(t, wantKubelet.RawQuery, got.KubeletQuery().Encode())
			require.Equal(t, tc.wantAPIServer != "", got.OfPod())
			if got.OfPod() {
				require.Equal(t, strings.TrimSuffix(tc.wantAPIServer, "?"), strings.TrimSuffix(got.APIServerPath("super")+"?"+got.APIServerQuery().Encode(), "?"))
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, method, path, query string
		want                      int
	}{
		{name: "nothing", path: "", want: 404},
		{name: "root", path: "/", want: 404},
		{name: "unknown", path: "/configz", want: 404},
		{name: "node logs", path: "/logs/syslog", want: 404},
		{name: "node logs, bare", path: "/logs/", want: 404},
		{name: "all pods that run", path: "/runningpods/", want: 404},
		{name: "metrics of the node", path: "/metrics", want: 404},
		{name: "checkpoint", method: "POST", path: "/checkpoint/a/b/c", want: 404},
		{name: "debugging", path: "/debug/pprof/", want: 404},
		{name: "other case", path: "/PODS", want: 404},
		{name: "trailing slash", path: "/pods/", want: 404},
		{name: "doubled slash before", path: "//pods", want: 404},
		{name: "no slash", path: "pods", want: 404},
		{name: "whole URL", path: "http://x/pods", want: 404},
		{name: "too short", path: "/containerLogs/a/b", want: 404},
		{name: "too long", path: "/containerLogs/a/b/c/d", want: 404},
		{name: "exec too long", path: "/exec/a/b/c/d/e", want: 404},
		{name: "traversal", path: "/containerLogs/../pods", want: 404},
		{name: "traversal to another namespace", path: "/containerLogs/../b/c", want: 400},
		{name: "traversal in a pod", path: "/exec/a/../c", want: 400},
		{name: "dot", path: "/exec/a/./c", want: 400},
		{name: "traversal in a container", path: "/exec/a/b/..", want: 400},
		{name: "traversal in a UID", path: "/exec/a/b/../c", want: 400},
		{name: "doubled slash", path: "/exec/a//c", want: 400},
		{name: "empty namespace", path: "/exec//b/c", want: 400},
		{name: "empty container", path: "/exec/a/b/", want: 400},
		{name: "doubled slash for the UID", path: "/exec/a/b//c", want: 400},
		{name: "encoded slash", path: "/exec/a%2Fb/c", want: 400},
		{name: "encoded slash, lower case", path: "/exec/a/b%2fc/d", want: 400},
		{name: "encoded dots", path: "/exec/a/%2e%2e/c", want: 400},
		{name: "encoded letter", path: "/%70ods", want: 400},
		{name: "encoded twice", path: "/exec/a%252fb/c/d", want: 400},
		{name: "backslash", path: `/exec/a\b/c/d`, want: 400},
		{name: "parameters", path: "/pods;a=b", want: 400},
		{name: "upper case", path: "/exec/A/b/c", want: 400},
		{name: "namespace with a dot", path: "/exec/a.b/b/c", want: 400},
		{name: "container with a dot", path: "/exec/a/b/c.d", want: 400},
		{name: "namespace of 64", path: "/exec/" + strings.Repeat("a", 64) + "/b/c", want: 400},
		{name: "pod of 254", path: "/exec/a/" + strings.Repeat("a", 254) + "/c", want: 400},
		{name: "line feed", path: "/exec/a/b\n/c", want: 400},
		{name: "UID", path: "/exec/a/b/_/c", want: 400},

		{name: "POST of logs", method: "POST", path: "/containerLogs/a/b/c", want: 405},
		{name: "HEAD of logs", method: "HEAD", path: "/containerLogs/a/b/c", want: 405},
		{name: "PUT of exec", method: "PUT", path: "/exec/a/b/c", want: 405},
		{name: "GET of run", method: "GET", path: "/run/a/b/c", query: "cmd=ls", want: 405},
		{name: "DELETE of pods", method: "DELETE", path: "/pods", want: 405},
		{name: "POST of metrics", method: "POST", path: "/metrics/resource", want: 405},
		{name: "CONNECT", method: "CONNECT", path: "/portForward/a/b", want: 405},

		{name: "query with a semicolon", path: "/exec/a/b/c", query: "command=a;tty=1", want: 400},
		{name: "query with a bad escape", path: "/exec/a/b/c", query: "command=%zz", want: 400},
		{name: "tty twice", path: "/exec/a/b/c", query: "tty=1&tty=0", want: 400},
		{name: "stdin in two spellings", path: "/exec/a/b/c", query: "input=1&stdin=true", want: 400},
		{name: "tty that is no boolean", path: "/exec/a/b/c", query: "tty=yes", want: 400},
		{name: "zero byte", path: "/exec/a/b/c", query: "command=a%00b", want: 400},
		{name: "follow that is no boolean", path: "/containerLogs/a/b/c", query: "follow=2", want: 400},
		{name: "tailLines below zero", path: "/containerLogs/a/b/c", query: "tailLines=-1", want: 400},
		{name: "tailLines that is no number", path: "/containerLogs/a/b/c", query: "tailLines=all", want: 400},
		{name: "limitBytes of zero", path: "/containerLogs/a/b/c", query: "limitBytes=0", want: 400},
		{name: "sinceSeconds of zero", path: "/containerLogs/a/b/c", query: "sinceSeconds=0", want: 400},
		{name: "sinceSeconds too large", path: "/containerLogs/a/b/c", query: "sinceSeconds=9223372036854775808", want: 400},
		{name: "sinceTime", path: "/containerLogs/a/b/c", query: "sinceTime=yesterday", want: 400},
		{name: "both since", path: "/containerLogs/a/b/c", query: "sinceTime=2026-11-21T03:00:00Z&sinceSeconds=1", want: 400},
		{name: "stream", path: "/containerLogs/a/b/c", query: "stream=all", want: 400},
		{name: "port zero", path: "/portForward/a/b", query: "port=0", want: 400},
		{name: "port too large", path: "/portForward/a/b", query: "port=65536", want: 400},
		{name: "port with words", path: "/portForward/a/b", query: "port=80,x", want: 400},
		{name: "run without a command", method: "POST", path: "/run/a/b/c", want: 400},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if tc.method == "" {
				tc.method = http.MethodGet
			}
			_, err := route.Parse(tc.method, tc.path, tc.query)
			require.NotNil(t, err)
			require.Equal(t, tc.want, err.Code, err.Reason)
		})
	}
}

// FuzzParse checks that a parsed request holds valid names only, and that its kubelet path and query parse to the same
// request.
func FuzzParse(f *testing.F) {
	f.Add("GET", "/containerLogs/a/b/c", "follow=true&sinceTime=2026-11-21T03:00:00Z")
	f.Add("POST", "/exec/a/b/u/c", "command=a&command=&tty=0&output=1")
	f.Add("GET", "/portForward/a/b", "port=1,2")
	f.Add("POST", "/run/a/b/c", "cmd=ls%20-l")
	f.Add("GET", "/exec/../%2e%2e/c", "")
	f.Add("GET", "//pods", "a;b")
	f.Fuzz(func(t *testing.T, method, path, query string) {
		got, err := route.Parse(method, path, query)
		if err != nil {
			require.Contains(t, []int{400, 404, 405}, err.Code)
			return
		}
		if got.OfPod() {
			require.Empty(t, validation.IsDNS1123Label(got.Namespace))
			require.Empty(t, validation.IsDNS1123Subdomain(got.Pod))
			require.NotContains(t, got.UID+got.Container, "/")
			require.NotContains(t, got.UID+got.Container, ".")
		}
		rendered := got.KubeletPath(got.Namespace, got.UID)
		require.Equal(t, path, rendered)
		require.Equal(t, rendered, (&url.URL{Path: rendered}).EscapedPath())
		again, err := route.Parse(method, rendered, got.KubeletQuery().Encode())
		require.Nil(t, err)
		require.Empty(t, cmp.Diff(got, again, cmpopts.EquateEmpty()))
		if got.OfPod() && got.Kind != route.Run {
			values := got.APIServerQuery()
			values.Del("container")
			again, err := route.Parse(method, rendered, values.Encode())
			require.Nil(t, err)
			require.Empty(t, cmp.Diff(got, again, cmpopts.EquateEmpty()))
		}
	})
}
