package assign

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
)

// SuperNamespace is a super namespace of a tenant that is not being deleted, or is.
type SuperNamespace struct {
	// Namespace is the name of the tenant's namespace.
	Namespace string
	// Content is what it is there for, also while it is being deleted.
	Content Content
	// Terminating says that it is being deleted.
	Terminating bool
}

// Sides shows both sides of one super cluster's tenants: from caches, but for LiveServices.
type Sides interface {
	// SuperNamespace returns what the super namespace of a tenant namespace is there for.
	SuperNamespace(tenant, namespace string) Content
	// SuperNamespaces returns all super namespaces of a tenant.
	SuperNamespaces(tenant string) []SuperNamespace
	// NamespaceUID returns the UID of a tenant's namespace, "" if no cache shows it.
	NamespaceUID(tenant, namespace string) types.UID
	// Pods says whether a tenant has pods in a namespace that match PodSelector.
	Pods(tenant, namespace string) Answer
	// Services says whether a tenant has Services in a namespace.
	Services(tenant, namespace string) Answer
	// LiveServices asks the tenant's API server the same.
	LiveServices(ctx context.Context, tenant, namespace string) (Answer, error)
}

// Pooled are the Assignments of a super cluster in a pool: NamespacePlacements say what is placed there, and a tenant
// that holds anything there has the Services of all its namespaces there.
type Pooled struct {
	// SuperCluster is the id of the super cluster.
	SuperCluster string
	// Meta reads NamespacePlacements from a cache, Live from the server.
	Meta, Live client.Reader
	// Sides shows the super cluster and its tenants.
	Sides Sides
}

var _ Assignments = &Pooled{}

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

// Confirm implements Assignments. What keeps something here need not be confirmed, so it asks for Services only where
// the cache shows none.
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
	for _, there := range p.Sides.SuperNamespaces(tenant) {
		if there.Content == Everything {
			names = append(names, there.Namespace)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// PodSelector implements Assignments: vc-scheduler labels each pod with the super cluster that it chose.
func (p *Pooled) PodSelector() string {
	return schedulerv1alpha1.LabelSuperCluster + "=" + p.SuperCluster
}

// assignment returns the Assignment that follows from facts. placed is what the NamespacePlacement says where it lists
// this super cluster.
func (p *Pooled) assignment(facts *Facts, placed Assignment, tenant, namespace string) Assignment {
	state := facts.State()
	if state == Placed {
		return placed
	}
	return Assignment{State: state, UID: p.Sides.NamespaceUID(tenant, namespace)}
}

// facts reads the NamespacePlacement with reader and, unless it lists this super cluster, all from the caches that Of
// needs.
func (p *Pooled) facts(ctx context.Context, reader client.Reader, tenant, namespace string) (Facts, Assignment, error) {
	placed, here, exists, err := p.placement(ctx, reader, tenant, namespace)
	facts := Facts{Exists: exists, Here: here}
	if err != nil || here {
		return facts, placed, err
	}
	facts.Content = p.Sides.SuperNamespace(tenant, namespace)
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

// holds says whether a tenant holds anything here, or another namespace than this one is still to be cleared.
func (p *Pooled) holds(ctx context.Context, reader client.Reader, tenant, except string) (bool, error) {
	for _, there := range p.Sides.SuperNamespaces(tenant) {
		if there.Namespace == except || there.Content != Everything || there.Terminating {
			continue
		}
		// Without a NamespacePlacement it goes at once.
		err := p.Meta.Get(ctx, types.NamespacedName{Namespace: tenant, Name: there.Namespace}, &schedulerv1alpha1.NamespacePlacement{})
		switch {
		case err == nil:
			return true, nil
		case !apierrors.IsNotFound(err):
			return false, fmt.Errorf("reading NamespacePlacement %s/%s: %w", tenant, there.Namespace, err)
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

// indexOf returns where a NamespacePlacement lists this super cluster, -1 if it does not.
func (p *Pooled) indexOf(object *schedulerv1alpha1.NamespacePlacement) int {
	return slices.IndexFunc(object.Status.Placements, func(placement schedulerv1alpha1.ClusterPlacement) bool {
		return placement.Cluster == p.SuperCluster
	})
}
