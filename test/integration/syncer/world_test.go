package syncer_test

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/syncer"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/tenants"
	"github.com/superpool/superpool/test/await"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/controlplane"
)

const (
	// deadline is how long what is to happen may take. kube-controller-manager looks every 30 seconds which types there
	// are to count in quotas, and a type that was made just before may be seen by the second look.
	deadline = 2 * time.Minute
	interval = 20 * time.Millisecond
)

// world is a meta cluster, super clusters r1 and r2, and the control plane of one tenant: real API servers, without
// controllers. The tests play scheduler, kubelet and controllers. Most know super only, which is r1, and let no r2 run.
type world struct {
	pool                                    *pool
	meta, tenant, super, super2             client.Client
	tenantConfig, superConfig, super2Config *rest.Config
	// numbers are the metrics of the first syncer of r1.
	numbers *prometheus.Registry
	// accountConfig reaches the meta cluster with the rights of a syncer, as superConfig and super2Config reach the
	// super clusters.
	accountConfig *rest.Config
	// vcUID is the UID of the tenant's VirtualCluster acme/vcName, tenantUID that of its control plane.
	vcUID, tenantUID types.UID
	vcName           string
	// key is the tenant's cluster key, and policy the TenantPolicy in force for it.
	key    string
	policy *policy.Ref
	// r1 is the control plane of super.
	r1 *controlplane.ControlPlane
	// options, if not nil, changes those of syncers that start.
	options func(*syncer.Options)
	// services are the addresses of the tenant's Services.
	services string
	// nodePorts are those of the tenant's Services.
	nodePorts utilnet.PortRange
	// nodes is which nodes the tenant has Nodes for.
	nodes tenancyv1alpha1.NodesMode
	// transparent are the prefixes of labels and annotations that come up to the tenant.
	transparent []string
	// controlPlane is that of the tenant, and metaPlane that of meta.
	controlPlane, metaPlane *controlplane.ControlPlane
}

const (
	// superServices contains tenantServices, the addresses of the tenant's Services.
	superServices = "10.0.0.0/16"
	// API servers give its first sixteen addresses to those who ask for one, and the others to anybody.
	tenantServices = "10.0.128.0/24"
)

// needs is what a test needs of its world beside a meta cluster, super cluster r1 and a tenant.
type needs struct {
	// r2 is whether super cluster r2 runs. Else it is a name that the meta cluster records, and nobody reaches it.
	r2 bool
	// quotas is whether API servers admit by ResourceQuotas, whose status somebody has to fill then. Without
	// controllers nobody does.
	quotas bool
	// own is whether no other test uses any of the control planes: because the test stops or restores one of them that
	// is not the tenant's, or runs controllers in it, or confuses those who know it.
	own bool
	// ownTenant is whether no other test uses the tenant's.
	ownTenant bool
}

// newWorld returns a world, whose control planes tests share if they can.
func newWorld(t *testing.T, with needs) *world {
	t.Helper()
	own := newPool(with.quotas)
	t.Cleanup(own.stop)
	pool, ofTenants := own, own
	if !with.own {
		pool = share(t, with.quotas)
		if !with.ownTenant {
			ofTenants = pool
		}
	}
	names := []string{metaCluster, "r1"}
	if with.r2 {
		names = append(names, "r2")
	}
	if pool == ofTenants {
		names = append(names, ofTenant)
	}
	pool.need(t, names...)
	ofTenants.need(t, ofTenant)
	meta, r1, tenant := pool.planes[metaCluster], pool.planes["r1"], ofTenants.planes[ofTenant]
	w := &world{
		pool: pool, meta: meta.client, metaPlane: meta.ControlPlane, accountConfig: meta.account, super: r1.client, superConfig: r1.account, r1: r1.ControlPlane,
	}
	w.record(t, "r1", uidOf(t, w.super))
	if with.r2 {
		r2 := pool.planes["r2"]
		w.super2, w.super2Config = r2.client, r2.account
		w.record(t, "r2", uidOf(t, w.super2))
	} else {
		w.record(t, "r2", "nobody-reaches-it")
	}
	create(t, w.meta, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "acme"}})
	w.join(t, strings.ToLower(strings.TrimPrefix(t.Name(), "Test")), tenantServices, tenant)
	return w
}

