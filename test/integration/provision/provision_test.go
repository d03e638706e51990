// Package provision tests on a real meta cluster that vc-manager makes control planes which work: the controllers of the
// meta cluster make their pods, and what these say is run as processes.
package provision

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	controlplaneof "github.com/superpool/superpool/internal/controlplane"
	"github.com/superpool/superpool/test/controlplane"
	"github.com/superpool/superpool/test/controlplane/launch"
)

const (
	patience = 4 * time.Minute
	tick     = 100 * time.Millisecond
	root     = "default-abc123-acme"
	// asManager is the variable that makes the test's own program vc-manager: it can be killed, and started again.
	asManager = "SUPERPOOL_TEST_VC_MANAGER"
)

// world is a meta cluster with vc-manager, and one control plane.
type world struct {
	client  client.Client
	kubelet *kubelet
	agent   *agent
	// start starts vc-manager.
	start   func() (*launch.Process, error)
	manager *launch.Process
	// metrics is the address of its metrics.
	metrics string
	// admin is the file of the administrator's kubeconfig of the meta cluster.
	admin string
	// asManager and asScheduler have the rights that are shipped.
	asManager, asScheduler client.Client
}

// newWorld returns a world whose certificates are valid for so long, and whose control plane is not made yet. It applies
// files with kubectl; without any it makes a ClusterVersion in the short form.
func newWorld(t *testing.T, validity time.Duration, files ...string) *world {
	t.Helper()
	crds, err := controlplane.MetaCRDs(t.Context())
	require.NoError(t, err)
	started, stop, err := controlplane.Start(controlplane.Options{Role: controlplane.Meta, CRDs: crds, Manager: true, DisableAdmission: []string{"ServiceAccount"}})
	t.Cleanup(stop)
	require.NoError(t, err)
	c, err := client.New(started[0].Config, client.Options{Scheme: controlplane.Scheme()})
	require.NoError(t, err)
	account, err := controlplane.Account(t.Context(), started[0], "vc-manager/rbac.yaml", "vc-manager", "vc-manager")
	require.NoError(t, err)
	require.NoError(t, controlplane.Apply(t.Context(), started[0], "base/vc-manager-grants.yaml", "vc-manager/policy.yaml"))
	folder, err := filepath.Abs(filepath.Join("..", "..", "..", "bin"))
	require.NoError(t, err)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.77.0.2:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	w := &world{metrics: listener.Addr().String(), client: c, kubelet: newKubelet(t, c, root, folder), agent: newAgent(t, c), admin: filepath.Join(t.TempDir(), "admin.kubeconfig")}
	require.NoError(t, os.WriteFile(w.admin, started[0].KubeConfig, 0o600))
	w.asManager, err = client.New(account.Config, client.Options{Scheme: controlplane.Scheme()})
	require.NoError(t, err)
	w.grant(t, started[0])
	kubeconfig := filepath.Join(t.TempDir(), "meta.kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, account.KubeConfig, 0o600))
	w.start = func() (*launch.Process, error) {
		return launch.Run(w.kubelet.folder, "vc-manager", []string{
			"/usr/bin/env", asManager + "=1", "HTTPS_PROXY=" + w.kubelet.network, os.Args[0], "--kubeconfig=" + kubeconfig, "--certificate-validity=" + validity.String(), "--base-cluster-version=base",
			"--metrics-bind-address=" + w.metrics, "--metrics-secure=false",
		})
	}
	w.manager, err = w.start()
	require.NoError(t, err)
	t.Cleanup(func() {
		w.manager.Kill()
		if t.Failed() {
			log, _ := os.ReadFile(w.manager.Log)
			t.Logf("vc-manager:\n%s", log[max(0, len(log)-4000):])
			for _, condition := range w.current(t).Status.Conditions {
				t.Logf("%s is %s: %s: %s", condition.Type, condition.Status, condition.Reason, condition.Message)
			}
		}
	})

	version := &tenancyv1alpha1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "v1.37"}, Spec: tenancyv1alpha1.ClusterVersionSpec{
		KubernetesVersion: "v1.37.2", Etcd: tenancyv1alpha1.ComponentTemplate{Image: "etcd"}, APIServer: tenancyv1alpha1.ComponentTemplate{Image: "kube-apiserver"},
		ControllerManager: tenancyv1alpha1.ComponentTemplate{Image: "kube-controller-manager"},
	}}
	vc := &tenancyv1alpha1.VirtualCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "acme"}, Spec: tenancyv1alpha1.VirtualClusterSpec{
		ClusterVersionName: "v1.37", ServiceCIDRs: []string{"10.97.0.0/16"},
	}}
	if len(files) > 0 {
		version.Name = "base"
	}
	require.NoError(t, c.Create(t.Context(), version))
	if len(files) == 0 {
		require.NoError(t, c.Create(t.Context(), vc))
	}
	for _, file := range files {
		said, err := exec.CommandContext(t.Context(), filepath.Join(folder, "kubectl"), "--kubeconfig", w.admin, "apply", "--validate=strict", "-f", file).CombinedOutput()
		require.NoError(t, err, "%s", said)
	}
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(vc), vc))
	require.NoError(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: root, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}, Annotations: map[string]string{
			tenancyv1alpha1.AnnotationRootNamespace: "true", tenancyv1alpha1.AnnotationVirtualClusterUID: string(vc.UID),
		},
	}}))
	vc.Status.ClusterNamespace = root // as vc-scheduler says, when it has made the root namespace
	require.NoError(t, c.Status().Update(t.Context(), vc))
	return w
}

