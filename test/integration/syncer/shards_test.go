package syncer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/leadership"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/await"
	"github.com/superpool/superpool/test/controlplane"
)

// TestShards: each of three tenants is synced by the leader of its shard alone. One that is killed leaves its tenants
// to the one that stands by, which reads them already; and one that counts another number of shards waits until all
// others have ended, and syncs all tenants then.
func TestShards(t *testing.T) {
	s := newSharing(t, 2)
	s.watchLeases(t)
	first := s.start(t, "0/2")
	s.write(t, "first")
	s.synced(t, "first", 0, 2)
	require.Empty(t, s.holder(t, "-shard-1-of-2"))
	second := s.start(t, "1/2")
	s.synced(t, "first", 1)

	standby := s.start(t, "2/2") // of the first shard: modulo 2
	standby.says(t, "Attempting to acquire leader lease")
	leader := s.holder(t, "-shard-0-of-2")
	require.NoError(t, first.Process.Kill())
	killed := time.Now()
	s.write(t, "killed")
	s.synced(t, "killed", 0, 1, 2)
	t.Logf("all tenants were synced again %s after the leader of a shard was killed", time.Since(killed).Round(10*time.Millisecond))
	require.NotEqual(t, leader, s.holder(t, "-shard-0-of-2"))

	whole := s.start(t, "0/1")
	whole.says(t, "another number of shards than 1 is in force")
	require.NoError(t, second.end())
	s.write(t, "another number")
	s.synced(t, "another number", 0, 2)
	require.NoError(t, standby.end())
	s.synced(t, "another number", 0, 1, 2)
	s.write(t, "whole")
	s.synced(t, "whole", 0, 1, 2)
	require.NoError(t, whole.end())
	for _, lease := range s.leases(t) {
		require.Empty(t, ptr.Deref(lease.Spec.HolderIdentity, ""), "%s is released", lease.Name)
	}
}

// sharing is a meta cluster, a super cluster, and three tenants with one namespace each, in shards 0, 1 and 0.
type sharing struct {
	world
	// watched is the client of the meta cluster.
	watched client.WithWatch
	count   int
	worlds  []*world
	flags   []string
}

func newSharing(t *testing.T, count int) *sharing {
	t.Helper()
	crds, err := controlplane.SuperpoolCRDs()
	require.NoError(t, err)
	without := []string{"ResourceQuota"} // nobody fills the status of quotas
	ofTenant := controlplane.Options{Role: controlplane.Tenant, DisableAdmission: without, ServiceClusterIPRange: tenantServices}
	started, stop, err := controlplane.Start(
		controlplane.Options{Role: controlplane.Meta, CRDs: []string{crds}, DisableAdmission: without},
		controlplane.Options{Role: controlplane.Super, DisableAdmission: without, ServiceClusterIPRange: superServices},
		ofTenant, ofTenant, ofTenant,
	)
	t.Cleanup(stop)
	require.NoError(t, err)
	s := &sharing{count: count}
	s.watched, err = client.NewWithWatch(started[0].Config, client.Options{Scheme: controlplane.Scheme()})
	require.NoError(t, err)
	s.meta = s.watched
	s.super, err = client.New(started[1].Config, client.Options{Scheme: controlplane.Scheme()})
	require.NoError(t, err)
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
		"--feature-gates=SuperClusterPooling=true", "--pod-security-level=", "--metrics-bind-address=0", "--health-probe-bind-address=0", "-v=2",
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
	for i := range 3 {
		s.join(t, i, started[2+i])
	}
	return s
}

