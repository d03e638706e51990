package tenantclient

import (
	"math"
	"strings"
)

// content counts what a text holds, of JSON or protobuf.
type content struct {
	// bytes of the text, and what its numbers cost besides (number).
	bytes int64
	// memory is about how many bytes its decoder takes for what it makes of it, and not less than sizeOf counts
	// (weigher, wire): a container of 3 bytes, as "{}," is in a list, takes 400.
	memory int64
	// items counts those in a list right below the outermost object, as the items of a list of Kubernetes.
	items int64
}

func (c content) plus(more content) content {
	return content{bytes: c.bytes + more.bytes, memory: c.memory + more.memory, items: c.items + more.items}
}

// work returns as how many bytes of events it counts: those of its text, or those that become as much as it does.
func (c content) work() int64 { return max(c.bytes, c.memory/memoryPerWork) }

// most returns the larger one of each count.
func (c content) most(other content) content {
	return content{bytes: max(c.bytes, other.bytes), memory: max(c.memory, other.memory), items: max(c.items, other.items)}
}

// scanner counts bytes and items of JSON texts that follow one another, such as the events of a watch. It does not
// check them: in what is no JSON it counts bytes until the client's decoder gives up.
type scanner struct {
	// current is the content of the text that has not ended. Who reads several texts sets it back.
	current content
	// depth is how many objects and lists are open, list whether the second one of them is a list.
	depth             int
	list              bool
	inString, escaped bool
	number            number
}

// scan counts data to the end of its first text. It returns how long that is, and whether the text has ended.
func (s *scanner) scan(data []byte) (length int, ended bool) {
	for i, c := range data {
		if c == '"' && !s.escaped || !s.inString && strings.IndexByte(",:{}[]", c) >= 0 {
			s.current.bytes += s.number.end()
		} else {
			s.number.feed(c)
		}
		switch {
		case s.escaped:
			s.escaped = false
		case s.inString:
			s.escaped, s.inString = c == '\\', c != '"'
		case c == '"':
			s.inString = true
		case c == '{', c == '[', c == 'n':
			s.begin(c)
		case c == '}', c == ']':
			if s.depth--; s.depth <= 0 {
				s.depth = 0
				s.current.bytes += int64(i + 1)
				return i + 1, true
			}
		}
	}
	s.current.bytes += int64(len(data))
	return len(data), false
}

// begin begins an object, a list or a null.
func (s *scanner) begin(c byte) {
	if c != '[' && s.depth == 2 && s.list {
		s.current.items++
	}
	if c == 'n' {
		return
	}
	if s.depth++; s.depth == 2 {
		s.list = c == '['
	}
}

// number follows a number in a JSON text, bare or in a string, as quantities are. To parse one takes more work than to
// read its bytes: resource.ParseQuantity takes 18 s for 1e-30000000, and 2 s for a million digits (2026-11-22, 2
// cores). To write it takes more still where it ends in many zeros, which Quantity.String takes off one by one: 1.7 s
// for 100 000 (2026-11-25, 2 cores). Quantities are parsed as they are written, so what is escaped is none.
type number struct {
	phase numberPhase
	// digits counts those before the exponent, and zeros the last of them that are 0.
	digits, zeros int64
	exponent      int64
}

type numberPhase int

const (
	mantissa numberPhase = iota
	afterE
	positive // exponent
	negative
	noNumber // until the string ends
)

// maxWork bounds the work of one number, which is larger than any bound on answers.
const maxWork = 1 << 50

// feed adds a character of a string, or of what is none. White space around a quantity is cut off.
func (n *number) feed(c byte) {
	switch {
	case c <= ' ', c >= 0x80:
	case n.phase == mantissa:
		n.feedMantissa(c)
	case n.phase == afterE:
		n.feedSign(c)
	case n.phase == noNumber:
	case isDigit(c) && n.exponent > (math.MaxInt64-9)/10:
		n.exponent = math.MaxInt64 - 9 // more is no number to the parser
	case isDigit(c):
		n.exponent = n.exponent*10 + int64(c-'0')
	default:
		n.phase = noNumber
	}
}

// feedMantissa adds a character before the exponent. After a sign within, or a suffix, there is no exponent any more:
// UIDs and hashes have none. The digits before it stay counted.
func (n *number) feedMantissa(c byte) {
	isSign := c == '+' || c == '-'
	switch {
	case c == '0':
		n.zeros++
	case isDigit(c):
		n.zeros = 0
	}
	switch {
	case isDigit(c), c == '.', isSign && n.digits == 0:
		n.digits++
	case n.digits > 0 && (c == 'e' || c == 'E'):
		n.phase = afterE
	default:
		n.phase = noNumber
	}
}

func (n *number) feedSign(c byte) {
	switch {
	case c == '-':
		n.phase = negative
	case c == '+':
		n.phase = positive
	case isDigit(c):
		n.phase, n.exponent = positive, int64(c-'0')
	default:
		n.phase = noNumber
	}
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// end returns what the number cost besides its bytes, as a number of bytes that are as much work, and starts anew. The
// work grows with the square of digits, most of all of zeros at the end, and somewhat less with negative exponents.
func (n *number) end() int64 {
	exponent := n.slowExponent()
	cost := costOf(n.digits, 1000) + costOf(min(n.zeros, 1<<24)+max(exponent, 0), 50) + costOf(max(-exponent, 0), 10_000)
	*n = number{}
	return min(cost, maxWork)
}

// costOf returns the cost of so many digits, of which the square of a part is that part.
func costOf(digits, part int64) int64 {
	if digits < 1000 {
		return 0
	}
	return min(digits, 1<<25) * min(digits, 1<<25) / part
}

// slowExponent returns by how many digits the exponent makes the parser write the number out, at most 1<<24, less than
// 0 if they are decimals; 0 if it does not. The parser keeps the lowest 32 bits, so a large exponent may be a negative
// one to it. A positive one is slow with more than 18 digits: fewer are a machine word.
func (n *number) slowExponent() int64 {
	kept := int64(0)
	switch {
	case n.phase != negative && n.phase != positive:
	case n.exponent >= math.MaxInt64-9:
		kept = math.MinInt32
	case n.phase == negative:
		kept = int64(int32(-n.exponent))
	default:
		kept = int64(int32(n.exponent))
	}
	if kept > 0 && n.digits <= 18 {
		return 0
	}
	return max(min(kept, 1<<24), -1<<24)
}