// whole waits until all parts are as they are to be.
func (w *world) whole(t *testing.T, version string) {
	t.Helper()
	require.Eventually(t, func() bool {
		vc := w.current(t)
		upToDate := meta.FindStatusCondition(vc.Status.Conditions, tenancyv1alpha1.ConditionUpToDate)
		return upToDate != nil && upToDate.Status == metav1.ConditionTrue && upToDate.ObservedGeneration == vc.Generation && vc.Status.Version == version
	}, patience, tick, "all parts are whole")
}

// change changes the ClusterVersion.
func (w *world) change(t *testing.T, change func(*tenancyv1alpha1.ClusterVersionSpec)) {
	t.Helper()
	require.NoError(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		version := &tenancyv1alpha1.ClusterVersion{}
		if err := w.client.Get(t.Context(), client.ObjectKey{Name: "v1.37"}, version); err != nil {
			return err
		}
		change(&version.Spec)
		return w.client.Update(t.Context(), version)
	}))
}

// update changes the VirtualCluster, which vc-manager writes, too, and returns what refuses it.
func (w *world) update(t *testing.T, change func(*tenancyv1alpha1.VirtualClusterSpec)) error {
	t.Helper()
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		vc := w.current(t)
		change(&vc.Spec)
		return w.client.Update(t.Context(), vc)
	})
}

// current returns the VirtualCluster as it is.
func (w *world) current(t *testing.T) *tenancyv1alpha1.VirtualCluster {
	t.Helper()
	vc := &tenancyv1alpha1.VirtualCluster{}
	require.NoError(t, w.client.Get(context.WithoutCancel(t.Context()), client.ObjectKey{Namespace: "default", Name: "acme"}, vc))
	return vc
}

// tenant returns the administrator's client of the control plane, by the kubeconfig as it is now.
func (w *world) tenant(t *testing.T) kubernetes.Interface {
	t.Helper()
	tenant, err := kubernetes.NewForConfig(w.tenantConfig(t))
	require.NoError(t, err)
	return tenant
}

// remember writes a ConfigMap into the tenant's control plane. It tries again: an API server that ends here does not wait
// for its requests.
func (w *world) remember(t *testing.T, name string) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, err := w.tenant(t).CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		return err == nil || apierrors.IsAlreadyExists(err)
	}, patience, tick, "%s is written", name)
}

// counts requires that metrics of vc-manager have these lines.
func (w *world) counts(t *testing.T, lines ...string) {
	t.Helper()
	for _, line := range lines {
		require.Eventually(t, func() bool {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+w.metrics+"/metrics", http.NoBody)
			require.NoError(t, err)
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				return false
			}
			defer response.Body.Close() //nolint:errcheck // it is read
			body, err := io.ReadAll(response.Body)
			return err == nil && strings.Contains(string(body), line)
		}, patience, tick, line)
	}
}

