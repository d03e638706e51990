package chart

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// writer puts marks into objects, prints them, and puts templates into the place of the marks.
type writer struct {
	chart *Chart
	// objects are those of all parts, by Name.
	objects map[string]Object
	// when is the value that says whether an object is there, by Name.
	when map[string]string
	// found are the Words that are there.
	found map[string]bool
	// marks are what is in the place of each mark. It is given the space before the line, and its key with what is before
	// it, as "- name: ".
	marks []func(space, key string) (string, error)
}

const mark = "SUPERPOOL_MARK_"

// marked is a line with a mark.
var marked = regexp.MustCompile(`(?m)^( *)((?:- )?(?:[^\s:]+: )?)` + mark + `(\d+)$`)

// place puts marks into the fields of a parameter, and sets its Default where it has none.
func (w *writer) place(p *Parameter) error {
	if len(p.Fields) == 0 && !slices.ContainsFunc(w.chart.Parts, func(part Part) bool { return part.When == p.Value }) &&
		!strings.Contains(strings.Join(slices.Collect(maps.Values(w.chart.Words)), ""), ".Values."+p.Value+" ") {
		return fmt.Errorf("nothing has value %s", p.Value)
	}
	for _, field := range p.Fields {
		object := w.objects[field.Object]
		if object == nil {
			return fmt.Errorf("value %s is of %s, which is not there, or there twice", p.Value, field.Object)
		}
		if field.Path == "" {
			w.when[field.Object] = p.Value
			continue
		}
		before, present, err := set(object, field.Path, mark+strconv.Itoa(len(w.marks)))
		if err != nil {
			return fmt.Errorf("value %s: %s: %w", p.Value, field.Object, err)
		}
		if p.Default == nil && present {
			p.Default = before
		}
		w.marks = append(w.marks, w.template(p, field, present))
	}
	if p.Default == nil {
		return fmt.Errorf("value %s has no default: %s has no %s", p.Value, p.Fields[0].Object, p.Fields[0].Path)
	}
	return nil
}

// template returns what is in the place of a mark.
func (w *writer) template(p *Parameter, field Field, present bool) func(space, key string) (string, error) {
	expression := ".Values." + p.Value
	if field.Expression != "" {
		expression = "(" + field.Expression + ")"
	}
	wide := p.Schema["type"] == "object" || p.Schema["type"] == "array"
	return func(space, key string) (string, error) {
		switch {
		case len(field.Of) > 0:
			return w.choice(p, field, space, key)
		case strings.HasSuffix(field.Path, "/-"):
			return fmt.Sprintf("%[1]s{{- with %[2]s }}\n%[1]s{{- toYaml . | nindent %[3]d }}\n%[1]s{{- end }}", space, expression, len(space)), nil
		case !present && strings.HasPrefix(key, "- "):
			return "", fmt.Errorf("value %s: %s would be the first field of an element", p.Value, field.Path)
		}
		used := expression
		if !present {
			used = "."
		}
		line := space + key + "{{ " + used + scalar(p.Schema) + " }}"
		if wide {
			line = fmt.Sprintf("%s%s\n%s  {{- toYaml %s | nindent %d }}", space, strings.TrimSuffix(key, " "), space, used, len(space)+2)
		}
		if !present {
			line = fmt.Sprintf("%[1]s{{- with %[2]s }}\n%[3]s\n%[1]s{{- end }}", space, expression, line)
		}
		return line, nil
	}
}

// scalar returns how a scalar is printed: Helm reads numbers as floating ones.
func scalar(s Schema) string {
	switch s["type"] {
	case "integer":
		return " | int"
	case "boolean":
		return ""
	}
	return " | quote"
}

// choice returns a field that is that of one of several objects.
func (w *writer) choice(p *Parameter, field Field, space, key string) (string, error) {
	var text strings.Builder
	word := "if"
	for _, option := range slices.Sorted(maps.Keys(field.Of)) {
		var from Object
		for _, part := range w.chart.Parts {
			for _, object := range part.Objects {
				if Name(object) == field.Of[option] {
					from = object
				}
			}
		}
		value, present := from[field.Path]
		if !present {
			return "", fmt.Errorf("value %s: %s has no %s", p.Value, field.Of[option], field.Path)
		}
		content, err := yaml.Marshal(value)
		if err != nil {
			return "", fmt.Errorf("printing %s: %w", field.Of[option], err)
		}
		_, _ = fmt.Fprintf(&text, "%s{{- %s eq .Values.%s %q }}\n%s%s\n", space, word, p.Value, option, space, strings.TrimSuffix(key, " "))
		for line := range strings.Lines(escape(string(content))) {
			text.WriteString(space + "  " + line)
		}
		word = "else if"
	}
	return text.String() + space + "{{- end }}", nil
}

