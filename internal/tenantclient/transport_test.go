package tenantclient_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/framer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/tenantclient"
)

// bounded returns small bounds, and the policy that sets them.
func bounded(t testing.TB) *tenantclient.Bounds { return boundedBy(t, "256Ki") }

func boundedBy(t testing.TB, cachedBytes string) *tenantclient.Bounds {
	t.Helper()
	spec := *policy.Default().Spec().DeepCopy()
	spec.Limits.AnswerBytes, spec.Limits.CachedBytes, spec.Limits.CachedObjects = resource.MustParse("64Ki"), resource.MustParse(cachedBytes), 1000
	small, err := policy.New("small", &spec)
	require.NoError(t, err)
	ref := &policy.Ref{}
	ref.Set(small)
	return tenantclient.New(ref)
}

// endless writes the same text until the client has had enough, or 8 MiB, of which the bounds are a small part.
func endless(w http.ResponseWriter, start, text string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, start)
	for sent := 0; sent < 8<<20; sent += len(text) {
		if _, err := io.WriteString(w, text); err != nil {
			return
		}
	}
}

func endlessProtobuf(w http.ResponseWriter, start, text string) {
	w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
	for _, _ = io.WriteString(w, start); ; {
		if _, err := io.WriteString(w, text); err != nil {
			return
		}
	}
}

func writeProtobuf(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
	_, _ = io.WriteString(w, text)
}

func varint(value int) string {
	return string(binary.AppendUvarint(nil, uint64(value))) //nolint:gosec // lengths
}

func list(ctx context.Context, api kubernetes.Interface) error {
	_, err := api.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	return err
}

// listPages reads a list as an informer does.
func listPages(ctx context.Context, api kubernetes.Interface) error {
	pages := pager.New(pager.SimplePageFunc(func(options metav1.ListOptions) (runtime.Object, error) {
		return api.CoreV1().Pods("").List(ctx, options)
	}))
	_, _, err := pages.List(ctx, metav1.ListOptions{})
	return err
}

var errEvent = errors.New("an event came")

// follow watches until the watch ends, and returns its last error.
func follow(ctx context.Context, api kubernetes.Interface) error {
	events, err := api.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		if event.Type == watch.Error {
			return apierrors.FromObject(event.Object)
		}
	}
	return nil
}

// followInVain is follow of what brings no event.
func followInVain(ctx context.Context, api kubernetes.Interface) error {
	events, err := api.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		if event.Type != watch.Error {
			return errEvent
		}
	}
	return nil
}

