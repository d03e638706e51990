package freenodes_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/superpool/superpool/internal/freenodes"
	"github.com/superpool/superpool/internal/slice"
)

func nodes(count, cpu, memory int64) freenodes.Class {
	return freenodes.Class{Nodes: count, Free: of(cpu, memory)}
}

func of(cpu, memory int64) slice.Amounts {
	amounts := slice.Amounts{}
	if cpu > 0 {
		amounts["cpu"] = cpu
	}
	if memory > 0 {
		amounts["memory"] = memory
	}
	return amounts
}

func run(count, cpu, memory int64) slice.Run { return slice.Run{Size: of(cpu, memory), Count: count} }

func placed(runs ...slice.Run) *freenodes.Placed {
	p := &freenodes.Placed{}
	p.Add(freenodes.RunsOf(runs), 1)
	return p
}

// room returns how many more slices of a size can be packed beside placed.
func room(classes []freenodes.Class, runs []slice.Run, size slice.Amounts) (count int) {
	all := freenodes.NewNodes(classes)
	for all.Without(placed(append(slices.Clone(runs), slice.Run{Size: size, Count: int64(count)})...)).Holds(size) {
		count++
	}
	return count
}

func TestRoom(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		nodes  []freenodes.Class
		placed []slice.Run
		size   slice.Amounts
		want   int
	}{
		{name: "no node", size: of(1, 0)},
		{name: "10 nodes of 1 hold no slice of 2", nodes: []freenodes.Class{nodes(10, 1, 0)}, size: of(2, 0)},
		{name: "10 nodes of 3 hold 10 slices of 2", nodes: []freenodes.Class{nodes(10, 3, 0)}, size: of(2, 0), want: 10},
		{name: "and 3 of 1 a node", nodes: []freenodes.Class{nodes(10, 3, 0)}, size: of(1, 0), want: 30},
		{name: "each resource bounds", nodes: []freenodes.Class{nodes(2, 8, 3), nodes(1, 2, 9)}, size: of(2, 2), want: 3},
		{name: "a resource that no node has", nodes: []freenodes.Class{nodes(2, 8, 0)}, size: of(1, 1)},
		{name: "placed ones take room", nodes: []freenodes.Class{nodes(2, 4, 0)}, placed: []slice.Run{run(1, 3, 0)}, size: of(2, 0), want: 2},
		{name: "small ones fill gaps", nodes: []freenodes.Class{nodes(2, 4, 0)}, placed: []slice.Run{run(1, 3, 0), run(1, 1, 0)}, size: of(4, 0), want: 1},
		{name: "small ones are on small nodes", nodes: []freenodes.Class{nodes(1, 8, 0), nodes(1, 4, 0)}, placed: []slice.Run{run(1, 4, 0)}, size: of(8, 0), want: 1},
		{
			name:  "a large one is packed before those that are placed",
			nodes: []freenodes.Class{nodes(1, 5, 0), nodes(1, 6, 0)}, placed: []slice.Run{run(2, 3, 0)}, size: of(5, 0), want: 1,
		},
		{name: "a placed one that fits no node takes its sum", nodes: []freenodes.Class{nodes(4, 2, 0)}, placed: []slice.Run{run(1, 4, 0)}, size: of(2, 0), want: 2},
		{name: "and stops nothing that fits beside it", nodes: []freenodes.Class{nodes(100, 2, 0)}, placed: []slice.Run{run(1, 4, 0)}, size: of(2, 0), want: 98},
		{name: "placed with what no node has", nodes: []freenodes.Class{nodes(2, 2, 0)}, placed: []slice.Run{{Size: slice.Amounts{"cpu": 2, "x/y": 1}, Count: 1}}, size: of(1, 0), want: 2},
		{
			name:   "devices keep their nodes",
			nodes:  []freenodes.Class{{Nodes: 1, Free: slice.Amounts{"cpu": 4, "x/gpu": 2}}, nodes(2, 4, 0)},
			placed: []slice.Run{run(2, 4, 0)}, size: slice.Amounts{"cpu": 1, "x/gpu": 1}, want: 2,
		},
		{name: "pods do not count", nodes: []freenodes.Class{nodes(1, 4, 0)}, placed: []slice.Run{{Size: slice.Amounts{"pods": 20}, Count: 9}}, size: of(4, 0), want: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, room(tc.nodes, tc.placed, tc.size))
		})
	}
}

