package kinds

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/superpool/superpool/internal/tenancy"
)

// Annotations of super objects that list, comma-separated, the keys which were copied from the tenant's object. A
// listed key that the tenant's object no longer has is removed; keys that are not listed belong to others and stay.
const (
	annotationCopiedLabels      = "tenancy.x-k8s.io/copied-labels"
	annotationCopiedAnnotations = "tenancy.x-k8s.io/copied-annotations"
)

// opaqueDomains are the domains whose keys, and those of their subdomains, are never copied down: components of a
// control plane act on them.
var opaqueDomains = [...]string{"kubernetes.io", "k8s.io", "x-k8s.io", "scheduler.virtualcluster.io"}

// workloadDomains are exceptions: their keys describe applications and members of workloads, and selectors of Services
// and affinities match them.
var workloadDomains = [...]string{"app.kubernetes.io", "apps.kubernetes.io", "batch.kubernetes.io", "statefulset.kubernetes.io"}

// isOpaque returns whether a label or annotation key is not copied down. prefixes are spec.opaqueMetaPrefixes of the
// tenant.
func isOpaque(key string, prefixes []string) bool {
	if domain, _, found := strings.Cut(key, "/"); found && !slices.Contains(workloadDomains[:], domain) {
		for _, opaque := range opaqueDomains {
			if domain == opaque || strings.HasSuffix(domain, "."+opaque) {
				return true
			}
		}
	}
	return slices.ContainsFunc(prefixes, func(prefix string) bool {
		return prefix != "" && strings.HasPrefix(key, prefix)
	})
}

// copyMeta copies labels and annotations of a tenant object onto its super object, removes those that were copied
// earlier and are gone in the tenant, and sets the owner. Other labels and annotations of the super object stay.
func copyMeta(tenantObject, superObject metav1.Object, owner tenancy.Owner, opaque []string) {
	annotations := superObject.GetAnnotations()
	labels, copiedLabels := merge(superObject.GetLabels(), tenantObject.GetLabels(), annotations[annotationCopiedLabels], opaque)
	annotations, copiedAnnotations := merge(annotations, tenantObject.GetAnnotations(), annotations[annotationCopiedAnnotations], opaque)
	setOrDelete(annotations, annotationCopiedLabels, copiedLabels)
	setOrDelete(annotations, annotationCopiedAnnotations, copiedAnnotations)
	superObject.SetLabels(labels)
	superObject.SetAnnotations(annotations)
	tenancy.SetOwner(superObject, owner)
}

// merge returns current, without the keys in copiedBefore and with those of desired that are not opaque, and the keys
// that it copied.
func merge(current, desired map[string]string, copiedBefore string, opaque []string) (merged map[string]string, copied string) {
	merged = maps.Clone(current)
	if merged == nil {
		merged = map[string]string{}
	}
	for key := range strings.SplitSeq(copiedBefore, ",") {
		delete(merged, key)
	}
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(desired)) {
		if !isOpaque(key, opaque) {
			merged[key] = desired[key]
			keys = append(keys, key)
		}
	}
	return merged, strings.Join(keys, ",")
}

func setOrDelete(values map[string]string, key, value string) {
	if value == "" {
		delete(values, key)
		return
	}
	values[key] = value
}
