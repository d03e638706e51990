package skew

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// CheckServed returns nil if the meta cluster, which mapper asks, serves all of these kinds of Superpool's own. For one
// that it does not serve, or in other versions alone, the error says which, and what to do; so does one for each of
// several. Another error is that of asking.
func CheckServed(mapper meta.RESTMapper, kinds ...schema.GroupVersionKind) error {
	var missing []error
	for _, kind := range kinds {
		switch _, err := mapper.RESTMapping(kind.GroupKind(), kind.Version); {
		case meta.IsNoMatchError(err):
			missing = append(missing, unserved(mapper, kind))
		case err != nil:
			return fmt.Errorf("asking whether the meta cluster serves %s: %w", kind.GroupKind(), err)
		}
	}
	return errors.Join(missing...)
}

// unserved says that a kind is not served in a version.
func unserved(mapper meta.RESTMapper, kind schema.GroupVersionKind) error {
	served, err := mapper.RESTMappings(kind.GroupKind())
	if err != nil && !meta.IsNoMatchError(err) {
		return fmt.Errorf("asking in which versions the meta cluster serves %s: %w", kind.GroupKind(), err)
	}
	if len(served) == 0 {
		return fmt.Errorf("the meta cluster does not serve %s: apply the CRDs of this version (kubectl apply -k manifests/crds)", kind.GroupKind())
	}
	var versions []string
	for _, mapping := range served {
		versions = append(versions, mapping.GroupVersionKind.Version)
	}
	slices.Sort(versions)
	return fmt.Errorf("the meta cluster serves %s as %s, and this program reads %s: run the version of Superpool that its CRDs are of",
		kind.GroupKind(), strings.Join(versions, " and "), kind.Version)
}
