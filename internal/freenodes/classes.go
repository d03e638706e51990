// Package freenodes answers whether slices fit the nodes of a super cluster, one by one: a sum of free capacity is no
// place to run. vc-scheduler describes the nodes by classes of equal ones; plugin NodeShape packs slices onto them.
//
// Everything here is pure: no clients, no clock, no logging, and arguments are never changed.
package freenodes

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/superpool/superpool/internal/slice"
)

const (
	// MaxClasses is the largest number of classes that a virtual Node publishes, and that Decode accepts.
	MaxClasses = 64

	// maxNodes bounds the nodes of one class. Kubernetes supports 5,000 in a cluster.
	maxNodes = 1 << 20
	// maxLength bounds what Decode parses, in bytes: an object has at most 256 KiB of annotations.
	maxLength = 256 * 1024
)

// Class is a number of nodes that offer the same.
type Class struct {
	// Free is what each of them can hold of tenants' slices. It names no pods: the pods of a slice may be on any nodes.
	Free slice.Amounts
	// Nodes is how many there are, at least 1.
	Nodes int64
}

// encodedClass is the form of the annotation.
type encodedClass struct {
	Nodes int64               `json:"nodes"`
	Free  corev1.ResourceList `json:"free"`
}

// Encode writes classes as a JSON list: [{"nodes":10,"free":{"cpu":"1"}}].
func Encode(classes []Class) string {
	encoded := make([]encodedClass, 0, len(classes))
	for _, class := range classes {
		encoded = append(encoded, encodedClass{Nodes: class.Nodes, Free: class.Free.List()})
	}
	text, err := json.Marshal(encoded)
	if err != nil {
		panic(err) // quantities can always be encoded
	}
	return string(text)
}

// Decode reads what Encode writes.
func Decode(text string) ([]Class, error) {
	if len(text) > maxLength {
		return nil, fmt.Errorf("free shapes are longer than %d characters", maxLength)
	}
	var encoded []encodedClass
	if err := json.Unmarshal([]byte(text), &encoded); err != nil {
		return nil, fmt.Errorf(`free shapes are no JSON list such as [{"nodes":10,"free":{"cpu":"1"}}]: %w`, err)
	}
	if len(encoded) > MaxClasses {
		return nil, fmt.Errorf("there are %d free shapes, and at most %d are read", len(encoded), MaxClasses)
	}
	classes := make([]Class, 0, len(encoded))
	for _, class := range encoded {
		if class.Nodes < 1 || class.Nodes > maxNodes {
			return nil, fmt.Errorf("a free shape is that of %d nodes: want a number from 1 to %d", class.Nodes, maxNodes)
		}
		classes = append(classes, Class{Free: slice.Of(class.Free), Nodes: class.Nodes})
	}
	return classes, nil
}

// Classes returns the classes of nodes that offer these amounts, the number of pods aside, largest first. There are at
// most so many: where there would be more, nodes that offer nearly the same count as the least of what they offer, so
// that they promise too little, and never too much. A node that offers nothing, or no pod, is in no class.
func Classes(offered []slice.Amounts, most int) []Class {
	byText := map[string]*Class{}
	for _, amounts := range offered {
		if amounts[corev1.ResourcePods] == 0 {
			continue
		}
		free := maps.Clone(amounts)
		delete(free, corev1.ResourcePods)
		text := free.Key()
		if text == "" {
			continue
		}
		if byText[text] == nil {
			byText[text] = &Class{Free: free}
		}
		byText[text].Nodes++
	}
	classes := make([]Class, 0, len(byText))
	for _, text := range slices.Sorted(maps.Keys(byText)) {
		classes = append(classes, *byText[text])
	}
	if len(classes) > most {
		classes = merge(classes, most)
	}
	slices.SortFunc(classes, func(a, b Class) int { return Compare(a.Free, b.Free) })
	return classes
}

