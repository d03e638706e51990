package packing

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slice"
)

// tally sums what pods request of cpu, by what becomes of them.
type tally struct {
	all, noRoom, noNode int64
	moves               int
	running             Size
	pool                *Pool
	// clusters are the nodes of super clusters, and unreserved is what no namespace holds there.
	clusters   map[string]*machines
	unreserved map[string]slice.Amounts
}

// runPods runs the pods of placed namespaces. With moves, vc-scheduler moves slices for pods that have no room.
func runPods(pool *Pool, namespaces []Namespace, placed []*schedulerv1alpha1.NamespacePlacement, moves bool) *tally {
	t := &tally{pool: pool, clusters: map[string]*machines{}, unreserved: map[string]slice.Amounts{}}
	for i := range pool.SuperClusters {
		t.clusters[superCluster(i)] = pool.machines(pool.Nodes)
		t.unreserved[superCluster(i)] = pool.offered()
	}
	for _, np := range placed {
		for i := range np.Status.Placements {
			p := &np.Status.Placements[i]
			t.unreserved[p.Cluster] = t.unreserved[p.Cluster].Minus(slice.Of(p.Reserved))
		}
	}
	for i, np := range placed {
		if len(np.Spec.Quota) > 0 && len(placement.Missing(np)) == 0 {
			t.run(&rooms{np: np.DeepCopy(), used: map[string]slice.Amounts{}}, namespaces[i].Pods, moves)
		}
	}
	return t
}

// rooms is what a namespace holds, and what its pods use of it, by super cluster.
type rooms struct {
	np   *schedulerv1alpha1.NamespacePlacement
	used map[string]slice.Amounts
}

// run runs the pods of one namespace, one after the other.
func (t *tally) run(r *rooms, pods []Size, moves bool) {
	for _, pod := range pods {
		t.all += pod.CPU
		requests := pod.amounts().Plus(slice.Amounts{corev1.ResourcePods: 1})
		into := r.choose(requests)
		if into == "" && moves {
			into = t.relocate(r, requests)
		}
		if into == "" {
			t.noRoom += pod.CPU
			continue
		}
		r.used[into] = r.used[into].Plus(requests)
		if !t.clusters[into].spread(pod, t.pool.Node) {
			t.noNode += pod.CPU
			continue
		}
		t.running = t.running.plus(pod)
	}
}

// choose returns the super cluster where the largest part of what the namespace holds is free with a pod, "" if none has
// room for it.
func (r *rooms) choose(requests slice.Amounts) (best string) {
	most := -1.0
	for i := range r.np.Status.Placements {
		p := &r.np.Status.Placements[i]
		held := slice.Of(p.Reserved)
		free := held.Minus(r.used[p.Cluster])
		if !requests.Fits(free) {
			continue
		}
		if part := share(sizeOf(free.Minus(requests)), sizeOf(held)); part > most {
			best, most = p.Cluster, part
		}
	}
	return best
}

// relocate moves the slices that vc-scheduler would move for a pod, where there is room for them in sum, and returns the
// super cluster that the pod has room in then, "" for none. A slice that moves is taken for as large as the mean of those
// of its super cluster.
func (t *tally) relocate(r *rooms, requests slice.Amounts) string {
	used := maps.Clone(r.used)
	clusters := slices.Sorted(maps.Keys(t.unreserved))
	for _, cluster := range clusters {
		if used[cluster] == nil {
			used[cluster] = slice.Amounts{}
		}
	}
	for len(clusters) > 0 {
		found, _ := placement.Relocate(r.np, &placement.Wish{Requests: requests, Used: used, Clusters: clusters})
		if found.IsZero() {
			return ""
		}
		moved, all := r.share(found.From)
		if all.Fits(t.unreserved[found.Cluster]) {
			r.move(&found, moved, all, t)
			return r.choose(requests)
		}
		clusters = slices.DeleteFunc(clusters, func(cluster string) bool { return cluster == found.Cluster })
	}
	return ""
}

// share returns what so many slices of each super cluster hold there, and all of them together.
func (r *rooms) share(from map[string]int32) (moved map[string]slice.Amounts, all slice.Amounts) {
	moved = map[string]slice.Amounts{}
	for i := range r.np.Status.Placements {
		p := &r.np.Status.Placements[i]
		if count := from[p.Cluster]; count > 0 {
			amounts := slice.Of(p.Reserved)
			for name := range amounts {
				amounts[name] = amounts[name] * int64(count) / int64(p.Slices)
			}
			moved[p.Cluster], all = amounts, all.Plus(amounts)
		}
	}
	return moved, all
}

// move moves slices, which hold moved in each super cluster, and all together.
func (r *rooms) move(found *placement.Relocation, moved map[string]slice.Amounts, all slice.Amounts, t *tally) {
	t.moves++
	into := -1
	for i := range r.np.Status.Placements {
		p := &r.np.Status.Placements[i]
		if p.Cluster == found.Cluster {
			into = i
		}
		p.Slices -= found.From[p.Cluster]
		p.Reserved = slice.Of(p.Reserved).Minus(moved[p.Cluster]).List()
		t.unreserved[p.Cluster] = t.unreserved[p.Cluster].Plus(moved[p.Cluster])
	}
	if into < 0 {
		into = len(r.np.Status.Placements)
		r.np.Status.Placements = append(r.np.Status.Placements, schedulerv1alpha1.ClusterPlacement{Cluster: found.Cluster})
	}
	p := &r.np.Status.Placements[into]
	p.Slices += found.Slices()
	p.Reserved = slice.Of(p.Reserved).Plus(all).List()
	t.unreserved[found.Cluster] = t.unreserved[found.Cluster].Minus(all)
	r.np.Status.Placements = slices.DeleteFunc(r.np.Status.Placements, func(p schedulerv1alpha1.ClusterPlacement) bool { return p.Slices == 0 })
}
