package pods

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/storage/ephemeral"

	"github.com/superpool/superpool/internal/claimhome"
	"github.com/superpool/superpool/internal/failedchoice"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/choice"
)

// ReferToClaims lets the generic ephemeral volumes of a new super pod name the claim that the tenant's controller makes
// for them: the super cluster's would make another one, which nobody in the tenant knows. It returns whether there are
// any. The policy is asked before, which knows them by their templates, and after it.
func ReferToClaims(superPod *corev1.Pod) bool {
	found := false
	for i := range superPod.Spec.Volumes {
		volume := &superPod.Spec.Volumes[i]
		if volume.Ephemeral == nil {
			continue
		}
		name := claimhome.ClaimName(superPod, volume)
		volume.Ephemeral, found = nil, true
		volume.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}
	}
	return found
}

// hasEphemeral returns whether a pod has generic ephemeral volumes.
func hasEphemeral(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(volume corev1.Volume) bool { return volume.Ephemeral != nil })
}

// missingClaim says which claim of a tenant's pod is not in the super cluster, and why, "" if all are. failed is the
// reason of failedchoice if waiting does not bring it here: it is elsewhere, has no super cluster, or this one does not
// make it. A super pod is created only once all are here: the super scheduler would refuse it, and one of another owner
// must not be mounted.
func missingClaim(e *kind.Env, tenant *kind.Tenant, tenantPod *corev1.Pod) (missing, failed string) {
	for i := range tenantPod.Spec.Volumes {
		volume := &tenantPod.Spec.Volumes[i]
		name := claimhome.ClaimName(tenantPod, volume)
		if name == "" {
			continue
		}
		tenantClaim, exists, _ := kind.Get[*corev1.PersistentVolumeClaim](tenant.Cache, kind.Claim, tenantPod.Namespace, name)
		switch {
		case !exists:
			return fmt.Sprintf("claim %s, which does not exist", name), ""
		case volume.Ephemeral != nil && ephemeral.VolumeIsForPod(tenantPod, tenantClaim) != nil:
			return fmt.Sprintf("claim %s, which was not made for this pod", name), ""
		case kind.IsDown(e, tenant, kind.Claim, tenantClaim, name):
			continue
		}
		return awaitedClaim(e, tenant, tenantClaim)
	}
	return "", ""
}

// awaitedClaim is missingClaim for a claim that is not here.
func awaitedClaim(e *kind.Env, tenant *kind.Tenant, tenantClaim *corev1.PersistentVolumeClaim) (missing, failed string) {
	key := engine.Key{Tenant: tenant.Key, Kind: kind.Claim, Namespace: tenantClaim.Namespace, Name: tenantClaim.Name}
	home, known := claimhome.Of(tenantClaim), choice.UntakenOf(e).Of(key)
	switch {
	case home != "" && home != e.ID:
		return fmt.Sprintf("claim %s, which is in super cluster %s", key.Name, home), failedchoice.Refused
	case home == "" && tenantClaim.Spec.VolumeName == "" && !e.Assignments.Whole():
		return fmt.Sprintf("claim %s, for which no super cluster is chosen", key.Name), failedchoice.Refused
	case home != "" && known.Choice.UID == tenantClaim.UID && known.Reason != "":
		return fmt.Sprintf("claim %s, which it does not make: %s", key.Name, known.Message), known.Reason
	}
	return fmt.Sprintf("claim %s, which is not there yet", key.Name), ""
}

// claimWakesPods enqueues the tenant's pods that may wait for a super claim which was created.
func claimWakesPods(env *kind.Env, change kind.Change) []engine.Key {
	owner, ours := kind.OwnerOfNew(&change)
	if !ours {
		return nil
	}
	tenant := env.Tenant(owner.ClusterKey)
	if tenant == nil {
		return nil
	}
	var keys []engine.Key
	for _, object := range tenant.Cache.InNamespace(kind.Pod, owner.Namespace) {
		pod, ok := object.(*corev1.Pod)
		if !ok || !awaitsSuperPod(pod, env.ID) || !usesClaim(pod, change.Current.GetName()) {
			continue
		}
		keys = append(keys, engine.Key{Tenant: owner.ClusterKey, Kind: kind.Pod, Namespace: pod.Namespace, Name: pod.Name})
	}
	return keys
}

func usesClaim(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(volume corev1.Volume) bool { return claimhome.ClaimName(pod, &volume) == name })
}
