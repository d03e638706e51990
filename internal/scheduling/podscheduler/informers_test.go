package podscheduler

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/view"
)

// TestTenantWithoutRights reads a tenant control plane that refuses one of the lists.
func TestTenantWithoutRights(t *testing.T) {
	t.Parallel()
	for name, refused := range map[string]string{
		"all is allowed": "", "no pods": "pods", "no quotas": "resourcequotas", "no namespaces": "namespaces", "nobody thought of it": "services",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				resource := path.Base(r.URL.Path)
				w.Header().Set("Content-Type", "application/json")
				switch {
				case resource == refused:
					w.WriteHeader(http.StatusForbidden)
					_ = json.NewEncoder(w).Encode(apierrors.NewForbidden(corev1.Resource(resource), "", nil).ErrStatus)
				case r.URL.Query().Get("watch") != "":
					<-r.Context().Done()
				default:
					_, _ = w.Write([]byte(`{"metadata":{"resourceVersion":"1"}}`))
				}
			}))
			t.Cleanup(server.Close)
			failures := &ReadFailures{}
			config := &rest.Config{Host: server.URL}
			config.Wrap(failures.Wrap)
			api, err := kubernetes.NewForConfig(config)
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(schedulertest.Context(t))
			factory := NewInformers(t.Context(), api, view.NewNodeSource(), nil, nil, func(error) {})
			factory.Core().V1().Namespaces().Informer()
			factory.Core().V1().ResourceQuotas().Informer()
			factory.Core().V1().Services().Informer()
			factory.StartWithContext(ctx)
			t.Cleanup(func() {
				cancel()
				factory.Shutdown()
			})
			err = WaitForCaches(ctx, factory, failures, 500*time.Millisecond)
			if refused == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, refused+" is forbidden")
		})
	}
}

// TestReadFailures: whoever reads a refusal reads it as the server wrote it.
func TestReadFailures(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 3*maxRefusal)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/bad" {
			w.WriteHeader(http.StatusBadGateway)
		}
		_, _ = w.Write([]byte(long))
	}))
	failures := &ReadFailures{}
	client := &http.Client{Transport: failures.Wrap(http.DefaultTransport)}
	get := func(path string) string {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
		require.NoError(t, err)
		response, err := client.Do(request)
		if err != nil {
			return err.Error()
		}
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return string(body)
	}
	require.Equal(t, long, get("/good"))
	require.NoError(t, failures.take())
	require.Equal(t, long, get("/bad"))
	require.EqualError(t, failures.take(), "502 Bad Gateway for /bad")
	require.NoError(t, failures.take(), "it was taken")
	server.Close()
	require.Contains(t, get("/gone"), "refused")
	require.ErrorContains(t, failures.take(), "refused")
}
