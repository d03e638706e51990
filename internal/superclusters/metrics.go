package superclusters

import (
	"errors"
	"fmt"
	"math"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/superpool/superpool/internal/slice"
)

// Metrics are the metrics of super clusters. The nil Metrics takes and shows nothing. They are safe for concurrent use.
type Metrics struct {
	overcommitted, slices *prometheus.GaugeVec
}

// NewMetrics registers the metrics. Where they are registered already it returns those.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		overcommitted: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "vc_scheduler", Name: "super_cluster_overcommitted",
			Help: "[ALPHA] What tenants have reserved in a super cluster, or may use there, beyond what it can hold, by super cluster and resource: cores, bytes or pieces.",
		}, []string{"super_cluster", "resource"}),
		slices: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "vc_scheduler", Name: "super_cluster_slices",
			Help: "[ALPHA] Slices by super cluster and state: used (those that namespaces have there, of any size, without what is leaving) or free (how many of --default-slice fit into the sum of what is free; 0 while it does not answer).",
		}, []string{"super_cluster", "state"}),
	}
	for _, metric := range []**prometheus.GaugeVec{&m.overcommitted, &m.slices} {
		err := registerer.Register(*metric)
		var registered prometheus.AlreadyRegisteredError
		if errors.As(err, &registered) { // by a program that ran in this process before
			*metric, _ = registered.ExistingCollector.(*prometheus.GaugeVec)
		} else if err != nil {
			return nil, fmt.Errorf("registering the metrics of super clusters: %w", err)
		}
	}
	return m, nil
}

// set shows what a super cluster is overcommitted by, 0 for what it offers and is not, and its slices: so many are
// used, and what is free is counted in slices of a size.
func (m *Metrics) set(id string, d *desiredNode, used int64, size slice.Amounts) {
	if m == nil {
		return
	}
	excess, room := d.declared.Overcommit(&d.capacity)
	m.forget(id)
	for name := range room.Plus(excess) {
		dimension := slice.DimensionOf(name)
		m.overcommitted.WithLabelValues(id, string(name)).Set(dimension.Quantity(excess[name]).AsApproximateFloat64())
	}
	free := int64(0)
	if d.ready == metav1.ConditionTrue {
		free = wholeSlices(room.Minus(d.capacity.Committed), size)
	}
	m.slices.WithLabelValues(id, "used").Set(float64(used))
	m.slices.WithLabelValues(id, "free").Set(float64(free))
}

// wholeSlices returns how many slices of a size fit into amounts, 0 for a size of nothing.
func wholeSlices(amounts, size slice.Amounts) int64 {
	fit := int64(math.MaxInt64)
	for name, wanted := range size {
		if wanted > 0 {
			fit = min(fit, amounts[name]/wanted)
		}
	}
	if size.IsZero() {
		return 0
	}
	return fit
}

// forget removes what was shown of a super cluster.
func (m *Metrics) forget(id string) {
	if m != nil {
		m.overcommitted.DeletePartialMatch(prometheus.Labels{"super_cluster": id})
		m.slices.DeletePartialMatch(prometheus.Labels{"super_cluster": id})
	}
}