// join makes a tenant of a name the world's, whose Services have addresses of a range.
func (w *world) join(t *testing.T, name, services string, tenant *plane) {
	t.Helper()
	w.key, w.vcName, w.services, w.policy = "acme-123456-"+name, name, services, &policy.Ref{}
	w.tenant, w.tenantConfig, w.controlPlane, w.tenantUID = tenant.client, tenant.account, tenant.ControlPlane, uidOf(t, tenant.client)
	w.follow(t, func(*tenancyv1alpha1.TenantPolicySpec) {})
	create(t, w.meta, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.key}})
	vc := &tenancyv1alpha1.VirtualCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: name},
		Spec:       tenancyv1alpha1.VirtualClusterSpec{KubeconfigSecretRef: &tenancyv1alpha1.SecretKeyRef{Name: name}},
	}
	create(t, w.meta, vc)
	w.vcUID = vc.UID
}

// neighbour returns a world of the same pool whose tenant is another: that of a control plane of the pool.
func (w *world) neighbour(t *testing.T, name string) *world {
	t.Helper()
	w.pool.need(t, name)
	other := *w
	other.join(t, name+"-"+w.vcName, services[name], w.pool.planes[name])
	return &other
}

// superName returns the name of the super namespace of a namespace of the tenant.
func (w *world) superName(namespace string) string { return w.key + "-" + namespace }

// uidOf returns the UID of a control plane.
func uidOf(t *testing.T, c client.Client) types.UID {
	t.Helper()
	system := &corev1.Namespace{}
	eventually(t, func() error { return c.Get(t.Context(), types.NamespacedName{Name: "kube-system"}, system) })
	return system.UID
}

// record plays vc-scheduler, which makes the virtual Node of a super cluster with its UID. It takes the taint off with
// which API servers make Nodes.
func (w *world) record(t *testing.T, id string, uid types.UID) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: id, Labels: map[string]string{schedulerv1alpha1.LabelVirtualNode: id},
		Annotations: map[string]string{schedulerv1alpha1.AnnotationSuperClusterUID: string(uid)},
	}}
	create(t, w.meta, node)
	await.Change(t, w.meta, node, func(node *corev1.Node) { node.Spec.Taints = nil })
}

// follow puts a policy in force: the shipped one, with ten node ports and load balancers, and a change.
func (w *world) follow(t *testing.T, change func(*tenancyv1alpha1.TenantPolicySpec)) {
	t.Helper()
	spec := policy.Default().Spec().DeepCopy()
	spec.Limits.NodePorts, spec.Limits.LoadBalancers = 10, 10
	change(spec)
	changed, err := policy.New("few", spec)
	require.NoError(t, err)
	w.policy.Set(changed)
}

// runSyncer runs the syncer of a super cluster with a new manager until the returned function is called. The metrics
// tell what it wrote.
func (w *world) runSyncer(t *testing.T, super *rest.Config) (*prometheus.Registry, func()) {
	t.Helper()
	r := w.startSyncer(t, super, w.tenantConfig)
	closes(t, r.ready, "the tenant's caches are synced")
	return r.numbers, func() {
		r.stop()
		require.NoError(t, r.err, "running the manager")
	}
}

// closes waits until a channel is closed.
func closes(t *testing.T, closed <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-closed:
	case <-time.After(deadline):
		t.Fatalf("%s: not within %s", what, deadline)
	}
}

// running is a syncer.
type running struct {
	// ready is closed when the tenant's caches are synced, ended when the manager has ended, with err.
	ready, ended chan struct{}
	err          error
	// numbers are its metrics.
	numbers *prometheus.Registry
	// stop ends it and waits for that.
	stop func()
}

// startSyncer starts the syncer of a super cluster, whose tenant is reached by a client configuration.
func (w *world) startSyncer(t *testing.T, super, tenantConfig *rest.Config) *running {
	t.Helper()
	return w.startSyncerWith(t, super, func(_ ctrl.Manager, made *syncer.Syncer, ready func()) func(context.Context) error {
		return func(ctx context.Context) error { return made.Engage(ctx, w.engaged(tenantConfig), ready) }
	})
}

// engaged returns the world's tenant, which is reached by a client configuration.
func (w *world) engaged(config *rest.Config) *tenants.Tenant {
	return &tenants.Tenant{
		Key: w.key, VirtualCluster: types.NamespacedName{Namespace: "acme", Name: w.vcName}, UID: w.vcUID, ControlPlaneUID: w.tenantUID, ClusterDomain: "cluster.local",
		Policy: w.policy, Config: config, Nodes: w.nodes, NodePorts: w.nodePorts, TransparentMetaPrefixes: w.transparent, ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix(w.services)},
	}
}

