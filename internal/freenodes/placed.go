package freenodes

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/superpool/superpool/internal/slice"
)

// Run is a number of equal slices that can be counted.
type Run struct {
	// size names no pods and no zeros.
	size  slice.Amounts
	key   string // of size
	count int64
}

// RunsOf returns runs without what is counted nowhere here: pods, storage, and slices of nothing else.
func RunsOf(runs []slice.Run) []Run {
	counted := make([]Run, 0, len(runs))
	for _, run := range runs {
		size := run.Size.OfPods()
		delete(size, corev1.ResourcePods)
		if key := size.Key(); key != "" {
			counted = append(counted, Run{size: size, key: key, count: run.Count})
		}
	}
	return counted
}

// Placed counts the slices that are placed in a super cluster, by size. The zero value holds none.
type Placed struct {
	byKey map[string]*Run
	// runs are those of byKey, in the order of Compare.
	runs []*Run
}

// Add counts so many times the slices of runs, or takes them back if times is below zero.
func (p *Placed) Add(runs []Run, times int64) {
	for _, run := range runs {
		p.add(run, times*run.count)
	}
}

func (p *Placed) add(run Run, count int64) {
	known := p.byKey[run.key]
	if known == nil {
		known = &Run{size: run.size, key: run.key}
		if p.byKey == nil {
			p.byKey = map[string]*Run{}
		}
		p.byKey[run.key] = known
		p.runs = slices.Insert(p.runs, p.index(run.size), known)
	}
	if known.count += count; known.count == 0 {
		delete(p.byKey, run.key)
		at := p.index(run.size)
		p.runs = slices.Delete(p.runs, at, at+1)
	}
}

func (p *Placed) index(size slice.Amounts) int {
	at, _ := slices.BinarySearchFunc(p.runs, size, func(run *Run, size slice.Amounts) int { return Compare(run.size, size) })
	return at
}

// with returns what is placed and one more slice.
func (p *Placed) with(size slice.Amounts) *Placed {
	more := &Placed{}
	for _, run := range p.runs {
		more.add(*run, run.count)
	}
	more.Add(RunsOf([]slice.Run{{Size: size, Count: 1}}), 1)
	return more
}
