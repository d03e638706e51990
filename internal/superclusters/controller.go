// Package superclusters keeps the live connections to super clusters: it watches Clusters of Cluster API and the
// Secrets that hold their kubeconfigs, adds up what each super cluster can hold, and keeps one virtual Node per super
// cluster in the meta cluster.
package superclusters

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/identities"
	"github.com/superpool/superpool/internal/kubeconfig"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/superclusters/usage"
	"github.com/superpool/superpool/internal/superclusters/warnings"
	"github.com/superpool/superpool/internal/tenancy"
)

const (
	controllerName     = "superclusters"
	concurrentClusters = 4
	retireRetryAfter   = 10 * time.Second
)

// Controller keeps a connection to every super cluster and one virtual Node for each. It reconciles Clusters.
//
// Failures are Warning Events on the Cluster, and the Ready condition of its virtual Node if it has one. A super
// cluster that fails delays no other.
type Controller struct {
	// Client reads Clusters (a cache will do) and writes Nodes and Leases.
	Client client.Client
	// Reader reads Secrets, Nodes, Leases, NamespacePlacements and ClusterAddresses. Nil: the manager's uncached
	// reader.
	Reader client.Reader
	// Selector selects the Clusters that may become super clusters by their labels. Nil: all may. Cluster API may make
	// other clusters, too, the control planes of tenants among them.
	Selector labels.Selector
	// Recorder records Events on Clusters.
	Recorder record.EventRecorder
	// Metrics takes what super clusters are overcommitted by, and how many slices they hold. Nil: there are no metrics.
	Metrics *Metrics
	// DefaultSlice is the size of the slices that metrics count what is free in.
	DefaultSlice slice.Amounts
	// ProbePeriod is how often a super cluster is asked whether it is there, and how often virtual Nodes are read anew;
	// 0 means 10 seconds.
	ProbePeriod time.Duration

	// identities tells whose a control plane is; nil before SetupWithManager.
	identities *identities.Registry
	kind       atomic.Pointer[schema.GroupVersionKind] // of Cluster, once the meta cluster serves it
	supervisor engage.Supervisor[*connection]
	owners     idOwners
	writer     writer
	warnings   warnings.Warnings
	measures   measures

	mu         sync.Mutex
	declared   map[types.NamespacedName]usage.Declared // by Cluster, the last valid ones
	podsListed map[types.NamespacedName]time.Time      // when the pods of the virtual Node were listed last
	retiring   map[string]types.NamespacedName         // by super cluster id, the Cluster whose virtual Node waits for namespaces
}

func (c *Controller) setDefaults() {
	if c.Reader == nil {
		c.Reader = c.Client
	}
	c.supervisor.Kind, c.supervisor.HealthPeriod, c.supervisor.LongestDelay = "cluster", cmp.Or(c.ProbePeriod, probePeriod), longestDelay
	c.supervisor.RetryPeriod = retryPeriod
	c.writer = writer{client: c.Client, reader: c.Reader, overcommitted: c.recordOvercommitted, measures: &c.measures}
	c.warnings.Recorder = c.Recorder
	c.declared, c.podsListed = map[types.NamespacedName]usage.Declared{}, map[types.NamespacedName]time.Time{}
	c.retiring, c.measures.emptied = map[string]types.NamespacedName{}, c.emptied
}

// SetupWithManager adds the controller to mgr, to whose cache tenants.Controller gives indexes. When mgr stops, all
// connections are cancelled and awaited. The meta cluster need not serve Clusters yet: the controller waits for it.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	if c.Reader == nil {
		c.Reader = mgr.GetAPIReader()
	}
	c.setDefaults()
	c.identities = &identities.Registry{Live: c.Reader, Cached: c.Client, Indexed: true}
	bound := make(chan struct{})
	watch := &clusterWatch{controller: c, mapper: mgr.GetRESTMapper(), cache: mgr.GetCache(), bound: bound}
	c.measures.synced = make(chan struct{})
	feed := &placementFeed{measures: &c.measures, cache: mgr.GetCache()}
	if err := errors.Join(mgr.Add(&c.supervisor), mgr.Add(watch), mgr.Add(feed)); err != nil {
		return fmt.Errorf("adding the super clusters to the manager: %w", err)
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named(controllerName).
		WatchesMetadata(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(c.ofSecret)).
		WatchesRawSource(source.Func(func(_ context.Context, queue reconcileQueue) error {
			c.supervisor.OnChange(func(name types.NamespacedName) { queue.Add(reconcile.Request{NamespacedName: name}) })
			close(bound)
			return nil
		})).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrentClusters}).
		WithLogConstructor(func(request *reconcile.Request) logr.Logger {
			logger := klog.LoggerWithValues(mgr.GetLogger(), "controller", controllerName)
			if request != nil {
				logger = klog.LoggerWithValues(logger, "cluster", klog.KRef(request.Namespace, request.Name))
			}
			return logger
		}).
		Complete(c)
	if err != nil {
		return fmt.Errorf("building the super clusters controller: %w", err)
	}
	return nil
}

