package kind

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/tenancy"
)

const (
	// annotationCopiedLabels lists, on a super object and separated by commas, the keys of labels which were copied
	// from the tenant's object. A listed key that the tenant's object no longer has is removed; keys that are not
	// listed belong to others and stay. Written by the syncer; read by the syncer.
	annotationCopiedLabels = "tenancy.x-k8s.io/copied-labels"
	// annotationCopiedAnnotations lists those of annotations. Written by the syncer; read by the syncer.
	annotationCopiedAnnotations = "tenancy.x-k8s.io/copied-annotations"
)

// opaqueDomains are the domains whose keys, and those of their subdomains, never go down as they are, whatever a policy
// allows: components of a control plane act on them.
var opaqueDomains = [...]string{"kubernetes.io", "k8s.io", "x-k8s.io", "scheduler.virtualcluster.io"}

// workloadDomains are exceptions: their keys describe applications and members of workloads, and selectors of Services
// and affinities match them.
var workloadDomains = [...]string{"app.kubernetes.io", "apps.kubernetes.io", "batch.kubernetes.io", "statefulset.kubernetes.io"}

// IgnoresSync returns whether a tenant wants an object not to be in super clusters.
func IgnoresSync(tenantObject metav1.Object) bool {
	return tenantObject.GetLabels()[tenancyv1alpha1.LabelIgnoreSync] == "true"
}

// Rules say which labels and annotations of a tenant's objects go down. nil stands for the shipped policy alone.
type Rules struct {
	// Policy of the tenant; nil stands for the shipped one.
	Policy *policy.Policy
	// Opaque are spec.opaqueMetaPrefixes of the tenant: no key that begins with one goes down.
	Opaque []string
	// Transparent are spec.transparentMetaPrefixes of the tenant: keys that begin with one come up (MetaUp).
	Transparent []string
}

// Rules returns the Rules in force for a tenant.
func (t *Tenant) Rules() *Rules {
	return &Rules{Policy: t.Policy.Get(), Opaque: t.OpaqueMetaPrefixes, Transparent: t.TransparentMetaPrefixes}
}

// InForce returns Policy, or the shipped one.
func (r *Rules) InForce() *policy.Policy {
	if r == nil || r.Policy == nil {
		return policy.Default()
	}
	return r.Policy
}

// label returns whether a label of an object of resource goes down as it is, and annotation whether an annotation does.
func (r *Rules) label(resource, key string) bool {
	if policy.IsProxyLabel(resource, key) {
		return r == nil || !hasPrefix(key, r.Opaque)
	}
	return !r.isOpaque(key) && r.InForce().AllowsLabel(resource, key)
}

// Annotation returns whether an annotation of an object of resource goes down as it is.
func (r *Rules) Annotation(resource, key string) bool {
	if r.InForce().AllowsTrafficAnnotation(resource, key) {
		return r == nil || !hasPrefix(key, r.Opaque) // the operator means it, whatever its domain
	}
	return !r.isOpaque(key) && r.InForce().AllowsAnnotation(resource, key)
}

func (r *Rules) isOpaque(key string) bool {
	if r == nil {
		return isOpaque(key, nil)
	}
	return isOpaque(key, r.Opaque)
}

// isOpaque returns whether a label or annotation key never goes down, whatever a policy allows. prefixes are
// spec.opaqueMetaPrefixes of the tenant.
func isOpaque(key string, prefixes []string) bool {
	if domain, _, found := strings.Cut(key, "/"); found && !slices.Contains(workloadDomains[:], domain) {
		for _, opaque := range opaqueDomains {
			if domain == opaque || strings.HasSuffix(domain, "."+opaque) {
				return true
			}
		}
	}
	return hasPrefix(key, prefixes)
}

// hasPrefix returns whether a key begins with one of prefixes; "" is none.
func hasPrefix(key string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool {
		return prefix != "" && strings.HasPrefix(key, prefix)
	})
}

