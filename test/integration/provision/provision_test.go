// Package provision tests on a real meta cluster that vc-manager makes control planes which work: what their pods say is
// run as processes.
package provision

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/cmd/vc-manager/app"
	"github.com/superpool/superpool/test/controlplane"
)

const (
	patience = 2 * time.Minute
	tick     = 100 * time.Millisecond
	root     = "default-abc123-acme"
)

// world is a meta cluster with vc-manager, and one control plane.
type world struct {
	client client.Client
	vc     *tenancyv1alpha1.VirtualCluster
	pods   *pods
}

// newWorld returns a world whose certificates are valid for so long, when all parts of the control plane are whole.
func newWorld(t *testing.T, validity time.Duration) *world {
	t.Helper()
	crds, err := controlplane.MetaCRDs(t.Context())
	require.NoError(t, err)
	started, stop, err := controlplane.Start(controlplane.Options{Role: controlplane.Meta, CRDs: crds, DisableAdmission: []string{"ServiceAccount"}})
	t.Cleanup(stop)
	require.NoError(t, err)
	c, err := client.New(started[0].Config, client.Options{Scheme: controlplane.Scheme()})
	require.NoError(t, err)
	account, err := controlplane.Account(t.Context(), started[0], "vc-manager/rbac.yaml", "vc-manager", "vc-manager")
	require.NoError(t, err)
	options := app.NewOptions()
	options.Kubeconfig = filepath.Join(t.TempDir(), "meta.kubeconfig")
	require.NoError(t, os.WriteFile(options.Kubeconfig, account.KubeConfig, 0o600))
	options.MetricsBindAddress, options.HealthProbeBindAddress, options.CertificateValidity = "0", "0", validity
	ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- app.Run(ctx, options) }()
	t.Cleanup(func() { end(); require.NoError(t, <-ended) })

	version := &tenancyv1alpha1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "v1.37"}, Spec: tenancyv1alpha1.ClusterVersionSpec{
		KubernetesVersion: "v1.37.2", Etcd: tenancyv1alpha1.ComponentTemplate{Image: "etcd"}, APIServer: tenancyv1alpha1.ComponentTemplate{Image: "kube-apiserver"},
		ControllerManager: tenancyv1alpha1.ComponentTemplate{Image: "kube-controller-manager"},
	}}
	vc := &tenancyv1alpha1.VirtualCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "acme"}, Spec: tenancyv1alpha1.VirtualClusterSpec{
		ClusterVersionName: "v1.37", ServiceCIDRs: []string{"10.97.0.0/16"},
	}}
	for _, object := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: root}}, vc, version} {
		require.NoError(t, c.Create(t.Context(), object))
	}
	vc.Status.ClusterNamespace = root // as vc-scheduler says, when it has made the root namespace
	require.NoError(t, c.Status().Update(t.Context(), vc))
	w := &world{client: c, vc: vc, pods: newPods(t, c, root, filepath.Join("..", "..", "..", "bin"))}
	w.pods.run(t)
	t.Cleanup(func() {
		if t.Failed() {
			for _, condition := range w.vc.Status.Conditions {
				t.Logf("%s is %s: %s: %s", condition.Type, condition.Status, condition.Reason, condition.Message)
			}
		}
	})
	require.Eventually(t, func() bool {
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(vc), vc))
		return meta.IsStatusConditionTrue(vc.Status.Conditions, tenancyv1alpha1.ConditionUpToDate)
	}, patience, tick, "all parts are whole")
	return w
}

// current returns the VirtualCluster as it is.
func (w *world) current(t *testing.T) *tenancyv1alpha1.VirtualCluster {
	t.Helper()
	vc := &tenancyv1alpha1.VirtualCluster{}
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKeyFromObject(w.vc), vc))
	return vc
}

// tenant returns the administrator's client of the control plane, by the kubeconfig as it is now.
func (w *world) tenant(t *testing.T) kubernetes.Interface {
	t.Helper()
	secret := &corev1.Secret{}
	require.NoError(t, w.client.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: "acme-kubeconfig"}, secret))
	config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["value"])
	require.NoError(t, err)
	require.Equal(t, "https://kube-apiserver."+root+".svc:6443", config.Host)
	config.Host = w.pods.url()
	tenant, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return tenant
}

// TestAControlPlane: two objects make a control plane that works: its administrator is known to it, and its controllers
// work in it. Its certificates are renewed while a watch is held, and nothing is restarted or broken by it.
func TestAControlPlane(t *testing.T) {
	w := newWorld(t, 30*time.Second)
	tenant := w.tenant(t)
	require.Eventually(t, func() bool {
		_, err := tenant.CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil
	}, patience, tick, "the controller manager makes the service account of a namespace")
	service, err := tenant.CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "10.97.0.1", service.Spec.ClusterIP)

	for _, change := range []func(*tenancyv1alpha1.VirtualClusterSpec){
		func(spec *tenancyv1alpha1.VirtualClusterSpec) { spec.ServiceCIDRs = []string{"10.98.0.0/16"} },
		func(spec *tenancyv1alpha1.VirtualClusterSpec) { spec.ServiceCIDRs = nil },
		func(spec *tenancyv1alpha1.VirtualClusterSpec) { spec.ClusterDomain = "acme.local" },
	} {
		other := w.current(t)
		change(&other.Spec)
		require.ErrorContains(t, w.client.Update(t.Context(), other), "serviceCIDRs and clusterDomain of a control plane that is provisioned cannot change")
	}
	other := w.current(t)
	other.Spec.PolicyName = "trusted"
	require.NoError(t, w.client.Update(t.Context(), other))

	held, err := tenant.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=behind"})
	require.NoError(t, err)
	t.Cleanup(held.Stop)
	before := w.pods.shown(t)
	require.Eventually(t, func() bool {
		for port, serial := range w.pods.shown(t) {
			if serial == before[port] {
				return false
			}
		}
		return true
	}, patience, tick, "API server and etcd show other certificates")
	_, err = w.tenant(t).CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "behind"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	select {
	case event, open := <-held.ResultChan():
		require.True(t, open, "the watch goes on")
		require.Equal(t, watch.Added, event.Type)
	case <-time.After(patience):
		t.Fatal("the watch says nothing")
	}
	for name, process := range w.pods.running {
		require.False(t, process.Ended(), name)
	}
}
