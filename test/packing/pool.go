package packing

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/freenodes"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/test/builders"
)

// Pool is super clusters of equal empty nodes.
type Pool struct {
	SuperClusters, Nodes int
	// Node is what each node offers, and Pods how many pods it may run.
	Node Size
	Pods int64
}

// DefaultPool is ten super clusters of 16 nodes. Nodes have 32 cores and 128 GiB, of which GKE's formula, from memory,
// leaves as much to pods, and run 110 pods, as kubelets do by default.
func DefaultPool() Pool {
	return Pool{SuperClusters: 10, Nodes: 16, Node: Size{CPU: 31850, Memory: 118 << 10}, Pods: 110}
}

// Capacity returns what all nodes offer.
func (p *Pool) Capacity() Size {
	nodes := int64(p.SuperClusters * p.Nodes)
	return Size{CPU: nodes * p.Node.CPU, Memory: nodes * p.Node.Memory}
}

// virtualNodes returns what the namespace scheduler sees of the pool. With wholeClusters it does not see nodes, and only
// the sums count.
func (p *Pool) virtualNodes(wholeClusters bool) (nodes []*corev1.Node) {
	offered := p.offered().List()
	for i := range p.SuperClusters {
		node := builders.VirtualNode(superCluster(i)).Obj()
		node.Status.Capacity, node.Status.Allocatable = offered, offered
		if !wholeClusters {
			node.Annotations = map[string]string{
				schedulerv1alpha1.AnnotationFreeShapes: freenodes.Encode([]freenodes.Class{{Nodes: int64(p.Nodes), Free: p.Node.amounts()}}),
			}
		}
		nodes = append(nodes, node)
	}
	return nodes
}

// offered returns what the nodes of one super cluster offer.
func (p *Pool) offered() slice.Amounts {
	return p.Node.amounts().Plus(slice.Amounts{corev1.ResourcePods: p.Pods}).Times(int64(p.Nodes))
}

func superCluster(i int) string { return fmt.Sprintf("r%02d", i) }

// machines are the nodes of one super cluster, or of all.
type machines struct{ free []machine }

type machine struct {
	Size
	pods int64
}

func (p *Pool) machines(count int) *machines {
	return &machines{free: slices.Repeat([]machine{{Size: p.Node, pods: p.Pods}}, count)}
}

func (m *machine) fits(pod Size) bool {
	return m.pods > 0 && m.CPU >= pod.CPU && m.Memory >= pod.Memory
}

func (m *machine) take(pod Size) {
	m.pods--
	m.CPU -= pod.CPU
	m.Memory -= pod.Memory
}

// firstFit places a pod on the first node that has room, and returns whether one has.
func (m *machines) firstFit(pod Size) bool {
	at := slices.IndexFunc(m.free, func(node machine) bool { return node.fits(pod) })
	if at >= 0 {
		m.free[at].take(pod)
	}
	return at >= 0
}

// spread places a pod where most is free, as kube-scheduler does by default, and returns whether a node has room. All
// nodes are equal, so that the parts of what is free compare as these sums do.
func (m *machines) spread(pod Size, whole Size) bool {
	best := -1
	for i := range m.free {
		if m.free[i].fits(pod) && (best < 0 || share(m.free[i].Size, whole) > share(m.free[best].Size, whole)) {
			best = i
		}
	}
	if best >= 0 {
		m.free[best].take(pod)
	}
	return best >= 0
}

// share returns the mean part of whole that a part is, over both resources.
func share(part, whole Size) float64 {
	return (ratio(part.CPU, whole.CPU) + ratio(part.Memory, whole.Memory)) / 2
}

func ratio(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}
