package tenancy

// Reason explains, in the form of conditions and Events, why a desired state is not reached. The zero Reason means that
// it is.
type Reason struct {
	// Reason is one word in CamelCase, one of the Reason constants of the API or of the package that returns it.
	Reason string
	// Message is a sentence for a person: what is wrong, and what to do.
	Message string
}

// Reasons of Events on pods in tenant control planes that vc-scheduler and syncers both record. One pod can get both
// Events, in either order: each program records what its own informer shows, with a message of its own.
const (
	// ReasonSuperClusterNotPlaced means that a pod names a super cluster in which its namespace has no placement that
	// new pods may use. vc-scheduler records it when it removes the annotation and the label from a pod that is not
	// bound yet; the pod scheduler then chooses again. The syncer of the super cluster that the pod names records it,
	// and creates no super pod, once a live read of the NamespacePlacement has confirmed it.
	ReasonSuperClusterNotPlaced = "SuperClusterNotPlaced"
	// ReasonNodeNameNotSupported means that a tenant created a pod with spec.nodeName, which only syncers may set.
	// Nothing runs the pod until the tenant creates it without. vc-scheduler records it for every such pod, a syncer
	// for those whose label names its super cluster.
	ReasonNodeNameNotSupported = "NodeNameNotSupported"
)