// startSyncerWith starts the syncer of a super cluster. What serves returns brings it its tenants until its context
// ends; ready is to be called when their caches are synced.
func (w *world) startSyncerWith(t *testing.T, super *rest.Config, serves func(mgr ctrl.Manager, made *syncer.Syncer, ready func()) func(context.Context) error) *running {
	t.Helper()
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.Verbosity(2)))
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
	identity, err := syncer.Identify(ctx, super)
	require.NoError(t, err)
	mgr, err := ctrl.NewManager(w.accountConfig, ctrl.Options{
		Scheme: w.meta.Scheme(), Logger: logger, Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		BaseContext: func() context.Context { return ctx },
		Controller:  ctrlconfig.Controller{SkipNameValidation: ptr.To(true)}, // several tests have one of the name
	})
	require.NoError(t, err)
	r := &running{ready: make(chan struct{}), ended: make(chan struct{}), numbers: prometheus.NewRegistry()}
	metrics, err := engine.NewMetrics(r.numbers)
	require.NoError(t, err)
	patrolled := countPatrols(t, r.numbers)
	options := syncer.Options{
		Identity: identity, Super: super, PodSecurityLevel: "baseline", Metrics: metrics, NodeLinger: time.Second, Engine: engine.Options{Patrol: patrolPeriod, Clock: patrolled},
		ProbePeriod: time.Second,
	}
	if w.options != nil {
		w.options(&options)
	}
	made, err := syncer.New(ctx, mgr, options)
	require.NoError(t, err)
	serve := serves(mgr, made, sync.OnceFunc(func() { close(r.ready) }))

	var group sync.WaitGroup
	group.Go(func() {
		defer close(r.ended)
		r.err = mgr.Start(ctx)
	})
	group.Go(func() {
		// As in the program, where a controller of the manager finds tenants: it begins once the caches are read.
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return
		}
		if err := serve(ctx); err != nil {
			t.Errorf("serving the tenants: %v", err)
		}
	})
	stopped := make(chan struct{})
	r.stop = sync.OnceFunc(func() {
		cancel()
		go func() { defer close(stopped); group.Wait() }()
		// A manager that is cancelled while it starts may never end (controller-runtime's runnableGroup.Start): then
		// the test has failed before, and this must not hide why.
		select {
		case <-stopped:
		case <-time.After(deadline):
			t.Errorf("the syncer has not ended within %s", deadline)
		}
	})
	t.Cleanup(r.stop)
	return r
}

// hard is the hard limits of the quota of a super namespace with these besides zeros, as pairs.
func hard(pairs ...string) corev1.ResourceList {
	list := builders.Resources(
		"requests.cpu", "0", "requests.memory", "0", "requests.ephemeral-storage", "0", "pods", "0",
		"services.nodeports", "10", "services.loadbalancers", "10", "persistentvolumeclaims", "0", "requests.storage", "0",
		"count/volumesnapshots.snapshot.storage.k8s.io", "2147483647")
	maps.Copy(list, builders.Resources(pairs...))
	return list
}

// place makes a tenant namespace and the authority's word that it is placed in clusters, one core each. Its home stays
// while it is one of them, and is else the first.
func (w *world) place(t *testing.T, name string, clusters ...string) *schedulerv1alpha1.NamespacePlacement {
	return w.placeWith(t, name, []string{"cpu", "1", "memory", "1Gi", "pods", "20"}, clusters...)
}

// placeWith is place with what is reserved in each super cluster, as pairs.
func (w *world) placeWith(t *testing.T, name string, reserved []string, clusters ...string) *schedulerv1alpha1.NamespacePlacement {
	namespace := &corev1.Namespace{}
	if err := w.tenant.Get(t.Context(), types.NamespacedName{Name: name}, namespace); apierrors.IsNotFound(err) {
		namespace.Name = name
		create(t, w.tenant, namespace)
	}
	object := builders.Placement(w.key, name).NamespaceUID(namespace.UID).Obj()
	if err := w.meta.Create(t.Context(), object); !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
	}
	await.Change(t, w.meta, object, func(np *schedulerv1alpha1.NamespacePlacement) {
		np.Status.Placements = nil
		for _, cluster := range clusters {
			np.Status.Placements = append(np.Status.Placements, builders.HeldSlices(cluster, 1, reserved...))
		}
		if !slices.Contains(clusters, np.Status.Home) {
			np.Status.Home = ""
			if len(clusters) > 0 {
				np.Status.Home = clusters[0]
			}
		}
		meta.SetStatusCondition(&np.Status.Conditions, metav1.Condition{
			Type: schedulerv1alpha1.ConditionPlaced, Status: metav1.ConditionTrue, Reason: schedulerv1alpha1.ReasonPlaced,
		})
	}, "status")
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "default"}}
	if err := w.tenant.Create(t.Context(), account); !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
	}
	return object
}

