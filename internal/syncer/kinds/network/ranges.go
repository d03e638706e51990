package network

import (
	"cmp"
	"net/netip"
	"slices"
	"sort"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/superpool/superpool/internal/syncer/kind"
)

// maxClosed bounds the ranges that follow from the nodes of a super cluster, and with them the exceptions of a block.
const maxClosed = 128

// everywhere are all addresses.
var everywhere = [...]netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}

// Ranges are the addresses of the pool that isolated pods may not reach. The nil and the zero Ranges hold none. They
// are immutable, and safe for concurrent use.
type Ranges struct {
	// closed are sorted and disjoint. open are those parts of them that pods may reach all the same.
	closed, open []netip.Prefix
}

// NewRanges returns the addresses of closed without those of open.
func NewRanges(closed, open []netip.Prefix) *Ranges {
	r := &Ranges{open: disjoint(open)}
	for _, prefix := range disjoint(closed) {
		if !covered(r.open, prefix) {
			r.closed = append(r.closed, prefix)
		}
	}
	r.open = slices.DeleteFunc(r.open, func(prefix netip.Prefix) bool { return !covered(r.closed, prefix) })
	return r
}

// Contain returns whether an address is one that pods may not reach.
func (r *Ranges) Contain(address netip.Addr) bool {
	if r == nil {
		return false
	}
	address = address.Unmap().WithZone("")
	single := netip.PrefixFrom(address, address.BitLen())
	return covered(r.closed, single) && !covered(r.open, single)
}

// Touch returns whether a range has addresses that pods may not reach.
func (r *Ranges) Touch(prefix netip.Prefix) bool {
	return r != nil && slices.ContainsFunc(r.closed, prefix.Overlaps) && !covered(r.open, prefix)
}

// Outside returns blocks of all addresses that pods may reach.
func (r *Ranges) Outside() []networkingv1.IPBlock {
	var blocks []networkingv1.IPBlock
	for _, prefix := range everywhere {
		blocks = append(blocks, r.Without(networkingv1.IPBlock{CIDR: prefix.String()})...)
	}
	return blocks
}

// Without returns the addresses of a block that pods may reach, as few blocks: none if the pool has all of them, or if
// the block cannot be parsed.
//
//	pool     ────────[======(open)=====]───────[====]──
//	block         [···························]
//	result        [··]      [····]     [······]          as the block with exceptions, and the open part
func (r *Ranges) Without(block networkingv1.IPBlock) []networkingv1.IPBlock {
	prefix, ok := parsePrefix(block.CIDR)
	if !ok {
		return nil
	}
	if r == nil || !slices.ContainsFunc(r.closed, prefix.Overlaps) {
		return []networkingv1.IPBlock{block}
	}
	var excepts []netip.Prefix
	for _, text := range block.Except {
		except, ok := parsePrefix(text)
		if !ok {
			return nil
		}
		excepts = append(excepts, except)
	}
	excepts = disjoint(excepts)
	var blocks []networkingv1.IPBlock
	if !covered(r.closed, prefix) {
		all := r.closed // which are disjoint, and many
		if len(excepts) > 0 {
			all = disjoint(slices.Concat(excepts, r.closed))
		}
		blocks = appendBlock(blocks, prefix, all)
	}
	for _, open := range r.open {
		if !open.Overlaps(prefix) {
			continue
		}
		part := prefix
		if open.Bits() > prefix.Bits() {
			part = open
		}
		blocks = appendBlock(blocks, part, excepts)
	}
	return blocks
}

// appendBlock appends the block of a prefix without excepts, which are disjoint, unless it has no address then.
func appendBlock(blocks []networkingv1.IPBlock, prefix netip.Prefix, excepts []netip.Prefix) []networkingv1.IPBlock {
	block := networkingv1.IPBlock{CIDR: prefix.String()}
	for _, except := range excepts {
		switch {
		case !except.Overlaps(prefix):
		case except.Bits() <= prefix.Bits():
			return blocks
		default:
			block.Except = append(block.Except, except.String())
		}
	}
	return append(blocks, block)
}

// covered returns whether one of prefixes holds all addresses of prefix.
func covered(prefixes []netip.Prefix, prefix netip.Prefix) bool {
	return slices.ContainsFunc(prefixes, func(outer netip.Prefix) bool {
		return outer.Bits() <= prefix.Bits() && outer.Overlaps(prefix)
	})
}

