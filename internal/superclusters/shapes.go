package superclusters

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/superpool/superpool/internal/slice"
)

const (
	// MaxShapes is the largest number of shapes that a virtual Node publishes.
	MaxShapes = 16

	maxHeadroomLength = 4096
	wholePercent      = 100
)

// Shapes returns the amounts that fit into no other of allocatables, largest first: what fits none of them fits none of
// allocatables. When there are more than MaxShapes, the smallest are replaced by one that is as large as the largest of them in
// every resource: it may promise too much, and never too little.
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

// covered says whether the candidate at index fits into another of ordered. Of equal ones, the first is not covered.
func covered(candidate slice.Amounts, index int, ordered []slice.Amounts) bool {
	for j, other := range ordered {
		if j != index && candidate.Fits(other) && (j < index || !other.Fits(candidate)) {
			return true
		}
	}
	return false
}

// EncodeShapes writes shapes in the form of the annotation: a JSON list of resource lists.
func EncodeShapes(shapes []slice.Amounts) string {
	lists := make([]corev1.ResourceList, 0, len(shapes))
	for _, shape := range shapes {
		lists = append(lists, shape.List())
	}
	text, err := json.Marshal(lists)
	if err != nil {
		panic(err) // quantities can always be encoded
	}
	return string(text)
}

// Headroom is what of a super cluster is kept from tenants. The zero value keeps nothing.
type Headroom struct {
	percent  map[corev1.ResourceName]int64
	absolute slice.Amounts
}

// ParseHeadroom reads a headroom annotation: a JSON object from resource to a quantity, or to a whole percentage from "0%" to "100%".
func ParseHeadroom(text string) (Headroom, error) {
	if text == "" {
		return Headroom{}, nil
	}
	if len(text) > maxHeadroomLength {
		return Headroom{}, fmt.Errorf("headroom is longer than %d characters", maxHeadroomLength)
	}
	var values map[corev1.ResourceName]string
	if err := json.Unmarshal([]byte(text), &values); err != nil {
		return Headroom{}, fmt.Errorf(`headroom is not a JSON object such as {"cpu":"10%%","memory":"16Gi"}: %w`, err)
	}
	headroom := Headroom{percent: map[corev1.ResourceName]int64{}}
	quantities := corev1.ResourceList{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if digits, isPercent := strings.CutSuffix(values[name], "%"); isPercent {
			percent, err := strconv.ParseInt(digits, 10, 64)
			if err != nil || percent < 0 || percent > wholePercent {
				return Headroom{}, fmt.Errorf("headroom of %s is %q: want a whole number from 0%% to 100%%", name, values[name])
			}
			headroom.percent[name] = percent
			continue
		}
		quantity, err := resource.ParseQuantity(values[name])
		if err != nil {
			return Headroom{}, fmt.Errorf("headroom of %s is %q: want a quantity or a percentage", name, values[name])
		}
		quantities[name] = quantity
	}
	absolute, errs := slice.FromList(quantities, field.NewPath("headroom"))
	if err := errs.ToAggregate(); err != nil {
		return Headroom{}, err
	}
	headroom.absolute = absolute
	return headroom, nil
}

// Apply returns what remains of offered, never less than zero. A percentage of a resource is rounded up.
func (h Headroom) Apply(offered slice.Amounts) slice.Amounts {
	kept := slice.Amounts{}
	maps.Copy(kept, h.absolute)
	for name, percent := range h.percent {
		amount := offered[name]
		rest := amount % wholePercent * percent
		kept[name] = amount/wholePercent*percent + (rest+wholePercent-1)/wholePercent
	}
	return offered.Minus(kept)
}
