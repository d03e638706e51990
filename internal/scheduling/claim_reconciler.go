package scheduling

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	storagev1listers "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/events"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	volumehelper "k8s.io/component-helpers/storage/volume"
	pluginhelper "k8s.io/kubernetes/pkg/scheduler/framework/plugins/helper"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/claimhome"
	"github.com/superpool/superpool/internal/failedchoice"
	"github.com/superpool/superpool/internal/freestorage"
	"github.com/superpool/superpool/internal/slicepod"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/internal/view"
)

// Reasons of Events on claims in tenant control planes.
const (
	// reasonClassNotOffered: no super cluster offers the StorageClass of a claim, so nobody provisions it.
	reasonClassNotOffered = "StorageClassNotOffered"
	// reasonNoHome: a claim is to be provisioned at once, and no super cluster that offers its StorageClass takes it:
	// the claim's namespace holds nothing there, it takes nothing new, or it has not enough free storage.
	reasonNoHome = "NoSuperCluster"
)

// claimsInterval is how long claims without a home wait before they are looked at for a change of what is free of
// storage: each super cluster may say it every few seconds, and all claims of the tenant are read.
const claimsInterval = 5 * time.Second

// homeless reports whether a claim of the pod view has no home, and may get one.
func homeless(claim *corev1.PersistentVolumeClaim) bool {
	return claim.DeletionTimestamp == nil && claim.Spec.VolumeName == "" && claimhome.Of(claim) == ""
}

// homeFor chooses the home of a claim that is to be provisioned at once, and returns "" and why if there is none. One
// that waits for its first consumer gets it from that one's pod scheduler, and is told here only that nobody offers its
// class. beside is how many claims of the namespace each super cluster has.
//
// Chosen is, of the super clusters that offer the class, hold room for pods of the namespace, take new ones, have as
// much free storage as far as they say, and have not failed to make the claim lately (failedchoice), the one with the
// fewest of its claims, then the one with most room, then the first by name.
func homeFor(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, among candidates, beside map[string]int) (string, tenancy.Reason) {
	offering := claimhome.OfferedBy(class)
	if len(offering) == 0 {
		return "", tenancy.Reason{Reason: reasonClassNotOffered, Message: fmt.Sprintf("No super cluster offers StorageClass %s", class.Name)}
	}
	if snapshot := claimhome.Snapshot(claim); snapshot != "" { // the syncer that has the snapshot writes the home
		return "", tenancy.Reason{}
	}
	if ptr.Deref(class.VolumeBindingMode, storagev1.VolumeBindingImmediate) != storagev1.VolumeBindingImmediate {
		return "", tenancy.Reason{}
	}
	open, rooms := among.open(claim, class.Name, offering)
	closed := failedchoice.Of(claim).Closed(open, among.now)
	home := ""
	for _, name := range open {
		fewer, as := beside[name] < beside[home], beside[name] == beside[home]
		if !slices.Contains(closed, name) && (home == "" || fewer || as && rooms[name] > rooms[home]) {
			home = name
		}
	}
	if home == "" {
		return "", tenancy.Reason{Reason: reasonNoHome, Message: fmt.Sprintf(
			"No super cluster that offers StorageClass %s takes the claim: namespace %s holds nothing there, or it takes nothing new, or it has not enough free storage", class.Name, claim.Namespace)}
	}
	return home, tenancy.Reason{}
}

// candidates are the super clusters among which homes are chosen.
type candidates struct {
	// nodes are those of the pod view, sorted by name.
	nodes []*corev1.Node
	// free is what they say of their storage, of StorageClasses for which shows returns true.
	free  map[string]freestorage.Sizes
	shows func(class string) bool
	now   time.Time
}

// open returns which of those that offer the class of a claim can make it, sorted, and how many pods of its namespace
// each has room for.
func (c *candidates) open(claim *corev1.PersistentVolumeClaim, class string, offering []string) (open []string, rooms map[string]int64) {
	rooms = map[string]int64{}
	size := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	for _, node := range c.nodes {
		room := node.Status.Allocatable[slicepod.Resource(corev1.ResourcePods, claim.Namespace)]
		if room.Sign() > 0 && takesClaims(node) && slices.Contains(offering, node.Name) && c.holds(node.Name, class, size.Value()) {
			open, rooms[node.Name] = append(open, node.Name), room.Value()
		}
	}
	return open, rooms
}

// holds reports whether a super cluster has room for a volume, as far as it says.
func (c *candidates) holds(superCluster, class string, size int64) bool {
	return !c.shows(class) || c.free[superCluster].Holds(class, size)
}

// takesClaims reports whether a super cluster takes new claims: those that take new pods without tolerations.
func takesClaims(node *corev1.Node) bool {
	_, tainted := schedulinghelper.FindMatchingUntoleratedTaint(node.Spec.Taints, view.SliceTolerations(), pluginhelper.DoNotScheduleTaintsFilterFunc())
	return !node.Spec.Unschedulable && !tainted
}

