package leadership

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
)

// ShardUsage says how Shard is set, as a flag.
const ShardUsage = "given as i/N: of N shards, by a hash, that with number i modulo N, from 0. Its processes elect a leader, and the others stand by. " +
	"In a StatefulSet of 2*N replicas, --shard=$(POD_INDEX)/N gives each shard a leader and one that stands by, where POD_INDEX is label apps.kubernetes.io/pod-index of the pod. " +
	"While processes with another N hold Leases, it waits"

// Shard is one of Count parts of a pool's tenants. Each has a Lease, whose holder alone works on its tenants. The zero
// Shard is of a program that has no shards: it has all tenants.
type Shard struct {
	// Index is from 0 to Count-1.
	Index, Count int
}

// Has returns whether a tenant belongs to the shard, by what names it, the same in all processes of a program: FNV-1a
// modulo Count.
func (s Shard) Has(tenant string) bool {
	if s.Count <= 1 {
		return true
	}
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(tenant))                   // it never fails
	return int(hash.Sum64()%uint64(s.Count)) == s.Index //nolint:gosec // Count is positive, and the rest is less
}

// LeaseName returns the name of the shard's Lease: that of the program where one process does all, as before there were
// shards.
func (s Shard) LeaseName(program string) string {
	if s.Count <= 1 {
		return program
	}
	return fmt.Sprintf("%s-shard-%d-of-%d", program, s.Index, s.Count)
}

// countOf returns of how many shards of a program a Lease with that name holds one, 0 if it is none of them.
func countOf(program, name string) int {
	if name == program {
		return 1
	}
	rest, _ := strings.CutPrefix(name, program+"-shard-")
	_, text, _ := strings.Cut(rest, "-of-")
	count, err := strconv.Atoi(text)
	if err != nil || rest == name {
		return 0
	}
	return count
}

// Validate returns why the shard cannot be used with or without an election.
func (s Shard) Validate(elects bool) error {
	if s.Count > 1 && !elects {
		return errors.New("more than one needs --leader-elect")
	}
	return nil
}

// String implements pflag.Value.
func (s *Shard) String() string { return fmt.Sprintf("%d/%d", s.Index, s.Count) }

// Type implements pflag.Value.
func (*Shard) Type() string { return "i/N" }

// Set implements pflag.Value.
func (s *Shard) Set(text string) error {
	first, second, _ := strings.Cut(text, "/")
	index, err := strconv.ParseUint(first, 10, 31)
	count, err2 := strconv.ParseUint(second, 10, 31)
	if err != nil || err2 != nil || count == 0 {
		return errors.New("use i/N, as 0/1: two numbers, of which the second is not 0")
	}
	*s = Shard{Index: int(index % count), Count: int(count)}
	return nil
}