// TestAControlPlane: two objects make a control plane that works: its administrator is known to it, its controllers work
// in it, and vn-agents know it. Its certificates are renewed while a watch is held, and nothing is restarted or broken by it. Its tenant is
// paused, and goes on with what it had. Then it is deleted, and nothing is left.
func TestAControlPlane(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 30*time.Second, filepath.Join("..", "..", "..", "internal", "controlplane", "testdata", "bundles.yaml"))
	w.whole(t, "v1.37.2")
	tenant := w.tenant(t)
	require.Eventually(t, func() bool {
		_, err := tenant.CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil
	}, patience, tick, "the controller manager makes the service account of a namespace")
	service, err := tenant.CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "10.97.0.1", service.Spec.ClusterIP)
	translated := meta.FindStatusCondition(w.current(t).Status.Conditions, tenancyv1alpha1.ConditionTranslated)
	require.NotNil(t, translated)
	require.Equal(t, tenancyv1alpha1.ReasonLeftOut, translated.Reason)
	require.Contains(t, translated.Message, "etcd: image virtualcluster/etcd-v3.4.0 (etcd runs)")
	w.requireLogs(t)

	for _, change := range []func(*tenancyv1alpha1.VirtualClusterSpec){
		func(spec *tenancyv1alpha1.VirtualClusterSpec) { spec.ServiceCIDR = "10.98.0.0/16" },
		func(spec *tenancyv1alpha1.VirtualClusterSpec) { spec.ServiceCIDR = "" },
		func(spec *tenancyv1alpha1.VirtualClusterSpec) { spec.ClusterDomain = "acme.local" },
	} {
		require.ErrorContains(t, w.update(t, change), "serviceCIDRs and clusterDomain of a control plane that is provisioned cannot change")
	}
	require.WithinDuration(t, time.Now().Add(365*24*time.Hour), w.current(t).Status.CertificatesExpire.Time, time.Hour)
	w.counts(t, `vc_manager_virtual_clusters{condition="UpToDate",status="True"} 1`, "\nvc_manager_certificates_expire_timestamp_seconds 1.")
	require.NoError(t, w.update(t, func(spec *tenancyv1alpha1.VirtualClusterSpec) { spec.PolicyName, spec.PKIExpireDays = "trusted", 0 }))
	version := &tenancyv1alpha1.ClusterVersion{}
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKey{Name: "v1.37"}, version))
	w.refusesTimes(t)
	version.Spec.Etcd.Replicas = 2
	require.ErrorContains(t, w.client.Update(t.Context(), version), "etcd has 1 replica or 3")

	held, err := tenant.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=behind"})
	require.NoError(t, err)
	t.Cleanup(held.Stop)
	var before map[string]string
	require.Eventually(t, func() bool {
		before, err = w.kubelet.shown(t.Context())
		return err == nil
	}, patience, tick, "API server and etcd show certificates")
	pids := w.kubelet.pids()
	require.Eventually(t, func() bool {
		now, err := w.kubelet.shown(t.Context())
		if err != nil {
			return false
		}
		for name, serial := range now {
			if serial == before[name] {
				return false
			}
		}
		return true
	}, patience, tick, "API server and etcd show other certificates")
	w.remember(t, "behind")
	select {
	case event, open := <-held.ResultChan():
		require.True(t, open, "the watch goes on")
		require.Equal(t, watch.Added, event.Type)
	case <-time.After(patience):
		t.Fatal("the watch says nothing")
	}
	require.Equal(t, pids, w.kubelet.pids(), "nothing was restarted")

	w.exposes(t)
	w.pauses(t)
	w.whole(t, "v1.37.2")
	w.remembers(t, "behind")
	w.ends(t)
}

