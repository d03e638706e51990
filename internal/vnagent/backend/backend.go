// Package backend sends requests of tenants on: to the kubelet of the node, or to the super cluster's API server. What is sent is made
// anew from the parsed request; of what the client sent nothing goes on but an allow-list of headers.
package backend

import (
	"context"
	"io"
	"net/http"

	"github.com/superpool/superpool/internal/vnagent/pods"
	"github.com/superpool/superpool/internal/vnagent/route"
)

// Backend answers for the super cluster. Implementations are safe for concurrent use.
type Backend interface {
	// Forward answers r, which was parsed as request, with what the backend says about pod. The caller has checked that the pod is the
	// tenant's. It returns when the answer or the stream has ended; the end of r's context ends it.
	Forward(w http.ResponseWriter, r *http.Request, request route.Request, pod pods.Pod)
	// Scrape reads the lists of nodes: request is a Summary or one of the metrics. read is called once per node that answers, never at
	// once for two, with a reader that is bounded in size and time. An error says that no node answered.
	Scrape(ctx context.Context, request route.Request, nodes []string, read func(io.Reader) error) error
}
