package placement

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/tenancy"
)

// MaxSlices is the largest number of slices that one namespace may be cut into. Each unplaced slice is a Pod in the
// queue of the namespace scheduler, so the number that a tenant can cause must be bounded.
const MaxSlices = 1000

// Spec returns the spec that a namespace requests: its quota is all that the namespace may have, with what comes with
// the slices (slice.Complete). previous is the spec in force, nil if there is none, and defaults is the slice size of
// namespaces that name none.
//
// Where the slice annotation or a quota is invalid, Spec returns the reason and a spec that keeps the last valid
// values, so that a typo changes nothing; a quota that can be read still falls. Without last valid values the quota is
// left empty: the namespace waits until they are corrected.
func Spec(namespace *corev1.Namespace, quotas []corev1.ResourceQuota, previous *schedulerv1alpha1.NamespacePlacementSpec, defaults slice.Amounts) (schedulerv1alpha1.NamespacePlacementSpec, *tenancy.Reason) {
	spec := schedulerv1alpha1.NamespacePlacementSpec{
		NamespaceUID:  namespace.UID,
		SchedulerName: namespace.Annotations[schedulerv1alpha1.AnnotationScheduler],
	}
	quota, errs := slice.Quota(quotas)
	invalid := func(reason tenancy.Reason) (schedulerv1alpha1.NamespacePlacementSpec, *tenancy.Reason) {
		if previous == nil || previous.NamespaceUID != namespace.UID {
			return spec, &reason
		}
		spec.Slice, spec.Quota, spec.Priority = previous.Slice, previous.Quota, previous.Priority
		if len(errs) == 0 {
			whole, _ := slice.Complete(quota, slice.Of(previous.Slice), defaults)
			spec.Quota = whole.List()
			spec = WithoutGrowth(spec, previous)
		}
		return spec, &reason
	}
	named, err := sizeOf(namespace)
	if err != nil {
		return invalid(tenancy.Reason{Reason: schedulerv1alpha1.ReasonInvalidSlice, Message: fmt.Sprintf("Annotation %s: %v", schedulerv1alpha1.AnnotationSlice, err)})
	}
	if len(errs) > 0 {
		return invalid(tenancy.Reason{Reason: schedulerv1alpha1.ReasonInvalidQuota, Message: fmt.Sprintf("ResourceQuota: %v", errs.ToAggregate())})
	}
	whole, size := slice.Complete(quota, named, defaults)
	if count := slice.Count(whole, size); count > MaxSlices {
		return invalid(tenancy.Reason{Reason: schedulerv1alpha1.ReasonInvalidSlice, Message: fmt.Sprintf(
			"The quota %s makes %d slices of %s, and %d are allowed: set a larger slice in annotation %s",
			quota, count, size, MaxSlices, schedulerv1alpha1.AnnotationSlice)})
	}
	spec.Slice = size.List()
	spec.Quota = whole.List()
	return spec, nil
}

// WithoutGrowth returns spec with the slice of previous, and with no more quota than previous has: what was refused
// keeps a quota from growing, and not from falling. previous nil: no slice and no quota.
func WithoutGrowth(spec schedulerv1alpha1.NamespacePlacementSpec, previous *schedulerv1alpha1.NamespacePlacementSpec) schedulerv1alpha1.NamespacePlacementSpec {
	if previous == nil {
		spec.Slice, spec.Quota = nil, nil
		return spec
	}
	spec.Slice, spec.Quota = previous.Slice, least(slice.Of(spec.Quota), slice.Of(previous.Quota)).List()
	return spec
}

// maxLostToleration is the longest toleration that a tenant may name.
const maxLostToleration = 24 * time.Hour

// LostToleration returns how long the namespace lets a super cluster be silent, nil for the default, and why its
// annotation is invalid, in which case the default holds.
func LostToleration(namespace *corev1.Namespace) (*metav1.Duration, *tenancy.Reason) {
	text, exists := namespace.Annotations[schedulerv1alpha1.AnnotationLostToleration]
	if !exists {
		return nil, nil
	}
	toleration, err := time.ParseDuration(text)
	if err == nil && toleration >= 0 && toleration <= maxLostToleration {
		return &metav1.Duration{Duration: toleration}, nil
	}
	return nil, &tenancy.Reason{Reason: schedulerv1alpha1.ReasonInvalidLostToleration, Message: fmt.Sprintf(
		"Annotation %s: %q is no duration between 0s and 24h, such as 90s or 1h: the default holds",
		schedulerv1alpha1.AnnotationLostToleration, tenancy.Cut(text, 64))}
}

