// Package chart turns objects that kustomize has built into a Helm chart. What a user may set is a table of Parameters:
// each is one value and the fields that have it. The objects are the only source: with default values a chart renders to
// them, and the defaults are what their fields have.
package chart

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// keep is on what a release of Helm leaves where it is when it is deleted.
// Written by this package; read by Helm.
const keep = "helm.sh/resource-policy"

// kept are the kinds that stay: with a definition go all its objects, with a namespace all that is in it, and with a
// TenantPolicy what tenants may.
var kept = []string{"CustomResourceDefinition", "Namespace", "TenantPolicy"}

// Object is one object, as in JSON.
type Object = map[string]any

// Schema is a JSON schema.
type Schema = map[string]any

// Chart is what a chart is made of.
type Chart struct {
	Name, Description string
	// Version is semantic and without a v, AppVersion that of the programs.
	Version, AppVersion string
	// KubeVersion is which versions of Kubernetes Helm installs it in, "" for all.
	KubeVersion string
	Parts       []Part
	Parameters  []Parameter
	// Groups has what values.yaml says of values with others below them.
	Groups map[string]string
	// Words are texts within strings of the objects, by the template that takes the place of each. The schemas of the
	// values in it let no quotes in.
	Words map[string]string
	// Notes is the template of what Helm prints.
	Notes string
}

// Part is one file of templates.
type Part struct {
	// File is its name without .yaml.
	File    string
	Objects []Object
	// When is the value that says whether they are there, "" for always.
	When string
}

// Parameter is one value.
type Parameter struct {
	// Value is its name, as scheduler.replicas, and What its comment in values.yaml.
	Value, What string
	Schema      Schema
	// Default is nil for what the first of Fields has in the objects.
	Default any
	// Fields have it. Only a value that is When of a Part, or in one of Words, may have none.
	Fields []Field
}

// Field is where a value is. A field that the objects have is replaced; one that they have not is there while the value
// is not empty.
type Field struct {
	// Object is its kind and name, as Deployment/vc-scheduler.
	Object string
	// Path is a JSON pointer without the first slash, in which an element of a list may be called by its name. At its end,
	// - is the end of a list, to which a list is appended. An empty one is the object itself, which is there or not.
	Path string
	// Expression is of Helm's templates, where the field is not the value itself.
	Expression string
	// Of has, by each string that the value may be, the object whose field of this name it is.
	Of map[string]string
}

// Files returns the files of the chart by their paths in it.
func (c *Chart) Files() (map[string][]byte, error) {
	about := map[string]any{
		"apiVersion": "v2", "name": c.Name, "description": c.Description, "type": "application", "version": c.Version, "appVersion": c.AppVersion,
	}
	if c.KubeVersion != "" {
		about["kubeVersion"] = c.KubeVersion
	}
	meta, err := yaml.Marshal(about)
	if err != nil {
		return nil, fmt.Errorf("writing Chart.yaml: %w", err)
	}
	w := &writer{chart: c, objects: map[string]Object{}, when: map[string]string{}, found: map[string]bool{}}
	parts := w.copyParts()
	parameters, problems := slices.Clone(c.Parameters), []error(nil)
	for i := range parameters {
		problems = append(problems, w.place(&parameters[i]))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, fmt.Errorf("chart %s: %w", c.Name, err)
	}
	files := map[string][]byte{"Chart.yaml": meta, "templates/NOTES.txt": []byte(c.Notes)}
	for _, part := range parts {
		text, err := w.text(part)
		if err != nil {
			return nil, fmt.Errorf("chart %s: writing %s: %w", c.Name, part.File, err)
		}
		files["templates/"+part.File+".yaml"] = text
	}
	for _, word := range slices.Sorted(maps.Keys(c.Words)) {
		if !w.found[word] {
			return nil, fmt.Errorf("chart %s: nothing has %s", c.Name, word)
		}
	}
	values := tree(parameters, c.Groups)
	files["values.yaml"], err = values.yaml()
	if err != nil {
		return nil, fmt.Errorf("chart %s: %w", c.Name, err)
	}
	files["values.schema.json"], err = values.json()
	return files, err
}

// copyParts copies the objects of the parts, so that those of the chart stay as they are, and keeps what is to stay.
func (w *writer) copyParts() []Part {
	parts := slices.Clone(w.chart.Parts)
	for i := range parts {
		objects := make([]Object, 0, len(parts[i].Objects))
		for _, object := range parts[i].Objects {
			object = clone(object).(Object)
			if slices.Contains(kept, object["kind"].(string)) {
				_, _, _ = set(object, "metadata/annotations/"+strings.ReplaceAll(keep, "/", "~1"), "keep") // metadata is there
			}
			if _, twice := w.objects[Name(object)]; twice {
				w.objects[Name(object)] = nil // in two namespaces: no Field names it
			} else {
				w.objects[Name(object)] = object
			}
			objects = append(objects, object)
		}
		parts[i].Objects = objects
	}
	return parts
}

// Name returns kind and name of an object, by which a Field names it.
func Name(object Object) string {
	metadata, _ := object["metadata"].(map[string]any)
	return fmt.Sprintf("%v/%v", object["kind"], metadata["name"])
}

// clone returns a copy of a value of JSON.
func clone(value any) any {
	switch value := value.(type) {
	case map[string]any:
		copied := maps.Clone(value)
		for key := range copied {
			copied[key] = clone(copied[key])
		}
		return copied
	case []any:
		copied := slices.Clone(value)
		for i := range copied {
			copied[i] = clone(copied[i])
		}
		return copied
	}
	return value
}
