package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"go/doc"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// definition is what is read of a CustomResourceDefinition.
type definition struct {
	Spec struct {
		Group string `json:"group"`
		Names struct {
			Kind       string   `json:"kind"`
			ShortNames []string `json:"shortNames"`
		} `json:"names"`
		Scope    string `json:"scope"`
		Versions []struct {
			Name   string `json:"name"`
			Schema struct {
				OpenAPIV3Schema property `json:"openAPIV3Schema"`
			} `json:"schema"`
		} `json:"versions"`
	} `json:"spec"`
}

// property is what is read of the schema of a field.
type property struct {
	Description          string              `json:"description"`
	Type                 string              `json:"type"`
	Format               string              `json:"format"`
	IntOrString          bool                `json:"x-kubernetes-int-or-string"`
	Properties           map[string]property `json:"properties"`
	Items                *property           `json:"items"`
	AdditionalProperties *property           `json:"additionalProperties"`
	Required             []string            `json:"required"`
	Default              json.RawMessage     `json:"default"`
	Enum                 []string            `json:"enum"`
	Pattern              string              `json:"pattern"`
	Minimum              *json.Number        `json:"minimum"`
	Maximum              *json.Number        `json:"maximum"`
	MinLength            *json.Number        `json:"minLength"`
	MaxLength            *json.Number        `json:"maxLength"`
	MinItems             *json.Number        `json:"minItems"`
	MaxItems             *json.Number        `json:"maxItems"`
	MaxProperties        *json.Number        `json:"maxProperties"`
	Validations          []struct {
		Message string `json:"message"`
	} `json:"x-kubernetes-validations"`
}

// kubernetesTypes are fields of types that Kubernetes documents, by the end of their path.
var kubernetesTypes = map[string]string{
	"status.conditions":                       "list of Condition",
	"clusterChoice.nodeAffinity":              "NodeAffinity",
	"clusterChoice.tolerations":               "list of Toleration",
	"clusterChoice.topologySpreadConstraints": "list of TopologySpreadConstraint",
	"spec.apiServer.resources":                "ResourceRequirements",
}

// scopes are the values of spec.scope in words.
var scopes = map[string]string{"Cluster": "cluster-scoped", "Namespaced": "in namespaces"}

// crdsPage lists the fields of our kinds as the CustomResourceDefinitions have them. A field without a description is
// an error.
func crdsPage(code *source) (string, error) {
	paths, err := filepath.Glob(filepath.Join(code.root, "manifests", "crds", "*_*.yaml"))
	if err != nil {
		return "", fmt.Errorf("looking for CustomResourceDefinitions: %w", err)
	}
	page := strings.Builder{}
	page.WriteString(notice + "# Kinds\n\nThe fields of lists and maps are below `[]` and `{}`. \"Like\" names a row whose fields are the same.\n")
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("reading a CustomResourceDefinition: %w", err)
		}
		var crd definition
		if err := yaml.Unmarshal(text, &crd); err != nil {
			return "", fmt.Errorf("decoding %s: %w", path, err)
		}
		for _, version := range crd.Spec.Versions {
			fields := fieldTable{seen: map[string]property{}}
			schema := version.Schema.OpenAPIV3Schema
			for _, part := range []string{"spec", "status"} {
				if of, exists := schema.Properties[part]; exists {
					fields.add(part, of, false)
				}
			}
			if len(fields.bare) > 0 {
				return "", fmt.Errorf("%s: no comment", strings.Join(fields.bare, ", "))
			}
			fmt.Fprintf(&page, "\n## %s\n\n`%s/%s`, %s%s. %s\n\n%s", crd.Spec.Names.Kind, crd.Spec.Group, version.Name,
				scopes[crd.Spec.Scope], shortNames(crd.Spec.Names.ShortNames), prosaic(schema.Description)+ruled(schema),
				table([]string{"field", "type", "rules", "what"}, fields.rows))
		}
	}
	return page.String(), nil
}

func shortNames(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return ", short `" + strings.Join(names, "`, `") + "`"
}

// ruled says what the rules of a kind as a whole are, "" where there are none.
func ruled(schema property) string {
	rules := schema.rules(false)
	if len(rules) == 0 {
		return ""
	}
	return " Rules: " + strings.Join(rules, "; ") + "."
}

func prosaic(text string) string { return escapeHTML(strings.Join(strings.Fields(text), " ")) }

