package network_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/superpool/superpool/internal/syncer/kinds/network"
)

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func blockOf(cidr string, excepts ...string) networkingv1.IPBlock {
	return networkingv1.IPBlock{CIDR: cidr, Except: excepts}
}

// TestRanges: which addresses of a block are left where the pool has some of them.
func TestRanges(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name         string
		closed, open []netip.Prefix
		block        networkingv1.IPBlock
		want         []networkingv1.IPBlock
	}{
		{name: "no pool", block: blockOf("10.0.0.0/8", "10.1.0.0/16"), want: []networkingv1.IPBlock{blockOf("10.0.0.0/8", "10.1.0.0/16")}},
		{
			name: "the pool is elsewhere, and the block stays as it is written", closed: prefixes("10.9.0.0/16"), block: blockOf("10.8.1.2/16"),
			want: []networkingv1.IPBlock{blockOf("10.8.1.2/16")},
		},
		{
			name: "the pool is in it", closed: prefixes("10.9.0.0/16", "192.168.0.0/16"), block: blockOf("10.0.0.0/8", "10.1.0.0/16"),
			want: []networkingv1.IPBlock{blockOf("10.0.0.0/8", "10.1.0.0/16", "10.9.0.0/16")},
		},
		{name: "it is in the pool", closed: prefixes("10.0.0.0/8"), block: blockOf("10.1.0.0/16")},
		{name: "it is the pool", closed: prefixes("10.0.0.0/8"), block: blockOf("10.0.0.0/8")},
		{name: "two halves of it are the pool", closed: prefixes("10.0.0.0/9", "10.128.0.0/9"), block: blockOf("10.0.0.0/8")},
		{name: "the pool, and what it leaves out", closed: prefixes("10.0.0.0/9"), block: blockOf("10.0.0.0/8", "10.128.0.0/9")},
		{
			name: "an exception holds the pool", closed: prefixes("10.1.2.0/24"), block: blockOf("10.0.0.0/8", "10.1.0.0/16"),
			want: []networkingv1.IPBlock{blockOf("10.0.0.0/8", "10.1.0.0/16")},
		},
		{
			name: "a part of the pool is open", closed: prefixes("10.0.0.0/8"), open: prefixes("10.5.0.0/16", "172.16.0.0/12"), block: blockOf("0.0.0.0/0"),
			want: []networkingv1.IPBlock{blockOf("0.0.0.0/0", "10.0.0.0/8"), blockOf("10.5.0.0/16")},
		},
		{
			name: "within the open part", closed: prefixes("10.0.0.0/8"), open: prefixes("10.5.0.0/16"), block: blockOf("10.5.1.0/24", "10.5.1.7/32"),
			want: []networkingv1.IPBlock{blockOf("10.5.1.0/24", "10.5.1.7/32")},
		},
		{name: "an exception holds the open part", closed: prefixes("10.0.0.0/8"), open: prefixes("10.5.0.0/16"), block: blockOf("10.4.0.0/14", "10.5.0.0/16")},
		{
			name: "all of the pool is open", closed: prefixes("10.0.0.0/8"), open: prefixes("0.0.0.0/0"), block: blockOf("10.1.0.0/16"),
			want: []networkingv1.IPBlock{blockOf("10.1.0.0/16")},
		},
		{name: "all is closed", closed: prefixes("0.0.0.0/0"), block: blockOf("10.1.0.0/16")},
		{name: "IPv6", closed: prefixes("fd00::/8"), block: blockOf("::/0"), want: []networkingv1.IPBlock{blockOf("::/0", "fd00::/8")}},
		{name: "IPv4 in the form of IPv6", closed: prefixes("10.0.0.0/8"), block: blockOf("::ffff:10.1.0.0/112")},
		{name: "not a block", closed: prefixes("10.0.0.0/8"), block: blockOf("010.1.0.0/16")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			require.Empty(t, cmp.Diff(tc.want, network.NewRanges(tc.closed, tc.open).Without(tc.block)))
		})
	}
	var none *network.Ranges
	require.False(t, none.Contain(netip.MustParseAddr("10.0.0.1")))
	require.Empty(t, cmp.Diff([]networkingv1.IPBlock{blockOf("0.0.0.0/0"), blockOf("::/0")}, none.Outside()))
}

