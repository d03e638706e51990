// Package grants lets the syncer of each super cluster read the kubeconfigs of those tenants that it serves, and no
// others, and vc-manager work in the namespaces of tenants, and in no others.
package grants

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/internal/tenants"
	"github.com/superpool/superpool/internal/virtualclusters"
)

const (
	controllerName = "grants"
	// namePrefix is that of the Role and the RoleBinding of a VirtualCluster, before its name.
	namePrefix = "superpool:kubeconfig:"
	// accountPrefix is that of a syncer's service account, before the id of its super cluster (manifests/syncer).
	accountPrefix = "vc-syncer-"
	// linger is how long a syncer may still read the kubeconfig of a tenant whose last placement there has gone: it
	// has to remove what it wrote in the tenant's control plane, also after a restart.
	linger = 10 * time.Minute
	// checkPeriod is after how long a grant is written again, whatever became of it.
	checkPeriod = 10 * time.Minute
	// rootPeriod is after how long a root namespace is looked at again that is not the VirtualCluster's, and twice as long
	// each time, up to checkPeriod.
	rootPeriod = 10 * time.Second
)

// Controller keeps, beside the kubeconfig Secret of each VirtualCluster, a Role to read it and a RoleBinding to the
// service accounts of the syncers in whose super clusters the tenant has a placement. It also keeps what vc-manager may
// do for the VirtualCluster (ofManager).
type Controller struct {
	// Client reads VirtualClusters and NamespacePlacements from the cache of a manager, and writes.
	Client client.Client
	// Reader reads RoleBindings, of which no cache is kept.
	Reader client.Reader
	// SyncerNamespace is the namespace of the syncers' service accounts.
	SyncerNamespace string
	// Clock tells the time.
	Clock clock.PassiveClock

	mu      sync.Mutex
	granted map[types.NamespacedName]*grant // of VirtualClusters
}

// grant is what this process wrote last for one VirtualCluster.
type grant struct {
	uid     types.UID // of the VirtualCluster
	objects []byte
	written time.Time
	// isWhole is whether that includes what is for the root namespace, and rootWait after how long that was to be looked at
	// again last, 0 for not.
	isWhole  bool
	rootWait time.Duration
	// until is when the grant of a super cluster without placement ends.
	until map[string]time.Time
}

// SetupWithManager adds the controller to mgr. It runs on the leader.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named(controllerName).
		For(&tenancyv1alpha1.VirtualCluster{}).
		Watches(&schedulerv1alpha1.NamespacePlacement{}, handler.EnqueueRequestsFromMapFunc(c.ofPlacement)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}).
		Complete(c)
	if err != nil {
		return fmt.Errorf("building the controller of grants: %w", err)
	}
	return nil
}

// ofPlacement returns the VirtualCluster of a NamespacePlacement.
func (c *Controller) ofPlacement(ctx context.Context, np client.Object) []reconcile.Request {
	return tenants.OfRoot(ctx, c.Client, np.GetNamespace())
}

// Reconcile writes the grants of one VirtualCluster where they have changed. Owner references delete them with it.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	vc := &tenancyv1alpha1.VirtualCluster{}
	if err := c.Client.Get(ctx, request.NamespacedName, vc); err != nil {
		if apierrors.IsNotFound(err) {
			c.forget(request.NamespacedName)
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("getting the VirtualCluster: %w", err)
	}
	secret, _ := tenants.SecretOf(vc)
	if vc.Status.ClusterNamespace == "" || secret.Namespace == "" {
		return reconcile.Result{}, nil // the write of status.clusterNamespace is an event
	}
	placed, err := c.placed(ctx, vc.Status.ClusterNamespace)
	if err != nil {
		return reconcile.Result{}, err
	}
	now := c.Clock.Now()
	held := c.held(vc)
	if held.until == nil {
		// Another process may have granted more, which its successor takes back no sooner.
		if err := c.adopt(ctx, held, vc, secret, now); err != nil {
			return reconcile.Result{}, err
		}
	}
	clusters, again := held.clusters(placed, now)
	objects := append(desired(vc, secret, c.SyncerNamespace, clusters), ofManager(vc)...)
	encoded, err := json.Marshal(objects)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("encoding a grant: %w", err)
	}
	isDue := string(encoded) != string(held.objects) || now.Sub(held.written) >= checkPeriod
	if !isDue && held.isWhole {
		return reconcile.Result{RequeueAfter: min(again, checkPeriod)}, nil
	}
	if isDue {
		held.objects = nil // until all of it is written
	}
	isWhole, err := c.write(ctx, vc, objects, isDue)
	if err != nil {
		return reconcile.Result{}, err
	}
	if isDue {
		klog.FromContext(ctx).V(2).Info("Granted the tenant's kubeconfig", "virtualCluster", request.NamespacedName, "superClusters", clusters)
		held.objects, held.written = encoded, now
	}
	return reconcile.Result{RequeueAfter: min(again, held.looksAgain(isWhole))}, nil
}

// looksAgain notes whether what is for the root namespace was written, and returns after how long that is looked at again.
func (g *grant) looksAgain(isWhole bool) time.Duration {
	g.isWhole = isWhole
	if isWhole {
		g.rootWait = 0
		return checkPeriod
	}
	g.rootWait = min(max(rootPeriod, 2*g.rootWait), checkPeriod)
	return g.rootWait
}

