package nodegroups

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/superpool/superpool/internal/slice"
)

// Shapes returns the amounts that fit into no other of allocatables, largest first: what fits none of them fits none of
// allocatables. When there are more than MaxShapes, the smallest are replaced by one that is as large as the largest of
// them in every resource: it may promise too much, and never too little.
func Shapes(allocatables []slice.Amounts) []slice.Amounts {
	ordered := slices.SortedFunc(slices.Values(allocatables), func(a, b slice.Amounts) int {
		return cmp.Or(
			cmp.Compare(b[corev1.ResourceCPU], a[corev1.ResourceCPU]),
			cmp.Compare(b[corev1.ResourceMemory], a[corev1.ResourceMemory]),
			cmp.Compare(a.String(), b.String()),
		)
	})
	var shapes []slice.Amounts
	for i, candidate := range ordered {
		if !candidate.IsZero() && !covered(candidate, i, ordered) {
			shapes = append(shapes, candidate)
		}
	}
	if len(shapes) <= MaxShapes {
		return shapes
	}
	hull := slice.Amounts{}
	for _, shape := range shapes[MaxShapes-1:] {
		for name, amount := range shape {
			hull[name] = max(hull[name], amount)
		}
	}
	return append(shapes[:MaxShapes-1:MaxShapes-1], hull)
}

// covered returns whether the candidate at index fits into another of ordered. Of equal ones, the first is not covered.
func covered(candidate slice.Amounts, index int, ordered []slice.Amounts) bool {
	for j, other := range ordered {
		if j != index && candidate.Fits(other) && (j < index || !other.Fits(candidate)) {
			return true
		}
	}
	return false
}
