// Package offer decides about cluster-scoped objects of super clusters that tenants have in their own control planes,
// such as StorageClasses. Several super clusters may offer an object of one name. The tenant has one then, and each
// syncer notes on it, in an annotation of its own, what its super cluster offers.
//
// Everything here is pure: no clients, no clock, no logging.
package offer

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// Note is what the syncer of a super cluster notes on a tenant's object.
type Note struct {
	// Hash is that of what the super cluster offers, see HashOf.
	Hash string
	// Default is whether it marks its object as the default of the kind.
	Default bool
}

// defaultSuffix ends the text of a Note with Default.
const defaultSuffix = ".default"

// String returns the text that parse reads.
func (n Note) String() string {
	if n.Default {
		return n.Hash + defaultSuffix
	}
	return n.Hash
}

func parse(text string) Note {
	hash, isDefault := strings.CutSuffix(text, defaultSuffix)
	return Note{Hash: hash, Default: isDefault}
}

// HashOf returns a hash of content, 64 bits in hexadecimal: content is what a tenant is to have, without metadata.
func HashOf(content any) (string, error) {
	data, err := json.Marshal(content)
	if err != nil {
		return "", fmt.Errorf("encoding what is offered: %w", err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8]), nil
}

// By returns the ids of the super clusters that offer a tenant's object, sorted.
func By(tenantObject metav1.Object) []string {
	return slices.Sorted(maps.Keys(notesOf(tenantObject)))
}

// NoteOf returns what is noted of a super cluster on a tenant's object, false for nothing.
func NoteOf(tenantObject metav1.Object, superCluster string) (Note, bool) {
	text, noted := tenantObject.GetAnnotations()[tenancyv1alpha1.AnnotationPrefixOfferedBy+superCluster]
	return parse(text), noted
}

// notesOf returns the Notes on a tenant's object by super cluster.
func notesOf(tenantObject metav1.Object) map[string]Note {
	notes := map[string]Note{}
	for key, text := range tenantObject.GetAnnotations() {
		if superCluster, found := strings.CutPrefix(key, tenancyv1alpha1.AnnotationPrefixOfferedBy); found {
			notes[superCluster] = parse(text)
		}
	}
	return notes
}

// Marked returns whether a tenant's object is one that syncers wrote, rather than the tenant's own.
func Marked(tenantObject metav1.Object) bool {
	return tenantObject.GetLabels()[tenancyv1alpha1.LabelOffered] == "true" || len(notesOf(tenantObject)) > 0
}

// Mark notes on a tenant's object what a super cluster offers.
func Mark(tenantObject metav1.Object, superCluster string, note Note) {
	labels, annotations := maps.Clone(tenantObject.GetLabels()), maps.Clone(tenantObject.GetAnnotations())
	if labels == nil {
		labels = map[string]string{}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	labels[tenancyv1alpha1.LabelOffered] = "true"
	annotations[tenancyv1alpha1.AnnotationPrefixOfferedBy+superCluster] = note.String()
	tenantObject.SetLabels(labels)
	tenantObject.SetAnnotations(annotations)
}

// Unmark removes the Note of a super cluster from a tenant's object.
func Unmark(tenantObject metav1.Object, superCluster string) {
	annotations := maps.Clone(tenantObject.GetAnnotations())
	delete(annotations, tenancyv1alpha1.AnnotationPrefixOfferedBy+superCluster)
	tenantObject.SetAnnotations(annotations)
}

// IsDefault returns whether any super cluster that offers a tenant's object marks it as the default of its kind.
func IsDefault(tenantObject metav1.Object) bool {
	for _, note := range notesOf(tenantObject) {
		if note.Default {
			return true
		}
	}
	return false
}

// Step is what a syncer does about a tenant's object.
type Step int

const (
	// Leave does nothing.
	Leave Step = iota
	// Create creates the object.
	Create
	// Write makes the object what the super cluster offers, with its Note.
	Write
	// Withdraw removes the Note of the super cluster: it offers nothing any more.
	Withdraw
	// Delete deletes the object: no super cluster offers it any more.
	Delete
	// Differ removes the Note of the super cluster where there is one, and tells the operator: other super clusters
	// offer something else by that name, which stands.
	Differ
	// Own leaves the object, and tells the tenant: it is the tenant's own.
	Own
)

// Next returns what the syncer of a super cluster does. offered is what that offers to the tenant, nil for nothing;
// tenantObject is nil if there is none. For Differ it returns a super cluster whose offer stands.
//
//	                           nothing offered     offered
//	no object                  Leave               Create
//	the tenant's own           Leave               Own
//	noted: nobody              Delete              Write
//	noted: this one alone      Delete              Write
//	noted: others, the same    Withdraw, or Leave  Write
//	noted: others, another     Withdraw, or Leave  Differ
//
// So the first writer's stands as long as it is there. Once it withdraws, the object goes, and another one's comes. If
// all change to the same, whoever changes first withdraws, and the last one writes what all offer then.
func Next(superCluster string, offered *Note, tenantObject metav1.Object) (step Step, standing string) {
	switch {
	case tenantObject == nil && offered == nil:
		return Leave, ""
	case tenantObject == nil:
		return Create, ""
	case !Marked(tenantObject) && offered == nil:
		return Leave, ""
	case !Marked(tenantObject):
		return Own, ""
	}
	others := notesOf(tenantObject)
	_, noted := others[superCluster]
	delete(others, superCluster)
	if offered != nil {
		if other, differs := differing(others, offered.Hash); differs {
			return Differ, other
		}
		return Write, ""
	}
	switch {
	case len(others) == 0:
		return Delete, ""
	case noted:
		return Withdraw, ""
	}
	return Leave, ""
}

// differing returns the first super cluster by name if it offers something else than hash. What the others offer does
// not count: syncers let none stand that differs from the first, but a tenant may write any Note.
func differing(notes map[string]Note, hash string) (string, bool) {
	first := slices.Sorted(maps.Keys(notes))
	if len(first) == 0 || notes[first[0]].Hash == hash {
		return "", false
	}
	return first[0], true
}
