package kindtest

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/superpool/superpool/internal/syncer/assign"
)

// Silent is the cache of a super cluster that may have been silent: Current is whether it shows what is there now.
type Silent struct {
	Cache
	Current bool
}

// Get implements kind.Cache.
func (s *Silent) Get(kind, namespace, name string) (client.Object, bool) {
	object, _ := s.Cache.Get(kind, namespace, name)
	return object, s.Current
}

// Writes records all that is written to a side, and writes nothing.
func Writes(to client.WithWatch, written *[]string) client.WithWatch {
	note := func(what string, object client.Object) {
		*written = append(*written, what+" "+client.ObjectKeyFromObject(object).String())
	}
	return interceptor.NewClient(to, interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
			note("create", object)
			return nil
		},
		Update: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.UpdateOption) error {
			note("update", object)
			return nil
		},
		Patch: func(_ context.Context, _ client.WithWatch, object client.Object, _ client.Patch, _ ...client.PatchOption) error {
			note("patch", object)
			return nil
		},
		Delete: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.DeleteOption) error {
			note("delete", object)
			return nil
		},
		SubResourceCreate: func(_ context.Context, _ client.Client, name string, object, _ client.Object, _ ...client.SubResourceCreateOption) error {
			note("create "+name, object)
			return nil
		},
		SubResourceUpdate: func(_ context.Context, _ client.Client, name string, object client.Object, _ ...client.SubResourceUpdateOption) error {
			note("update "+name, object)
			return nil
		},
		SubResourcePatch: func(_ context.Context, _ client.Client, name string, object client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
			note("patch "+name, object)
			return nil
		},
	})
}

// Unfilled is a cache that is not filled with objects of the kind Of.
type Unfilled struct {
	Cache
	Of string
}

// Get implements kind.Cache.
func (u Unfilled) Get(kind, namespace, name string) (client.Object, bool) {
	if kind == u.Of {
		return nil, false
	}
	return u.Cache.Get(kind, namespace, name)
}

// Assigned says of every namespace what it is, from a cache and live.
type Assigned struct {
	assign.Assignments
	Cached, Live assign.Assignment
	LiveErr      error
}

// Of implements assign.Assignments.
func (a Assigned) Of(context.Context, string, string) (assign.Assignment, error) {
	return a.Cached, nil
}

// Held implements assign.Assignments.
func (a Assigned) Held(context.Context, string) (corev1.ResourceList, error) {
	return a.Cached.Reserved, nil
}

// ConfirmPlaced implements assign.Assignments.
func (a Assigned) ConfirmPlaced(context.Context, string, string) (assign.Assignment, error) {
	return a.Live, a.LiveErr
}
