package assign

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/engage"
)

// SuperNamespace describes a super namespace of a tenant.
type SuperNamespace struct {
	// Namespace is the name of the tenant's namespace.
	Namespace string
	// Content is what it holds, also while it is terminating: Services or Everything.
	Content Content
	// Terminating is whether it has a deletionTimestamp.
	Terminating bool
}

// Sides reads both sides of one super cluster's tenants. All methods but LiveServices read caches.
type Sides interface {
	// Content returns what the super namespace of a tenant namespace holds.
	Content(tenant, namespace string) Content
	// SuperNamespaces returns all super namespaces of a tenant.
	SuperNamespaces(tenant string) []SuperNamespace
	// NamespaceUID returns the UID of a tenant's namespace, "" if the cache has none of that name.
	NamespaceUID(tenant, namespace string) types.UID
	// Pods returns whether a tenant has pods in a namespace that match PodSelector.
	Pods(tenant, namespace string) Answer
	// Services returns whether a tenant has Services in a namespace.
	Services(tenant, namespace string) Answer
	// LiveServices is Services by a live read of the tenant's API server.
	LiveServices(ctx context.Context, tenant, namespace string) (Answer, error)
}

// Pooled are the Assignments of a super cluster in a pool. The status of a NamespacePlacement lists where the namespace
// is placed; a tenant with any placement in a super cluster has the Services of all its namespaces there.
type Pooled struct {
	// SuperCluster is the id of the super cluster.
	SuperCluster string
	// Meta reads NamespacePlacements from a cache, Live from the meta cluster's API server.
	Meta, Live client.Reader
	// Informers watch NamespacePlacements, for Watch.
	Informers cache.Informers
	// Sides shows the super cluster and its tenants.
	Sides Sides
}

var _ Assignments = &Pooled{}

