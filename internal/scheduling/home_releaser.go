package scheduling

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/claimhome"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/tenancy"
)

// homeReleaser takes the home off claims without volume whose namespace holds nothing there any more, where no syncer
// does it: one looks at no claims of such a namespace, and their pods could run nowhere. A request names one claim, or
// with name "" all of a namespace, or of all.
//
// That nothing was made for a claim in its home is what the finalizer of the super cluster says, which its syncer writes
// before it makes anything: without it nothing was. With it, the super cluster is asked whether it holds anything of the
// namespace, and one that has left the pool counts after gonePatience. Either way the claim is written as it was read:
// who has made something meanwhile has written the finalizer, and who is about to reads the claim again.
type homeReleaser struct {
	key        string
	api        kubernetes.Interface
	claims     corev1listers.PersistentVolumeClaimLister
	store      *Store
	dispatcher *Dispatcher
	recorder   events.EventRecorder
	clock      clock.PassiveClock
	held       *heldNamespaces
}

// mayBeStranded reports whether a claim of the pod view has a home and no volume. One that is to be restored from a
// snapshot can be nowhere else.
func mayBeStranded(claim *corev1.PersistentVolumeClaim) bool {
	return claim.DeletionTimestamp == nil && claim.Spec.VolumeName == "" && claimhome.Of(claim) != "" && claimhome.Snapshot(claim) == ""
}

// Reconcile releases the homes of a request.
func (r *homeReleaser) Reconcile(ctx context.Context, item request) (reconcile.Result, error) {
	claims, err := r.requested(item)
	if err != nil {
		return reconcile.Result{}, err
	}
	var result reconcile.Result
	var errs []error
	for namespace, stranded := range byNamespace(claims) {
		again, err := r.release(ctx, namespace, stranded)
		result.RequeueAfter = sooner(result.RequeueAfter, again)
		errs = append(errs, err)
	}
	return result, errors.Join(errs...)
}

// requested returns the claims of a request that may be stranded.
func (r *homeReleaser) requested(item request) ([]*corev1.PersistentVolumeClaim, error) {
	if item.name != "" {
		claim, err := r.claims.PersistentVolumeClaims(item.namespace).Get(item.name)
		if apierrors.IsNotFound(err) || err == nil && !mayBeStranded(claim) {
			return nil, nil
		}
		return []*corev1.PersistentVolumeClaim{claim}, err //nolint:wrapcheck // a lister fails on NotFound only
	}
	list := r.claims.List
	if item.namespace != "" {
		list = r.claims.PersistentVolumeClaims(item.namespace).List
	}
	all, err := list(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing claims: %w", err)
	}
	return slices.DeleteFunc(all, func(claim *corev1.PersistentVolumeClaim) bool { return !mayBeStranded(claim) }), nil
}

func byNamespace(claims []*corev1.PersistentVolumeClaim) map[string][]*corev1.PersistentVolumeClaim {
	grouped := map[string][]*corev1.PersistentVolumeClaim{}
	for _, claim := range claims {
		grouped[claim.Namespace] = append(grouped[claim.Namespace], claim)
	}
	return grouped
}

// release releases those claims of one namespace whose home it has left, by the cache and by a live read. It returns
// after how long to look again, 0 for when something changes.
func (r *homeReleaser) release(ctx context.Context, namespace string, claims []*corev1.PersistentVolumeClaim) (again time.Duration, err error) {
	key := client.ObjectKey{Namespace: r.key, Name: namespace}
	cached, err := r.store.Get(ctx, key)
	if err != nil {
		return 0, err
	}
	if claims = slices.DeleteFunc(claims, func(claim *corev1.PersistentVolumeClaim) bool { return !hasLeft(cached, claimhome.Of(claim)) }); len(claims) == 0 {
		return 0, nil
	}
	live, err := read(ctx, r.store.live, key)
	if err != nil {
		return 0, err
	}
	nodes := r.dispatcher.virtualNodes()
	var errs []error
	for _, claim := range claims {
		home := claimhome.Of(claim)
		if !hasLeft(live, home) {
			continue // the cache is behind: its change enqueues the namespace
		}
		waits, err := r.waits(ctx, claim, home, nodes[home])
		if again = sooner(again, waits); waits == 0 && err == nil {
			err = r.takeOff(ctx, claim, home)
		}
		errs = append(errs, err)
	}
	return again, errors.Join(errs...)
}

// hasLeft reports whether a NamespacePlacement, which may be nil, says that its namespace holds nothing in a super
// cluster. One that is missing, is being deleted or was not decided says nothing.
func hasLeft(np *schedulerv1alpha1.NamespacePlacement, superCluster string) bool {
	return np != nil && np.DeletionTimestamp == nil && placement.IsDecided(np) && !placement.Clusters(np.Status.Placements).Has(superCluster)
}

// waits returns how long a claim is to wait because its home may have something for it, by the virtual Node of that, nil
// if it has left the pool.
func (r *homeReleaser) waits(ctx context.Context, claim *corev1.PersistentVolumeClaim, home string, node *corev1.Node) (time.Duration, error) {
	if !slices.Contains(claim.Finalizers, tenancyv1alpha1.FinalizerPrefixClaim+home) {
		return 0, nil
	}
	if node == nil {
		if left := gonePatience - r.clock.Since(r.dispatcher.leftSince(home)); left > 0 {
			return left, nil
		}
		there, err := storedNodes(ctx, r.store.live)
		if err != nil {
			return 0, err
		}
		if there[home] {
			return heldPeriod, nil // the cache is behind
		}
		return 0, nil
	}
	if held, known := r.held.in(ctx, node); !known || held.Has(claim.Namespace) {
		return heldPeriod, nil
	}
	return 0, nil
}

// takeOff takes the home off a claim, and tells its tenant.
func (r *homeReleaser) takeOff(ctx context.Context, claim *corev1.PersistentVolumeClaim, home string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": claim.UID, "resourceVersion": claim.ResourceVersion,
		"annotations": map[string]any{schedulerv1alpha1.AnnotationSuperCluster: nil},
		"finalizers":  slices.DeleteFunc(slices.Clone(claim.Finalizers), func(finalizer string) bool { return finalizer == tenancyv1alpha1.FinalizerPrefixClaim+home }),
	}})
	if err != nil {
		return fmt.Errorf("encoding claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	_, err = r.api.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err): // the informer says so, too
		return nil
	case err != nil:
		return fmt.Errorf("taking the home off claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	r.recorder.Eventf(claim, nil, corev1.EventTypeWarning, tenancy.ReasonSuperClusterNotPlaced, "Provision",
		"Namespace %s holds nothing in super cluster %s, where the claim has no volume yet: it gets another home", claim.Namespace, home)
	return nil
}
