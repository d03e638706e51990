package usage

import (
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
	maxHeadroomLength = 4096
	wholePercent      = 100
)

// Headroom is what of a super cluster is kept from tenants. The zero value keeps nothing.
type Headroom struct {
	percent  map[corev1.ResourceName]int64
	absolute slice.Amounts
}

// ParseHeadroom reads a headroom annotation: a JSON object from resource to a quantity, or to a whole percentage from
// "0%" to "100%".
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

// Share returns how large a part of a resource is kept, from 0 to 1, where allocatable is what is left.
func (h Headroom) Share(name corev1.ResourceName, allocatable int64) float64 {
	if percent, isPercent := h.percent[name]; isPercent {
		return float64(percent) / wholePercent
	}
	kept := float64(h.absolute[name])
	if kept == 0 {
		return 0
	}
	return kept / (kept + float64(allocatable))
}
