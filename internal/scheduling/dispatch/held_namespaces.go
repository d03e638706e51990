package dispatch

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	nodeutil "k8s.io/kubernetes/pkg/util/node"
	"k8s.io/utils/clock"
)

// HeldPeriod is for how long an answer of a super cluster counts at most. What was so before it was asked it does not
// say: callers hold the time of an answer against that of what they want to know.
const HeldPeriod = time.Minute

// HeldNamespaces asks super clusters of the pool of which namespaces of one tenant they hold super namespaces, each
// once in HeldPeriod: how many objects name them is the tenant's to write. It is for one goroutine.
type HeldNamespaces struct {
	// Read reads it live. Nil: nobody can say.
	Read  func(ctx context.Context, superCluster string) (sets.Set[string], error)
	Clock clock.PassiveClock
	asked map[string]HeldAnswer
}

// HeldAnswer is what a super cluster held of the tenant when it was asked. Known is whether it said so.
type HeldAnswer struct {
	Namespaces sets.Set[string]
	Known      bool
	Asked      time.Time
}

// In returns the tenant's namespaces that the super cluster of a virtual Node holds. One that is not Ready is not
// asked: the tenant has one worker, and which super clusters its objects name is the tenant's to write.
func (h *HeldNamespaces) In(ctx context.Context, node *corev1.Node) HeldAnswer {
	if h.Read == nil || !nodeutil.IsNodeReady(node) {
		return HeldAnswer{}
	}
	now := h.Clock.Now()
	if last, known := h.asked[node.Name]; known && now.Sub(last.Asked) < HeldPeriod {
		return last
	}
	namespaces, err := h.Read(ctx, node.Name)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("A super cluster does not say what it holds of the tenant", "superCluster", node.Name, "err", err)
	}
	if h.asked == nil {
		h.asked = map[string]HeldAnswer{}
	}
	h.asked[node.Name] = HeldAnswer{namespaces, err == nil, now}
	return h.asked[node.Name]
}
