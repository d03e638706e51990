package syncer_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/manifests/policies"
	"github.com/superpool/superpool/test/await"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/controlplane"
)

// TestSingle runs the syncer without a pool, with the rights of manifests/single: whatever two tenants have runs in the
// cluster that holds their VirtualClusters, without a ResourceQuota or a choice of a super cluster, and goes with them.
func TestSingle(t *testing.T) {
	crds, err := controlplane.SuperpoolCRDs()
	require.NoError(t, err)
	without := []string{"ResourceQuota"} // nobody fills the status of quotas
	started, stop, err := controlplane.Start(
		controlplane.Options{Role: controlplane.Super, CRDs: []string{crds}, DisableAdmission: without, ServiceClusterIPRange: superServices},
		controlplane.Options{Role: controlplane.Tenant, DisableAdmission: without, ServiceClusterIPRange: tenantServices},
		controlplane.Options{Role: controlplane.Tenant, DisableAdmission: without, ServiceClusterIPRange: tenantServices},
	)
	t.Cleanup(stop)
	require.NoError(t, err)
	var clients [3]client.Client
	for i := range clients {
		clients[i], err = client.New(started[i].Config, client.Options{Scheme: controlplane.Scheme()})
		require.NoError(t, err)
	}
	super := clients[0]
	create(t, super, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "supercluster-info"}, Data: map[string]string{"id": "single"}})
	shipped := &tenancyv1alpha1.TenantPolicy{}
	require.NoError(t, yaml.UnmarshalStrict(policies.Default, shipped))
	shipped.Spec.Limits.Reserved = builders.Resources("cpu", "2")
	create(t, super, shipped)
	var vcs [2]*tenancyv1alpha1.VirtualCluster
	for i := range vcs {
		name := fmt.Sprintf("vc-%d", i+1)
		create(t, super, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string][]byte{"value": started[i+1].KubeConfig}})
		vcs[i] = &tenancyv1alpha1.VirtualCluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec:       tenancyv1alpha1.VirtualClusterSpec{KubeconfigSecretRef: &tenancyv1alpha1.SecretKeyRef{Name: name}},
		}
		create(t, super, vcs[i])
	}
	restart := runSingle(t, started[0])
	for i := range vcs {
		appears(t, super, "default", vcs[i].Name, vcs[i], func(vc *tenancyv1alpha1.VirtualCluster) bool {
			return meta.IsStatusConditionTrue(vc.Status.Conditions, tenancyv1alpha1.ConditionReady)
		})
	}

	// The same names in both tenants.
	var worlds [2]*world
	for i := range worlds {
		worlds[i] = &world{tenant: clients[i+1], super: super, key: vcs[i].Status.ClusterNamespace}
		create(t, worlds[i].tenant, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web"}})
		create(t, worlds[i].tenant, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "default"}})
		pod := newPod("web", "web-1")
		pod.Labels = map[string]string{"tenant": vcs[i].Name}
		create(t, worlds[i].tenant, pod)
	}
	for i, w := range worlds {
		quota := appears(t, super, tenancy.SuperNamespace(w.key, "web"), "superpool", &corev1.ResourceQuota{}, func(quota *corev1.ResourceQuota) bool {
			return !quota.Spec.Hard.Name("requests.memory", "").IsZero()
		})
		require.Equal(t, "2", quota.Spec.Hard.Name("requests.cpu", "").String(), "limits.reserved bounds each namespace")
		pod := w.runSuper(t, "web", "web-1", "n1")
		require.Contains(t, pod.Labels, "tenant")
		require.Equal(t, vcs[i].Name, pod.Labels["tenant"])
		appears(t, w.tenant, "web", "web-1", &corev1.Pod{}, func(pod *corev1.Pod) bool {
			return pod.Spec.NodeName == "single.n1" && pod.Status.Phase == corev1.PodRunning && pod.Status.PodIP == "10.1.2.3"
		})
	}

	// Nothing of what runs is lost when the syncer is killed.
	restart()

	// A namespace that the tenant deletes goes, that of the other stays.
	first, second := worlds[0], worlds[1]
	require.NoError(t, first.tenant.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "web-1"}}, client.GracePeriodSeconds(0)))
	ending := appears(t, super, tenancy.SuperNamespace(first.key, "web"), "web-1", &corev1.Pod{}, func(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil })
	require.NoError(t, super.Delete(t.Context(), ending, client.GracePeriodSeconds(0))) // as the kubelet does
	require.NoError(t, first.tenant.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web"}}))
	release(t, first.tenant, "web", "")
	release(t, super, tenancy.SuperNamespace(first.key, "web"), "")
	require.NoError(t, super.Get(t.Context(), types.NamespacedName{Namespace: tenancy.SuperNamespace(second.key, "web"), Name: "web-1"}, &corev1.Pod{}))

	// With its VirtualCluster goes all that a tenant had.
	require.NoError(t, super.Delete(t.Context(), vcs[1]))
	for _, name := range append(superNamespaces(t, super, second.key), second.key) {
		release(t, super, name, "")
	}
	vanishes(t, super, "default", vcs[1].Name, vcs[1])
	require.NotEmpty(t, superNamespaces(t, super, first.key), "those of the other tenant stay")
}

// superNamespaces returns the names of a tenant's super namespaces.
func superNamespaces(t *testing.T, super client.Client, key string) (names []string) {
	t.Helper()
	var list corev1.NamespaceList
	require.NoError(t, super.List(t.Context(), &list))
	for i := range list.Items {
		if owner, owned := tenancy.GetOwner(&list.Items[i]); owned && owner.ClusterKey == key {
			names = append(names, list.Items[i].Name)
		}
	}
	return names
}

// runSuper plays scheduler and kubelet of the cluster for a pod of a tenant.
func (w *world) runSuper(t *testing.T, namespace, name, node string) *corev1.Pod {
	t.Helper()
	w.addNode(t, node)
	pod := appears(t, w.super, tenancy.SuperNamespace(w.key, namespace), name, &corev1.Pod{}, nil)
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: node}}
	require.NoError(t, w.super.SubResource("binding").Create(t.Context(), pod, binding))
	await.Change(t, w.super, pod, func(pod *corev1.Pod) {
		pod.Status.Phase = corev1.PodRunning
		pod.Status.PodIP, pod.Status.PodIPs = "10.1.2.3", []corev1.PodIP{{IP: "10.1.2.3"}}
	}, "status")
	return pod
}

// runSingle runs the program syncer without a pool, with the rights of manifests/single, and returns how to kill it and
// start it again. It ends with the test.
func runSingle(t *testing.T, super *controlplane.ControlPlane) (restart func()) {
	t.Helper()
	_, err := controlplane.Account(t.Context(), super, "supercluster/syncer.yaml", "superpool-system", "syncer")
	require.NoError(t, err)
	account, err := controlplane.Account(t.Context(), super, "single/rbac.yaml", "superpool-system", "syncer")
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(file, account.KubeConfig, 0o600))
	return startSingle(t, file)
}

// startSingle is runSingle with a kubeconfig file.
func startSingle(t *testing.T, file string) (restart func()) {
	t.Helper()
	var process *exec.Cmd
	kill := func() {
		require.NoError(t, process.Process.Kill())
		_ = process.Wait() // it was killed
	}
	start := func() {
		process = exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0])
		process.Env = append(os.Environ(), singleKubeconfig+"="+file)
		process.Stderr = t.Output()
		require.NoError(t, process.Start())
	}
	start()
	t.Cleanup(func() { kill() })
	return func() { kill(); start() }
}
