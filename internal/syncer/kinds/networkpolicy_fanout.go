package kinds

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/superpool/superpool/internal/syncer/engine"
)

const (
	// fanOutPeriod is the least time between two fan-outs of one tenant, and fanOutTime what each policy adds to more
	// than that.
	fanOutPeriod = 5 * time.Second
	fanOutTime   = 10 * time.Millisecond
)

// networkPolicyKind reconciles NetworkPolicies one by one. A key without a name is the fan-out of a tenant: its
// reconcile enqueues all policies that select namespaces by labels. A change of a namespace enqueues that one key, so
// that the policies of a tenant which changes labels all the time are written once per period.
type networkPolicyKind struct {
	engine.Kind // of single policies
	env         *Env

	mu sync.Mutex
	// next holds the earliest time of the next fan-out, by tenant.
	next map[string]time.Time
}

// wakesNetworkPolicies enqueues the fan-out when a namespace of a tenant is added or deleted, or its labels change.
func wakesNetworkPolicies(_ *Env, change Change) []engine.Key {
	if change.Side != TenantSide || !change.createdOrDeleted() && maps.Equal(change.Old.GetLabels(), change.Current.GetLabels()) {
		return nil
	}
	return []engine.Key{{Tenant: change.Tenant, Kind: KindNetworkPolicy}}
}

// Reconcile implements engine.Kind.
func (k *networkPolicyKind) Reconcile(ctx context.Context, key engine.Key, waited time.Duration) (time.Duration, error) {
	if key.Name != "" {
		return k.Kind.Reconcile(ctx, key, waited)
	}
	return k.fanOut(key.Tenant), nil
}

// fanOut enqueues the policies of a tenant, or returns after what time to call it again.
func (k *networkPolicyKind) fanOut(key string) time.Duration {
	tenant := k.env.Tenant(key)
	if tenant == nil {
		return 0
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.env.Clock.Now()
	if next := k.next[key]; now.Before(next) {
		return next.Sub(now)
	}
	maps.DeleteFunc(k.next, func(_ string, next time.Time) bool { return !now.Before(next) })
	keys := selectingKeys(tenant)
	if k.next == nil {
		k.next = map[string]time.Time{}
	}
	k.next[key] = now.Add(max(fanOutPeriod, time.Duration(len(keys))*fanOutTime))
	k.env.Enqueue(keys)
	return 0
}

// selectingKeys returns the keys of a tenant's policies whose translation follows from labels of namespaces:
// maxSelectingPolicies of each namespace.
func selectingKeys(tenant *Tenant) []engine.Key {
	selecting := map[string][]*networkingv1.NetworkPolicy{}
	for _, object := range tenant.Cache.List(KindNetworkPolicy) {
		if policy, ok := object.(*networkingv1.NetworkPolicy); ok && selectsByLabels(policy) {
			selecting[policy.Namespace] = append(selecting[policy.Namespace], policy)
		}
	}
	var keys []engine.Key
	for _, namespace := range slices.Sorted(maps.Keys(selecting)) {
		policies := slices.SortedFunc(slices.Values(selecting[namespace]), compareAge)
		for _, policy := range policies[:min(len(policies), maxSelectingPolicies)] {
			keys = append(keys, engine.Key{Tenant: tenant.Key, Kind: KindNetworkPolicy, Namespace: namespace, Name: policy.Name})
		}
	}
	return keys
}
