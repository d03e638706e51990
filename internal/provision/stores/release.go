package stores

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
	"github.com/superpool/superpool/internal/provision/objects"
	"github.com/superpool/superpool/internal/tenancy"
)

const (
	// clearedKeys is how many keys of an external store are deleted at a time, and clearedTimes how often in one
	// reconcile: others use it meanwhile.
	clearedKeys  = 500
	clearedTimes = 20
	// settledTime is how long a root namespace is being deleted before what its tenant has in an external store is: no
	// reconcile that has seen it alive runs any more.
	settledTime = 15 * time.Second
	// waitsFor is the key of ConfigMap etcd that says why it is there yet, while its root namespace is being deleted.
	waitsFor = "deletion-waits-for"
)

// SetupWithManager adds the controller that releases external stores to a manager.
func (ss *Stores) SetupWithManager(mgr manager.Manager) error {
	isDeleted := predicate.NewPredicateFuncs(func(told client.Object) bool {
		return told.GetDeletionTimestamp() != nil && controllerutil.ContainsFinalizer(told, controlplane.FinalizerExternal)
	})
	err := ctrl.NewControllerManagedBy(mgr).Named("external-stores").For(&corev1.ConfigMap{}, builder.WithPredicates(isDeleted)).
		WithOptions(controller.Options{MaxConcurrentReconciles: cap(ss.asking)}).Complete(reconcile.Func(ss.release))
	if err != nil {
		return fmt.Errorf("building the controller of external stores: %w", err)
	}
	return nil
}

// release deletes what is a tenant's in an external store, once the root namespace is being deleted whose ConfigMap
// names the store: its user first, so that nobody writes behind it. Whose it is, the namespace says and no ConfigMap:
// others may write one like it.
func (ss *Stores) release(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	told, root := &corev1.ConfigMap{}, &corev1.Namespace{}
	err := ss.reader.Get(ctx, request.NamespacedName, told)
	if err == nil {
		err = ss.reader.Get(ctx, types.NamespacedName{Name: request.Namespace}, root)
	}
	if err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err) //nolint:wrapcheck // it names what was read
	}
	uid := types.UID(root.Annotations[tenancyv1alpha1.AnnotationVirtualClusterUID])
	if told.DeletionTimestamp == nil || !controllerutil.ContainsFinalizer(told, controlplane.FinalizerExternal) {
		return reconcile.Result{}, nil
	}
	if root.DeletionTimestamp == nil { // the tenant lives
		return reconcile.Result{RequeueAfter: objects.MendingPeriod}, nil
	}
	if settled := root.DeletionTimestamp.Add(settledTime).Sub(ss.clock.Now()); settled > 0 {
		return reconcile.Result{RequeueAfter: settled}, nil
	}
	external, why := controlplane.ExternalOf(told), ""
	switch {
	case root.Annotations[tenancyv1alpha1.AnnotationRootNamespace] != "true" || uid == "":
		why = "its namespace is not said to be a tenant's root namespace: take the finalizer out"
	case external == nil:
		why = "it does not say where the external etcd is: say it again, or take the finalizer out"
	default:
		why = ss.clear(ctx, external, uid)
	}
	if why != "" {
		return reconcile.Result{RequeueAfter: AskPeriod}, ss.say(ctx, told, why)
	}
	controllerutil.RemoveFinalizer(told, controlplane.FinalizerExternal)
	if err := ss.client.Update(ctx, told); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("letting go of ConfigMap %s: %w", request.NamespacedName, err)
	}
	return reconcile.Result{}, nil
}

// clear deletes what is a VirtualCluster's in an external store, and returns what it waits for, "" when nothing is
// left.
func (ss *Stores) clear(ctx context.Context, external *controlplane.External, uid types.UID) string {
	failed := func(err error) string {
		klog.FromContext(ctx).Error(err, "Clearing an external store", "endpoints", external.Endpoints)
		return "the external etcd, which fails: the log of vc-manager says how"
	}
	c, err := ss.dialExternal(ctx, external)
	if broken := (*objects.BrokenError)(nil); errors.As(err, &broken) {
		return err.Error()
	}
	if err != nil {
		return failed(err)
	}
	defer c.Close()
	if _, why := ss.known(ctx, c, external); why != (tenancy.Reason{}) {
		return why.Message
	}
	if err := c.Expel(ctx, controlplane.ExternalUser(uid)); err != nil {
		return failed(err)
	}
	for range clearedTimes {
		done, err := c.Clear(ctx, controlplane.ExternalPrefix(uid), clearedKeys)
		if err != nil {
			return failed(err)
		}
		if done {
			return ""
		}
	}
	return "the deletion of what it has in the external etcd, which goes on"
}

// say says in a ConfigMap what its deletion waits for: nobody else is left to say it.
func (ss *Stores) say(ctx context.Context, told *corev1.ConfigMap, why string) error {
	if told.Data[waitsFor] == why {
		return nil
	}
	told.Data = labels.Merge(told.Data, map[string]string{waitsFor: why})
	if err := ss.client.Update(ctx, told); err != nil {
		return fmt.Errorf("writing ConfigMap %s: %w", client.ObjectKeyFromObject(told), err)
	}
	return nil
}
