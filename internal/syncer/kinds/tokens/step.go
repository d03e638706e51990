package tokens

import (
	corev1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenancy"
)

// TokenStep is what a reconcile of a pod's tokens does. NextTokenStep chooses it, Tokens.perform executes it.
type TokenStep int

const (
	// TokenStepNone writes nothing: the pod needs nothing of this now, or an event will enqueue the key.
	TokenStepNone TokenStep = iota
	// TokenStepForget clears the warning about a pod that is gone and has no Secret.
	TokenStepForget
	// TokenStepIssue requests the tokens and certificates that are missing or due, and writes those that are issued and the
	// trust bundles to the Secret.
	TokenStepIssue
	// TokenStepWarnConflict warns the tenant that another owner has a Secret of that name in the super cluster.
	TokenStepWarnConflict
	// TokenStepDelete deletes the Secret (proof: live read of the tenant pod).
	TokenStepDelete
)

var tokenStepNames = [...]string{
	TokenStepNone:         "none",
	TokenStepForget:       "forget",
	TokenStepIssue:        "issue",
	TokenStepWarnConflict: "warn conflict",
	TokenStepDelete:       "delete",
}

// String returns the name of the step.
func (s TokenStep) String() string {
	if s < 0 || int(s) >= len(tokenStepNames) {
		return "unknown"
	}
	return tokenStepNames[s]
}

// NextTokenStep returns what is to be done about the tokens of the pod that owner names. The objects are those that the
// caches have under the names of that pod, nil where there is none; none is changed.
//
//	tenant pod          super pod   Secret           step
//	on a node           exists      -                issue
//	on a node           exists      exists           issue: renews what is due
//	on a node           exists      not this pod's   warn conflict
//	on a node           exists      being deleted    none: its deletion enqueues the key
//	on a node           -           any              none: the creation of the super pod enqueues the key
//	on no node          any         any              none: the tokens are to name the node, as a kubelet's do
//	finished            any         any              none
//	without any         any         any              none: neither tokens nor trust bundles nor certificates
//	gone                any         -                forget
//	gone                exists      any              none: the deletion of the super pod enqueues the key
//	gone                -           exists           delete (proof: live read of the tenant pod)
//	gone                -           not this pod's   none
//	gone                -           being deleted    none
//
// A tenant pod with another UID is gone: it has a key of its own. A super pod or Secret is this pod's if it carries
// owner.
func NextTokenStep(tenantPod, superPod *corev1.Pod, secret *corev1.Secret, owner tenancy.Owner) TokenStep {
	running := superPod != nil && kind.CarriesOwner(superPod, owner)
	if tenantPod != nil && tenantPod.UID == owner.UID {
		return stepOfTokens(tenantPod, running, secret, owner)
	}
	switch {
	case secret == nil:
		return TokenStepForget
	case running, secret.DeletionTimestamp != nil, !kind.CarriesOwner(secret, owner):
		return TokenStepNone
	default:
		return TokenStepDelete
	}
}

// stepOfTokens is NextTokenStep for a pod that the tenant has.
func stepOfTokens(tenantPod *corev1.Pod, running bool, secret *corev1.Secret, owner tenancy.Owner) TokenStep {
	switch {
	case !running, tenantPod.Spec.NodeName == "", podutil.IsPodTerminal(tenantPod), !hasAny(&tenantPod.Spec):
		return TokenStepNone
	case secret == nil:
		return TokenStepIssue
	case secret.DeletionTimestamp != nil:
		return TokenStepNone
	case !kind.CarriesOwner(secret, owner):
		return TokenStepWarnConflict
	default:
		return TokenStepIssue
	}
}

// hasAny reports whether a pod projects what is kept in its Secret.
func hasAny(spec *corev1.PodSpec) bool {
	for _, source := range projected(spec) {
		if source.ServiceAccountToken != nil || source.ClusterTrustBundle != nil || source.PodCertificate != nil {
			return true
		}
	}
	return false
}
