package volumes

import (
	"maps"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	volumehelper "k8s.io/component-helpers/storage/volume"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenancy"
)

const (
	// provisionedBy says in tenants who makes and removes their volumes: no plugin of their controllers.
	provisionedBy = "tenancy.x-k8s.io/syncer"
	// volumeRoot begins the paths of tenants' volumes, which are for people: nothing in a tenant mounts them.
	volumeRoot = "/tenancy.x-k8s.io/super-clusters"
)

// SuperClaim sets the spec of superClaim to that of tenantClaim. Of an existing one, which has a UID, it sets what the
// API lets be changed: the storage that is requested. The super cluster alone chooses the volume. What else names
// objects of the super cluster stays as it is, for the tenant's policy to refuse (policy.Check).
func SuperClaim(tenantClaim, superClaim *corev1.PersistentVolumeClaim) {
	desired := tenantClaim.Spec.DeepCopy()
	if superClaim.UID == "" {
		superClaim.Spec = *desired
		superClaim.Spec.VolumeName = ""
		return
	}
	size, exists := desired.Resources.Requests[corev1.ResourceStorage]
	if !exists {
		return
	}
	superClaim.Spec.Resources.Requests = maps.Clone(superClaim.Spec.Resources.Requests)
	if superClaim.Spec.Resources.Requests == nil {
		superClaim.Spec.Resources.Requests = corev1.ResourceList{}
	}
	superClaim.Spec.Resources.Requests[corev1.ResourceStorage] = size
}

// TenantVolume sets volume to the tenant's PersistentVolume for a claim whose super claim is bound in a super cluster.
// It is of type local because such a volume has a node affinity and nothing attaches it: pods of the claim follow to
// the super cluster. reclaim is what the super cluster does with its volume once the claim is gone. Of an existing one,
// which has a UID, it sets what the API lets be changed.
func TenantVolume(volume *corev1.PersistentVolume, superCluster string, tenantClaim, superClaim *corev1.PersistentVolumeClaim, reclaim corev1.PersistentVolumeReclaimPolicy) {
	if volume.UID == "" {
		volume.Name = tenancy.VolumeName(superCluster, superClaim.Spec.VolumeName)
		volume.Spec = corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: reclaim, VolumeMode: superClaim.Spec.VolumeMode,
			StorageClassName: volumehelper.GetPersistentVolumeClaimClass(tenantClaim),
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{
				Path: path.Join(volumeRoot, superCluster, superClaim.Spec.VolumeName),
			}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: tenancyv1alpha1.LabelSuperClusterID, Operator: corev1.NodeSelectorOpIn, Values: []string{superCluster},
				}},
			}}}},
		}
	}
	volume.Labels, volume.Annotations = maps.Clone(volume.Labels), maps.Clone(volume.Annotations)
	kind.SetEntry(&volume.Labels, tenancyv1alpha1.LabelTenantVolume, "true")
	kind.SetEntry(&volume.Labels, tenancyv1alpha1.LabelSuperClusterID, superCluster)
	kind.SetEntry(&volume.Annotations, volumehelper.AnnDynamicallyProvisioned, provisionedBy)
	volume.Spec.AccessModes = slices.Clone(superClaim.Status.AccessModes)
	volume.Spec.Capacity = storageOf(superClaim.Status.Capacity)
	claim := corev1.ObjectReference{}
	if volume.Spec.ClaimRef != nil {
		claim = *volume.Spec.ClaimRef
	}
	claim.Kind, claim.APIVersion = "PersistentVolumeClaim", "v1"
	claim.Namespace, claim.Name, claim.UID = tenantClaim.Namespace, tenantClaim.Name, tenantClaim.UID
	volume.Spec.ClaimRef = &claim
}

// storageOf returns the storage of a list, alone.
func storageOf(list corev1.ResourceList) corev1.ResourceList {
	size, exists := list[corev1.ResourceStorage]
	if !exists {
		return nil
	}
	return corev1.ResourceList{corev1.ResourceStorage: size}
}

// claimConditions are the conditions that the super cluster says of a claim. Others are the tenant's.
var claimConditions = [...]corev1.PersistentVolumeClaimConditionType{
	corev1.PersistentVolumeClaimResizing, corev1.PersistentVolumeClaimFileSystemResizePending,
	corev1.PersistentVolumeClaimControllerResizeError, corev1.PersistentVolumeClaimNodeResizeError,
}

// TenantClaimStatus sets in the status of a bound tenant claim what the super cluster says of its size. The tenant's
// volume controller sets the rest.
func TenantClaimStatus(superClaim, tenantClaim *corev1.PersistentVolumeClaim) {
	status, of := &tenantClaim.Status, superClaim.Status.DeepCopy()
	if capacity := storageOf(of.Capacity); capacity != nil {
		status.Capacity = capacity
	}
	status.AllocatedResources = storageOf(of.AllocatedResources)
	status.AllocatedResourceStatuses = nil
	if state, exists := of.AllocatedResourceStatuses[corev1.ResourceStorage]; exists {
		status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: state}
	}
	fromSuper := func(condition corev1.PersistentVolumeClaimCondition) bool {
		return slices.Contains(claimConditions[:], condition.Type)
	}
	conditions := slices.DeleteFunc(slices.Clone(status.Conditions), fromSuper)
	for i := range of.Conditions {
		if fromSuper(of.Conditions[i]) {
			of.Conditions[i].Message = tenancy.Cut(of.Conditions[i].Message, tenancy.MaxConditionMessage)
			conditions = append(conditions, of.Conditions[i])
		}
	}
	status.Conditions = conditions
}

// tenantVolumeName returns the name of the tenant's volume for a super claim, "" for one that has no volume.
func tenantVolumeName(superCluster string, superClaim *corev1.PersistentVolumeClaim) string {
	if superClaim.Spec.VolumeName == "" {
		return ""
	}
	return tenancy.VolumeName(superCluster, superClaim.Spec.VolumeName)
}

// claimedBy returns whether a volume is for the claim with that UID.
func claimedBy(volume *corev1.PersistentVolume, uid types.UID) bool {
	return volume.Spec.ClaimRef != nil && volume.Spec.ClaimRef.UID == uid
}
