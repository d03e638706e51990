package tenantclient

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

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
func only(message []byte, number int32) (found []byte, err error) {
	seen := false
	for len(message) > 0 {
		tag, value, rest, ok := nextField(message)
		switch {
		case !ok:
			return nil, errBroken
		case numberOf(tag) == number && tag&7 != lengthDelimited:
			return nil, errWireType
		case numberOf(tag) == number && seen:
			return nil, errTwice
		case numberOf(tag) == number:
			found, seen = value, true
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
		tag, value, rest, ok := nextField(data)
		if !ok {
			return errBroken
		}
		data = rest
		field := of.field(numberOf(tag))
		if field == nil {
			w.memory -= int64(len(value)) // nobody decodes it
			continue
		}
		bit := uint64(1) << min(numberOf(tag), 63)
		w.memory += values.next(field, seen&bit != 0)
		seen |= bit
		if list && numberOf(tag) == listItems {
			w.items++
		}
		if err := w.field(field, byte(tag&7), value, depth); err != nil {
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
func (w *wire) field(of *field, wireType byte, value []byte, depth int) error {
	switch {
	case of.repeated && wireType == lengthDelimited && of.wire != lengthDelimited:
		w.memory += perNumber * int64(len(value))
		return nil
	case wireType != of.wire:
		return errWireType
	case of.entry:
		return w.entry(of, value, depth)
	case of.message != nil:
		return w.message(value, of.message, false, depth+1)
	case of.quantity:
		w.quantity(value)
	}
	return nil
}

// entry counts an entry of a map: a key, and a value unless that is a nil.
func (w *wire) entry(of *field, data []byte, depth int) error {
	for number := uint64(entryKey); len(data) > 0; number++ {
		tag, value, rest, ok := nextField(data)
		if !ok || number > entryValue || tag != number<<3|lengthDelimited {
			return errEntry
		}
		if number == entryValue && of.message != nil {
			if err := w.message(value, of.message, false, depth+1); err != nil {
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
		_, _, rest, ok := nextField(meta)
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
func fields(message []byte) func(yield func(int32, []byte) bool) {
	return func(yield func(int32, []byte) bool) {
		for len(message) > 0 {
			tag, value, rest, ok := nextField(message)
			if !ok || tag&7 == lengthDelimited && !yield(numberOf(tag), value) {
				return
			}
			message = rest
		}
	}
}

// Types of fields. No kind of Kubernetes has groups, which are the others.
const (
	varint          = 0
	fixed64         = 1
	lengthDelimited = 2
	fixed32         = 5
)

// nextField splits the first field off a message: its tag, and its value if it is no number. It takes whatever decoders
// take but groups, and nothing that ends behind the message.
func nextField(message []byte) (tag uint64, value, rest []byte, ok bool) {
	tag, rest, ok = uvarint(message)
	if !ok {
		return 0, nil, nil, false
	}
	length := uint64(0)
	switch tag & 7 {
	case varint:
		_, rest, ok = uvarint(rest)
	case fixed64:
		length = 8
	case lengthDelimited:
		length, rest, ok = uvarint(rest)
	case fixed32:
		length = 4
	default:
		ok = false
	}
	if !ok || length > uint64(len(rest)) {
		return 0, nil, nil, false
	}
	return tag, rest[:length], rest[length:], true
}

// uvarint splits a number off. It drops bits beyond 64, as decoders do.
func uvarint(data []byte) (value uint64, rest []byte, ok bool) {
	for i, c := range data[:min(len(data), binary.MaxVarintLen64)] {
		value |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			return value, data[i+1:], true
		}
	}
	return 0, nil, false
}

// numberOf returns the number of a field with a tag. It drops bits beyond 32, as decoders do.
func numberOf(tag uint64) int32 { return int32(tag >> 3) } //nolint:gosec // see above
