package shards

import (
	"cmp"
	"hash/fnv"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Of returns the shard of a tenant, by the UID of its VirtualCluster, where there are count shards: FNV-1a modulo
// count. All replicas have the same count, and shards move from replica to replica, tenants never from shard to shard,
// so that nothing would be gained by a hash that is stable over different counts.
func Of(tenant types.UID, count int) int {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(tenant))        // it never fails
	return int(hash.Sum64() % uint64(count)) //nolint:gosec // count is positive, and the rest is less
}

// plan returns the replica that is to lead each of count shards, whatever the order of replicas, of which there is at
// least one. Each leads its fair number: count / replicas, or one more for as many as are needed, which are those that
// lead most by now. A shard stays with the replica that leads it up to that number, the lowest first; all others go to
// those that have the fewest.
func plan(replicas []string, leads map[int]string, count int) []string {
	held := map[string]int{}
	for shard := range count {
		held[leads[shard]]++
	}
	replicas = slices.Compact(slices.Sorted(slices.Values(replicas)))
	slices.SortStableFunc(replicas, func(a, b string) int { return cmp.Compare(held[b], held[a]) })
	room := map[string]int{}
	for i, replica := range replicas {
		room[replica] = count / len(replicas)
		if i < count%len(replicas) {
			room[replica]++
		}
	}
	planned := make([]string, count)
	give := func(shard int, replica string) {
		planned[shard] = replica
		room[replica]--
	}
	for shard := range count {
		if leader := leads[shard]; room[leader] > 0 {
			give(shard, leader)
		}
	}
	for shard := range count {
		if planned[shard] == "" {
			give(shard, slices.MaxFunc(replicas, func(a, b string) int { return cmp.Or(cmp.Compare(room[a], room[b]), cmp.Compare(b, a)) }))
		}
	}
	return planned
}
