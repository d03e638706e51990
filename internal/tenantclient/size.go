package tenantclient

import (
	"reflect"
	"time"
)

// mapEntryOverhead is what an entry of a map takes besides key and value, about.
const mapEntryOverhead = 16

// mapOverhead is what a map takes besides its entries, for mapRoom of which it has room from the first on.
// The room doubles, up to about mapDoubles.
const mapOverhead, mapRoom, mapDoubles = 48, 8, 256

// sizeOf returns how many bytes of memory an object takes: not its size as text, since a list of empty structures has
// hardly any. What is kept once for many objects, such as a time zone, counts nothing.
func sizeOf(object any) int64 {
	return below(reflect.ValueOf(object))
}

// below returns the size of what value points to, without value itself.
func below(value reflect.Value) int64 {
	switch value.Kind() {
	case reflect.String:
		return int64(value.Len())
	case reflect.Pointer, reflect.Interface:
		if value.IsNil() {
			return 0
		}
		return int64(value.Elem().Type().Size()) + below(value.Elem()) //nolint:gosec // the size of a type
	case reflect.Slice:
		size := int64(value.Cap()) * int64(value.Type().Elem().Size()) //nolint:gosec // the size of a type
		if plain(value.Type().Elem().Kind()) {
			return size
		}
		for i := range value.Len() {
			size += below(value.Index(i))
		}
		return size
	case reflect.Map:
		if value.IsNil() {
			return 0
		}
		size := ofMap(value)
		for entries := value.MapRange(); entries.Next(); {
			size += below(entries.Key()) + below(entries.Value())
		}
		return size
	case reflect.Struct:
		if value.Type() == reflect.TypeFor[time.Time]() {
			return 0
		}
		var size int64
		for i := range value.NumField() {
			size += below(value.Field(i))
		}
		return size
	default:
		return 0
	}
}

// plain returns whether values of a kind point to nothing.
func plain(kind reflect.Kind) bool { return kind >= reflect.Bool && kind <= reflect.Complex128 }

// ofMap returns the size of a map without what its keys and values point to.
func ofMap(value reflect.Value) int64 {
	of, entries := value.Type(), int64(value.Len())
	entry := sizeOfType(of.Key()) + sizeOfType(of.Elem())
	if entries == 0 || entries > mapDoubles {
		return mapOverhead + entries*(entry+mapEntryOverhead)
	}
	room := int64(mapRoom)
	for room < entries {
		room *= 2
	}
	return mapOverhead + room*(entry+1)
}
