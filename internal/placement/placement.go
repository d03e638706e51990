// Package placement decides what a tenant namespace asks for and what follows from it: which part of its quota is still
// to be placed, and which part of its reservations it may keep.
//
// Everything here is pure: no clients, no clock, no logging, and arguments are never changed.
package placement

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/slice"
)

// MaxSlices is the largest number of slices that one namespace may be cut into. Each unplaced slice is a Pod in the queue of the
// namespace scheduler, so the number that a tenant can cause must be bounded.
const MaxSlices = 1000

// maxAnnotationLength bounds what is parsed of an annotation that a tenant wrote.
const maxAnnotationLength = 64 * 1024

// Problem is why a tenant's wish cannot be fulfilled as written.
type Problem struct {
	// Reason is one of the Reason constants of the API, for conditions and Events.
	Reason string
	// Message says what is wrong and what to do.
	Message string
}

// Spec returns what a namespace asks for. previous is the spec in force, nil if there is none, and defaults is the slice size for
// resources that the tenant does not name.
//
// Where a wish cannot be read, Spec returns the problem and a spec that keeps the last good value of it, so that a typo changes nothing.
// Without a last good value the quota is left empty: the namespace waits until the problem is mended.
func Spec(namespace *corev1.Namespace, quotas []corev1.ResourceQuota, previous *schedulerv1alpha1.NamespacePlacementSpec, defaults slice.Amounts) (schedulerv1alpha1.NamespacePlacementSpec, *Problem) {
	spec := schedulerv1alpha1.NamespacePlacementSpec{
		NamespaceUID:  namespace.UID,
		SchedulerName: namespace.Annotations[schedulerv1alpha1.AnnotationScheduler],
	}
	keep := func(problem Problem) (schedulerv1alpha1.NamespacePlacementSpec, *Problem) {
		if previous != nil && previous.NamespaceUID == namespace.UID {
			spec.Slice, spec.Quota, spec.Priority = previous.Slice, previous.Quota, previous.Priority
		}
		return spec, &problem
	}
	size, err := sizeOf(namespace)
	if err != nil {
		return keep(Problem{schedulerv1alpha1.ReasonInvalidSlice, fmt.Sprintf("Annotation %s: %v", schedulerv1alpha1.AnnotationSlice, err)})
	}
	quota, errs := slice.Quota(quotas)
	if len(errs) > 0 {
		return keep(Problem{schedulerv1alpha1.ReasonInvalidQuota, fmt.Sprintf("ResourceQuota: %v", errs.ToAggregate())})
	}
	full := slice.Fill(size, defaults)
	if count := slice.Count(quota, full, nil); count > MaxSlices {
		return keep(Problem{schedulerv1alpha1.ReasonInvalidSlice, fmt.Sprintf(
			"The quota %s makes %d slices of %s, and %d are allowed: set a larger slice in annotation %s",
			quota, count, full, MaxSlices, schedulerv1alpha1.AnnotationSlice)})
	}
	spec.Slice = full.List()
	spec.Quota = quota.List()
	return spec, nil
}

