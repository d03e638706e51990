package superclusters

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/superpool/superpool/internal/slice"
)

// Metrics are the metrics of super clusters. The nil Metrics takes and shows nothing. They are safe for concurrent use.
type Metrics struct {
	overcommitted *prometheus.GaugeVec
}

// NewMetrics registers the metrics. Where they are registered already it returns those.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{overcommitted: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "vc_scheduler", Name: "super_cluster_overcommitted",
		Help: "[ALPHA] What tenants have reserved in a super cluster, or may use there, beyond what it can hold, by super cluster and resource: cores, bytes or pieces.",
	}, []string{"super_cluster", "resource"})}
	err := registerer.Register(m.overcommitted)
	var registered prometheus.AlreadyRegisteredError
	if errors.As(err, &registered) { // by a program that ran in this process before
		m.overcommitted, _ = registered.ExistingCollector.(*prometheus.GaugeVec)
		return m, nil
	}
	if err != nil {
		return nil, fmt.Errorf("registering the metrics of super clusters: %w", err)
	}
	return m, nil
}

// set shows what a super cluster is overcommitted by: 0 for what it offers and is not.
func (m *Metrics) set(id string, d *desiredNode) {
	if m == nil {
		return
	}
	excess, room := overcommit(&d.capacity, d.headroom)
	m.forget(id)
	for name := range room.Plus(excess) {
		dimension := slice.DimensionOf(name)
		m.overcommitted.WithLabelValues(id, string(name)).Set(dimension.Quantity(excess[name]).AsApproximateFloat64())
	}
}

// forget removes what was shown of a super cluster.
func (m *Metrics) forget(id string) {
	if m != nil {
		m.overcommitted.DeletePartialMatch(prometheus.Labels{"super_cluster": id})
	}
}
