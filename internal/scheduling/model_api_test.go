package scheduling

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
)

// errNoAnswer is what a writer is told whose write may have happened, or not.
var errNoAnswer = errors.New("the connection was closed before an answer")

// modelStore is the API server of the meta cluster, for NamespacePlacements. What is stored is never changed.
type modelStore struct {
	objects map[types.NamespacedName]*schedulerv1alpha1.NamespacePlacement
	serial  int
	now     func() metav1.Time
	// wrote is told of each change, where nil is no object.
	wrote func(key types.NamespacedName, before, after *schedulerv1alpha1.NamespacePlacement)
}

func (s *modelStore) version() string {
	s.serial++
	return fmt.Sprint(s.serial)
}

func (s *modelStore) put(key types.NamespacedName, np *schedulerv1alpha1.NamespacePlacement) {
	before := s.objects[key]
	if np == nil {
		delete(s.objects, key)
	} else {
		np.ResourceVersion = s.version()
		s.objects[key] = np
	}
	s.wrote(key, before, np)
}

// current returns the stored object that a writer wants to change, as it has read it.
func (s *modelStore) current(key types.NamespacedName, uid types.UID, version string) (*schedulerv1alpha1.NamespacePlacement, error) {
	stored := s.objects[key]
	resource := schedulerv1alpha1.GroupVersion.WithResource("namespaceplacements").GroupResource()
	switch {
	case stored == nil:
		return nil, apierrors.NewNotFound(resource, key.Name)
	case stored.ResourceVersion != version || stored.UID != uid:
		return nil, apierrors.NewConflict(resource, key.Name, errors.New("the object has been modified"))
	}
	return stored, nil
}

func (s *modelStore) create(np *schedulerv1alpha1.NamespacePlacement) error {
	key := client.ObjectKeyFromObject(np)
	if s.objects[key] != nil {
		return apierrors.NewAlreadyExists(schedulerv1alpha1.GroupVersion.WithResource("namespaceplacements").GroupResource(), key.Name)
	}
	stored := np.DeepCopy()
	stored.UID, stored.Generation, stored.CreationTimestamp = types.UID("uid-"+s.version()), 1, s.now()
	s.put(key, stored)
	stored.DeepCopyInto(np)
	return nil
}

func (s *modelStore) update(np *schedulerv1alpha1.NamespacePlacement, status bool) error {
	key := client.ObjectKeyFromObject(np)
	before, err := s.current(key, np.UID, np.ResourceVersion)
	if err != nil {
		return err
	}
	stored := before.DeepCopy()
	if status {
		stored.Status = *np.Status.DeepCopy()
	} else {
		stored.Spec, stored.Finalizers, stored.Annotations = *np.Spec.DeepCopy(), slices.Clone(np.Finalizers), maps.Clone(np.Annotations)
	}
	switch {
	case stored.DeletionTimestamp != nil && len(stored.Finalizers) == 0:
		s.put(key, nil)
		return nil
	case equality.Semantic.DeepEqual(before, stored):
		return nil
	case !equality.Semantic.DeepEqual(before.Spec, stored.Spec):
		stored.Generation++
	}
	s.put(key, stored)
	stored.DeepCopyInto(np)
	return nil
}

func (s *modelStore) remove(key types.NamespacedName, uid types.UID, version string) error {
	stored, err := s.current(key, uid, version)
	switch {
	case err != nil:
		return err
	case len(stored.Finalizers) == 0:
		s.put(key, nil)
	case stored.DeletionTimestamp == nil:
		stored = stored.DeepCopy()
		now := s.now()
		stored.DeletionTimestamp = &now
		s.put(key, stored)
	}
	return nil
}

// modelClient is a client of a modelStore. read returns what the client reads; write does a write, or what fails of it.
type modelClient struct {
	client.Client
	store *modelStore
	read  func() (map[types.NamespacedName]*schedulerv1alpha1.NamespacePlacement, error)
	write func(ctx context.Context, do func() error) error
}

// plainClient returns a client that sees what is stored, and whose writes happen.
func plainClient(store *modelStore) *modelClient {
	return &modelClient{
		store: store,
		read: func() (map[types.NamespacedName]*schedulerv1alpha1.NamespacePlacement, error) {
			return store.objects, nil
		},
		write: func(_ context.Context, do func() error) error { return do() },
	}
}