// write applies the objects of a grant, whatever becomes of each, and returns whether it applied them all: none in a
// root namespace that is not the VirtualCluster's own. Whoever writes status names it, and vc-manager does. What
// is elsewhere is applied only if isDue: it was before.
func (c *Controller) write(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster, objects []client.Object, isDue bool) (isWhole bool, err error) {
	why, err := virtualclusters.CheckRoot(ctx, c.Reader, vc)
	isWhole = why == (tenancy.Reason{}) && err == nil
	errs := []error{err}
	for _, object := range objects {
		if inRoot := object.GetNamespace() == vc.Status.ClusterNamespace; inRoot && !isWhole || !inRoot && !isDue {
			continue
		}
		if err := c.Client.Patch(ctx, object, client.Apply, client.FieldOwner("vc-scheduler"), client.ForceOwnership); err != nil { //nolint:staticcheck // Apply takes configurations, which are other types than those that are read
			errs = append(errs, fmt.Errorf("granting by %s %s: %w", object.GetObjectKind().GroupVersionKind().Kind, client.ObjectKeyFromObject(object), err))
		}
	}
	return isWhole, errors.Join(errs...)
}

// placed returns the super clusters in which a tenant has placements.
func (c *Controller) placed(ctx context.Context, key string) ([]string, error) {
	var list schedulerv1alpha1.NamespacePlacementList
	if err := c.Client.List(ctx, &list, client.InNamespace(key), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing placements: %w", err)
	}
	var clusters []string
	for i := range list.Items {
		for j := range list.Items[i].Status.Placements {
			clusters = append(clusters, list.Items[i].Status.Placements[j].Cluster)
		}
	}
	slices.Sort(clusters)
	return slices.Compact(clusters), nil
}

// adopt fills held.until with the super clusters of a RoleBinding that is there.
func (c *Controller) adopt(ctx context.Context, held *grant, vc *tenancyv1alpha1.VirtualCluster, secret types.NamespacedName, now time.Time) error {
	binding := &rbacv1.RoleBinding{}
	err := c.Reader.Get(ctx, types.NamespacedName{Namespace: secret.Namespace, Name: namePrefix + vc.Name}, binding)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading a grant: %w", err)
	}
	held.until = map[string]time.Time{}
	for _, subject := range binding.Subjects {
		if id, ours := strings.CutPrefix(subject.Name, accountPrefix); ours && subject.Kind == rbacv1.ServiceAccountKind && subject.Namespace == c.SyncerNamespace {
			held.until[id] = now.Add(linger)
		}
	}
	return nil
}

// held returns what is known of a VirtualCluster's grants. One VirtualCluster is reconciled by one worker at a time.
func (c *Controller) held(vc *tenancyv1alpha1.VirtualCluster) *grant {
	name := client.ObjectKeyFromObject(vc)
	c.mu.Lock()
	defer c.mu.Unlock()
	if current := c.granted[name]; current != nil && current.uid == vc.UID {
		return current
	}
	if c.granted == nil {
		c.granted = map[types.NamespacedName]*grant{}
	}
	c.granted[name] = &grant{uid: vc.UID}
	return c.granted[name]
}

func (c *Controller) forget(virtualCluster types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.granted, virtualCluster)
}

// clusters returns the super clusters whose syncers may read the kubeconfig, sorted: those with placements, and those
// that had some within linger. again is when the first of these ends.
func (g *grant) clusters(placed []string, now time.Time) (all []string, again time.Duration) {
	for _, id := range placed {
		g.until[id] = now.Add(linger)
	}
	again = checkPeriod
	for id, until := range g.until {
		left := until.Sub(now)
		if left <= 0 {
			delete(g.until, id)
			continue
		}
		again = min(again, left)
		all = append(all, id)
	}
	slices.Sort(all)
	return all, again
}

// desired returns the Role and the RoleBinding of a VirtualCluster, with which the syncers of clusters get its
// kubeconfig Secret.
func desired(vc *tenancyv1alpha1.VirtualCluster, secret types.NamespacedName, syncerNamespace string, clusters []string) []client.Object {
	subjects := make([]rbacv1.Subject, 0, len(clusters))
	for _, id := range clusters {
		subjects = append(subjects, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: syncerNamespace, Name: accountPrefix + id})
	}
	name := namePrefix + vc.Name
	return []client.Object{
		reader(vc, secret.Namespace, name, secret.Name),
		binding(vc, secret.Namespace, name, "Role", name, subjects),
	}
}

// reader returns a Role of a VirtualCluster to get Secrets by name.
func reader(vc *tenancyv1alpha1.VirtualCluster, namespace, name string, secrets ...string) client.Object {
	return &rbacv1.Role{
		TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "Role"}, ObjectMeta: metaOf(vc, namespace, name),
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{corev1.GroupName}, Resources: []string{"secrets"}, ResourceNames: secrets, Verbs: []string{"get"}}},
	}
}

// binding returns a RoleBinding of a VirtualCluster to a Role or ClusterRole.
func binding(vc *tenancyv1alpha1.VirtualCluster, namespace, name, kind, role string, subjects []rbacv1.Subject) client.Object {
	return &rbacv1.RoleBinding{
		TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"}, ObjectMeta: metaOf(vc, namespace, name),
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role},
		Subjects: subjects,
	}
}

// metaOf returns the metadata of an object that ends with a VirtualCluster.
func metaOf(vc *tenancyv1alpha1.VirtualCluster, namespace, name string) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app.kubernetes.io/part-of": "superpool"}}
	if vc.Namespace == namespace { // else the root namespace goes, and all in it
		meta.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: tenancyv1alpha1.GroupVersion.String(), Kind: "VirtualCluster", Name: vc.Name, UID: vc.UID, Controller: ptr.To(true),
		}}
	}
	return meta
}
