package tenantclient_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"

	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/tenantclient"
)

const (
	jsonType     = "application/json"
	protobufType = "application/vnd.kubernetes.protobuf"
)

// answering returns a configuration of clients of a tenant whose API server answers each request with a text.
func answering(bounds *tenantclient.Bounds, code int, contentType string, text func(*http.Request) io.Reader) *rest.Config {
	config := bounds.Config(&rest.Config{Host: "https://tenant", QPS: -1})
	wrap := config.WrapTransport
	config.Transport = roundTrip(func(request *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {contentType}}, Body: io.NopCloser(text(request)), Request: request}, nil
	})
	config.WrapTransport = func(inner http.RoundTripper) http.RoundTripper { return wrap(inner) }
	return config
}

// messages returns a list in protobuf that another page follows.
func messages(kind, items string) string {
	list := "\x0a\x06\x1a\x04more" + items
	return "k8s\x00\x0a" + varint(6+len(kind)) + "\x0a\x02v1\x12" + varint(len(kind)) + kind + "\x12" + varint(len(list)) + list
}

func field(number int, value string) string { return varint(number<<3|2) + varint(len(value)) + value }

// TestPagesAreCountedTogether: a list of many pages, each of which is small, ends where all of them together are more
// in memory than the program may take of a tenant. None of these has 8 KiB of text a page.
func TestPagesAreCountedTogether(t *testing.T) {
	t.Parallel()
	const most = 50
	for _, tc := range []struct {
		name, contentType, page string
		wantPages               int // at most
		dynamic                 bool
		wantErr                 string
	}{
		{name: "many objects", contentType: jsonType, wantPages: 3, dynamic: true, page: `{"kind":"AList","apiVersion":"g/v1","metadata":{"continue":"c"},"items":[` + strings.Repeat("{},", 399) + `{}]}`, wantErr: "limits.cachedObjects"},
		{name: "empty containers", contentType: jsonType, wantPages: 2, page: `{"kind":"PodList","apiVersion":"v1","metadata":{"continue":"c"},"items":[{"spec":{"containers":[` + strings.Repeat("{},", 499) + `{}]}}]}`},
		{name: "nulls in place of containers", contentType: jsonType, wantPages: 2, page: `{"kind":"PodList","apiVersion":"v1","metadata":{"continue":"c"},"items":[{"spec":{"containers":[` + strings.Repeat("null,", 499) + `null]}}]}`},
		{name: "nulls after what is deep", contentType: jsonType, wantPages: 1, page: `{"kind":"PodList","apiVersion":"v1","metadata":{"continue":"c"},"items":[{"spec":{"containers":[{"unknown":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `}` + strings.Repeat(",null", 499) + `]}}]}`},
		{name: "empty containers in protobuf", contentType: protobufType, wantPages: 2, page: messages("PodList", field(2, field(2, strings.Repeat("\x12\x00", 500))))},
		{name: "empty strings in protobuf", contentType: protobufType, wantPages: 20, page: messages("PodList", field(2, field(1, strings.Repeat("\x72\x00", 900))))}, // finalizers
		{name: "empty lists", contentType: jsonType, wantPages: 10, dynamic: true, page: `{"kind":"AList","apiVersion":"g/v1","metadata":{"continue":"c"},"items":[{"kind":"A","apiVersion":"g/v1","spec":[` + strings.Repeat("[],", 1999) + `[]]}]}`},
		{name: "numbers", contentType: jsonType, wantPages: 10, dynamic: true, page: `{"kind":"AList","apiVersion":"g/v1","metadata":{"continue":"c"},"items":[{"kind":"A","apiVersion":"g/v1","spec":[` + strings.Repeat("0,", 3999) + `0]}]}`},
		{name: "empty strings", contentType: jsonType, wantPages: 10, dynamic: true, page: `{"kind":"AList","apiVersion":"g/v1","metadata":{"continue":"c"},"items":[{"kind":"A","apiVersion":"g/v1","spec":[` + strings.Repeat(`"",`, 1999) + `""]}]}`},
		{name: "objects of one member", contentType: jsonType, wantPages: 2, dynamic: true, page: `{"kind":"AList","apiVersion":"g/v1","metadata":{"continue":"c"},"items":[{"kind":"A","apiVersion":"g/v1","spec":[` + strings.Repeat(`{"":0},`, 900) + `{}]}]}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			bounds, pages := bounded(t), 0
			config := answering(bounds, http.StatusOK, tc.contentType, func(*http.Request) io.Reader {
				pages++
				if pages > most {
					return strings.NewReader("no list")
				}
				return strings.NewReader(tc.page)
			})
			require.Less(t, len(tc.page), 8<<10+100)
			api, err := kubernetes.NewForConfig(config)
			require.NoError(t, err)
			custom, err := dynamic.NewForConfig(config)
			require.NoError(t, err)
			reads := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				if tc.dynamic {
					return custom.Resource(schema.GroupVersionResource{Group: "g", Version: "v1", Resource: "as"}).List(ctx, options)
				}
				return api.CoreV1().Pods("").List(ctx, options)
			})
			_, _, err = reads.List(t.Context(), metav1.ListOptions{})
			var excess *tenantclient.ExcessError
			require.ErrorAs(t, err, &excess, "%d pages were read", pages)
			require.LessOrEqual(t, pages, tc.wantPages)
			require.Contains(t, excess.Error(), cmp.Or(tc.wantErr, "What becomes of the answer to GET"))
		})
	}
}