// TestHostileAnswers lets a tenant's API server answer what no real one does. The client reads little of it, and the
// connection to that tenant ends where a bound of its policy is exceeded.
func TestHostileAnswers(t *testing.T) {
	t.Parallel()
	const podList = `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[`
	const pod = `{"metadata":{"name":"p","namespace":"n","annotations":{"a":"%s"}}}`
	for _, tc := range []struct {
		name   string
		answer http.HandlerFunc
		call   func(context.Context, kubernetes.Interface) error
		// wantErr is part of the error of the call, wantFailure of the message that ends the connection.
		wantErr, wantFailure string
	}{
		{
			name: "an endless list", call: list,
			answer: func(w http.ResponseWriter, _ *http.Request) {
				endless(w, podList, fmt.Sprintf(pod, strings.Repeat("x", 1000))+",")
			},
			wantErr: "The answer to GET /api/v1/pods is more than 64Ki (limits.answerBytes of TenantPolicy small)",
		},
		{
			name: "one huge object", call: list,
			answer: func(w http.ResponseWriter, _ *http.Request) {
				endless(w, podList+`{"metadata":{"name":"`, "aaaaaaaaaaaaaaaa")
			},
			wantErr: "The answer to GET /api/v1/pods is more than 64Ki",
		},
		{
			name: "empty objects, which are large in memory", call: list,
			answer:  func(w http.ResponseWriter, _ *http.Request) { endless(w, podList, "{},") },
			wantErr: "What becomes of the answer to GET /api/v1/pods, with the pages before it, is more than 320Ki (limits.cachedBytes of TenantPolicy small)",
		},
		{
			name: "nulls", call: list,
			answer:  func(w http.ResponseWriter, _ *http.Request) { endless(w, podList+`{"spec":{"containers":[`, "null,") },
			wantErr: "What becomes of the answer to GET /api/v1/pods, with the pages before it, is more than 320Ki (limits.cachedBytes of TenantPolicy small)",
		},
		{
			name: "an endless number of pages", call: listPages,
			answer: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"continue":"more"},"items":[`+fmt.Sprintf(pod, strings.Repeat("x", 50000))+"]}")
			},
			wantErr: "The list GET /api/v1/pods, all pages together, is more than 256Ki (limits.cachedBytes",
		},
		{
			name: "pages of many small objects", call: listPages,
			answer: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"continue":"more"},"items":[{}`+strings.Repeat(",{}", 400)+"]}")
			},
			wantErr: "What becomes of the answer to GET /api/v1/pods, with the pages before it, is more than 320Ki (limits.cachedBytes of TenantPolicy small)",
		},
		{
			name: "a number that takes seconds to parse", call: list,
			answer: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, podList+`{"spec":{"overhead":{"cpu":"1e-30000000"}}}]}`)
			},
			wantErr: "The answer to GET /api/v1/pods is more than 64Ki",
		},
		{
			name: "numbers that take milliseconds, one by one", call: list,
			answer: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, podList+strings.Repeat(`{"spec":{"overhead":{"cpu": -0.1e-9999}}},`, 10)+`{}]}`)
			},
			wantErr: "The answer to GET /api/v1/pods is more than 64Ki",
		},
		{
			name: "a number of many digits", call: list,
			answer: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, podList+`{"spec":{"overhead":{"cpu":" `+strings.Repeat("1", 10000)+`Ki"}}}]}`)
			},
			wantErr: "The answer to GET /api/v1/pods is more than 64Ki",
		},
		{
			name: "an endless error", call: list,
			answer: func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusForbidden)
				endless(w, "", "refused ")
			},
			wantErr: "… (cut, of more than 65536 bytes) (get pods)",
		},
		{
			name: "an endless event", call: followInVain,
			answer: func(w http.ResponseWriter, _ *http.Request) {
				endless(w, `{"type":"ADDED","object":{"metadata":{"name":"`, "aaaaaaaaaaaaaaaa")
			},
			wantFailure: "n event of GET /api/v1/pods is more than 64Ki (limits.answerBytes",
		},
		{
			name: "an event of white space", call: followInVain,
			answer:      func(w http.ResponseWriter, _ *http.Request) { endless(w, "", "                \n") },
			wantFailure: "An event of GET /api/v1/pods is more than 64Ki",
		},
		{
			name: "a bomb", call: list,
			answer: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Encoding", "gzip")
				w.Header().Set("Content-Type", "application/json")
				zip := gzip.NewWriter(w)
				_, _ = io.WriteString(zip, strings.Repeat(" ", 1<<20))
				_ = zip.Close()
			},
			wantErr: `the answer is compressed ("gzip"), which was not asked for`,
		},
		{
			name: "a redirect", call: list,
			answer: func(w http.ResponseWriter, request *http.Request) {
				http.Redirect(w, request, "http://169.254.169.254/latest", http.StatusFound)
			},
			wantErr: "302 Found leads elsewhere",
		},
		{
			name: "YAML", call: list,
			answer: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/yaml")
				_, _ = io.WriteString(w, "a: [&a [], *a]")
			},
			wantErr: `content type "application/yaml", and neither application/json nor application/vnd.kubernetes.protobuf`,
		},
		{
			name: "an error in YAML", call: list,
			answer: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/yaml")
				w.WriteHeader(http.StatusForbidden)
				_, _ = io.WriteString(w, "message: that of the tenant")
			},
			wantErr: "message: that of the tenant (get pods)", // nobody has decoded it
		},
		{
			name: "an endless list in protobuf", call: list,
			answer:  func(w http.ResponseWriter, _ *http.Request) { endlessProtobuf(w, "", "k8s\x00") },
			wantErr: "The answer to GET /api/v1/pods is more than 64Ki (limits.answerBytes of TenantPolicy small)",
		},
		{
			name: "empty messages, which are large in memory", call: list,
			answer: func(w http.ResponseWriter, _ *http.Request) {
				pods := strings.Repeat("\x12\x00", 8000) // items: empty pods
				writeProtobuf(w, "k8s\x00\x0a\x0d\x0a\x02v1\x12\x07PodList\x12"+varint(len(pods))+pods)
			},
			wantErr: "The number of objects in the list GET /api/v1/pods is more than 1000 (limits.cachedObjects",
		},
		{
			name: "pages of many small messages", call: listPages,
			answer: func(w http.ResponseWriter, _ *http.Request) {
				list := "\x0a\x06\x1a\x04more" + strings.Repeat("\x12\x00", 400) // metadata.continue, and empty pods
				writeProtobuf(w, "k8s\x00\x0a\x0d\x0a\x02v1\x12\x07PodList\x12"+varint(len(list))+list)
			},
			wantErr: "What becomes of the answer to GET /api/v1/pods, with the pages before it, is more than 320Ki (limits.cachedBytes of TenantPolicy small)",
		},
		{
			name: "labels that end behind their entries", call: list,
			answer: func(w http.ResponseWriter, _ *http.Request) {
				labels := strings.Repeat("\x5a\x06\x0a\x01a\x12\xe8\x07", 200) // "a" with 1000 bytes of what follows
				meta := labels + "\x62" + varint(10003) + "\x0a" + varint(10000) + strings.Repeat("x", 10000)
				pod := "\x0a" + varint(len(meta)) + meta
				pods := "\x12" + varint(len(pod)) + pod
				writeProtobuf(w, "k8s\x00\x0a\x0d\x0a\x02v1\x12\x07PodList\x12"+varint(len(pods))+pods)
			},
			wantErr: "GET /api/v1/pods: the protobuf is refused: an entry of a map is more than key and value",
		},
		{
			name: "a kind that no client knows", call: list,
			answer: func(w http.ResponseWriter, _ *http.Request) {
				writeProtobuf(w, "k8s\x00\x0a\x09\x0a\x02v1\x12\x03Pad\x12\x00")
			},
			wantErr: `the protobuf is refused: kind "Pad" of "v1" is not known`,
		},
		{
			name: "an endless error in protobuf", call: list,
			answer: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
				w.WriteHeader(http.StatusForbidden)
				endlessProtobuf(w, "k8s\x00", "refused ")
			},
			wantErr: "… (cut, of more than 65536 bytes) (get pods)",
		},
		{
			name: "an event that says it is long", call: followInVain,
			answer:      func(w http.ResponseWriter, _ *http.Request) { writeProtobuf(w, "\xff\xff\xff\xff") },
			wantFailure: "An event of GET /api/v1/pods is more than 64Ki",
		},
		{
			name: "an event of empty messages", call: followInVain,
			answer: func(w http.ResponseWriter, _ *http.Request) {
				spec := strings.Repeat("\x12\x00", 4000) // empty containers
				pod := "\x12" + varint(len(spec)) + spec
				unknown := "k8s\x00\x0a\x09\x0a\x02v1\x12\x03Pod\x12" + varint(len(pod)) + pod
				raw := "\x0a" + varint(len(unknown)) + unknown
				event := "\x0a\x05ADDED\x12" + varint(len(raw)) + raw
				writeProtobuf(w, string(binary.BigEndian.AppendUint32(nil, uint32(len(event))))+event) //nolint:gosec // it is short
			},
			wantFailure: "What becomes of an event of GET /api/v1/pods is more than 64Ki (limits.answerBytes",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(tc.answer)
			t.Cleanup(server.Close)
			bounds := bounded(t)
			api, err := kubernetes.NewForConfig(bounds.Config(&rest.Config{Host: server.URL, QPS: -1}))
			require.NoError(t, err)
			var called error
			ended := bounds.Serve(t.Context(), func(ctx context.Context) error {
				called = tc.call(ctx, api)
				return nil
			})
			require.NotErrorIs(t, called, errEvent)
			if tc.wantErr != "" {
				require.ErrorContains(t, called, tc.wantErr)
			}
			var excess *tenantclient.ExcessError
			if tc.wantFailure == "" && !errors.As(called, &excess) {
				require.NoError(t, ended)
				return
			}
			var failure *engage.Failure
			require.ErrorAs(t, ended, &failure)
			require.Equal(t, tenancyv1alpha1.ReasonTooMuchData, failure.Reason.Reason)
			require.True(t, failure.Costly)
			require.Contains(t, failure.Message, tc.wantFailure)
		})
	}
}

