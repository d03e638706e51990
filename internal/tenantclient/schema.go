package tenantclient

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// shape is what a decoder makes of a message: a Go type, by the tags `protobuf` of its fields.
type shape struct {
	// fields are by number. Decoders skip what has another one.
	fields []field
	// size is how many bytes its Go type takes.
	size int64
}

// field is a field of a shape. The zero value is none.
type field struct {
	// wire is the type of its values. Lists of numbers may be packed into one of BytesType besides.
	wire protowire.Type
	// known is whether there is such a field, repeated whether it is a list.
	known, repeated bool
	// entry is whether its values are entries of a map: its keys are strings, its values strings or messages.
	entry bool
	// quantity is whether it is a string that is parsed as a quantity.
	quantity bool
	// each is how many bytes of memory a value takes besides its text and what is in it: an item of a list, an entry of
	// a map, what a pointer leads to. room is how many values have it from the first one on, and once what all of them
	// take besides.
	each, room, once int64
	// message is the shape of its values, or of a map's, nil if they are no messages.
	message *shape
}

// field returns the field with a number, nil if there is none.
func (s *shape) field(number protowire.Number) *field {
	if number < 0 || int(number) >= len(s.fields) || !s.fields[number].known {
		return nil
	}
	return &s.fields[number]
}

// shapes are the shapes of the types that were needed so far. They are safe for concurrent use.
type shapes struct {
	mu     sync.Mutex
	byType map[reflect.Type]*shape
}

// known are the shapes of kinds that clients know.
var known = shapes{byType: map[reflect.Type]*shape{}}

// unmarshaler is what decodes itself from protobuf.
type unmarshaler interface{ Unmarshal(data []byte) error }

var errNoProtobuf = errors.New("it has no protobuf")

// metadataTypes are what clients of metadata decode.
var metadataTypes = map[schema.GroupVersionKind]reflect.Type{
	metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata"):     reflect.TypeFor[metav1.PartialObjectMetadata](),
	metav1.SchemeGroupVersion.WithKind("PartialObjectMetadataList"): reflect.TypeFor[metav1.PartialObjectMetadataList](),
}

// ofKind returns the shape of a kind. All clients of tenants decode with the scheme of client-go, or metadata.
func (s *shapes) ofKind(gvk schema.GroupVersionKind) (*shape, error) {
	typ, exists := scheme.Scheme.AllKnownTypes()[gvk]
	if !exists {
		typ, exists = metadataTypes[gvk]
	}
	if !exists { // a metav1.Status is of any version
		object, err := scheme.Scheme.New(gvk)
		if err != nil {
			return nil, fmt.Errorf("kind %.64q of %.64q is not known", gvk.Kind, gvk.GroupVersion())
		}
		typ = reflect.TypeOf(object).Elem()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found, err := s.of(typ)
	if err != nil {
		return nil, fmt.Errorf("kind %.64q of %.64q: %w", gvk.Kind, gvk.GroupVersion(), err)
	}
	return found, nil
}

// of returns the shape of a type. The caller holds mu.
func (s *shapes) of(of reflect.Type) (*shape, error) {
	switch of {
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime]():
		of = reflect.TypeFor[metav1.Timestamp]()
	case reflect.TypeFor[resource.Quantity]():
		return &shape{fields: []field{1: {known: true, wire: protowire.BytesType, quantity: true}}}, nil
	}
	if found := s.byType[of]; found != nil {
		return found, nil
	}
	if _, ok := reflect.New(of).Interface().(unmarshaler); !ok && of != reflect.TypeFor[metav1.Timestamp]() {
		return nil, fmt.Errorf("%s: %w", of, errNoProtobuf)
	}
	if of.Kind() == reflect.Slice { // such as metav1.Verbs
		if of.Elem().Kind() != reflect.String {
			return nil, fmt.Errorf("%s: %w", of, errNoProtobuf)
		}
		return &shape{fields: []field{1: {known: true, wire: protowire.BytesType, repeated: true, each: sizeOfType(of.Elem()), room: 1}}}, nil
	}
	if of.Kind() != reflect.Struct {
		return nil, fmt.Errorf("%s: %w", of, errNoProtobuf)
	}
	made := &shape{size: sizeOfType(of)}
	s.byType[of] = made // types may be in themselves
	for i := range of.NumField() {
		if err := s.add(made, of.Field(i)); err != nil {
			delete(s.byType, of)
			return nil, fmt.Errorf("%s: %w", of, err)
		}
	}
	return made, nil
}

// maxNumber is more than all numbers of fields.
const maxNumber = 1000

// add adds a field of a Go type to its shape.
func (s *shapes) add(to *shape, member reflect.StructField) error {
	tag := member.Tag.Get("protobuf") // bytes,11,rep,name=labels, whose first word is wrong of some numbers
	if tag == "" || tag == "-" {
		return nil
	}
	parts := strings.Split(tag, ",")
	number, err := strconv.Atoi(parts[min(1, len(parts)-1)])
	if err != nil || number <= 0 || number > maxNumber {
		return fmt.Errorf("field %s: tag %q: %w", member.Name, tag, errNoProtobuf)
	}
	made := field{known: true, wire: protowire.BytesType, room: 1}
	if err := s.value(&made, member.Type); err != nil {
		return fmt.Errorf("field %s: %w", member.Name, err)
	}
	for len(to.fields) <= number {
		to.fields = append(to.fields, field{})
	}
	to.fields[number] = made
	return nil
}

// value says of a field what its Go type does.
func (s *shapes) value(of *field, typ reflect.Type) error {
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
		of.each += sizeOfType(typ)
	}
	_, whole := reflect.New(typ).Interface().(unmarshaler)
	switch {
	case typ.Kind() == reflect.Map && !of.repeated:
		if typ.Key().Kind() != reflect.String {
			return fmt.Errorf("%s: %w", typ, errNoProtobuf)
		}
		of.entry, of.repeated = true, true
		of.each, of.room, of.once = sizeOfType(typ.Key())+sizeOfType(typ.Elem())+mapEntryOverhead, mapRoom, mapOverhead
		return s.value(of, typ.Elem())
	case typ.Kind() == reflect.Struct, whole:
		var err error
		of.message, err = s.of(typ)
		return err
	case typ.Kind() == reflect.Slice && typ.Elem().Kind() == reflect.Uint8, typ.Kind() == reflect.String:
		return nil
	case typ.Kind() == reflect.Slice && !of.repeated:
		of.repeated = true
		of.each = sizeOfType(typ.Elem())
		return s.value(of, typ.Elem())
	case plain(typ.Kind()) && typ.Kind() < reflect.Float32 && !of.entry:
		of.wire = protowire.VarintType
		return nil
	}
	return fmt.Errorf("%s: %w", typ, errNoProtobuf)
}

func sizeOfType(of reflect.Type) int64 { return int64(of.Size()) } //nolint:gosec // the size of a type