// escape makes Helm print what is a template of somebody else.
func escape(text string) string { return strings.ReplaceAll(text, "{{", `{{ "{{" }}`) }

// text returns the templates of a part.
func (w *writer) text(part Part) ([]byte, error) {
	var text bytes.Buffer
	for _, object := range part.Objects {
		content, err := yaml.Marshal(w.inside(object))
		if err != nil {
			return nil, fmt.Errorf("printing %s: %w", Name(object), err)
		}
		var problems []error
		content = marked.ReplaceAllFunc([]byte(escape(string(content))), func(line []byte) []byte {
			parts := marked.FindSubmatch(line)
			i, _ := strconv.Atoi(string(parts[3])) // it is a number
			made, err := w.marks[i](string(parts[1]), string(parts[2]))
			problems = append(problems, err)
			return []byte(made)
		})
		if bytes.Contains(content, []byte(mark)) {
			problems = append(problems, fmt.Errorf("a mark is left in %s", Name(object)))
		}
		if err := errors.Join(problems...); err != nil {
			return nil, err
		}
		if when := w.when[Name(object)]; when != "" {
			content = fmt.Appendf(nil, "{{- if .Values.%s }}\n---\n%s{{- end }}\n", when, content)
		} else {
			content = append([]byte("---\n"), content...)
		}
		text.Write(content)
	}
	if part.When != "" {
		return fmt.Appendf(nil, "{{- if .Values.%s }}\n%s{{- end }}\n", part.When, text.Bytes()), nil
	}
	return text.Bytes(), nil
}

// inside returns a value of an object with marks for strings that have one of Chart.Words.
func (w *writer) inside(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key := range value {
			value[key] = w.inside(value[key])
		}
	case []any:
		for i := range value {
			value[i] = w.inside(value[i])
		}
	case string:
		text := value
		for _, word := range slices.Sorted(maps.Keys(w.chart.Words)) {
			if strings.Contains(text, word) {
				text, w.found[word] = strings.ReplaceAll(text, word, w.chart.Words[word]), true
			}
		}
		if text == value {
			return value
		}
		w.marks = append(w.marks, func(space, key string) (string, error) { return space + key + `"` + text + `"`, nil })
		return mark + strconv.Itoa(len(w.marks)-1)
	}
	return value
}

// set sets a field, and returns what was there. Maps on the way may be missing, lists may not.
func set(object Object, path string, value any) (before any, present bool, err error) {
	keys := strings.Split(path, "/")
	for i := range keys {
		keys[i] = strings.ReplaceAll(keys[i], "~1", "/")
	}
	var at any = object
	assign := func(any) {}
	for i, key := range keys {
		last := i == len(keys)-1
		switch parent := at.(type) {
		case map[string]any:
			next, found := parent[key]
			if last {
				parent[key] = value
				return next, found, nil
			}
			if !found && keys[i+1] != "-" {
				next = map[string]any{}
				parent[key] = next
			}
			at, assign = next, func(list any) { parent[key] = list }
		case []any:
			if key == "-" && last {
				assign(append(parent, value))
				return nil, false, nil
			}
			index, err := strconv.Atoi(key)
			if err != nil {
				index = slices.IndexFunc(parent, func(element any) bool { fields, _ := element.(map[string]any); return fields["name"] == key })
			}
			if index < 0 || index >= len(parent) {
				return nil, false, fmt.Errorf("%s is not there: %s is no element", path, key)
			}
			if last {
				before, parent[index] = parent[index], value
				return before, true, nil
			}
			at, assign = parent[index], func(list any) { parent[index] = list }
		default:
			return nil, false, fmt.Errorf("%s is not there: nothing is above %s", path, key)
		}
	}
	return nil, false, fmt.Errorf("%s is no path", path)
}
