package report

import (
	"maps"
	"slices"
	"strings"

	"github.com/superpool/superpool/cmd/kubectl-vc/text"
)

const (
	// longestText is how many characters a value has at most, and mostItems how many a list or map.
	longestText = 1000
	mostItems   = 1000
)

// fields are those of an object that are taken, as a tree: what is not in it is left out. A field without others below is a
// number, a truth value or a text, or a list of those; "*" is each field of a map.
type fields map[string]fields

// fieldsOf returns fields by their paths, as "status.conditions.type": lists are passed through.
func fieldsOf(paths ...string) fields {
	tree := fields{}
	for _, path := range paths {
		at := tree
		for name := range strings.SplitSeq(path, ".") {
			if at[name] == nil {
				at[name] = fields{}
			}
			at = at[name]
		}
	}
	return tree
}

// of returns what of a value is taken, nil for nothing.
func (f fields) of(value any) any {
	switch value := value.(type) {
	case map[string]any:
		taken := map[string]any{}
		for _, name := range slices.Sorted(maps.Keys(value)) {
			below, is := f[name]
			if !is {
				below, is = f["*"]
			}
			if !is || len(taken) == mostItems {
				continue
			}
			if one := below.of(value[name]); one != nil {
				taken[text.Shortened(name, longestText)] = one
			}
		}
		if len(taken) > 0 {
			return taken
		}
	case []any:
		return f.ofList(value)
	case string:
		if len(f) == 0 {
			return text.Shortened(value, longestText)
		}
	case bool, int64, float64:
		if len(f) == 0 {
			return value
		}
	}
	return nil
}

// ofList is of for the items of a list.
func (f fields) ofList(items []any) any {
	var taken []any
	for _, item := range items[:min(len(items), mostItems)] {
		if one := f.of(item); one != nil {
			taken = append(taken, one)
		}
	}
	if len(taken) == 0 {
		return nil
	}
	return taken
}
