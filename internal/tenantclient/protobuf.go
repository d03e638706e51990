package tenantclient

import (
	"bytes"
	"errors"
	"fmt"
	"iter"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// maxDepth bounds how deep messages are followed. No kind of Kubernetes nests them deeper (TestAllKindsAreCounted).
const maxDepth = 24

// magic begins an object in protobuf.
const magic = "k8s\x00"

// Fields of messages, by number.
const (
	unknownType = 1 // of a runtime.Unknown: a runtime.TypeMeta
	unknownRaw  = 2 // and the object
	typeVersion = 1 // of a runtime.TypeMeta
	typeKind    = 2
	eventObject = 2 // of a metav1.WatchEvent: a runtime.RawExtension
	eventRaw    = 1 // of that: the magic, and a runtime.Unknown
	listItems   = 2 // of all lists
	objectMeta  = 1 // of all objects that are no lists
	entryKey    = 1 // of an entry of a map
	entryValue  = 2
	// noField is a field that no message has, and whose tag is as long as that of managedFields.
	noField = 127
)

// Tags of metadata.managedFields, which has number 17, and of noField.
const managedTag, hiddenTag = "\x8a\x01", "\xfa\x07"

// perNumber is what a number takes that is packed into a list, whose room grows to the double.
const perNumber = 2 * 8

// perQuantity is what a quantity takes besides its text: that of many digits is another structure.
const perQuantity = 64

// Reasons to refuse a text, which no API server gives.
var (
	errBroken   = errors.New("it is broken")
	errEntry    = errors.New("an entry of a map is more than key and value")
	errTwice    = errors.New("it says twice what it can say once")
	errNoMagic  = errors.New("it does not begin as objects do")
	errTooDeep  = errors.New("messages are nested too deep")
	errWireType = errors.New("a field has a type that is not its own")
)

// wire counts what messages of protobuf hold, by the schema that a decoder has: the Go type of the kind that they say
// they are. It refuses what a decoder might read otherwise. Above all decoders take a key or a value of a map as long
// as it says, though its entry has ended, and whatever type it says it has.
type wire struct{ content }

// prepared returns what decoders may make of an answer in protobuf, or of an event of a watch, after it has hidden
// managedFields in it: what is hidden is not decoded, so it counts as bytes alone.
func prepared(text []byte, event bool) (content, error) {
	hideManagedFields(text, event)
	counted, err := countMessage(text, event)
	if err != nil {
		return content{}, fmt.Errorf("the protobuf is refused: %w", err)
	}
	return counted, nil
}

// countMessage counts an answer, or an event of a watch.
func countMessage(text []byte, event bool) (content, error) {
	w := wire{content: content{bytes: int64(len(text)), memory: int64(len(text))}}
	if event {
		extension, err := only(text, eventObject)
		if err != nil {
			return content{}, err
		}
		if text, err = only(extension, eventRaw); err != nil {
			return content{}, err
		}
	}
	if len(text) == 0 {
		return w.content, nil
	}
	if !bytes.HasPrefix(text, []byte(magic)) {
		return content{}, errNoMagic
	}
	unknown := text[len(magic):]
	of, list, err := kindOf(unknown)
	if err != nil {
		return content{}, err
	}
	object, err := only(unknown, unknownRaw)
	if err != nil {
		return content{}, err
	}
	w.memory += of.size
	err = w.message(object, of, list, 0)
	return w.content, err
}

// kindOf returns the shape of the object in a runtime.Unknown, and whether it is of a list.
func kindOf(unknown []byte) (of *shape, list bool, err error) {
	typeMeta, err := only(unknown, unknownType)
	if err != nil {
		return nil, false, err
	}
	version, err := only(typeMeta, typeVersion)
	if err != nil {
		return nil, false, err
	}
	kind, err := only(typeMeta, typeKind)
	if err != nil {
		return nil, false, err
	}
	of, err = known.ofKind(schema.FromAPIVersionAndKind(string(version), string(kind)))
	return of, bytes.HasSuffix(kind, []byte("List")), err
}

// only returns the value of a field of a message that has at most one such.
func only(message []byte, number protowire.Number) (found []byte, err error) {
	seen := false
	for len(message) > 0 {
		field, rest, ok := nextField(message)
		switch {
		case !ok:
			return nil, errBroken
		case field.number == number && field.wire != protowire.BytesType:
			return nil, errWireType
		case field.number == number && seen:
			return nil, errTwice
		case field.number == number:
			found, seen = field.value, true
		}
		message = rest
	}
	return found, nil
}

// message counts a message. list is whether its field listItems are the items of a list; depth says in how many other
// messages it is.
func (w *wire) message(data []byte, of *shape, list bool, depth int) error {
	if depth > maxDepth {
		return errTooDeep
	}
	var values row
	var seen uint64 // fields, by number; those of large numbers are one
	for len(data) > 0 {
		next, rest, ok := nextField(data)
		if !ok {
			return errBroken
		}
		data = rest
		field := of.field(next.number)
		if field == nil {
			w.memory -= int64(len(next.value)) // nobody decodes it
			continue
		}
		bit := uint64(1) << min(next.number, 63)
		w.memory += values.next(field, seen&bit != 0)
		seen |= bit
		if list && next.number == listItems {
			w.items++
		}
		if err := w.field(field, next, depth); err != nil {
			return err
		}
	}
	return nil
}

// row is values of one field that follow one another.
type row struct {
	field *field
	// count is how many there are, and room how many have memory.
	count, room int64
}

// next returns how many bytes of memory another value of a field takes; seen is whether there was one before. A list
// grows as Go's do: to the double until there are 256, and then by a quarter and 192. One that goes on after another
// field may grow at any value.
func (r *row) next(of *field, seen bool) int64 {
	grown := of.room
	switch {
	case r.field != of && seen:
		*r = row{field: of}
		return of.once + 2*of.room*of.each
	case r.field != of:
		*r = row{field: of}
	case r.count < r.room:
		grown = r.room
	case r.room < 256:
		grown = max(2*r.room, of.room)
	default:
		grown = r.room + r.room/4 + 192
	}
	memory := (grown - r.room) * of.each
	if r.count == 0 {
		memory += of.once
	}
	r.count, r.room = r.count+1, grown
	return memory
}

// field counts a field of a message.
func (w *wire) field(of *field, found record, depth int) error {
	switch {
	case of.repeated && found.wire == protowire.BytesType && of.wire != protowire.BytesType:
		w.memory += perNumber * int64(len(found.value))
		return nil
	case found.wire != of.wire:
		return errWireType
	case of.entry:
		return w.entry(of, found.value, depth)
	case of.message != nil:
		return w.message(found.value, of.message, false, depth+1)
	case of.quantity:
		w.quantity(found.value)
	}
	return nil
}

// entry counts an entry of a map: a key, and a value unless that is a nil.
func (w *wire) entry(of *field, data []byte, depth int) error {
	for number := protowire.Number(entryKey); len(data) > 0; number++ {
		next, rest, ok := nextField(data)
		if !ok || number > entryValue || next.number != number || next.wire != protowire.BytesType {
			return errEntry
		}
		if number == entryValue && of.message != nil {
			if err := w.message(next.value, of.message, false, depth+1); err != nil {
				return err
			}
		}
		data = rest
	}
	return nil
}

// quantity adds what a quantity costs besides its bytes.
func (w *wire) quantity(value []byte) {
	var n number
	for _, c := range value {
		if n.feed(c); n.phase == noNumber {
			break
		}
	}
	w.memory += perQuantity
	w.bytes += n.end()
}

// hideManagedFields gives metadata.managedFields of the objects in a text a number that no decoder knows, which so
// skips them, for the reasons of trimmer.
func hideManagedFields(text []byte, event bool) {
	if !event {
		hideInUnknown(withoutMagic(text))
		return
	}
	for number, object := range fields(text) {
		if number != eventObject {
			continue
		}
		for number, raw := range fields(object) {
			if number == eventRaw {
				hideInUnknown(withoutMagic(raw))
			}
		}
	}
}

// withoutMagic returns the runtime.Unknown of an object.
func withoutMagic(object []byte) []byte { return object[min(len(magic), len(object)):] }

func hideInUnknown(unknown []byte) {
	list := isList(unknown)
	for number, value := range fields(unknown) {
		if number != unknownRaw {
			continue
		}
		for number, part := range fields(value) {
			switch {
			case list && number == listItems:
				hideInObject(part)
			case !list && number == objectMeta:
				hideInMeta(part)
			}
		}
	}
}

// isList returns whether a runtime.Unknown is of a list. One that does not name one kind is refused later (kindOf).
func isList(unknown []byte) bool {
	typeMeta, _ := only(unknown, unknownType)
	kind, _ := only(typeMeta, typeKind)
	return bytes.HasSuffix(kind, []byte("List"))
}

func hideInObject(object []byte) {
	for number, meta := range fields(object) {
		if number == objectMeta {
			hideInMeta(meta)
		}
	}
}

func hideInMeta(meta []byte) {
	for len(meta) > 0 {
		_, rest, ok := nextField(meta)
		if !ok {
			return
		}
		if bytes.HasPrefix(meta, []byte(managedTag)) {
			copy(meta, hiddenTag)
		}
		meta = rest
	}
}

// fields iterates over the fields of a message that have a length, by number.
func fields(message []byte) iter.Seq2[protowire.Number, []byte] {
	return func(yield func(protowire.Number, []byte) bool) {
		for len(message) > 0 {
			field, rest, ok := nextField(message)
			if !ok || field.wire == protowire.BytesType && !yield(field.number, field.value) {
				return
			}
			message = rest
		}
	}
}

// record is a field of a message, with one value.
type record struct {
	number protowire.Number
	wire   protowire.Type
	// value is nil of a number.
	value []byte
}

// nextField splits the first field off a message. It refuses groups, which no kind of Kubernetes has.
func nextField(message []byte) (first record, rest []byte, ok bool) {
	number, wire, length := protowire.ConsumeTag(message)
	if length < 0 || wire == protowire.StartGroupType || wire == protowire.EndGroupType {
		return record{}, nil, false
	}
	first, rest = record{number: number, wire: wire}, message[length:]
	if wire == protowire.BytesType {
		first.value, length = protowire.ConsumeBytes(rest)
	} else {
		length = protowire.ConsumeFieldValue(number, wire, rest)
	}
	if length < 0 {
		return record{}, nil, false
	}
	return first, rest[length:], true
}
