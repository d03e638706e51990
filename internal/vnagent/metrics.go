package vnagent

import (
	"crypto/x509"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	certutil "k8s.io/client-go/util/cert"

	"github.com/superpool/superpool/internal/vnagent/route"
)

// Metrics counts requests, and connections that are refused before one. Its labels are routes and status codes, never
// tenants or pods. It is safe for concurrent use.
type Metrics struct {
	requests *prometheus.CounterVec
	inFlight *prometheus.GaugeVec
	refused  prometheus.Counter
}

// NewMetrics registers vn-agent's metrics in registry. An error means that one of them is registered there already.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	metrics := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Subsystem: "vn_agent", Name: "requests_total", Help: "[ALPHA] Requests that have ended, by route and status code.",
		}, []string{"route", "code"}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Subsystem: "vn_agent", Name: "requests_in_flight", Help: "[ALPHA] Requests and streams that run, by route.",
		}, []string{"route"}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Subsystem: "vn_agent", Name: "handshakes_refused_total", Help: "[ALPHA] Connections that were closed before a TLS handshake, because there were more in a second than may be.",
		}),
	}
	for _, collector := range []prometheus.Collector{metrics.requests, metrics.inFlight, metrics.refused} {
		if err := registry.Register(collector); err != nil {
			return nil, fmt.Errorf("registering a metric: %w", err)
		}
	}
	return metrics, nil
}

// RegisterMetrics registers the gauges of when the certificates end that the server has loaded.
func (s *Server) RegisterMetrics(registry prometheus.Registerer) error {
	for name, content := range map[string]func() []byte{
		"serving":   func() []byte { chain, _ := s.cert.CurrentCertKeyContent(); return chain },
		"client-ca": s.clientCA.CurrentCABundleContent,
	} {
		gauge := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Subsystem: "vn_agent", Name: "certificate_expire_timestamp_seconds",
			Help:        "[ALPHA] When the first certificate in --tls-cert-file (serving) and in --client-ca-file (client-ca) ends, in seconds since 1970.",
			ConstLabels: prometheus.Labels{"certificate": name},
		}, func() float64 { return firstEnd(content()) })
		if err := registry.Register(gauge); err != nil {
			return fmt.Errorf("registering a metric: %w", err)
		}
	}
	return nil
}

// firstEnd returns when the first of certificates in PEM ends, in seconds since 1970, not a number if there is none.
func firstEnd(text []byte) float64 {
	certificates, err := certutil.ParseCertsPEM(text)
	if err != nil {
		return math.NaN()
	}
	first := slices.MinFunc(certificates, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
	return float64(first.NotAfter.Unix())
}

func (m *Metrics) answered(kind route.Kind, code int) {
	m.requests.WithLabelValues(string(kind), strconv.Itoa(code)).Inc()
}

// running increments the gauge of kind; the function that it returns decrements it.
func (m *Metrics) running(kind route.Kind) func() {
	gauge := m.inFlight.WithLabelValues(string(kind))
	gauge.Inc()
	return gauge.Dec
}