// TestListsAreCountedTogether: lists of several kinds count together until their watches begin, and nothing is left of
// one that nobody reads on.
func TestListsAreCountedTogether(t *testing.T) {
	t.Parallel()
	page := messages("PodList", field(2, field(2, strings.Repeat("\x12\x00", 400))))
	synctest.Test(t, func(t *testing.T) {
		api, err := kubernetes.NewForConfig(answering(bounded(t), http.StatusOK, protobufType, func(request *http.Request) io.Reader {
			if request.URL.Query().Get("watch") != "" {
				return strings.NewReader("")
			}
			return strings.NewReader(page)
		}))
		require.NoError(t, err)
		read := func(namespace string) error {
			_, err := api.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{Limit: 500})
			return err
		}
		for range 5 { // each begins anew
			require.NoError(t, read("a"))
		}
		var excess *tenantclient.ExcessError
		require.ErrorAs(t, read("b"), &excess)
		require.Contains(t, excess.Error(), "What becomes of all answers and events that are decoded is more than 320Ki (limits.cachedBytes")
		_, err = api.CoreV1().Pods("a").Watch(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		require.NoError(t, read("b"))
		require.Error(t, read("c"))
		<-time.After(3 * time.Minute)
		require.NoError(t, read("c"))
		<-time.After(3 * time.Minute)
		_, err = api.CoreV1().Pods("c").List(t.Context(), metav1.ListOptions{Limit: 500, Continue: "c"})
		require.ErrorContains(t, err, "with the pages before it", "however long the next page took")
	})
}

// TestAnswersAreCountedTogether: answers that have not ended count, too, and no longer than they are read.
func TestAnswersAreCountedTogether(t *testing.T) {
	t.Parallel()
	text := `{"kind":"PodList","apiVersion":"v1","items":[{"spec":{"containers":[` + strings.Repeat("{},", 119) + "{}]}}]}"
	transport := bounded(t).Config(&rest.Config{}).WrapTransport(roundTrip(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {jsonType}}, Body: io.NopCloser(strings.NewReader(text))}, nil
	}))
	read := func(query string) (io.Closer, error) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://tenant/api/v1/pods"+query, http.NoBody)
		require.NoError(t, err)
		request.Header.Set("Accept", protobufType)
		response, err := transport.RoundTrip(request)
		require.NoError(t, err)
		_, err = io.ReadFull(response.Body, make([]byte, len(text)))
		return response.Body, err
	}
	for _, query := range []string{"", "?limit=500", ""} {
		one, err := read(query)
		require.NoError(t, err)
		other, err := read("?limit=501&labelSelector=a")
		require.ErrorContains(t, err, "What becomes of all answers and events that are decoded is more than 320Ki")
		require.NoError(t, one.Close())
		require.NoError(t, other.Close())
	}
}

