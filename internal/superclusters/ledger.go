package superclusters

import (
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/superpool/superpool/internal/slice"
)

// Ledger adds up what a super cluster can hold for tenants:
//
//	offered = Σ over counted nodes of max(0, allocatable − requests of foreign pods on it)   (per resource)
//
// A node is counted when it is Ready, schedulable and free of NoSchedule and NoExecute taints. A foreign pod is one
// that the pool did not make. An event changes one node's term only, so its cost does not grow with the cluster.
//
// All methods are safe for concurrent use.
type Ledger struct {
	mu     sync.Mutex
	nodes  map[string]nodeEntry
	pods   map[types.UID]podEntry
	used   map[string]slice.Amounts // by node name; also of nodes not seen yet
	total  slice.Amounts
	shapes map[string]shapeEntry // by the text of the amounts
}

type nodeEntry struct {
	counted     bool
	allocatable slice.Amounts
	offered     slice.Amounts
	region      string
	zone        string
}

type podEntry struct {
	node     string
	requests slice.Amounts
}

type shapeEntry struct {
	amounts slice.Amounts
	nodes   int
}

// Capacity is the sum over a whole cluster at one moment.
type Capacity struct {
	// Offered is the sum over all counted nodes, before headroom.
	Offered slice.Amounts
	// Shapes are the allocatables that no other node of the cluster exceeds, see Shapes.
	Shapes []slice.Amounts
	// Nodes is the number of counted nodes, AllNodes that of all.
	Nodes, AllNodes int
	// Region and Zone are the topology labels that all counted nodes share, else "".
	Region, Zone string
}

// NewLedger returns an empty ledger.
func NewLedger() *Ledger {
	return &Ledger{
		nodes:  map[string]nodeEntry{},
		pods:   map[types.UID]podEntry{},
		used:   map[string]slice.Amounts{},
		total:  slice.Amounts{},
		shapes: map[string]shapeEntry{},
	}
}

// SetNode records a node, new or changed. It returns whether the cluster's Capacity may have changed.
func (l *Ledger) SetNode(node *corev1.Node) bool {
	entry := nodeEntry{
		counted:     Counted(node),
		allocatable: slice.Of(node.Status.Allocatable),
		region:      node.Labels[corev1.LabelTopologyRegion],
		zone:        node.Labels[corev1.LabelTopologyZone],
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	old, exists := l.nodes[node.Name]
	if exists && old.counted == entry.counted && old.region == entry.region && old.zone == entry.zone &&
		maps.Equal(old.allocatable, entry.allocatable) {
		return false
	}
	l.dropLocked(old)
	entry.offered = Contribution(entry.counted, entry.allocatable, l.used[node.Name])
	l.nodes[node.Name] = entry
	l.addLocked(entry)
	return true
}

// DeleteNode forgets a node. Its pods stay recorded until they are deleted.
func (l *Ledger) DeleteNode(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	old, exists := l.nodes[name]
	if !exists {
		return false
	}
	l.dropLocked(old)
	delete(l.nodes, name)
	return true
}

// SetPod records a foreign pod, new or changed. It returns whether the cluster's Capacity may have changed.
func (l *Ledger) SetPod(pod *corev1.Pod) bool {
	if pod.Spec.NodeName == "" {
		return l.DeletePod(pod.UID)
	}
	entry := podEntry{node: pod.Spec.NodeName, requests: slice.Taken(pod, slice.Reading{Pods: true})}
	l.mu.Lock()
	defer l.mu.Unlock()
	old, exists := l.pods[pod.UID]
	if exists && old.node == entry.node && maps.Equal(old.requests, entry.requests) {
		return false
	}
	changed := false
	if exists {
		changed = l.useLocked(old.node, old.requests, -1)
	}
	l.pods[pod.UID] = entry
	return l.useLocked(entry.node, entry.requests, 1) || changed
}

// DeletePod forgets a foreign pod.
func (l *Ledger) DeletePod(uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	old, exists := l.pods[uid]
	if !exists {
		return false
	}
	delete(l.pods, uid)
	return l.useLocked(old.node, old.requests, -1)
}

// Capacity returns the sums.
func (l *Ledger) Capacity() Capacity {
	l.mu.Lock()
	defer l.mu.Unlock()
	capacity := Capacity{Offered: slice.Amounts{}, AllNodes: len(l.nodes)}
	for name, amount := range l.total {
		if amount > 0 {
			capacity.Offered[name] = amount
		}
	}
	for _, node := range l.nodes {
		if !node.counted {
			continue
		}
		if capacity.Nodes == 0 {
			capacity.Region, capacity.Zone = node.region, node.zone
		}
		if capacity.Region != node.region {
			capacity.Region = ""
		}
		if capacity.Zone != node.zone {
			capacity.Zone = ""
		}
		capacity.Nodes++
	}
	amounts := make([]slice.Amounts, 0, len(l.shapes))
	for _, key := range slices.Sorted(maps.Keys(l.shapes)) {
		amounts = append(amounts, l.shapes[key].amounts)
	}
	capacity.Shapes = Shapes(amounts)
	return capacity
}

// useLocked adds sign times requests to what is used on a node. It returns whether what the node offers has changed.
func (l *Ledger) useLocked(name string, requests slice.Amounts, sign int64) bool {
	used := l.used[name]
	if used == nil {
		used = slice.Amounts{}
		l.used[name] = used
	}
	for resource, amount := range requests {
		if used[resource] += sign * amount; used[resource] == 0 {
			delete(used, resource)
		}
	}
	if len(used) == 0 {
		delete(l.used, name)
	}
	node, exists := l.nodes[name]
	if !exists || !node.counted {
		return false
	}
	for resource, amount := range node.offered {
		l.total[resource] -= amount
	}
	node.offered = Contribution(true, node.allocatable, used)
	for resource, amount := range node.offered {
		l.total[resource] += amount
	}
	l.nodes[name] = node
	return true
}

func (l *Ledger) addLocked(node nodeEntry) {
	for resource, amount := range node.offered {
		l.total[resource] += amount
	}
	if !node.counted {
		return
	}
	key := node.allocatable.String()
	shape := l.shapes[key]
	l.shapes[key] = shapeEntry{amounts: node.allocatable, nodes: shape.nodes + 1}
}

func (l *Ledger) dropLocked(node nodeEntry) {
	for resource, amount := range node.offered {
		if l.total[resource] -= amount; l.total[resource] == 0 {
			delete(l.total, resource)
		}
	}
	if !node.counted {
		return
	}
	key := node.allocatable.String()
	shape := l.shapes[key]
	if shape.nodes--; shape.nodes <= 0 {
		delete(l.shapes, key)
		return
	}
	l.shapes[key] = shape
}

// Contribution returns what one node offers: allocatable minus used, never less than zero, and nothing when it is not
// counted.
func Contribution(counted bool, allocatable, used slice.Amounts) slice.Amounts {
	if !counted {
		return nil
	}
	return allocatable.Minus(used)
}

// Counted returns whether a node takes ordinary pods: it is Ready, not cordoned and bears no taint that keeps pods
// away.
func Counted(node *corev1.Node) bool {
	if node.Spec.Unschedulable {
		return false
	}
	for i := range node.Spec.Taints {
		if effect := node.Spec.Taints[i].Effect; effect == corev1.TaintEffectNoSchedule || effect == corev1.TaintEffectNoExecute {
			return false
		}
	}
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == corev1.NodeReady {
			return node.Status.Conditions[i].Status == corev1.ConditionTrue
		}
	}
	return false
}
