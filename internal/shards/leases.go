package shards

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
)

// seen is a Lease as this process has watched it.
type seen struct {
	holder, version string
	// since is when it was first read like this, by this process's clock: clocks of others prove nothing.
	since time.Time
}

// watched are the Leases of a pool by name, as one process has read them again and again.
type watched struct {
	// program is what the names of Leases begin with, and the name of the leader's.
	program  string
	duration time.Duration
	leases   map[string]seen
}

// read takes over what was read at that time.
func (w *watched) read(leases []coordinationv1.Lease, now time.Time) {
	before := w.leases
	w.leases = make(map[string]seen, len(leases))
	for i := range leases {
		name := leases[i].Name
		if name != w.program && !strings.HasPrefix(name, w.program+"-") {
			continue
		}
		current := seen{holder: ptr.Deref(leases[i].Spec.HolderIdentity, ""), version: leases[i].ResourceVersion, since: now}
		if known, exists := before[name]; exists && known.version == current.version {
			current.since = known.since
		}
		w.leases[name] = current
	}
}

// lives reports whether a Lease has a holder that may write by now.
func (w *watched) lives(lease seen, now time.Time) bool {
	return lease.holder != "" && now.Sub(lease.since) < w.duration
}

// expired reports whether the Lease of that name was not written for its duration since it had that version.
func (w *watched) expired(name, version string, now time.Time) bool {
	lease, exists := w.leases[name]
	return exists && lease.version == version && !w.lives(lease, now)
}

// lost returns the Leases of replicas that were lost more than keepLost ago, with the version in which they were left.
func (w *watched) lost(now time.Time) map[string]string {
	lost := map[string]string{}
	for name, lease := range w.leases {
		if _, isReplica := w.replicaCount(name); isReplica && now.Sub(lease.since) > keepLost {
			lost[name] = lease.version
		}
	}
	return lost
}

// replicas returns the replicas that live and have that many shards.
func (w *watched) replicas(count int, now time.Time) (replicas []string) {
	for name, lease := range w.leases {
		if of, isReplica := w.replicaCount(name); isReplica && of == count && w.lives(lease, now) {
			replicas = append(replicas, lease.holder)
		}
	}
	return replicas
}

// living returns how many replicas live, whatever number of shards they have.
func (w *watched) living(now time.Time) (living int) {
	for name, lease := range w.leases {
		if _, isReplica := w.replicaCount(name); isReplica && w.lives(lease, now) {
			living++
		}
	}
	return living
}

// leads returns who leads which of that many shards.
func (w *watched) leads(count int, now time.Time) map[int]string {
	leads := map[int]string{}
	for name, lease := range w.leases {
		if shard, of, isShard := w.shardOf(name); isShard && of == count && w.lives(lease, now) {
			leads[shard] = lease.holder
		}
	}
	return leads
}

// other returns the name of a Lease that somebody holds who knows other shards than count, and may work on any
// tenant; "" if there is none. With count 1, the leader's Lease holds the one shard.
func (w *watched) other(count int, now time.Time) string {
	for _, name := range slices.Sorted(maps.Keys(w.leases)) {
		lease := w.leases[name]
		if !w.lives(lease, now) {
			continue
		}
		if _, of, isShard := w.shardOf(name); isShard && of != count {
			return name
		}
		if name == w.program && count > 1 && !strings.HasSuffix(lease.holder, sharded) {
			return name
		}
	}
	return ""
}

// sharded is what the identity of a leader ends with that leaves tenants to the leaders of shards.
const sharded = "_sharded"

// shardName returns the name of the Lease of a shard, and shardOf what such a name says.
func (w *watched) shardName(shard, count int) string {
	return fmt.Sprintf("%s-shard-%d-of-%d", w.program, shard, count)
}

func (w *watched) shardOf(name string) (shard, count int, ok bool) {
	rest, isShard := strings.CutPrefix(name, w.program+"-shard-")
	first, second, isPair := strings.Cut(rest, "-of-")
	shard, err := strconv.Atoi(first)
	count, err2 := strconv.Atoi(second)
	return shard, count, isShard && isPair && err == nil && err2 == nil && shard >= 0 && shard < count
}

// replicaName returns the name of the Lease of a replica, and replicaCount the number of shards that such a name says.
func (w *watched) replicaName(id string, count int) string {
	return fmt.Sprintf("%s-replica-%d-%s", w.program, count, id)
}

func (w *watched) replicaCount(name string) (count int, ok bool) {
	rest, isReplica := strings.CutPrefix(name, w.program+"-replica-")
	first, _, isPair := strings.Cut(rest, "-")
	count, err := strconv.Atoi(first)
	return count, isReplica && isPair && err == nil
}
