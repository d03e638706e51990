// Package scheduling tests vc-scheduler, the whole program, on real API servers: a meta cluster, a tenant control
// plane, and two super clusters, where the tests write what syncers would.
package scheduling

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/cmd/vc-scheduler/app"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/controlplane"
	"github.com/superpool/superpool/test/modcache"
)

const (
	patience = 40 * time.Second
	tick     = 20 * time.Millisecond
)

// world is the set of API servers that all tests of this package share. Tests use namespaces of their own.
type world struct {
	meta, tenant client.Client
	// metaWatch and tenantWatch are meta and tenant, and watch.
	metaWatch, tenantWatch client.WithWatch
	supers                 map[string]client.Client // by super cluster id
	options                *app.Options
	key                    string
}

// shared is set once by TestMain, before any test runs.
var shared *world

func TestMain(m *testing.M) {
	ctrl.SetLogger(klog.Background())
	if isProgram, err := runProgram(context.Background()); isProgram {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	w, stop, err := newWorld(context.Background())
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, "starting the test's control planes:", err)
	} else {
		shared = w
		code = m.Run()
	}
	stop()
	os.Exit(code)
}

func newWorld(ctx context.Context) (*world, func(), error) {
	crds, err := controlplane.MetaCRDs(ctx)
	if err != nil {
		return nil, func() {}, err
	}
	// No kube-controller-manager fills the status of quotas here, makes service accounts, or takes taints off Nodes.
	without := []string{"ResourceQuota", "ServiceAccount", "TaintNodesByCondition"}
	schedulerPlugins, err := modcache.Dir(ctx, "sigs.k8s.io/scheduler-plugins")
	if err != nil {
		return nil, func() {}, err
	}
	other := controlplane.Options{DisableAdmission: without}
	started, stop, err := controlplane.Start(controlplane.Options{CRDs: crds, DisableAdmission: without},
		controlplane.Options{CRDs: []string{podGroupCRD(schedulerPlugins)}, DisableAdmission: without}, other, other)
	if err != nil {
		return nil, stop, err
	}
	w := &world{supers: map[string]client.Client{}}
	return w, stop, w.populate(ctx, started[0], started[1], map[string]*controlplane.ControlPlane{"r1": started[2], "r2": started[3]})
}

func (w *world) populate(ctx context.Context, meta, tenant *controlplane.ControlPlane, supers map[string]*controlplane.ControlPlane) error {
	var err error
	if w.metaWatch, err = client.NewWithWatch(meta.Config, client.Options{Scheme: controlplane.Scheme()}); err != nil {
		return err
	}
	w.meta = w.metaWatch
	if w.tenantWatch, err = client.NewWithWatch(tenant.Config, client.Options{Scheme: controlplane.Scheme()}); err != nil {
		return err
	}
	w.tenant = w.tenantWatch
	dir, err := os.MkdirTemp("", "superpool")
	if err != nil {
		return err
	}
	w.options = app.NewOptions()
	w.options.Kubeconfig = filepath.Join(dir, "meta.kubeconfig")
	w.options.LeaderElect = false
	w.options.QuotaGrace = 3 * time.Second
	w.options.MetricsBindAddress, w.options.HealthProbeBindAddress = "0", "0"
	account, err := controlplane.Account(ctx, meta, "base/vc-scheduler-rbac.yaml", "vc-manager", "vc-scheduler")
	if err != nil {
		return err
	}
	if err := os.WriteFile(w.options.Kubeconfig, account.KubeConfig, 0o600); err != nil {
		return err
	}
	for id, super := range supers {
		if err := w.superCluster(ctx, id, super); err != nil {
			return err
		}
	}
	if err := w.meta.Create(ctx, builders.KubeconfigSecret("tenant", tenant.KubeConfig)); err != nil {
		return err
	}
	return w.meta.Create(ctx, builders.VirtualCluster("tenant"))
}

// superCluster makes a super cluster of one node with 100 cores, and registers it.
func (w *world) superCluster(ctx context.Context, id string, super *controlplane.ControlPlane) error {
	c, err := client.New(super.Config, client.Options{Scheme: controlplane.Scheme()})
	if err != nil {
		return err
	}
	w.supers[id] = c
	if err := controlplane.Create(ctx, c, builders.SuperClusterInfo(id)); err != nil {
		return err
	}
	if err := controlplane.CreateNode(ctx, c, builders.Node("n1", "cpu", "100", "memory", "100Gi", "pods", "1000").Obj()); err != nil {
		return err
	}
	return controlplane.Create(ctx, w.meta, builders.KubeconfigSecret(id+"-kubeconfig", super.KubeConfig), builders.Cluster(id))
}

