package scheduling

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// homeReleaser takes the home off claims without volume whose namespace may have nothing new there, where no syncer
// does it: their pods could run nowhere. A request names a namespace, or with "" all.
//
// That nothing was made for a claim in its home is what the finalizer of the super cluster says, which its syncer
// writes before it makes anything: without it nothing was. With it, the super cluster is asked whether it holds
// anything of the namespace, after that had nothing there any more, and one that has left the pool counts after
// gonePatience. Either way the claim is written as it was read: who has made something meanwhile has written the
// finalizer, and who is about to reads the claim again.
type homeReleaser struct {
	key      string
	api      kubernetes.Interface
	claims   corev1listers.PersistentVolumeClaimLister
	store    *Store
	pool     virtualNodes
	recorder events.EventRecorder
	clock    clock.PassiveClock
	held     *heldNamespaces
	// seen is since when the NamespacePlacements of claims that wait for a super cluster are as they are.
	seen map[string]seenPlacement
}

// seenPlacement is a NamespacePlacement in the version that was first seen at since.
type seenPlacement struct {
	version string
	since   time.Time
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
	grouped := byNamespace(claims)
	maps.DeleteFunc(r.seen, func(namespace string, _ seenPlacement) bool {
		return (item.namespace == "" || item.namespace == namespace) && len(grouped[namespace]) == 0
	})
	var result reconcile.Result
	var errs []error
	for namespace, stranded := range grouped {
		again, err := r.release(ctx, namespace, stranded)
		result.RequeueAfter = sooner(result.RequeueAfter, again)
		errs = append(errs, err)
	}
	return result, errors.Join(errs...)
}

// requested returns the claims of a request that may be stranded.
func (r *homeReleaser) requested(item request) ([]*corev1.PersistentVolumeClaim, error) {
	all, err := claimsIn(r.claims, item.namespace)
	return slices.DeleteFunc(all, func(claim *corev1.PersistentVolumeClaim) bool { return !mayBeStranded(claim) }), err
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
		delete(r.seen, namespace)
		return 0, nil
	}
	live, err := read(ctx, r.store.live, key)
	if err != nil {
		return 0, err
	}
	since := r.seenSince(namespace, live)
	nodes := r.pool.VirtualNodes()
	stored := sync.OnceValues(func() (map[string]bool, error) { return storedNodes(ctx, r.store.live) })
	var errs []error
	for _, claim := range claims {
		home := claimhome.Of(claim)
		if !hasLeft(live, home) {
			continue // the cache is behind: its change enqueues the namespace
		}
		waits, err := r.waits(ctx, claim, nodes[home], since, stored)
		if again = sooner(again, waits); waits == 0 && err == nil {
			err = r.takeOff(ctx, claim, home)
		}
		errs = append(errs, err)
	}
	if again == 0 {
		delete(r.seen, namespace)
	}
	return again, errors.Join(errs...)
}

// seenSince returns since when a NamespacePlacement, which may be nil, is as it is, as far as this process has seen.
func (r *homeReleaser) seenSince(namespace string, np *schedulerv1alpha1.NamespacePlacement) time.Time {
	version := ""
	if np != nil {
		version = string(np.UID) + "/" + np.ResourceVersion
	}
	if known := r.seen[namespace]; known.version != version || known.since.IsZero() {
		if r.seen == nil {
			r.seen = map[string]seenPlacement{}
		}
		r.seen[namespace] = seenPlacement{version, r.clock.Now()}
	}
	return r.seen[namespace].since
}

// hasLeft reports whether a NamespacePlacement, which may be nil, says that its namespace has nothing in a super
// cluster, or nothing but what leaves. One that is missing, is being deleted or was not decided says nothing.
func hasLeft(np *schedulerv1alpha1.NamespacePlacement, superCluster string) bool {
	return np != nil && np.DeletionTimestamp == nil && placement.IsDecided(np) && !placement.Clusters(np.Status.Placements).Has(superCluster)
}

// waits returns how long a claim is to wait because its home may have something for it, by the virtual Node of that,
// nil if it has left the pool. since is when the namespace had left it, and stored returns the Nodes that there are
// now.
func (r *homeReleaser) waits(
	ctx context.Context, claim *corev1.PersistentVolumeClaim, node *corev1.Node, since time.Time, stored func() (map[string]bool, error),
) (time.Duration, error) {
	home := claimhome.Of(claim)
	if !slices.Contains(claim.Finalizers, tenancyv1alpha1.FinalizerPrefixClaim+home) {
		return 0, nil
	}
	if node == nil {
		if left := gonePatience - r.clock.Since(r.pool.LeftSince(home)); left > 0 {
			return left, nil
		}
		there, err := stored()
		if err != nil {
			return 0, err
		}
		if there[home] {
			return heldPeriod, nil // the cache is behind
		}
		return 0, nil
	}
	switch held := r.held.in(ctx, node); {
	case !held.known, held.namespaces.Has(claim.Namespace):
		return heldPeriod, nil
	case held.asked.Before(since):
		return heldPeriod - r.clock.Since(held.asked), nil
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
		"Namespace %s leaves super cluster %s, where the claim has no volume yet: it gets another home", claim.Namespace, home)
	return nil
}
