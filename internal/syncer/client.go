package syncer

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds"
)

// newClient returns a client of a control plane without a cache. It maps the types that the Specs name and sends no
// discovery requests. It has no rate limit of its own: API priority and fairness and the number of the engine's workers
// bound it.
func newClient(config *rest.Config, specs []kind.Spec) (client.WithWatch, error) {
	mapper, err := mapperOf(specs)
	if err != nil {
		return nil, err
	}
	return newClientFor(config, mapper)
}

// newClientFor is newClient for the types that a mapper knows.
func newClientFor(config *rest.Config, mapper meta.RESTMapper) (client.WithWatch, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	withWatch, err := client.NewWithWatch(config, client.Options{Scheme: scheme.Scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("making a client of %s: %w", config.Host, err)
	}
	return withWatch, nil
}

// mapperOf returns the REST mapping of all types that the Specs watch or use.
func mapperOf(specs []kind.Spec) (meta.RESTMapper, error) {
	mapper := meta.NewDefaultRESTMapper(nil)
	add := func(object client.Object, scope meta.RESTScope) error {
		gvk, err := apiutil.GVKForObject(object, scheme.Scheme)
		if err != nil {
			return fmt.Errorf("finding the type of %T: %w", object, err)
		}
		mapper.Add(gvk, scope)
		return nil
	}
	for i := range specs {
		scope := meta.RESTScopeNamespace
		if specs[i].ClusterScoped {
			scope = meta.RESTScopeRoot
		}
		for _, watch := range []*kind.Watch{specs[i].Tenant, specs[i].Super} {
			if watch == nil {
				continue
			}
			if err := add(watch.Object, scope); err != nil {
				return nil, err
			}
		}
		for _, object := range specs[i].Uses {
			if err := add(object, meta.RESTScopeNamespace); err != nil {
				return nil, err
			}
		}
		for _, object := range specs[i].UsesOfCluster {
			if err := add(object, meta.RESTScopeRoot); err != nil {
				return nil, err
			}
		}
	}
	return mapper, nil
}

// typeMapper is the REST mapping of the types of Specs, and of those that it learns later, as of SyncPolicies. All
// methods may be called concurrently.
type typeMapper struct {
	// RESTMapper is that of the Specs; nil for none.
	meta.RESTMapper

	mu      sync.RWMutex
	learned map[schema.GroupVersionKind]*meta.RESTMapping
}

// newLearningClient is newClient for the types of all kinds, of CustomResourceDefinitions, and for those that the
// returned typeMapper learns.
func newLearningClient(config *rest.Config) (client.WithWatch, *typeMapper, error) {
	static, err := mapperOf(kinds.Specs())
	if err != nil {
		return nil, nil, err
	}
	mapper := &typeMapper{RESTMapper: static}
	mapper.learn(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}, "customresourcedefinitions", false)
	made, err := newClientFor(config, mapper)
	return made, mapper, err
}

// learn adds a type, with its plural name.
func (m *typeMapper) learn(kind schema.GroupVersionKind, resource string, namespaced bool) {
	mapping := &meta.RESTMapping{Resource: kind.GroupVersion().WithResource(resource), GroupVersionKind: kind, Scope: meta.RESTScopeRoot}
	if namespaced {
		mapping.Scope = meta.RESTScopeNamespace
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.learned == nil {
		m.learned = map[schema.GroupVersionKind]*meta.RESTMapping{}
	}
	m.learned[kind] = mapping
}

// RESTMapping implements meta.RESTMapper.
func (m *typeMapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, version := range versions {
		if mapping, found := m.learned[kind.WithVersion(version)]; found {
			return mapping, nil
		}
	}
	if len(versions) == 0 {
		for known, mapping := range m.learned {
			if known.GroupKind() == kind {
				return mapping, nil
			}
		}
	}
	if m.RESTMapper == nil {
		return nil, &meta.NoKindMatchError{GroupKind: kind, SearchedVersions: versions}
	}
	return m.RESTMapper.RESTMapping(kind, versions...) //nolint:wrapcheck // callers ask what kind of error it is
}