func create(t *testing.T, c client.Client, object client.Object) {
	t.Helper()
	require.NoError(t, c.Create(t.Context(), object))
}

// eventually waits until check returns nil.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	require.NoError(t, until(t.Context(), func(context.Context) error { return check() }))
}

// appears waits until an object exists and check, if not nil, is satisfied with it.
func appears[T client.Object](t *testing.T, c client.Client, namespace, name string, object T, check func(T) bool) T {
	t.Helper()
	eventually(t, func() error {
		if err := c.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, object); err != nil {
			return err
		}
		if check != nil && !check(object) {
			return fmt.Errorf("%T %s/%s is not as expected: %+v", object, namespace, name, object)
		}
		return nil
	})
	return object
}

// vanishes waits until an object does not exist.
func vanishes(t *testing.T, c client.Client, namespace, name string, object client.Object) {
	t.Helper()
	eventually(t, func() error {
		err := c.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, object)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("%T %s/%s is still there: %w", object, namespace, name, err)
	})
}

// warned waits until the tenant has an Event with a reason about an object.
func (w *world) warned(t *testing.T, namespace, name, reason string) {
	t.Helper()
	eventually(t, func() error {
		var events corev1.EventList
		if err := w.tenant.List(t.Context(), &events); err != nil {
			return err
		}
		for i := range events.Items {
			event := &events.Items[i]
			if event.Reason == reason && event.InvolvedObject.Name == name && event.InvolvedObject.Namespace == namespace {
				return nil
			}
		}
		return fmt.Errorf("no Event %s about %s/%s among %d", reason, namespace, name, len(events.Items))
	})
}

// notWarned checks that the tenant has no Event with a reason about objects of these names.
func (w *world) notWarned(t *testing.T, reason string, names ...string) {
	t.Helper()
	var events corev1.EventList
	require.NoError(t, w.tenant.List(t.Context(), &events))
	for i := range events.Items {
		event := &events.Items[i]
		require.False(t, event.Reason == reason && slices.Contains(names, event.InvolvedObject.Name), event.Message)
	}
}

// release plays the namespace controller: it lets a namespace that is being deleted go, that with uid unless it is "".
func release(t *testing.T, c client.Client, name string, uid types.UID) {
	t.Helper()
	eventually(t, func() error {
		namespace := &corev1.Namespace{}
		err := c.Get(t.Context(), types.NamespacedName{Name: name}, namespace)
		if apierrors.IsNotFound(err) || err == nil && uid != "" && namespace.UID != uid {
			return nil
		}
		if err != nil {
			return err
		}
		if namespace.DeletionTimestamp == nil {
			return fmt.Errorf("namespace %s is not being deleted", name)
		}
		namespace.Spec.Finalizers = nil
		if err := c.SubResource("finalize").Update(t.Context(), namespace); err != nil {
			return err
		}
		return fmt.Errorf("namespace %s is still there", name)
	})
}

func eachItem(list client.ObjectList, visit func(client.Object)) error {
	return meta.EachListItem(list, func(item runtime.Object) error {
		object, ok := item.(client.Object)
		if !ok {
			return fmt.Errorf("%T is not an object", item)
		}
		visit(object)
		return nil
	})
}

// end deletes a tenant namespace as vc-scheduler and the tenant's namespace controller do: the NamespacePlacement after
// the namespace.
func (w *world) end(t *testing.T, placement *schedulerv1alpha1.NamespacePlacement) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: placement.Name}}
	require.NoError(t, w.tenant.Delete(t.Context(), namespace))
	release(t, w.tenant, placement.Name, "")
	require.NoError(t, w.meta.Delete(t.Context(), placement))
}
