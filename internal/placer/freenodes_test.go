package placer

import (
	"fmt"
	"testing"

	"github.com/superpool/superpool/internal/freenodes"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/test/builders"
)

// ofNodes is a super cluster of so many nodes, with so many thousandths of a core free on each.
func (p *pool) ofNodes(name string, count, free int64) {
	p.t.Helper()
	classes := []freenodes.Class{{Nodes: count, Free: slice.Amounts{"cpu": free, "memory": 64 << 30}}}
	p.cluster(name, fmt.Sprintf("%dm", count*free), fmt.Sprintf("%dGi", 64*count), withFreeNodes(classes))
}

// askSlices is ask with slices of that size.
func (p *pool) askSlices(tenant, size, quotaCPU string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	np := builders.Placement(tenant, "web").UID(builders.UID(tenant)).Slice("cpu", size, "memory", "1Gi").Quota("cpu", quotaCPU, "memory", "1Gi").Obj()
	p.placements[tenant] = np
	p.project(tenant)
}

// TestPlacerPromisesNoSliceThatFitsNoNode: 10 free nodes of 1 CPU are no place for a slice of 2. 10 nodes of 3 are one
// for 10 of them, and for what fits beside them.
func TestPlacerPromisesNoSliceThatFitsNoNode(t *testing.T) {
	p := newPool(t)
	p.ofNodes("r1", 10, 1000)
	p.askSlices("two", "2", "2")
	p.wantRefused("two", "0/1 super clusters are available: 1 had no node with 2 cpu free")
	p.askSlices("one", "1", "2")
	p.wantPlaced("one", `{"r1":2}`)

	p.ofNodes("r2", 10, 3000)
	p.wantPlaced("two", `{"r2":1}`)
	p.askSlices("many", "2", "20")
	p.wantRefused("many", "had no node left, beside the slices placed there, with 2 cpu free")
	p.askSlices("fewer", "2", "18")
	p.wantPlaced("fewer", `{"r2":9}`)
	p.askSlices("small", "1", "18")
	p.wantPlaced("small", `{"r1":8,"r2":10}`)
	p.askSlices("another", "1", "1")
	p.wantRefused("another", "too little free for the namespace")
	p.remove("fewer")
	p.wantPlaced("many", "")
	p.wantPlaced("another", `{"r2":1}`)
}

// TestPlacerFollowsForeignPods: a pod that the pool did not make takes a node from slices, and gives it back.
func TestPlacerFollowsForeignPods(t *testing.T) {
	p := newPool(t)
	foreign := func(cpu int64) {
		classes := []freenodes.Class{{Nodes: 1, Free: slice.Amounts{"cpu": 4000 - cpu, "memory": 8 << 30}}, {Nodes: 1, Free: slice.Amounts{"cpu": 1500, "memory": 8 << 30}}}
		p.cluster("r1", fmt.Sprintf("%dm", 5500-cpu), "16Gi", withFreeNodes(classes))
	}
	foreign(2500)
	p.askSlices("web", "2", "2")
	p.wantRefused("web", "had no node with 2 cpu free")
	foreign(0)
	p.wantPlaced("web", `{"r1":1}`)
}

// TestPlacerTriesAGangWhenNodesChange: a slice that fitted was released for the sake of another one, which fits once
// the same sum is free on other nodes.
func TestPlacerTriesAGangWhenNodesChange(t *testing.T) {
	p := newPool(t)
	offers := func(classes ...freenodes.Class) { p.cluster("r1", "6", "64Gi", withFreeNodes(classes)) }
	memory := int64(16 << 30)
	offers(freenodes.Class{Nodes: 1, Free: slice.Amounts{"cpu": 3000, "memory": memory}}, freenodes.Class{Nodes: 3, Free: slice.Amounts{"cpu": 1000, "memory": memory}})
	p.askSlices("web", "2", "4")
	p.wantRefused("web", "had no node left, beside the slices placed there, with 2 cpu free")
	offers(freenodes.Class{Nodes: 2, Free: slice.Amounts{"cpu": 3000, "memory": memory}})
	p.wantPlaced("web", `{"r1":2}`)
}
