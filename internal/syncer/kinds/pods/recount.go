package pods

import (
	"context"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/superpool/superpool/internal/syncer/kind"
)

const (
	// recountAfter is for how long a pod waits for a quota before what that has charged is doubted: what pods used that
	// have ended comes back within seconds.
	recountAfter = 10 * time.Second
	// recountPeriod is how often one quota is doubted at most.
	recountPeriod = time.Minute
)

// recounts are when the quotas of a tenant's namespaces were doubted last, by namespace.
type recounts struct {
	mu sync.Mutex
	at map[string]time.Time
}

// due returns whether a quota may be doubted now, and notes that it is.
func (r *recounts) due(namespace string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.at, func(_ string, at time.Time) bool { return now.Sub(at) >= recountPeriod })
	if _, isRecent := r.at[namespace]; isRecent {
		return false
	}
	if r.at == nil {
		r.at = map[string]time.Time{}
	}
	r.at[namespace] = now
	return true
}

// recount lets the super cluster count again what a quota has charged, where a pod has waited for it and it has charged
// more pods than there are: that of a request that was cancelled before its pod was stored. Pods that others have made
// there are not seen; then it is counted in vain, once in recountPeriod.
func (p *Pods) recount(ctx context.Context, pair *podPair) error {
	place := kind.Kept[recounts](pair.tenant)
	place.CompareAndSwap(nil, &recounts{})
	if pair.facts.Waited < recountAfter || !place.Load().due(pair.key.Namespace, p.env.Clock.Now()) {
		return nil
	}
	superNamespace := pair.superName().Namespace
	quota, exists, _ := kind.Get[*corev1.ResourceQuota](p.env.SuperCache, kind.Quota, superNamespace, kind.QuotaName)
	if !exists {
		return nil
	}
	var there int64
	for _, object := range p.env.SuperCache.InNamespace(kind.Pod, superNamespace) {
		if pod, ok := object.(*corev1.Pod); ok && !podutil.IsPodTerminal(pod) {
			there++
		}
	}
	if charged := quota.Status.Used[corev1.ResourcePods]; charged.CmpInt64(there) <= 0 {
		return nil
	}
	desired := quota.DeepCopy()
	kind.CountAgain(desired)
	return p.env.Done(ctx, kind.Quota, "update", p.env.Super.Update(ctx, desired))
}
