package vnagent

import (
	"fmt"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/superpool/superpool/internal/vnagent/route"
)

// Metrics count requests. Labels are routes and status codes, never tenants or pods.
type Metrics struct {
	requests *prometheus.CounterVec
	inFlight *prometheus.GaugeVec
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	metrics := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Subsystem: "vn_agent", Name: "requests_total", Help: "[ALPHA] Requests that have ended, by route and status code.",
		}, []string{"route", "code"}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Subsystem: "vn_agent", Name: "requests_in_flight", Help: "[ALPHA] Requests and streams that run, by route.",
		}, []string{"route"}),
	}
	for _, collector := range []prometheus.Collector{metrics.requests, metrics.inFlight} {
		if err := registry.Register(collector); err != nil {
			return nil, fmt.Errorf("registering a metric: %w", err)
		}
	}
	return metrics, nil
}

func (m *Metrics) answered(kind route.Kind, code int) {
	m.requests.WithLabelValues(string(kind), strconv.Itoa(code)).Inc()
}

// running counts one request in, and out when the result is called.
func (m *Metrics) running(kind route.Kind) func() {
	gauge := m.inFlight.WithLabelValues(string(kind))
	gauge.Inc()
	return gauge.Dec
}
