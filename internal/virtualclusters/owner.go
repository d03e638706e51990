// Package virtualclusters owns the life of VirtualClusters in the meta cluster: finalizer, root namespace, status and
// Events. One process owns (Owner), and any number of others read (Reader).
package virtualclusters

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
)

// FinalizerPlacements holds a deleted VirtualCluster until its NamespacePlacements and its root namespace are deleted,
// and until no super cluster of the pool holds anything of it. So a syncer that sees the deletion removes all that the
// tenant has there, and one that finds no VirtualCluster knows that it was not deleted.
// Written by vc-scheduler, the syncer without a pool; read by the same.
const FinalizerPlacements = "scheduler.tenancy.x-k8s.io/placements"

const (
	drainRetryAfter    = time.Second
	conflictRetryAfter = 30 * time.Second
)

// Owner writes what other programs read of VirtualClusters: their finalizer, root namespace, cluster key, control plane
// UID, conditions and Events. The controller of package tenants drives it (tenants.Lifecycle), because the Ready
// condition is the state of the tenant's connection, and because a root namespace must not be deleted before the
// connection has ended. Its methods change the VirtualCluster that they are given to what they wrote, and may run
// concurrently for different ones.
type Owner struct {
	// Client reads VirtualClusters and NamespacePlacements (a cache will do) and writes.
	Client client.Client
	// Reader reads Namespaces and NamespacePlacements, which must be up to date.
	Reader client.Reader
	// Recorder records Events on VirtualClusters.
	Recorder record.EventRecorder
	// Runs returns the super clusters where pods of a tenant run, or may, by its cluster key, and false while others may.
	// Nil: there is no pool, and nobody can be paused.
	Runs func(ctx context.Context, key string) (superClusters []string, complete bool)
	// Left returns, by live reads, the super clusters that hold anything of a VirtualCluster, by its cluster key and
	// UID, or do not say that they hold nothing. Nil: none does once its NamespacePlacements are gone.
	Left func(ctx context.Context, key string, uid types.UID) ([]string, error)

	// idle holds the UIDs of VirtualClusters that this process has found to run nothing since they were to be paused.
	idle sync.Map
}

// Prepare adds the finalizer, creates the root namespace and writes the cluster key, each only where it is missing. It
// returns why the root namespace cannot be used, the zero Reason when it can.
func (o *Owner) Prepare(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster) (tenancy.Reason, error) {
	if !controllerutil.ContainsFinalizer(vc, FinalizerPlacements) {
		before := vc.DeepCopy()
		controllerutil.AddFinalizer(vc, FinalizerPlacements)
		if err := o.Client.Patch(ctx, vc, locked(before)); err != nil {
			return tenancy.Reason{}, fmt.Errorf("adding the finalizer: %w", err)
		}
	}
	key := tenancy.ClusterKey(vc)
	root, err := o.ensureRoot(ctx, vc, key)
	if apierrors.IsNotFound(err) {
		return waitingForRoot(key), nil
	}
	if err != nil {
		return tenancy.Reason{}, fmt.Errorf("making the root namespace %s: %w", key, err)
	}
	if conflict := rootConflict(vc, root); conflict != (tenancy.Reason{}) || vc.Status.ClusterNamespace != "" {
		return conflict, nil
	}
	before := vc.DeepCopy()
	vc.Status.ClusterNamespace = key
	if err := o.Client.Status().Patch(ctx, vc, locked(before)); err != nil {
		return tenancy.Reason{}, fmt.Errorf("writing the cluster key: %w", err)
	}
	return tenancy.Reason{}, nil
}

// ensureRoot returns the namespace named key, and creates it when there is none.
func (o *Owner) ensureRoot(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster, key string) (*corev1.Namespace, error) {
	root := &corev1.Namespace{}
	err := o.Reader.Get(ctx, client.ObjectKey{Name: key}, root)
	if apierrors.IsNotFound(err) {
		root = newRoot(vc, key)
		err = o.Client.Create(ctx, root)
		if apierrors.IsAlreadyExists(err) {
			err = o.Reader.Get(ctx, client.ObjectKey{Name: key}, root)
		}
	}
	return root, err
}

