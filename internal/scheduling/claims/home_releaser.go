package claims

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
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/scheduling/placements"
	"github.com/superpool/superpool/internal/tenancy"
)

// HomeReleaser takes the home off claims without volume whose namespace may have nothing new there, where no syncer
// does it: their pods could run nowhere. A request names a namespace, or with "" all.
//
// That nothing was made for a claim in its home is what the finalizer of the super cluster says, which its syncer
// writes before it makes anything: without it nothing was. With it, the super cluster is asked whether it holds
// anything of the namespace, after that had nothing there any more, and one that has left the pool counts after
// dispatch.GonePatience. Either way the claim is written as it was read: who has made something meanwhile has written
// the finalizer, and who is about to reads the claim again.
type HomeReleaser struct {
	Key      string
	API      kubernetes.Interface
	Claims   corev1listers.PersistentVolumeClaimLister
	Store    *placements.Store
	Pool     virtualNodes
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	Held     *dispatch.HeldNamespaces
	// seen is since when the NamespacePlacements of claims that wait for a super cluster are as they are.
	seen map[string]seenPlacement
}

// seenPlacement is a NamespacePlacement in the version that was first seen at since.
type seenPlacement struct {
	version string
	since   time.Time
}

// MayBeStranded reports whether a claim of the pod view has a home and no volume. One that is to be restored from a
// snapshot can be nowhere else.
func MayBeStranded(claim *corev1.PersistentVolumeClaim) bool {
	return claim.DeletionTimestamp == nil && claim.Spec.VolumeName == "" && claimhome.Of(claim) != "" && claimhome.Snapshot(claim) == ""
}

// Reconcile releases the homes of a request.
func (r *HomeReleaser) Reconcile(ctx context.Context, item dispatch.Request) (reconcile.Result, error) {
	claims, err := r.requested(item)
	if err != nil {
		return reconcile.Result{}, err
	}
	grouped := byNamespace(claims)
	maps.DeleteFunc(r.seen, func(namespace string, _ seenPlacement) bool {
		return (item.Namespace == "" || item.Namespace == namespace) && len(grouped[namespace]) == 0
	})
	var result reconcile.Result
	var errs []error
	for namespace, stranded := range grouped {
		again, err := r.release(ctx, namespace, stranded)
		result.RequeueAfter = dispatch.Sooner(result.RequeueAfter, again)
		errs = append(errs, err)
	}
	return result, errors.Join(errs...)
}

// requested returns the claims of a request that may be stranded.
func (r *HomeReleaser) requested(item dispatch.Request) ([]*corev1.PersistentVolumeClaim, error) {
	all, err := claimsIn(r.Claims, item.Namespace)
	return slices.DeleteFunc(all, func(claim *corev1.PersistentVolumeClaim) bool { return !MayBeStranded(claim) }), err
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
func (r *HomeReleaser) release(ctx context.Context, namespace string, claims []*corev1.PersistentVolumeClaim) (again time.Duration, err error) {
	key := client.ObjectKey{Namespace: r.Key, Name: namespace}
	cached, err := r.Store.Get(ctx, key)
	if err != nil {
		return 0, err
	}
	if claims = slices.DeleteFunc(claims, func(claim *corev1.PersistentVolumeClaim) bool { return !HasLeft(cached, claimhome.Of(claim)) }); len(claims) == 0 {
		delete(r.seen, namespace)
		return 0, nil
	}
	live, err := placements.Read(ctx, r.Store.Live, key)
	if err != nil {
		return 0, err
	}
	since := r.seenSince(namespace, live)
	nodes := r.Pool.VirtualNodes()
	stored := sync.OnceValues(func() (map[string]bool, error) { return storedNodes(ctx, r.Store.Live) })
	var errs []error
	for _, claim := range claims {
		home := claimhome.Of(claim)
		if !HasLeft(live, home) {
			continue // the cache is behind: its change enqueues the namespace
		}
		waits, err := r.waits(ctx, claim, nodes[home], since, stored)
		if again = dispatch.Sooner(again, waits); waits == 0 && err == nil {
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
func (r *HomeReleaser) seenSince(namespace string, np *schedulerv1alpha1.NamespacePlacement) time.Time {
	version := ""
	if np != nil {
		version = string(np.UID) + "/" + np.ResourceVersion
	}
	if known := r.seen[namespace]; known.version != version || known.since.IsZero() {
		if r.seen == nil {
			r.seen = map[string]seenPlacement{}
		}
		r.seen[namespace] = seenPlacement{version, r.Clock.Now()}
	}
	return r.seen[namespace].since
}

// HasLeft reports whether a NamespacePlacement, which may be nil, says that its namespace has nothing in a super
// cluster, or nothing but what leaves. One that is missing, is being deleted or was not decided says nothing.
func HasLeft(np *schedulerv1alpha1.NamespacePlacement, superCluster string) bool {
	return np != nil && np.DeletionTimestamp == nil && placement.IsDecided(np) && !placement.Clusters(np.Status.Placements).Has(superCluster)
}

// waits returns how long a claim is to wait because its home may have something for it, by the virtual Node of that,
// nil if it has left the pool. since is when the namespace had left it, and stored returns the Nodes that there are
// now.
func (r *HomeReleaser) waits(
	ctx context.Context, claim *corev1.PersistentVolumeClaim, node *corev1.Node, since time.Time, stored func() (map[string]bool, error),
) (time.Duration, error) {
	home := claimhome.Of(claim)
	if !slices.Contains(claim.Finalizers, tenancyv1alpha1.FinalizerPrefixClaim+home) {
		return 0, nil
	}
	if node == nil {
		if left := dispatch.GonePatience - r.Clock.Since(r.Pool.LeftSince(home)); left > 0 {
			return left, nil
		}
		there, err := stored()
		if err != nil {
			return 0, err
		}
		if there[home] {
			return dispatch.HeldPeriod, nil // the cache is behind
		}
		return 0, nil
	}
	switch held := r.Held.In(ctx, node); {
	case !held.Known, held.Namespaces.Has(claim.Namespace):
		return dispatch.HeldPeriod, nil
	case held.Asked.Before(since):
		return dispatch.HeldPeriod - r.Clock.Since(held.Asked), nil
	}
	return 0, nil
}

// takeOff takes the home off a claim, and tells its tenant.
func (r *HomeReleaser) takeOff(ctx context.Context, claim *corev1.PersistentVolumeClaim, home string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": claim.UID, "resourceVersion": claim.ResourceVersion,
		"annotations": map[string]any{schedulerv1alpha1.AnnotationSuperCluster: nil},
		"finalizers":  slices.DeleteFunc(slices.Clone(claim.Finalizers), func(finalizer string) bool { return finalizer == tenancyv1alpha1.FinalizerPrefixClaim+home }),
	}})
	if err != nil {
		return fmt.Errorf("encoding claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	_, err = r.API.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err): // the informer says so, too
		return nil
	case err != nil:
		return fmt.Errorf("taking the home off claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	r.Recorder.Eventf(claim, nil, corev1.EventTypeWarning, tenancy.ReasonSuperClusterNotPlaced, "Provision",
		"Namespace %s leaves super cluster %s, where the claim has no volume yet: it gets another home", claim.Namespace, home)
	return nil
}
