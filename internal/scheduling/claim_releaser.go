package scheduling

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// claimReleaser takes the finalizers of super clusters off claims that the tenant has deleted for gonePatience, where no
// syncer does it, or the tenant's namespaces could not end. There are two kinds of these super clusters:
//
//   - Those that have left the pool. What such a one has for a claim, the operator has with it. That it has left is what
//     outOfServiceReconciler goes by: it has no virtual Node, by the cache and by a live read, gonePatience after the
//     Node went.
//   - Those of the pool that hold nothing of the tenant, by a live read of their namespaces: their syncers have no
//     session then. So it is where the tenant was restored from a backup that is older than the end of its claims.
//
// A request names one claim, or with name "" all.
type claimReleaser struct {
	api        kubernetes.Interface
	claims     corev1listers.PersistentVolumeClaimLister
	dispatcher *Dispatcher
	// meta reads what is stored in the meta cluster now.
	meta  client.Reader
	clock clock.PassiveClock
	// holds reads live whether a super cluster of the pool holds super namespaces of the tenant. An error says that it
	// may; nil: each may.
	holds func(ctx context.Context, superCluster string) (bool, error)
	// asked is what super clusters of the pool said last. How many claims name them is the tenant's to write.
	asked map[string]heldAnswer
}

// heldAnswer is whether a super cluster may have held anything of the tenant at a time.
type heldAnswer struct {
	holds bool
	at    time.Time
}

// heldPeriod is for how long an answer of a super cluster counts. It is shorter than gonePatience, so that what counts
// is of after the deletion of the claim.
const heldPeriod = time.Minute

// mayHold returns whether a super cluster of the pool may hold anything of the tenant.
func (r *claimReleaser) mayHold(ctx context.Context, superCluster string) bool {
	now := r.clock.Now()
	if last, known := r.asked[superCluster]; known && now.Sub(last.at) < heldPeriod {
		return last.holds
	}
	holds, err := r.holds(ctx, superCluster)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("A super cluster does not say what it holds of the tenant", "superCluster", superCluster, "err", err)
	}
	if r.asked == nil {
		r.asked = map[string]heldAnswer{}
	}
	r.asked[superCluster] = heldAnswer{holds || err != nil, now}
	return holds || err != nil
}

// witnessesOf returns the super clusters that hold a claim which its tenant deletes.
func witnessesOf(claim *corev1.PersistentVolumeClaim) (superClusters []string) {
	if claim.DeletionTimestamp == nil {
		return nil
	}
	for _, finalizer := range claim.Finalizers {
		if superCluster, ours := strings.CutPrefix(finalizer, tenancyv1alpha1.FinalizerPrefixClaim); ours {
			superClusters = append(superClusters, superCluster)
		}
	}
	return superClusters
}

// Reconcile releases the claims of a request.
func (r *claimReleaser) Reconcile(ctx context.Context, item request) (reconcile.Result, error) {
	var claims []*corev1.PersistentVolumeClaim
	var err error
	if item.name == "" {
		claims, err = r.claims.List(labels.Everything())
	} else {
		var claim *corev1.PersistentVolumeClaim
		if claim, err = r.claims.PersistentVolumeClaims(item.namespace).Get(item.name); err == nil {
			claims = append(claims, claim)
		}
	}
	if err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	var again time.Duration
	due := map[*corev1.PersistentVolumeClaim][]string{}
	nodes := r.dispatcher.virtualNodes()
	left := false
	for _, claim := range claims {
		for _, superCluster := range witnessesOf(claim) {
			member := nodes[superCluster] != nil
			if waits := r.waits(ctx, claim, superCluster, member); waits > 0 {
				again = sooner(again, waits)
				continue
			}
			due[claim] = append(due[claim], superCluster)
			left = left || !member
		}
	}
	there, err := r.stored(ctx, left)
	if err != nil {
		return reconcile.Result{}, err
	}
	var errs []error
	for claim, superClusters := range due {
		free := slices.DeleteFunc(superClusters, func(superCluster string) bool { return nodes[superCluster] == nil && there[superCluster] })
		if len(free) > 0 { // else the cache of virtual Nodes is behind, and wakes the claim if one goes after all
			errs = append(errs, r.release(ctx, claim, free))
		}
	}
	return reconcile.Result{RequeueAfter: again}, errors.Join(errs...)
}

// waits returns how long a claim is to wait for a super cluster, a member of the pool or not, before it is looked at
// again, 0 if nothing holds it there.
func (r *claimReleaser) waits(ctx context.Context, claim *corev1.PersistentVolumeClaim, superCluster string, member bool) time.Duration {
	since := claim.DeletionTimestamp.Time
	if !member {
		if left := r.dispatcher.leftSince(superCluster); since.Before(left) {
			since = left
		}
	}
	if waits := gonePatience - r.clock.Since(since); waits > 0 {
		return waits
	}
	if member && (r.holds == nil || r.mayHold(ctx, superCluster)) {
		return gonePatience
	}
	return 0
}

// stored returns the names of the Nodes that the meta cluster has now, nil unless they are needed.
func (r *claimReleaser) stored(ctx context.Context, needed bool) (map[string]bool, error) {
	if !needed {
		return nil, nil
	}
	// One list for all: which names the finalizers have is the tenant's to write.
	var live corev1.NodeList
	if err := r.meta.List(ctx, &live); err != nil {
		return nil, fmt.Errorf("listing virtual Nodes: %w", err)
	}
	there := map[string]bool{}
	for i := range live.Items {
		there[live.Items[i].Name] = true
	}
	return there, nil
}

// release takes the finalizers of super clusters off a claim that have nothing for it.
func (r *claimReleaser) release(ctx context.Context, claim *corev1.PersistentVolumeClaim, free []string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": claim.UID, "resourceVersion": claim.ResourceVersion,
		"finalizers": slices.DeleteFunc(slices.Clone(claim.Finalizers), func(finalizer string) bool {
			superCluster, ours := strings.CutPrefix(finalizer, tenancyv1alpha1.FinalizerPrefixClaim)
			return ours && slices.Contains(free, superCluster)
		}),
	}})
	if err != nil {
		return fmt.Errorf("encoding the finalizers of claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	_, err = r.api.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the finalizers of claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	klog.FromContext(ctx).Info("Released a claim of the tenant for which its super cluster has nothing", "claim", klog.KObj(claim), "superClusters", free)
	return nil
}
