package kinds

import (
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// IndexTenant finds super objects by cluster key.
const IndexTenant = "tenant"

// Cache reads the caches of informers. Callers must not change the objects that it returns.
type Cache interface {
	// Get returns an object, nil if there is none. synced is false if the informer whose cache would hold it is not
	// synced, does not run, or cannot show what its control plane says now, because that has not answered for a while:
	// then the object may exist all the same, and may be another one.
	Get(kind, namespace, name string) (object client.Object, synced bool)
	// InNamespace returns the objects of a kind in a namespace.
	InNamespace(kind, namespace string) []client.Object
	// Index returns the objects of a kind with that value of an index.
	Index(kind, index, value string) []client.Object
	// List returns all objects of a kind.
	List(kind string) []client.Object
}

// get is Cache.Get for a concrete type. It returns the zero T if there is no such object.
func get[T client.Object](cache Cache, kind, namespace, name string) (object T, exists, synced bool) {
	found, synced := cache.Get(kind, namespace, name)
	object, exists = found.(T)
	return object, exists, synced
}
