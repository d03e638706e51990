// Package vnagent serves the kubelet API to tenants' API servers: it authenticates a tenant by its client certificate, reads the request,
// finds the tenant's pod, and lets a backend answer. What is not the tenant's does not exist.
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

// Pods finds the pods of tenants.
type Pods interface {
	// Get returns pods.ErrNotFound for a pod that is not the tenant's, pods.ErrBusy where it has asked too often for such.
	Get(ctx context.Context, clusterKey, namespace, name string) (pods.Pod, error)
	List(clusterKey string) ([]pods.Pod, error)
}

// Options are the parts of a Handler; all but MaxStreams are needed.
type Options struct {
	// Authenticator verifies client certificates: user name and groups are the common name and the organisations.
	Authenticator authenticator.Request
	Pods          Pods
	Backend       backend.Backend
	Nodes         rename.Nodes
	Metrics       *Metrics
	// MaxStreams is how many requests about pods run for one tenant at a time; 0 means DefaultMaxStreams.
	MaxStreams int
}

// Handler serves the kubelet API. It is safe for concurrent use.
type Handler struct {
	options Options
	streams streams
	limits  limits
	chain   http.Handler
}

// NewHandler returns a handler. A request passes these filters, each of which answers it or hands it on:
//
//	healthz ─► metrics ─► draining ─► header size ─► client certificate ─► path and query ─► limit per tenant ─► serve
func NewHandler(options Options) *Handler {
	if options.MaxStreams == 0 {
		options.MaxStreams = DefaultMaxStreams
	}
	h := &Handler{options: options}
	limited := withLimit(&h.limits, options.MaxStreams, withGauge(options.Metrics, h.serve))
	tenants := withTenant(options.Authenticator, withRoute(limited))
	h.chain = withHealthz(withMetrics(options.Metrics, withDrain(&h.streams, withBoundedHeader(tenants))))
	return h
}

// Drain waits for the end of all requests, and ends those that are left when ctx ends. New ones are refused from now on.
func (h *Handler) Drain(ctx context.Context) { h.streams.drain(ctx) }

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.chain.ServeHTTP(w, r) }

// serve answers a request that passed all filters.
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
		http.Error(w, err.Error(), http.StatusTooManyRequests)
		return
	}
	if err != nil {
		unavailable(w, r, err)
		return
	}
	h.options.Backend.Forward(w, r, request, pod)
}

// list answers what is about all pods of the tenant.
func (h *Handler) list(w http.ResponseWriter, r *http.Request, clusterKey string, request route.Request) {
	own, err := h.options.Pods.List(clusterKey)
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
				klog.FromContext(r.Context()).V(4).Info("Answer broke", "err", err)
			}
		}
	case route.Health, route.Logs, route.Exec, route.Attach, route.PortForward, route.Run:
		http.NotFound(w, r)
	}
}

// scrape returns false after it has answered that it cannot.
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
