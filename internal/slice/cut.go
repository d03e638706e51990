package slice

import (
	"maps"
	"slices"
)

// Run is a number of equal slices.
type Run struct {
	// Size is what each of them holds.
	Size Amounts
	// Count is how many there are, at least 1.
	Count int64
}

// Cut takes min(size, what remains) per resource from quota until nothing remains. The runs add up to quota exactly.
// Whole slices come first, so later ones are never larger. There are at most two runs per resource, however many
// slices.
//
// A resource that size does not name is cut by fallback; one that neither names is cut by 1 when it is an extended
// resource, and not cut at all otherwise.
func Cut(quota, size, fallback Amounts) []Run {
	pieces := pieceSizes(quota, size, fallback)
	// Slice i holds, of each resource, a whole piece while i < quota/piece, then once the remainder, then nothing. So
	// the size changes at quota/piece and one later, and nowhere else.
	var borders []int64
	for name, piece := range pieces {
		whole := quota[name] / piece
		borders = append(borders, whole)
		if quota[name]%piece != 0 {
			borders = append(borders, whole+1)
		}
	}
	slices.Sort(borders)
	var runs []Run
	start := int64(0)
	for _, border := range slices.Compact(borders) {
		if border == start {
			continue
		}
		at := make(Amounts, len(pieces))
		for name, piece := range pieces {
			if start > quota[name]/piece {
				continue // used up, and start*piece might overflow
			}
			if amount := min(piece, quota[name]-start*piece); amount > 0 {
				at[name] = amount
			}
		}
		runs = append(runs, Run{Size: at, Count: border - start})
		start = border
	}
	return runs
}

// Count returns the number of slices that Cut makes: the largest ⌈quota/size⌉ over all resources.
func Count(quota, size, fallback Amounts) int64 {
	count := int64(0)
	for name, piece := range pieceSizes(quota, size, fallback) {
		count = max(count, (quota[name]-1)/piece+1)
	}
	return count
}

// Total returns what runs hold together.
func Total(runs []Run) Amounts {
	sum := Amounts{}
	for _, run := range runs {
		sum = sum.Plus(run.Size.Times(run.Count))
	}
	return sum
}

// Fill completes size with what fallback names and size does not.
func Fill(size, fallback Amounts) Amounts {
	full := maps.Clone(fallback)
	if full == nil {
		full = Amounts{}
	}
	maps.Copy(full, size)
	return full
}

// pieceSizes returns how much of each resource of quota a whole slice holds, above zero.
func pieceSizes(quota, size, fallback Amounts) Amounts {
	pieces := make(Amounts, len(quota))
	for name, amount := range quota {
		if amount <= 0 {
			continue
		}
		switch {
		case size[name] > 0:
			pieces[name] = size[name]
		case fallback[name] > 0:
			pieces[name] = fallback[name]
		case rowOf(name).isPieces():
			pieces[name] = 1
		default:
			pieces[name] = amount
		}
	}
	return pieces
}
