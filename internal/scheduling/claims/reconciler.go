// Package claims gives tenants' claims a super cluster as their home, and lets claims go that no super cluster holds
// any more.
package claims

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
	volumehelper "k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/claimhome"
	"github.com/superpool/superpool/internal/failedchoice"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/slicepod"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/internal/view"
)

// Reasons of Events on claims in tenant control planes.
const (
	// reasonClassNotOffered: no super cluster offers the StorageClass of a claim, so nobody provisions it.
	reasonClassNotOffered = "StorageClassNotOffered"
	// reasonNoHome: a claim is to be provisioned at once, and no super cluster that offers its StorageClass takes it:
	// the claim's namespace holds nothing there, or it takes nothing new.
	reasonNoHome = "NoSuperCluster"
	// reasonNoStorage: a claim is to be provisioned at once, and the storage that the claim's namespace holds in one
	// super cluster has no room for it, where it could be. The message says whether it would have without other claims.
	reasonNoStorage = "TooLittleStorage"
)

// claimsBeside is what the claims of one namespace are that have a home, by super cluster.
type claimsBeside struct {
	// count is how many there are, and bytes what they take together, at most slice.MaxAmount.
	count map[string]int
	bytes map[string]int64
}

// add counts a claim in its home.
func (b *claimsBeside) add(claim *corev1.PersistentVolumeClaim, home string) {
	b.count[home]++
	b.bytes[home] = min(b.bytes[home]+slice.Size(claim), slice.MaxAmount)
}

// Homeless reports whether a claim of the pod view has no home, and may get one.
func Homeless(claim *corev1.PersistentVolumeClaim) bool {
	return claim.DeletionTimestamp == nil && claim.Spec.VolumeName == "" && claimhome.Of(claim) == ""
}

// HomeRequest returns the request for the home of a homeless claim. Where it had one, there is room for others now.
func HomeRequest(claim *corev1.PersistentVolumeClaim) dispatch.Request {
	if len(failedchoice.Of(claim)) > 0 {
		return dispatch.Request{Concern: dispatch.ConcernClaim, Namespace: claim.Namespace}
	}
	return dispatch.Request{Concern: dispatch.ConcernClaim, Namespace: claim.Namespace, Name: claim.Name}
}

// homeFor chooses the home of a claim that is to be provisioned at once, and returns "" and why if there is none. One
// that waits for its first consumer gets it from that one's pod scheduler, and is told here only that nobody offers its
// class. beside is what other claims of the namespace are in super clusters.
//
// Chosen is, of the super clusters that offer the class, hold room for pods of the namespace and storage for the claim,
// if its quota names storage, take new pods, and have not failed to make the claim lately (failedchoice), the one with
// the fewest of its claims, then the one with most room for pods, then the first by name.
func homeFor(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, among candidates, beside *claimsBeside) (string, tenancy.Reason) {
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
	open, rooms, storage := among.open(claim, offering, beside)
	closed := failedchoice.Of(claim).Closed(open, among.now)
	home := ""
	for _, name := range open {
		fewer, as := beside.count[name] < beside.count[home], beside.count[name] == beside.count[home]
		if !slices.Contains(closed, name) && (home == "" || fewer || as && rooms[name] > rooms[home]) {
			home = name
		}
	}
	switch {
	case home != "":
		return home, tenancy.Reason{}
	case storage >= 0:
		return "", tooLittleStorage(claim, storage)
	}
	return "", tenancy.Reason{Reason: reasonNoHome, Message: fmt.Sprintf(
		"No super cluster that offers StorageClass %s takes the claim: namespace %s holds nothing there, or it takes nothing new", class.Name, claim.Namespace)}
}

// lacksStorage reports whether a super cluster has no room for a claim in what its namespace holds there of storage,
// and how much that is. Where the namespace's quota names none it has any room.
func lacksStorage(claim *corev1.PersistentVolumeClaim, node *corev1.Node, beside *claimsBeside) (held int64, short bool) {
	held, isNamed := slicepod.Storage(node, claim.Namespace)
	return held, isNamed && slice.Size(claim) > held-beside.bytes[node.Name]
}

// tooLittleStorage returns why no super cluster takes a claim for its size. most is what the namespace holds in one of
// them.
func tooLittleStorage(claim *corev1.PersistentVolumeClaim, most int64) tenancy.Reason {
	d, size := slice.DimensionOf(corev1.ResourceStorage), slice.Size(claim)
	why := ", and its claims leave too little of that"
	if size > most {
		why = "; " + slicepod.LargerStorage
	}
	return tenancy.Reason{Reason: reasonNoStorage, Message: fmt.Sprintf(
		"No super cluster takes the claim, which requests %s: namespace %s holds at most %s of storage in one of those where it could be%s",
		d.Quantity(size), claim.Namespace, d.Quantity(most), why)}
}

// candidates are the super clusters among which homes are chosen.
type candidates struct {
	// nodes are those of the pod view, sorted by name.
	nodes []*corev1.Node
	now   time.Time
}