// join plays vc-scheduler for tenant number i, of shard i modulo their number.
func (s *sharing) join(t *testing.T, i int, controlPlane *controlplane.ControlPlane) {
	t.Helper()
	tenant, err := client.New(controlPlane.Config, client.Options{Scheme: controlplane.Scheme()})
	require.NoError(t, err)
	name, key := fmt.Sprintf("vc-%d", i), ""
	for n := 0; key == "" || !(leadership.Shard{Index: i % s.count, Count: s.count}).Has(key); n++ {
		key = fmt.Sprintf("acme-%d-%s", n, name)
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

// replica is a process of the syncer.
type replica struct {
	*exec.Cmd
	output *output
}

// end lets it end by itself.
func (r *replica) end() error {
	return errors.Join(r.Process.Signal(syscall.SIGTERM), r.Wait())
}

// says waits until it has written a text.
func (r *replica) says(t *testing.T, text string) {
	t.Helper()
	eventually(t, func() error {
		if !r.output.has(text) {
			return fmt.Errorf("it has not written %q", text)
		}
		return nil
	})
}

// output keeps what a process writes.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (o *output) Write(text []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(text)
}

func (o *output) has(text string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return bytes.Contains(o.text.Bytes(), []byte(text))
}

// start starts a replica of a shard. It ends with the test.
func (s *sharing) start(t *testing.T, shard string) *replica {
	t.Helper()
	r := &replica{Cmd: exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0]), output: &output{}} //nolint:gosec // it is this program
	r.Env = append(os.Environ(), syncerFlags+"="+strings.Join(append(slices.Clone(s.flags), "--shard="+shard), "\n"))
	r.Stderr = io.MultiWriter(t.Output(), r.output)
	require.NoError(t, r.Start())
	t.Cleanup(func() {
		_ = r.Process.Kill() // it may have ended
		_ = r.Wait()
	})
	return r
}

// leases returns the Leases of the syncers.
func (s *sharing) leases(t *testing.T) []coordinationv1.Lease {
	t.Helper()
	var list coordinationv1.LeaseList
	require.NoError(t, s.meta.List(t.Context(), &list, client.InNamespace("vc-manager")))
	return list.Items
}

// holder returns who holds the Lease whose name ends like this, "" for nobody.
func (s *sharing) holder(t *testing.T, ending string) string {
	t.Helper()
	for _, lease := range s.leases(t) {
		if strings.HasSuffix(lease.Name, ending) {
			return ptr.Deref(lease.Spec.HolderIdentity, "")
		}
	}
	return ""
}

// watchLeases fails the test when Leases of two numbers of shards are held at once, but for one that was left by a
// process that was killed.
func (s *sharing) watchLeases(t *testing.T) {
	t.Helper()
	watcher, err := s.watched.Watch(t.Context(), &coordinationv1.LeaseList{}, client.InNamespace("vc-manager"))
	require.NoError(t, err)
	t.Cleanup(watcher.Stop)
	go func() {
		held := map[bool]map[string]bool{true: {}, false: {}} // by whether it is one of several
		for event := range watcher.ResultChan() {
			if lease, isLease := event.Object.(*coordinationv1.Lease); isLease {
				names := held[strings.Contains(lease.Name, "-shard-")]
				if delete(names, lease.Name); ptr.Deref(lease.Spec.HolderIdentity, "") != "" {
					names[lease.Name] = true
				}
			}
			if len(held[true]) > 0 && len(held[false]) > 0 {
				t.Errorf("Leases are held at once: %v", held)
			}
		}
	}()
}

// write writes a ConfigMap in each tenant.
func (s *sharing) write(t *testing.T, text string) {
	t.Helper()
	for i, w := range s.worlds {
		config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("vc-%d", i), Name: "config"}, Data: map[string]string{"text": text}}
		if err := w.tenant.Update(t.Context(), config); err != nil {
			create(t, w.tenant, config)
		}
	}
}

// synced waits until the super cluster has that of those tenants.
func (s *sharing) synced(t *testing.T, text string, tenants ...int) {
	t.Helper()
	for _, i := range tenants {
		appears(t, s.super, tenancy.SuperNamespace(s.worlds[i].key, fmt.Sprintf("vc-%d", i)), "config", &corev1.ConfigMap{}, func(config *corev1.ConfigMap) bool {
			return config.Data["text"] == text
		})
	}
}
