package tenants

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/identities"
	"github.com/superpool/superpool/internal/kubeconfig"
	"github.com/superpool/superpool/internal/skew"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/internal/tenantclient"
	"github.com/superpool/superpool/internal/virtualclusters"
)

const (
	controllerName    = "tenants"
	concurrentTenants = 8
	defaultDomain     = "cluster.local"
	// grantRetryAfter is after how long a kubeconfig is read again that the process may not read yet.
	grantRetryAfter = time.Second
)

// Controller runs Engage for every VirtualCluster whose control plane answers.
//
// An instance of work is known by the VirtualCluster's UID, its kubeconfig and the fields that Tenant carries. When one
// of them changes, the old instance is cancelled and its end awaited before the new one starts. A tenant that does not
// answer delays no other. A change of the tenant's TenantPolicy, or of its name, changes what Tenant.Policy holds, and
// restarts nothing, and so does a pause. There is no work for a tenant that is paused and holds nothing any more.
type Controller struct {
	// Client reads VirtualClusters and TenantPolicies. It is the client of the manager, whose cache SetupWithManager
	// gives indexes.
	Client client.Client
	// Reader reads Secrets and what must be up to date. Nil: the manager's uncached reader, so that no process holds
	// all Secrets.
	Reader client.Reader
	// Lifecycle owns VirtualClusters, or waits for their owner.
	Lifecycle Lifecycle
	// Engage is the work of one tenant.
	Engage Engage
	// Serves returns whether this process works on a tenant, by its cluster key, and after how long to ask again
	// besides each change of its NamespacePlacements, 0 for never. The process may read the kubeconfigs of those
	// tenants alone, and no metadata of Secrets: it learns from the status of a VirtualCluster, which the owner writes,
	// when to read them again. Nil: it works on all, and watches Secrets.
	Serves func(ctx context.Context, key string) (serves bool, again time.Duration, err error)

	// Version asks for the version of Kubernetes of a control plane, each time that it is asked whether it answers:
	// AskVersion in the process that owns VirtualClusters. Nil: nobody asks.
	Version func(ctx context.Context, config *rest.Config) (skew.Version, error)

	// Has returns whether a tenant is in the shard that this process works on, by the UID of its VirtualCluster, always
	// the same. Nil: all are.
	Has func(tenant types.UID) bool

	// Standby is whether the controller runs on every replica although one of them leads: Engage then reads, and what
	// it writes waits until the process leads. Its Lifecycle writes nothing.
	Standby bool

	// HealthPeriod is how often a control plane is asked whether it answers, and whether it is still the same; 0 means
	// 30 seconds.
	HealthPeriod time.Duration

	// identities tells whose a control plane is; nil before SetupWithManager.
	identities *identities.Registry
	probe      func(context.Context, *rest.Config) (types.UID, string, error)
	policies   policies
	supervisor engage.Supervisor[*connection]
}

func (c *Controller) setDefaults() {
	if c.Reader == nil {
		c.Reader = c.Client
	}
	if c.probe == nil {
		c.probe = probe
	}
	if c.HealthPeriod == 0 {
		c.HealthPeriod = healthPeriod
	}
	c.supervisor.Kind, c.supervisor.HealthPeriod, c.supervisor.LongestDelay = "tenant", c.HealthPeriod, longestDelay
}

// SetupWithManager adds the controller to mgr. When mgr stops, all instances are cancelled and awaited.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	if c.Reader == nil {
		c.Reader = mgr.GetAPIReader()
	}
	c.setDefaults()
	c.identities = c.registry()
	options := controller.Options{MaxConcurrentReconciles: concurrentTenants}
	var instances manager.Runnable = &c.supervisor
	if c.Standby {
		instances, options.NeedLeaderElection = everywhere{instances}, ptr.To(false)
	}
	if err := index(mgr); err != nil {
		return err
	}
	if err := mgr.Add(instances); err != nil {
		return fmt.Errorf("adding the tenants' instances to the manager: %w", err)
	}
	watches := ctrl.NewControllerManagedBy(mgr)
	if c.Serves == nil {
		watches.WatchesMetadata(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(c.ofSecret))
	} else {
		watches.Watches(&schedulerv1alpha1.NamespacePlacement{}, handler.EnqueueRequestsFromMapFunc(c.ofPlacement))
	}
	err := watches.
		Named(controllerName).
		For(&tenancyv1alpha1.VirtualCluster{}).
		Watches(&tenancyv1alpha1.TenantPolicy{}, handler.EnqueueRequestsFromMapFunc(c.ofPolicy), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesMetadata(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(ofRootNamespace)).
		WatchesRawSource(source.Func(c.bindQueue)).
		WithOptions(options).
		WithLogConstructor(func(request *reconcile.Request) logr.Logger {
			logger := klog.LoggerWithValues(mgr.GetLogger(), "controller", controllerName)
			if request != nil {
				logger = klog.LoggerWithValues(logger, "tenant", klog.KRef(request.Namespace, request.Name))
			}
			return logger
		}).
		Complete(c)
	if err != nil {
		return fmt.Errorf("building the tenants controller: %w", err)
	}
	return nil
}

