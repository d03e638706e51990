package tenantclient_test

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/tenantclient"
)

// containers returns a pod in protobuf that has so many containers without a text, which take about 500 bytes each.
func containers(count int) string {
	return "k8s\x00" + field(1, field(1, "v1")+field(2, "Pod")) + field(2, field(1, field(1, "a"))+field(2, strings.Repeat("\x12\x00", count)))
}

// modified returns an event of a watch that brings an object.
func modified(object string) string {
	event := field(1, "MODIFIED") + field(2, field(1, object))
	return string(binary.BigEndian.AppendUint32(nil, uint32(len(event)))) + event //nolint:gosec // it is short
}

// read reads an answer to its end, and closes it if it could not be read.
func read(t *testing.T, bounds *tenantclient.Bounds, path, contentType, text string) (io.ReadCloser, error) {
	t.Helper()
	transport := bounds.Config(&rest.Config{}).WrapTransport(roundTrip(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {contentType}}, Body: io.NopCloser(strings.NewReader(text))}, nil
	}))
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://tenant"+path, http.NoBody)
	require.NoError(t, err)
	request.Header.Set("Accept", contentType)
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if strings.Contains(path, "watch") {
		_, err = io.ReadFull(response.Body, make([]byte, len(text)))
	} else {
		_, err = io.Copy(io.Discard, response.Body)
		require.NoError(t, response.Body.Close())
	}
	return response.Body, err
}

// TestObjectsAreBounded: one object, in an answer or in an event, becomes no more than 32 MiB, and its text is no
// longer than errors of decoders may be. What etcd takes is read.
func TestObjectsAreBounded(t *testing.T) {
	t.Parallel()
	const object, one, watch = "/api/v1/namespaces/n/pods/a", "/api/v1/pods?limit=1", "/api/v1/pods?watch=true"
	const tooMuch, tooLong = "is more than 32Mi", "is more than 4Mi"
	large := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"}, Data: map[string]string{"page": strings.Repeat("0123456789abcde\n", 1_500_000/16)}}
	pod, err := json.Marshal(ordinaryPod())
	require.NoError(t, err)
	custom := `{"kind":"A","apiVersion":"g/v1","spec":[` + strings.Repeat(string(pod)+",", 1_500_000/len(pod)) + `{}]}`
	pairs := `{"kind":"A","apiVersion":"g/v1","spec":[` + strings.Repeat(`{"ip":"10.100.200.30","port":8080},`, 3<<19/35) + `{}]}`
	long := `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","creationTimestamp":"` + strings.Repeat(`\u0001`, 800_000) + `"}}`
	page := func(item string) string { return `{"kind":"PodList","apiVersion":"v1","items":[` + item + "]}" }
	for _, tc := range []struct{ name, path, contentType, text, wantErr string }{
		{name: "structures", path: object, contentType: protobufType, text: containers(100_000), wantErr: "What becomes of the answer to GET /api/v1/namespaces/n/pods/a " + tooMuch},
		{name: "structures in a list of one", path: one, contentType: protobufType, text: messages("PodList", field(2, field(2, strings.Repeat("\x12\x00", 100_000)))), wantErr: "What becomes of the answer to GET /api/v1/pods " + tooMuch},
		{name: "structures in an event", path: watch, contentType: protobufType, text: modified(containers(100_000)), wantErr: "What becomes of an event of GET /api/v1/pods " + tooMuch},
		{name: "objects in JSON", path: "/apis/g/v1/namespaces/n/as/a", contentType: jsonType, text: `{"a":[` + strings.Repeat(`{"":0},`, 100_000) + "{}]}", wantErr: "What becomes of the answer to GET /apis/g/v1/namespaces/n/as/a " + tooMuch},
		{name: "a long time", path: object, contentType: jsonType, text: long, wantErr: "The answer to GET /api/v1/namespaces/n/pods/a " + tooLong},
		{name: "a long time in an event", path: watch, contentType: jsonType, text: `{"type":"ADDED","object":` + long + "}", wantErr: "An event of GET /api/v1/pods " + tooLong},
		{name: "a long time in a list of one", path: one, contentType: jsonType, text: page(long), wantErr: "The answer to GET /api/v1/pods " + tooLong},
		{name: "a long time in a list", path: "/api/v1/pods", contentType: jsonType, text: page(long), wantErr: "A string in the answer to GET /api/v1/pods " + tooLong},
		{name: "a ConfigMap", path: "/api/v1/namespaces/n/configmaps/a", contentType: protobufType, text: inProtobuf(t, large)},
		{name: "a custom object", path: "/apis/g/v1/namespaces/n/as/a", contentType: jsonType, text: custom},
		{name: "a custom object of pairs", path: "/apis/g/v1/namespaces/n/as/a", contentType: jsonType, text: pairs},
		{name: "a ConfigMap in an event", path: watch, contentType: protobufType, text: modified(inProtobuf(t, large))},
		{name: "a list", path: "/apis/g/v1/namespaces/n/as", contentType: jsonType, text: page(custom + "," + custom)},
		{name: "a list in protobuf", path: "/api/v1/namespaces/n/pods", contentType: protobufType, text: messages("PodList", field(2, field(2, strings.Repeat("\x12\x00", 50_000))))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := read(t, tenantclient.New(&policy.Ref{}), tc.path, tc.contentType, tc.text)
			if tc.wantErr == "" {
				require.NoError(t, err)
				return
			}
			var excess *tenantclient.ExcessError
			require.ErrorAs(t, err, &excess)
			require.Equal(t, tc.wantErr, excess.Error())
		})
	}
}