// fieldTable is the table of one kind.
type fieldTable struct {
	rows [][]string
	// bare are the paths of fields without a description.
	bare []string
	// seen are the schemas of objects with several fields, by path.
	seen map[string]property
}

// add lists a field and those below it, in the order of their names.
func (f *fieldTable) add(path string, of property, required bool) {
	known := ""
	for end, name := range kubernetesTypes {
		if strings.HasSuffix(path, end) {
			known = name
		}
	}
	inner, shown := of.inner(path)
	like := f.like(inner)
	what := of.summary(path[strings.LastIndex(path, ".")+1:])
	if what == "" {
		f.bare = append(f.bare, path)
	}
	if like != "" {
		what += " Like `" + like + "`."
	}
	f.rows = append(f.rows, []string{"`" + shown + "`", cmp.Or(known, of.typeName()), strings.Join(of.rules(required), "; "), escapeHTML(what)})
	if known != "" || like != "" {
		return
	}
	if len(inner.Properties) > 1 {
		f.seen[shown] = inner
	}
	for _, below := range sortedKeys(inner.Properties) {
		f.add(shown+"."+below, inner.Properties[below], slices.Contains(inner.Required, below))
	}
}

// summary returns the first sentence of the description of a field, without "name is".
func (p property) summary(name string) string {
	one := constant{Name: name, Doc: new(doc.Package).Synopsis(strings.Join(strings.Fields(p.Description), " "))}
	if strings.HasPrefix(one.Doc, name+" of ") || strings.HasPrefix(one.Doc, name+" in ") {
		one.Name = "" // "image of the component"
	}
	return one.meaning()
}

// like returns the path of an object with the same fields that is listed already, "" for none.
func (f *fieldTable) like(of property) string {
	for _, path := range sortedKeys(f.seen) {
		if len(of.Properties) > 1 && reflect.DeepEqual(f.seen[path].Properties, of.Properties) {
			return path
		}
	}
	return ""
}

// inner returns what a list or a map holds, or the field itself, and the path as it is shown.
func (p property) inner(path string) (property, string) {
	switch {
	case p.Items != nil:
		return *p.Items, path + "[]"
	case p.AdditionalProperties != nil:
		return *p.AdditionalProperties, path + "{}"
	default:
		return p, path
	}
}

func (p property) typeName() string {
	switch {
	case p.Items != nil:
		return "list of " + p.Items.typeName()
	case p.AdditionalProperties != nil:
		return "map of " + p.AdditionalProperties.typeName()
	case p.IntOrString:
		return "quantity"
	case p.Format == "date-time":
		return "time"
	default:
		return p.Type
	}
}

// rules says what a field and the values of its list or map must be, and what it is where nobody writes it.
func (p property) rules(required bool) []string {
	var rules []string
	if required {
		rules = append(rules, "required")
	}
	if len(p.Default) > 0 && string(p.Default) != "{}" {
		rules = append(rules, "default `"+string(p.Default)+"`")
	}
	of, _ := p.inner("")
	if len(of.Enum) > 0 {
		rules = append(rules, "one of `"+strings.Join(of.Enum, "`, `")+"`")
	}
	if of.Pattern != "" && !of.IntOrString {
		rules = append(rules, "matches `"+of.Pattern+"`")
	}
	for _, rule := range []string{
		between(of.Minimum, of.Maximum, ""), between(of.MinLength, of.MaxLength, " characters"),
		between(p.MinItems, p.MaxItems, " items"), between(nil, p.MaxProperties, " keys"),
	} {
		if rule != "" {
			rules = append(rules, rule)
		}
	}
	validations := p.Validations
	if p.Items != nil || p.AdditionalProperties != nil {
		validations = slices.Concat(validations, of.Validations)
	}
	for _, validation := range validations {
		rules = append(rules, escapeHTML(validation.Message))
	}
	return rules
}

// between says what the least and the most is, "" where there are no bounds.
func between(least, most *json.Number, of string) string {
	switch {
	case least != nil && most == nil && *least == "1" && of == " characters":
		return "not empty"
	case least != nil && most != nil:
		return fmt.Sprintf("%s to %s%s", *least, *most, of)
	case least != nil:
		return fmt.Sprintf("at least %s%s", *least, of)
	case most != nil:
		return fmt.Sprintf("at most %s%s", *most, of)
	default:
		return ""
	}
}
