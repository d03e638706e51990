package objects

import (
	"context"
	"fmt"
	"maps"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/controlplane"
)

// annotationReplicas is how many pods a workload had when it was scaled to nothing last: a store never gets fewer.
// Written by vc-manager; read by vc-manager.
const annotationReplicas = "tenancy.x-k8s.io/paused-replicas"

// maxRevived bounds that number, which somebody may have written: a component has nine at most.
const maxRevived = 9

// ReplicasOf returns how many pods a workload is to have that says so many, nil for none: then it has one.
func ReplicasOf(replicas *int32) int32 {
	if replicas == nil {
		return 1
	}
	return *replicas
}

// PausedReplicas returns how many pods a workload had when it was scaled to nothing last, 0 where it never was.
func PausedReplicas(workload client.Object) int32 {
	pods, _ := strconv.Atoi(workload.GetAnnotations()[annotationReplicas])
	return int32(max(0, min(pods, maxRevived))) //nolint:gosec // a handful
}

// EndAll scales the programs of a control plane to nothing, each when those that ask it have ended, and returns the
// name of the one that has not, "" where nothing runs.
func (w Writer) EndAll(ctx context.Context, namespace string) (waits string, err error) {
	for _, part := range []struct {
		name     string
		workload client.Object
	}{
		{controlplane.ControllerManager, &appsv1.Deployment{}},
		{controlplane.APIServer, &appsv1.Deployment{}},
		{controlplane.Etcd, &appsv1.StatefulSet{}},
	} {
		if runs, err := w.end(ctx, part.workload, client.ObjectKey{Namespace: namespace, Name: part.name}); runs || err != nil {
			return part.name, err
		}
	}
	return "", nil
}

// end scales a workload to nothing, and reports whether it has pods yet.
func (w Writer) end(ctx context.Context, workload client.Object, name client.ObjectKey) (runs bool, err error) {
	if err := w.Client.Get(ctx, name, workload); err != nil {
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return false, fmt.Errorf("getting %s %s: %w", KindOf(workload), name, err)
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
	if ReplicasOf(*wanted) == 0 {
		return pods > 0 || observed < workload.GetGeneration(), nil
	}
	annotations := map[string]string{}
	maps.Copy(annotations, workload.GetAnnotations())
	delete(annotations, annotationApplied) // so that it is applied again
	annotations[annotationReplicas] = strconv.Itoa(int(ReplicasOf(*wanted)))
	workload.SetAnnotations(annotations)
	*wanted = ptr.To[int32](0)
	if err := w.Client.Patch(ctx, workload, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(FieldManager)); err != nil {
		return false, fmt.Errorf("scaling %s %s to nothing: %w", KindOf(workload), name, err)
	}
	return true, nil
}

// Revive scales a Deployment or StatefulSet that was read, and is scaled to nothing, to so many pods, nine at most. It
// does nothing with one without resource version, which does not exist.
func (w Writer) Revive(ctx context.Context, workload client.Object, pods int32) error {
	before := workload.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy is of the same kind
	wanted := replicasIn(workload)
	if workload.GetResourceVersion() == "" || pods <= 0 || ReplicasOf(*wanted) > 0 {
		return nil
	}
	*wanted = ptr.To(min(pods, maxRevived))
	if err := w.Client.Patch(ctx, workload, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(FieldManager)); err != nil {
		return fmt.Errorf("scaling %s %s: %w", KindOf(workload), client.ObjectKeyFromObject(workload), err)
	}
	return nil
}

// replicasIn returns where a workload says how many pods it has.
func replicasIn(workload client.Object) **int32 {
	if set, is := workload.(*appsv1.StatefulSet); is {
		return &set.Spec.Replicas
	}
	return &workload.(*appsv1.Deployment).Spec.Replicas //nolint:forcetypeassert // there is no third kind
}