// ends deletes the VirtualCluster and, as vc-scheduler does, its root namespace: nothing of vc-manager is left anywhere.
func (w *world) ends(t *testing.T) {
	t.Helper()
	require.NoError(t, w.client.Delete(t.Context(), w.current(t)))
	require.NoError(t, w.client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: root}}))
	require.Eventually(t, func() bool {
		return apierrors.IsNotFound(w.client.Get(t.Context(), client.ObjectKey{Name: root}, &corev1.Namespace{})) && len(w.kubelet.pids()) == 0
	}, patience, tick, "the root namespace ends, and what ran in it")
	require.Eventually(t, func() bool {
		left := 0
		for _, list := range []client.ObjectList{
			&appsv1.StatefulSetList{}, &appsv1.DeploymentList{}, &corev1.ServiceList{}, &corev1.ConfigMapList{}, &corev1.SecretList{}, &corev1.PodList{},
			&corev1.PersistentVolumeClaimList{}, &networkingv1.NetworkPolicyList{}, &policyv1.PodDisruptionBudgetList{},
		} {
			require.NoError(t, w.client.List(t.Context(), list, client.MatchingLabels{"app.kubernetes.io/managed-by": "vc-manager"}))
			left += meta.LenList(list)
		}
		for _, list := range []client.ObjectList{&rbacv1.RoleList{}, &rbacv1.RoleBindingList{}} {
			require.NoError(t, w.client.List(t.Context(), list, client.MatchingLabels{"app.kubernetes.io/part-of": "superpool"}))
			left += meta.LenList(list)
		}
		return left == 0
	}, patience, tick, "nothing that vc-manager made is left, nor what it was granted")
}

// TestTakenArguments: the programs have all arguments that are taken over from a ClusterVersion which is written as
// StatefulSets.
func TestTakenArguments(t *testing.T) {
	t.Parallel()
	for program, names := range controlplaneof.TakenArguments() {
		said, err := exec.CommandContext(t.Context(), filepath.Join("..", "..", "..", "bin", program), "--help").CombinedOutput()
		require.NoError(t, err, "%s", said)
		for _, name := range names {
			require.Regexp(t, `--`+name+`([^-\w]|$)`, string(said), program)
		}
	}
}

// refuses requires that the meta cluster refuses exposures that mean nothing, and says why.
func (w *world) refuses(t *testing.T) {
	t.Helper()
	for want, wrong := range map[string]*tenancyv1alpha1.Exposure{
		"NodePort needs hosts":                   {Type: corev1.ServiceTypeNodePort},
		"port is that of the first of hosts":     {Port: 443},
		"nodePort is of type NodePort":           {NodePort: 30123},
		"loadBalancerClass is of type":           {LoadBalancerClass: "example.com/internal"},
		"in lower case, or addresses":            {Hosts: []string{"acme.example.com:443"}},
		"supported values: ":                     {Type: corev1.ServiceTypeExternalName},
		"spec.exposure.port in body should be":   {Hosts: []string{"acme.example.com"}, Port: 70000},
		"spec.exposure.hosts: Too many: 9":       {Hosts: slices.Repeat([]string{"acme.example.com"}, 9)},
		"exposure is of a control plane that is": nil,
	} {
		if wrong == nil {
			other := &tenancyv1alpha1.VirtualCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "imported"}, Spec: tenancyv1alpha1.VirtualClusterSpec{
				KubeconfigSecretRef: &tenancyv1alpha1.SecretKeyRef{Name: "imported"}, Exposure: &tenancyv1alpha1.Exposure{},
			}}
			require.ErrorContains(t, w.client.Create(t.Context(), other), want)
			continue
		}
		require.ErrorContains(t, w.update(t, func(spec *tenancyv1alpha1.VirtualClusterSpec) { spec.Exposure = wrong }), want)
	}
}