// SliceLargerThanQuota returns a message when a namespace names a slice that its quota does not fill once, so that the whole quota is
// one slice and goes to one super cluster. It returns "" otherwise. spec is what Spec made of the namespace.
func SliceLargerThanQuota(namespace *corev1.Namespace, spec *schedulerv1alpha1.NamespacePlacementSpec) string {
	named, err := sizeOf(namespace)
	if err != nil || len(named) == 0 {
		return ""
	}
	quota, size := slice.Of(spec.Quota), slice.Of(spec.Slice)
	if quota.IsZero() || slice.Count(quota, size, nil) > 1 || named.Fits(quota) {
		return ""
	}
	return fmt.Sprintf("The slice %s is larger than the quota %s: the quota is one slice and goes to one super cluster", named, quota)
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

// Reserved returns what is reserved in all super clusters together.
func Reserved(placements []schedulerv1alpha1.ClusterPlacement) slice.Amounts {
	sum := slice.Amounts{}
	for i := range placements {
		sum = sum.Plus(slice.Of(placements[i].Reserved))
	}
	return sum
}

// Missing returns the slices that are still to be placed: the quota minus what is reserved, cut.
func Missing(placement *schedulerv1alpha1.NamespacePlacement) []slice.Run {
	rest := slice.Of(placement.Spec.Quota).Minus(Reserved(placement.Status.Placements))
	return slice.Cut(rest, slice.Of(placement.Spec.Slice), nil)
}

// Grant returns placements with what was granted per super cluster added.
func Grant(placement *schedulerv1alpha1.NamespacePlacement, granted map[string]slice.Amounts) []schedulerv1alpha1.ClusterPlacement {
	held := byCluster(placement.Status.Placements)
	for cluster, amounts := range granted {
		held[cluster] = held[cluster].Plus(amounts)
	}
	return list(held, slice.Of(placement.Spec.Slice))
}

// Release returns placements with as much given back as the quota no longer asks for. What pods use stays: used says how much that
// is, per super cluster. A super cluster without any use gives back first, and one with an alphabetically later name before others, so
// that a namespace which shrinks leaves whole clusters. A cluster that holds nothing any more is no longer listed.
func Release(placement *schedulerv1alpha1.NamespacePlacement, used map[string]slice.Amounts) []schedulerv1alpha1.ClusterPlacement {
	held := byCluster(placement.Status.Placements)
	excess := Reserved(placement.Status.Placements).Minus(slice.Of(placement.Spec.Quota))
	order := slices.SortedFunc(maps.Keys(held), func(a, b string) int {
		usedA, usedB := !used[a].IsZero(), !used[b].IsZero()
		if usedA != usedB {
			if usedA {
				return 1
			}
			return -1
		}
		return cmp.Compare(b, a)
	})
	for _, cluster := range order {
		given := slice.Amounts{}
		for name, free := range held[cluster].Minus(used[cluster]) {
			if amount := min(free, excess[name]); amount > 0 {
				given[name] = amount
			}
		}
		held[cluster] = held[cluster].Minus(given)
		excess = excess.Minus(given)
	}
	return list(held, slice.Of(placement.Spec.Slice))
}

// Slices returns the number of slices that the quota is cut into, and the number that is placed.
func Slices(spec *schedulerv1alpha1.NamespacePlacementSpec, placements []schedulerv1alpha1.ClusterPlacement) (wanted, placed int32) {
	for i := range placements {
		placed += placements[i].Slices
	}
	return count(slice.Of(spec.Quota), slice.Of(spec.Slice)), placed
}

// Recount returns placements with their numbers of slices counted again, for a slice size that changed.
func Recount(placement *schedulerv1alpha1.NamespacePlacement) []schedulerv1alpha1.ClusterPlacement {
	return list(byCluster(placement.Status.Placements), slice.Of(placement.Spec.Slice))
}

// Encode writes placements in the form of the annotation: {"r1":1,"r2":1}, sorted, "" for none.
func Encode(placements []schedulerv1alpha1.ClusterPlacement) string {
	if len(placements) == 0 {
		return ""
	}
	counts := make(map[string]int32, len(placements))
	for i := range placements {
		counts[placements[i].Cluster] = placements[i].Slices
	}
	text, err := json.Marshal(counts)
	if err != nil {
		panic(err) // a map from string to int32 can always be encoded
	}
	return string(text)
}

// Summary writes placements in one line for people: r1=1,r2=1.
func Summary(placements []schedulerv1alpha1.ClusterPlacement) string {
	parts := make([]string, len(placements))
	for i := range placements {
		parts[i] = fmt.Sprintf("%s=%d", placements[i].Cluster, placements[i].Slices)
	}
	return strings.Join(parts, ",")
}

// Decode reads the form that Encode writes.
func Decode(text string) (map[string]int32, error) {
	if len(text) > maxAnnotationLength {
		return nil, fmt.Errorf("placements are longer than %d characters", maxAnnotationLength)
	}
	var counts map[string]int32
	if err := json.Unmarshal([]byte(text), &counts); err != nil {
		return nil, fmt.Errorf(`placements are not a JSON object such as {"r1":1,"r2":1}: %w`, err)
	}
	for _, cluster := range slices.Sorted(maps.Keys(counts)) {
		if cluster == "" || counts[cluster] < 0 {
			return nil, fmt.Errorf("placements name %q with %d slices", cluster, counts[cluster])
		}
	}
	return counts, nil
}

func byCluster(placements []schedulerv1alpha1.ClusterPlacement) map[string]slice.Amounts {
	held := make(map[string]slice.Amounts, len(placements))
	for i := range placements {
		held[placements[i].Cluster] = slice.Of(placements[i].Reserved)
	}
	return held
}

func list(held map[string]slice.Amounts, size slice.Amounts) []schedulerv1alpha1.ClusterPlacement {
	var placements []schedulerv1alpha1.ClusterPlacement
	for _, cluster := range slices.Sorted(maps.Keys(held)) {
		if held[cluster].IsZero() {
			continue
		}
		placements = append(placements, schedulerv1alpha1.ClusterPlacement{
			Cluster:  cluster,
			Slices:   count(held[cluster], size),
			Reserved: held[cluster].List(),
		})
	}
	return placements
}

// count is slice.Count as the API counts. It saturates: a slice size can shrink under a large reservation.
func count(amounts, size slice.Amounts) int32 {
	return int32(min(slice.Count(amounts, size, nil), 1<<30))
}
