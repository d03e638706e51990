package skew

import (
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

const (
	// MaxLost is how many fields Lost names.
	MaxLost = 8
	// maxValues bounds how many values Lost compares: no pod that goes down has so many.
	maxValues = 1 << 18
)

// Lost returns the paths of fields of a pod that were sent to an API server and are missing in what it made of them, at
// most MaxLost: it does not know them, or a feature gate is off. What it has set or changed is no loss, nor what others
// have added to a list: there an element is found by its name. The specs are not changed.
func Lost(sent, got *corev1.PodSpec) []string {
	l := &losses{left: maxValues}
	l.compare("spec", reflect.ValueOf(sent).Elem(), reflect.ValueOf(got).Elem())
	return l.paths
}

// losses are those found so far.
type losses struct {
	paths []string
	left  int
}

// compare finds what sent has and got lacks. Of a struct that is its fields.
func (l *losses) compare(path string, sent, got reflect.Value) {
	if l.left--; l.left < 0 || len(l.paths) == MaxLost || isEmpty(sent) {
		return
	}
	switch sent.Kind() { //nolint:exhaustive // Of all others a value that is there is none that is missing.
	case reflect.Struct:
		l.fields(path, sent, got)
		return
	case reflect.Pointer:
		if !got.IsNil() && sent.Elem().Kind() == reflect.Struct {
			l.compare(path, sent.Elem(), got.Elem())
		}
		if !got.IsNil() {
			return
		}
	case reflect.Slice:
		if got.Len() > 0 {
			l.elements(path, sent, got)
			return
		}
	}
	if isEmpty(got) {
		l.paths = append(l.paths, path)
	}
}

// fields is compare for structs.
func (l *losses) fields(path string, sent, got reflect.Value) {
	for i := range sent.NumField() {
		field := sent.Type().Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name != "":
			l.compare(path+"."+name, sent.Field(i), got.Field(i))
		case field.Anonymous && field.Type.Kind() == reflect.Struct:
			l.compare(path, sent.Field(i), got.Field(i))
		} // what else has no name is within a value, as of a Quantity
	}
}

// elements is compare for lists of structs. An element without a name, or with one that another has, too, is told by its
// index.
func (l *losses) elements(path string, sent, got reflect.Value) {
	if sent.Type().Elem().Kind() != reflect.Struct {
		return
	}
	at := map[string][]int{}
	for i := range got.Len() {
		at[nameOf(got.Index(i))] = append(at[nameOf(got.Index(i))], i)
	}
	for i := range sent.Len() {
		where, name := fmt.Sprintf("%s[%d]", path, i), nameOf(sent.Index(i))
		switch found := at[name]; {
		case name != "" && len(found) == 0 && len(l.paths) < MaxLost:
			l.paths = append(l.paths, where)
		case name != "" && len(found) == 1:
			l.compare(where, sent.Index(i), got.Index(found[0]))
		case sent.Len() == got.Len() && name == nameOf(got.Index(i)):
			l.compare(where, sent.Index(i), got.Index(i))
		}
	}
}

// nameOf returns the name of an element of a list, "" for none.
func nameOf(element reflect.Value) string {
	if name := element.FieldByName("Name"); name.IsValid() && name.Kind() == reflect.String {
		return name.String()
	}
	return ""
}

// isEmpty returns whether a value says nothing: that of a pointer to a struct without values is none, and that of a
// pointer to false is one.
func isEmpty(value reflect.Value) bool {
	switch value.Kind() { //nolint:exhaustive // All others are empty where they are zero.
	case reflect.Pointer:
		return value.IsNil() || value.Elem().Kind() == reflect.Struct && isEmpty(value.Elem())
	case reflect.Slice, reflect.Map:
		return value.Len() == 0
	}
	return value.IsZero()
}