// claimReconciler gives claims a home that are to be provisioned before a pod uses them, and tells others that nobody
// can provision them. A request names one claim, or with name "" all that have no home.
type claimReconciler struct {
	key        string
	api        kubernetes.Interface
	claims     corev1listers.PersistentVolumeClaimLister
	classes    storagev1listers.StorageClassLister
	placements client.Reader
	dispatcher *Dispatcher
	recorder   events.EventRecorder
	clock      clock.PassiveClock
	// shows returns whether the tenant's policy shows a StorageClass of super clusters.
	shows func(class string) bool
	// told is what the claims that have no home were told last. The controller has one worker.
	told map[types.NamespacedName]claimTold
}

// claimTold is what one claim was told last.
type claimTold struct {
	uid  types.UID
	text string
}

// Reconcile gives the claims of a request their homes.
func (r *claimReconciler) Reconcile(ctx context.Context, item request) (reconcile.Result, error) {
	claims, err := r.requested(item)
	if err != nil || len(claims) == 0 {
		return reconcile.Result{}, err
	}
	placements := &schedulerv1alpha1.NamespacePlacementList{}
	if err := r.placements.List(ctx, placements, client.InNamespace(r.key)); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing NamespacePlacements: %w", err)
	}
	virtual := r.dispatcher.virtualNodes()
	among := candidates{nodes: view.TenantNodes(virtual, placements.Items), free: storageOf(virtual), shows: r.shows, now: r.clock.Now()}
	var errs []error
	beside := map[string]map[string]int{} // by namespace
	for _, claim := range claims {
		if beside[claim.Namespace] == nil {
			if beside[claim.Namespace], err = r.beside(claim.Namespace); err != nil {
				return reconcile.Result{}, err
			}
		}
		errs = append(errs, r.give(ctx, claim, among, beside[claim.Namespace]))
	}
	return reconcile.Result{}, errors.Join(errs...)
}

// requested returns the claims of a request that have no home. It forgets what others were told.
func (r *claimReconciler) requested(item request) (found []*corev1.PersistentVolumeClaim, err error) {
	if item.name != "" {
		claim, err := r.claims.PersistentVolumeClaims(item.namespace).Get(item.name)
		if apierrors.IsNotFound(err) || err == nil && !homeless(claim) {
			delete(r.told, types.NamespacedName{Namespace: item.namespace, Name: item.name})
			return nil, nil
		}
		return []*corev1.PersistentVolumeClaim{claim}, err //nolint:wrapcheck // a lister fails on NotFound only
	}
	all, err := r.claims.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing claims: %w", err)
	}
	told := map[types.NamespacedName]claimTold{}
	for _, claim := range all {
		if homeless(claim) {
			found = append(found, claim)
			if known, exists := r.told[nameOf(claim)]; exists {
				told[nameOf(claim)] = known
			}
		}
	}
	r.told = told
	return found, nil
}

func nameOf(claim *corev1.PersistentVolumeClaim) types.NamespacedName {
	return types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}
}

// give gives one claim a home, and counts it in beside, or tells its tenant why there is none.
func (r *claimReconciler) give(ctx context.Context, claim *corev1.PersistentVolumeClaim, among candidates, beside map[string]int) error {
	class, err := r.classes.Get(volumehelper.GetPersistentVolumeClaimClass(claim))
	if err != nil {
		return nil //nolint:nilerr // the tenant's own volume controller says so, and its creation enqueues all claims
	}
	home, why := homeFor(claim, class, among, beside)
	if why != (tenancy.Reason{}) {
		r.tell(claim, why)
	}
	if home == "" {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": claim.UID, "resourceVersion": claim.ResourceVersion,
		"annotations": map[string]string{schedulerv1alpha1.AnnotationSuperCluster: home},
	}})
	if err != nil {
		return fmt.Errorf("encoding the home of claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	_, err = r.api.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing the home of claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	beside[home]++
	return nil
}

// beside returns how many claims of a namespace each super cluster has.
func (r *claimReconciler) beside(namespace string) (map[string]int, error) {
	all, err := r.claims.PersistentVolumeClaims(namespace).List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing claims: %w", err)
	}
	counts := map[string]int{}
	for _, claim := range all {
		if home := claimhome.Of(claim); home != "" {
			counts[home]++
		}
	}
	return counts, nil
}

func (r *claimReconciler) tell(claim *corev1.PersistentVolumeClaim, why tenancy.Reason) {
	now := claimTold{uid: claim.UID, text: why.Message}
	if r.told[nameOf(claim)] == now {
		return
	}
	if r.told == nil {
		r.told = map[types.NamespacedName]claimTold{}
	}
	r.told[nameOf(claim)] = now
	r.recorder.Eventf(claim, nil, corev1.EventTypeWarning, why.Reason, "Provision", "%s", why.Message)
}
