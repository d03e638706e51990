package syncer_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/shards"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/await"
	"github.com/superpool/superpool/test/controlplane"
)

// TestShards: two replicas of a syncer share three tenants. One that is killed leaves its tenants to the other, which
// reads them already, and one that ends hands them over.
func TestShards(t *testing.T) {
	s := newSharing(t, 4)
	first := s.start(t)
	s.write(t, "alone")
	s.synced(t, "alone")

	second := s.start(t)
	s.led(t, 2)
	s.write(t, "shared")
	s.synced(t, "shared")

	// Shards 0 and 1 stayed with the first one.
	require.NoError(t, first.Process.Kill())
	killed := time.Now()
	s.write(t, "killed")
	s.synced(t, "killed")
	t.Logf("all tenants were synced again %s after one of two replicas was killed", time.Since(killed).Round(10*time.Millisecond))
	s.led(t, 1)

	third := s.start(t)
	s.led(t, 2)
	require.NoError(t, second.Process.Signal(syscall.SIGTERM))
	require.NoError(t, second.Wait())
	s.led(t, 1)
	s.write(t, "handed over")
	s.synced(t, "handed over")
	eventually(t, func() error {
		if replicas := s.leases(t, "-replica-"); len(replicas) > 2 { // that of the one that was killed stays for a while
			return fmt.Errorf("%d replicas have a Lease", len(replicas))
		}
		return nil
	})
	require.NoError(t, third.Process.Signal(syscall.SIGTERM))
	require.NoError(t, third.Wait())
	for _, lease := range s.leases(t, "-shard-") {
		require.Empty(t, ptr.Deref(lease.Spec.HolderIdentity, ""), "%s is released", lease.Name)
	}
}

// sharing is a meta cluster, a super cluster, and three tenants with one namespace each, in shards 0, 1 and 2.
type sharing struct {
	world
	count  int
	worlds []*world
	flags  []string
}

func newSharing(t *testing.T, count int) *sharing {
	t.Helper()
	crds, err := controlplane.SuperpoolCRDs()
	require.NoError(t, err)
	without := []string{"ResourceQuota"} // nobody fills the status of quotas
	ofTenant := controlplane.Options{DisableAdmission: without, ServiceClusterIPRange: tenantServices}
	started, stop, err := controlplane.Start(
		controlplane.Options{CRDs: []string{crds}, DisableAdmission: without},
		controlplane.Options{DisableAdmission: without, ServiceClusterIPRange: superServices},
		ofTenant, ofTenant, ofTenant,
	)
	t.Cleanup(stop)
	require.NoError(t, err)
	s := &sharing{count: count}
	for i, to := range []*client.Client{&s.meta, &s.super} {
		*to, err = client.New(started[i].Config, client.Options{Scheme: controlplane.Scheme()})
		require.NoError(t, err)
	}
	create(t, s.super, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "supercluster-info"}, Data: map[string]string{"id": "r1"}})
	s.record(t, "r1", uidOf(t, s.super))
	inMeta, err := controlplane.Account(t.Context(), started[0], "base/vc-syncer-rbac.yaml", "vc-manager", "vc-syncer")
	require.NoError(t, err)
	inSuper, err := controlplane.Account(t.Context(), started[1], "supercluster/syncer.yaml", "superpool-system", "syncer")
	require.NoError(t, err)
	folder := t.TempDir()
	for name, kubeconfig := range map[string][]byte{"meta": inMeta.KubeConfig, "super": inSuper.KubeConfig} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), kubeconfig, 0o600))
	}
	s.flags = []string{
		"--meta-kubeconfig=" + filepath.Join(folder, "meta"), "--super-cluster-kubeconfig=" + filepath.Join(folder, "super"),
		"--feature-gates=SuperClusterPooling=true", fmt.Sprintf("--shards=%d", count), "--pod-security-level=", "--metrics-bind-address=0", "--health-probe-bind-address=0", "-v=2",
	}
	create(t, s.meta, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "acme"}})
	create(t, s.meta, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "kubeconfigs"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}}},
	})
	create(t, s.meta, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "kubeconfigs"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "kubeconfigs"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "vc-manager", Name: "vc-syncer"}},
	})
	for shard := range 3 {
		s.join(t, shard, started[2+shard])
	}
	return s
}

