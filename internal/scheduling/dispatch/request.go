package dispatch

import "time"

// Concern is what a request is about, and which reconciler it is for.
type Concern string

const (
	// ConcernNamespace is about spec and status of a namespace's NamespacePlacement.
	ConcernNamespace Concern = "namespace"
	// ConcernAnnotation is about the placements annotation of a namespace.
	ConcernAnnotation Concern = "annotation"
	// ConcernEvent is about the Event that tells of a condition (name) of a namespace's NamespacePlacement, or about
	// what it has in a super cluster (tenantevents.PartEvent).
	ConcernEvent Concern = "event"
	// ConcernPod is about the super cluster annotation and label of a pod (name), or of all pods of a namespace that
	// wait for a node.
	ConcernPod Concern = "pod"
	// ConcernClaim is about the home of a claim (name), or of all that have none, in one namespace or in all.
	ConcernClaim Concern = "claim"
	// ConcernClaimRelease is about the finalizers of super clusters on a claim (name) that the tenant deletes, or on
	// all claims and VolumeSnapshots.
	ConcernClaimRelease Concern = "claimRelease"
	// ConcernClaimHome is about the homes of claims without volume that their namespace has left, in one namespace or
	// in all.
	ConcernClaimHome Concern = "claimHome"
	// ConcernRelocation is about slices of a namespace that are to move for a pod.
	ConcernRelocation Concern = "relocation"
	// ConcernMove is about an order to move slices of a namespace that no pod uses.
	ConcernMove Concern = "move"
	// ConcernNodes is about the nodes of the pod view.
	ConcernNodes Concern = "nodes"
	// ConcernOutOfService is about the taint out-of-service of the Nodes in the tenant.
	ConcernOutOfService Concern = "outOfService"
)

// Request is one item of work of a tenant's controller.
type Request struct {
	Concern   Concern
	Namespace string
	Name      string
}

// Sooner returns the smaller time to wait, where 0 is for ever.
func Sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}
