package kinds

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/proof"
	"github.com/superpool/superpool/internal/syncer/engine"
)

// done counts and logs a write, and wraps its error. A conflict means that the cache lagged: it becomes a WaitError.
func (e *Env) done(ctx context.Context, kind, operation string, err error) error {
	if apierrors.IsConflict(err) {
		err = engine.Waitf("the cache, %s of %s: %v", operation, kind, err)
	}
	e.Metrics.Operation(kind, operation, err)
	if err != nil {
		return fmt.Errorf("%s of %s: %w", operation, kind, err)
	}
	klog.FromContext(ctx).V(3).Info("Wrote", "object", kind, "operation", operation)
	return nil
}

// superCluster is the super cluster, for proofs.
func (e *Env) superCluster() *proof.ControlPlane {
	return &proof.ControlPlane{Name: "super cluster " + e.ID, Reader: e.Super, UID: e.SuperUID}
}

// controlPlane is that of the tenant, for proofs.
func (t *Tenant) controlPlane() *proof.ControlPlane {
	return &proof.ControlPlane{Name: "the tenant", Reader: t.Client, UID: t.ControlPlaneUID}
}

// errUnproven is the error for a deletion without a Proof, which is a bug.
var errUnproven = errors.New("nothing proves that it may be deleted")

// remove deletes the object with a UID precondition. NotFound is success. grace is in seconds; nil means the default of
// the object.
func (e *Env) remove(ctx context.Context, to client.Client, kind, operation string, object client.Object, grace *int64, proven proof.Proof) error {
	if !proven.Holds() {
		return fmt.Errorf("%s of %s %s: %w", operation, kind, client.ObjectKeyFromObject(object), errUnproven)
	}
	uid := object.GetUID()
	options := &client.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, GracePeriodSeconds: grace}
	return e.done(ctx, kind, operation, client.IgnoreNotFound(to.Delete(ctx, object, options)))
}

// unproven returns the error of a proof that could not be had. That another control plane answers is a reason to wait:
// the tenant's connection reports it, and the guard of the super cluster.
func unproven(err error) error {
	if errors.Is(err, proof.ErrOther) {
		return engine.Waitf("the control plane that is known: %v", err)
	}
	return err
}