// Reconcile starts or stops the connection of one Cluster and reports its state. It never waits for a super cluster.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	kind := c.kind.Load()
	if kind == nil {
		return reconcile.Result{}, nil
	}
	logger := klog.FromContext(ctx)
	name := request.NamespacedName
	cluster := &metav1.PartialObjectMetadata{}
	cluster.SetGroupVersionKind(*kind)
	if err := c.Client.Get(ctx, name, cluster); err != nil {
		if !apierrors.IsNotFound(err) {
			return reconcile.Result{}, fmt.Errorf("getting Cluster %s: %w", name, err)
		}
		if !c.supervisor.Stop(name) {
			return reconcile.Result{}, nil // still stopping: Supervisor.OnChange enqueues the Cluster when the connection has ended
		}
		c.forget(name)
		nodes, err := c.writer.of(ctx, name)
		if err != nil {
			return reconcile.Result{}, err
		}
		for i := range nodes {
			c.measures.gone(nodes[i].Name)
		}
		return c.retire(ctx, name, "")
	}
	cluster = cluster.DeepCopy()
	cluster.SetGroupVersionKind(*kind)
	result, err := c.reconcile(ctx, cluster)
	if apierrors.IsConflict(err) {
		logger.V(4).Info("Trying again, another wrote the virtual node", "err", err)
		return reconcile.Result{RequeueAfter: time.Second}, nil
	}
	return result, err
}

