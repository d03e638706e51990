// Package objectsize says how large objects are: how much they take in an etcd.
package objectsize

import (
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/syncpolicy"
)

// Of returns the size of an object in bytes, without managedFields where it has none, as in caches; 0 for an object
// that is neither of a type of Kubernetes nor unstructured.
func Of(object client.Object) int64 {
	switch typed := object.(type) {
	case interface{ Size() int }:
		return int64(typed.Size())
	case *unstructured.Unstructured:
		return syncpolicy.Size(typed.Object)
	}
	return 0
}

// Stored returns what an object counts in limits, in bytes: its own size or that of its managedFields, whichever is
// larger. So it takes at most twice as much in etcd, whatever it has many of.
func Stored(object client.Object) int64 { return max(Of(object), fieldBytes(object)) }

// What managedFields say of a field, an element of a list and one with two keys, besides names and values: "f:":{}, and
// "k:{\"\":\"\"}":{".":{}}, and \"protocol\":\"SCTP\" there.
const perField, perElement, perProtocol = 8, 25, 24

// jsonFields are how many halves of a custom object its managedFields count at most.
const jsonFields = 3

// fieldBytes returns the size of the managedFields of an object that one manager writes, about. Caches have
// none, and a write has to be counted before there are any. Tags of the API's types tell the lists whose elements are
// managed one by one. Of JSON all are taken for such, up to jsonFields: what a custom resource does not say is managed
// as a whole.
func fieldBytes(object client.Object) (size int64) {
	if untyped, ok := object.(*unstructured.Unstructured); ok {
		return min(jsonFieldBytes(untyped.Object), jsonFields*Of(object)/2)
	}
	value := reflect.ValueOf(object)
	if value.Kind() != reflect.Pointer || value.IsNil() {
		return 0
	}
	return fieldBytesOf(value.Elem())
}

// leaves are structures that are one value in JSON.
var leaves = map[reflect.Type]struct{}{
	reflect.TypeFor[metav1.Time](): {}, reflect.TypeFor[metav1.MicroTime](): {}, reflect.TypeFor[resource.Quantity](): {}, reflect.TypeFor[intstr.IntOrString](): {},
}

// fieldBytesOf returns what managedFields say of what is below a value.
func fieldBytesOf(value reflect.Value) (size int64) {
	switch value.Kind() {
	case reflect.Pointer:
		return fieldBytesOf(value.Elem())
	case reflect.Map:
		return mapFieldBytes(value)
	case reflect.Struct:
	default:
		return 0
	}
	if _, isLeaf := leaves[value.Type()]; isLeaf {
		return 0
	}
	for i := range value.NumField() {
		below := value.Field(i)
		if below.IsZero() && below.Kind() != reflect.Struct { // an empty structure is written, too
			continue
		}
		field := value.Type().Field(i)
		if below.Kind() == reflect.Slice {
			size += elementBytes(below, &field)
		} else {
			size += fieldBytesOf(below)
		}
		if !field.Anonymous {
			size += int64(len(field.Name)) + perField
		}
	}
	return size
}

// elementBytes is fieldBytesOf for a list, nothing for one that is managed as a whole.
func elementBytes(list reflect.Value, field *reflect.StructField) (size int64) {
	if !strings.HasPrefix(field.Tag.Get("patchStrategy"), "merge") {
		return 0
	}
	key := field.Tag.Get("patchMergeKey")
	for i := range list.Len() {
		element := list.Index(i)
		size += perElement + int64(len(key))
		if element.Kind() == reflect.String {
			size += escaped(element.String())
			continue
		}
		size += fieldBytesOf(element)
		if element.Kind() != reflect.Struct || key == "" {
			continue
		}
		keyed := element.FieldByNameFunc(func(name string) bool { return strings.EqualFold(name, key) })
		if keyed.Kind() == reflect.String {
			size += escaped(keyed.String())
		} else {
			size += perProtocol
		}
	}
	return size
}

func mapFieldBytes(value reflect.Value) (size int64) {
	switch typed := value.Interface().(type) {
	case map[string]string:
		for key := range typed {
			size += int64(len(key)) + perField
		}
	case map[string][]byte:
		for key := range typed {
			size += int64(len(key)) + perField
		}
	case corev1.ResourceList:
		for key := range typed {
			size += int64(len(key)) + perField
		}
	default:
		for entries := value.MapRange(); entries.Next(); {
			size += int64(len(entries.Key().String())) + perField
		}
	}
	return size
}

// jsonFieldBytes is fieldBytesOf for decoded JSON.
func jsonFieldBytes(value any) (size int64) {
	switch typed := value.(type) {
	case map[string]any:
		for name, member := range typed {
			size += int64(len(name)) + perField + jsonFieldBytes(member)
		}
	case []any:
		for _, element := range typed {
			size += perElement + jsonFieldBytes(element)
			switch keyed := element.(type) {
			case string:
				size += escaped(keyed)
			case map[string]any:
				size += jsonKeyBytes(keyed)
			}
		}
	}
	return size
}

// jsonKeyBytes returns how long the longest key of an element may be.
func jsonKeyBytes(element map[string]any) (longest int64) {
	for name, member := range element {
		text, _ := member.(string)
		longest = max(longest, int64(len(name))+escaped(text))
	}
	return longest
}

// escaped returns how long a text is in the key of an element, which is JSON in JSON.
func escaped(text string) int64 {
	special := 0
	for i := range len(text) {
		if text[i] < ' ' || strings.IndexByte(`"\<>&`, text[i]) >= 0 {
			special++
		}
	}
	return int64(len(text) + 6*special)
}
