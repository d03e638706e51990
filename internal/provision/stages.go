package provision

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
	"github.com/superpool/superpool/internal/tenancy"
)

// stage is a part of a control plane that is made, or changed, when the parts before are whole.
type stage struct {
	// condition is what tells of it, and workload the name of its StatefulSet or Deployment.
	condition, workload string
	objects             []client.Object
}

// members is how many members the etcd of a control plane has. More are not made yet: pods that are added would be
// another etcd beside the one that there is.
const members = 1

// stages returns the parts of a control plane in the order in which they are made and upgraded: no program is older
// than one that asks it.
func stages(plane *controlplane.ControlPlane) []stage {
	return []stage{
		{tenancyv1alpha1.ConditionEtcdReady, controlplane.Etcd, plane.Etcd(members)},
		{tenancyv1alpha1.ConditionAPIServerReady, controlplane.APIServer, plane.APIServer(members)},
		{tenancyv1alpha1.ConditionControllerManagerReady, controlplane.ControllerManager, plane.ControllerManager()},
	}
}

// progress is how far the pods of a workload are.
type progress struct {
	observed                    bool
	wanted, updated, ready, all int32
}

// progressOf returns how far the pods of a StatefulSet or Deployment are, of which as many are wanted as wanted has,
// whoever has scaled it since. It returns false for any other object.
func progressOf(live, wanted client.Object) (progress, bool) {
	switch live := live.(type) {
	case *appsv1.StatefulSet:
		return progress{
			observed: live.Status.ObservedGeneration >= live.Generation, wanted: replicasOf(wanted.(*appsv1.StatefulSet).Spec.Replicas), //nolint:forcetypeassert // of one kind
			updated: live.Status.UpdatedReplicas, ready: live.Status.ReadyReplicas, all: live.Status.Replicas,
		}, true
	case *appsv1.Deployment:
		return progress{
			observed: live.Status.ObservedGeneration >= live.Generation, wanted: replicasOf(wanted.(*appsv1.Deployment).Spec.Replicas), //nolint:forcetypeassert // of one kind
			updated: live.Status.UpdatedReplicas, ready: live.Status.AvailableReplicas, all: live.Status.Replicas,
		}, true
	}
	return progress{}, false
}

func replicasOf(replicas *int32) int32 {
	if replicas == nil {
		return 1
	}
	return *replicas
}

// lacks says what a workload waits for, the zero Reason when all its pods are there, of the version that is wanted, and
// ready.
func (p progress) lacks(name, namespace string) tenancy.Reason {
	switch {
	case !p.observed:
		return tenancy.Reason{Reason: tenancyv1alpha1.ReasonProgressing, Message: name + " was changed just now"}
	case p.updated < p.wanted:
		return tenancy.Reason{Reason: tenancyv1alpha1.ReasonProgressing, Message: fmt.Sprintf(
			"%d of %d pods of %s are as they are to be: kubectl -n %s get pods -l app.kubernetes.io/name=%s", p.updated, p.wanted, name, namespace, name)}
	case p.ready < p.wanted:
		return tenancy.Reason{Reason: tenancyv1alpha1.ReasonProgressing, Message: fmt.Sprintf(
			"%d of %d pods of %s are ready: kubectl -n %s describe pods -l app.kubernetes.io/name=%s", p.ready, p.wanted, name, namespace, name)}
	case p.all > p.wanted:
		return tenancy.Reason{Reason: tenancyv1alpha1.ReasonProgressing, Message: fmt.Sprintf("%d pods of %s are about to end", p.all-p.wanted, name)}
	}
	return tenancy.Reason{}
}