// registry returns what tells whose a control plane is. A process with Serves follows one virtual Node alone.
func (c *Controller) registry() *identities.Registry {
	return &identities.Registry{Live: c.Reader, Cached: c.Client, Indexed: true, NodesLive: c.Serves != nil}
}

// index gives the cache of mgr the indexes of VirtualClusters.
func index(mgr ctrl.Manager) error {
	ctx := context.Background() //nolint:forbidigo // the index is there before the cache starts, and nothing waits
	for name, index := range map[string]client.IndexerFunc{secretIndex: indexSecret, rootIndex: indexRoot, policyIndex: indexPolicy, identities.Index: identities.IndexVirtualCluster} {
		if err := mgr.GetFieldIndexer().IndexField(ctx, &tenancyv1alpha1.VirtualCluster{}, name, index); err != nil {
			return fmt.Errorf("indexing VirtualClusters by %s: %w", name, err)
		}
	}
	return nil
}

// everywhere is a runnable of every replica.
type everywhere struct{ manager.Runnable }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (everywhere) NeedLeaderElection() bool { return false }

// bindQueue makes Supervisor.OnChange enqueue the VirtualCluster of a connection that has changed.
func (c *Controller) bindQueue(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	c.supervisor.OnChange(func(name types.NamespacedName) {
		queue.Add(reconcile.Request{NamespacedName: name})
	})
	return nil
}

// ofPlacement returns the VirtualCluster of a NamespacePlacement if its connection is to start or to end. Each
// reconcile reads a Secret, and most changes of NamespacePlacements mean neither.
func (c *Controller) ofPlacement(ctx context.Context, np client.Object) []reconcile.Request {
	serves, _, err := c.Serves(ctx, np.GetNamespace())
	return slices.DeleteFunc(OfRoot(ctx, c.Client, np.GetNamespace()), func(request reconcile.Request) bool {
		_, running := c.supervisor.Get(request.NamespacedName)
		return err == nil && serves == running
	})
}

func ofRootNamespace(_ context.Context, namespace client.Object) []reconcile.Request {
	if owner, ok := virtualclusters.RootOwner(namespace); ok {
		return []reconcile.Request{{NamespacedName: owner}}
	}
	return nil
}

// Reconcile starts or stops the connection of one VirtualCluster and reports its state. It never waits for a tenant.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	vc := &tenancyv1alpha1.VirtualCluster{}
	if err := c.Client.Get(ctx, request.NamespacedName, vc); err != nil {
		if apierrors.IsNotFound(err) {
			c.supervisor.Stop(request.NamespacedName)
			c.policies.forget(request.NamespacedName)
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("getting the VirtualCluster: %w", err)
	}
	again, err := c.reconcile(ctx, vc.DeepCopy())
	if apierrors.IsConflict(err) {
		klog.FromContext(ctx).V(4).Info("Trying again, another wrote the VirtualCluster", "err", err)
		return reconcile.Result{RequeueAfter: time.Second}, nil
	}
	return reconcile.Result{RequeueAfter: again}, err
}

// reconcile returns after how long to reconcile again, 0 for when something changes.
func (c *Controller) reconcile(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster) (time.Duration, error) {
	name := client.ObjectKeyFromObject(vc)
	if !vc.DeletionTimestamp.IsZero() {
		if !c.supervisor.Stop(name) {
			return 0, nil // still stopping: Supervisor.OnChange enqueues the VirtualCluster when the connection has ended
		}
		return c.Lifecycle.Release(ctx, vc)
	}
	serves, again, err := c.serves(ctx, vc)
	if err != nil {
		return 0, fmt.Errorf("finding out whether the tenant is served here: %w", err)
	}
	if !serves {
		c.supervisor.Stop(name)
		return again, nil
	}
	// First, so that no connection starts with another policy, and a tenant that is not connected is told of it.
	inForce, trouble, err := c.policies.of(ctx, c.Client, policyOf(vc))
	if err != nil {
		return 0, err
	}
	c.policies.ref(name).Set(inForce)
	c.policies.ref(name).Pause(vc.Spec.Paused)
	reason, err := c.prepare(ctx, vc)
	if err != nil {
		return 0, err
	}
	var tenant *Tenant
	var identity string
	if reason == (tenancy.Reason{}) {
		tenant, identity, reason, err = c.resolve(ctx, vc)
		if c.Serves != nil && apierrors.IsForbidden(err) {
			klog.FromContext(ctx).V(2).Info("Waiting for the right to read the tenant's kubeconfig, which vc-scheduler grants", "err", err)
			return grantRetryAfter, nil
		}
		if err != nil {
			return 0, err
		}
	}
	if reason != (tenancy.Reason{}) {
		c.supervisor.Stop(name)
		return c.report(ctx, vc, reason, trouble, nil, again)
	}
	state, running := c.supervisor.Ensure(name, identity, func() *connection { return newConnection(c, tenant) })
	if !running {
		return 0, nil // the older one is still stopping: Supervisor.OnChange enqueues the VirtualCluster when it has ended
	}
	var outside *tenancy.Reason
	if conn, running := c.supervisor.Get(name); running {
		if version := conn.version.Load(); *version != (skew.Version{}) {
			outside = new(version.Outside())
		}
	}
	return c.report(ctx, vc, state.Reason, trouble, outside, again)
}

