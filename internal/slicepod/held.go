package slicepod

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/superpool/superpool/internal/slice"
)

// maxCount bounds the number of equal slices that one Pod stands for, so that those of a whole pool add up: a namespace
// that named tiny slices after it was placed holds any number of them.
const maxCount = 1 << 32

// EncodeRuns writes the slices that a Pod stands for, for AnnotationSlices: 3*cpu=2000,memory=1024;1*cpu=500.
func EncodeRuns(runs []slice.Run) string {
	parts := make([]string, 0, len(runs))
	for _, run := range runs {
		parts = append(parts, strconv.FormatInt(min(run.Count, maxCount), 10)+"*"+encodeCounts(run.Size))
	}
	return strings.Join(parts, ";")
}

// Runs returns the slices that a Pod of the namespace view stands for: those of AnnotationSlices, or else the one that
// it is.
func Runs(pod *corev1.Pod) ([]slice.Run, error) {
	text, exists := pod.Annotations[AnnotationSlices]
	switch {
	case !exists:
		return []slice.Run{{Size: AmountsOf(pod), Count: 1}}, nil
	case text == "":
		return nil, nil
	case len(text) > maxLength:
		return nil, fmt.Errorf("the slices of a Pod are longer than %d characters", maxLength)
	}
	var runs []slice.Run
	for part := range strings.SplitSeq(text, ";") {
		digits, counts, _ := strings.Cut(part, "*")
		count, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || count < 1 || count > maxCount {
			return nil, fmt.Errorf("reading the slices of a Pod: %q is not a number above zero", digits)
		}
		size, err := decodeCounts[corev1.ResourceName, int64](counts, 64)
		if err != nil {
			return nil, fmt.Errorf("reading the slices of a Pod: %w", err)
		}
		runs = append(runs, slice.Run{Size: size, Count: count})
	}
	return runs, nil
}
