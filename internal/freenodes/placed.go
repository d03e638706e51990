package freenodes

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/superpool/superpool/internal/slice"
)

// Placed counts the slices that are placed in a super cluster, by size. The zero value holds none.
type Placed struct {
	// runs have different sizes, in the order of Compare. Sizes name no pods and no zeros.
	runs []slice.Run
}

// Add counts slices.
func (p *Placed) Add(run slice.Run) { p.change(run.Size, run.Count) }

// Remove takes back Add.
func (p *Placed) Remove(run slice.Run) { p.change(run.Size, -run.Count) }

func (p *Placed) change(size slice.Amounts, count int64) {
	size = size.Minus(slice.Amounts{corev1.ResourcePods: math.MaxInt64})
	if len(size) == 0 {
		return
	}
	at, found := slices.BinarySearchFunc(p.runs, size, func(run slice.Run, size slice.Amounts) int { return Compare(run.Size, size) })
	if !found {
		p.runs = slices.Insert(p.runs, at, slice.Run{Size: size})
	}
	if p.runs[at].Count += count; p.runs[at].Count == 0 {
		p.runs = slices.Delete(p.runs, at, at+1)
	}
}

// with returns what is placed and one more slice.
func (p *Placed) with(size slice.Amounts) *Placed {
	more := &Placed{runs: slices.Clone(p.runs)}
	more.change(size, 1)
	return more
}