func (c *modelClient) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	objects, err := c.read()
	if err != nil {
		return err
	}
	np := objects[key]
	if np == nil {
		return apierrors.NewNotFound(schedulerv1alpha1.GroupVersion.WithResource("namespaceplacements").GroupResource(), key.Name)
	}
	np.DeepCopyInto(object.(*schedulerv1alpha1.NamespacePlacement))
	return nil
}

func (c *modelClient) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	objects, err := c.read()
	if err != nil {
		return err
	}
	var of client.ListOptions
	of.ApplyOptions(options)
	items := &list.(*schedulerv1alpha1.NamespacePlacementList).Items
	for _, key := range sortedKeys(objects) {
		if of.Namespace == "" || key.Namespace == of.Namespace {
			*items = append(*items, *objects[key].DeepCopy())
		}
	}
	return nil
}

func (c *modelClient) Create(ctx context.Context, object client.Object, _ ...client.CreateOption) error {
	return c.write(ctx, func() error { return c.store.create(object.(*schedulerv1alpha1.NamespacePlacement)) })
}

func (c *modelClient) Update(ctx context.Context, object client.Object, _ ...client.UpdateOption) error {
	return c.write(ctx, func() error { return c.store.update(object.(*schedulerv1alpha1.NamespacePlacement), false) })
}

func (c *modelClient) Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	var of client.DeleteOptions
	of.ApplyOptions(options)
	return c.write(ctx, func() error {
		return c.store.remove(client.ObjectKeyFromObject(object), *of.Preconditions.UID, *of.Preconditions.ResourceVersion)
	})
}

func (c *modelClient) Status() client.SubResourceWriter { return modelStatus{client: c} }

type modelStatus struct {
	client.SubResourceWriter
	client *modelClient
}

func (s modelStatus) Update(ctx context.Context, object client.Object, _ ...client.SubResourceUpdateOption) error {
	return s.client.write(ctx, func() error { return s.client.store.update(object.(*schedulerv1alpha1.NamespacePlacement), true) })
}

// modelTenantAPI is a tenant's API server, for what vc-scheduler asks of it besides evictions.
type modelTenantAPI struct {
	kubernetes.Interface
	typedcorev1.CoreV1Interface
	typedcorev1.NamespaceInterface
	tenant *modelTenant
	write  func(ctx context.Context, do func() error) error
}

func (a *modelTenantAPI) CoreV1() typedcorev1.CoreV1Interface           { return a }
func (a *modelTenantAPI) Namespaces() typedcorev1.NamespaceInterface    { return a }
func (a *modelTenantAPI) recognized(context.Context) (types.UID, error) { return "tenant", nil }
func (a *modelTenantAPI) missing(name string) error {
	return apierrors.NewNotFound(corev1.Resource("namespaces"), name)
}

func (a *modelTenantAPI) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.Namespace, error) {
	if name == metav1.NamespaceSystem {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{UID: "tenant"}}, nil
	}
	if ns := a.tenant.namespaces[name]; ns.object != nil {
		return ns.object.DeepCopy(), nil
	}
	return nil, a.missing(name)
}

// Patch writes the placements annotation, as far as the preconditions in the patch hold.
func (a *modelTenantAPI) Patch(ctx context.Context, name string, _ types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string) (*corev1.Namespace, error) {
	var patch struct {
		Metadata struct {
			UID             types.UID
			ResourceVersion string
			Annotations     map[string]*string
		}
	}
	require.NoError(a.tenant.world, json.Unmarshal(data, &patch))
	return nil, a.write(ctx, func() error {
		ns := a.tenant.namespaces[name]
		switch {
		case ns.object == nil:
			return a.missing(name)
		case ns.object.ResourceVersion != patch.Metadata.ResourceVersion || ns.object.UID != patch.Metadata.UID:
			return apierrors.NewConflict(corev1.Resource("namespaces"), name, errors.New("the object has been modified"))
		}
		a.tenant.annotate(name, patch.Metadata.Annotations[schedulerv1alpha1.AnnotationPlacements])
		return nil
	})
}

// sortedKeys returns the keys of a map by NamespacePlacement in an order that does not depend on the map.
func sortedKeys[V any](m map[types.NamespacedName]V) []types.NamespacedName {
	return slices.SortedFunc(maps.Keys(m), func(a, b types.NamespacedName) int {
		return slices.Compare([]string{a.Namespace, a.Name}, []string{b.Namespace, b.Name})
	})
}
