package syncer

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/kind"
)

// watched is what the informers of one kind watch.
type watched struct {
	object client.Object
	// list returns an empty list of the type.
	list func() client.ObjectList
	// labels and fields are selectors; "" watches all.
	labels, fields string
	indexers       toolscache.Indexers
	// optional is whether there is none of it where the API server does not serve the type, or forbids to list it.
	optional bool
	// aside is whether nothing else waits until it is synced.
	aside bool
	// perNamespace is whether the objects of some namespaces are kept only.
	perNamespace bool
}

// watchedOf returns what the Specs watch on one side, by kind.
func watchedOf(env *kind.Env, specs []kind.Spec, side kind.Side) (map[string]watched, error) {
	byKind := map[string]watched{}
	for i := range specs {
		spec := &specs[i]
		watch := spec.Tenant
		if side == kind.SuperSide {
			watch = spec.Super
		}
		if watch == nil {
			continue
		}
		list, err := listOf(watch.Object)
		if err != nil {
			return nil, fmt.Errorf("finding the list of kind %s: %w", spec.Name, err)
		}
		entry := watched{object: watch.Object, list: list, fields: watch.Fields, optional: watch.Optional, aside: spec.Aside, indexers: indexers(spec)}
		entry.perNamespace = side == kind.TenantSide && spec.PerNamespace()
		if watch.Labels != nil {
			entry.labels = watch.Labels(env)
		}
		byKind[spec.Name] = entry
	}
	return byKind, nil
}

// listOf returns a constructor of the list type of an object, from client-go's scheme unless it is unstructured.
func listOf(item client.Object) (func() client.ObjectList, error) {
	if untyped, ok := item.(*unstructured.Unstructured); ok {
		gvk := untyped.GroupVersionKind()
		gvk.Kind += "List"
		return func() client.ObjectList {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(gvk)
			return list
		}, nil
	}
	gvk, err := apiutil.GVKForObject(item, scheme.Scheme)
	if err != nil {
		return nil, fmt.Errorf("finding the type of %T: %w", item, err)
	}
	object, err := scheme.Scheme.New(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	if err != nil {
		return nil, fmt.Errorf("finding the list of %T: %w", item, err)
	}
	empty, ok := object.(client.ObjectList)
	if !ok {
		return nil, fmt.Errorf("%T is not a list", object)
	}
	return func() client.ObjectList {
		list, _ := empty.DeepCopyObject().(client.ObjectList)
		return list
	}, nil
}

// indexers returns the indexers of a kind's informers.
func indexers(spec *kind.Spec) toolscache.Indexers {
	index := func(values func(client.Object) []string) toolscache.IndexFunc {
		return func(item any) ([]string, error) {
			object, ok := item.(client.Object)
			if !ok {
				return nil, fmt.Errorf("%T is not an object", item)
			}
			return indexed(values, object), nil
		}
	}
	all := toolscache.Indexers{
		kind.IndexTenant: index(func(object client.Object) []string {
			return []string{object.GetLabels()[tenancyv1alpha1.LabelCluster]}
		}),
		toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc,
	}
	for name, values := range spec.Indexes {
		all[name] = index(values)
	}
	return all
}

// indexed returns the values of an index for object, none where values panics: the informer would end the process.
func indexed(values func(client.Object) []string, object client.Object) (found []string) {
	defer func() {
		if recover() != nil {
			found = nil
		}
	}()
	return values(object)
}
