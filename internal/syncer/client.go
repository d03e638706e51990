package syncer

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/superpool/superpool/internal/syncer/kinds"
)

// newClient returns a client of a control plane without a cache. It maps the types that the Specs name and sends no
// discovery requests. It has no rate limit of its own: API priority and fairness and the number of the engine's workers
// bound it.
func newClient(config *rest.Config, specs []kinds.Spec) (client.WithWatch, error) {
	mapper, err := mapperOf(specs)
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.QPS = -1
	withWatch, err := client.NewWithWatch(config, client.Options{Scheme: scheme.Scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("making a client of %s: %w", config.Host, err)
	}
	return withWatch, nil
}

// mapperOf returns the REST mapping of all types that the Specs watch or use.
func mapperOf(specs []kinds.Spec) (meta.RESTMapper, error) {
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
		for _, watch := range []*kinds.Watch{specs[i].Tenant, specs[i].Super} {
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
	}
	return mapper, nil
}
