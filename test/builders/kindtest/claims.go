package kindtest

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/kinds/volumes"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders"
)

// ClaimChange changes a claim that is made.
type ClaimChange = func(claim *corev1.PersistentVolumeClaim)

// TenantClaim returns the claim web/data of the tenant.
func TenantClaim(uid types.UID, changes ...ClaimChange) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "data", UID: uid},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: ptr.To("fast"),
			Resources: corev1.VolumeResourceRequirements{Requests: builders.Resources("storage", "1Gi")},
		},
	}
	for _, change := range changes {
		if change != nil {
			change(claim)
		}
	}
	return claim
}

// SuperClaim returns the claim of the super cluster for the tenant's claim web/data with a UID.
func SuperClaim(uid types.UID, changes ...ClaimChange) *corev1.PersistentVolumeClaim {
	claim := TenantClaim("super-uid", changes...)
	claim.Namespace = ClusterKey + "-web"
	tenancy.SetOwner(claim, OwnerOf(uid))
	return claim
}

// Home writes the super cluster that was chosen for a claim.
func Home(superCluster string) ClaimChange {
	return func(claim *corev1.PersistentVolumeClaim) {
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, schedulerv1alpha1.AnnotationSuperCluster, superCluster)
	}
}

// BoundTo binds a claim to a volume of 2Gi.
func BoundTo(volume string) ClaimChange {
	return func(claim *corev1.PersistentVolumeClaim) {
		claim.Spec.VolumeName = volume
		claim.Status = corev1.PersistentVolumeClaimStatus{
			Phase: corev1.ClaimBound, AccessModes: claim.Spec.AccessModes, Capacity: builders.Resources("storage", "2Gi"),
		}
	}
}

// Witnessed gives a claim the finalizer of super cluster r1.
func Witnessed(claim *corev1.PersistentVolumeClaim) {
	claim.Finalizers = append(claim.Finalizers, "claim.tenancy.x-k8s.io/r1")
}

// VolumeFor returns the tenant's volume r1.<name> for the claim web/data with a UID.
func VolumeFor(uid types.UID, name string) *corev1.PersistentVolume {
	volume := &corev1.PersistentVolume{}
	volumes.TenantVolume(volume, "r1", TenantClaim(uid), SuperClaim(uid, BoundTo(name)), corev1.PersistentVolumeReclaimDelete)
	volume.UID = types.UID(name + "-uid")
	return volume
}

// Snapshot returns a VolumeSnapshot; nil: it has no status.
func Snapshot(spec, status map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "spec": spec}}
	if status != nil {
		object.Object["status"] = status
	}
	return object
}
