package vnagent

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/klog/v2"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/vnagent/route"
)

const (
	// maxHeader bounds the request line and headers together, in bytes. A long exec command in the query has to fit.
	maxHeader = 128 << 10
	// bodyTimeout is the read deadline where a request announces a body: http.Server reads the rest of a body before it
	// sends a response.
	bodyTimeout = 2 * time.Second
	// retryAfter is after how many seconds to try again what is refused because too much runs.
	retryAfter = "1"
	// routeOther is the value of the label route for requests that a filter answered before withRoute.
	routeOther = route.Kind("other")
)

type (
	// observedHandler serves a request whose response withMetrics observes.
	observedHandler func(w *observer, r *http.Request)
	// tenantHandler serves a request of the tenant whose client certificate withTenant verified.
	tenantHandler func(w *observer, r *http.Request, clusterKey string)
	// routeHandler serves a tenant's request whose path and query withRoute parsed.
	routeHandler func(w *observer, r *http.Request, clusterKey string, request route.Request)
)

// withHealthz serves GET /healthz without a client certificate and without metrics. No route accepts a body: where a
// request announces one, withHealthz sets the connection's read deadline, so that a client that never sends it occupies
// the connection for bodyTimeout at most.
func withHealthz(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
		}
		if path, _, _ := strings.Cut(r.RequestURI, "?"); path == "/healthz" && r.Method == http.MethodGet {
			_, _ = io.WriteString(w, "ok")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// withMetrics counts responses by route and status. httputil.ReverseProxy panics with http.ErrAbortHandler when a
// response breaks off: it is counted with the status that was already sent, and the panic continues to http.Server.
func withMetrics(metrics *Metrics, next observedHandler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		observed := &observer{ResponseWriter: w, route: routeOther}
		defer func() { metrics.answered(observed.route, observed.status()) }()
		next(observed, r)
	})
}

// withDrain answers 503 once running.drain was called. When drain cancels a request's context, writes to its client
// fail too (observer.end).
func withDrain(running *streams, next observedHandler) observedHandler {
	return func(w *observer, r *http.Request) {
		ctx, end, accepted := running.begin(r.Context())
		if !accepted {
			http.Error(w, "vn-agent is shutting down", http.StatusServiceUnavailable)
			return
		}
		defer end()
		defer context.AfterFunc(ctx, w.end)()
		next(w, r.WithContext(ctx))
	}
}

// withBoundedHeader answers 431 to a request line and headers of more than maxHeader bytes. http.Server adds 4 KiB to
// its MaxHeaderBytes, so its bound is not exact.
func withBoundedHeader(next observedHandler) observedHandler {
	return func(w *observer, r *http.Request) {
		if headerSize(r) > maxHeader {
			http.Error(w, "headers are too large", http.StatusRequestHeaderFieldsTooLarge)
			return
		}
		next(w, r)
	}
}

func headerSize(r *http.Request) int {
	size := len(r.RequestURI) + len(r.Host)
	for key, values := range maps.All(r.Header) {
		for _, value := range values {
			size += len(key) + len(value) + len(": \r\n")
		}
	}
	return size
}

// withTenant answers 401 without a tenant's client certificate, and adds the tenant to the request's logger.
func withTenant(certificates authenticator.Request, next tenantHandler) observedHandler {
	return func(w *observer, r *http.Request) {
		clusterKey, authenticated := authenticate(certificates, r)
		if !authenticated {
			http.Error(w, "a client certificate of a tenant is needed", http.StatusUnauthorized)
			return
		}
		logger := klog.LoggerWithValues(klog.FromContext(r.Context()), "tenant", clusterKey)
		next(w, r.WithContext(klog.NewContext(r.Context(), logger)), clusterKey)
	}
}