// ordinaryPod is a pod as a Deployment's on a real cluster, and who has written it.
func ordinaryPod() *corev1.Pod {
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "web-5d4f8c7b9d-x2x7k", GenerateName: "web-5d4f8c7b9d-", Namespace: "shop", UID: "2a4803b0-b046-4280-b839-39c25e419012", ResourceVersion: "1234567",
			Labels:          map[string]string{"app.kubernetes.io/name": "web", "app.kubernetes.io/part-of": "shop", "pod-template-hash": "5d4f8c7b9d"},
			Annotations:     map[string]string{"prometheus.io/scrape": "true", "checksum/config": strings.Repeat("ab", 32)},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-5d4f8c7b9d", UID: "2a4803b0-b046-4280-b839-39c25e419013"}},
		},
	}
	mounts := []corev1.VolumeMount{{Name: "kube-api-access-2bm5x", ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}, {Name: "config", MountPath: "/etc/web"}}
	for _, name := range []string{"web", "proxy"} {
		container := corev1.Container{Name: name, Image: "registry.example.com/shop/" + name + ":1.2.3", Args: []string{"--port=8080", "--log=json"}, VolumeMounts: mounts}
		for i := range 8 {
			container.Env = append(container.Env, corev1.EnvVar{Name: "VARIABLE_" + strconv.Itoa(i), Value: "value of it"})
		}
		container.Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("128Mi")}
		container.Resources.Limits = corev1.ResourceList{"memory": resource.MustParse("256Mi")}
		container.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready"}}}
		pod.Spec.Containers = append(pod.Spec.Containers, container)
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: name, Ready: true, Image: container.Image, ImageID: "sha256:" + strings.Repeat("ab", 32)})
	}
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "kube-api-access-2bm5x", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: make([]corev1.VolumeProjection, 3)}}},
		{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}},
	}
	pod.Spec.Tolerations = []corev1.Toleration{{Key: "node.kubernetes.io/not-ready", Operator: "Exists"}, {Key: "node.kubernetes.io/unreachable", Operator: "Exists"}}
	for _, condition := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: condition, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Unix(1, 0)})
	}
	fields := `{"f:metadata":{"f:labels":{".":{},"f:app":{},"f:b":{},"f:c":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{` + strings.Repeat(`"f:terminationMessagePolicy":{},`, 40) + `"f:a":{}}}}}`
	for _, manager := range []string{"kube-controller-manager", "kubelet"} {
		pod.ManagedFields = append(pod.ManagedFields, metav1.ManagedFieldsEntry{Manager: manager, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields)})
	}
	return pod
}

// TestOrdinaryLists: what real control planes answer is read. The bounds are an eighth of the default ones, and so are
// the lists.
func TestOrdinaryLists(t *testing.T) {
	t.Parallel()
	spec := *policy.Default().Spec().DeepCopy()
	spec.Limits.AnswerBytes, spec.Limits.CachedBytes = resource.MustParse("8Mi"), resource.MustParse("64Mi")
	limits := policy.Default().Spec().Limits
	require.Equal(t, []int64{64 << 20, 512 << 20}, []int64{limits.AnswerBytes.Value(), limits.CachedBytes.Value()})
	small, err := policy.New("small", &spec)
	require.NoError(t, err)
	item := func(object interface{ Marshal() ([]byte, error) }) string {
		raw, err := object.Marshal()
		require.NoError(t, err)
		return field(2, string(raw))
	}
	pod := item(ordinaryPod())
	config := item(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Data: map[string]string{"page": strings.Repeat("0123456789abcde\n", 1_000_000/16)}})
	inJSON, err := json.Marshal(ordinaryPod()) // of all kinds a pod has most in it
	require.NoError(t, err)
	pods := `{"kind":"PodList","apiVersion":"v1","metadata":{"continue":"c"},"items":[` + strings.Repeat(string(inJSON)+",", 124) + string(inJSON) + "]}"
	for _, tc := range []struct {
		name, contentType, accept string
		page                      string
		pages                     int
	}{
		{name: "40,000 pods", contentType: protobufType, accept: protobufType, pages: 10, page: messages("PodList", strings.Repeat(pod, 500))},
		{name: "480 ConfigMaps of 1 MB", contentType: protobufType, accept: protobufType, pages: 10, page: messages("ConfigMapList", strings.Repeat(config, 6))},
		{name: "4,000 pods in JSON, which no API server sends to who asks for protobuf", contentType: jsonType, accept: protobufType, pages: 4, page: pods},
		{name: "10,000 custom objects as large as pods", contentType: jsonType, accept: jsonType, pages: 10, page: pods},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			ref := &policy.Ref{}
			ref.Set(small)
			transport := tenantclient.New(ref).Config(&rest.Config{}).WrapTransport(roundTrip(func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {tc.contentType}}, Body: io.NopCloser(strings.NewReader(tc.page))}, nil
			}))
			next := ""
			for page := range tc.pages {
				request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://tenant/api/v1/pods?limit=500&continue="+next, http.NoBody)
				require.NoError(t, err)
				request.Header.Set("Accept", tc.accept)
				response, err := transport.RoundTrip(request)
				require.NoError(t, err)
				_, err = io.Copy(io.Discard, response.Body)
				require.NoError(t, err, "page %d", page)
				require.NoError(t, response.Body.Close())
				next = "c"
			}
		})
	}
}

