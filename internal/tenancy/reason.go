package tenancy

import "strings"

const (
	// MaxConditionMessage is how long the API lets the message of a condition be, in bytes at least.
	MaxConditionMessage = 32768
	// MaxEventNote is how long the API lets the note of an Event be, in bytes.
	MaxEventNote = 1024
)

// Cut returns text with at most limit bytes, which are valid UTF-8 if text is. What tenants and their API servers say
// may be quoted in a text, and be as long as they like.
func Cut(text string, limit int) string {
	const ellipsis = "..."
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-len(ellipsis)], "") + ellipsis
}

// Reason explains, in the form of conditions and Events, why a desired state is not reached. The zero Reason means that
// it is.
type Reason struct {
	// Reason is one word in CamelCase, one of the Reason constants of the API or of the package that returns it.
	Reason string
	// Message is a sentence for a person: what is wrong, and what to do.
	Message string
}

// Reasons of Events on objects in tenant control planes that vc-scheduler and syncers both record. One pod can get both
// Events, in either order: each program records what its own informer shows, with a message of its own.
const (
	// ReasonSuperClusterNotPlaced means that a pod, or a claim without volume, names a super cluster in which its
	// namespace has no placement that new pods may use. vc-scheduler records it when it removes the annotation and the
	// label from a pod that is not bound yet, and the annotation from a claim of which nothing is there; the pod
	// scheduler then chooses again. The syncer of the super cluster that the pod or the claim names records it once a
	// live read of the NamespacePlacement has confirmed it: it creates no super pod, and removes the choice of a pod or
	// a claim whose namespace leaves.
	ReasonSuperClusterNotPlaced = "SuperClusterNotPlaced"
	// ReasonNodeNameNotSupported means that a tenant created a pod with spec.nodeName, which only syncers may set.
	// Nothing runs the pod until the tenant creates it without. vc-scheduler records it for every such pod, a syncer
	// for those whose label names its super cluster.
	ReasonNodeNameNotSupported = "NodeNameNotSupported"
	// ReasonPolicyForbids means that the TenantPolicy forbids a field. The syncer does not create the super object, or
	// leaves it as it is; of an isolated tenant's NetworkPolicy with too many rules or peers it writes one without
	// rules. The pod scheduler chooses no super cluster for a pod that names labels of nodes which the policy does not
	// list, or a profile.
	ReasonPolicyForbids = "PolicyForbids"
)