func (c *Controller) reconcile(ctx context.Context, cluster *metav1.PartialObjectMetadata) (reconcile.Result, error) {
	name := client.ObjectKeyFromObject(cluster)
	if out, err := c.leavesOut(ctx, cluster); out || err != nil {
		if err == nil && c.supervisor.Stop(name) { // else Supervisor.OnChange enqueues the Cluster when the connection has ended
			c.forget(name)
		}
		return reconcile.Result{}, err
	}
	said := c.readDeclared(cluster)
	config, data, reason, err := c.readSecret(ctx, name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if reason != (tenancy.Reason{}) {
		if !c.supervisor.Stop(name) {
			return reconcile.Result{}, nil // still stopping: Supervisor.OnChange enqueues the Cluster when the connection has ended
		}
		c.owners.tried(name, "")
		return c.report(ctx, cluster, "", reason)
	}
	identity := kubeconfig.Fingerprint([]byte(cluster.UID), data)
	state, running := c.supervisor.Ensure(name, identity, func() *connection { return c.connect(name, config, said) })
	if !running {
		return reconcile.Result{}, nil // the older one is still stopping: Supervisor.OnChange enqueues the Cluster when it has ended
	}
	id := ""
	if conn, exists := c.supervisor.Get(name); exists {
		conn.setDeclared(said)
		id = conn.ownedID()
	}
	return c.report(ctx, cluster, id, failureOf(state))
}

// selects reports whether the labels of a Cluster let it become a super cluster.
func (c *Controller) selects(cluster *metav1.PartialObjectMetadata) bool {
	return c.Selector == nil || c.Selector.Matches(labels.Set(cluster.Labels))
}

// leavesOut reports whether a Cluster is none of vc-scheduler's business. One that is a super cluster stays one whatever
// its labels become, and an Event says so: tenants have something there.
func (c *Controller) leavesOut(ctx context.Context, cluster *metav1.PartialObjectMetadata) (bool, error) {
	if c.selects(cluster) {
		c.warnings.Set(cluster, "selector", tenancy.Reason{})
		return false, nil
	}
	name := client.ObjectKeyFromObject(cluster)
	if conn, connected := c.supervisor.Get(name); !connected || conn.ownedID() == "" {
		nodes, err := c.virtualNodes(ctx)
		if err != nil {
			return false, err
		}
		if !slices.ContainsFunc(nodes, func(node corev1.Node) bool { return standsFor(&node, name) }) {
			return true, nil
		}
	}
	c.warnings.Set(cluster, "selector", tenancy.Reason{Reason: ReasonClusterNotSelected, Message: fmt.Sprintf(
		"The labels of this Cluster do not match --cluster-selector %s of vc-scheduler. It stays a super cluster, for it is one: label it, or drain it and delete it", c.Selector)})
	return false, nil
}

// failureOf returns why a connection does not work, the zero Reason for Connecting and Connected.
func failureOf(state engage.State) tenancy.Reason {
	if reason := state.Reason.Reason; reason == tenancyv1alpha1.ReasonConnecting || reason == tenancyv1alpha1.ReasonConnected {
		return tenancy.Reason{}
	}
	return state.Reason
}

// report records why a Cluster does not work as an Event, and on the virtual Nodes that no connection writes. A Cluster
// that owns id has one Node, which its connection writes; those of other ids are retired.
func (c *Controller) report(ctx context.Context, cluster *metav1.PartialObjectMetadata, id string, reason tenancy.Reason) (reconcile.Result, error) {
	name := client.ObjectKeyFromObject(cluster)
	c.warnings.Set(cluster, "connection", reason)
	result := reconcile.Result{}
	if reason != (tenancy.Reason{}) || id != "" {
		result.RequeueAfter = warnings.Period // to record a lasting failure again, and to list pods again
	}
	if id != "" {
		c.checkPods(ctx, cluster, id)
		retired, err := c.retire(ctx, name, id)
		if retired.RequeueAfter > 0 {
			result = retired
		}
		return result, err
	}
	if reason == (tenancy.Reason{}) {
		return result, nil
	}
	nodes, err := c.writer.of(ctx, name)
	if err != nil {
		return result, err
	}
	for i := range nodes {
		if err := c.writer.unknown(ctx, &nodes[i], nodeReason(reason.Reason), reason.Message); err != nil {
			return result, err
		}
	}
	return result, nil
}

// retire deletes the virtual Nodes of a Cluster but the one named keep, each once no namespace is placed there.
func (c *Controller) retire(ctx context.Context, cluster types.NamespacedName, keep string) (reconcile.Result, error) {
	nodes, err := c.writer.of(ctx, cluster)
	if err != nil {
		return reconcile.Result{}, err
	}
	result := reconcile.Result{}
	for i := range nodes {
		if nodes[i].Name == keep {
			continue
		}
		c.waitForEmpty(nodes[i].Name, cluster)
		gone, err := c.writer.retire(ctx, &nodes[i])
		if apierrors.IsConflict(err) {
			err, gone = nil, false
		}
		if err != nil {
			return reconcile.Result{}, err
		}
		if !gone {
			result.RequeueAfter = retireRetryAfter
			continue
		}
		c.waitForEmpty(nodes[i].Name, types.NamespacedName{})
	}
	return result, nil
}

// waitForEmpty has a Cluster reconciled once no namespace is placed in a super cluster; the zero name ends that.
func (c *Controller) waitForEmpty(id string, cluster types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cluster == (types.NamespacedName{}) {
		delete(c.retiring, id)
		return
	}
	c.retiring[id] = cluster
}

// emptied is called when no namespace is placed in a super cluster any more.
func (c *Controller) emptied(id string) {
	c.mu.Lock()
	cluster, waits := c.retiring[id]
	c.mu.Unlock()
	if waits {
		c.supervisor.Changed(cluster)
	}
}

// readDeclared returns what the operator says in the annotations of a Cluster, of an invalid one what was said last. Of
// storage of which this process has heard nothing else there is none: it would be given away as if there were no end.
func (c *Controller) readDeclared(cluster *metav1.PartialObjectMetadata) usage.Declared {
	name := client.ObjectKeyFromObject(cluster)
	c.mu.Lock()
	said, known := c.declared[name]
	c.mu.Unlock()
	headroom, err := usage.ParseHeadroom(cluster.Annotations[schedulerv1alpha1.AnnotationHeadroom])
	if c.warnInvalid(cluster, "headroom", schedulerv1alpha1.AnnotationHeadroom, ReasonInvalidHeadroom, err); err == nil {
		said.Headroom = headroom
	}
	storage, err := usage.ParseStorage(cluster.Annotations[schedulerv1alpha1.AnnotationStorage])
	c.warnInvalid(cluster, "storage", schedulerv1alpha1.AnnotationStorage, ReasonInvalidStorage, err)
	switch {
	case err == nil:
		said.Storage = storage
	case !known:
		said.Storage = new(int64)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.declared[name] = said
	return said
}

// warnInvalid records what is wrong with an annotation of a Cluster, nil for nothing.
func (c *Controller) warnInvalid(cluster *metav1.PartialObjectMetadata, topic, annotation, reason string, err error) {
	why := tenancy.Reason{}
	if err != nil {
		why = tenancy.Reason{Reason: reason, Message: fmt.Sprintf("Annotation %s: %v", annotation, err)}
	}
	c.warnings.Set(cluster, topic, why)
}

func (c *Controller) forget(cluster types.NamespacedName) {
	c.owners.forget(cluster)
	c.warnings.Forget(cluster)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.declared, cluster)
	delete(c.podsListed, cluster)
}

// clusters returns the existing Clusters.
func (c *Controller) clusters(ctx context.Context) ([]metav1.PartialObjectMetadata, error) {
	kind := c.kind.Load()
	if kind == nil {
		return nil, nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := c.Client.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing Clusters: %w", err)
	}
	return list.Items, nil
}

// parseName reads the form <namespace>/<name>.
func parseName(text string) types.NamespacedName {
	namespace, name, _ := strings.Cut(text, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}
}
