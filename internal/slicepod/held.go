package slicepod

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/superpool/superpool/internal/slice"
)

// maxCount bounds the number of equal slices that one Pod stands for, so that those of a whole pool add up: a namespace
// that named tiny slices after it was placed holds any number of them.
const maxCount = 1 << 32

// Hold makes pods stand for what a namespace with slices of that size holds. The pods share one map of annotations,
// which replaces their own and must not be changed afterwards.
func Hold(size slice.Amounts, pods ...*corev1.Pod) {
	annotations := map[string]string{AnnotationSliceSize: encodeCounts(size)}
	for _, pod := range pods {
		pod.Annotations = annotations
	}
}

// Runs returns the slices that a Pod of the namespace view stands for: what it holds, cut by the size of the
// namespace's slices, or else the one slice that it is. A size that cannot be read counts as none.
func Runs(pod *corev1.Pod) []slice.Run {
	amounts := AmountsOf(pod)
	text, holds := pod.Annotations[AnnotationSliceSize]
	if !holds {
		return []slice.Run{{Size: amounts, Count: 1}}
	}
	size, err := decodeCounts[corev1.ResourceName, int64](text, 64)
	if err != nil {
		size = nil
	}
	runs := slice.Cut(amounts, size)
	for i := range runs {
		runs[i].Count = min(runs[i].Count, maxCount)
	}
	return runs
}
