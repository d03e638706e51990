package shards

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics show what this process leads. The nil Metrics shows nothing. They are safe for concurrent use.
type Metrics struct{ led prometheus.Gauge }

// NewMetrics registers the gauge of the shards that are led, which each program names and explains itself. Where it is
// registered already it returns that one.
func NewMetrics(registerer prometheus.Registerer, led prometheus.Gauge) (*Metrics, error) {
	err := registerer.Register(led)
	var registered prometheus.AlreadyRegisteredError
	if errors.As(err, &registered) {
		if before, same := registered.ExistingCollector.(prometheus.Gauge); same {
			return &Metrics{led: before}, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("registering the metrics of shards: %w", err)
	}
	return &Metrics{led: led}, nil
}

// add counts one that is led from now on, or not any more.
func (m *Metrics) add(led bool) {
	switch {
	case m == nil:
	case led:
		m.led.Inc()
	default:
		m.led.Dec()
	}
}