// TestHeadersAreBounded: an answer with endless headers is cut off, whatever the protocol.
func TestHeadersAreBounded(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		for size, wantErr := range map[int]bool{8 << 10: false, 1 << 20: true} {
			t.Run(fmt.Sprintf("http2 %t, %d bytes", http2, size), func(t *testing.T) {
				t.Parallel()
				var major atomic.Int32
				server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					major.Store(int32(r.ProtoMajor)) //nolint:gosec // It is 1 or 2.
					for i := range size / 1024 {
						w.Header().Set(fmt.Sprint("X-", i), strings.Repeat("x", 1000))
					}
					w.Header().Set("Content-Type", "application/json")
					_, _ = io.WriteString(w, `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}`)
				}))
				server.EnableHTTP2 = http2
				server.StartTLS()
				t.Cleanup(server.Close)
				config := &rest.Config{Host: server.URL, QPS: -1, TLSClientConfig: rest.TLSClientConfig{
					CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
				}}
				api, err := kubernetes.NewForConfig(bounded(t).Config(config))
				require.NoError(t, err)
				_, err = api.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
				require.Equal(t, wantErr, err != nil, "%v", err)
				require.Equal(t, http2, major.Load() == 2)
			})
		}
	}
}

// TestStalledEvents: events that never end count towards what the program keeps of a tenant, all watches together.
func TestStalledEvents(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, contentType, start string }{
		{name: "JSON", contentType: "application/json", start: `{"type":"ADDED","object":{"metadata":{"name":"`},
		{name: "protobuf", contentType: "application/vnd.kubernetes.protobuf;stream=watch", start: "\x00\x00\xff\x00"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
				w.Header().Set("Content-Type", tc.contentType)
				_, _ = io.WriteString(w, tc.start+strings.Repeat("a", 60_000))
				_ = http.NewResponseController(w).Flush()
				<-request.Context().Done()
			}))
			t.Cleanup(server.Close)
			bounds := bounded(t)
			api, err := kubernetes.NewForConfig(bounds.Config(&rest.Config{Host: server.URL, QPS: -1}))
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			ended := bounds.Serve(ctx, func(ctx context.Context) error {
				var watches errgroup.Group
				for range 10 {
					watches.Go(func() error { return followInVain(ctx, api) })
				}
				return watches.Wait()
			})
			var failure *engage.Failure
			require.ErrorAs(t, ended, &failure)
			require.Equal(t, "What is kept, with all answers that are being read, is more than 320Ki (limits.cachedBytes of TenantPolicy small)", failure.Message)
		})
	}
}