// refusesTimes requires that the meta cluster refuses times of a rotation that mean nothing: one that our programs cannot
// read would keep them from all VirtualClusters.
func (w *world) refusesTimes(t *testing.T) {
	t.Helper()
	imported := &tenancyv1alpha1.VirtualCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "imported"}, Spec: tenancyv1alpha1.VirtualClusterSpec{
		KubeconfigSecretRef: &tenancyv1alpha1.SecretKeyRef{Name: "imported"}, RotateAfter: &metav1.Time{Time: time.Now()},
	}}
	require.ErrorContains(t, w.client.Create(t.Context(), imported), "rotateAfter and distrustAfter are of a control plane that is provisioned")
	now := time.Now()
	require.ErrorContains(t, w.update(t, func(spec *tenancyv1alpha1.VirtualClusterSpec) {
		spec.RotateAfter, spec.DistrustAfter = &metav1.Time{Time: now}, &metav1.Time{Time: now.Add(-time.Hour)}
	}), "set a later one, or remove it")
	for _, field := range []string{"rotateAfter", "distrustAfter"} {
		for _, text := range []string{
			"tomorrow", "2026-12-01", "2026-12-01T22:00:00", "2026-12-01t22:00:00z", "2026-12-01T22:00:00x5Z", "2026-12-01T22:00:00+99:99", "2026-12-01T22:00:00ZT1",
			"2026-12-01 22:00:00Z", "2026-12-01T22:00Z", "2026-12-01T24:00:00Z", "2026-12-01T22:00:00+0100", "1999-12-01T22:00:00Z", "2026-12-01T22:00:60Z", "", "2026-12-01T22:00:00Z",
		} {
			patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec": {%q: %q}}`, field, text))
			vc := &unstructured.Unstructured{}
			vc.SetGroupVersionKind(tenancyv1alpha1.GroupVersion.WithKind("VirtualCluster"))
			vc.SetNamespace("default")
			vc.SetName("acme")
			err := w.client.Patch(t.Context(), vc, patch, client.DryRunAll)
			require.Equal(t, text == "2026-12-01T22:00:00Z", err == nil, "%s: %q: %v", field, text, err)
		}
	}
}

// exposes exposes the API servers at an address, by which they are known at once, and to which Service kubernetes of the
// tenant leads.
func (w *world) exposes(t *testing.T) {
	t.Helper()
	leadsTo := func(url string, addresses []string, port int32) {
		t.Helper()
		require.Eventually(t, func() bool { // an API server that finds its certificate renewed closes all its connections once
			vc, api := w.current(t), w.tenant(t)
			exposed := meta.FindStatusCondition(vc.Status.Conditions, tenancyv1alpha1.ConditionExposed)
			all, err := api.DiscoveryV1().EndpointSlices("default").List(t.Context(), metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=kubernetes"})
			if err != nil || len(all.Items) != 1 { // no controller makes another one of the Endpoints
				return false
			}
			slice := &all.Items[0]
			endpoints, err := api.CoreV1().Endpoints("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
			return err == nil && exposed != nil && exposed.Status == metav1.ConditionTrue && len(endpoints.Subsets) == 1 && vc.Status.Endpoint == url && len(slice.Endpoints) == 1 &&
				slices.Equal(slice.Endpoints[0].Addresses, addresses) && *slice.Ports[0].Port == port &&
				endpoints.Subsets[0].Addresses[0].IP == addresses[0] && endpoints.Subsets[0].Ports[0].Port == port
		}, patience, tick, "Service kubernetes leads to %s", url)
	}
	service := &corev1.Service{}
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKey{Namespace: root, Name: "kube-apiserver"}, service))
	leadsTo("https://kube-apiserver."+root+".svc:6443", service.Spec.ClusterIPs, 6443)

	w.refuses(t)
	expose := func(exposure *tenancyv1alpha1.Exposure) {
		t.Helper()
		require.NoError(t, w.update(t, func(spec *tenancyv1alpha1.VirtualClusterSpec) { spec.Exposure = exposure }))
	}
	expose(&tenancyv1alpha1.Exposure{Type: corev1.ServiceTypeNodePort, Hosts: []string{"192.0.2.7", "acme.example.com"}})
	require.Eventually(t, func() bool {
		require.NoError(t, w.client.Get(t.Context(), client.ObjectKey{Namespace: root, Name: "kube-apiserver"}, service))
		return service.Spec.Type == corev1.ServiceTypeNodePort
	}, patience, tick, "the Service has a node port")
	nodePort := service.Spec.Ports[0].NodePort
	leadsTo(fmt.Sprintf("https://192.0.2.7:%d", nodePort), []string{"192.0.2.7"}, nodePort)

	expose(&tenancyv1alpha1.Exposure{Type: corev1.ServiceTypeLoadBalancer})
	require.Eventually(t, func() bool {
		require.NoError(t, w.client.Get(t.Context(), client.ObjectKey{Namespace: root, Name: "kube-apiserver"}, service))
		return service.Spec.Type == corev1.ServiceTypeLoadBalancer
	}, patience, tick, "the Service asks for a load balancer")
	require.NoError(t, retry.RetryOnConflict(retry.DefaultRetry, func() error { // as what makes load balancers does
		if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(service), service); err != nil {
			return err
		}
		service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.7"}}
		return w.client.Status().Update(t.Context(), service)
	}))
	require.ErrorContains(t, w.update(t, func(spec *tenancyv1alpha1.VirtualClusterSpec) { spec.Exposure.LoadBalancerClass = "example.com/other" }),
		"loadBalancerClass stays while the type is LoadBalancer")
	leadsTo("https://198.51.100.7:6443", []string{"198.51.100.7"}, 6443)

	expose(nil)
	require.Eventually(t, func() bool {
		require.NoError(t, w.client.Get(t.Context(), client.ObjectKey{Namespace: root, Name: "kube-apiserver"}, service))
		return service.Spec.Type == corev1.ServiceTypeClusterIP && service.Spec.Ports[0].NodePort == 0
	}, patience, tick, "the Service is of the meta cluster again")
	leadsTo("https://kube-apiserver."+root+".svc:6443", service.Spec.ClusterIPs, 6443)
}

