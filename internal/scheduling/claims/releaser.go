package claims

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/claimhome"
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/scheduling/tenantevents"
)

// Releaser takes the finalizers of super clusters off claims and VolumeSnapshots that the tenant has deleted for
// dispatch.GonePatience, where no syncer does it, or the tenant's namespaces could not end. There are two kinds of
// these super clusters:
//
//   - Those that have left the pool. What such a one has for them, the operator has with it. That it has left is what
//     eviction.OutOfServiceReconciler goes by: it has no virtual Node, by the cache and by a live read,
//     dispatch.GonePatience after the Node went.
//   - Those of the pool that hold nothing of the tenant, by a live read of their namespaces: their syncers have no
//     session then. So it is where the tenant was restored from a backup that is older than the end of its claims.
//
// Snapshots are read now and then, and not watched: most tenants have none. A request names one claim, or with name ""
// all claims and snapshots.
type Releaser struct {
	API    kubernetes.Interface
	Claims corev1listers.PersistentVolumeClaimLister
	// Snapshots are the tenant's VolumeSnapshots, which were read last at read. Nil: none are.
	Snapshots metadata.Getter
	read      time.Time
	Pool      virtualNodes
	// Meta reads what is stored in the meta cluster now.
	Meta  client.Reader
	Clock clock.PassiveClock
	Held  *dispatch.HeldNamespaces
}

// virtualNodes knows the super clusters of the pool. dispatch.Dispatcher implements it.
type virtualNodes interface {
	// VirtualNodes returns the virtual Nodes by name. The map is the caller's, the Nodes are not.
	VirtualNodes() map[string]*corev1.Node
	// LeftSince returns since when a super cluster without virtual Node has had none, as far as the process can tell.
	LeftSince(superCluster string) time.Time
}

// WitnessesOf returns the super clusters that hold a claim or snapshot which its tenant deletes.
func WitnessesOf(object metav1.Object) (superClusters []string) {
	if object.GetDeletionTimestamp() == nil {
		return nil
	}
	for _, finalizer := range object.GetFinalizers() {
		if superCluster, ours := strings.CutPrefix(finalizer, tenancyv1alpha1.FinalizerPrefixClaim); ours {
			superClusters = append(superClusters, superCluster)
		}
	}
	return superClusters
}

