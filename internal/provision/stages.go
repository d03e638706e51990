package provision

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
	"github.com/superpool/superpool/internal/provision/objects"
	"github.com/superpool/superpool/internal/provision/stores"
	"github.com/superpool/superpool/internal/tenancy"
)

// stage is a part of a control plane that is made, or changed, when the parts before are whole.
type stage struct {
	// condition is what tells of it, and name what others wait for.
	condition, name string
	// again is after how long it is looked at again while it is not whole, where no event tells that it is.
	again time.Duration
	// objects returns what is applied before the next one: the stages before may change what that is.
	objects func() []client.Object
	// make applies its objects and returns what it waits for then.
	make func(context.Context) (tenancy.Reason, error)
}

// stages returns the parts of a control plane in the order in which they are made and upgraded: no program is older
// than one that asks it.
func (r *Reconciler) stages(plane *controlplane.ControlPlane, store *stores.Store) []stage {
	deployed := func(objects func() []client.Object) func(context.Context) (tenancy.Reason, error) {
		return func(ctx context.Context) (tenancy.Reason, error) { return r.deploy(ctx, objects()) }
	}
	ofStore := func() []client.Object { return append(store.Objects(), plane.ExposedService()) } // begin applies that
	servers := func() []client.Object { return plane.APIServer(store.Members()) }
	return []stage{
		{tenancyv1alpha1.ConditionEtcdReady, controlplane.Etcd, storePeriod, ofStore, store.Make},
		{tenancyv1alpha1.ConditionAPIServerReady, controlplane.APIServer, patrolPeriod, servers, deployed(servers)},
		{tenancyv1alpha1.ConditionControllerManagerReady, controlplane.ControllerManager, patrolPeriod, plane.ControllerManager, deployed(plane.ControllerManager)},
	}
}

// begin applies the Service of the API servers, if the meta cluster takes that and all parts that are to be made or
// changed. It returns why it does not. The Service comes first, as nothing else tells whether its node port is free.
func (r *Reconciler) begin(ctx context.Context, plane *controlplane.ControlPlane, stages []stage) (string, error) {
	if why := r.refused(ctx, stages); why != "" {
		return why, nil
	}
	_, err := r.objects().Apply(ctx, plane.ExposedService())
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) { // by a quota, or a webhook
		return err.Error(), nil
	}
	return "", err
}

// refused returns why the meta cluster refuses something of the first stage that is to be applied now, or of one after
// it, "" where it takes all or the first one has nothing to apply. Nothing is written. What else may be wrong is said
// when it is applied.
func (r *Reconciler) refused(ctx context.Context, stages []stage) string {
	for at, stage := range stages {
		hasNew := false
		for _, object := range stage.objects() {
			isNew, why := r.objects().Refused(ctx, object)
			if why != "" {
				return why
			}
			hasNew = hasNew || isNew
		}
		if at == 0 && !hasNew {
			break
		}
	}
	return ""
}

// deploy applies the objects of a stage, one of which is a Deployment, and returns what it waits for then.
func (r *Reconciler) deploy(ctx context.Context, wanted []client.Object) (why tenancy.Reason, err error) {
	for _, object := range wanted {
		live, err := r.objects().Apply(ctx, object)
		if err != nil {
			return tenancy.Reason{}, err
		}
		if deployment, is := live.(*appsv1.Deployment); is {
			why = lacks(deployment, objects.ReplicasOf(object.(*appsv1.Deployment).Spec.Replicas)) //nolint:forcetypeassert // of one kind
		}
	}
	return why, nil
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
