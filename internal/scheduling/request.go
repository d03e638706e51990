package scheduling

import (
	"time"
)

// concern is what a request is about, and which reconciler it is for.
type concern string

const (
	// concernNamespace: spec and status of a namespace's NamespacePlacement.
	concernNamespace concern = "namespace"
	// concernAnnotation: the placements annotation of a namespace.
	concernAnnotation concern = "annotation"
	// concernEvent: the Event about a condition (name) of a namespace's NamespacePlacement, or about what it has in a
	// super cluster (partEvent).
	concernEvent concern = "event"
	// concernPod: the super cluster annotation and label of a pod (name), or of all pods of a namespace that wait for a
	// node.
	concernPod concern = "pod"
	// concernClaim: the home of a claim (name), or of all that have none, in one namespace or in all.
	concernClaim concern = "claim"
	// concernClaimRelease: the finalizers of super clusters on a claim (name) that the tenant deletes, or on all claims
	// and VolumeSnapshots.
	concernClaimRelease concern = "claimRelease"
	// concernClaimHome: the homes of claims without volume that their namespace has left, in one namespace or in all.
	concernClaimHome concern = "claimHome"
	// concernRelocation: slices of a namespace that are to move for a pod.
	concernRelocation concern = "relocation"
	// concernMove: an order to move slices of a namespace that no pod uses.
	concernMove concern = "move"
	// concernNodes: the nodes of the pod view.
	concernNodes concern = "nodes"
	// concernOutOfService: the taint out-of-service of the Nodes in the tenant.
	concernOutOfService concern = "outOfService"
)

// request is one item of work of a tenant's controller.
type request struct {
	concern   concern
	namespace string
	name      string
}

// sooner returns the smaller time to wait, where 0 is for ever.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}