// TestRoomPromisesWhatCanBePacked: slices that were granted one after the other, of random sizes, fit onto the nodes,
// found out by a search through all ways to put them there.
func TestRoomPromisesWhatCanBePacked(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(4, 15))
	granted, refused, wrong := 0, 0, 0
	for range 2_000 {
		var classes []freenodes.Class
		var free []slice.Amounts
		for range 1 + random.IntN(3) {
			class := nodes(1+random.Int64N(2), 1+random.Int64N(6), 1+random.Int64N(6))
			classes = append(classes, class)
			for range class.Nodes {
				free = append(free, class.Free)
			}
		}
		all, p := freenodes.NewNodes(classes), &freenodes.Placed{}
		var sizes []slice.Amounts
		for range 8 {
			size := of(1+random.Int64N(4), 1+random.Int64N(4))
			if !all.Without(p).Holds(size) {
				refused++
				continue
			}
			granted++
			p.Add(freenodes.RunsOf([]slice.Run{{Size: size, Count: 1}}), 1)
			sizes = append(sizes, size)
			if !packs(free, sizes) {
				wrong++
				break
			}
		}
	}
	require.Greater(t, granted, 1_000)
	require.Less(t, wrong, granted/1_000, "what is placed can be packed, but this packing does not find out how")
	require.Greater(t, refused, 1_000)
}

// packs searches all ways to put sizes on nodes.
func packs(free, sizes []slice.Amounts) bool {
	if len(sizes) == 0 {
		return true
	}
	for i, node := range free {
		if sizes[0].Fits(node) {
			next := slices.Clone(free)
			next[i] = node.Minus(sizes[0])
			if packs(next, sizes[1:]) {
				return true
			}
		}
	}
	return false
}

// TestPlacedIsASum checks that what was added and taken back leaves no trace.
func TestPlacedIsASum(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	all := freenodes.NewNodes([]freenodes.Class{nodes(40, 7, 9), nodes(3, 20, 2)})
	p := &freenodes.Placed{}
	var here []slice.Run
	for range 3_000 {
		if len(here) > 0 && random.IntN(2) == 0 {
			i := random.IntN(len(here))
			p.Add(freenodes.RunsOf(here[i:i+1]), -1)
			here = slices.Delete(here, i, i+1)
		} else {
			here = append(here, run(1+random.Int64N(3), random.Int64N(5), 1+random.Int64N(5)))
			p.Add(freenodes.RunsOf(here[len(here)-1:]), 1)
		}
		size := of(1+random.Int64N(4), 1)
		require.Equal(t, all.Without(placed(here...)).Holds(size), all.Without(p).Holds(size))
	}
}

// TestManySizes: a tenant may name as many slice sizes as it has namespaces.
func TestManySizes(t *testing.T) {
	t.Parallel()
	var runs []slice.Run
	for i := range int64(1000) {
		runs = append(runs, run(1, 1000+i, 0))
	}
	classes := []freenodes.Class{nodes(1050, 2000, 0)}
	require.Equal(t, 50, room(classes, runs, of(2000, 0)))
	require.False(t, freenodes.NewNodes([]freenodes.Class{nodes(400, 2000, 0)}).Without(placed(runs...)).Holds(of(1000, 0)))
	huge := slice.Run{Size: of(slice.MaxAmount, slice.MaxAmount), Count: 1 << 32}
	require.False(t, freenodes.NewNodes(classes).Without(placed(append(runs, huge)...)).Holds(of(2001, 0)))
}

func TestClasses(t *testing.T) {
	t.Parallel()
	offered := []slice.Amounts{
		{"cpu": 2, "memory": 8, "pods": 110},
		{"cpu": 4, "memory": 1, "pods": 9},
		{"cpu": 2, "memory": 8, "pods": 1},
		{"cpu": 9, "memory": 9},
		{"pods": 110},
		nil,
		{"cpu": 1, "x/gpu": 1, "pods": 1},
	}
	want := []freenodes.Class{{Nodes: 1, Free: slice.Amounts{"cpu": 1, "x/gpu": 1}}, nodes(1, 4, 1), nodes(2, 2, 8)}
	require.Empty(t, cmp.Diff(want, freenodes.Classes(offered, freenodes.MaxClasses)), "a node that takes no pod offers nothing")
	require.Empty(t, freenodes.Classes(nil, freenodes.MaxClasses))
}

// TestClassesThatAreMergedPromiseTooLittle, and not much too little.
func TestClassesThatAreMergedPromiseTooLittle(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	for _, count := range []int{65, 200, 1000} {
		var offered []slice.Amounts
		sum := slice.Amounts{}
		for range count {
			amounts := slice.Amounts{"cpu": 1000 + random.Int64N(64_000), "memory": 1<<30 + random.Int64N(256<<30), "pods": 1 + random.Int64N(110)}
			offered = append(offered, amounts)
			sum = sum.Plus(amounts)
		}
		classes := freenodes.Classes(offered, freenodes.MaxClasses)
		require.Len(t, classes, freenodes.MaxClasses)
		promised, all := slice.Amounts{}, int64(0)
		for _, class := range classes {
			promised, all = promised.Plus(class.Free.Times(class.Nodes)), all+class.Nodes
			fits := int64(0)
			for _, amounts := range offered {
				if class.Free.Fits(amounts) {
					fits++
				}
			}
			require.GreaterOrEqual(t, fits, class.Nodes, "so many nodes offer that")
		}
		require.Equal(t, int64(count), all)
		for name, amount := range promised {
			require.Greater(t, float64(amount)/float64(sum[name]), 0.8, "%s of %d nodes", name, count)
		}
		slices.Reverse(offered)
		require.Empty(t, cmp.Diff(classes, freenodes.Classes(offered, freenodes.MaxClasses)), "the order of nodes does not matter")
	}
	near := make([]slice.Amounts, 500)
	for i := range near {
		near[i] = slice.Amounts{"cpu": 8000, "memory": 32<<30 - int64(i)<<12, "pods": 110}
	}
	require.Greater(t, freenodes.Classes(near, 2)[1].Free["memory"], int64(31<<30), "nodes that are nearly equal lose next to nothing")
}