// Reconcile releases the objects of a request.
func (r *Releaser) Reconcile(ctx context.Context, item dispatch.Request) (reconcile.Result, error) {
	if item.Name != "" {
		claim, err := r.Claims.PersistentVolumeClaims(item.Namespace).Get(item.Name)
		if err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		return r.releaseAll(ctx, []metav1.Object{claim}, 0)
	}
	claims, err := claimsIn(r.Claims, "")
	if err != nil {
		return reconcile.Result{}, err
	}
	slices.SortFunc(claims, func(a, b *corev1.PersistentVolumeClaim) int { // a lister has no order
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	var objects []metav1.Object
	for _, claim := range claims {
		objects = append(objects, claim)
	}
	if r.Snapshots == nil {
		return r.releaseAll(ctx, objects, 0)
	}
	if again := snapshotsPeriod - r.Clock.Since(r.read); again > 0 { // each change of a virtual Node asks for all
		return r.releaseAll(ctx, objects, again)
	}
	r.read = r.Clock.Now()
	snapshots, unread := r.deletedSnapshots(ctx)
	result, err := r.releaseAll(ctx, append(objects, snapshots...), snapshotsPeriod)
	return result, errors.Join(err, unread)
}

const (
	// snapshotsPeriod is how often the snapshots of a tenant are read, snapshotsPerPage how many in one request, and
	// snapshotsPages how many requests at most. Of a tenant with more, those after these, by namespace and name,
	// wait until there are fewer.
	snapshotsPeriod                  = 10 * time.Minute
	snapshotsPerPage, snapshotsPages = 500, 20
)

// SnapshotsOf returns the VolumeSnapshots of a tenant, whose control plane need not serve them.
func SnapshotsOf(cfg *rest.Config) (metadata.Getter, error) {
	api, err := metadata.NewForConfig(rest.AddUserAgent(rest.CopyConfig(cfg), tenantevents.ControllerName))
	if err != nil {
		return nil, fmt.Errorf("building a client of VolumeSnapshots: %w", err)
	}
	return api.Resource(schema.GroupVersionResource{Group: claimhome.SnapshotGroup, Version: "v1", Resource: "volumesnapshots"}), nil
}

// deletedSnapshots reads the snapshots that the tenant deletes and that super clusters hold: their metadata, as the
// tenant's type may let the rest be large.
func (r *Releaser) deletedSnapshots(ctx context.Context) (deleted []metav1.Object, err error) {
	options := metav1.ListOptions{Limit: snapshotsPerPage}
	for range snapshotsPages {
		page, err := r.Snapshots.List(ctx, options)
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			return nil, nil // they are not served, or not to vc-scheduler
		}
		if err != nil {
			return deleted, fmt.Errorf("listing VolumeSnapshots: %w", err)
		}
		for i := range page.Items {
			if found := &page.Items[i]; len(WitnessesOf(found)) > 0 {
				// Without the rest, and without the page that it is on.
				deleted = append(deleted, &metav1.ObjectMeta{
					Namespace: strings.Clone(found.GetNamespace()), Name: strings.Clone(found.GetName()), UID: found.GetUID(), ResourceVersion: found.GetResourceVersion(),
					Finalizers: found.GetFinalizers(), DeletionTimestamp: found.GetDeletionTimestamp(),
				})
			}
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			break
		}
	}
	return deleted, nil
}

// releaseAll releases those of objects that nothing holds any more. It asks to be called again after the time that the
// first of the others waits, and after again, if that is not 0.
func (r *Releaser) releaseAll(ctx context.Context, objects []metav1.Object, again time.Duration) (reconcile.Result, error) {
	due := map[metav1.Object][]string{}
	nodes := r.Pool.VirtualNodes()
	someLeft := false
	for _, object := range objects {
		for _, superCluster := range WitnessesOf(object) {
			node := nodes[superCluster]
			if waits := r.waits(ctx, object, superCluster, node); waits > 0 {
				again = dispatch.Sooner(again, waits)
				continue
			}
			due[object] = append(due[object], superCluster)
			someLeft = someLeft || node == nil
		}
	}
	var there map[string]bool
	if someLeft {
		var err error
		if there, err = storedNodes(ctx, r.Meta); err != nil {
			return reconcile.Result{}, err
		}
	}
	var errs []error
	for _, object := range objects {
		free := slices.DeleteFunc(due[object], func(superCluster string) bool { return nodes[superCluster] == nil && there[superCluster] })
		if len(free) > 0 { // else the cache of virtual Nodes is behind, and wakes the claim if one goes after all
			errs = append(errs, r.release(ctx, object, free))
		}
	}
	return reconcile.Result{RequeueAfter: again}, errors.Join(errs...)
}

// waits returns how long an object is to wait for a super cluster, by its virtual Node, nil if it has left the pool,
// before it is looked at again, 0 if nothing holds it there.
func (r *Releaser) waits(ctx context.Context, object metav1.Object, superCluster string, node *corev1.Node) time.Duration {
	since := object.GetDeletionTimestamp().Time
	if node == nil {
		if left := r.Pool.LeftSince(superCluster); since.Before(left) {
			since = left
		}
	}
	if waits := dispatch.GonePatience - r.Clock.Since(since); waits > 0 {
		return waits
	}
	if node != nil {
		if held := r.Held.In(ctx, node); !held.Known || held.Namespaces.Len() > 0 { // an answer is younger than dispatch.GonePatience
			return dispatch.GonePatience
		}
	}
	return 0
}

// storedNodes returns the names of the Nodes that the meta cluster has now. It is one list for all that tenants name.
func storedNodes(ctx context.Context, meta client.Reader) (map[string]bool, error) {
	var live corev1.NodeList
	if err := meta.List(ctx, &live); err != nil {
		return nil, fmt.Errorf("listing virtual Nodes: %w", err)
	}
	there := map[string]bool{}
	for i := range live.Items {
		there[live.Items[i].Name] = true
	}
	return there, nil
}

// release takes the finalizers of super clusters off an object that have nothing for it.
func (r *Releaser) release(ctx context.Context, object metav1.Object, free []string) error {
	namespace, name := object.GetNamespace(), object.GetName()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": object.GetUID(), "resourceVersion": object.GetResourceVersion(),
		"finalizers": slices.DeleteFunc(slices.Clone(object.GetFinalizers()), func(finalizer string) bool {
			superCluster, ours := strings.CutPrefix(finalizer, tenancyv1alpha1.FinalizerPrefixClaim)
			return ours && slices.Contains(free, superCluster)
		}),
	}})
	if err != nil {
		return fmt.Errorf("encoding the finalizers of %s/%s: %w", namespace, name, err)
	}
	if _, isClaim := object.(*corev1.PersistentVolumeClaim); isClaim {
		_, err = r.API.CoreV1().PersistentVolumeClaims(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	} else {
		_, err = r.Snapshots.Namespace(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the finalizers of %s/%s: %w", namespace, name, err)
	}
	klog.FromContext(ctx).Info("Released an object of the tenant for which its super clusters have nothing", "object", klog.KRef(namespace, name), "superClusters", free)
	return nil
}