// TestObjectsAreCountedTogether: what was read of all objects and events counts while it is decoded: an object for a
// short time, an event until the client asks for the next one. Five of them are as much as may be.
func TestObjectsAreCountedTogether(t *testing.T) {
	t.Parallel()
	const objects, events = "/api/v1/namespaces/n/pods/a", "/api/v1/pods?watch=true"
	const tooMuch = "What becomes of all answers and events that are decoded is more than 320Ki (limits.cachedBytes of TenantPolicy small)"
	pod := containers(100)
	for _, tc := range []struct {
		name, path, text string
		// over lets the client be done with an answer.
		over func(*testing.T, io.ReadCloser)
	}{
		{name: "objects", path: objects, text: pod, over: func(*testing.T, io.ReadCloser) { <-time.After(3 * time.Second) }},
		{name: "events that are handed over", path: events, text: modified(pod), over: func(t *testing.T, body io.ReadCloser) {
			_, err := body.Read(make([]byte, 1))
			require.ErrorIs(t, err, io.EOF)
		}},
		{name: "watches that end", path: events, text: modified(pod), over: func(t *testing.T, body io.ReadCloser) { require.NoError(t, body.Close()) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				bounds := bounded(t)
				var bodies []io.ReadCloser
				var err error
				for err == nil && len(bodies) < 50 {
					var body io.ReadCloser
					body, err = read(t, bounds, tc.path, protobufType, tc.text)
					bodies = append(bodies, body)
				}
				require.ErrorContains(t, err, tooMuch)
				require.Len(t, bodies, 7)
				for _, body := range bodies[:6] {
					tc.over(t, body)
				}
				require.NoError(t, bodies[6].Close())
				for range 6 {
					_, err := read(t, bounds, tc.path, protobufType, tc.text)
					require.NoError(t, err)
				}
			})
		})
	}
}

// TestEventsCostTheirMemory: the rate of events is one of what becomes of them.
func TestEventsCostTheirMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bounds, start := tenantclient.New(&policy.Ref{}), time.Now()
		body, err := read(t, bounds, "/api/v1/pods?watch=true", protobufType, strings.Repeat(modified(containers(15_000)), 128))
		require.NoError(t, err) // 128 events that become 7 MB, of which 512 MiB may come at once, and 128 a second
		require.NoError(t, body.Close())
		require.Greater(t, time.Since(start), time.Second)
		require.Less(t, time.Since(start), 5*time.Second)
	})
}

// TestListsHaveARate: who lets a client list anew again and again ends the connection, and is asked no more until an
// hour has passed with as much as may be listed in it.
func TestListsHaveARate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		requests := 0
		page := messages("PodList", field(2, field(2, strings.Repeat("\x12\x00", 150))))
		bounds := bounded(t)
		api, err := kubernetes.NewForConfig(answering(bounds, http.StatusOK, protobufType, func(*http.Request) io.Reader {
			requests++
			return strings.NewReader(page)
		}))
		require.NoError(t, err)
		list := func() error {
			_, err := api.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{Limit: 500})
			return err
		}
		for err == nil && requests < 1000 {
			err = list()
		}
		var excess *tenantclient.ExcessError
		require.ErrorAs(t, err, &excess)
		require.Equal(t, "What lists of an hour became is more than 5Mi (limits.cachedBytes of TenantPolicy small)", excess.Error())
		require.Greater(t, requests, 16)
		require.Less(t, requests, 60)
		before := requests
		require.Error(t, list())
		require.Equal(t, before, requests, "nothing was asked")
		<-time.After(time.Hour)
		for range 16 {
			require.NoError(t, list())
		}
	})
}
