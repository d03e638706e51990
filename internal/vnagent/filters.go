package vnagent

import (
	"context"
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
	// maxHeader bounds a request's line and headers in bytes: as much as a long command of an exec needs.
	maxHeader = 128 << 10
	// bodyTimeout bounds the wait for a body, which the server reads to its end before it sends an answer.
	bodyTimeout = 2 * time.Second
	// routeOther is the metrics' label of requests that were answered before their path was parsed.
	routeOther = route.Kind("other")
)

type (
	// observedHandler answers a request whose answer is observed, see withMetrics.
	observedHandler func(w *observer, r *http.Request)
	// tenantHandler answers a request of the tenant whose client certificate was verified.
	tenantHandler func(w *observer, r *http.Request, clusterKey string)
	// routeHandler answers a request of a tenant whose path and query were parsed.
	routeHandler func(w *observer, r *http.Request, clusterKey string, request route.Request)
)

// withHealthz answers GET /healthz, without a certificate and without counting it. No request has a body: where one is announced, the
// connection's read deadline is set, so that a client which never sends it holds the connection for bodyTimeout at most.
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

// withMetrics counts answers by route and status. A panic is how ReverseProxy ends a broken answer: it is counted with the status that was
// sent until then, and passed on.
func withMetrics(metrics *Metrics, next observedHandler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		observed := &observer{ResponseWriter: w, route: routeOther}
		defer func() { metrics.answered(observed.route, observed.status()) }()
		next(observed, r)
	})
}

// withDrain refuses requests while running are drained, and cancels the context of those that run when the drain's patience ends.
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

// withBoundedHeader refuses request lines and headers of more than maxHeader bytes. http.Server's own bound is not exact.
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

// withTenant refuses connections without a tenant's client certificate, and adds the tenant to the request's logger.
func withTenant(certificates authenticator.Request, next tenantHandler) observedHandler {
	return func(w *observer, r *http.Request) {
		clusterKey, known := authenticate(certificates, r)
		if !known {
			http.Error(w, "a client certificate of a tenant is needed", http.StatusUnauthorized)
			return
		}
		logger := klog.LoggerWithValues(klog.FromContext(r.Context()), "tenant", clusterKey)
		next(w, r.WithContext(klog.NewContext(r.Context(), logger)), clusterKey)
	}
}

// authenticate returns the cluster key of the tenant whose certificate the connection showed. Nothing else of r counts.
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

// withRoute parses method, path and query, and refuses what is not on the list of routes, and bodies.
func withRoute(next routeHandler) tenantHandler {
	return func(w *observer, r *http.Request, clusterKey string) {
		path, query, _ := strings.Cut(r.RequestURI, "?")
		request, refusal := route.Parse(r.Method, path, query)
		if refusal != nil {
			http.Error(w, refusal.Reason, refusal.Code)
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

// withLimit refuses a request while as many of its tenant run as may: maxStreams about pods, maxLists about all of them.
func withLimit(running *limits, maxStreams int, next routeHandler) routeHandler {
	return func(w *observer, r *http.Request, clusterKey string, request route.Request) {
		most := maxStreams
		if !request.OfPod() {
			most = maxLists
		}
		finish, granted := running.begin(work{clusterKey: clusterKey, list: !request.OfPod()}, most)
		if !granted {
			http.Error(w, "too many requests of this tenant run", http.StatusTooManyRequests)
			return
		}
		defer finish()
		next(w, r, clusterKey, request)
	}
}

// withGauge logs a request and counts it while it runs.
func withGauge(metrics *Metrics, next routeHandler) routeHandler {
	return func(w *observer, r *http.Request, clusterKey string, request route.Request) {
		klog.FromContext(r.Context()).V(4).Info("Request", "route", request.Kind, "namespace", request.Namespace, "pod", request.Pod)
		defer metrics.running(request.Kind)()
		next(w, r, clusterKey, request)
	}
}
