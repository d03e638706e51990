package kind

import (
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/objectsize"
	"github.com/superpool/superpool/internal/tenancy"
)

// Admission is whether a super object may be written.
type Admission string

const (
	// Admitted is that it may.
	Admitted Admission = "Admitted"
	// Forbidden is that the tenant's policy forbids one of its fields.
	Forbidden Admission = "Forbidden"
	// OverLimit is that a limit of the tenant has no room for it.
	OverLimit Admission = "OverLimit"
)

// Admit returns whether a super object may be written for a tenant object: the tenant's policy forbids none of its
// fields, and the tenant's objects in this super cluster stay within their limits. existing is the super object that
// the write replaces, nil for one that is created. If it is not Admitted, Admit has recorded an Event on the tenant
// object, and the caller writes nothing: a change of the object or of the policy enqueues the key, and if a limit is
// exceeded the deletion of another object does. After an error of the write the caller calls Unadmit.
//
// Every write of a tenant's object to the super cluster passes here, after translation. What it counts includes writes
// that are under way, so all workers together exceed no limit.
func (e *Env) Admit(tenant *Tenant, key engine.Key, tenantObject, superObject, existing client.Object, facts policy.Facts) Admission {
	if !e.Permits(tenant, key, tenantObject, superObject, existing, facts) {
		return Forbidden
	}
	besides := e.kinds().spec(key.Kind).Fits
	if besides != nil && !besides(e, tenant, key, tenantObject, superObject, existing) || !e.Fits(tenant, key, tenantObject, superObject, existing) {
		e.cancelBesides(key, existing)
		return OverLimit
	}
	if existing == nil && e.isShown(key.Kind, superObject) {
		e.Cancel(key, nil)
	}
	return Admitted
}

// Bounded returns whether there is no excess of what a tenant object holds (policy.ExcessOfPod), and otherwise records
// an Event: nothing is made of the object then, and what is there of it stays. It is asked before translation.
func (e *Env) Bounded(tenant *Tenant, key engine.Key, tenantObject client.Object, excess string) bool {
	if excess != "" {
		e.WarnOnce(tenant, key, tenantObject, ReasonTenantLimit, fmt.Sprintf("Super cluster %s: %s", e.ID, excess))
	}
	return excess == ""
}

// isShown returns whether the cache of the super cluster has an object that its caller did not find there: it has come
// meanwhile, and is counted. One that comes after this call takes what Reserve counted off the tally.
func (e *Env) isShown(kind string, superObject client.Object) bool {
	shown, _ := e.SuperCache.Get(kind, superObject.GetNamespace(), superObject.GetName())
	return shown != nil
}

// Fits is the half of Admit that counts, for super objects that policies say nothing else about.
func (e *Env) Fits(tenant *Tenant, key engine.Key, tenantObject, superObject, existing client.Object) bool {
	spec, known := e.kinds().byName[key.Kind]
	switch {
	case !known:
		return false // it is no longer synced
	case spec.Limit != nil:
		return e.Within(tenant, key, tenantObject, superObject, existing, spec.Limit(tenant))
	}
	objects, bytes, _ := tenant.Policy.Get().ObjectLimit(ResourceOf(key.Kind))
	return e.Within(tenant, key, tenantObject, superObject, existing, Limit{Amount{objects, bytes}, FieldObjects(tenant)})
}

// FieldObjects names limits.objects of a tenant's policy.
func FieldObjects(tenant *Tenant) string {
	return "limits.objects of TenantPolicy " + tenant.Policy.Get().Name()
}

// Limit is an amount, and the field of what policy sets it.
type Limit struct {
	Amount
	Field string
}

