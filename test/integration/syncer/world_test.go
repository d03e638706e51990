package syncer_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
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
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/syncer"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/tenants"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/controlplane"
)

const (
	tenantKey = "acme-123456-vc"
	deadline  = 30 * time.Second
	interval  = 20 * time.Millisecond
)

// world is a meta cluster, super clusters r1 and r2, and the control plane of one tenant: real API servers, without
// controllers. The tests play scheduler, kubelet and controllers. Most know super only, which is r1.
type world struct {
	meta, tenant, super, super2                         client.Client
	metaConfig, tenantConfig, superConfig, super2Config *rest.Config
	// numbers are the metrics of the first syncer of r1.
	numbers *prometheus.Registry
	// accountConfig reaches the meta cluster with the rights of a syncer.
	accountConfig *rest.Config
}

const (
	// superServices contains tenantServices, the addresses of the tenant's Services.
	superServices = "10.0.0.0/16"
	// API servers give its first sixteen addresses to those who ask for one, and the others to anybody.
	tenantServices = "10.0.128.0/24"
)

func newWorld(t *testing.T) *world {
	crds, err := controlplane.SuperpoolCRDs()
	require.NoError(t, err)
	// Without controllers nobody fills the status of quotas.
	without := []string{"ResourceQuota"}
	started, stop, err := controlplane.Start(
		controlplane.Options{CRDs: []string{crds}, DisableAdmission: without},
		controlplane.Options{DisableAdmission: without, ServiceClusterIPRange: tenantServices},
		controlplane.Options{DisableAdmission: without, ServiceClusterIPRange: superServices},
		controlplane.Options{DisableAdmission: without, ServiceClusterIPRange: superServices},
	)
	t.Cleanup(stop)
	require.NoError(t, err)
	account, err := controlplane.Account(t.Context(), started[0], "vc-syncer-rbac.yaml", "vc-syncer")
	require.NoError(t, err)
	w := &world{metaConfig: started[0].Config, accountConfig: account.Config, tenantConfig: started[1].Config, superConfig: started[2].Config, super2Config: started[3].Config}
	for to, config := range map[*client.Client]*rest.Config{
		&w.meta: w.metaConfig, &w.tenant: w.tenantConfig, &w.super: w.superConfig, &w.super2: w.super2Config,
	} {
		made, err := client.New(config, client.Options{Scheme: controlplane.Scheme()})
		require.NoError(t, err)
		*to = made
	}
	create(t, w.meta, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenantKey}})
	for id, super := range map[string]client.Client{"r1": w.super, "r2": w.super2} {
		create(t, super, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "supercluster-info"}, Data: map[string]string{"id": id}})
	}
	return w
}

// runSyncer runs the syncer of a super cluster with a new manager until the returned function is called. The metrics
// tell what it wrote.
func (w *world) runSyncer(t *testing.T, super *rest.Config) (*prometheus.Registry, func()) {
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.Verbosity(2)))
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
	id, err := syncer.SuperClusterID(ctx, super)
	require.NoError(t, err)
	mgr, err := ctrl.NewManager(w.accountConfig, ctrl.Options{
		Scheme: w.meta.Scheme(), Logger: logger, Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
	})
	require.NoError(t, err)
	numbers := prometheus.NewRegistry()
	metrics, err := engine.NewMetrics(numbers)
	require.NoError(t, err)
	made, err := syncer.New(ctx, mgr, syncer.Options{
		ID: id, Super: super, PodSecurityLevel: "baseline", Metrics: metrics, NodeLinger: time.Second, Engine: engine.Options{Patrol: time.Second},
	})
	require.NoError(t, err)

	var group sync.WaitGroup
	group.Go(func() {
		if err := mgr.Start(ctx); err != nil {
			t.Errorf("running the manager: %v", err)
		}
	})
	ready := make(chan struct{})
	group.Go(func() {
		tenant := &tenants.Tenant{
			Key: tenantKey, VirtualCluster: types.NamespacedName{Namespace: "acme", Name: "vc"}, UID: "vc-uid", ClusterDomain: "cluster.local",
			Config: w.tenantConfig, ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix(tenantServices)},
		}
		if err := made.Engage(ctx, tenant, func() { close(ready) }); err != nil {
			t.Errorf("engaging the tenant: %v", err)
		}
	})
	stop := sync.OnceFunc(func() { cancel(); group.Wait() })
	t.Cleanup(stop)
	select {
	case <-ready:
	case <-time.After(deadline):
		t.Fatal("the tenant's caches were not synced")
	}
	return numbers, stop
}

// place makes a tenant namespace and the authority's word that it is placed in clusters, one core each.
func (w *world) place(t *testing.T, name string, clusters ...string) *schedulerv1alpha1.NamespacePlacement {
	namespace := &corev1.Namespace{}
	if err := w.tenant.Get(t.Context(), types.NamespacedName{Name: name}, namespace); apierrors.IsNotFound(err) {
		namespace.Name = name
		create(t, w.tenant, namespace)
	}
	object := builders.Placement(tenantKey, name).NamespaceUID(namespace.UID).Obj()
	if err := w.meta.Create(t.Context(), object); !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
	}
	require.NoError(t, w.meta.Get(t.Context(), client.ObjectKeyFromObject(object), object))
	object.Status.Placements = nil
	for _, cluster := range clusters {
		object.Status.Placements = append(object.Status.Placements, builders.HeldSlices(cluster, 1, "cpu", "1", "memory", "1Gi"))
	}
	require.NoError(t, w.meta.Status().Update(t.Context(), object))
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
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), interval, deadline, true, func(context.Context) (bool, error) {
		last = check()
		return last == nil, nil
	})
	require.NoError(t, err, "%v", last)
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
