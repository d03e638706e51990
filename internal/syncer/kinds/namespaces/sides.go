package namespaces

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/proof"
	"github.com/superpool/superpool/internal/syncer/assign"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenancy"
)

// sides implements assign.Sides over the caches of Env.
type sides struct{ env *kind.Env }

// Sides returns the caches of both sides in the form that Assignments read.
func Sides(e *kind.Env) assign.SingleSides { return sides{e} }

// Content implements assign.Sides.
func (s sides) Content(tenant, namespace string) (assign.Content, tenancy.Owner) {
	object, _ := s.env.SuperCache.Get(kind.Namespace, "", tenancy.SuperNamespace(tenant, namespace))
	if object == nil || object.GetDeletionTimestamp() != nil {
		return assign.Absent, tenancy.Owner{}
	}
	owner, owned := tenancy.GetOwner(object)
	if !owned || owner.ClusterKey != tenant || owner.Namespace != namespace {
		return assign.Absent, tenancy.Owner{}
	}
	return contentOf(object), owner
}

// SuperNamespaces implements assign.Sides.
func (s sides) SuperNamespaces(tenant string) []assign.SuperNamespace {
	objects := s.env.SuperCache.Index(kind.Namespace, kind.IndexTenant, tenant)
	all := make([]assign.SuperNamespace, 0, len(objects))
	for _, object := range objects {
		if owner, owned := tenancy.GetOwner(object); owned {
			all = append(all, assign.SuperNamespace{
				Namespace: owner.Namespace, Content: contentOf(object), Terminating: object.GetDeletionTimestamp() != nil,
			})
		}
	}
	return all
}

// NamespaceUID implements assign.Sides.
func (s sides) NamespaceUID(tenant, namespace string) types.UID {
	if connected := s.env.Tenant(tenant); connected != nil {
		if object, exists, _ := kind.Get[*corev1.Namespace](connected.Cache, kind.Namespace, "", namespace); exists {
			return object.UID
		}
	}
	return ""
}

// Pods implements assign.Sides.
func (s sides) Pods(tenant, namespace string) assign.Answer {
	return s.any(tenant, kind.Pod, namespace)
}

// Services implements assign.Sides.
func (s sides) Services(tenant, namespace string) assign.Answer {
	return s.any(tenant, kind.Service, namespace)
}

// Data implements assign.Sides.
func (s sides) Data(tenant, namespace string) bool {
	connected, superNamespace, specs := s.env.Tenant(tenant), tenancy.SuperNamespace(tenant, namespace), s.env.Specs()
	for i := range specs {
		spec := &specs[i]
		if spec.LacksData != nil && (s.hasData(spec, superNamespace) || connected != nil && s.awaitsData(spec, connected, namespace)) {
			return true
		}
	}
	return false
}

// hasData returns whether a super namespace may have objects of a kind that holds data.
func (s sides) hasData(spec *kind.Spec, superNamespace string) bool {
	_, synced := s.env.SuperCache.Get(spec.Name, superNamespace, "")
	return !synced || len(s.env.SuperCache.InNamespace(spec.Name, superNamespace)) > 0
}

// awaitsData returns whether objects of such a kind in a tenant's namespace may have this super cluster as a witness.
// What is Optional is looked at as far as it is known: the control plane need not serve it.
func (s sides) awaitsData(spec *kind.Spec, tenant *kind.Tenant, namespace string) bool {
	_, synced := tenant.Cache.Get(spec.Name, namespace, "")
	return !synced && !spec.Tenant.Optional || slices.ContainsFunc(tenant.Cache.InNamespace(spec.Name, namespace), s.env.Witnesses)
}

// LacksData implements assign.Sides.
func (s sides) LacksData(ctx context.Context, tenant, namespace string) (proof.Proof, bool, error) {
	var all proof.Proof
	first := true
	for _, spec := range s.env.Specs() {
		if spec.LacksData == nil {
			continue
		}
		proven, lacks, err := spec.LacksData(ctx, s.env, tenancy.SuperNamespace(tenant, namespace))
		if err != nil || !lacks {
			return proof.Proof{}, false, err
		}
		if !first {
			proven = all.And(proven)
		}
		all, first = proven, false
	}
	return all, true, nil
}

// any returns whether the cache of a tenant holds objects of a kind in a namespace.
func (s sides) any(tenant, kind, namespace string) assign.Answer {
	connected := s.env.Tenant(tenant)
	if connected == nil {
		return assign.Unclear
	}
	if len(connected.Cache.InNamespace(kind, namespace)) > 0 {
		return assign.Yes
	}
	if _, synced := connected.Cache.Get(kind, namespace, ""); synced {
		return assign.No
	}
	return assign.Unclear
}

// Live implements assign.Sides.
func (s sides) Live(tenant string) *proof.ControlPlane {
	if connected := s.env.Tenant(tenant); connected != nil {
		return connected.ControlPlane()
	}
	return nil
}

// Namespaces implements assign.SingleSides.
func (s sides) Namespaces(tenant string) []string {
	connected := s.env.Tenant(tenant)
	if connected == nil {
		return nil
	}
	objects := connected.Cache.List(kind.Namespace)
	names := make([]string, 0, len(objects))
	for _, object := range objects {
		names = append(names, object.GetName())
	}
	return names
}

// Limit implements assign.SingleSides.
func (s sides) Limit(tenant string) (corev1.ResourceList, bool) {
	if connected := s.env.Tenant(tenant); connected != nil {
		return connected.Policy.Get().Spec().Limits.Reserved, true
	}
	return nil, false
}

// Resources implements assign.SingleSides. Extended resources come once the cache of nodes is synced: then they wake
// all namespaces.
func (s sides) Resources() []corev1.ResourceName {
	extended, _ := extendedOf(s.env).all(s.env.SuperCache)
	return slices.Concat(bounded[:], extended)
}

func contentOf(superNamespace client.Object) assign.Content {
	if kind.ServicesOnly(superNamespace) {
		return assign.Services
	}
	return assign.Everything
}
