package engage

import "k8s.io/client-go/tools/cache"

// ObjectHandler returns an event handler that calls set with each object that was listed, added or updated, and deleted
// with each one that was deleted, as it last was. Objects of other types are ignored. The objects lie in the informer's
// cache and must not be changed.
func ObjectHandler[T any](set, deleted func(T)) cache.ResourceEventHandler {
	call := func(f func(T), event any) {
		if object, ok := Object[T](event); ok {
			f(object)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { call(set, object) },
		UpdateFunc: func(_, object any) { call(set, object) },
		DeleteFunc: func(object any) { call(deleted, object) },
	}
}

// Object returns the object that an informer passes to an event handler. Where the informer missed the deletion while
// its watch was broken, the object lies in a tombstone, as it last was. It returns false for an object of another type.
func Object[T any](event any) (T, bool) {
	if tombstone, ok := event.(cache.DeletedFinalStateUnknown); ok {
		event = tombstone.Obj
	}
	object, ok := event.(T)
	return object, ok
}
