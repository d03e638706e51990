package provision

import (
	"context"
	"fmt"
	"maps"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
	"github.com/superpool/superpool/internal/tenancy"
)

// annotationReplicas is how many pods a workload had when it was scaled to nothing last: a store never gets fewer.
// Written by vc-manager; read by vc-manager.
const annotationReplicas = "tenancy.x-k8s.io/paused-replicas"

// maxRevived bounds that number, which somebody may have written: a component has nine at most.
const maxRevived = 9

// pause scales a control plane to nothing, each program when those that ask it have ended. Volumes and all objects stay:
// the stages make of them what was there before. It needs no ClusterVersion.
func (r *Reconciler) pause(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster, report *report) error {
	said := "nothing of its control plane runs"
	for _, condition := range conditionTypes {
		if condition != tenancyv1alpha1.ConditionCertificatesValid {
			report.set(condition, tenancy.Reason{Reason: tenancyv1alpha1.ReasonPaused, Message: "It ends with the tenant's pause"})
		}
	}
	waits, err := r.endAll(ctx, vc.Status.ClusterNamespace)
	if err != nil {
		return err
	}
	if waits != "" {
		said = "waiting for the end of " + waits
	}
	report.set(tenancyv1alpha1.ConditionUpToDate, tenancy.Reason{Reason: tenancyv1alpha1.ReasonPaused, Message: "The tenant is paused: " + said})
	return nil
}

// endAll scales the programs of a control plane to nothing, each when those that ask it have ended, and returns the name of
// the one that has not, "" where nothing runs.
func (r *Reconciler) endAll(ctx context.Context, namespace string) (waits string, err error) {
	for _, part := range []struct {
		name     string
		workload client.Object
	}{
		{controlplane.ControllerManager, &appsv1.Deployment{}},
		{controlplane.APIServer, &appsv1.Deployment{}},
		{controlplane.Etcd, &appsv1.StatefulSet{}},
	} {
		if runs, err := r.end(ctx, part.workload, client.ObjectKey{Namespace: namespace, Name: part.name}); runs || err != nil {
			return part.name, err
		}
	}
	return "", nil
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
		before := workload.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy is of the same kind
		pods, _ := strconv.Atoi(workload.GetAnnotations()[annotationReplicas])
		if workload == store.set {
			pods = int(store.state.Pods)
		}
		wanted := replicasIn(workload)
		if workload.GetResourceVersion() == "" || pods <= 0 || replicasOf(*wanted) > 0 {
			continue
		}
		*wanted = ptr.To(int32(min(pods, maxRevived))) //nolint:gosec // a handful
		if err := r.Client.Patch(ctx, workload, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(fieldManager)); err != nil {
			return fmt.Errorf("scaling %s %s/%s: %w", kindOf(workload), store.plane.Namespace, workload.GetName(), err)
		}
	}
	why, err := store.tend(ctx, replicasOf(store.set.Spec.Replicas))
	if err == nil {
		report.set(tenancyv1alpha1.ConditionEtcdReady, why)
	}
	return err
}

// replicasIn returns where a workload says how many pods it has.
func replicasIn(workload client.Object) **int32 {
	if set, is := workload.(*appsv1.StatefulSet); is {
		return &set.Spec.Replicas
	}
	return &workload.(*appsv1.Deployment).Spec.Replicas //nolint:forcetypeassert // there is no third kind
}

// end scales a workload to nothing, and reports whether it has pods yet.
func (r *Reconciler) end(ctx context.Context, workload client.Object, name client.ObjectKey) (runs bool, err error) {
	if err := r.Client.Get(ctx, name, workload); err != nil {
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return false, fmt.Errorf("getting %s %s: %w", kindOf(workload), name, err)
	}
	before := workload.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy is of the same kind
	wanted := replicasIn(workload)
	var pods int32
	var observed int64
	switch object := workload.(type) {
	case *appsv1.Deployment:
		pods, observed = object.Status.Replicas, object.Status.ObservedGeneration
	case *appsv1.StatefulSet:
		pods, observed = object.Status.Replicas, object.Status.ObservedGeneration
	}
	if replicasOf(*wanted) == 0 {
		return pods > 0 || observed < workload.GetGeneration(), nil
	}
	annotations := map[string]string{}
	maps.Copy(annotations, workload.GetAnnotations())
	delete(annotations, annotationApplied) // so that it is applied again
	annotations[annotationReplicas] = strconv.Itoa(int(replicasOf(*wanted)))
	workload.SetAnnotations(annotations)
	*wanted = ptr.To[int32](0)
	if err := r.Client.Patch(ctx, workload, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(fieldManager)); err != nil {
		return false, fmt.Errorf("scaling %s %s to nothing: %w", kindOf(workload), name, err)
	}
	return true, nil
}
