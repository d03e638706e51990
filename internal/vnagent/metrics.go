package vnagent

import (
	"fmt"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

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

func (m *Metrics) answered(kind route.Kind, code int) {
	m.requests.WithLabelValues(string(kind), strconv.Itoa(code)).Inc()
}

// running increments the gauge of kind; the function that it returns decrements it.
func (m *Metrics) running(kind route.Kind) func() {
	gauge := m.inFlight.WithLabelValues(string(kind))
	gauge.Inc()
	return gauge.Dec
}
