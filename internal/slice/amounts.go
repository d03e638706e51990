// Package slice does the arithmetic of quotas: exact integer amounts of resources, and how a quota is cut into slices.
//
// Everything here is pure: no clients, no clock, no logging, and arguments are never changed.
package slice

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// MaxAmount is the largest amount of one resource: 2^53. It is far above any real pool (nine million million cores,
// eight pebibytes) and low enough that a thousand of them add up without overflow.
const MaxAmount = int64(1) << 53

// Amounts holds whole numbers of resources: thousandths of a core for cpu, bytes or pieces for all others. A resource
// that is absent counts as zero. The nil map is valid and empty.
type Amounts map[corev1.ResourceName]int64

// FromList converts quantities into amounts, rounding up to whole ones. It refuses negative quantities and those above
// MaxAmount, and drops zeros. Errors name the resource below path.
func FromList(list corev1.ResourceList, path *field.Path) (Amounts, field.ErrorList) {
	var errs field.ErrorList
	amounts := make(Amounts, len(list))
	for _, name := range slices.Sorted(maps.Keys(list)) {
		quantity := list[name]
		switch {
		case quantity.Sign() < 0:
			errs = append(errs, field.Invalid(path.Key(string(name)), quantity.String(), "must not be negative"))
		case ExceedsMax(name, quantity):
			errs = append(errs, field.Invalid(path.Key(string(name)), quantity.String(), "is larger than any pool"))
		case quantity.Sign() > 0:
			amounts[name] = rowOf(name).amount(quantity)
		}
	}
	return amounts, errs
}

// Of converts quantities into amounts and never fails: a negative quantity counts as zero, one above MaxAmount as
// MaxAmount. It is for quantities that were checked before, or that a super cluster reports.
func Of(list corev1.ResourceList) Amounts {
	amounts := make(Amounts, len(list))
	for name, quantity := range list {
		switch {
		case quantity.Sign() <= 0:
		case ExceedsMax(name, quantity):
			amounts[name] = MaxAmount
		default:
			amounts[name] = rowOf(name).amount(quantity)
		}
	}
	return amounts
}

// List converts amounts back into quantities, in the formats that Kubernetes prints: 100m, 100Mi, 3.
func (a Amounts) List() corev1.ResourceList {
	if len(a) == 0 {
		return nil
	}
	list := make(corev1.ResourceList, len(a))
	for name, amount := range a {
		list[name] = *rowOf(name).Quantity(amount)
	}
	return list
}

// Plus returns the sum of a and b, at most math.MaxInt64 each.
func (a Amounts) Plus(b Amounts) Amounts {
	sum := maps.Clone(a)
	if sum == nil {
		sum = make(Amounts, len(b))
	}
	for name, amount := range b {
		if sum[name] > math.MaxInt64-amount {
			sum[name] = math.MaxInt64
			continue
		}
		sum[name] += amount
	}
	return sum
}

// Minus returns what remains of a when b is taken away, never less than zero. Zeros are dropped.
func (a Amounts) Minus(b Amounts) Amounts {
	rest := make(Amounts, len(a))
	for name, amount := range a {
		if amount > b[name] {
			rest[name] = amount - b[name]
		}
	}
	return rest
}

// Times returns a n times over, at most math.MaxInt64 each. n is not negative.
func (a Amounts) Times(n int64) Amounts {
	product := make(Amounts, len(a))
	for name, amount := range a {
		switch {
		case amount == 0 || n == 0:
		case amount > math.MaxInt64/n:
			product[name] = math.MaxInt64
		default:
			product[name] = amount * n
		}
	}
	return product
}

// Fits reports whether a fits into a capacity in every resource.
func (a Amounts) Fits(capacity Amounts) bool {
	for name, amount := range a {
		if amount > capacity[name] {
			return false
		}
	}
	return true
}

// IsZero reports whether a holds nothing.
func (a Amounts) IsZero() bool {
	for _, amount := range a {
		if amount != 0 {
			return false
		}
	}
	return true
}

// Names returns the resources of a in alphabetical order.
func (a Amounts) Names() []corev1.ResourceName {
	return slices.Sorted(maps.Keys(a))
}

// Key returns a text that is equal for equal amounts only. Zeros do not count. It is for maps, and quicker than String.
func (a Amounts) Key() string {
	var text strings.Builder
	for _, name := range a.Names() {
		if amount := a[name]; amount != 0 {
			text.WriteString(string(name))
			text.WriteByte('=')
			text.WriteString(strconv.FormatInt(amount, 10))
			text.WriteByte(',')
		}
	}
	return text.String()
}

// String lists the amounts in alphabetical order, for messages.
func (a Amounts) String() string {
	parts := make([]string, 0, len(a))
	for _, name := range a.Names() {
		parts = append(parts, fmt.Sprintf("%s=%s", name, rowOf(name).Quantity(a[name])))
	}
	return strings.Join(parts, ",")
}

// ExceedsMax reports whether a quantity is above MaxAmount. It may be written with any exponent.
func ExceedsMax(name corev1.ResourceName, quantity resource.Quantity) bool {
	return Compare(quantity, *rowOf(name).Quantity(MaxAmount)) > 0
}

// IsMonstrous reports whether a quantity is farther from zero than MaxAmount, or a zero whose exponent is: Quantity.Cmp
// and Quantity.Add may take hours with it.
func IsMonstrous(name corev1.ResourceName, quantity resource.Quantity) bool {
	switch quantity.Sign() {
	case 1:
		return ExceedsMax(name, quantity)
	case -1:
		return Compare(quantity, *rowOf(name).Quantity(-MaxAmount)) < 0
	}
	return math.IsNaN(quantity.AsApproximateFloat64()) // nothing times infinity
}
