package kinds

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	quotav1 "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/kubernetes/pkg/quota/v1/evaluator/core"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/tenancy"
)

// quotaName is the ResourceQuota in every super namespace that holds the tenant to its placement.
const quotaName = "superpool"

// KindQuota is cached in the super cluster only; kind namespace writes it.
const KindQuota = "resourcequota"

func quotaSpec() Spec {
	return Spec{
		Name: KindQuota, Scope: ScopeTenant, Super: owned(&corev1.ResourceQuota{}), SuperKey: namespaceSuperKey,
		Wakes: map[string]func(*Env, Change) []engine.Key{KindQuota: quotaWakes},
	}
}

// quotaWakes enqueues the namespace of a quota and all that is in it: they may wait for the quota. What it counts as used changes with
// every pod, so that alone does not.
func quotaWakes(env *Env, change Change) []engine.Key {
	before, wasQuota := change.Old.(*corev1.ResourceQuota)
	after, isQuota := change.Current.(*corev1.ResourceQuota)
	if wasQuota && isQuota && sameButForUse(before, after) {
		return nil
	}
	key, ours := namespaceSuperKey(change.object())
	if !ours && wasQuota {
		key, ours = namespaceSuperKey(before)
	}
	if !ours {
		return nil
	}
	return env.NamespaceChanged(key.Tenant, key.Name)
}

// sameButForUse says whether nothing has changed of a quota but how much of it is used.
func sameButForUse(old, current *corev1.ResourceQuota) bool {
	before := *old
	before.ResourceVersion, before.Status.Used = current.ResourceVersion, current.Status.Used
	return equality.Semantic.DeepEqual(&before, current)
}

// usesLess says whether less of any resource is used than before.
func usesLess(old, current *corev1.ResourceQuota) bool {
	for name, before := range old.Status.Used {
		if now := current.Status.Used[name]; now.Cmp(before) < 0 {
			return true
		}
	}
	return false
}

// recountPause is the least time between two counts of one super namespace: any number of pods may wait there, and each count lists all that run.
const recountPause = time.Minute

// SuperQuota writes onto quota the bound of a namespace: requests up to what is reserved. Nothing reserved allows no pods.
func SuperQuota(quota *corev1.ResourceQuota, owner tenancy.Owner, reserved corev1.ResourceList) {
	quota.Namespace = tenancy.SuperNamespace(owner.ClusterKey, owner.Namespace)
	quota.Name = quotaName
	tenancy.Mark(quota, owner)
	hard := make(corev1.ResourceList, len(reserved))
	for name, quantity := range reserved {
		hard[slice.DimensionOf(name).QuotaKey] = quantity
	}
	if len(hard) == 0 {
		hard[corev1.ResourcePods] = *resource.NewQuantity(0, resource.DecimalSI)
	}
	quota.Spec = corev1.ResourceQuotaSpec{Hard: hard}
}

func isQuotaRefusal(err error) bool {
	return apierrors.IsForbidden(err) && (strings.Contains(err.Error(), "exceeded quota") || strings.Contains(err.Error(), "status unknown for quota"))
}

// recount lowers what the quota of a super namespace counts as used to what its pods use. An API server charges the quota before it
// stores the pod, so a request that ends between the two, as when its sender is killed, leaves a charge for nothing, and the super
// cluster's own controller looks for that every five minutes only. It returns whether anything was corrected.
//
// A charge of another request that is between the two now is taken back too. That pod is then counted at the controller's next look;
// the namespace may exceed its bound by it until then.
func (e *Env) recount(ctx context.Context, superNamespace string) (corrected bool, err error) {
	if !e.mayRecount(superNamespace) {
		return false, nil
	}
	defer func() {
		if err != nil {
			e.mu.Lock()
			defer e.mu.Unlock()
			delete(e.counted, superNamespace)
		}
	}()
	quota := &corev1.ResourceQuota{}
	if err := e.Super.Get(ctx, types.NamespacedName{Namespace: superNamespace, Name: quotaName}, quota); err != nil {
		return false, fmt.Errorf("reading the quota of super namespace %s: %w", superNamespace, err)
	}
	// The quota was read first, and is written only if nothing was charged since.
	pods := &corev1.PodList{}
	if err := e.Super.List(ctx, pods, client.InNamespace(superNamespace)); err != nil {
		return false, fmt.Errorf("listing the pods of super namespace %s: %w", superNamespace, err)
	}
	used := corev1.ResourceList{}
	for i := range pods.Items {
		usage, err := core.PodUsageFunc(&pods.Items[i], clock.RealClock{})
		if err != nil {
			return false, fmt.Errorf("computing what pod %s/%s uses: %w", superNamespace, pods.Items[i].Name, err)
		}
		used = quotav1.Add(used, usage)
	}
	for name, charged := range quota.Status.Used {
		if actual := used[name]; actual.Cmp(charged) < 0 {
			quota.Status.Used[name] = actual
			corrected = true
		}
	}
	if !corrected {
		return false, nil
	}
	return true, e.done(ctx, KindQuota, "recount", e.Super.Status().Update(ctx, quota))
}

// mayRecount says whether a super namespace has not been counted lately, and remembers that it is now.
func (e *Env) mayRecount(superNamespace string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.Clock.Now()
	maps.DeleteFunc(e.counted, func(_ string, at time.Time) bool { return now.Sub(at) >= recountPause })
	if _, lately := e.counted[superNamespace]; lately {
		return false
	}
	if e.counted == nil {
		e.counted = map[string]time.Time{}
	}
	e.counted[superNamespace] = now
	return true
}