// TestEventsHaveARate: events without a text cost as much as their handling does.
func TestEventsHaveARate(t *testing.T) {
	t.Parallel()
	const events = 30_000 // of which 16,384 may come at once, and 4,096 a second
	proto := varint(0x0a) + varint(5) + "ADDED"
	for _, tc := range []struct{ name, contentType, event string }{
		{name: "JSON", contentType: jsonType, event: `{"type":"MODIFIED","object":{"kind":"Pod","metadata":{"name":"a"}}}` + "\n"},
		{name: "protobuf", contentType: protobufType + ";stream=watch", event: string(binary.BigEndian.AppendUint32(nil, uint32(len(proto)))) + proto}, //nolint:gosec // it is short
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				transport := tenantclient.New(&policy.Ref{}).Config(&rest.Config{}).WrapTransport(roundTrip(func(*http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {tc.contentType}}, Body: io.NopCloser(strings.NewReader(strings.Repeat(tc.event, events)))}, nil
				}))
				start := time.Now()
				request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://tenant/pods?watch=true", http.NoBody)
				require.NoError(t, err)
				response, err := transport.RoundTrip(request)
				require.NoError(t, err)
				_, err = io.Copy(io.Discard, response.Body)
				require.NoError(t, err)
				require.NoError(t, response.Body.Close())
				require.Greater(t, time.Since(start), 3*time.Second)
				require.Less(t, time.Since(start), 4*time.Second)
			})
		})
	}
}

// inProtobuf returns an object as an answer in protobuf.
func inProtobuf(t testing.TB, object runtime.Object) string {
	t.Helper()
	var text bytes.Buffer
	require.NoError(t, protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(object, &text))
	return text.String()
}