// Compare orders amounts by what is hardest to place: those with devices first, then by cpu and by memory, the largest
// first. It is 0 for equal amounts only.
func Compare(a, b slice.Amounts) int {
	order := cmp.Or(
		cmp.Compare(devices(b), devices(a)),
		cmp.Compare(b[corev1.ResourceCPU], a[corev1.ResourceCPU]),
		cmp.Compare(b[corev1.ResourceMemory], a[corev1.ResourceMemory]),
	)
	if order != 0 || maps.Equal(a, b) {
		return order
	}
	return cmp.Compare(b.Key(), a.Key())
}

// devices returns how many pieces of extended resources amounts hold, at most math.MaxInt64.
func devices(amounts slice.Amounts) (sum int64) {
	for name, amount := range amounts {
		if slice.IsExtended(name) {
			sum += min(amount, math.MaxInt64-sum)
		}
	}
	return sum
}

// merge replaces classes by at most so many: it splits all nodes again and again where that raises most what they
// promise, in proportion to what all of them offer, and takes the least of each part.
func merge(classes []Class, most int) []Class {
	names := namesOf(classes)
	rows := make([]class, 0, len(classes))
	totals := make([]float64, len(names))
	for _, c := range classes {
		row := class{free: vectorOf(c.Free, names), nodes: c.Nodes}
		for i, amount := range row.free {
			totals[i] += float64(amount) * float64(c.Nodes)
		}
		rows = append(rows, row)
	}
	parts := []part{split(rows, totals)}
	for len(parts) < most {
		best := 0
		for i := range parts {
			if parts[i].gain > parts[best].gain {
				best = i
			}
		}
		if parts[best].gain == 0 {
			break
		}
		lower, upper := parts[best].rows[:parts[best].at], parts[best].rows[parts[best].at:]
		parts[best] = split(lower, totals)
		parts = append(parts, split(upper, totals))
	}
	merged := make([]Class, 0, len(parts))
	for _, p := range parts {
		if least := p.least(names); len(least.Free) > 0 {
			merged = append(merged, least)
		}
	}
	return merged
}

// part is a number of classes, and where to split them.
type part struct {
	rows []class
	// at splits rows, and gain is how much more the nodes promise then, 0 if all are equal.
	at   int
	gain float64
}

// split returns rows in the order in which they are to be split. Taken as one, all of them offer what the least of them
// does; with a split at the i-th in the order of one resource, those from there on offer what the i-th does.
func split(rows []class, totals []float64) part {
	best := part{rows: rows}
	for r, total := range totals {
		if !slices.ContainsFunc(rows, func(row class) bool { return row.free[r] != rows[0].free[r] }) {
			continue
		}
		ordered := slices.Clone(rows)
		slices.SortFunc(ordered, func(a, b class) int { return cmp.Compare(a.free[r], b.free[r]) })
		above := int64(0)
		for _, row := range ordered {
			above += row.nodes
		}
		at, gain := 0, 0.0
		for i := 1; i < len(ordered); i++ {
			above -= ordered[i-1].nodes
			if g := float64(above) * float64(ordered[i].free[r]-ordered[0].free[r]) / total; g > gain {
				at, gain = i, g
			}
		}
		if gain > best.gain {
			best = part{rows: ordered, at: at, gain: gain}
		}
	}
	return best
}

// least returns the class of all nodes of a part.
func (p *part) least(names []corev1.ResourceName) Class {
	least := Class{Free: slice.Amounts{}}
	for _, row := range p.rows {
		least.Nodes += row.nodes
	}
	for i, name := range names {
		amount := p.rows[0].free[i]
		for _, row := range p.rows {
			amount = min(amount, row.free[i])
		}
		if amount > 0 {
			least.Free[name] = amount
		}
	}
	return least
}

// namesOf returns the resources of classes in alphabetical order.
func namesOf(classes []Class) []corev1.ResourceName {
	all := slice.Amounts{}
	for _, c := range classes {
		maps.Copy(all, c.Free)
	}
	return all.Names()
}

func vectorOf(amounts slice.Amounts, names []corev1.ResourceName) []int64 {
	vector := make([]int64, len(names))
	for i, name := range names {
		vector[i] = amounts[name]
	}
	return vector
}