// ResourceNames returns how many different resources the quotas of a namespace and its slice annotation name, those
// that nothing places left out. It stops counting at most, for a tenant may name any number.
func ResourceNames(namespace *corev1.Namespace, quotas []corev1.ResourceQuota, most int) int {
	names := map[corev1.ResourceName]bool{}
	named, _ := sizeOf(namespace) // Spec reports an error
	for name := range named {
		names[name] = true
	}
	for i := range quotas {
		if len(quotas[i].Spec.Scopes) > 0 || quotas[i].Spec.ScopeSelector != nil {
			continue
		}
		for key := range quotas[i].Spec.Hard {
			if d, ok := slice.DimensionOfQuotaKey(key); ok {
				names[d.Name] = true
			}
			if len(names) >= most {
				return most
			}
		}
	}
	return min(len(names), most)
}

// SliceLargerThanQuota returns a message when a namespace names a slice that its quota does not fill once, so that the
// whole quota is one slice and goes to one super cluster. It returns "" otherwise. spec is what Spec made of the
// namespace.
func SliceLargerThanQuota(namespace *corev1.Namespace, spec *schedulerv1alpha1.NamespacePlacementSpec) string {
	named, err := sizeOf(namespace)
	if err != nil || len(named) == 0 {
		return ""
	}
	quota, size := slice.Of(spec.Quota), slice.Of(spec.Slice)
	if quota.IsZero() || slice.Count(quota, size) > 1 || named.Fits(quota) {
		return ""
	}
	return fmt.Sprintf("The slice %s is larger than the quota %s: the quota is one slice and goes to one super cluster", named, quota)
}

// UnplacedQuota returns the alphabetically first of quotas that looks as if it asked for capacity and does not, and
// why, nil where there is none, or another one asks for some.
func UnplacedQuota(quotas []*corev1.ResourceQuota) (unplaced *corev1.ResourceQuota, why string) {
	if BoundingQuota(quotas) != nil {
		return nil, ""
	}
	for _, quota := range slices.SortedFunc(slices.Values(quotas), func(a, b *corev1.ResourceQuota) int { return cmp.Compare(a.Name, b.Name) }) {
		_, limitsCPU := quota.Spec.Hard[corev1.ResourceLimitsCPU]
		_, limitsMemory := quota.Spec.Hard[corev1.ResourceLimitsMemory]
		switch {
		case len(quota.Spec.Scopes) > 0 || quota.Spec.ScopeSelector != nil:
			why = "it has scopes, and bounds some of the pods only"
		case limitsCPU || limitsMemory:
			why = "it names limits, and no requests"
		default:
			continue
		}
		return quota, "Nothing is placed for the ResourceQuota: " + why +
			". Set another one beside it, without scopes and with requests.cpu and requests.memory, for what the namespace is to have"
	}
	return nil, ""
}

// BoundingQuota returns the ResourceQuota that a person is to look at for what a namespace may use: the one that is
// invalid, else the one that sets the bound of the alphabetically first resource, and the alphabetically first where
// several do. It returns nil when none bounds anything that is placed.
func BoundingQuota(quotas []*corev1.ResourceQuota) *corev1.ResourceQuota {
	quotas = slices.SortedFunc(slices.Values(quotas), func(a, b *corev1.ResourceQuota) int { return cmp.Compare(a.Name, b.Name) })
	var bounding *corev1.ResourceQuota
	var smallest int64
	var lead corev1.ResourceName
	for _, quota := range quotas {
		amounts, errs := slice.Quota([]corev1.ResourceQuota{*quota})
		if len(errs) > 0 {
			return quota
		}
		if len(amounts) == 0 {
			continue
		}
		first := amounts.Names()[0]
		if bounding == nil || first < lead || first == lead && amounts[first] < smallest {
			bounding, lead, smallest = quota, first, amounts[first]
		}
	}
	return bounding
}

func sizeOf(namespace *corev1.Namespace) (slice.Amounts, error) {
	text, exists := namespace.Annotations[schedulerv1alpha1.AnnotationSlice]
	if !exists {
		text, exists = namespace.Annotations[schedulerv1alpha1.DeprecatedAnnotationSlice]
	}
	if !exists {
		return nil, nil
	}
	return slice.ParseSize(text)
}