// Watch implements Assignments: changed is called for each event of a NamespacePlacement.
func (p *Pooled) Watch(ctx context.Context, changed func(tenant, namespace string)) error {
	informer, err := p.Informers.GetInformer(ctx, &schedulerv1alpha1.NamespacePlacement{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching NamespacePlacements: %w", err)
	}
	call := func(np *schedulerv1alpha1.NamespacePlacement) { changed(np.Namespace, np.Name) }
	handler := engage.Handler(ctx, "informer of NamespacePlacements", nil, engage.ObjectHandler(call, call))
	if _, err := informer.AddEventHandler(handler); err != nil {
		return fmt.Errorf("watching NamespacePlacements: %w", err)
	}
	return nil
}

// Of implements Assignments.
func (p *Pooled) Of(ctx context.Context, tenant, namespace string) (Assignment, error) {
	facts, placed, err := p.facts(ctx, p.Meta, tenant, namespace)
	if err == nil && !facts.Here && facts.Content != Absent && facts.Services == Unclear {
		facts.Holds, err = p.holds(ctx, p.Meta, tenant, namespace)
	}
	if err != nil {
		return Assignment{}, err
	}
	return p.assignment(&facts, placed, tenant, namespace), nil
}

// Confirm implements Assignments. Only the absence of Services allows a deletion, so it reads them live only if the
// cache has none.
func (p *Pooled) Confirm(ctx context.Context, tenant, namespace string) (Assignment, error) {
	facts, placed, err := p.facts(ctx, p.Live, tenant, namespace)
	if err == nil && !facts.Here && facts.Content != Absent && facts.Services != Yes {
		facts.Services = No
		if facts.Holds, err = p.holds(ctx, p.Live, tenant, namespace); err == nil && facts.Holds {
			facts.Services, err = p.Sides.LiveServices(ctx, tenant, namespace)
		}
	}
	if err != nil {
		return Assignment{}, err
	}
	return p.assignment(&facts, placed, tenant, namespace), nil
}

// ConfirmPlaced implements Assignments. It reads one NamespacePlacement and nothing of the tenant: a tenant can have it
// asked for any number of pods.
func (p *Pooled) ConfirmPlaced(ctx context.Context, tenant, namespace string) (Assignment, error) {
	placed, here, _, err := p.placement(ctx, p.Live, tenant, namespace)
	if err != nil || !here {
		return Assignment{}, err
	}
	return placed, nil
}

// Namespaces implements Assignments.
func (p *Pooled) Namespaces(ctx context.Context, tenant string) ([]string, error) {
	names, err := p.placed(ctx, p.Meta, tenant)
	if err != nil {
		return nil, err
	}
	for _, superNamespace := range p.Sides.SuperNamespaces(tenant) {
		if superNamespace.Content == Everything {
			names = append(names, superNamespace.Namespace)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// PodSelector implements Assignments: vc-scheduler patches the label of the chosen super cluster onto each pod.
func (p *Pooled) PodSelector() string {
	return schedulerv1alpha1.LabelSuperCluster + "=" + p.SuperCluster
}

// assignment returns the Assignment that follows from facts. placed is that of a NamespacePlacement which lists this
// super cluster.
func (p *Pooled) assignment(facts *Facts, placed Assignment, tenant, namespace string) Assignment {
	state := facts.State()
	if state == Placed {
		return placed
	}
	return Assignment{State: state, UID: p.Sides.NamespaceUID(tenant, namespace)}
}

// facts reads the NamespacePlacement with reader and, unless it lists this super cluster, the rest from caches.
func (p *Pooled) facts(ctx context.Context, reader client.Reader, tenant, namespace string) (Facts, Assignment, error) {
	placed, here, exists, err := p.placement(ctx, reader, tenant, namespace)
	facts := Facts{Exists: exists, Here: here}
	if err != nil || here {
		return facts, placed, err
	}
	facts.Content = p.Sides.Content(tenant, namespace)
	facts.Pods = p.Sides.Pods(tenant, namespace)
	facts.Services = p.Sides.Services(tenant, namespace)
	return facts, Assignment{}, nil
}

// placement returns the Assignment of a namespace whose NamespacePlacement lists this super cluster (here), and whether
// there is a NamespacePlacement (exists).
func (p *Pooled) placement(ctx context.Context, reader client.Reader, tenant, namespace string) (placed Assignment, here, exists bool, err error) {
	var object schedulerv1alpha1.NamespacePlacement
	err = reader.Get(ctx, types.NamespacedName{Namespace: tenant, Name: namespace}, &object)
	switch {
	case apierrors.IsNotFound(err):
		return Assignment{}, false, false, nil
	case err != nil:
		return Assignment{}, false, false, fmt.Errorf("reading NamespacePlacement %s/%s: %w", tenant, namespace, err)
	}
	at := p.indexOf(&object)
	if at < 0 {
		return Assignment{}, false, true, nil
	}
	return Assignment{State: Placed, UID: object.Spec.NamespaceUID, Reserved: object.Status.Placements[at].Reserved}, true, true, nil
}

// holds returns whether a tenant has a placement here, or whether the super namespace of another namespace than this
// one has yet to be cleared.
func (p *Pooled) holds(ctx context.Context, reader client.Reader, tenant, except string) (bool, error) {
	for _, superNamespace := range p.Sides.SuperNamespaces(tenant) {
		if superNamespace.Namespace == except || superNamespace.Content != Everything || superNamespace.Terminating {
			continue
		}
		// Without a NamespacePlacement its reconcile deletes it, so it counts for nothing.
		err := p.Meta.Get(ctx, types.NamespacedName{Namespace: tenant, Name: superNamespace.Namespace}, &schedulerv1alpha1.NamespacePlacement{})
		switch {
		case err == nil:
			return true, nil
		case !apierrors.IsNotFound(err):
			return false, fmt.Errorf("reading NamespacePlacement %s/%s: %w", tenant, superNamespace.Namespace, err)
		}
	}
	placed, err := p.placed(ctx, reader, tenant)
	return len(placed) > 0, err
}

// placed returns the names of a tenant's namespaces that are placed here.
func (p *Pooled) placed(ctx context.Context, reader client.Reader, tenant string) ([]string, error) {
	var placements schedulerv1alpha1.NamespacePlacementList
	if err := reader.List(ctx, &placements, client.InNamespace(tenant)); err != nil {
		return nil, fmt.Errorf("listing NamespacePlacements of tenant %s: %w", tenant, err)
	}
	var names []string
	for i := range placements.Items {
		if p.indexOf(&placements.Items[i]) >= 0 {
			names = append(names, placements.Items[i].Name)
		}
	}
	return names, nil
}

// indexOf returns the index of this super cluster in the status of a NamespacePlacement, -1 if it is not listed.
func (p *Pooled) indexOf(object *schedulerv1alpha1.NamespacePlacement) int {
	return slices.IndexFunc(object.Status.Placements, func(placement schedulerv1alpha1.ClusterPlacement) bool {
		return placement.Cluster == p.SuperCluster
	})
}
