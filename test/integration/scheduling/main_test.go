// Package scheduling tests vc-scheduler, the whole program, on real API servers: a meta cluster whose virtual Nodes the
// test writes, and a tenant control plane.
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
)

const (
	patience = 40 * time.Second
	tick     = 20 * time.Millisecond
)

// world is the set of API servers that all tests of this package share. Tests use namespaces of their own.
type world struct {
	meta, tenant client.Client
	options      *app.Options
	key          string
}

// shared is set once by TestMain, before any test runs.
var shared *world

func TestMain(m *testing.M) {
	ctrl.SetLogger(klog.Background())
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
	crds, err := controlplane.SuperpoolCRDs()
	if err != nil {
		return nil, func() {}, err
	}
	// No kube-controller-manager fills the status of quotas here, or makes service accounts.
	without := []string{"ResourceQuota", "ServiceAccount"}
	started, stop, err := controlplane.Start(controlplane.Options{CRDs: []string{crds}, DisableAdmission: without}, controlplane.Options{DisableAdmission: without})
	if err != nil {
		return nil, stop, err
	}
	w := &world{}
	return w, stop, w.populate(ctx, started[0], started[1])
}

func (w *world) populate(ctx context.Context, meta, tenant *controlplane.ControlPlane) error {
	var err error
	if w.meta, err = client.New(meta.Config, client.Options{Scheme: controlplane.Scheme()}); err != nil {
		return err
	}
	if w.tenant, err = client.New(tenant.Config, client.Options{Scheme: controlplane.Scheme()}); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "superpool")
	if err != nil {
		return err
	}
	w.options = app.NewOptions()
	w.options.Kubeconfig = filepath.Join(dir, "meta.kubeconfig")
	w.options.LeaderElect = false
	w.options.MetricsBindAddress, w.options.HealthProbeBindAddress = "0", "0"
	account, err := controlplane.Account(ctx, meta, "vc-scheduler-rbac.yaml", "vc-scheduler")
	if err != nil {
		return err
	}
	if err := os.WriteFile(w.options.Kubeconfig, account.KubeConfig, 0o600); err != nil {
		return err
	}
	for _, cluster := range []string{"r1", "r2"} {
		if err := w.virtualNode(ctx, cluster); err != nil {
			return err
		}
	}
	if err := w.meta.Create(ctx, builders.KubeconfigSecret("tenant", tenant.KubeConfig)); err != nil {
		return err
	}
	return w.meta.Create(ctx, builders.VirtualCluster("tenant"))
}

// virtualNode writes what vc-scheduler would publish for a super cluster of 100 cores. The taint that the API server's
// admission puts on a new Node is taken off, as kube-controller-manager would.
func (w *world) virtualNode(ctx context.Context, name string) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{schedulerv1alpha1.LabelVirtualNode: name}}}
	if err := w.meta.Create(ctx, node); err != nil {
		return err
	}
	node.Spec.Taints = []corev1.Taint{{Key: schedulerv1alpha1.TaintProvider, Value: schedulerv1alpha1.TaintProviderValue, Effect: corev1.TaintEffectNoSchedule}}
	if err := w.meta.Update(ctx, node); err != nil {
		return err
	}
	node.Status.Allocatable = builders.Resources("cpu", "100", "memory", "100Gi")
	node.Status.Capacity = node.Status.Allocatable
	return w.meta.Status().Update(ctx, node)
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
		for i := range vc.Status.Conditions {
			if vc.Status.Conditions[i].Type == tenancyv1alpha1.ConditionReady && vc.Status.Conditions[i].Status == metav1.ConditionTrue {
				return true
			}
		}
		return false
	}, patience, tick, "the tenant becomes ready")
	return stop
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
