package assign

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/superpool/superpool/internal/proof"
	"github.com/superpool/superpool/internal/slice"
)

// Single are the Assignments of a cluster that is no part of a pool: whatever any tenant has belongs into it. No
// scheduler gives room to namespaces, so each may have all that the tenant's policy lets the tenant reserve.
type Single struct {
	// Live is the cluster that holds the VirtualClusters, which is the super cluster itself.
	Live *proof.ControlPlane
	// Sides shows the super cluster and its tenants.
	Sides SingleSides
}

// SingleSides are the Sides that Single needs. Its methods read caches.
type SingleSides interface {
	Sides
	// Namespaces returns the names of a tenant's namespaces, nil while it is not connected.
	Namespaces(tenant string) []string
	// Limit returns what the policy lets a tenant reserve altogether; what it does not name has no limit. It returns
	// false while the tenant is not connected.
	Limit(tenant string) (corev1.ResourceList, bool)
	// Resources returns the names of the resources that a quota in the super cluster bounds.
	Resources() []corev1.ResourceName
}

var _ Assignments = &Single{}

// unlimited is reserved of a resource without a limit: more than any cluster has, and in thousandths it can still be
// counted in 64 bits.
var unlimited = resource.MustParse("9P")

// Whole implements Assignments.
func (*Single) Whole() bool { return true }

// PodSelector implements Assignments: nobody chooses a super cluster for pods.
func (*Single) PodSelector() string { return "" }

// Watch implements Assignments: nothing but the objects of tenants changes where a namespace belongs.
func (*Single) Watch(context.Context, func(tenant, namespace string)) error { return nil }

// Of implements Assignments. A namespace that no cache shows counts as gone: Confirm asks before anything is deleted.
func (s *Single) Of(_ context.Context, tenant, namespace string) (Assignment, error) {
	if uid := s.Sides.NamespaceUID(tenant, namespace); uid != "" {
		return s.placed(tenant, uid), nil
	}
	content, _ := s.Sides.Content(tenant, namespace)
	if content != Absent && s.Sides.Data(tenant, namespace) && s.Sides.Live(tenant) != nil {
		return Assignment{State: Kept}, nil
	}
	return Assignment{State: None}, nil
}

// Confirm implements Assignments. The super namespace says which namespace it was made for.
func (s *Single) Confirm(ctx context.Context, tenant, namespace string) (Assignment, proof.Proof, error) {
	content, owner := s.Sides.Content(tenant, namespace)
	if content == Absent {
		return Assignment{State: None}, proof.Proof{}, nil
	}
	answer, proven, err := gone(ctx, s.Live, s.Sides.Live(tenant), owner)
	switch {
	case err != nil:
		return Assignment{}, proof.Proof{}, err
	case answer == Yes:
		facts := Facts{Content: Everything, Gone: Yes, Data: s.Sides.Data(tenant, namespace)}
		proven, err = facts.askData(ctx, s.Live, s.Sides, owner, proven)
		return Assignment{State: facts.State(), UID: s.Sides.NamespaceUID(tenant, namespace)}, proven, err
	case answer == No:
		return s.placed(tenant, owner.UID), proof.Proof{}, nil
	}
	return Assignment{}, proof.Proof{}, nil
}

// ConfirmPlaced implements Assignments. Nobody but the tenant says where its namespaces belong, and it is not asked for
// each pod.
func (s *Single) ConfirmPlaced(ctx context.Context, tenant, namespace string) (Assignment, error) {
	assignment, err := s.Of(ctx, tenant, namespace)
	if assignment.State != Placed {
		return Assignment{}, err
	}
	return assignment, err
}

// Home implements Assignments.
func (s *Single) Home(_ context.Context, tenant, namespace string) (Home, error) {
	if s.Sides.NamespaceUID(tenant, namespace) == "" {
		return HomeUnknown, nil
	}
	return HomeHere, nil
}

// ConfirmHome implements Assignments: there is no other super cluster that may be the home.
func (s *Single) ConfirmHome(ctx context.Context, tenant, namespace string) (Home, proof.Proof, error) {
	home, err := s.Home(ctx, tenant, namespace)
	return home, proof.Proof{}, err
}

// Namespaces implements Assignments.
func (s *Single) Namespaces(_ context.Context, tenant string) ([]string, error) {
	names := slices.Clone(s.Sides.Namespaces(tenant))
	for _, superNamespace := range s.Sides.SuperNamespaces(tenant) {
		names = append(names, superNamespace.Namespace)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Held implements Assignments.
func (s *Single) Held(_ context.Context, tenant string) (corev1.ResourceList, error) {
	return slice.Of(s.allowed(tenant)).Times(int64(len(s.Sides.Namespaces(tenant)))).List(), nil
}

// Speaks implements Assignments.
func (*Single) Speaks(context.Context, string) (bool, error) { return true, nil }

// Spread implements Assignments: there is no other super cluster.
func (*Single) Spread(context.Context, string) (bool, error) { return false, nil }

// placed returns the Assignment of a namespace, the zero Assignment if the tenant is not connected any more.
func (s *Single) placed(tenant string, uid types.UID) Assignment {
	allowed := s.allowed(tenant)
	if allowed == nil {
		return Assignment{}
	}
	return Assignment{State: Placed, UID: uid, Reserved: allowed}
}

// allowed returns what each namespace of a tenant may reserve of each resource, nil if it is not connected.
func (s *Single) allowed(tenant string) corev1.ResourceList {
	limit, connected := s.Sides.Limit(tenant)
	if !connected {
		return nil
	}
	names := s.Sides.Resources()
	allowed := make(corev1.ResourceList, len(names))
	for _, name := range names {
		allowed[name] = unlimited
	}
	maps.Copy(allowed, limit)
	return allowed
}
