package skew

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// CheckServed returns an error for each of these kinds of Superpool's own that the meta cluster, which mapper asks, does
// not serve, or serves in other versions alone: it says which, and what to do. Several are joined. A kind that cannot be
// asked about now is none of them.
func CheckServed(mapper meta.RESTMapper, kinds ...schema.GroupVersionKind) error {
	var missing []error
	for _, kind := range kinds {
		if _, err := mapper.RESTMapping(kind.GroupKind(), kind.Version); meta.IsNoMatchError(err) {
			missing = append(missing, unserved(mapper, kind))
		}
	}
	return errors.Join(missing...)
}

// unserved says that a kind is not served in a version.
func unserved(mapper meta.RESTMapper, kind schema.GroupVersionKind) error {
	const apply = "apply the CRDs of this version (kubectl apply -k manifests/crds)"
	served, err := mapper.RESTMappings(kind.GroupKind())
	if err != nil && !meta.IsNoMatchError(err) {
		return fmt.Errorf("asking in which versions the meta cluster serves %s: %w", kind.GroupKind(), err)
	}
	if len(served) == 0 {
		return fmt.Errorf("the meta cluster does not serve %s: %s", kind.GroupKind(), apply)
	}
	advice := apply
	var versions []string
	for _, mapping := range served {
		versions = append(versions, mapping.GroupVersionKind.Version)
		if version.CompareKubeAwareVersionStrings(mapping.GroupVersionKind.Version, kind.Version) > 0 {
			advice = "run the version of Superpool that its CRDs are of"
		}
	}
	slices.Sort(versions)
	return fmt.Errorf("the meta cluster serves %s as %s, and this program reads %s: %s", kind.GroupKind(), strings.Join(versions, " and "), kind.Version, advice)
}