// join plays vc-scheduler for a tenant of a shard.
func (s *sharing) join(t *testing.T, shard int, controlPlane *controlplane.ControlPlane) {
	t.Helper()
	tenant, err := client.New(controlPlane.Config, client.Options{Scheme: controlplane.Scheme()})
	require.NoError(t, err)
	name, key := fmt.Sprintf("vc-%d", shard), ""
	for i := 0; key == "" || shards.Of(types.UID(key), s.count) != shard; i++ {
		key = fmt.Sprintf("acme-%d-%s", i, name)
	}
	create(t, s.meta, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: name}, Data: map[string][]byte{tenancyv1alpha1.DefaultKubeconfigKey: controlPlane.KubeConfig}})
	vc := &tenancyv1alpha1.VirtualCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: name},
		Spec:       tenancyv1alpha1.VirtualClusterSpec{KubeconfigSecretRef: &tenancyv1alpha1.SecretKeyRef{Name: name}},
	}
	create(t, s.meta, vc)
	create(t, s.meta, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: key, Annotations: map[string]string{
		tenancyv1alpha1.AnnotationRootNamespace: "true", tenancyv1alpha1.AnnotationVirtualClusterNamespace: "acme", tenancyv1alpha1.AnnotationVirtualClusterName: name,
		tenancyv1alpha1.AnnotationVirtualClusterUID: string(vc.UID),
	}}})
	await.Change(t, s.meta, vc, func(vc *tenancyv1alpha1.VirtualCluster) {
		vc.Status.ClusterNamespace, vc.Status.ControlPlaneUID = key, uidOf(t, tenant)
	}, "status")
	w := &world{meta: s.meta, tenant: tenant, super: s.super, key: key}
	w.place(t, name, "r1")
	s.worlds = append(s.worlds, w)
}

// start starts a replica. It ends with the test.
func (s *sharing) start(t *testing.T) *exec.Cmd {
	t.Helper()
	process := exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0])
	process.Env = append(os.Environ(), syncerFlags+"="+strings.Join(s.flags, "\n"))
	process.Stderr = t.Output()
	require.NoError(t, process.Start())
	t.Cleanup(func() {
		_ = process.Process.Kill() // it may have ended
		_ = process.Wait()
	})
	return process
}

// leases returns the Leases of the syncers with a part of a name, sorted.
func (s *sharing) leases(t *testing.T, part string) []coordinationv1.Lease {
	t.Helper()
	var list coordinationv1.LeaseList
	require.NoError(t, s.meta.List(t.Context(), &list, client.InNamespace("vc-manager"), client.HasLabels{tenancyv1alpha1.LabelSyncer}))
	return slices.DeleteFunc(list.Items, func(lease coordinationv1.Lease) bool { return !strings.Contains(lease.Name, part) })
}

// led waits until so many replicas lead all shards.
func (s *sharing) led(t *testing.T, replicas int) {
	t.Helper()
	eventually(t, func() error {
		held, holders := 0, map[string]bool{}
		for _, lease := range s.leases(t, "-shard-") {
			if holder := ptr.Deref(lease.Spec.HolderIdentity, ""); holder != "" && time.Since(lease.Spec.RenewTime.Time) < 4*time.Second {
				held++
				holders[holder] = true
			}
		}
		if held != s.count || len(holders) != replicas {
			return fmt.Errorf("%d shards are led by %d replicas", held, len(holders))
		}
		return nil
	})
}

// write writes a ConfigMap in each tenant.
func (s *sharing) write(t *testing.T, text string) {
	t.Helper()
	for shard, w := range s.worlds {
		config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("vc-%d", shard), Name: "config"}, Data: map[string]string{"text": text}}
		if err := w.tenant.Update(t.Context(), config); err != nil {
			create(t, w.tenant, config)
		}
	}
}

// synced waits until the super cluster has it.
func (s *sharing) synced(t *testing.T, text string) {
	t.Helper()
	for shard, w := range s.worlds {
		appears(t, s.super, tenancy.SuperNamespace(w.key, fmt.Sprintf("vc-%d", shard)), "config", &corev1.ConfigMap{}, func(config *corev1.ConfigMap) bool {
			return config.Data["text"] == text
		})
	}
}
