// Package usage counts what a super cluster offers, what its pods take of that, and what each namespace of a tenant
// uses there.
package usage

import (
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/superpool/superpool/internal/freenodes"
	"github.com/superpool/superpool/internal/nodegroups"
	"github.com/superpool/superpool/internal/slice"
)

// Ledger adds up what a super cluster can hold for tenants, and what they use of it:
//
//	offered   = Σ over counted nodes of max(0, allocatable − requests of foreign pods on it)   (per resource)
//	beyond    = Σ over tenant namespaces of max(0, may use − reserved)
//	committed = Σ over tenant namespaces of max(may use, reserved)
//
// A node is counted when it is Ready, schedulable and free of NoSchedule and NoExecute taints. A foreign pod is one
// that the pool did not make. What a namespace may use is the larger of what its pods and claims request, bound or not,
// and what its quota lets them request. An event changes the terms of one node or one namespace only, so its cost does
// not grow with the cluster.
//
// All methods are safe for concurrent use.
type Ledger struct {
	// Freed is called when pods or the quota of a namespace use less than before, or it has fewer claims, or its quota
	// is another or answers another decision, with the key of its NamespacePlacement and without any lock. nil: nobody
	// is told. Set it before the first event.
	Freed func(namespace types.NamespacedName)

	// Clock tells the time. NewLedger sets the real one.
	Clock clock.PassiveClock

	mu         sync.Mutex
	nodes      map[string]nodeEntry
	pods       map[types.UID]*PodRecord
	claims     map[types.UID]claimRecord
	used       map[string]slice.Amounts // by node name; also of nodes not seen yet
	total      slice.Amounts
	groups     string            // the text of nodegroups.Encode
	stale      bool              // whether groups is to be made anew
	free       []freenodes.Class // of the counted nodes, never changed
	freeStale  bool              // whether free is to be made anew
	namespaces map[types.NamespacedName]*namespaceEntry
	// beyond and committed are the sums over namespaces.
	beyond, committed slice.Amounts
}

type nodeEntry struct {
	counted     bool
	allocatable slice.Amounts
	offered     slice.Amounts
	labels      map[string]string // without the host name, not changed
	taints      []corev1.Taint    // see nodegroups.TaintsOf
}

// inGroup returns what decides to which group a node belongs.
func (e *nodeEntry) inGroup() nodegroups.Node {
	return nodegroups.Node{Labels: e.labels, Taints: e.taints, Allocatable: e.allocatable}
}

// Capacity is the sum over a whole cluster at one moment.
type Capacity struct {
	// Offered is the sum over all counted nodes, before headroom.
	Offered slice.Amounts
	// Beyond is what tenants use, or may use, beyond what is reserved for them: it can be reserved for nobody.
	Beyond slice.Amounts
	// Committed is what is reserved for tenants, or what they may use where that is more.
	Committed slice.Amounts
	// Groups are all nodes by their labels, taints and allocatables: the text of nodegroups.Encode, bounded by it.
	Groups string
	// Free is what the counted nodes offer one by one, before headroom. It must not be changed.
	Free []freenodes.Class
	// Nodes is the number of counted nodes, AllNodes that of all.
	Nodes, AllNodes int
	// Region and Zone are the topology labels that all counted nodes share, else "".
	Region, Zone string
}

// NewLedger returns an empty ledger.
func NewLedger() *Ledger {
	return &Ledger{
		Clock:      clock.RealClock{},
		nodes:      map[string]nodeEntry{},
		pods:       map[types.UID]*PodRecord{},
		claims:     map[types.UID]claimRecord{},
		used:       map[string]slice.Amounts{},
		total:      slice.Amounts{},
		stale:      true,
		freeStale:  true,
		namespaces: map[types.NamespacedName]*namespaceEntry{},
		beyond:     slice.Amounts{},
		committed:  slice.Amounts{},
	}
}

