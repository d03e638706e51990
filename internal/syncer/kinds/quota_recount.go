package kinds

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	quotav1 "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/kubernetes/pkg/quota/v1/evaluator/core"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/slice"
)

// recountPause is the least time between two counts of one super namespace: each lists all pods in it, and any number
// of pods may wait there.
const recountPause = time.Minute

// recounts correct status.used of the quotas of super namespaces. The zero value is ready to use; all methods may be
// called concurrently.
type recounts struct {
	mu sync.Mutex
	// last holds when a super namespace was counted within the last recountPause.
	last map[string]time.Time
}

// correct lowers status.used of the quota of a super namespace to what its pods use. An API server charges the quota
// before it stores the pod, so a request that is cancelled between the two leaves a charge without a pod, and the quota
// controller of the super cluster recalculates every five minutes only. It returns whether it corrected anything, and
// counts at most once per recountPause.
//
// It also takes back the charge of another request that is between the two now. The quota controller counts that pod at
// its next recalculation; until then the namespace may exceed its bound by it.
func (r *recounts) correct(ctx context.Context, env *Env, superNamespace string) (bool, error) {
	if !r.start(superNamespace, env.Clock.Now()) {
		return false, nil
	}
	corrected, err := correctQuota(ctx, env, superNamespace)
	if err != nil {
		r.forget(superNamespace)
	}
	return corrected, err
}

// start returns whether a super namespace was not counted within recountPause, and stores that it is now.
func (r *recounts) start(superNamespace string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.last, func(_ string, at time.Time) bool { return now.Sub(at) >= recountPause })
	if _, lately := r.last[superNamespace]; lately {
		return false
	}
	if r.last == nil {
		r.last = map[string]time.Time{}
	}
	r.last[superNamespace] = now
	return true
}

// forget lets a super namespace whose count failed be counted again at once.
func (r *recounts) forget(superNamespace string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.last, superNamespace)
}

func correctQuota(ctx context.Context, env *Env, superNamespace string) (bool, error) {
	quota := &corev1.ResourceQuota{}
	if err := env.Super.Get(ctx, types.NamespacedName{Namespace: superNamespace, Name: quotaName}, quota); err != nil {
		return false, fmt.Errorf("reading the quota of super namespace %s: %w", superNamespace, err)
	}
	// The quota is read before the pods, so its update conflicts with any charge since.
	pods := &corev1.PodList{}
	if err := env.Super.List(ctx, pods, client.InNamespace(superNamespace)); err != nil {
		return false, fmt.Errorf("listing the pods of super namespace %s: %w", superNamespace, err)
	}
	used, err := usageOf(pods)
	if err != nil {
		return false, err
	}
	if !lowerUse(&quota.Status, used) {
		return false, nil
	}
	return true, env.done(ctx, KindQuota, "recount", env.Super.Status().Update(ctx, quota))
}

// usageOf returns what a quota charges for pods.
func usageOf(pods *corev1.PodList) (corev1.ResourceList, error) {
	used := corev1.ResourceList{}
	for i := range pods.Items {
		usage, err := core.PodUsageFunc(&pods.Items[i], clock.RealClock{})
		if err != nil {
			return nil, fmt.Errorf("computing what pod %s/%s uses: %w", pods.Items[i].Namespace, pods.Items[i].Name, err)
		}
		used = quotav1.Add(used, usage)
	}
	return used, nil
}

// lowerUse lowers what status.used charges for pods to used. It returns whether that changed anything.
func lowerUse(status *corev1.ResourceQuotaStatus, used corev1.ResourceList) bool {
	lowered := false
	ofPods := core.NewPodEvaluator(nil, clock.RealClock{}).MatchingResources(quotav1.ResourceNames(status.Used))
	for _, name := range ofPods {
		charged := status.Used[name]
		if actual := used[name]; slice.Compare(actual, charged) < 0 {
			status.Used[name] = actual
			lowered = true
		}
	}
	return lowered
}
