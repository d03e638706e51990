package growth

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/test/builders"
)

// api is the transport to the API server of a tenant, which has pods alone. It keeps none of them: each is made again
// from its name, so that what the process holds is what vc-scheduler does. It costs no connection.
type api struct {
	// chosen is called for each pod that is given a super cluster.
	chosen func()

	mu      sync.Mutex
	version int
	watches []io.Writer
}

// RoundTrip implements http.RoundTripper.
func (a *api) RoundTrip(r *http.Request) (*http.Response, error) {
	response := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r}
	switch {
	case r.URL.Query().Get("watch") != "":
		response.Body = a.watch(r)
	case r.Method == http.MethodGet:
		response.Body = io.NopCloser(strings.NewReader(`{"metadata":{"resourceVersion":"1"}}`))
	default:
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err //nolint:wrapcheck // a transport
		}
		if parts := strings.Split(r.URL.Path, "/"); r.Method == http.MethodPatch && len(parts) == 7 && parts[5] == "pods" {
			if body, err = a.patch(parts[4], parts[6], body); err != nil {
				return nil, err
			}
		}
		response.Body = io.NopCloser(strings.NewReader(string(body)))
	}
	return response, nil
}

func (a *api) watch(r *http.Request) io.ReadCloser {
	reader, writer := io.Pipe()
	context.AfterFunc(r.Context(), func() { _ = writer.CloseWithError(io.EOF) })
	if strings.HasSuffix(r.URL.Path, "/pods") {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.watches = append(a.watches, writer)
	}
	return reader
}

// patch gives a pod what a patch says of its metadata, and returns it.
func (a *api) patch(namespace, name string, patch []byte) ([]byte, error) {
	var change struct {
		Metadata struct{ Annotations, Labels map[string]string } `json:"metadata"`
	}
	if err := json.Unmarshal(patch, &change); err != nil {
		return nil, fmt.Errorf("reading a patch: %w", err)
	}
	pod := podOf(namespace, name)
	pod.Annotations, pod.Labels = change.Metadata.Annotations, change.Metadata.Labels
	encoded, err := a.send("MODIFIED", pod)
	if err == nil && pod.Annotations[schedulerv1alpha1.AnnotationSuperCluster] != "" {
		a.chosen()
	}
	return encoded, err
}

// send tells all watches of a pod, and returns it.
func (a *api) send(event string, pod *corev1.Pod) ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	pod.ResourceVersion = fmt.Sprint(a.version + 1)
	encoded, err := json.Marshal(pod)
	if err != nil {
		return nil, fmt.Errorf("encoding a pod: %w", err)
	}
	for _, w := range a.watches {
		if _, err := fmt.Fprintf(w, `{"type":%q,"object":%s}`+"\n", event, encoded); err != nil {
			return nil, fmt.Errorf("sending a pod: %w", err)
		}
	}
	return encoded, nil
}

// podOf returns a pod, of which a namespace has room for thirty.
func podOf(namespace, name string) *corev1.Pod {
	pod := builders.Pod(namespace, name, "cpu", "200m", "memory", "256Mi").Obj()
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	pod.UID = types.UID(namespace + "-" + name)
	pod.Spec.SchedulerName = corev1.DefaultSchedulerName
	return pod
}
