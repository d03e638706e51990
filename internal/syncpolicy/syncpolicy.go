// Package syncpolicy compiles SyncPolicies, says which fields of an object go where, and what the status of a
// SyncPolicy says.
//
// Everything here is pure: no clients, no clock, no logging. Arguments are never changed.
package syncpolicy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// Rules are a compiled SyncPolicy. They are immutable and safe for concurrent use.
type Rules struct {
	// Name and UID are those of the SyncPolicy, Generation the one that was compiled.
	Name       string
	UID        types.UID
	Generation int64
	// Kind is that of the objects.
	Kind schema.GroupVersionKind
	// Spec is that of the SyncPolicy, and must not be changed.
	Spec tenancyv1alpha1.SyncPolicySpec

	stay, up paths
}

// Refusal is why a SyncPolicy is not followed: a reason in one word, and what to do.
type Refusal struct{ Reason, Message string }

// forbidden are the groups none of whose kinds is synced, and their subdomains. Objects of the first ones give rights,
// run code, or are how a control plane works; kinds of them that tenants need are synced without a policy. Those of the
// last ones decide what a pool is.
var forbidden = [...]string{
	"apps", "autoscaling", "batch", "extensions", "policy",
	"admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "apiserver.k8s.io", "authentication.k8s.io",
	"authorization.k8s.io", "certificates.k8s.io", "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io", "node.k8s.io",
	"resource.k8s.io", "scheduling.k8s.io", "storagemigration.k8s.io",
	"tenancy.x-k8s.io", "cluster.x-k8s.io",
}

// forbiddenAlone are those of whose subdomains kinds may be synced: gateway.networking.k8s.io and
// snapshot.storage.k8s.io.
var forbiddenAlone = [...]string{"", "networking.k8s.io", "storage.k8s.io"}

func isForbidden(group string) bool {
	return slices.Contains(forbiddenAlone[:], group) || slices.ContainsFunc(forbidden[:], func(each string) bool {
		return group == each || strings.HasSuffix(group, "."+each)
	})
}

// Compile returns the Rules of a SyncPolicy, or why it is refused. builtIn are the kinds that are synced without one.
func Compile(policy *tenancyv1alpha1.SyncPolicy, builtIn map[schema.GroupKind]bool) (*Rules, *Refusal) {
	spec := policy.Spec.DeepCopy()
	rules := &Rules{
		Name: policy.Name, UID: policy.UID, Generation: policy.Generation, Spec: *spec,
		Kind: schema.GroupVersionKind{Group: spec.Group, Version: spec.Version, Kind: spec.Kind},
	}
	switch kind := rules.Kind.GroupKind(); {
	case builtIn[kind]:
		return nil, &Refusal{tenancyv1alpha1.ReasonSyncBuiltIn, fmt.Sprintf("objects of kind %s are synced without a SyncPolicy: delete this one, and see TenantPolicies for what tenants may have", kind)}
	case isForbidden(kind.Group):
		return nil, &Refusal{tenancyv1alpha1.ReasonSyncForbidden, fmt.Sprintf("no kind of group %q is synced by a policy: its objects give rights, run code, or are how a control plane works. Delete this SyncPolicy", kind.Group)}
	case spec.Direction != tenancyv1alpha1.SyncDown && spec.Direction != tenancyv1alpha1.SyncUp:
		return nil, &Refusal{tenancyv1alpha1.ReasonSyncInvalid, fmt.Sprintf("spec.direction %q: use Down or Up", spec.Direction)}
	case spec.Scope == scopeNamespaces:
		return nil, &Refusal{tenancyv1alpha1.ReasonSyncInvalid, fmt.Sprintf("spec.scope Namespaces is no longer followed: objects of super namespaces do not come up. Delete this SyncPolicy. "+
			"What came up stays in tenants as it is; with the kubeconfig of each, kubectl delete %s.%s.%s -A -l %s=true removes it", kind.Kind, spec.Version, kind.Group, tenancyv1alpha1.LabelOffered)}
	case !fitsDirection(spec.Direction, spec.Scope):
		return nil, &Refusal{tenancyv1alpha1.ReasonSyncInvalid, fmt.Sprintf("spec.scope %q is not for direction %s: use Placed or Home with Down, Placed with Up", spec.Scope, spec.Direction)}
	case spec.Version == "" || spec.Kind == "" || strings.ContainsAny(spec.Version+spec.Kind+spec.Group, "/:"):
		return nil, &Refusal{tenancyv1alpha1.ReasonSyncInvalid, fmt.Sprintf("spec names no kind: %q", rules.Kind)}
	}
	var err error
	if rules.stay, err = parsePaths(spec.Fields.Stay); err != nil {
		return nil, &Refusal{tenancyv1alpha1.ReasonSyncInvalid, fmt.Sprintf("spec.fields.stay: %v", err)}
	}
	if rules.up, err = parsePaths(spec.Fields.Up); err != nil {
		return nil, &Refusal{tenancyv1alpha1.ReasonSyncInvalid, fmt.Sprintf("spec.fields.up: %v", err)}
	}
	return rules, nil
}

