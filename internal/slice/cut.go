package slice

import (
	"math"
	"math/bits"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Run is a number of equal slices.
type Run struct {
	// Size is what each of them holds.
	Size Amounts
	// Count is how many there are, at least 1.
	Count int64
}

// Cut divides quota into slices. The resource with the largest quota/size leads: whole slices of it, and a partial one
// last. Every other resource is spread over the slices in proportion to the lead, in whole units, those that cannot be
// divided evenly on the first slices. So all slices have the same shape, no later one is larger, and the runs add up to
// quota exactly. There are at most as many runs as resources, and one more, however many slices.
//
// An extended resource that size does not name has size 1. Any other resource without a size never leads: it is spread
// over the slices that the others make, and is one slice where there are none. No slice is larger than size in any
// resource that has one.
func Cut(quota, size Amounts) []Run {
	d := divide(quota, size)
	if d.lead == "" {
		if whole := quota.Minus(nil); len(whole) > 0 {
			return []Run{{Size: whole, Count: 1}}
		}
		return nil
	}
	shares := make(map[corev1.ResourceName]share, len(quota))
	borders := []int64{d.whole}
	for name, amount := range quota {
		if amount > 0 && name != d.lead {
			part := d.spread(name, amount, pieceOf(name, size))
			shares[name] = part
			borders = append(borders, part.larger)
		}
	}
	slices.Sort(borders)
	var runs []Run
	start := int64(0)
	for _, border := range slices.Compact(borders) {
		if border == start {
			continue
		}
		at := Amounts{d.lead: d.size}
		for name, part := range shares {
			if amount := part.of(start); amount > 0 {
				at[name] = amount
			}
		}
		runs = append(runs, Run{Size: at, Count: border - start})
		start = border
	}
	if d.partial > 0 {
		last := Amounts{d.lead: d.partial}
		for name, part := range shares {
			if part.last > 0 {
				last[name] = part.last
			}
		}
		runs = append(runs, Run{Size: last, Count: 1})
	}
	return runs
}

// Count returns the number of slices that Cut makes: the largest ⌈quota/size⌉ over all resources that have a size.
func Count(quota, size Amounts) int64 {
	d := divide(quota, size)
	if d.lead == "" && !quota.IsZero() {
		return 1
	}
	return d.count()
}

// Lead returns the resource of quota that leads where Cut divides it, "" if none of them has a size.
func Lead(quota, size Amounts) corev1.ResourceName { return divide(quota, size).lead }

// Total returns what runs hold together.
func Total(runs []Run) Amounts {
	sum := Amounts{}
	for _, run := range runs {
		sum = sum.Plus(run.Size.Times(run.Count))
	}
	return sum
}

// division is how often the leading resource of a quota fills a slice.
type division struct {
	// lead is the leading resource, "" if no resource of the quota has a size.
	lead corev1.ResourceName
	// size is what a whole slice holds of it, whole how many of those there are, and partial what the last slice holds
	// if it is not whole.
	size, whole, partial int64
}

// divide chooses the leading resource. Pods lead only where they make more slices than all others: their number is
// rounded up where it comes with the slices.
func divide(quota, size Amounts) division {
	var lead division
	for _, name := range quota.Names() {
		if piece := pieceOf(name, size); name != corev1.ResourcePods && quota[name] > 0 && piece > 0 {
			if lead.lead == "" || moreThan(quota[name], piece, quota[lead.lead], lead.size) {
				lead = divisionOf(name, quota[name], piece)
			}
		}
	}
	if piece := size[corev1.ResourcePods]; piece > 0 && quota[corev1.ResourcePods] > 0 {
		if pods := divisionOf(corev1.ResourcePods, quota[corev1.ResourcePods], piece); pods.count() > lead.count() {
			return pods
		}
	}
	return lead
}

func divisionOf(name corev1.ResourceName, amount, piece int64) division {
	return division{lead: name, size: piece, whole: amount / piece, partial: amount % piece}
}

func (d division) count() int64 {
	if d.partial > 0 {
		return d.whole + 1
	}
	return d.whole
}

// share is what the slices hold of a resource that does not lead.
type share struct {
	// base is what each whole slice holds, unit what the first larger ones hold more, and last what the partial one
	// holds.
	base, unit, larger, last int64
}

// of returns what whole slice number i holds.
func (s share) of(i int64) int64 {
	if i < s.larger {
		return s.base + s.unit
	}
	return s.base
}

// spread divides an amount of a resource in proportion to the lead. piece is the most that a slice holds of it, 0 for
// no bound; it is enough for all slices together, because no other resource makes more slices than the lead.
func (d division) spread(name corev1.ResourceName, amount, piece int64) share {
	if d.whole == 0 {
		return share{last: amount}
	}
	unit := unitOf(name, amount, piece, d.count())
	last := int64(0)
	if d.partial > 0 {
		units := amount / unit
		last = mulDiv(units, d.partial, d.whole*d.size+d.partial)
		if piece > 0 {
			// What the whole slices cannot hold.
			if high, capacity := bits.Mul64(uint64(d.whole), uint64(piece/unit)); high == 0 && capacity < uint64(units) {
				last = max(last, units-int64(capacity))
			}
		}
		last *= unit
	}
	rest := (amount - last) / unit
	return share{base: rest / d.whole * unit, unit: unit, larger: rest % d.whole, last: last}
}

// unitOf returns the unit in which an amount is spread over so many slices; it divides amount and piece. Huge pages are
// spread page by page. Bytes are spread in the largest power of two, up to a mebibyte, that makes slices equal to
// within a hundredth, so that people can read what a slice holds.
func unitOf(name corev1.ResourceName, amount, piece, count int64) int64 {
	if page := pageOf(name); page > 0 && amount%page == 0 && piece%page == 0 {
		return page
	}
	if !rowOf(name).isBytes() {
		return 1
	}
	const maxUnit, perSlice = 1 << 20, 100
	unit := min(maxUnit, int64(1)<<bits.TrailingZeros64(uint64(amount|piece)))
	for unit > 1 && amount/unit/perSlice < count {
		unit /= 2
	}
	return unit
}

// pieceOf returns how much of a resource a slice holds at most, 0 for no bound.
func pieceOf(name corev1.ResourceName, size Amounts) int64 {
	if piece := size[name]; piece > 0 {
		return piece
	}
	if IsExtended(name) {
		return 1
	}
	return 0
}

// moreThan reports whether a/b is more than c/d. None is negative, and b and d are above zero.
func moreThan(a, b, c, d int64) bool {
	highLeft, lowLeft := bits.Mul64(uint64(a), uint64(d))
	highRight, lowRight := bits.Mul64(uint64(c), uint64(b))
	return highLeft > highRight || highLeft == highRight && lowLeft > lowRight
}

// Percent returns how much of a hundred a part is of the whole, rounded down, and -1 where the whole is nothing. No amount
// is negative.
func Percent(part, whole int64) int64 {
	if whole <= 0 {
		return -1
	}
	const hundred = 100
	return mulDiv(part, hundred, whole)
}

// mulDiv returns a·b/c rounded down, at most math.MaxInt64. None is negative, and c is above zero.
func mulDiv(a, b, c int64) int64 {
	high, low := bits.Mul64(uint64(a), uint64(b))
	if high >= uint64(c) {
		return math.MaxInt64
	}
	quotient, _ := bits.Div64(high, low, uint64(c))
	return int64(min(quotient, math.MaxInt64))
}
