package scheduling

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
)

// Metrics are the metrics of tenants' controllers. The nil Metrics takes and shows nothing. They are safe for
// concurrent use.
type Metrics struct {
	evictions *prometheus.CounterVec
}

// NewMetrics registers the metrics. Where they are registered already it returns those.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{evictions: prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "vc_scheduler", Name: "evictions_total",
		Help: "[ALPHA] Requests to evict tenants' pods, or to delete those in lost super clusters, that their namespaces leave, by the reason of that and by result: evicted, blocked (a disruption budget forbids it for now), gone (the pod is), changed (it has changed, or another has its name) or error.",
	}, []string{"reason", "result"})}
	err := registerer.Register(m.evictions)
	var registered prometheus.AlreadyRegisteredError
	if errors.As(err, &registered) { // by a program that ran in this process before
		m.evictions, _ = registered.ExistingCollector.(*prometheus.CounterVec)
		return m, nil
	}
	if err != nil {
		return nil, fmt.Errorf("registering the metrics of tenants' controllers: %w", err)
	}
	return m, nil
}

// evicted counts one request to evict a pod.
func (m *Metrics) evicted(reason schedulerv1alpha1.LeavingReason, result evictionResult) {
	if m != nil {
		m.evictions.WithLabelValues(string(reason), string(result)).Inc()
	}
}
