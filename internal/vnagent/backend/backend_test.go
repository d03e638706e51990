package backend

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/internal/vnagent/pods"
	"github.com/superpool/superpool/internal/vnagent/route"
)

func TestRequestHeaders(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		in, want http.Header
		upgrades bool
		wantErr  bool
	}{
		{name: "plain", in: http.Header{"Accept": {"a", "b"}, "Authorization": {"x"}, "Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}}, want: http.Header{"Accept": {"a"}}},
		{
			name: "SPDY", upgrades: true,
			in:   http.Header{"Connection": {"upgrade"}, "Upgrade": {"spdy/3.1"}, "X-Stream-Protocol-Version": {"v5.channel.k8s.io", "x", "v4.channel.k8s.io"}, "Cookie": {"x"}},
			want: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}, "X-Stream-Protocol-Version": {"v5.channel.k8s.io", "v4.channel.k8s.io"}},
		},
		{
			name: "WebSocket with a token", upgrades: true,
			in: http.Header{
				"Connection": {"keep-alive, Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Key": {"k"}, "Sec-Websocket-Version": {"13"},
				"Sec-Websocket-Protocol": {"base64url.bearer.authorization.k8s.io.eA, v5.channel.k8s.io"}, "Sec-Websocket-Extensions": {"x"},
			},
			want: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Key": {"k"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Protocol": {"v5.channel.k8s.io"}},
		},
		{name: "none", upgrades: true, in: http.Header{}, wantErr: true},
		{name: "two", upgrades: true, in: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1", "websocket"}}, wantErr: true},
		{name: "other", upgrades: true, in: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"h2c"}}, wantErr: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := requestHeaders(tc.in, tc.upgrades)
			if tc.wantErr {
				require.ErrorIs(t, err, ErrUpgrade)
				return
			}
			require.NoError(t, err)
			tc.want.Set("User-Agent", "vn-agent")
			tc.want.Set("Accept-Encoding", "identity")
			require.Equal(t, tc.want, got)
		})
	}
}

// TestTimeouts has a backend that does not respond: requests for streams time out, those for logs do not.
func TestTimeouts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testTimeouts)
}

func testTimeouts(t *testing.T) {
	release := make(chan struct{})
	silent := serve(t, func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
			_, _ = io.WriteString(w, "at last")
		case <-r.Context().Done():
		}
	})
	target := &url.URL{Scheme: "http", Host: "kubelet"}
	pod := pods.Pod{Super: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "s", UID: "u"}}, Owner: tenancy.Owner{Namespace: "n", UID: "v"}}
	forwarder := &forwarder{transport: silent}
	begin := time.Now()

	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
	request.Header.Set("Connection", "Upgrade")
	request.Header.Set("Upgrade", "SPDY/3.1")
	answer := httptest.NewRecorder()
	forwarder.forward(answer, request, target, route.Request{Kind: route.Exec}, pod)
	require.Equal(t, http.StatusGatewayTimeout, answer.Code)
	require.Equal(t, upgradeTimeout, time.Since(begin))

	answer = httptest.NewRecorder()
	time.AfterFunc(24*time.Hour, func() { close(release) })
	forwarder.forward(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody), target, route.Request{Kind: route.Logs}, pod)
	require.Equal(t, http.StatusOK, answer.Code)
	require.Equal(t, "at last", answer.Body.String())
}

func TestScrapeIsBounded(t *testing.T) {
	t.Parallel()
	bounded := &boundedReader{in: strings.NewReader("12345"), left: 4}
	got, err := io.ReadAll(bounded)
	require.ErrorIs(t, err, errTooLarge)
	require.Equal(t, "1234", string(got))
}

// TestOutputIsBounded: a run holds no more than any stream buffers.
func TestOutputIsBounded(t *testing.T) {
	t.Parallel()
	const most = 512 << 10
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	out := output{cancel: cancel}
	for range most / 1000 {
		_, err := out.Write(make([]byte, 1000))
		require.NoError(t, err)
		require.LessOrEqual(t, cap(out.bytes), most)
	}
	_, err := out.Write(make([]byte, most%1000))
	require.NoError(t, err)
	require.NoError(t, context.Cause(ctx))
	_, err = out.Write([]byte("x"))
	require.ErrorContains(t, err, "larger than the 512 KiB")
	require.ErrorIs(t, context.Cause(ctx), err)
}

func TestKubeletNeedsItsFiles(t *testing.T) {
	t.Parallel()
	_, err := NewKubelet(KubeletOptions{CAFile: "missing"})
	require.Error(t, err)
	_, err = NewKubelet(KubeletOptions{CertFile: "x"})
	require.ErrorContains(t, err, "needs its key")
}
