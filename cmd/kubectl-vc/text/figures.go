package text

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"

	"github.com/superpool/superpool/internal/slice"
)

// units are those of bytes, each 1024 times the one before.
var units = []string{"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}

// Brief returns an amount of a resource with one decimal at most, rounded down: 12.5, 500m, 15.2Gi.
func Brief(name corev1.ResourceName, amount int64) string {
	const milli, binary = 1000, 1024
	dimension := slice.DimensionOf(name)
	switch {
	case dimension.Format == apiresource.BinarySI:
		unit, size := 0, int64(1)
		for unit < len(units)-1 && amount/size >= binary {
			unit++
			size *= binary
		}
		return decimal(amount, size) + units[unit]
	case dimension.Scale == apiresource.Milli && amount > 0 && amount < milli:
		return strconv.FormatInt(amount, 10) + "m"
	case dimension.Scale == apiresource.Milli:
		return decimal(amount, milli)
	}
	return strconv.FormatInt(amount, 10)
}

// decimal returns how often a size is in an amount, with one decimal where that says something.
func decimal(amount, size int64) string {
	const precise, tenths = 100, 10
	whole, tenth := amount/size, int64(uint64(amount%size)*tenths/uint64(size))
	if tenth == 0 || whole >= precise {
		return strconv.FormatInt(whole, 10)
	}
	return strconv.FormatInt(whole, 10) + "." + strconv.FormatInt(tenth, 10)
}

// Amounts returns amounts in one line: cpu=4 memory=8Gi.
func Amounts(of slice.Amounts) string {
	if of.IsZero() {
		return "nothing"
	}
	var parts []string
	for _, name := range of.Names() {
		if of[name] != 0 {
			parts = append(parts, string(name)+"="+Brief(name, of[name]))
		}
	}
	return strings.Join(parts, " ")
}

// Count returns a number with the word for what is counted.
func Count(number int, one, many string) string {
	if number == 1 {
		return "1 " + one
	}
	return strconv.Itoa(number) + " " + many
}
