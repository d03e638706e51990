// Package vnagent serves the kubelet API to tenants' API servers. A chain of filters authenticates the tenant by its
// client certificate, parses the request and enforces the tenant's limits; the Handler finds the tenant's pod and a
// backend forwards to it. A pod that is not the tenant's answers like one that does not exist.
package vnagent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/klog/v2"

	"github.com/superpool/superpool/internal/vnagent/backend"
	"github.com/superpool/superpool/internal/vnagent/pods"
	"github.com/superpool/superpool/internal/vnagent/rename"
	"github.com/superpool/superpool/internal/vnagent/route"
)

// Pods finds the pods of tenants in the super cluster. Implementations are safe for concurrent use.
type Pods interface {
	// Get returns the pod that the tenant knows as namespace/name. The error is pods.ErrNotFound where the tenant has
	// no such pod, pods.ErrBusy after too many requests of the tenant for pods that are not in the cache; any other
	// means that the super cluster fails.
	Get(ctx context.Context, clusterKey, namespace, name string) (pods.Pod, error)
	// List returns all pods of the tenant, and an error while they are not known. No pods is no error.
	List(ctx context.Context, clusterKey string) ([]pods.Pod, error)
}

// Options holds the parts of a Handler. All but MaxStreams and MaxAllStreams are required; a zero Nodes leaves nodes
// their names.
type Options struct {
	// Authenticator verifies client certificates. It returns the common name as the user's name and the organisations
	// as its groups.
	Authenticator authenticator.Request
	// Pods finds the pod that a request names, and the pods of a list.
	Pods Pods
	// Backend serves requests about pods that Pods has found.
	Backend backend.Backend
	// Nodes maps node names of the super cluster to the tenants'.
	Nodes rename.Nodes
	// Metrics counts the requests.
	Metrics *Metrics
	// MaxStreams bounds the requests about single pods that run for one tenant at a time; 0 means DefaultMaxStreams.
	MaxStreams int
	// MaxAllStreams bounds those of all tenants together, who share them; 0 means DefaultMaxAllStreams.
	MaxAllStreams int
}

// Handler serves the kubelet API. It is safe for concurrent use.
type Handler struct {
	options Options
	streams streams
	limits  limits
	chain   http.Handler
}

// NewHandler returns a Handler. A request passes these filters in order; each of them answers it or calls the next:
//
//	healthz ─► metrics ─► draining ─► header size ─► client certificate ─► connections per tenant ─► path and query
//	─► requests per tenant ─► serve
func NewHandler(options Options) *Handler {
	if options.MaxStreams == 0 {
		options.MaxStreams = DefaultMaxStreams
	}
	if options.MaxAllStreams == 0 {
		options.MaxAllStreams = DefaultMaxAllStreams
	}
	h := &Handler{options: options}
	limited := withLimit(&h.limits, options.MaxStreams, options.MaxAllStreams, withGauge(options.Metrics, h.serve))
	known := withKnown(&h.limits, connectionsPerStream*options.MaxStreams, withRoute(limited))
	tenants := withTenant(options.Authenticator, known)
	h.chain = withHealthz(withMetrics(options.Metrics, withDrain(&h.streams, withBoundedHeader(tenants))))
	return h
}

// Drain answers 503 to new requests from now on, and returns when all running ones have ended. When ctx ends first, it
// cancels their contexts.
func (h *Handler) Drain(ctx context.Context) { h.streams.drain(ctx) }

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.chain.ServeHTTP(w, r) }

// serve forwards a request about one pod to the backend, and answers those about all pods of the tenant.
func (h *Handler) serve(w *observer, r *http.Request, clusterKey string, request route.Request) {
	if !request.OfPod() {
		h.list(w, r, clusterKey, request)
		return
	}
	pod, err := h.options.Pods.Get(r.Context(), clusterKey, request.Namespace, request.Pod)
	if err == nil && request.UID != "" && request.UID != string(pod.Owner.UID) {
		err = pods.ErrNotFound
	}
	if errors.Is(err, pods.ErrNotFound) {
		http.Error(w, pods.ErrNotFound.Error(), http.StatusNotFound)
		return
	}
	if errors.Is(err, pods.ErrBusy) {
		busy(w, err.Error(), http.StatusTooManyRequests)
		return
	}
	if err != nil {
		unavailable(w, r, err)
		return
	}
	h.options.Backend.Forward(w, r, request, pod)
}

// list answers a request about all pods of the tenant.
func (h *Handler) list(w http.ResponseWriter, r *http.Request, clusterKey string, request route.Request) {
	own, err := h.options.Pods.List(r.Context(), clusterKey)
	if err != nil {
		unavailable(w, r, err)
		return
	}
	switch request.Kind {
	case route.Pods:
		writeJSON(w, r, rename.PodList(own, h.options.Nodes))
	case route.Summary:
		summary := rename.NewSummary(own, h.options.Nodes)
		if h.scrape(w, r, request, own, summary.Add) {
			writeJSON(w, r, summary.Result())
		}
	case route.Resource, route.Cadvisor, route.Probes:
		metrics := rename.NewMetrics(own)
		if h.scrape(w, r, request, own, metrics.Add) {
			w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
			if _, err := metrics.WriteTo(w); err != nil {
				klog.FromContext(r.Context()).V(4).Info("Response broke off", "err", err)
			}
		}
	case route.Health, route.Logs, route.Exec, route.Attach, route.PortForward, route.Run:
		http.NotFound(w, r)
	}
}

// scrape passes the responses of the kubelets of own's nodes to read. Where none responds, it answers 502 and returns
// false.
func (h *Handler) scrape(w http.ResponseWriter, r *http.Request, request route.Request, own []pods.Pod, read func(io.Reader) error) bool {
	nodes := map[string]struct{}{}
	for _, pod := range own {
		if pod.Super.Spec.NodeName != "" {
			nodes[pod.Super.Spec.NodeName] = struct{}{}
		}
	}
	if err := h.options.Backend.Scrape(r.Context(), request, slices.Sorted(maps.Keys(nodes)), read); err != nil {
		http.Error(w, "the super cluster does not answer this request", http.StatusBadGateway)
		return false
	}
	return true
}

// unavailable answers 503 without details of the super cluster, which it logs.
func unavailable(w http.ResponseWriter, r *http.Request, err error) {
	klog.FromContext(r.Context()).Error(err, "Looking for pods")
	http.Error(w, "the super cluster does not answer this request", http.StatusServiceUnavailable)
}

func writeJSON(w http.ResponseWriter, r *http.Request, object any) {
	var text bytes.Buffer
	if err := json.NewEncoder(&text).Encode(object); err != nil {
		unavailable(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text.Bytes())
}
