package policy

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/superpool/superpool/internal/claimhome"
)

// checkSnapshot checks a VolumeSnapshot that is to be created, and nothing of other kinds: of those, SyncPolicies say
// what may go down. "" in the list of classes stands for the super cluster's default class.
func (p *Policy) checkSnapshot(snapshot *unstructured.Unstructured, found *refusals) {
	if kind := snapshot.GroupVersionKind(); snapshot.GetUID() != "" || kind.Group != claimhome.SnapshotGroup || kind.Kind != "VolumeSnapshot" {
		return
	}
	p.checkKeys("volumesnapshots", "metadata", snapshot.GetLabels(), snapshot.GetAnnotations(), found)
	if content, exists, _ := unstructured.NestedFieldNoCopy(snapshot.Object, "spec", "source", "volumeSnapshotContentName"); exists {
		found.add("spec.source.volumeSnapshotContentName", "a snapshot may not name a VolumeSnapshotContent, as %q: it is taken of a claim", content)
	}
	class, _, _ := unstructured.NestedString(snapshot.Object, "spec", "volumeSnapshotClassName")
	if allowed := p.spec.Offers.VolumeSnapshotClasses; !p.lists(VolumeSnapshotClasses, class) {
		named := "VolumeSnapshotClass " + class
		if class == "" {
			named = "a snapshot of the default VolumeSnapshotClass"
		}
		found.add("spec.volumeSnapshotClassName", "%s is not allowed: offers.volumeSnapshotClasses allows %s", named, names(allowed))
	}
}