// prepare returns why no connection to a tenant is to be, the zero Reason when one is.
func (c *Controller) prepare(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster) (tenancy.Reason, error) {
	reason, err := c.Lifecycle.Prepare(ctx, vc)
	if err == nil && reason == (tenancy.Reason{}) && virtualclusters.IsPaused(vc) {
		reason = tenancy.Reason{Reason: tenancyv1alpha1.ReasonPaused, Message: "The tenant is paused, and holds no room for pods"}
	}
	return reason, err //nolint:wrapcheck // it says what it did
}

// serves returns whether this process works on a tenant, and after how long to ask again, 0 for when something changes.
func (c *Controller) serves(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster) (serves bool, again time.Duration, err error) {
	if c.Has != nil && !c.Has(vc.UID) {
		return false, 0, nil
	}
	if c.Serves == nil || vc.Status.ClusterNamespace == "" {
		return true, 0, nil
	}
	return c.Serves(ctx, vc.Status.ClusterNamespace)
}

// report reports the state of a connection. again is after how long to reconcile for another reason, 0 for none.
func (c *Controller) report(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster, state, trouble tenancy.Reason, version *tenancy.Reason, again time.Duration) (time.Duration, error) {
	after, err := c.Lifecycle.Report(ctx, vc, state, trouble, version)
	if after == 0 || again > 0 && again < after {
		after = again
	}
	return after, err
}

// resolve returns the tenant that a VirtualCluster describes and the identity of its instance, or why there is none.
func (c *Controller) resolve(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster) (*Tenant, string, tenancy.Reason, error) {
	data, reason, err := c.readSecret(ctx, vc)
	if err != nil || reason != (tenancy.Reason{}) {
		return nil, "", reason, err
	}
	config, err := kubeconfig.Parse(data)
	if err != nil {
		secret, _ := SecretOf(vc)
		return nil, "", tenancy.Reason{Reason: tenancyv1alpha1.ReasonInvalidKubeconfig, Message: fmt.Sprintf("Secret %s: %v", secret, err)}, nil
	}
	ranges, err := virtualclusters.ServiceCIDRs(vc)
	if err != nil {
		return nil, "", tenancy.Reason{}, err
	}
	nodePorts, err := virtualclusters.ServiceNodePorts(vc)
	if err != nil {
		return nil, "", tenancy.Reason{}, err
	}
	held := c.policies.ref(client.ObjectKeyFromObject(vc))
	bounds := tenantclient.New(held)
	tenant := &Tenant{
		Key:                     tenancy.ClusterKey(vc),
		VirtualCluster:          client.ObjectKeyFromObject(vc),
		UID:                     vc.UID,
		ClusterDomain:           vc.Spec.ClusterDomain,
		ServiceCIDRs:            ranges,
		NodePorts:               nodePorts,
		Nodes:                   vc.Spec.Nodes,
		OpaqueMetaPrefixes:      slices.Clone(vc.Spec.OpaqueMetaPrefixes),
		TransparentMetaPrefixes: slices.Clone(vc.Spec.TransparentMetaPrefixes),
		Policy:                  held,
		Bounds:                  bounds,
		Config:                  bounds.Config(config),
	}
	if tenant.ClusterDomain == "" {
		tenant.ClusterDomain = defaultDomain
	}
	fields, err := json.Marshal([]any{tenant.Key, tenant.ClusterDomain, tenant.ServiceCIDRs, tenant.NodePorts, tenant.Nodes, tenant.OpaqueMetaPrefixes, tenant.TransparentMetaPrefixes})
	if err != nil {
		return nil, "", tenancy.Reason{}, fmt.Errorf("encoding the identity of an instance: %w", err)
	}
	return tenant, kubeconfig.Fingerprint([]byte(vc.UID), data, fields), tenancy.Reason{}, nil
}
