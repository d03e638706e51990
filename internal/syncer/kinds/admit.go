package kinds

import (
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/tenancy"
)

// admit returns whether a super object may be written for a tenant object: the tenant's policy forbids none of its
// fields, and the tenant's objects in this super cluster stay within their limits. existing is the super object that
// the write replaces, nil for one that is created. If it returns false it has recorded an Event on the tenant object,
// and the caller writes nothing: a change of the object or of the policy enqueues the key, and if a limit of a
// TenantPolicy is exceeded the deletion of another object does; patrol does if it is one of a SyncPolicy. After an
// error of the write the caller calls unadmit.
//
// Every write of a tenant's object to the super cluster passes here, after translation. What it counts includes writes
// that are under way, so all workers together exceed no limit.
func (e *Env) admit(tenant *Tenant, key engine.Key, tenantObject, superObject, existing client.Object, facts policy.Facts) bool {
	if !e.permits(tenant, key, tenantObject, superObject, existing, facts) || !e.fits(tenant, key, tenantObject, superObject, existing) {
		return false
	}
	if fits := e.kinds().spec(key.Kind).Fits; fits != nil && !fits(e, tenant, key, tenantObject, superObject, existing) {
		e.cancel(key, existing)
		return false
	}
	if existing == nil && e.isShown(key.Kind, superObject) {
		e.cancel(key, nil)
	}
	return true
}

// bounded returns whether there is no excess of what a tenant object holds (policy.ExcessOfPod), and otherwise records
// an Event: nothing is made of the object then, and what is there of it stays. It is asked before translation.
func (e *Env) bounded(tenant *Tenant, key engine.Key, tenantObject client.Object, excess string) bool {
	if excess != "" {
		e.warnOnce(tenant, key, tenantObject, ReasonTenantLimit, fmt.Sprintf("Super cluster %s: %s", e.ID, excess))
	}
	return excess == ""
}

// isShown returns whether the cache of the super cluster has an object that its caller did not find there: it has come
// meanwhile, and is counted. One that comes after this call takes what reserve counted off the tally.
func (e *Env) isShown(kind string, superObject client.Object) bool {
	shown, _ := e.SuperCache.Get(kind, superObject.GetNamespace(), superObject.GetName())
	return shown != nil
}

// fits is the half of admit that counts, for super objects that policies say nothing else about.
func (e *Env) fits(tenant *Tenant, key engine.Key, tenantObject, superObject, existing client.Object) bool {
	spec, known := e.kinds().byName[key.Kind]
	switch {
	case !known:
		return false // it is no longer synced
	case spec.Limit != nil:
		return e.within(tenant, key, tenantObject, superObject, existing, spec.Limit(tenant))
	}
	objects, bytes, _ := tenant.Policy.Get().ObjectLimit(resourceOf(key.Kind))
	return e.within(tenant, key, tenantObject, superObject, existing, limit{amount{objects, bytes}, fieldObjects(tenant)})
}

// fieldObjects names limits.objects of a tenant's policy.
func fieldObjects(tenant *Tenant) string {
	return "limits.objects of TenantPolicy " + tenant.Policy.Get().Name()
}

// limit is an amount, and the field of what policy sets it.
type limit struct {
	amount
	field string
}

// within is fits for a limit.
func (e *Env) within(tenant *Tenant, key engine.Key, tenantObject, superObject, existing client.Object, limit limit) bool {
	resource := resourceOf(titleOf(key.Kind))
	change := amount{1, sizeOf(superObject)}
	if existing != nil {
		change = amount{0, sizeOf(superObject) - sizeOf(existing)}
	}
	sum, ok := e.tally.reserve(key, existing == nil, change, limit.amount, e.Clock.Now())
	if ok {
		if existing == nil && e.isShown(key.Kind, superObject) {
			e.tally.cancel(key, true)
		}
		return true
	}
	message := fmt.Sprintf("%d %s of at most %d exist", sum.objects, resource, limit.objects)
	if change.objects == 0 || sum.objects < limit.objects {
		message = fmt.Sprintf("%s of %d bytes exist, this one adds %d, and at most %d are allowed", resource, sum.bytes, change.bytes, limit.bytes)
	}
	e.warnOnce(tenant, key, tenantObject, ReasonTenantLimit, fmt.Sprintf(
		"Super cluster %s: %s (%s)", e.ID, message, limit.field))
	return false
}