// SetNode records a node, new or changed. It returns whether the cluster's Capacity may have changed.
func (l *Ledger) SetNode(node *corev1.Node) bool {
	entry := nodeEntry{
		counted:     Counted(node),
		allocatable: slice.Of(node.Status.Allocatable),
		labels:      maps.Clone(node.Labels),
		taints:      nodegroups.TaintsOf(node),
	}
	delete(entry.labels, corev1.LabelHostname)
	l.mu.Lock()
	defer l.mu.Unlock()
	old, exists := l.nodes[node.Name]
	if exists && old.counted == entry.counted && maps.Equal(old.labels, entry.labels) &&
		slices.Equal(old.taints, entry.taints) && maps.Equal(old.allocatable, entry.allocatable) {
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

// SetPod records a pod that has not ended, new or changed. It returns whether the cluster's Capacity may have changed.
func (l *Ledger) SetPod(pod *corev1.Pod) bool { return l.SetRecord(recordOf(pod)) }

// SetRecord is SetPod for a record that TrimPod made.
func (l *Ledger) SetRecord(record *PodRecord) bool {
	l.mu.Lock()
	old, exists := l.pods[record.UID]
	if exists && old.counts(record) {
		l.pods[record.UID] = record // the informer has this one: the old one is garbage
		l.mu.Unlock()
		return false
	}
	l.pods[record.UID] = record
	return l.replacePod(old, record)
}

// DeletePod forgets a pod.
func (l *Ledger) DeletePod(uid types.UID) bool {
	l.mu.Lock()
	old, exists := l.pods[uid]
	if !exists {
		l.mu.Unlock()
		return false
	}
	delete(l.pods, uid)
	return l.replacePod(old, nil)
}

// replacePod counts current in the place of old, each nil for none, and unlocks.
func (l *Ledger) replacePod(old, current *PodRecord) (changed bool) {
	if old != nil && old.isForeign() {
		changed = l.useLocked(old, -1)
	}
	if current != nil && current.isForeign() {
		changed = l.useLocked(current, 1) || changed
	}
	var freed []types.NamespacedName
	if old != nil && current != nil && !old.isForeign() && old.owner == current.owner {
		changed, freed = l.changeLocked(old.owner.Value(), func(n *namespaceEntry) { old.add(n.requests, -1); current.add(n.requests, 1) })
	} else {
		for _, term := range []struct {
			record *PodRecord
			sign   int64
		}{{old, -1}, {current, 1}} {
			if term.record == nil || term.record.isForeign() {
				continue
			}
			moved, fell := l.changeLocked(term.record.owner.Value(), func(n *namespaceEntry) { term.record.add(n.requests, term.sign) })
			changed, freed = changed || moved, append(freed, fell...)
		}
	}
	l.mu.Unlock()
	l.tell(freed)
	return changed
}

// Capacity returns the sums.
func (l *Ledger) Capacity() Capacity {
	l.mu.Lock()
	defer l.mu.Unlock()
	capacity := Capacity{Offered: slice.Amounts{}, Beyond: maps.Clone(l.beyond), Committed: maps.Clone(l.committed), AllNodes: len(l.nodes)}
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
			capacity.Region, capacity.Zone = node.labels[corev1.LabelTopologyRegion], node.labels[corev1.LabelTopologyZone]
		}
		if capacity.Region != node.labels[corev1.LabelTopologyRegion] {
			capacity.Region = ""
		}
		if capacity.Zone != node.labels[corev1.LabelTopologyZone] {
			capacity.Zone = ""
		}
		capacity.Nodes++
	}
	capacity.Groups = l.groupsLocked()
	capacity.Free = l.freeLocked()
	return capacity
}

// groupsLocked returns all nodes by group. Like what is free, they are made here and not at each event; events of pods
// change nothing of them.
func (l *Ledger) groupsLocked() string {
	if l.stale {
		nodes := make([]nodegroups.Node, 0, len(l.nodes))
		for _, node := range l.nodes {
			nodes = append(nodes, node.inGroup())
		}
		l.groups, l.stale = nodegroups.Encode(nodegroups.Of(nodes)), false
	}
	return l.groups
}

// freeLocked returns what the counted nodes offer one by one. It is made here and not at each event: a virtual Node is
// compared with the ledger twice a second at most, and pods of tenants change nothing of it.
func (l *Ledger) freeLocked() []freenodes.Class {
	if l.freeStale {
		offered := make([]slice.Amounts, 0, len(l.nodes))
		for _, node := range l.nodes {
			offered = append(offered, node.offered)
		}
		l.free, l.freeStale = freenodes.Classes(offered, freenodes.MaxClasses), false
	}
	return l.free
}

// useLocked adds sign times what a foreign pod takes to what is used on its node. It returns whether what the node
// offers has changed.
func (l *Ledger) useLocked(pod *PodRecord, sign int64) bool {
	name := pod.node
	if name == "" {
		return false
	}
	used := l.used[name]
	if used == nil {
		used = slice.Amounts{}
		l.used[name] = used
	}
	pod.add(used, sign)
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
	l.freeStale = true
	return true
}

func (l *Ledger) addLocked(node nodeEntry) {
	l.freeStale, l.stale = true, true
	for resource, amount := range node.offered {
		l.total[resource] += amount
	}
}

func (l *Ledger) dropLocked(node nodeEntry) {
	l.freeStale, l.stale = true, true
	for resource, amount := range node.offered {
		if l.total[resource] -= amount; l.total[resource] == 0 {
			delete(l.total, resource)
		}
	}
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