// CopyMeta copies the labels and annotations of a tenant object of resource that rules allow onto its super object,
// removes those that were copied earlier and no longer are, and sets the owner. Other labels and annotations of the
// super object stay, and those that have come up from it do not go down.
func CopyMeta(tenantObject, superObject metav1.Object, resource string, owner tenancy.Owner, rules *Rules) {
	annotations := superObject.GetAnnotations()
	labelUp, annotationUp := rules.cameUp(tenantObject, AnnotationLabelsUp), rules.cameUp(tenantObject, AnnotationAnnotationsUp)
	labels, copiedLabels := merge(superObject.GetLabels(), tenantObject.GetLabels(), annotations[annotationCopiedLabels], func(key string) bool {
		return rules.label(resource, key) && !labelUp(key)
	})
	annotations, copiedAnnotations := merge(annotations, tenantObject.GetAnnotations(), annotations[annotationCopiedAnnotations], func(key string) bool {
		return rules.Annotation(resource, key) && !annotationUp(key)
	})
	SetOrDelete(annotations, annotationCopiedLabels, copiedLabels)
	SetOrDelete(annotations, annotationCopiedAnnotations, copiedAnnotations)
	superObject.SetLabels(labels)
	superObject.SetAnnotations(annotations)
	tenancy.SetOwner(superObject, owner)
}

// KeepCopied puts those annotations back that a super object had before CopyMeta, among keys and copied earlier.
func KeepCopied(superObject metav1.Object, before map[string]string, keys []string) {
	if len(keys) == 0 {
		return
	}
	annotations := superObject.GetAnnotations()
	copied := strings.FieldsFunc(annotations[annotationCopiedAnnotations], func(r rune) bool { return r == ',' })
	for key := range strings.SplitSeq(before[annotationCopiedAnnotations], ",") {
		if value, exists := before[key]; exists && slices.Contains(keys, key) {
			annotations[key] = value
			copied = append(copied, key)
		}
	}
	slices.Sort(copied)
	SetOrDelete(annotations, annotationCopiedAnnotations, strings.Join(slices.Compact(copied), ","))
	superObject.SetAnnotations(annotations)
}

// TranslateLabels sets all labels of a tenant's Pod or Namespace on its super object under the keys of
// tenancy.LabelKey, which selectors are translated to, and removes those that are gone in the tenant. Call it after
// CopyMeta.
func TranslateLabels(tenantObject, superObject metav1.Object) {
	labels := superObject.GetLabels()
	maps.DeleteFunc(labels, func(key, _ string) bool { return tenancy.IsLabelKey(key) })
	for key, value := range tenantObject.GetLabels() {
		labels[tenancy.LabelKey(key)] = value
	}
}

// merge returns current, without the keys in copiedBefore and with those of desired that goDown, and the keys that it
// copied.
func merge(current, desired map[string]string, copiedBefore string, goDown func(key string) bool) (merged map[string]string, copied string) {
	merged = maps.Clone(current)
	if merged == nil {
		merged = map[string]string{}
	}
	for key := range strings.SplitSeq(copiedBefore, ",") {
		delete(merged, key)
	}
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(desired)) {
		if goDown(key) {
			merged[key] = desired[key]
			keys = append(keys, key)
		}
	}
	return merged, strings.Join(keys, ",")
}

// SetOrDelete sets an entry of a map, or deletes it if value is "".
func SetOrDelete(values map[string]string, key, value string) {
	if value == "" {
		delete(values, key)
		return
	}
	values[key] = value
}

// SetEntry sets an entry of a map, which it makes if that is nil.
func SetEntry(values *map[string]string, key, value string) {
	if *values == nil {
		*values = map[string]string{}
	}
	(*values)[key] = value
}

// Confine adds our ownership label of the tenant to a selector. The nil selector matches nothing and stays nil.
func Confine(selector *metav1.LabelSelector, clusterKey string) {
	if selector == nil {
		return
	}
	if selector.MatchLabels == nil {
		selector.MatchLabels = map[string]string{}
	}
	selector.MatchLabels[tenancyv1alpha1.LabelCluster] = clusterKey
}

// TranslateSelector translates a selector of a tenant's Pods or Namespaces to one of the tenant's super objects. nil
// stays nil.
func TranslateSelector(selector *metav1.LabelSelector, clusterKey string) {
	tenancy.TranslateSelector(selector)
	Confine(selector, clusterKey)
}