// run runs vc-scheduler until the returned function is called, or the test ends.
func (w *world) run(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- app.Run(ctx, w.options) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			require.NoError(t, <-done)
		})
	}
	t.Cleanup(stop)
	vc := &tenancyv1alpha1.VirtualCluster{}
	require.Eventually(t, func() bool {
		if err := w.meta.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: "tenant"}, vc); err != nil {
			return false
		}
		w.key = vc.Status.ClusterNamespace
		if !w.superClustersReady(t) {
			return false
		}
		for i := range vc.Status.Conditions {
			if vc.Status.Conditions[i].Type == tenancyv1alpha1.ConditionReady && vc.Status.Conditions[i].Status == metav1.ConditionTrue {
				return true
			}
		}
		return false
	}, patience, tick, "the tenant becomes ready")
	return stop
}

func (w *world) superClustersReady(t *testing.T) bool {
	for id := range w.supers {
		node := &corev1.Node{}
		if err := w.meta.Get(t.Context(), types.NamespacedName{Name: id}, node); err != nil || node.Status.Allocatable.Cpu().IsZero() {
			return false
		}
	}
	return true
}

// namespace makes a tenant namespace, with a slice annotation unless slice is "".
func (w *world) namespace(t *testing.T, name, slice string) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if slice != "" {
		namespace.Annotations = map[string]string{schedulerv1alpha1.AnnotationSlice: slice}
	}
	require.NoError(t, w.tenant.Create(t.Context(), namespace))
}

// quota sets the namespace's ResourceQuota.
func (w *world) quota(t *testing.T, namespace, cpu, memory string) {
	t.Helper()
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "quota"}}
	err := w.tenant.Get(t.Context(), client.ObjectKeyFromObject(quota), quota)
	quota.Spec.Hard = builders.Resources("cpu", cpu, "memory", memory)
	if apierrors.IsNotFound(err) {
		require.NoError(t, w.tenant.Create(t.Context(), quota))
		return
	}
	require.NoError(t, err)
	require.NoError(t, w.tenant.Update(t.Context(), quota))
}

// annotate sets an annotation of a tenant namespace.
func (w *world) annotate(t *testing.T, name, key, value string) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value)
	require.NoError(t, w.tenant.Patch(t.Context(), namespace, client.RawPatch(types.MergePatchType, []byte(patch))))
}

func (w *world) shown(t *testing.T, name string) string {
	t.Helper()
	namespace := &corev1.Namespace{}
	require.NoError(t, w.tenant.Get(t.Context(), types.NamespacedName{Name: name}, namespace))
	return namespace.Annotations[schedulerv1alpha1.AnnotationPlacements]
}

// wantShown waits until a namespace shows one of the placements given.
func (w *world) wantShown(t *testing.T, name string, want ...string) {
	t.Helper()
	require.Eventually(t, func() bool { return slices.Contains(want, w.shown(t, name)) }, patience, tick, "placements of %s: want %s", name, want)
}

// wantEvent waits for an Event about an object of the tenant control plane.
func (w *world) wantEvent(t *testing.T, kind, name, reason string) {
	t.Helper()
	require.Eventually(t, func() bool { return w.hasEvent(t, kind, name, reason) }, patience, tick, "an Event %s on %s %s", reason, kind, name)
}

// hasEvent says whether there is an Event about an object of the tenant control plane. name is namespace/name for one
// whose namespace matters: the Event lies there too.
func (w *world) hasEvent(t *testing.T, kind, name, reason string) bool {
	t.Helper()
	events := &corev1.EventList{}
	require.NoError(t, w.tenant.List(t.Context(), events))
	for i := range events.Items {
		event := &events.Items[i]
		of := event.InvolvedObject.Name
		if strings.Contains(name, "/") {
			of = event.Namespace + "/" + of
		}
		if event.InvolvedObject.Kind == kind && of == name && event.Reason == reason {
			return true
		}
	}
	return false
}

func (w *world) pod(t *testing.T, namespace, name string, change ...func(*corev1.Pod)) *corev1.Pod {
	t.Helper()
	pod := builders.Pod(namespace, name, "cpu", "100m", "memory", "100Mi").Obj()
	for _, f := range change {
		f(pod)
	}
	require.NoError(t, w.tenant.Create(t.Context(), pod))
	return pod
}

// wantPod waits until a pod looks as wanted.
func (w *world) wantPod(t *testing.T, pod *corev1.Pod, what string, good func(*corev1.Pod) bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		require.NoError(t, w.tenant.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
		return good(pod)
	}, patience, tick, "pod %s: want %s", pod.Name, what)
}

func in(superCluster string) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool {
		return pod.Annotations[schedulerv1alpha1.AnnotationSuperCluster] == superCluster && pod.Labels[schedulerv1alpha1.LabelSuperCluster] == superCluster
	}
}