// TestErrorsAreCut: little is read of an error, and less of its text comes out, which says that it was cut. What kind
// of error it is stays.
func TestErrorsAreCut(t *testing.T) {
	t.Parallel()
	status := func(message int) *metav1.Status {
		return &metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
			Message: "no, " + strings.Repeat("x", message), Details: &metav1.StatusDetails{Name: "p", Kind: "pods", Causes: []metav1.StatusCause{{Message: "because"}}},
		}
	}
	inJSON := func(status *metav1.Status) string {
		text, err := json.Marshal(status)
		require.NoError(t, err)
		return string(text)
	}
	manyCauses := status(10)
	manyCauses.Details.Causes = make([]metav1.StatusCause, 1000)
	for _, tc := range []struct {
		name, contentType string
		text, want        string
		wantWhole         bool
	}{
		{name: "a short Status", contentType: jsonType, text: inJSON(status(100)), want: "no, x", wantWhole: true},
		{name: "a short Status in protobuf", contentType: protobufType, text: inProtobuf(t, status(100)), want: "no, x", wantWhole: true},
		{name: "a message of 30 kB", contentType: jsonType, text: inJSON(status(30_000)), want: "x… (cut, of 30004 bytes)"},
		{name: "a message of 30 kB in protobuf", contentType: protobufType, text: inProtobuf(t, status(30_000)), want: "x… (cut, of 30004 bytes)"},
		{name: "a message of 1 MB", contentType: jsonType, text: inJSON(status(1_000_000)), want: "x… (cut, of more than 65536 bytes)"},
		{name: "a message of 1 MB in protobuf", contentType: protobufType, text: inProtobuf(t, status(1_000_000)), want: "x… (cut, of more than 65536 bytes)"},
		{name: "a text of 1 MB", contentType: "text/html", text: "no, " + strings.Repeat("x", 1_000_000), want: "x… (cut, of more than 65536 bytes)"},
		{name: "many causes", contentType: jsonType, text: inJSON(manyCauses), want: "no, x"},
		{name: "what is no Status", contentType: jsonType, text: `{"kind":"Pod","metadata":{"name":"` + strings.Repeat("x", 30_000) + `"}}`, want: "xx"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			read := 0
			config := answering(bounded(t), http.StatusForbidden, tc.contentType, func(*http.Request) io.Reader {
				return readerFunc(func(into []byte) (int, error) {
					n, err := strings.NewReader(tc.text[read:]).Read(into)
					read += n
					return n, err
				})
			})
			api, err := kubernetes.NewForConfig(config)
			require.NoError(t, err)
			_, err = api.CoreV1().Pods("n").Get(t.Context(), "p", metav1.GetOptions{})
			require.True(t, apierrors.IsForbidden(err), "%.300v", err)
			require.Contains(t, err.Error(), tc.want)
			require.LessOrEqual(t, len(err.Error()), 4200)
			require.LessOrEqual(t, read, 64<<10+1)
			var known apierrors.APIStatus
			require.ErrorAs(t, err, &known)
			require.LessOrEqual(t, len(inJSON(new(known.Status()))), 10<<10)
			if tc.wantWhole {
				require.Equal(t, status(100).Details, known.Status().Details)
				require.Equal(t, status(100).Message, known.Status().Message)
			}
		})
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(into []byte) (int, error) { return f(into) }

// TestErrorEventsAreCut: the error that ends a watch has no longer text than that of an answer, however its event is
// written. Other events stay whole.
func TestErrorEventsAreCut(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 30_000)
	text := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"` + long + `"}`
	frame := func(status *metav1.Status) string {
		event, err := (&metav1.WatchEvent{Type: "ERROR", Object: runtime.RawExtension{Raw: []byte(inProtobuf(t, status))}}).Marshal()
		require.NoError(t, err)
		return string(binary.BigEndian.AppendUint32(nil, uint32(len(event)))) + string(event) //nolint:gosec // it is short
	}
	for _, tc := range []struct{ name, contentType, text string }{
		{name: "JSON", contentType: jsonType, text: `{"type":"ERROR","object":` + text + "}\n"},
		{name: "the type last", contentType: jsonType, text: `{"object":` + text + `,"type":"ERROR"}`},
		{name: "two types", contentType: jsonType, text: `{"type":"ADDED","object":` + text + `,"type":"\u0045RROR"}`},
		{name: "protobuf", contentType: protobufType + ";stream=watch", text: frame(&metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Code: 410, Reason: metav1.StatusReasonExpired, Message: long})},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			api, err := kubernetes.NewForConfig(answering(bounded(t), http.StatusOK, tc.contentType, func(*http.Request) io.Reader { return strings.NewReader(tc.text) }))
			require.NoError(t, err)
			err = follow(t.Context(), api)
			require.True(t, apierrors.IsResourceExpired(err), "%.300v", err)
			require.LessOrEqual(t, len(err.Error()), 4096)
			require.True(t, strings.HasSuffix(err.Error(), "x… (cut, of 30000 bytes)"), err)
		})
	}
	event := fmt.Sprintf(`{"type":"ADDED","object":{"kind":"Event","apiVersion":"v1","metadata":{"name":"e"},"message":%q}}`, long)
	api, err := kubernetes.NewForConfig(answering(bounded(t), http.StatusOK, jsonType, func(*http.Request) io.Reader { return strings.NewReader(event) }))
	require.NoError(t, err)
	events, err := api.CoreV1().Events("").Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	first := <-events.ResultChan()
	require.Equal(t, watch.Added, first.Type)
	require.Len(t, first.Object.(*corev1.Event).Message, 30_000) //nolint:forcetypeassert // it fails if it is not
}
