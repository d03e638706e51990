package freenodes

import (
	"cmp"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/superpool/superpool/internal/slice"
)

const (
	// maxSizes is how many sizes of slices are packed one by one. The smallest of more are packed as so many slices of
	// their average.
	maxSizes = 32
	// maxPieces is into how many pieces a placed slice is cut that fits no node any more.
	maxPieces = 32
)

// Nodes are the nodes of a super cluster in classes. They are never changed once they were made.
type Nodes struct {
	// names are the resources that any node offers, in alphabetical order.
	names []corev1.ResourceName
	// totals are what all of them offer, by index in names.
	totals []float64
	// classes are those of nodes that offer anything, the fullest first.
	classes []class
}

// class is a Class with Free by index in names.
type class struct {
	free  []int64
	nodes int64
	// weight orders classes: the sum of the shares of what all nodes offer. Meaningless in merge.
	weight float64
}

// NewNodes returns the nodes of classes.
func NewNodes(classes []Class) *Nodes {
	names := namesOf(classes)
	n := &Nodes{names: names, totals: make([]float64, len(names))}
	for _, c := range classes {
		for i, name := range names {
			n.totals[i] += float64(c.Free[name]) * float64(c.Nodes)
		}
	}
	for _, c := range classes {
		n.classes = append(n.classes, n.class(vectorOf(c.Free, names), c.Nodes))
	}
	n.settle()
	return n
}

// Largest returns the most that any single node offers of each resource.
func (n *Nodes) Largest() slice.Amounts {
	largest := slice.Amounts{}
	for i, name := range n.names {
		for _, c := range n.classes {
			if c.free[i] > largest[name] {
				largest[name] = c.free[i]
			}
		}
	}
	return largest
}

// Holds reports whether a slice of that size fits a node on which nothing is placed. Pods do not count.
func (n *Nodes) Holds(size slice.Amounts) bool {
	vector, known := n.vector(size)
	return known && n.holds(vector)
}

func (n *Nodes) holds(size []int64) bool {
	for i := range n.classes {
		if times(size, n.classes[i].free) > 0 {
			return true
		}
	}
	return false
}

// Room is what nodes have left beside slices that are placed on them.
type Room struct {
	nodes, left *Nodes
	placed      *Placed
	// whole is whether each placed slice fits a node.
	whole bool
}

// Without packs slices onto the nodes: the largest ones first, each on the fullest node that has room for it. A slice
// that fits no node any more takes its amounts in pieces, since its pods run somewhere. placed must not be changed while
// the Room is in use.
func (n *Nodes) Without(placed *Placed) *Room {
	room := &Room{nodes: n, placed: placed, whole: true}
	room.left = &Nodes{names: n.names, totals: n.totals, classes: slices.Clone(n.classes)}
	type rest struct {
		size  []int64
		count int64
	}
	var rests []rest
	for i := range placed.runs {
		size, known := n.vector(placed.runs[i].Size)
		count, last := placed.runs[i].Count, false
		if i == maxSizes-1 && len(placed.runs) > maxSizes {
			size, count = n.average(placed.runs[i:])
			known, last = true, true
		}
		if known {
			count = room.left.place(size, count)
		}
		if count > 0 {
			room.whole = false
			rests = append(rests, rest{size, count})
		}
		if last {
			break
		}
	}
	for _, r := range rests {
		room.left.placeInPieces(r.size, r.count)
	}
	return room
}

// Holds reports whether one more slice of that size can be packed, pods aside. It may be false where a better packing
// than this one exists.
func (r *Room) Holds(size slice.Amounts) bool {
	vector, known := r.nodes.vector(size)
	if !known {
		return false
	}
	if r.left.holds(vector) {
		return true
	}
	// A large slice is packed before small ones that are placed already.
	return r.whole && r.nodes.holds(vector) && r.nodes.Without(r.placed.with(size)).whole
}