// open returns which of those that offer the class of a claim can make it, sorted, and how many pods of its namespace
// each has room for. storage is the most that the namespace holds of it in one where nothing else is lacking, -1 if
// there is none.
func (c *candidates) open(claim *corev1.PersistentVolumeClaim, offering []string, beside *claimsBeside) (open []string, rooms map[string]int64, storage int64) {
	rooms, storage = map[string]int64{}, -1
	for _, node := range c.nodes {
		room := slicepod.Pods(node, claim.Namespace)
		if room <= 0 || !takesClaims(node) || !slices.Contains(offering, node.Name) {
			continue
		}
		if held, short := lacksStorage(claim, node, beside); short {
			storage = max(storage, held)
			continue
		}
		open, rooms[node.Name] = append(open, node.Name), room
	}
	return open, rooms, storage
}

// takesClaims reports whether a super cluster takes new claims: those that take new pods without tolerations.
func takesClaims(node *corev1.Node) bool {
	_, tainted := placement.Untolerated(node.Spec.Taints, view.SliceTolerations())
	return !node.Spec.Unschedulable && !tainted
}

// Reconciler gives claims a home that are to be provisioned before a pod uses them, and tells others that nobody
// can provision them. A request names one claim, or with name "" all that have no home, of a namespace or of all.
type Reconciler struct {
	Key        string
	API        kubernetes.Interface
	Claims     corev1listers.PersistentVolumeClaimLister
	Classes    storagev1listers.StorageClassLister
	Placements client.Reader
	// VirtualNodes returns the virtual Nodes by name. The map is not changed.
	VirtualNodes func() map[string]*corev1.Node
	Recorder     events.EventRecorder
	Clock        clock.PassiveClock
	// told is what the claims that have no home were told last. The controller has one worker.
	told map[types.NamespacedName]claimTold
}

// claimTold is what one claim was told last.
type claimTold struct {
	uid  types.UID
	text string
}

// Reconcile gives the claims of a request their homes.
func (r *Reconciler) Reconcile(ctx context.Context, item dispatch.Request) (reconcile.Result, error) {
	claims, err := r.requested(item)
	if err != nil || len(claims) == 0 {
		return reconcile.Result{}, err
	}
	placements := &schedulerv1alpha1.NamespacePlacementList{}
	if err := r.Placements.List(ctx, placements, client.InNamespace(r.Key)); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing NamespacePlacements: %w", err)
	}
	virtual := r.VirtualNodes()
	among := candidates{nodes: view.TenantNodes(virtual, placements.Items), now: r.Clock.Now()}
	var errs []error
	beside := map[string]*claimsBeside{} // by namespace
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
func (r *Reconciler) requested(item dispatch.Request) (found []*corev1.PersistentVolumeClaim, err error) {
	if item.Name != "" {
		claim, err := r.Claims.PersistentVolumeClaims(item.Namespace).Get(item.Name)
		if apierrors.IsNotFound(err) || err == nil && !Homeless(claim) {
			delete(r.told, types.NamespacedName{Namespace: item.Namespace, Name: item.Name})
			return nil, nil
		}
		return []*corev1.PersistentVolumeClaim{claim}, err //nolint:wrapcheck // a lister fails on NotFound only
	}
	all, err := claimsIn(r.Claims, item.Namespace)
	if err != nil {
		return nil, err
	}
	if item.Namespace != "" {
		return slices.DeleteFunc(all, func(claim *corev1.PersistentVolumeClaim) bool { return !Homeless(claim) }), nil
	}
	told := map[types.NamespacedName]claimTold{}
	for _, claim := range all {
		if Homeless(claim) {
			found = append(found, claim)
			if known, exists := r.told[nameOf(claim)]; exists {
				told[nameOf(claim)] = known
			}
		}
	}
	r.told = told
	return found, nil
}

// claimsIn returns the claims of a namespace, or with "" all, in no order.
func claimsIn(claims corev1listers.PersistentVolumeClaimLister, namespace string) ([]*corev1.PersistentVolumeClaim, error) {
	list := claims.List
	if namespace != "" {
		list = claims.PersistentVolumeClaims(namespace).List
	}
	found, err := list(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing claims: %w", err)
	}
	return found, nil
}

func nameOf(claim *corev1.PersistentVolumeClaim) types.NamespacedName {
	return types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}
}

// give gives one claim a home, and counts it in beside, or tells its tenant why there is none.
func (r *Reconciler) give(ctx context.Context, claim *corev1.PersistentVolumeClaim, among candidates, beside *claimsBeside) error {
	class, err := r.Classes.Get(volumehelper.GetPersistentVolumeClaimClass(claim))
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
	_, err = r.API.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing the home of claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	beside.add(claim, home)
	return nil
}

// beside returns what claims of a namespace have a home.
func (r *Reconciler) beside(namespace string) (*claimsBeside, error) {
	all, err := claimsIn(r.Claims, namespace)
	if err != nil {
		return nil, err
	}
	found := &claimsBeside{count: map[string]int{}, bytes: map[string]int64{}}
	for _, claim := range all {
		if home := claimhome.Of(claim); home != "" {
			found.add(claim, home)
		}
	}
	return found, nil
}

func (r *Reconciler) tell(claim *corev1.PersistentVolumeClaim, why tenancy.Reason) {
	now := claimTold{uid: claim.UID, text: why.Message}
	if r.told[nameOf(claim)] == now {
		return
	}
	if r.told == nil {
		r.told = map[types.NamespacedName]claimTold{}
	}
	r.told[nameOf(claim)] = now
	r.Recorder.Eventf(claim, nil, corev1.EventTypeWarning, why.Reason, "Provision", "%s", why.Message)
}