// TestRangesProperty compares ranges with single addresses, for random pools and blocks in 10.0.0.0/27: a block without
// the pool has exactly those of its addresses that the pool has not.
func TestRangesProperty(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	prefix := func(minimum int) netip.Prefix {
		address := netip.AddrFrom4([4]byte{10, 0, 0, byte(random.IntN(32))})
		return netip.PrefixFrom(address, minimum+random.IntN(33-minimum)).Masked()
	}
	some := func(count int) []netip.Prefix {
		var all []netip.Prefix
		for range random.IntN(count + 1) {
			all = append(all, prefix(27))
		}
		return all
	}
	has := func(prefixes []netip.Prefix, address netip.Addr) bool {
		return slices.ContainsFunc(prefixes, func(prefix netip.Prefix) bool { return prefix.Contains(address) })
	}
	for range 3000 {
		closed, open, cidr := some(4), some(3), prefix(26)
		block := networkingv1.IPBlock{CIDR: cidr.String()}
		var excepts []netip.Prefix
		for range random.IntN(3) {
			if except := prefix(27); except.Bits() > cidr.Bits() && cidr.Overlaps(except) {
				excepts = append(excepts, except)
				block.Except = append(block.Except, except.String())
			}
		}
		ranges := network.NewRanges(closed, open)
		result := ranges.Without(block)
		for last := range 32 {
			address := netip.AddrFrom4([4]byte{10, 0, 0, byte(last)})
			wantClosed := has(closed, address) && !has(open, address)
			require.Equal(t, wantClosed, ranges.Contain(address), "%s: closed %v, open %v", address, closed, open)
			got := false
			for _, each := range result {
				in := netip.MustParsePrefix(each.CIDR).Contains(address)
				for _, except := range each.Except {
					exception := netip.MustParsePrefix(except)
					require.Greater(t, exception.Bits(), netip.MustParsePrefix(each.CIDR).Bits(), "an API server refuses it")
					in = in && !exception.Contains(address)
				}
				got = got || in
			}
			want := cidr.Contains(address) && !has(excepts, address) && !wantClosed
			require.Equal(t, want, got, "%s of %v: closed %v, open %v, result %v", address, block, closed, open, result)
		}
	}
}

func TestAggregate(t *testing.T) {
	t.Parallel()
	require.Empty(t, network.Aggregate(nil, 8))
	require.Empty(t, cmp.Diff([]string{"10.0.0.0/24", "fd00::1/128"},
		texts(network.Aggregate(prefixes("10.0.0.7/32", "fd00::1/128", "10.0.0.128/25", "10.0.0.0/25", "10.0.0.0/24"), 8))))
	require.Empty(t, cmp.Diff([]string{"10.0.0.0/29", "10.0.1.0/29"},
		texts(network.Aggregate(prefixes("10.0.0.1/32", "10.0.0.3/32", "10.0.0.6/32", "10.0.1.1/32", "10.0.1.6/32"), 2))), "the smallest grow, and contain more")

	var nodes []netip.Prefix
	for i := range 5000 {
		nodes = append(nodes, netip.MustParsePrefix(fmt.Sprintf("10.%d.%d.%d/32", i%7, i/200, i%200)))
	}
	few := network.Aggregate(nodes, 128)
	require.LessOrEqual(t, len(few), 128)
	ranges := network.NewRanges(few, nil)
	for _, node := range nodes {
		require.True(t, ranges.Contain(node.Addr()), "%s", node)
	}
	rand.New(rand.NewPCG(3, 4)).Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	require.Equal(t, few, network.Aggregate(nodes, 128), "in any order")
}

func texts(prefixes []netip.Prefix) []string {
	var all []string
	for _, prefix := range prefixes {
		all = append(all, prefix.String())
	}
	return all
}
