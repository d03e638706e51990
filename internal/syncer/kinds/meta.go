package kinds

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/superpool/superpool/internal/tenancy"
)

// Annotations of super objects that list, comma-separated, the keys which were copied from the tenant's object. They tell what the
// tenant removed from what others added in the super cluster.
const (
	annotationCopiedLabels      = "tenancy.x-k8s.io/copied-labels"
	annotationCopiedAnnotations = "tenancy.x-k8s.io/copied-annotations"
)

// opaqueDomains are those whose keys, and those of their subdomains, are never copied down: they speak to the control plane that
// they lie in.
var opaqueDomains = [...]string{"kubernetes.io", "k8s.io", "x-k8s.io", "scheduler.virtualcluster.io"}

// workloadDomains are exceptions: their keys describe applications and the members of workloads, and selectors of Services and affinities
// look at them.
var workloadDomains = [...]string{"app.kubernetes.io", "apps.kubernetes.io", "batch.kubernetes.io", "statefulset.kubernetes.io"}

// isOpaque says whether a label or annotation key is not copied down. prefixes are the tenant's own.
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

// copyMeta copies labels and annotations of a tenant object onto its super object, removes those that were copied earlier and are
// gone, and writes the marks. Everything else that the super object carries stays.
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

// merge returns what is there, without what was copied before and with what is to be copied, and the keys that are copied.
func merge(there, tenants map[string]string, copiedBefore string, opaque []string) (merged map[string]string, copied string) {
	merged = maps.Clone(there)
	if merged == nil {
		merged = map[string]string{}
	}
	for key := range strings.SplitSeq(copiedBefore, ",") {
		delete(merged, key)
	}
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(tenants)) {
		if !isOpaque(key, opaque) {
			merged[key] = tenants[key]
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
