// Package claimhome says in which super cluster the volume of a tenant's claim is, or is to be, and which super
// clusters offer a StorageClass. A tenant can write all that is read here: it decides about nothing but where its own
// claim is made, within what its namespace holds there.
//
// Everything here is pure: no clients, no clock, no logging.
package claimhome

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/component-helpers/storage/ephemeral"
	"k8s.io/utils/ptr"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
)

// SnapshotGroup is the API group of VolumeSnapshots.
const SnapshotGroup = "snapshot.storage.k8s.io"

const snapshotKind = "VolumeSnapshot"

// ClaimName returns the name of the claim of a pod's volume, "" for a volume without one. That of a generic ephemeral
// volume is made by the tenant's own controller.
func ClaimName(pod *corev1.Pod, volume *corev1.Volume) string {
	switch {
	case volume.PersistentVolumeClaim != nil:
		return volume.PersistentVolumeClaim.ClaimName
	case volume.Ephemeral != nil:
		return ephemeral.VolumeClaimName(pod, volume)
	}
	return ""
}

// Of returns the home of a tenant's claim: the super cluster of its volume, which a bound claim cannot change, or if it
// has none the one that was chosen for it. "" means that none was, that the volume is not of a super cluster, or that
// what the tenant wrote is no id of one.
func Of(claim *corev1.PersistentVolumeClaim) string {
	home := claim.Annotations[schedulerv1alpha1.AnnotationSuperCluster]
	isHome := true
	if claim.Spec.VolumeName != "" {
		home, isHome = tenancy.NodeSuperCluster(claim.Spec.VolumeName) // the form of volumes' names is that of nodes'
	}
	if !isHome || tenancy.ValidateSuperClusterID(home) != nil {
		return ""
	}
	return home
}

// Snapshot returns the name of the VolumeSnapshot, in the claim's namespace, that a claim is to be restored from, ""
// for none. The claim's home is that of the snapshot, which its syncer writes.
func Snapshot(claim *corev1.PersistentVolumeClaim) string {
	return SnapshotOf(&claim.Spec)
}

// SnapshotOf is Snapshot for the spec of a claim, or of the template of one.
func SnapshotOf(spec *corev1.PersistentVolumeClaimSpec) string {
	switch ref, local := spec.DataSourceRef, spec.DataSource; {
	case ref != nil && ref.Kind == snapshotKind && ptr.Deref(ref.APIGroup, "") == SnapshotGroup && ptr.Deref(ref.Namespace, "") == "":
		return ref.Name
	case ref == nil && local != nil && local.Kind == snapshotKind && ptr.Deref(local.APIGroup, "") == SnapshotGroup:
		return local.Name
	}
	return ""
}

// OfferedBy returns the ids of the super clusters that offer a tenant's StorageClass, sorted.
func OfferedBy(class *storagev1.StorageClass) []string {
	var offering []string
	for _, key := range slices.Sorted(maps.Keys(class.Annotations)) {
		id, found := strings.CutPrefix(key, tenancyv1alpha1.AnnotationPrefixOfferedBy)
		if found && tenancy.ValidateSuperClusterID(id) == nil {
			offering = append(offering, id)
		}
	}
	return offering
}