func TestDecode(t *testing.T) {
	t.Parallel()
	classes := []freenodes.Class{{Nodes: 10, Free: slice.Amounts{"cpu": 1500, "memory": 4 << 30, "x/gpu": 1}}, nodes(1, 1, 0)}
	text := freenodes.Encode(classes)
	require.JSONEq(t, `[{"nodes":10,"free":{"cpu":"1500m","memory":"4Gi","x/gpu":"1"}},{"nodes":1,"free":{"cpu":"1m"}}]`, text)
	got, err := freenodes.Decode(text)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(classes, got))
	require.Equal(t, "[]", freenodes.Encode(nil))
	for name, tc := range map[string]struct{ text, want string }{
		"no JSON":        {`[{`, "no JSON list"},
		"no list":        {`{"nodes":1}`, "no JSON list"},
		"no quantity":    {`[{"nodes":1,"free":{"cpu":"one"}}]`, "no JSON list"},
		"no nodes":       {`[{"free":{"cpu":"1"}}]`, "of 0 nodes"},
		"negative nodes": {`[{"nodes":-1,"free":{"cpu":"1"}}]`, "of -1 nodes"},
		"too many nodes": {`[{"nodes":9000000,"free":{"cpu":"1"}}]`, "of 9000000 nodes"},
		"too many":       {"[" + strings.Repeat(`{"nodes":1},`, freenodes.MaxClasses) + `{"nodes":1}]`, "there are 65 free shapes"},
		"endless":        {strings.Repeat(" ", 1<<18) + "[]", "longer than"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := freenodes.Decode(tc.text)
			require.ErrorContains(t, err, tc.want)
		})
	}
}

// FuzzDecode: whatever an operator wrote there is refused, or can be packed onto.
func FuzzDecode(f *testing.F) {
	f.Add(`[{"nodes":10,"free":{"cpu":"1","memory":"4Gi"}},{"nodes":1,"free":{"x/gpu":"1"}}]`, int64(500), int64(1), int64(3))
	f.Add(`[{"nodes":1048576,"free":{"cpu":"1e99","memory":"-1"}}]`, int64(1), int64(0), int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, text string, cpu, memory, count int64) {
		classes, err := freenodes.Decode(text)
		if err != nil {
			return
		}
		again, err := freenodes.Decode(freenodes.Encode(classes))
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(classes, again))
		if cpu < 0 || memory < 0 || count < 1 || cpu+memory <= 0 {
			return
		}
		size := of(min(cpu, slice.MaxAmount), min(memory, slice.MaxAmount))
		all := freenodes.NewNodes(classes)
		holds := all.Without(placed(slice.Run{Size: size, Count: min(count, 1<<32)})).Holds(size)
		require.True(t, !holds || all.Holds(size))
		fits := false
		for _, class := range classes {
			fits = fits || size.Fits(class.Free)
		}
		require.Equal(t, fits, all.Holds(size))
	})
}

func BenchmarkRoom(b *testing.B) {
	for _, sizes := range []int{1, 8, 1000} {
		b.Run(fmt.Sprintf("classes=%d/sizes=%d", freenodes.MaxClasses, sizes), func(b *testing.B) {
			var classes []freenodes.Class
			for i := range int64(freenodes.MaxClasses) {
				classes = append(classes, nodes(100, 64_000+i, 256<<30))
			}
			var runs []slice.Run
			for i := range int64(sizes) {
				runs = append(runs, run(1000, 100+i, 100<<20))
			}
			all, p := freenodes.NewNodes(classes), placed(runs...)
			for b.Loop() {
				all.Without(p).Holds(of(2000, 4<<30))
			}
		})
	}
}

func BenchmarkClasses(b *testing.B) {
	for _, count := range []int{100, 1000, 5000} {
		b.Run(fmt.Sprintf("nodes=%d", count), func(b *testing.B) {
			random := rand.New(rand.NewPCG(5, 6))
			offered := make([]slice.Amounts, count)
			for i := range offered {
				offered[i] = slice.Amounts{"cpu": random.Int64N(64_000), "memory": random.Int64N(256 << 30), "ephemeral-storage": 1 << 40, "pods": 110}
			}
			for b.Loop() {
				freenodes.Classes(offered, freenodes.MaxClasses)
			}
		})
	}
}
