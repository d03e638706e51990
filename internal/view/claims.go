package view

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	volumehelper "k8s.io/component-helpers/storage/volume"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/claimhome"
	"github.com/superpool/superpool/internal/failedchoice"
	"github.com/superpool/superpool/internal/slice"
)

// claimsOf returns those of a Pod's volumes that are claims. Others are for the super cluster.
func claimsOf(spec *corev1.PodSpec) (claims []corev1.Volume) {
	for i := range spec.Volumes {
		if spec.Volumes[i].PersistentVolumeClaim != nil || spec.Volumes[i].Ephemeral != nil {
			claims = append(claims, spec.Volumes[i])
		}
	}
	return claims
}

// TenantClaim is an informer transform: a tenant's PersistentVolumeClaim as its pod scheduler sees it. Nodes are super
// clusters, so the node that was selected for it is its home, if that was chosen. One that has none says which super
// clusters did not take it. Its StorageClass is in spec.storageClassName, also if the tenant has written it into the
// older annotation. The object belongs to the caller and is changed.
func TenantClaim(object any) (any, error) {
	claim, ok := object.(*corev1.PersistentVolumeClaim)
	if !ok {
		return object, nil
	}
	annotations := map[string]string{}
	if value, exists := claim.Annotations[volumehelper.AnnBindCompleted]; exists {
		annotations[volumehelper.AnnBindCompleted] = value
	}
	if class, exists := claim.Annotations[corev1.BetaStorageClassAnnotation]; exists {
		claim.Spec.StorageClassName = &class
	}
	if home := claimhome.Of(claim); home != "" {
		annotations[schedulerv1alpha1.AnnotationSuperCluster], annotations[volumehelper.AnnSelectedNode] = home, home
	} else if len(failedchoice.Of(claim)) > 0 {
		annotations[schedulerv1alpha1.AnnotationFailedSuperClusters] = claim.Annotations[schedulerv1alpha1.AnnotationFailedSuperClusters]
	}
	claim.Annotations, claim.Labels, claim.ManagedFields = annotations, nil, nil
	claim.Spec.Resources = corev1.VolumeResourceRequirements{Requests: storageOf(claim.Spec.Resources.Requests)}
	claim.Status = corev1.PersistentVolumeClaimStatus{
		Phase: claim.Status.Phase, Capacity: storageOf(claim.Status.Capacity), AllocatedResources: storageOf(claim.Status.AllocatedResources),
	}
	return claim, nil
}

// storageOf returns the storage of a list, alone, between nothing and slice.MaxAmount: plugins compare what claims
// request, and tenants write quantities with any exponent, which a comparison writes out.
func storageOf(list corev1.ResourceList) corev1.ResourceList {
	size, exists := list[corev1.ResourceStorage]
	if !exists {
		return nil
	}
	return slice.Of(corev1.ResourceList{corev1.ResourceStorage: size}).List()
}

// TenantVolume is TenantClaim for a PersistentVolume. Bound claims find theirs by name, and of what it is only its node
// affinity matters, which the labels of virtual Nodes match. It has no StorageClass: VolumeBinding compares a claim
// that waits for a volume with those of its class, and the tenant may have very many. A claim without a class does not
// wait for its pod.
func TenantVolume(object any) (any, error) {
	volume, ok := object.(*corev1.PersistentVolume)
	if !ok {
		return object, nil
	}
	volume.Annotations, volume.Labels, volume.ManagedFields = nil, nil, nil
	volume.Spec.StorageClassName, volume.Spec.Capacity = "", storageOf(volume.Spec.Capacity)
	return volume, nil
}

// TenantStorageClass is TenantClaim for a StorageClass: it is allowed in the super clusters that offer it. The
// topologies below super clusters are for those. The object belongs to the caller and is changed.
func TenantStorageClass(object any) (any, error) {
	class, ok := object.(*storagev1.StorageClass)
	if !ok {
		return object, nil
	}
	offering := claimhome.OfferedBy(class)
	annotations := make(map[string]string, len(offering))
	for _, id := range offering {
		annotations[tenancyv1alpha1.AnnotationPrefixOfferedBy+id] = ""
	}
	return &storagev1.StorageClass{
		ObjectMeta:        metav1.ObjectMeta{Name: class.Name, UID: class.UID, ResourceVersion: class.ResourceVersion, Annotations: annotations},
		Provisioner:       provisioner,
		VolumeBindingMode: class.VolumeBindingMode,
		AllowedTopologies: []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{
			Key: tenancyv1alpha1.LabelSuperClusterID, Values: append(offering, nowhere),
		}}}},
	}, nil
}

// provisioner is that of every StorageClass of a view: super clusters provision, by whatever means. There is no
// CSIDriver of that name, so VolumeBinding does not ask how much is free.
const provisioner = "super-cluster.tenancy.x-k8s.io"

// nowhere is the id of no super cluster. A requirement without values would be an invalid one.
const nowhere = ""
