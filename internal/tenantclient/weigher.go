package tenantclient

import "unicode/utf8"

// invalid is what a decoder adds to a byte of a string that is not ASCII where it is not UTF-8 either: it puts U+FFFD
// in its place.
const invalid = len("\uFFFD") - 1

// weights are how many bytes of memory a decoder takes for what is in a JSON text, besides the text.
type weights struct {
	// object and list are those of one; structure is an object or a null as an item of a list, outer the same in a list
	// right below the outermost object, as the items of a list of Kubernetes, and item any other one.
	object, list, structure, outer, item int64
	// firstItem and firstMember are what the first one of a list and of an object takes besides, and member each.
	firstItem, firstMember, member int64
}

var (
	// anyWeights are those of unstructured objects: a map has room for 8 entries of 32 bytes from its first on, and
	// grows to the double, as lists do.
	anyWeights = weights{object: 64, list: 40, structure: 48, outer: 48, item: 48, firstMember: 272, member: 96}
	// typedWeights are those of kinds that the client knows, all of which API servers send in protobuf. An object
	// becomes any of their structures, or a map; a list has room for four from the first on.
	typedWeights = weights{object: 768, list: 24, structure: 768, outer: 2304, item: 32, firstItem: 2048, member: 96}
)

// weigher counts what decoders make of a JSON text.
type weigher struct {
	weights
	inString, escaped bool
	// next is whether a member or an item may begin, first whether it is the first one.
	next, first bool
	// objects has a 1 for no object or list, and then says of each that is open whether it is an object. deep is how
	// many more are open than that has room for: what is in those is counted as whatever takes most.
	objects uint64
	deep    int
}

// aList is objects of a list right below the outermost object.
const aList = 0b110

func newWeigher(of weights) weigher { return weigher{weights: of, objects: 1} }

// weigh returns how much memory data takes, itself included.
func (w *weigher) weigh(data []byte) int64 {
	memory := int64(len(data))
	for _, c := range data {
		switch {
		case w.escaped:
			w.escaped = false
			continue
		case w.inString:
			w.escaped, w.inString = c == '\\', c != '"'
			if c >= utf8.RuneSelf {
				memory += int64(invalid)
			}
			continue
		case c == ' ', c == '\n', c == '\t', c == '\r', c == ':':
			continue
		case c == ',':
			w.next = true
			continue
		case c == ']', c == '}':
			if w.deep > 0 {
				w.deep--
			} else {
				w.objects = max(1, w.objects>>1)
			}
			w.next, w.first = false, false
			continue
		}
		memory += w.begin(c)
		switch c {
		case '"':
			w.inString = true
		case '{':
			memory += w.object
			w.open(1)
		case '[':
			memory += w.list
			w.open(0)
		}
	}
	return memory
}

// open begins an object, which is a 1, or a list.
func (w *weigher) open(object uint64) {
	if w.deep > 0 || w.objects >= 1<<63 {
		w.deep++
	} else {
		w.objects = w.objects<<1 | object
	}
	w.next, w.first = true, true
}

// begin returns what a member or an item takes that begins with a character.
func (w *weigher) begin(c byte) (memory int64) {
	if !w.next {
		return 0
	}
	switch {
	case w.deep > 0:
		memory = max(w.member, w.structure, w.item)
	case w.objects&1 == 1:
		memory = w.member
	case (c == '{' || c == 'n') && w.objects == aList:
		memory = w.outer
	case c == '{', c == 'n':
		memory = w.structure
	default:
		memory = w.item
	}
	switch {
	case w.first && w.deep > 0:
		memory += max(w.firstMember, w.firstItem)
	case w.first && w.objects&1 == 1:
		memory += w.firstMember
	case w.first:
		memory += w.firstItem
	}
	w.next, w.first = false, false
	return memory
}
