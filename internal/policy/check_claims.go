package policy

import (
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/superpool/superpool/internal/claimhome"
	"github.com/superpool/superpool/internal/slice"
)

const resourceClaims = "persistentvolumeclaims"

// claim is a PersistentVolumeClaim, or the template of one in a pod.
type claim struct {
	where string // path of spec
	meta  *metav1.ObjectMeta
	spec  *corev1.PersistentVolumeClaimSpec
	// exists is whether its labels and annotations may be the super cluster's.
	exists bool
}

// checkClaims checks all claims of one object.
func (p *Policy) checkClaims(claims []claim, found *refusals) {
	limits := &p.spec.Limits
	if int64(len(claims)) > int64(limits.PersistentVolumeClaims) {
		found.add(claims[0].where, "makes %d claims, and limits.persistentVolumeClaims is %d", len(claims), limits.PersistentVolumeClaims)
	}
	var sum int64
	for i := range claims {
		p.checkClaim(&claims[i], found)
		sum = min(sum+slice.Bytes(claims[i].spec.Resources.Requests[corev1.ResourceStorage]), slice.MaxAmount)
	}
	if most := slice.Bytes(limits.Storage); sum > most {
		d := slice.DimensionOf(corev1.ResourceStorage)
		found.add(claims[0].where+".resources.requests[storage]", "requests %s storage in total, and limits.storage is %s", d.Quantity(sum), d.Quantity(most))
	}
}

func (p *Policy) checkClaim(claim *claim, found *refusals) {
	p.checkStorageClass(claim, found)
	if claim.spec.VolumeName != "" {
		found.add(claim.where+".volumeName", "a claim may not name a volume, as %q", claim.spec.VolumeName)
	}
	if claim.spec.Selector != nil {
		found.add(claim.where+".selector", "a claim may not select volumes, as by %q", metav1.FormatLabelSelector(claim.spec.Selector))
	}
	snapshot := claimhome.SnapshotOf(claim.spec)
	const only = "a claim may have no data source but a VolumeSnapshot of its namespace, as %s %q"
	// Its name alone may be that of another kind.
	local := claimhome.SnapshotOf(&corev1.PersistentVolumeClaimSpec{DataSource: claim.spec.DataSource})
	if source := claim.spec.DataSource; source != nil && (snapshot == "" || local != snapshot) {
		found.add(claim.where+".dataSource", only, source.Kind, source.Name)
	}
	if source := claim.spec.DataSourceRef; source != nil && (snapshot == "" || source.Name != snapshot) {
		found.add(claim.where+".dataSourceRef", only, source.Kind, path.Join(ptr.Deref(source.Namespace, ""), source.Name))
	}
	if class := ptr.Deref(claim.spec.VolumeAttributesClassName, ""); class != "" {
		found.add(claim.where+".volumeAttributesClassName", "a claim may not name a VolumeAttributesClass, as %q", class)
	}
	if !claim.exists {
		p.checkKeys(resourceClaims, strings.TrimSuffix(claim.where, "spec")+"metadata", claim.meta.Labels, claim.meta.Annotations, found)
	}
}

// checkStorageClass refuses a class that the policy does not list. "" in its list stands for the super cluster's
// default class. No policy allows a claim without class: it would be bound to a volume that exists.
func (p *Policy) checkStorageClass(claim *claim, found *refusals) {
	allowed := names(p.spec.Pods.StorageClasses)
	where := claim.where + ".storageClassName"
	class := claim.spec.StorageClassName
	if legacy, exists := claim.meta.Annotations[corev1.BetaStorageClassAnnotation]; exists {
		class = &legacy
	}
	switch {
	case class == nil:
		if !p.lists(StorageClasses, "") {
			found.add(where, "a claim of the default StorageClass is not allowed: pods.storageClasses allows %s", allowed)
		}
	case *class == "":
		found.add(where, "a claim without StorageClass would be bound to a volume that exists: pods.storageClasses allows %s", allowed)
	default:
		if !p.lists(StorageClasses, *class) {
			found.add(where, "StorageClass %s is not allowed: pods.storageClasses allows %s", *class, allowed)
		}
	}
}
