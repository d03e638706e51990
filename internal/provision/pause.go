package provision

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
	"github.com/superpool/superpool/internal/provision/objects"
	"github.com/superpool/superpool/internal/tenancy"
)

// pause scales a control plane to nothing, each program when those that ask it have ended. Volumes and all objects stay:
// the stages make of them what was there before. It needs no ClusterVersion.
func (r *Reconciler) pause(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster, report *report) error {
	said := "nothing of its control plane runs"
	for _, condition := range conditionTypes {
		if condition != tenancyv1alpha1.ConditionCertificatesValid {
			report.set(condition, tenancy.Reason{Reason: tenancyv1alpha1.ReasonPaused, Message: "It ends with the tenant's pause"})
		}
	}
	waits, err := r.objects().EndAll(ctx, vc.Status.ClusterNamespace)
	if err != nil {
		return err
	}
	if waits != "" {
		said = "waiting for the end of " + waits
	}
	report.set(tenancyv1alpha1.ConditionUpToDate, tenancy.Reason{Reason: tenancyv1alpha1.ReasonPaused, Message: "The tenant is paused: " + said})
	return nil
}

// revive scales what was scaled to nothing to what it was, and keeps the members of the store, and changes nothing else: what
// is wanted of it is refused, or waits for it. What has another store now stays as it is.
func (r *Reconciler) revive(ctx context.Context, store *store, report *report) error {
	if store.isPast() || !store.hasServed() {
		return nil
	}
	manager := &appsv1.Deployment{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: store.plane.Namespace, Name: controlplane.ControllerManager}, manager)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("getting the controller managers of %s: %w", store.plane.Namespace, err)
	}
	if store.told == nil || !controlplane.IsTold(store.told) { // pods do not start without
		if err := store.tell(ctx, store.state); err != nil {
			return err
		}
	}
	for _, workload := range []client.Object{store.set, store.servers, manager} {
		pods := objects.PausedReplicas(workload)
		if workload == store.set {
			pods = store.state.Pods
		}
		if err := r.objects().Revive(ctx, workload, pods); err != nil {
			return err
		}
	}
	why, err := store.tend(ctx, objects.ReplicasOf(store.set.Spec.Replicas))
	if err == nil {
		report.set(tenancyv1alpha1.ConditionEtcdReady, why)
	}
	return err
}