// CompileAll returns the Rules of all SyncPolicies that are accepted, sorted by name, and why the others are refused,
// by name. Of several for one kind the oldest is accepted, the first by name among equals: a new policy changes nothing
// of one that works.
func CompileAll(policies []*tenancyv1alpha1.SyncPolicy, builtIn map[schema.GroupKind]bool) ([]*Rules, map[string]*Refusal) {
	policies = slices.Clone(policies)
	slices.SortFunc(policies, func(a, b *tenancyv1alpha1.SyncPolicy) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	var accepted []*Rules
	refused := map[string]*Refusal{}
	holders := map[schema.GroupKind]string{}
	for _, policy := range policies {
		rules, refusal := Compile(policy, builtIn)
		if refusal == nil {
			if holder, taken := holders[rules.Kind.GroupKind()]; taken {
				refusal = &Refusal{tenancyv1alpha1.ReasonSyncTaken, fmt.Sprintf("SyncPolicy %s, which is older, is for kind %s already: change that one, and delete this one", holder, rules.Kind.GroupKind())}
			}
		}
		if refusal != nil {
			refused[policy.Name] = refusal
			continue
		}
		holders[rules.Kind.GroupKind()] = rules.Name
		accepted = append(accepted, rules)
	}
	slices.SortFunc(accepted, func(a, b *Rules) int { return cmp.Compare(a.Name, b.Name) })
	return accepted, refused
}

// scopeNamespaces is a scope of earlier versions, which a SyncPolicy in the meta cluster may still have: objects of
// super namespaces came up by it to the namespaces of tenants.
const scopeNamespaces tenancyv1alpha1.SyncScope = "Namespaces"

// fitsDirection returns whether objects can go in a direction with a scope, "" for Placed.
func fitsDirection(direction tenancyv1alpha1.SyncDirection, scope tenancyv1alpha1.SyncScope) bool {
	switch scope {
	case tenancyv1alpha1.SyncHome:
		return direction == tenancyv1alpha1.SyncDown
	case tenancyv1alpha1.SyncPlaced, "":
		return true
	}
	return false
}

// Namespaced returns whether the policy is for a kind with namespaces.
func (r *Rules) Namespaced() bool { return r.Spec.Direction == tenancyv1alpha1.SyncDown }

// TellsEvents returns whether Events about copies come up.
func (r *Rules) TellsEvents() bool {
	return r.Spec.Direction == tenancyv1alpha1.SyncDown && r.Spec.Events != tenancyv1alpha1.EventsStay
}

// For returns whether the policy is for tenants of a TenantPolicy.
func (r *Rules) For(tenantPolicy string) bool {
	return len(r.Spec.TenantPolicies) == 0 || slices.Contains(r.Spec.TenantPolicies, tenantPolicy)
}

// Verbs are what a syncer does in a super cluster with objects of the kind.
func (r *Rules) Verbs() []string {
	if r.Spec.Direction == tenancyv1alpha1.SyncUp {
		return []string{"get", "list", "watch"}
	}
	return []string{"get", "list", "watch", "create", "update", "delete"}
}
