// Package backend forwards requests of tenants to the kubelet of the node, or to the super cluster's API server. It
// builds the outgoing path and query from the parsed request; of the client's request nothing else is forwarded but an
// allow-list of headers.
package backend

import (
	"context"
	"io"
	"net/http"

	"github.com/superpool/superpool/internal/vnagent/pods"
	"github.com/superpool/superpool/internal/vnagent/route"
)

// Backend serves requests about pods of the super cluster. Implementations are safe for concurrent use.
type Backend interface {
	// Forward sends request, which was parsed from r, to the server behind the backend, and copies its response, or the
	// stream in both directions, to w. The caller has checked that pod is the tenant's. It returns when the response or
	// the stream has ended; the end of r's context ends both. Errors are answered on w.
	Forward(w http.ResponseWriter, r *http.Request, request route.Request, pod pods.Pod)
	// Scrape fetches a summary or metrics, as request.Kind says, from the kubelets of nodes. It calls read once per
	// node that responds, never concurrently, with a reader that is bounded in size and time. An error means that no
	// node responded; nil that one did, or nodes is empty.
	Scrape(ctx context.Context, request route.Request, nodes []string, read func(io.Reader) error) error
}