// unadmit takes back admit for a write that failed; existing is that of admit. An object that exists already, or may
// have been written in spite of the error, as one without answer, stays counted until the cache shows it.
func (e *Env) unadmit(key engine.Key, existing client.Object, err error) {
	if engine.DelayOf(err) > 0 { // nothing was sent
		e.cancel(key, existing)
		return
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || apierrors.IsAlreadyExists(err) || apierrors.IsTimeout(err) ||
		apierrors.IsServerTimeout(err) || apierrors.IsInternalError(err) {
		return
	}
	e.cancel(key, existing)
}

// cancel takes back what was counted of a write.
func (e *Env) cancel(key engine.Key, existing client.Object) {
	spec := e.kinds().spec(key.Kind)
	e.tally.cancel(key, existing == nil)
	for _, share := range spec.Shares {
		e.tally.cancel(share.key(key), existing == nil)
	}
	if spec.Cancel != nil && existing == nil {
		spec.Cancel(key)
	}
}

// Share is something that objects of a kind take besides, and that all tenants of a super cluster share, as Services
// take node ports.
type Share struct {
	// Name is that of the field of limits in policies.
	Name string
	// Count returns how many an object takes.
	Count func(object client.Object) int64
}

// key returns the key of an object in the tally of a Share.
func (s *Share) key(of engine.Key) engine.Key {
	of.Kind = s.Name
	return of
}

// amount returns what an object takes, nil for none.
func (s *Share) amount(object client.Object) *amount {
	if object == nil {
		return nil
	}
	if count := s.Count(object); count > 0 {
		return &amount{objects: count}
	}
	return nil
}

// permits returns whether the tenant's policy forbids nothing of a super object but what existing breaks in the same
// way, and otherwise records an Event: existing was admitted by an earlier policy, or admission of the super cluster
// has changed it. existing is nil where all counts.
func (e *Env) permits(tenant *Tenant, key engine.Key, tenantObject, superObject, existing client.Object, facts policy.Facts) bool {
	rules := tenant.Policy.Get()
	refusals := policy.Check(rules, superObject, facts)
	if len(refusals) > 0 && existing != nil {
		before := policy.Check(rules, existing, facts)
		refusals = slices.DeleteFunc(refusals, func(refusal policy.Refusal) bool {
			return refusal.Field != "" && slices.Contains(before, refusal) // one without a field stands for many
		})
	}
	if len(refusals) == 0 {
		return true
	}
	e.warnOnce(tenant, key, tenantObject, tenancy.ReasonPolicyForbids, fmt.Sprintf("Super cluster %s: %s", e.ID, policy.Words(rules, refusals)))
	return false
}

// report records an Event if the tenant's policy forbids a super object that is in sync, as after the policy changed.
// The object stays.
func (e *Env) report(tenant *Tenant, key engine.Key, tenantObject, superObject client.Object, facts policy.Facts) {
	permitted := e.permits(tenant, key, tenantObject, superObject, nil, facts)
	if permitted && (e.warned(key, tenantObject, tenancy.ReasonPolicyForbids) || e.warned(key, tenantObject, ReasonTenantLimit)) {
		e.clearWarning(key)
	}
}

// podSecurityLevel returns the Pod Security Standard to enforce in a tenant's super namespaces: the policy's, or
// PodSecurityLevel if that forbids more; "" for none.
func (e *Env) podSecurityLevel(tenant *Tenant) string {
	levels := [...]string{"privileged", "baseline", "restricted"}
	wanted := string(tenant.Policy.Get().Spec().Pods.SecurityLevel)
	if e.PodSecurityLevel == "" {
		return ""
	}
	for _, level := range levels {
		if level == e.PodSecurityLevel {
			return wanted // it forbids as much
		}
		if level == wanted {
			return e.PodSecurityLevel
		}
	}
	return wanted
}