// place packs slices of a size, and returns how many found no node.
func (n *Nodes) place(size []int64, count int64) int64 {
	var used []class
	for i := range n.classes {
		c := &n.classes[i]
		most := times(size, c.free)
		if most == 0 {
			continue
		}
		if full := min(c.nodes, count/most); full > 0 {
			used = append(used, n.class(minus(c.free, size, most), full))
			c.nodes -= full
			count -= full * most
		}
		if c.nodes > 0 && count > 0 { // they do not fill another node
			used = append(used, n.class(minus(c.free, size, count), 1))
			c.nodes--
			count = 0
		}
		if count == 0 {
			break
		}
	}
	n.classes = append(n.classes, used...)
	n.settle()
	return count
}

// placeInPieces takes the amounts of slices from the nodes, in halves, quarters and so on. What is smaller is left to
// the sum over all nodes, which kube-scheduler's own plugin checks.
func (n *Nodes) placeInPieces(size []int64, count int64) {
	for pieces := int64(2); pieces <= maxPieces && count > 0 && count < math.MaxInt64/2; pieces *= 2 {
		piece := make([]int64, len(size))
		for i, amount := range size {
			piece[i] = amount / pieces
		}
		count = n.place(piece, 2*count)
	}
}

// settle drops the classes that hold nothing, adds up equal ones and orders them.
func (n *Nodes) settle() {
	n.classes = slices.DeleteFunc(n.classes, func(c class) bool { return c.nodes == 0 || c.weight == 0 })
	slices.SortFunc(n.classes, func(a, b class) int {
		return cmp.Or(cmp.Compare(a.weight, b.weight), slices.Compare(a.free, b.free))
	})
	kept := n.classes[:0]
	for _, c := range n.classes {
		if last := len(kept) - 1; last >= 0 && slices.Equal(kept[last].free, c.free) {
			kept[last].nodes += c.nodes
			continue
		}
		kept = append(kept, c)
	}
	n.classes = kept
}

func (n *Nodes) class(free []int64, nodes int64) class {
	c := class{free: free, nodes: nodes}
	for i, amount := range free {
		if amount > 0 {
			c.weight += float64(amount) / n.totals[i]
		}
	}
	return c
}

// vector returns a size by index in names, and whether it requests nothing else but pods.
func (n *Nodes) vector(size slice.Amounts) (vector []int64, known bool) {
	vector = make([]int64, len(n.names))
	found := 0
	for i, name := range n.names {
		if amount, exists := size[name]; exists {
			vector[i] = amount
			found++
		}
	}
	if _, exists := size[corev1.ResourcePods]; exists {
		found++
	}
	return vector, found == len(size)
}

// average returns the average size of slices, rounded down, without what no node offers, and their number.
func (n *Nodes) average(runs []slice.Run) (size []int64, count int64) {
	size = make([]int64, len(n.names))
	for i := range runs {
		count = plus(count, runs[i].Count)
		vector, _ := n.vector(runs[i].Size)
		for j, amount := range vector {
			if amount > 0 && runs[i].Count > math.MaxInt64/amount {
				size[j] = math.MaxInt64
				continue
			}
			size[j] = plus(size[j], amount*runs[i].Count)
		}
	}
	for j := range size {
		size[j] /= count
	}
	return size, count
}

// times returns how often size fits free, math.MaxInt64 for nothing.
func times(size, free []int64) int64 {
	most := int64(math.MaxInt64)
	for i, amount := range size {
		if amount > 0 {
			if most = min(most, free[i]/amount); most == 0 {
				return 0
			}
		}
	}
	return most
}

// minus returns what is left of free without size so many times.
func minus(free, size []int64, count int64) []int64 {
	left := make([]int64, len(free))
	for i := range free {
		left[i] = free[i] - size[i]*count
	}
	return left
}

// plus returns a + b, at most math.MaxInt64. Neither is negative.
func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