// pauses pauses the tenant, waits until nothing of its control plane runs, and lets it go on.
func (w *world) pauses(t *testing.T) {
	t.Helper()
	pause := func(paused bool) {
		require.NoError(t, w.update(t, func(spec *tenancyv1alpha1.VirtualClusterSpec) { spec.Paused = paused }))
	}
	says := func(status metav1.ConditionStatus) { // as vc-scheduler does, when the tenant holds nothing any more
		require.NoError(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
			vc := w.current(t)
			meta.SetStatusCondition(&vc.Status.Conditions, metav1.Condition{Type: tenancyv1alpha1.ConditionPaused, Status: status, Reason: "Test"})
			return w.client.Status().Update(t.Context(), vc)
		}))
	}
	pause(true)
	says(metav1.ConditionTrue)
	require.Eventually(t, func() bool {
		upToDate := meta.FindStatusCondition(w.current(t).Status.Conditions, tenancyv1alpha1.ConditionUpToDate)
		return len(w.kubelet.pids()) == 0 && upToDate.Message == "The tenant is paused: nothing of its control plane runs"
	}, patience, tick, "nothing runs")
	pause(false)
	says(metav1.ConditionFalse)
}

// remembers waits until the tenant's control plane has ConfigMaps that were written before.
func (w *world) remembers(t *testing.T, names ...string) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, name := range names {
			if _, err := w.tenant(t).CoreV1().ConfigMaps("default").Get(t.Context(), name, metav1.GetOptions{}); err != nil {
				return false
			}
		}
		return true
	}, patience, tick, "what was written is there")
}

// killed kills vc-manager again and again, and starts it again, until calm is called, which returns how often.
func (w *world) killed(t *testing.T) (calm func() int) {
	t.Helper()
	stop, ended := make(chan struct{}), make(chan struct{})
	times := 0
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			case <-time.After(2*time.Second + time.Duration(times%4)*time.Second):
				w.manager.Kill()
				manager, err := w.start()
				if err != nil {
					t.Error(err)
					return
				}
				w.manager = manager
				times++
			}
		}
	}()
	calm = sync.OnceValue(func() int {
		close(stop)
		<-ended
		return times
	})
	t.Cleanup(func() { calm() })
	return calm
}