// Recognize writes uid as the UID of the tenant's control plane, which status has none of yet. A conflict is returned
// as such.
func (o *Owner) Recognize(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster, uid types.UID) error {
	before := vc.DeepCopy()
	vc.Status.ControlPlaneUID = uid
	if err := o.Client.Status().Patch(ctx, vc, locked(before)); err != nil {
		return err
	}
	if vc.Status.ControlPlaneUID != uid {
		return errors.New("the meta cluster does not keep status.controlPlaneUID: apply the CRDs of this version (kubectl apply -k manifests/crds)")
	}
	return nil
}

// Withdraw removes the UID of a control plane that is somebody else's from status, by which no process connects to it
// for this VirtualCluster. A conflict is returned as such.
func (o *Owner) Withdraw(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster) error {
	before := vc.DeepCopy()
	vc.Status.ControlPlaneUID = ""
	return o.Client.Status().Patch(ctx, vc, locked(before)) //nolint:wrapcheck // the caller looks for conflicts
}

// Release deletes what a deleted VirtualCluster leaves in the meta cluster, and removes its finalizer when nothing is
// left: first the NamespacePlacements, so that syncers clean up by their delete events, then what super clusters hold,
// then the root namespace. Condition Ready says which super clusters it waits for. The caller's connection must have
// ended. The duration is after how long to call it again, 0 for never.
func (o *Owner) Release(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster) (time.Duration, error) {
	if !controllerutil.ContainsFinalizer(vc, FinalizerPlacements) {
		return 0, nil
	}
	root := &corev1.Namespace{}
	err := o.Reader.Get(ctx, client.ObjectKey{Name: tenancy.ClusterKey(vc)}, root)
	if client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("getting the root namespace: %w", err)
	}
	o.idle.Delete(vc.UID)
	hasRoot := err == nil && ownsRoot(vc, root)
	if hasRoot {
		remaining, err := o.deletePlacements(ctx, root.Name)
		if err != nil || remaining {
			return drainRetryAfter, err
		}
	}
	if waits, err := o.waits(ctx, vc); err != nil || waits {
		return drainRetryAfter, err
	}
	if hasRoot && root.DeletionTimestamp.IsZero() {
		uid := client.Preconditions{UID: ptr.To(root.UID)}
		if err := o.Client.Delete(ctx, root, uid); client.IgnoreNotFound(err) != nil {
			return 0, fmt.Errorf("deleting the root namespace %s: %w", root.Name, err)
		}
	}
	before := vc.DeepCopy()
	controllerutil.RemoveFinalizer(vc, FinalizerPlacements)
	if err := o.Client.Patch(ctx, vc, locked(before)); client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("removing the finalizer: %w", err)
	}
	return 0, nil
}

// waits returns whether a deleted VirtualCluster waits for super clusters, and says so in its condition Ready.
func (o *Owner) waits(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster) (bool, error) {
	if o.Left == nil {
		return false, nil
	}
	left, err := o.Left(ctx, tenancy.ClusterKey(vc), vc.UID)
	if err != nil || len(left) == 0 {
		return false, err
	}
	before := vc.DeepCopy()
	setReady(vc, tenancy.Reason{
		Reason: tenancyv1alpha1.ReasonDeleting, Message: "Waiting until these super clusters say that they hold nothing of the tenant: " + strings.Join(left, ", "),
	})
	if equality.Semantic.DeepEqual(before.Status, vc.Status) {
		return true, nil
	}
	if err := o.Client.Status().Patch(ctx, vc, locked(before)); err != nil {
		return true, fmt.Errorf("writing the conditions: %w", err)
	}
	klog.FromContext(ctx).Info("A deleted tenant waits for super clusters", "superClusters", left)
	return true, nil
}

// deletePlacements deletes the NamespacePlacements of a root namespace and returns whether any is still there.
func (o *Owner) deletePlacements(ctx context.Context, namespace string) (bool, error) {
	var list schedulerv1alpha1.NamespacePlacementList
	if err := o.Reader.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return true, fmt.Errorf("listing the placements in %s: %w", namespace, err)
	}
	for i := range list.Items {
		item := &list.Items[i]
		if !item.DeletionTimestamp.IsZero() {
			continue
		}
		if err := o.Client.Delete(ctx, item, client.Preconditions{UID: ptr.To(item.UID)}); client.IgnoreNotFound(err) != nil {
			return true, fmt.Errorf("deleting placement %s: %w", klog.KObj(item), err)
		}
	}
	return len(list.Items) > 0, nil
}

// locked returns a merge patch from before that fails with a conflict when another wrote the object meanwhile.
func locked(before client.Object) client.Patch {
	return client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
}
