package syncpolicy

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// path leads to a field of an object: the names of the members on the way.
type path []string

type paths []path

const (
	// maxPaths bounds the paths of one list, and maxDepth the names of one path, where a SyncPolicy was not validated.
	maxPaths, maxDepth = 64, 32
)

var statusPath = path{"status"}

// identity are the members of an object that no path leads to: who it is.
var identity = [...]string{"apiVersion", "kind", "metadata"}

func parsePaths(texts []string) (paths, error) {
	if len(texts) > maxPaths {
		return nil, fmt.Errorf("%d paths: at most %d are allowed", len(texts), maxPaths)
	}
	all := make(paths, 0, len(texts))
	for _, text := range texts {
		parsed, err := parsePath(text)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", text, err)
		}
		all = append(all, parsed)
	}
	return all, nil
}

func parsePath(text string) (path, error) {
	parsed := path(strings.Split(text, "."))
	switch {
	case len(parsed) > maxDepth:
		return nil, fmt.Errorf("has more than %d names", maxDepth)
	case slices.Contains(parsed, ""):
		return nil, errors.New("is no path: write names with dots between them, as status or spec.replicas")
	case strings.ContainsAny(text, "[]*/\"'\\ "):
		return nil, errors.New("names an element or a pattern: only whole fields can be named, as spec.replicas")
	case slices.Contains(identity[:], parsed[0]):
		return nil, fmt.Errorf("%s cannot be named: labels and annotations follow the TenantPolicy", parsed[0])
	}
	return parsed, nil
}

// get returns the value at a path, which is not copied.
func (p path) get(object map[string]any) (any, bool) {
	for _, name := range p[:len(p)-1] {
		next, ok := object[name].(map[string]any)
		if !ok {
			return nil, false
		}
		object = next
	}
	value, exists := object[p[len(p)-1]]
	return value, exists
}

// set sets a copy of value at a path, and makes the objects on the way. It does nothing where something else is in the
// way.
func (p path) set(object map[string]any, value any) {
	for _, name := range p[:len(p)-1] {
		next, ok := object[name].(map[string]any)
		if !ok {
			if there, exists := object[name]; exists && there != nil {
				return
			}
			next = map[string]any{}
			object[name] = next
		}
		object = next
	}
	object[p[len(p)-1]] = runtime.DeepCopyJSONValue(value)
}

// remove removes what is at a path, and the objects on the way that are empty then.
func (p path) remove(object map[string]any) {
	if len(p) == 1 {
		delete(object, p[0])
		return
	}
	next, ok := object[p[0]].(map[string]any)
	if !ok {
		return
	}
	before := len(next)
	p[1:].remove(next)
	if len(next) == 0 && before > 0 {
		delete(object, p[0])
	}
}

// notDown are the paths of fields that do not go down.
func (r *Rules) notDown() paths { return slices.Concat(r.stay, r.up, paths{statusPath}) }

// Part returns what of an object goes to the other side, besides metadata.
func (r *Rules) Part(object map[string]any) map[string]any {
	part := maps.Clone(object)
	for _, name := range identity {
		delete(part, name)
	}
	part = runtime.DeepCopyJSON(part)
	for _, each := range r.notDown() {
		each.remove(part)
	}
	return part
}

// Identified returns part with the identity of an object.
func Identified(part, object map[string]any) map[string]any {
	identified := runtime.DeepCopyJSON(part)
	for _, name := range identity {
		if value, exists := object[name]; exists {
			identified[name] = runtime.DeepCopyJSONValue(value)
		}
	}
	return identified
}

// Down returns superObject with part in place of what it has, besides metadata and the fields that do not go down.
func (r *Rules) Down(part, superObject map[string]any) map[string]any {
	desired := Identified(part, superObject)
	for _, each := range r.notDown() {
		if value, exists := each.get(superObject); exists {
			each.set(desired, value)
		}
	}
	return desired
}

// Up returns tenantObject with the fields of superObject that come up: those of status, or else the others.
func (r *Rules) Up(superObject, tenantObject map[string]any, status bool) map[string]any {
	desired := runtime.DeepCopyJSON(tenantObject)
	for _, each := range r.up {
		if (each[0] == statusPath[0]) != status {
			continue
		}
		if value, exists := each.get(superObject); exists {
			each.set(desired, value)
		} else {
			each.remove(desired)
		}
	}
	return desired
}

// Differs returns the path of the first field of part that superObject lacks or has another value of, "" if there is
// none. Fields that superObject has besides, such as defaults of its API server, are no difference.
func Differs(part, superObject map[string]any) string {
	for _, name := range slices.Sorted(maps.Keys(part)) {
		if where := differs(part[name], superObject[name], name); where != "" {
			return where
		}
	}
	return ""
}

func differs(part, found any, at string) string {
	switch want := part.(type) {
	case map[string]any:
		has, ok := found.(map[string]any)
		if !ok {
			return at
		}
		if where := Differs(want, has); where != "" {
			return at + "." + where
		}
		return ""
	case []any:
		has, ok := found.([]any)
		if !ok || len(has) != len(want) {
			return at
		}
		for i := range want {
			if where := differs(want[i], has[i], fmt.Sprintf("%s[%d]", at, i)); where != "" {
				return where
			}
		}
		return ""
	}
	if !sameScalar(part, found) {
		return at
	}
	return ""
}

// Equal returns whether two values say the same: an empty list or object and none are alike.
func Equal(a, b any) bool {
	switch one := a.(type) {
	case map[string]any:
		other, ok := b.(map[string]any)
		return (ok || b == nil) && maps.EqualFunc(one, other, Equal)
	case []any:
		other, ok := b.([]any)
		return (ok || b == nil) && slices.EqualFunc(one, other, Equal)
	case nil:
		members, isObject := b.(map[string]any)
		elements, isList := b.([]any)
		return b == nil || isObject && len(members) == 0 || isList && len(elements) == 0
	}
	return reflect.DeepEqual(a, b)
}

// sameScalar compares numbers by value: one API server may write 1, and another 1.0.
func sameScalar(a, b any) bool {
	switch number := a.(type) {
	case int64:
		if other, ok := b.(float64); ok {
			return float64(number) == other
		}
	case float64:
		if other, ok := b.(int64); ok {
			return number == float64(other)
		}
	}
	return reflect.DeepEqual(a, b)
}

// Size returns the size of an object as text, about.
func Size(value any) int64 {
	switch typed := value.(type) {
	case map[string]any:
		size := int64(2)
		for name, member := range typed {
			size += int64(len(name)) + 4 + Size(member)
		}
		return size
	case []any:
		size := int64(2)
		for _, element := range typed {
			size += 1 + Size(element)
		}
		return size
	case string:
		return int64(len(typed)) + 2
	}
	return 8
}