// TestStoreOfThree: a store of one member becomes one of three in place, and gets other arguments and another version pod by
// pod, while vc-manager is killed again and again. What was written before is there, also when all pods were deleted at
// once.
func TestStoreOfThree(t *testing.T) {
	t.Parallel()
	w := newWorld(t, time.Hour)
	calm := w.killed(t)
	w.whole(t, "v1.37.2")
	w.remember(t, "of-one")
	w.change(t, func(version *tenancyv1alpha1.ClusterVersionSpec) { version.Etcd.Replicas = 3 })
	require.Eventually(t, func() bool { return len(w.members(t)) == 3 }, patience, tick, "there are three pods")
	w.whole(t, "v1.37.2")
	w.remember(t, "of-three")

	before := w.kubelet.uids()
	w.kubelet.change(func() { w.kubelet.fewest = 3 })
	w.change(t, func(version *tenancyv1alpha1.ClusterVersionSpec) {
		version.KubernetesVersion = "v1.38.0"
		version.Etcd.ExtraArgs, version.APIServer.ExtraArgs = map[string]string{"snapshot-count": "20000"}, map[string]string{"goaway-chance": "0"}
		version.ControllerManager.ExtraArgs = map[string]string{"concurrent-gc-syncs": "10"}
	})
	w.whole(t, "v1.38.0")
	t.Logf("vc-manager was killed %d times", calm())
	w.kubelet.change(func() { require.Equal(t, 2, w.kubelet.fewest, "a majority of etcd ran at any time") })
	require.Eventually(t, func() bool {
		for name, uid := range w.kubelet.uids() {
			if before[name] == uid {
				return false
			}
		}
		return true
	}, patience, tick, "no pod is as it was")
	w.kubelet.change(func() { require.Equal(t, 2, w.kubelet.fewest, "a majority of etcd ran at any time") })
	for name, uid := range w.kubelet.uids() {
		require.NotEqual(t, before[name], uid, "%s is as it was", name)
	}
	w.remember(t, "of-the-next-version")

	for _, name := range w.members(t) {
		require.NoError(t, w.client.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: root, Name: name}}))
	}
	w.remembers(t, "of-one", "of-three", "of-the-next-version")

	calm = w.killed(t)
	w.losesVolume(t, "etcd-1")
	require.Positive(t, calm(), "vc-manager was killed")
	w.whole(t, "v1.38.0")
	w.remembers(t, "of-one", "of-three", "of-the-next-version")

	calm = w.killed(t)
	w.pauses(t)
	w.whole(t, "v1.38.0")
	require.Positive(t, calm(), "vc-manager was killed")
	w.remembers(t, "of-one", "of-three", "of-the-next-version")

	w.change(t, func(version *tenancyv1alpha1.ClusterVersionSpec) { version.Backup = &tenancyv1alpha1.BackupTemplate{} })
	require.Eventually(t, func() bool { return len(w.backups(t)) == 1 }, patience, tick, "there is a backup")
	w.remember(t, "since")
	calm = w.killed(t)
	w.restored(t, w.backups(t)[0].Name, "v1.38.0")
	require.Positive(t, calm(), "vc-manager was killed")
	require.Len(t, w.members(t), 3, "the store is as large as it was")
	w.remembers(t, "of-one", "of-three", "of-the-next-version")
	w.forgot(t, "since")
}

// losesVolume deletes the claim of a member, and its pod, and waits until it is a member again with another one.
func (w *world) losesVolume(t *testing.T, member string) {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKey{Namespace: root, Name: "data-" + member}, claim))
	claims := func() string {
		told := &corev1.ConfigMap{}
		require.NoError(t, w.client.Get(t.Context(), client.ObjectKey{Namespace: root, Name: "etcd"}, told))
		return told.Data["claims"]
	}
	require.Contains(t, claims(), "data-"+member+"="+string(claim.UID))
	require.NoError(t, w.client.Delete(t.Context(), claim))
	require.NoError(t, w.client.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: root, Name: member}}))
	require.Eventually(t, func() bool {
		said := claims()
		return strings.Contains(said, "data-"+member+"=") && !strings.Contains(said, string(claim.UID))
	}, patience, tick, "it is a member with another claim")
	require.Eventually(t, func() bool { return len(w.members(t)) == 3 }, patience, tick, "all members are ready")
}

// members returns the pods of etcd that are ready.
func (w *world) members(t *testing.T) (names []string) {
	t.Helper()
	var list corev1.PodList
	require.NoError(t, w.client.List(t.Context(), &list, client.InNamespace(root)))
	for i := range list.Items {
		pod := &list.Items[i]
		if strings.HasPrefix(pod.Name, "etcd-") && slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
			return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
		}) {
			names = append(names, pod.Name)
		}
	}
	return names
}
