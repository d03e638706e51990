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

// class is a Class with Free by index in names, or so many slices of a size.
type class struct {
	free  []int64
	nodes int64
	// weight is the sum of the shares of what all nodes offer. Meaningless in merge.
	weight float64
	// nowhere is whether a slice requests what no node offers.
	nowhere bool
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
		n.insert(n.class(vectorOf(c.Free, names), c.Nodes))
	}
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

// Holds reports whether a slice of that size, which names no pods, fits a node on which nothing is placed.
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
	// whole is whether each placed slice was packed.
	whole bool
}

// Without packs slices onto the nodes: the largest ones first, each on the fullest node that has room for it. A slice
// for which none is found takes its amounts in pieces, since its pods run somewhere. placed must not be changed while
// the Room is in use.
func (n *Nodes) Without(placed *Placed) *Room {
	items := n.items(placed)
	left, rest := n.pack(items)
	if len(rest) > 0 {
		// The order of Compare is a guess. On these nodes another resource may be the scarce one.
		slices.SortStableFunc(items, func(a, b class) int { return cmp.Compare(b.weight, a.weight) })
		if again, unpacked := n.pack(items); len(unpacked) == 0 {
			left, rest = again, nil
		}
	}
	for _, item := range rest {
		left.placeInPieces(item.free, item.nodes)
	}
	return &Room{nodes: n, left: left, placed: placed, whole: len(rest) == 0}
}

// items returns what is placed as classes: so many slices as nodes, of a size as free.
func (n *Nodes) items(placed *Placed) []class {
	items := make([]class, 0, min(len(placed.runs), maxSizes))
	for i, run := range placed.runs {
		if i == maxSizes-1 && len(placed.runs) > maxSizes {
			return append(items, n.class(n.average(placed.runs[i:])))
		}
		size, known := n.vector(run.size)
		item := n.class(size, run.count)
		item.nowhere = !known
		items = append(items, item)
	}
	return items
}

// pack places items in their order. It returns what nodes have left, and the items that found no node.
func (n *Nodes) pack(items []class) (left *Nodes, rest []class) {
	left = &Nodes{names: n.names, totals: n.totals, classes: slices.Clone(n.classes)}
	for _, item := range items {
		if !item.nowhere {
			item.nodes = left.place(item.free, item.nodes)
		}
		if item.nodes > 0 {
			rest = append(rest, item)
		}
	}
	return left, rest
}

// Holds reports whether one more slice of that size, which names no pods, can be packed. It may be false where a better
// packing than this one exists.
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
	if len(used) > 0 {
		n.classes = slices.DeleteFunc(n.classes, func(c class) bool { return c.nodes == 0 })
	}
	for _, c := range used {
		n.insert(c)
	}
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

// insert adds a class at its place, or its nodes to an equal one. One that offers nothing is left out.
func (n *Nodes) insert(c class) {
	if c.weight == 0 {
		return
	}
	at, found := slices.BinarySearchFunc(n.classes, c, func(a, b class) int {
		return cmp.Or(cmp.Compare(a.weight, b.weight), slices.Compare(a.free, b.free))
	})
	if found {
		n.classes[at].nodes += c.nodes
		return
	}
	n.classes = slices.Insert(n.classes, at, c)
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

// vector returns a size by index in names, and whether it requests nothing else.
func (n *Nodes) vector(size slice.Amounts) (vector []int64, known bool) {
	vector = make([]int64, len(n.names))
	found := 0
	for i, name := range n.names {
		if amount, exists := size[name]; exists {
			vector[i] = amount
			found++
		}
	}
	return vector, found == len(size)
}

// average returns the average size of slices, rounded down, without what no node offers, and their number.
func (n *Nodes) average(runs []*Run) (size []int64, count int64) {
	size = make([]int64, len(n.names))
	for _, run := range runs {
		count = plus(count, run.count)
		vector, _ := n.vector(run.size)
		for j, amount := range vector {
			if amount > 0 && run.count > math.MaxInt64/amount {
				size[j] = math.MaxInt64
				continue
			}
			size[j] = plus(size[j], amount*run.count)
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
