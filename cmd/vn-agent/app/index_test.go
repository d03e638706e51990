package app

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/superpool/superpool/internal/vnagent/pods"
)

// TestTenantWhoAsksForNothing has a tenant that requests a pod that does not exist again and again, and another whose
// new pod the informer has not received yet: the second is not rate-limited by the first.
func TestTenantWhoAsksForNothing(t *testing.T) {
	t.Parallel()
	const fresh = `{"kind":"Pod","apiVersion":"v1","metadata":{"namespace":"b-web","name":"fresh","labels":{"tenancy.x-k8s.io/cluster":"b"},"annotations":{
		"tenancy.x-k8s.io/vcnamespace":"d","tenancy.x-k8s.io/vcname":"b","tenancy.x-k8s.io/vcuid":"v","tenancy.x-k8s.io/namespace":"web","tenancy.x-k8s.io/uid":"u"}},"spec":{"nodeName":"n1"}}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if !strings.HasSuffix(r.URL.Path, "/b-web/pods/fresh") {
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
			return
		}
		_, _ = io.WriteString(w, fresh)
	}))
	defer server.Close()
	index, err := newIndex(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	var group sync.WaitGroup
	defer group.Wait()
	const many = 300
	answers := make(chan error, many)
	for range many {
		group.Go(func() {
			_, err := index.Get(t.Context(), "a", "web", "none")
			answers <- err
		})
	}
	for asked := 0; err == nil || errors.Is(err, pods.ErrNotFound); asked++ {
		require.Less(t, asked, many, "one tenant asks the super cluster without end")
		err = <-answers
	}
	for range 5 {
		_, err = index.Get(t.Context(), "b", "web", "fresh")
		require.NoError(t, err)
	}
}
