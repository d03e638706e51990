package kind

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

const (
	// AnnotationLabelsUp lists, on a tenant's object and separated by commas, the keys of labels that have come up from
	// the super object. A listed key that the super object no longer has is removed; keys that are not listed are the
	// tenant's, which can write the list: it concerns labels of that object alone.
	// Written by the syncer; read by the syncer.
	AnnotationLabelsUp = "tenancy.x-k8s.io/labels-from-super"
	// AnnotationAnnotationsUp lists those of annotations. Written by the syncer; read by the syncer.
	AnnotationAnnotationsUp = "tenancy.x-k8s.io/annotations-from-super"
)

// ReasonMetadataRefused: the tenant's API server refused labels or annotations that come up from the super object by
// spec.transparentMetaPrefixes of the VirtualCluster.
const ReasonMetadataRefused = "MetadataRefused"

const (
	// maxUpKeys bounds the labels, and the annotations, that come up to one object, and maxUpBytes their keys and
	// values together. Those beyond, by key, stay.
	maxUpKeys, maxUpBytes = 32, 16 << 10
	// maxUpList bounds what is read of a list, in bytes: maxUpKeys keys of 317 bytes.
	maxUpList = 16 << 10
)

// neverUp are the domains whose keys, and those of their subdomains, never come up, whatever the VirtualCluster says:
// programs of the tenant act on them.
var neverUp = [...]string{"tenancy.x-k8s.io", "scheduler.virtualcluster.io", "kubectl.kubernetes.io"}

// staysDown returns whether a key never comes up. Of kubernetes.io itself, subdomains come up: nodes and networks
// describe pods by them.
func staysDown(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	return domain == "kubernetes.io" || slices.ContainsFunc(neverUp[:], func(never string) bool {
		return domain == never || strings.HasSuffix(domain, "."+never)
	})
}

// cameUp returns whether labels or annotations of a tenant's object have come up, by the list of that name.
func (r *Rules) cameUp(tenantObject metav1.Object, list string) func(key string) bool {
	if r == nil || len(r.Transparent) == 0 {
		return func(string) bool { return false }
	}
	up := sets.New(keysIn(tenantObject.GetAnnotations()[list])...)
	return func(key string) bool { return up.Has(key) && hasPrefix(key, r.Transparent) && !staysDown(key) }
}

// keysIn returns the keys in a list.
func keysIn(text string) []string {
	if text == "" || len(text) > maxUpList {
		return nil
	}
	return strings.Split(text, ",")
}

// MetaUp sets on tenantObject the labels and annotations of superObject whose keys begin with one of prefixes, and
// removes those that had come up and are gone. What went down from the tenant does not come up. The maps of
// tenantObject are replaced, not changed.
func MetaUp(superObject, tenantObject metav1.Object, prefixes []string) {
	down := superObject.GetAnnotations()
	annotations := tenantObject.GetAnnotations()
	labels, labelsUp := mergeUp(tenantObject.GetLabels(), superObject.GetLabels(), annotations[AnnotationLabelsUp], down[annotationCopiedLabels], prefixes)
	annotations, annotationsUp := mergeUp(annotations, superObject.GetAnnotations(), annotations[AnnotationAnnotationsUp], down[annotationCopiedAnnotations], prefixes)
	SetOrDelete(annotations, AnnotationLabelsUp, labelsUp)
	SetOrDelete(annotations, AnnotationAnnotationsUp, annotationsUp)
	if len(labels) > 0 || tenantObject.GetLabels() != nil {
		tenantObject.SetLabels(labels)
	}
	if len(annotations) > 0 || tenantObject.GetAnnotations() != nil {
		tenantObject.SetAnnotations(annotations)
	}
}

// mergeUp returns current, without the keys that were up before and with those of found that come up now, and the list
// of these. down is the list of keys that went down.
func mergeUp(current, found map[string]string, before, down string, prefixes []string) (merged map[string]string, up string) {
	before = strings.Join(slices.DeleteFunc(keysIn(before), staysDown), ",")
	wentDown := sets.New(strings.Split(down, ",")...)
	keys, bytes := 0, 0
	return merge(current, found, before, func(key string) bool {
		if !hasPrefix(key, prefixes) || staysDown(key) || wentDown.Has(key) {
			return false
		}
		size := len(key) + len(found[key])
		if keys == maxUpKeys || bytes+size > maxUpBytes {
			return false
		}
		keys++
		bytes += size
		return true
	})
}
