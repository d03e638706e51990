package tenancy

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// SetOwner writes owner, as ownership labels and annotations, onto an object that is about to be written to a super
// cluster.
func SetOwner(object metav1.Object, owner Owner) {
	labels := object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[tenancyv1alpha1.LabelCluster] = owner.ClusterKey
	object.SetLabels(labels)

	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[tenancyv1alpha1.AnnotationVirtualClusterNamespace] = owner.VirtualCluster.Namespace
	annotations[tenancyv1alpha1.AnnotationVirtualClusterName] = owner.VirtualCluster.Name
	annotations[tenancyv1alpha1.AnnotationVirtualClusterUID] = string(owner.VirtualClusterUID)
	annotations[tenancyv1alpha1.AnnotationNamespace] = owner.Namespace
	annotations[tenancyv1alpha1.AnnotationUID] = string(owner.UID)
	object.SetAnnotations(annotations)
}

// GetOwner returns the owner of an object in a super cluster. It returns false where the object is not ours, and must
// be neither written nor deleted: a mark is missing, or the object is not where a syncer puts one for that owner.
// Controllers copy labels and annotations, and people do, so marks count in the super namespace of their owner alone,
// and on that namespace itself.
func GetOwner(object metav1.Object) (Owner, bool) {
	owner, complete := marksOf(object)
	return owner, complete && isAt(object, owner)
}

// HasLostLabel returns whether all but the label says that an object in a super cluster has this owner: people clean up
// labels, and informers do not show the object any more.
func HasLostLabel(object metav1.Object, owner Owner) bool {
	found, _ := marksOf(object)
	lost := found.ClusterKey != owner.ClusterKey
	found.ClusterKey = owner.ClusterKey
	return lost && found == owner && isAt(object, owner)
}

// isAt returns whether an object is where a syncer puts one for this owner.
func isAt(object metav1.Object, owner Owner) bool {
	at := object.GetNamespace()
	if at == "" {
		at = object.GetName() // nothing else without a namespace has marks
	}
	return at == SuperNamespace(owner.ClusterKey, owner.Namespace)
}

// HasMarks returns whether an object in a super cluster has all marks of some owner, which says nothing of whose it is.
func HasMarks(object metav1.Object) bool {
	_, complete := marksOf(object)
	return complete
}

// marksOf reads the ownership labels and annotations of an object. It returns false when any is missing.
func marksOf(object metav1.Object) (Owner, bool) {
	annotations := object.GetAnnotations()
	owner := Owner{
		ClusterKey: object.GetLabels()[tenancyv1alpha1.LabelCluster],
		VirtualCluster: types.NamespacedName{
			Namespace: annotations[tenancyv1alpha1.AnnotationVirtualClusterNamespace],
			Name:      annotations[tenancyv1alpha1.AnnotationVirtualClusterName],
		},
		VirtualClusterUID: types.UID(annotations[tenancyv1alpha1.AnnotationVirtualClusterUID]),
		Namespace:         annotations[tenancyv1alpha1.AnnotationNamespace],
		UID:               types.UID(annotations[tenancyv1alpha1.AnnotationUID]),
	}
	complete := owner.ClusterKey != "" && owner.VirtualCluster.Namespace != "" && owner.VirtualCluster.Name != "" &&
		owner.VirtualClusterUID != "" && owner.Namespace != "" && owner.UID != ""
	return owner, complete
}
