package placements

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
)

// DecisionResult is what became of one try to place a namespace.
type DecisionResult string

// The results of a try to place a namespace.
const (
	DecisionPlaced  DecisionResult = "placed"
	DecisionRefused DecisionResult = "refused"
	DecisionDenied  DecisionResult = "denied"
	DecisionChanged DecisionResult = "changed"
	DecisionError   DecisionResult = "error"
)

// Metrics are the metrics of placements and of tenants' controllers. The nil Metrics takes and shows nothing. They are
// safe for concurrent use.
type Metrics struct {
	evictions *prometheus.CounterVec
	blocked   prometheus.Gauge
	decisions *prometheus.CounterVec
	waits     prometheus.Histogram
	moves     *prometheus.CounterVec
	preempts  *prometheus.CounterVec
}

// NewMetrics registers the metrics. Where they are registered already it returns those.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		evictions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "vc_scheduler", Name: "evictions_total",
			Help: "[ALPHA] Requests to evict tenants' pods, or to delete those in lost super clusters, that their namespaces leave, by the reason of that and by result: evicted, blocked (a disruption budget forbids it for now), gone (the pod is), changed (it has changed, or another has its name) or error.",
		}, []string{"reason", "result"}),
		blocked: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "vc_scheduler", Name: "evictions_blocked",
			Help: "[ALPHA] Tenants' pods in super clusters that their namespaces leave whose eviction a disruption budget forbade at the last try.",
		}),
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "vc_scheduler", Name: "namespace_decisions_total",
			Help: "[ALPHA] Tries to place what is missing of a namespace, or other placements that its tenant requests, by result: placed, refused (it fits nowhere, and is tried again when something changes), denied (the same of a request, which is not tried again), changed (the namespace asks for something else meanwhile) or error.",
		}, []string{"result"}),
		waits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "vc_scheduler", Name: "placement_duration_seconds",
			Help: "[ALPHA] Time from the write of a NamespacePlacement whose quota asks for more than is reserved to that of the decision with which all of it is placed. Those that waited when this process began to lead are left out.",
			// From 5 ms, which is about what a decision takes, to a little more than an hour.
			Buckets: []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600},
		}),
		moves: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "vc_scheduler", Name: "moves_total",
			Help: "[ALPHA] What namespaces have in one super cluster and is to leave it, by the reason of that and by step: begun, done (it has left) or undone (it stays again).",
		}, []string{"reason", "step"}),
		preempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "vc_scheduler", Name: "preemptions_total",
			Help: "[ALPHA] Searches for what others borrow and a namespace needs that is guaranteed to its tenant, by result: nominated (others give way), free (it fits without), none (it fits nowhere, whoever gives way that may), changed (it asks for something else meanwhile) or error.",
		}, []string{"result"}),
	}
	err := errors.Join(register(registerer, &m.evictions), register(registerer, &m.blocked), register(registerer, &m.decisions),
		register(registerer, &m.waits), register(registerer, &m.moves), register(registerer, &m.preempts))
	if err != nil {
		return nil, fmt.Errorf("registering the metrics of placements: %w", err)
	}
	return m, nil
}

// register registers a metric, or replaces it by the one that a program has registered which ran in this process
// before.
func register[T prometheus.Collector](registerer prometheus.Registerer, metric *T) error {
	err := registerer.Register(*metric)
	var registered prometheus.AlreadyRegisteredError
	if !errors.As(err, &registered) {
		return err //nolint:wrapcheck // NewMetrics does
	}
	*metric, _ = registered.ExistingCollector.(T)
	return nil
}

// Evicted counts one request to evict a pod.
func (m *Metrics) Evicted(reason schedulerv1alpha1.LeavingReason, result EvictionResult) {
	if m != nil {
		m.evictions.WithLabelValues(string(reason), string(result)).Inc()
	}
}

// AddBlocked adds to the number of pods that cannot be evicted.
func (m *Metrics) AddBlocked(pods int) {
	if m != nil {
		m.blocked.Add(float64(pods))
	}
}

// Decided counts one try to place a namespace.
func (m *Metrics) Decided(result DecisionResult) {
	if m != nil {
		m.decisions.WithLabelValues(string(result)).Inc()
	}
}

// waited records how long a namespace waited for what its quota asks for.
func (m *Metrics) waited(d time.Duration) {
	if m != nil {
		m.waits.Observe(d.Seconds())
	}
}

// moved counts the steps between two statuses of a NamespacePlacement.
func (m *Metrics) moved(before, after []schedulerv1alpha1.ClusterPlacement) {
	if m == nil {
		return
	}
	for _, move := range movesOf(before, after) {
		m.moves.WithLabelValues(string(move.reason), move.step).Inc()
	}
}

// PreemptionResult is what became of one search for what others borrow.
type PreemptionResult string

// The results of a search for what others borrow.
const (
	PreemptionNominated PreemptionResult = "nominated"
	PreemptionFree      PreemptionResult = "free"
	PreemptionNone      PreemptionResult = "none"
	PreemptionChanged   PreemptionResult = "changed"
	PreemptionError     PreemptionResult = "error"
)

// Preempted counts one search for what others borrow.
func (m *Metrics) Preempted(result PreemptionResult) {
	if m != nil {
		m.preempts.WithLabelValues(string(result)).Inc()
	}
}

// EvictionResult is what became of one request to evict a pod.
type EvictionResult string

// The results of a request to evict a pod.
const (
	ResultEvicted EvictionResult = "evicted"
	ResultBlocked EvictionResult = "blocked"
	ResultGone    EvictionResult = "gone"
	ResultChanged EvictionResult = "changed"
	ResultError   EvictionResult = "error"
)
