package growth

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/refusal"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/slicepod"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/plugins/namespacegang"
)

// meta is the NamespacePlacements of a meta cluster, as the cache of vc-scheduler has them, and the placer.Sink that
// writes into them. It is safe for concurrent use.
type meta struct {
	client.Client // nothing else is asked
	namespaces    *view.Namespaces
	// placed is called for each that is placed, and refused for each that is not.
	placed  func()
	refused func(why string)

	mu sync.Mutex
	// all are by root namespace and name. None is changed.
	all map[string]map[string]*schedulerv1alpha1.NamespacePlacement
}

func (m *meta) set(np *schedulerv1alpha1.NamespacePlacement) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all[np.Namespace] == nil {
		m.all[np.Namespace] = map[string]*schedulerv1alpha1.NamespacePlacement{}
	}
	m.all[np.Namespace][np.Name] = np
}

// Get implements client.Reader.
func (m *meta) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	np := m.all[key.Namespace][key.Name]
	into, ok := object.(*schedulerv1alpha1.NamespacePlacement)
	if np == nil || !ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: fmt.Sprintf("%T", object)}, key.Name)
	}
	np.DeepCopyInto(into)
	return nil
}

// List implements client.Reader.
func (m *meta) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	of := (&client.ListOptions{}).ApplyOptions(options).Namespace
	into, ok := list.(*schedulerv1alpha1.NamespacePlacementList)
	if !ok {
		return fmt.Errorf("there are no %T", list)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(m.all[of])) {
		into.Items = append(into.Items, *m.all[of][name].DeepCopy())
	}
	return nil
}

// Commit implements placer.Sink.
func (m *meta) Commit(_ context.Context, gang string, assignments []namespacegang.Assignment) error {
	key := slicepod.PlacementOf(gang)
	granted := map[string]slice.Amounts{}
	for _, a := range assignments {
		granted[a.Cluster] = granted[a.Cluster].Plus(slicepod.AmountsOf(a.Pod))
	}
	m.mu.Lock()
	np := m.all[key.Namespace][key.Name].DeepCopy()
	m.mu.Unlock()
	np.Status, _, _ = placement.Next(np, placement.Facts{Granted: granted})
	m.set(np)
	m.namespaces.Set(np)
	m.placed()
	return nil
}

// Refuse implements placer.Sink.
func (m *meta) Refuse(_ context.Context, _ string, why refusal.Refusal) error {
	m.refused(why.Message)
	return nil
}