// authenticate returns the cluster key from the verified client certificate: its common name, if its organisations
// include that of tenants. It reads no header of r. False without such a certificate.
func authenticate(certificates authenticator.Request, r *http.Request) (string, bool) {
	response, ok, err := certificates.AuthenticateRequest(r)
	if err != nil || !ok {
		klog.FromContext(r.Context()).V(4).Info("Certificate refused", "err", err)
		return "", false
	}
	clusterKey := response.User.GetName()
	if !slices.Contains(response.User.GetGroups(), tenancyv1alpha1.OrganisationTenants) || len(validation.IsDNS1123Label(clusterKey)) > 0 {
		return "", false
	}
	return clusterKey, true
}

// busy answers with a code that says that there is too much of something, and after how long to try again.
func busy(w http.ResponseWriter, reason string, code int) {
	w.Header().Set("Retry-After", retryAfter)
	http.Error(w, reason, code)
}

// withKnown counts the connection as the tenant's, from its first request on. It answers 429, and closes it, while the
// tenant has limit of them.
func withKnown(connections *limits, limit int, next tenantHandler) tenantHandler {
	return func(w *observer, r *http.Request, clusterKey string) {
		conn, ok := r.Context().Value(connectionKey{}).(*batchConn)
		if ok && !conn.become(func() (func(), bool) {
			forget, err := connections.begin(limitKey{clusterKey: clusterKey, what: connection}, limit, 0)
			return forget, err == nil
		}) {
			w.Header().Set("Connection", "close")
			busy(w, "too many connections of this tenant are open", http.StatusTooManyRequests)
			return
		}
		next(w, r, clusterKey)
	}
}

// withRoute parses method, path and query. It answers 400, 404 or 405 as route.Parse decides, and 400 to a request with
// a body.
func withRoute(next routeHandler) tenantHandler {
	return func(w *observer, r *http.Request, clusterKey string) {
		path, query, _ := strings.Cut(r.RequestURI, "?")
		request, parseErr := route.Parse(r.Method, path, query)
		if parseErr != nil {
			http.Error(w, parseErr.Reason, parseErr.Code)
			return
		}
		if r.ContentLength != 0 {
			http.Error(w, "a body is not expected", http.StatusBadRequest)
			return
		}
		w.route = request.Kind
		next(w, r, clusterKey, request)
	}
}

// withLimit answers 429 while the tenant runs maxStreams requests about single pods, or its share of the maxAllStreams
// that all tenants have together (limits.begin), or maxLists lists of all its pods, or its share of maxAllLists. It
// answers 503 to a tenant that runs none, while others run all.
func withLimit(running *limits, maxStreams, maxAllStreams int, next routeHandler) routeHandler {
	return func(w *observer, r *http.Request, clusterKey string, request route.Request) {
		what, limit, all := stream, maxStreams, maxAllStreams
		if !request.OfPod() {
			what, limit, all = list, maxLists, maxAllLists
		}
		finish, err := running.begin(limitKey{clusterKey: clusterKey, what: what}, limit, all)
		switch {
		case errors.Is(err, errFull):
			busy(w, err.Error(), http.StatusServiceUnavailable)
			return
		case err != nil:
			busy(w, err.Error(), http.StatusTooManyRequests)
			return
		}
		defer finish()
		if what == list { // a client that does not read it keeps others from theirs
			controller := http.NewResponseController(w.ResponseWriter)
			_ = controller.SetWriteDeadline(time.Now().Add(listTimeout))
			defer func() { _ = controller.SetWriteDeadline(time.Time{}) }()
		}
		next(w, r, clusterKey, request)
	}
}

// withGauge logs a request at V(4) and counts it in vn_agent_requests_in_flight while next serves it.
func withGauge(metrics *Metrics, next routeHandler) routeHandler {
	return func(w *observer, r *http.Request, clusterKey string, request route.Request) {
		klog.FromContext(r.Context()).V(4).Info("Request", "route", request.Kind, "namespace", request.Namespace, "pod", request.Pod)
		defer metrics.running(request.Kind)()
		next(w, r, clusterKey, request)
	}
}
