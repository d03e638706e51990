package provision

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
	"github.com/superpool/superpool/internal/tenancy"
)

// stage is a part of a control plane that is made, or changed, when the parts before are whole.
type stage struct {
	// condition is what tells of it, and workload the name of its StatefulSet or Deployment.
	condition, workload string
	// make applies its objects and returns what it waits for then.
	make func(context.Context) (tenancy.Reason, error)
}

// stages returns the parts of a control plane in the order in which they are made and upgraded: no program is older
// than one that asks it. The store has so many members.
func (r *Reconciler) stages(plane *controlplane.ControlPlane, store *store, members int32) []stage {
	deployed := func(objects []client.Object) func(context.Context) (tenancy.Reason, error) {
		return func(ctx context.Context) (tenancy.Reason, error) { return r.deploy(ctx, objects) }
	}
	return []stage{
		{tenancyv1alpha1.ConditionEtcdReady, controlplane.Etcd, func(ctx context.Context) (tenancy.Reason, error) { return store.make(ctx, members) }},
		{tenancyv1alpha1.ConditionAPIServerReady, controlplane.APIServer, deployed(plane.APIServer(members))},
		{tenancyv1alpha1.ConditionControllerManagerReady, controlplane.ControllerManager, deployed(plane.ControllerManager())},
	}
}

// deploy applies the objects of a stage, one of which is a Deployment, and returns what it waits for then.
func (r *Reconciler) deploy(ctx context.Context, objects []client.Object) (why tenancy.Reason, err error) {
	for _, object := range objects {
		live, err := r.apply(ctx, object)
		if err != nil {
			return tenancy.Reason{}, err
		}
		if deployment, is := live.(*appsv1.Deployment); is {
			why = lacks(deployment, replicasOf(object.(*appsv1.Deployment).Spec.Replicas)) //nolint:forcetypeassert // of one kind
		}
	}
	return why, nil
}

// preflight returns why a control plane whose store has so many members cannot become what is wanted now, with so many
// wanted, the zero Reason when it can. It goes up one minor version at a time, and up the next one when all parts have this one. A patch may be
// taken back, and a version that never ran.
func (r *Reconciler) preflight(ctx context.Context, plane *controlplane.ControlPlane, members, wanted int32) (tenancy.Reason, error) {
	refused := func(format string, values ...any) (tenancy.Reason, error) {
		return tenancy.Reason{Reason: tenancyv1alpha1.ReasonInvalid, Message: fmt.Sprintf(
			"ClusterVersion %s: %s; what runs goes on", plane.Version.Name, fmt.Sprintf(format, values...))}, nil
	}
	switch {
	case wanted != 1 && wanted != controlplane.MaxMembers:
		return refused("set spec.etcd.replicas to 1 or %d", controlplane.MaxMembers)
	case wanted < members:
		return refused("etcd has %d members, which do not become fewer: set spec.etcd.replicas to %d", members, controlplane.MaxMembers)
	}
	running := &appsv1.Deployment{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: plane.Namespace, Name: controlplane.APIServer}, running)
	if client.IgnoreNotFound(err) != nil {
		return tenancy.Reason{}, fmt.Errorf("getting the API servers of %s: %w", plane.Namespace, err)
	}
	all, notYet := version.ParseSemantic(plane.Tenant.Status.Version)
	from, unknown := version.ParseSemantic(controlplane.VersionOf(running))
	if notYet != nil || unknown != nil {
		return tenancy.Reason{}, nil //nolint:nilerr // nothing was ever whole
	}
	to, err := version.ParseSemantic(plane.Version.Spec.KubernetesVersion)
	if err != nil {
		return refused("spec.kubernetesVersion: %v", err)
	}
	switch {
	case sameMinor(to, from):
		return tenancy.Reason{}, nil
	case to.LessThan(from):
		return refused("API servers of v%s may have written what those of v%s do not read", from, to)
	case to.Major() != from.Major() || to.Minor() > from.Minor()+1:
		return refused("from v%s it goes up to v%d.%d first, and not to v%s", from, from.Major(), from.Minor()+1, to)
	case !sameMinor(all, from):
		return tenancy.Reason{Reason: tenancyv1alpha1.ReasonProgressing, Message: fmt.Sprintf(
			"Not all parts have v%s, which comes before v%s: name a ClusterVersion of v%d.%d until they do", from, to, from.Major(), from.Minor())}, nil
	}
	return tenancy.Reason{}, nil
}

func sameMinor(a, b *version.Version) bool { return a.Major() == b.Major() && a.Minor() == b.Minor() }

func replicasOf(replicas *int32) int32 {
	if replicas == nil {
		return 1
	}
	return *replicas
}

// lacks says what a Deployment waits for, the zero Reason when all its pods are there, as they are to be, and ready.
// wanted is how many it is to have, whoever has scaled it since.
func lacks(deployment *appsv1.Deployment, wanted int32) tenancy.Reason {
	why, status := "", deployment.Status
	pods := fmt.Sprintf("kubectl -n %s get pods -l app.kubernetes.io/name=%s", deployment.Namespace, deployment.Name)
	switch {
	case status.ObservedGeneration < deployment.Generation:
		why = deployment.Name + " was changed just now"
	case status.UpdatedReplicas < wanted:
		why = fmt.Sprintf("%d of %d pods of %s are as they are to be: %s", status.UpdatedReplicas, wanted, deployment.Name, pods)
	case status.AvailableReplicas < wanted:
		why = fmt.Sprintf("%d of %d pods of %s are ready: %s", status.AvailableReplicas, wanted, deployment.Name, pods)
	case status.Replicas > wanted:
		why = fmt.Sprintf("%d pods of %s are about to end", status.Replicas-wanted, deployment.Name)
	default:
		return tenancy.Reason{}
	}
	return tenancy.Reason{Reason: tenancyv1alpha1.ReasonProgressing, Message: why}
}