// TestReceivingWaits: bytes of events wait for their rate as they come, though their events never end.
func TestReceivingWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const length = 3<<20 - 1
		config := tenantclient.New(&policy.Ref{}).Config(&rest.Config{Host: "https://tenant"})
		broken := roundTrip(func(*http.Request) (*http.Response, error) {
			header := binary.BigEndian.AppendUint32(nil, length+1)
			return &http.Response{
				StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/vnd.kubernetes.protobuf;stream=watch"}},
				Body: io.NopCloser(io.MultiReader(bytes.NewReader(header), bytes.NewReader(make([]byte, length)))),
			}, nil
		})
		start := time.Now()
		for range 30 {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://tenant/pods?watch=true", http.NoBody)
			require.NoError(t, err)
			response, err := config.WrapTransport(broken).RoundTrip(request)
			require.NoError(t, err)
			_, err = io.ReadAll(response.Body)
			require.NoError(t, response.Body.Close())
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		}
		require.Greater(t, time.Since(start), time.Second) // 90 MiB, of which 64 may come at once, at 16 a second
	})
}

// TestHonestAnswers: what fits is read, and many events are no large one.
func TestHonestAnswers(t *testing.T) {
	t.Parallel()
	pod := `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","annotations":{"a":"` + strings.Repeat(`\"}{]`, 300) + `"}}}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if request.URL.Query().Get("watch") != "" {
			for range 100 {
				_, _ = io.WriteString(w, `{"type":"ADDED","object":`+pod+"}\n")
			}
			return
		}
		next := map[string]string{"": "1", "1": "2"}[request.URL.Query().Get("continue")]
		_, _ = io.WriteString(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"continue":"`+next+`"},"items":[`+strings.Repeat(pod+",", 9)+pod+"]}")
	}))
	t.Cleanup(server.Close)
	bounds := bounded(t)
	api, err := kubernetes.NewForConfig(bounds.Config(&rest.Config{Host: server.URL, QPS: -1}))
	require.NoError(t, err)
	require.NoError(t, bounds.Serve(t.Context(), func(ctx context.Context) error {
		for range 10 { // each list begins anew
			require.NoError(t, listPages(ctx, api))
			require.NoError(t, follow(ctx, api))
		}
		return nil
	}))
}

