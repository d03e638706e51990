package chart

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// width is that of the text of comments.
const width = 110

// node is a value, or what is above some.
type node struct {
	name, what string
	// parameter is nil of one with others below it.
	parameter *Parameter
	below     []*node
}

// tree returns values by their names, in the order of the parameters.
func tree(parameters []Parameter, groups map[string]string) *node {
	root := &node{}
	for i := range parameters {
		p, at := &parameters[i], root
		names := strings.Split(p.Value, ".")
		for depth, name := range names {
			index := slices.IndexFunc(at.below, func(n *node) bool { return n.name == name })
			if index < 0 {
				index = len(at.below)
				at.below = append(at.below, &node{name: name, what: groups[strings.Join(names[:depth+1], ".")]})
			}
			at = at.below[index]
		}
		at.what, at.parameter = p.What, p
	}
	return root
}

// yaml returns values.yaml.
func (n *node) yaml() ([]byte, error) {
	var text strings.Builder
	if err := n.print(&text, ""); err != nil {
		return nil, err
	}
	return []byte(text.String()), nil
}

func (n *node) print(text *strings.Builder, space string) error {
	for _, below := range n.below {
		if below.what == "" {
			return fmt.Errorf("nothing is said of value %s", below.name)
		}
		line := space + "#"
		for _, word := range strings.Fields(below.what) {
			if len(line)+1+len(word) > width {
				text.WriteString(line + "\n")
				line = space + "#"
			}
			line += " " + word
		}
		text.WriteString(line + "\n" + space + below.name + ":")
		if below.parameter == nil {
			text.WriteString("\n")
			if err := below.print(text, space+"  "); err != nil {
				return err
			}
			continue
		}
		content, err := yaml.Marshal(below.parameter.Default)
		if err != nil {
			return fmt.Errorf("printing value %s: %w", below.parameter.Value, err)
		}
		if printed := string(content); strings.Count(printed, "\n") > 1 || strings.Contains(printed, ": ") {
			text.WriteString("\n")
			for line := range strings.Lines(printed) {
				text.WriteString(space + "  " + line)
			}
		} else {
			text.WriteString(" " + printed)
		}
	}
	return nil
}

// json returns values.schema.json.
func (n *node) json() ([]byte, error) {
	schema := n.schema()
	schema["$schema"] = "http://json-schema.org/draft-07/schema#"
	schema["properties"].(Schema)["global"] = Schema{"type": "object"} // Helm puts it into the values of a part of another chart
	text, err := json.MarshalIndent(schema, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("printing the schema: %w", err)
	}
	return append(text, '\n'), nil
}

// schema requires all values, so that null, by which Helm takes a default away, is refused.
func (n *node) schema() Schema {
	if n.parameter != nil {
		schema := maps.Clone(n.parameter.Schema)
		schema["description"] = n.what
		return schema
	}
	properties, required := Schema{}, []string{}
	for _, below := range n.below {
		properties[below.name], required = below.schema(), append(required, below.name)
	}
	schema := Schema{"type": "object", "additionalProperties": false, "properties": properties, "required": required}
	if n.what != "" {
		schema["description"] = n.what
	}
	return schema
}