// disjoint returns prefixes sorted, without those that others contain. Two halves of a range become that range.
func disjoint(prefixes []netip.Prefix) []netip.Prefix {
	sorted := slices.SortedFunc(slices.Values(prefixes), func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	var kept []netip.Prefix
	for _, prefix := range sorted {
		prefix = prefix.Masked()
		if last := len(kept) - 1; last >= 0 && kept[last].Overlaps(prefix) {
			continue // a prefix sorts after those that contain it
		}
		kept = append(kept, prefix)
		for len(kept) > 1 {
			last := len(kept) - 1
			parent := wider(kept[last])
			if kept[last].Bits() == 0 || wider(kept[last-1]) != parent || kept[last-1].Bits() != kept[last].Bits() {
				break
			}
			kept = append(kept[:last-1], parent)
		}
	}
	return kept
}

// wider returns the range of twice the size that contains prefix; one that holds everything stays.
func wider(prefix netip.Prefix) netip.Prefix {
	return netip.PrefixFrom(prefix.Addr(), max(0, prefix.Bits()-1)).Masked()
}

// Aggregate returns at most limit ranges that contain all of prefixes, sorted and disjoint: the smallest ones grow
// until there are so few.
func Aggregate(prefixes []netip.Prefix, limit int) []netip.Prefix {
	ranges := disjoint(prefixes)
	for len(ranges) > max(limit, len(everywhere)) {
		smallest := 0 // by host bits, so that those of IPv6 do not always come first
		for i, prefix := range ranges {
			if hostBits(prefix) < hostBits(ranges[smallest]) {
				smallest = i
			}
		}
		bits := hostBits(ranges[smallest])
		for i, prefix := range ranges {
			if hostBits(prefix) == bits {
				ranges[i] = wider(prefix)
			}
		}
		ranges = disjoint(ranges)
	}
	return ranges
}

// aggregateUpTo returns at most limit ranges of prefixes, sorted and disjoint: the smallest ones grow, but none beyond
// a prefix length of bits4 or bits6. If these are too many, the ones with the most of prefixes stay, and left is how
// many do not.
func aggregateUpTo(prefixes []netip.Prefix, limit, bits4, bits6 int) (ranges []netip.Prefix, left int) {
	ranges = disjoint(prefixes)
	for len(ranges) > limit {
		bits := -1
		for _, prefix := range ranges {
			if grown := wider(prefix); !isWider(grown, bits4, bits6) && (bits < 0 || hostBits(prefix) < bits) {
				bits = hostBits(prefix)
			}
		}
		if bits < 0 {
			break
		}
		for i, prefix := range ranges {
			if grown := wider(prefix); hostBits(prefix) == bits && !isWider(grown, bits4, bits6) {
				ranges[i] = grown
			}
		}
		ranges = disjoint(ranges)
	}
	if len(ranges) <= limit {
		return ranges, 0
	}
	members := map[netip.Prefix]int{}
	for _, prefix := range prefixes {
		at := sort.Search(len(ranges), func(i int) bool { return prefix.Addr().Less(ranges[i].Addr()) })
		members[ranges[max(0, at-1)]]++
	}
	slices.SortStableFunc(ranges, func(a, b netip.Prefix) int { return cmp.Compare(members[b], members[a]) })
	return disjoint(ranges[:limit]), len(ranges) - limit
}

// isWider returns whether a range is wider than a prefix length of bits4 or bits6.
func isWider(prefix netip.Prefix, bits4, bits6 int) bool {
	return prefix.Addr().Is4() && prefix.Bits() < bits4 || prefix.Addr().Is6() && prefix.Bits() < bits6
}

func hostBits(prefix netip.Prefix) int { return prefix.Addr().BitLen() - prefix.Bits() }

// parsePrefix parses a CIDR. An IPv4 range in the form of IPv6 becomes one of IPv4.
func parsePrefix(text string) (netip.Prefix, bool) {
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, false
	}
	if prefix.Addr().Is4In6() {
		if prefix.Bits() < 96 {
			return netip.Prefix{}, false
		}
		prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
	}
	return prefix.Masked(), true
}

// parsePrefixes returns those of texts that are CIDRs.
func parsePrefixes(texts []string) []netip.Prefix {
	prefixes := make([]netip.Prefix, 0, len(texts))
	for _, text := range texts {
		if prefix, ok := parsePrefix(text); ok {
			prefixes = append(prefixes, prefix)
		}
	}
	return prefixes
}

// parseAddresses returns the ranges of those of texts that are addresses.
func parseAddresses(texts []string) []netip.Prefix {
	addresses := make([]netip.Prefix, 0, len(texts))
	for _, text := range texts {
		if single, ok := kind.ParseAddress(text); ok {
			addresses = append(addresses, single)
		}
	}
	return addresses
}