// TestHonestAnswersInProtobuf is TestHonestAnswers with a client and a server that speak protobuf.
func TestHonestAnswersInProtobuf(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: map[string]string{"a": strings.Repeat("\n2", 300)}}}
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
	serializer := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	var object, events bytes.Buffer
	require.NoError(t, serializer.Encode(pod, &object))
	event, err := (&metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: object.Bytes()}}).Marshal()
	require.NoError(t, err)
	frames := framer.NewLengthDelimitedFrameWriter(&events)
	for range 100 {
		_, err := frames.Write(event)
		require.NoError(t, err)
	}
	pages := map[string]string{}
	for before, next := range map[string]string{"": "1", "1": "2", "2": ""} {
		list := &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, ListMeta: metav1.ListMeta{Continue: next}}
		for range 20 {
			list.Items = append(list.Items, *pod)
		}
		var page bytes.Buffer
		require.NoError(t, serializer.Encode(list, &page))
		pages[before] = page.String()
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		switch {
		case !strings.Contains(request.Header.Get("Accept"), "application/vnd.kubernetes.protobuf"):
			http.Error(w, "what should be in protobuf?", http.StatusNotAcceptable)
		case request.URL.Query().Get("watch") != "":
			w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch")
			_, _ = w.Write(events.Bytes())
		default:
			writeProtobuf(w, pages[request.URL.Query().Get("continue")])
		}
	}))
	t.Cleanup(server.Close)
	bounds := bounded(t)
	api, err := kubernetes.NewForConfig(bounds.Config(&rest.Config{Host: server.URL, QPS: -1}))
	require.NoError(t, err)
	require.NoError(t, bounds.Serve(t.Context(), func(ctx context.Context) error {
		for range 10 {
			require.NoError(t, listPages(ctx, api))
			require.NoError(t, follow(ctx, api))
		}
		page, err := api.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		require.NoError(t, err)
		require.Len(t, page.Items, 20)
		require.Equal(t, pod.Annotations, page.Items[19].Annotations)
		require.Empty(t, page.Items[19].ManagedFields)
		return nil
	}))
}

// roundTrip is an http.RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// TestSlowAnswers: headers and bodies have a time limit, watches only until they begin.
func TestSlowAnswers(t *testing.T) {
	t.Parallel()
	hang := func(request *http.Request) (*http.Response, error) {
		<-request.Context().Done()
		return nil, request.Context().Err()
	}
	trickle := func(request *http.Request) (*http.Response, error) {
		reader, writer := io.Pipe()
		context.AfterFunc(request.Context(), func() { _ = writer.CloseWithError(request.Context().Err()) })
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: reader, Request: request}, nil
	}
	for _, tc := range []struct {
		name      string
		transport roundTrip
		query     string
		wantAfter time.Duration
		wantErr   string
	}{
		{name: "a header that does not come", transport: hang, wantAfter: 15 * time.Second, wantErr: "GET /pods: no answer within 15s"},
		{name: "the header of a watch", transport: hang, query: "?watch=true", wantAfter: 15 * time.Second, wantErr: "no answer within 15s"},
		{name: "a body that does not come", transport: trickle, wantAfter: time.Minute, wantErr: "GET /pods: the answer did not end within 1m0s"},
		{name: "events that do not come", transport: trickle, query: "?watch=true", wantAfter: time.Hour, wantErr: "deadline exceeded"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				config := bounded(t).Config(&rest.Config{Host: "https://tenant"})
				start := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://tenant/pods"+tc.query, http.NoBody)
				require.NoError(t, err)
				response, err := config.WrapTransport(tc.transport).RoundTrip(request)
				if err == nil {
					_, err = io.ReadAll(response.Body)
					require.NoError(t, response.Body.Close())
				}
				require.ErrorContains(t, err, tc.wantErr)
				require.Equal(t, tc.wantAfter, time.Since(start))
			})
		})
	}
}