// Within is Fits for a limit.
func (e *Env) Within(tenant *Tenant, key engine.Key, tenantObject, superObject, existing client.Object, limit Limit) bool {
	resource := ResourceOf(TitleOf(key.Kind))
	change := Amount{1, objectsize.Stored(superObject)}
	if existing != nil {
		change = Amount{0, objectsize.Stored(superObject) - objectsize.Stored(existing)}
	}
	sum, ok := e.Tally.Reserve(key, existing == nil, change, limit.Amount, e.Clock.Now())
	if ok {
		if existing == nil && e.isShown(key.Kind, superObject) {
			e.Tally.cancel(key, true)
		}
		return true
	}
	message := fmt.Sprintf("%d %s of at most %d exist", sum.Objects, resource, limit.Objects)
	if change.Objects == 0 || sum.Objects < limit.Objects {
		message = fmt.Sprintf("%s of %d bytes exist, this one adds %d, and at most %d are allowed", resource, sum.Bytes, change.Bytes, limit.Bytes)
	}
	e.WarnOnce(tenant, key, tenantObject, ReasonTenantLimit, fmt.Sprintf(
		"Super cluster %s: %s (%s)", e.ID, message, limit.Field))
	return false
}

// Unadmit takes back Admit for a write that failed; existing is that of Admit. An object that exists already, or may
// have been written in spite of the error, as one without answer, stays counted until the cache shows it.
func (e *Env) Unadmit(key engine.Key, existing client.Object, err error) {
	if engine.DelayOf(err) > 0 { // nothing was sent
		e.Cancel(key, existing)
		return
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || apierrors.IsAlreadyExists(err) || apierrors.IsTimeout(err) ||
		apierrors.IsServerTimeout(err) || apierrors.IsInternalError(err) {
		return
	}
	e.Cancel(key, existing)
}

// Cancel takes back what was counted of a write.
func (e *Env) Cancel(key engine.Key, existing client.Object) {
	e.Tally.cancel(key, existing == nil)
	e.cancelBesides(key, existing)
}

// cancelBesides takes back what was counted of a write besides its object.
func (e *Env) cancelBesides(key engine.Key, existing client.Object) {
	for _, share := range e.kinds().spec(key.Kind).Shares {
		e.Tally.cancel(share.Key(key), existing == nil)
	}
}

// Share is something that objects of a kind take besides, as Services take the node ports that all tenants of a super
// cluster share.
type Share struct {
	// Name is that of the field of limits in policies, or another one that no kind has.
	Name string
	// PerNamespace is whether it is counted for each namespace of a tenant, and not for all together.
	PerNamespace bool
	// Count returns how many an object takes.
	Count func(object client.Object) int64
}

// perNamespace is between the name of a Share and a namespace, in keys.
const perNamespace = "/"

// Key returns the key of an object in the tally of a Share.
func (s *Share) Key(of engine.Key) engine.Key {
	of.Kind = s.Name
	if s.PerNamespace {
		of.Kind += perNamespace + of.Namespace
	}
	return of
}

// Amount returns what an object takes, nil for none.
func (s *Share) Amount(object client.Object) *Amount {
	if object == nil {
		return nil
	}
	if count := s.Count(object); count > 0 {
		return &Amount{Objects: count}
	}
	return nil
}

// Permits returns whether the tenant's policy forbids nothing of a super object but what existing breaks in the same
// way, and otherwise records an Event: existing was admitted by an earlier policy, or admission of the super cluster
// has changed it. existing is nil where all counts.
func (e *Env) Permits(tenant *Tenant, key engine.Key, tenantObject, superObject, existing client.Object, facts policy.Facts) bool {
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
	e.WarnOnce(tenant, key, tenantObject, tenancy.ReasonPolicyForbids, fmt.Sprintf("Super cluster %s: %s", e.ID, policy.Words(rules, refusals)))
	return false
}

// Report records an Event if the tenant's policy forbids a super object that is in sync, as after the policy changed.
// The object stays.
func (e *Env) Report(tenant *Tenant, key engine.Key, tenantObject, superObject client.Object, facts policy.Facts) {
	permitted := e.Permits(tenant, key, tenantObject, superObject, nil, facts)
	if permitted && e.warned(key, tenantObject, tenancy.ReasonPolicyForbids, ReasonTenantLimit) {
		e.Settle(key)
	}
}

// SecurityLevelOf returns the Pod Security Standard to enforce in a tenant's super namespaces: the policy's, or
// PodSecurityLevel if that forbids more; "" for none.
func (e *Env) SecurityLevelOf(tenant *Tenant) string {
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
