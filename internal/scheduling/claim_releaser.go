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

// claimReleaser takes the finalizers of super clusters that have left the pool off claims that the tenant deletes: no
// syncer does it any more, and the tenant's namespaces could not end. What such a super cluster has for a claim, the
// operator has with it. That it has left is what outOfServiceReconciler goes by: it has no virtual Node, by the cache
// and by a live read, gonePatience after the tenant deleted the claim and after the Node went. A request names one
// claim, or with name "" all.
type claimReleaser struct {
	api        kubernetes.Interface
	claims     corev1listers.PersistentVolumeClaimLister
	dispatcher *Dispatcher
	// meta reads what is stored in the meta cluster now.
	meta  client.Reader
	clock clock.PassiveClock
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
	for _, claim := range claims {
		left := slices.DeleteFunc(witnessesOf(claim), func(superCluster string) bool {
			if nodes[superCluster] != nil {
				return true
			}
			since := r.dispatcher.leftSince(superCluster)
			if since.Before(claim.DeletionTimestamp.Time) {
				since = claim.DeletionTimestamp.Time
			}
			waits := gonePatience - r.clock.Since(since)
			if waits > 0 {
				again = sooner(again, waits)
			}
			return waits > 0
		})
		if len(left) > 0 {
			due[claim] = left
		}
	}
	if len(due) == 0 {
		return reconcile.Result{RequeueAfter: again}, nil
	}
	// One list for all: which names the finalizers have is the tenant's to write.
	var live corev1.NodeList
	if err := r.meta.List(ctx, &live); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing virtual Nodes: %w", err)
	}
	there := map[string]bool{}
	for i := range live.Items {
		there[live.Items[i].Name] = true
	}
	var errs []error
	for claim, left := range due {
		gone := slices.DeleteFunc(left, func(superCluster string) bool { return there[superCluster] })
		if len(gone) > 0 { // else the cache of virtual Nodes is behind, and wakes the claim if one goes after all
			errs = append(errs, r.release(ctx, claim, gone))
		}
	}
	return reconcile.Result{RequeueAfter: again}, errors.Join(errs...)
}

// release takes the finalizers of super clusters that are gone off a claim.
func (r *claimReleaser) release(ctx context.Context, claim *corev1.PersistentVolumeClaim, gone []string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": claim.UID, "resourceVersion": claim.ResourceVersion,
		"finalizers": slices.DeleteFunc(slices.Clone(claim.Finalizers), func(finalizer string) bool {
			superCluster, ours := strings.CutPrefix(finalizer, tenancyv1alpha1.FinalizerPrefixClaim)
			return ours && slices.Contains(gone, superCluster)
		}),
	}})
	if err != nil {
		return fmt.Errorf("encoding the finalizers of claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	_, err = r.api.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the finalizers of claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	klog.FromContext(ctx).Info("Released a claim of the tenant whose super cluster is gone", "claim", klog.KObj(claim), "superClusters", gone)
	return nil
}
