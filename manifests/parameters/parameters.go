// Package parameters is the table of what differs between installations of the same manifests. Their files have a text
// in the place of each: kubectl vc puts values there, a release its images, and a chart templates.
package parameters

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Parameter is one row.
type Parameter struct {
	// Name is what Put calls it: that of an image is its program's. What says what a program does.
	Name, What string
	// Text is what files have in its place.
	Text string
	// Pattern is what a value is, which Value says: a regular expression of Go and of JSON schemas, which lets no quotes,
	// spaces or line breaks in.
	Pattern, Value string
}

var (
	// ID is that of a super cluster. "vc-syncer-" goes before it in the name of a Deployment.
	ID = Parameter{
		Name: "id", Text: "supercluster-id", Pattern: "^[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?$",
		Value: "a DNS label of at most 52 characters: a-z, 0-9 and -, with a letter or digit at both ends",
	}
	// Registry is what is before the name of each image.
	Registry = Parameter{
		Name: "registry", Text: "ghcr.io/superpool", Pattern: "^[A-Za-z0-9]([A-Za-z0-9./:_-]*[A-Za-z0-9])?$",
		Value: "a registry with a path: registry.example.com/superpool is one",
	}
	// Version is that of Superpool: label app.kubernetes.io/version of vc-scheduler, by which kubectl vc init knows what it
	// would set back, and the tag of images.
	Version = Parameter{
		Name: "version", Text: "v0.0.0-unreleased", Value: "a semantic version with a v and no build metadata",
		Pattern: `^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)(\.(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*))*)?$`,
	}
	// MetaImages are those of programs of the meta cluster.
	MetaImages = []Parameter{
		image("syncer", "Connects one super cluster of a pool to its tenants"),
		image("vc-manager", "Makes the control planes of tenants"),
		image("vc-scheduler", "Places tenants' namespaces and their pods over a pool of super clusters"),
	}
	// Images are all.
	Images = append(slices.Clone(MetaImages), image("vn-agent", "Answers kubectl logs, exec and top of tenants in a super cluster"))
)

// Reference is the Pattern of an image, and of what is behind the registry in one.
const Reference = "^[A-Za-z0-9][A-Za-z0-9./:@_-]*$"

func image(program, what string) Parameter {
	return Parameter{Name: program, What: what, Text: Registry.Text + "/" + program + ":latest", Pattern: Reference, Value: "the reference of an image"}
}

// All returns the rows. A text with that of another row in it is before that.
func All() []Parameter { return append(slices.Clone(Images), ID, Registry, Version) }

// Check says what is wrong with a value.
func (p *Parameter) Check(value string) error {
	if !regexp.MustCompile(p.Pattern).MatchString(value) {
		return fmt.Errorf("%q is not %s", value, p.Value)
	}
	return nil
}

// named is an image of ours as files name it: without a tag where a kustomization is to find it.
var named = regexp.MustCompile(regexp.QuoteMeta(Registry.Text) + `/[a-z0-9-]+(?::[A-Za-z0-9_.-]+)?`)

// Put returns a text with values, by the names of their rows, in the place of what stands for them; what has none, or
// "", stays. An image of ours in the text that no row has is an error.
func Put(text string, values map[string]string) (string, error) {
	for _, found := range named.FindAllString(text, -1) {
		if !slices.ContainsFunc(Images, func(p Parameter) bool { return found == p.Text || found+":latest" == p.Text }) {
			return "", fmt.Errorf("image %s is of no program that there is", found)
		}
	}
	var pairs []string
	for _, p := range All() {
		if value := values[p.Name]; value != "" {
			pairs = append(pairs, p.Text, value)
		}
	}
	return strings.NewReplacer(pairs...).Replace(text), nil
}

// Presets are what tenants may whose VirtualCluster names no TenantPolicy, what lets the least first.
var Presets = []string{"closed", "standard", "trusted"}

// PolicyOf returns the TenantPolicy whose content is a preset: TenantPolicy default is made of it.
func PolicyOf(preset string) string {
	if preset == Presets[0] {
		return "default"
	}
	return preset
}
