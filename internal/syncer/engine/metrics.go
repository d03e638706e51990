package engine

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Values of the label result, of reconciles and operations.
const (
	// ResultSuccess is a reconcile or write without error.
	ResultSuccess = "success"
	// ResultWait is one with an unmet precondition, see WaitError.
	ResultWait = "wait"
	// ResultError is one that failed and is retried with backoff.
	ResultError = "error"
)

// Metrics are the metrics of a syncer beside those that controller-runtime has of its controllers. Those count no
// writes, not the depth of a queue that is not client-go's, and a wait as a requeue. Labels are bounded: kind,
// operation and result.
type Metrics struct {
	reconciles *prometheus.CounterVec
	operations *prometheus.CounterVec
	drift      *prometheus.CounterVec
	registerer prometheus.Registerer
}

// NewMetrics registers the metrics.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		registerer: registerer,
		reconciles: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "vc_syncer", Name: "reconciles_total",
			Help: "[ALPHA] Reconciles by kind and result.",
		}, []string{"kind", "result"}),
		operations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "vc_syncer", Name: "operations_total",
			Help: "[ALPHA] Writes to super cluster and tenants by kind, operation and result.",
		}, []string{"kind", "operation", "result"}),
		drift: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "vc_syncer", Name: "drift_total",
			Help: "[ALPHA] Copies in the super cluster that others than the syncer changed or deleted, and that are put right, by kind.",
		}, []string{"kind"}),
	}
	return m, errors.Join(registerer.Register(m.reconciles), registerer.Register(m.operations), registerer.Register(m.drift))
}

// Operation counts one write.
func (m *Metrics) Operation(kind, operation string, err error) {
	m.operations.WithLabelValues(kind, operation, resultOf(err)).Inc()
}

// Drifted counts one copy that others changed or deleted.
func (m *Metrics) Drifted(kind string) { m.drift.WithLabelValues(kind).Inc() }

func (m *Metrics) reconcile(kind string, err error) {
	m.reconciles.WithLabelValues(kind, resultOf(err)).Inc()
}

func (m *Metrics) queue(kind string, queue *Queue) error {
	return errors.Join(
		m.registerer.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "vc_syncer", Name: "queue_depth", Help: "[ALPHA] Keys in the queue, by kind.", ConstLabels: prometheus.Labels{"kind": kind},
		}, func() float64 { return float64(queue.Len()) })),
		m.registerer.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "vc_syncer", Name: "queue_processing", Help: "[ALPHA] Keys of the queue that workers have, by kind.", ConstLabels: prometheus.Labels{"kind": kind},
		}, func() float64 { return float64(queue.Processing()) })),
	)
}

// SuperCluster registers the gauge that says when the super cluster last answered.
func (m *Metrics) SuperCluster(answered func() time.Time) error {
	return m.registerer.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "vc_syncer", Name: "super_cluster_last_answer_timestamp_seconds",
		Help: "[ALPHA] When the super cluster last answered, in seconds since 1970.",
	}, func() float64 { return float64(answered().UnixMilli()) / 1000 }))
}

// MissingVirtualClusters registers the gauge of VirtualClusters that are missing.
func (m *Metrics) MissingVirtualClusters(count func() int) error {
	return m.registerer.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "vc_syncer", Name: "missing_virtual_clusters",
		Help: "[ALPHA] VirtualClusters that the meta cluster lacks, that nobody has seen being deleted, and of which the super cluster has namespaces. 0 but on the replica that writes them.",
	}, func() float64 { return float64(count()) }))
}

func resultOf(err error) string {
	var wait *WaitError
	switch {
	case err == nil:
		return ResultSuccess
	case errors.As(err, &wait):
		return ResultWait
	default:
		return ResultError
	}
}
