package provision

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// TestBackups: a control plane is restored from a backup, while vc-manager is killed again and again: what was written
// before it is there, what was written since is not, and watches list anew. An upgrade begins with a backup, and is taken
// back with it.
func TestBackups(t *testing.T) {
	t.Parallel()
	w := newWorld(t, time.Hour)
	w.whole(t, "v1.37.2")
	w.remember(t, "kept")
	w.change(t, func(version *tenancyv1alpha1.ClusterVersionSpec) {
		version.Backup = &tenancyv1alpha1.BackupTemplate{Schedule: "0 3 * * *", Keep: 2}
	})
	require.Eventually(t, func() bool {
		return meta.IsStatusConditionTrue(w.current(t).Status.Conditions, tenancyv1alpha1.ConditionBackedUp)
	}, patience, tick)
	require.NotNil(t, w.current(t).Status.LastBackup)
	first := w.backups(t)
	require.Len(t, first, 1)

	w.remember(t, "since")
	configs := w.tenant(t).CoreV1().ConfigMaps("default")
	require.NoError(t, configs.Delete(t.Context(), "kept", metav1.DeleteOptions{}))
	list, err := configs.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.ErrorContains(t, w.restore(t, "yesterday"), "name a Job of the tenant's root namespace")
	pids := w.kubelet.pids()
	require.NoError(t, w.restore(t, "etcd-backup-20200101-000000"))
	w.refusesRestore(t, "there is no such backup")
	require.Equal(t, pids, w.kubelet.pids(), "what runs goes on")

	calm := w.killed(t)
	w.restored(t, first[0].Name, "v1.37.2")
	w.remembers(t, "kept")
	w.forgot(t, "since")
	watch, err := w.tenant(t).CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err == nil {
		defer watch.Stop()
		event := <-watch.ResultChan()
		err = apierrors.FromObject(event.Object)
	}
	require.True(t, apierrors.IsResourceExpired(err) || apierrors.IsGone(err), "a watch from before: %v", err)
	t.Logf("vc-manager was killed %d times", calm())

	w.remember(t, "of-the-older-version")
	w.change(t, func(version *tenancyv1alpha1.ClusterVersionSpec) { version.KubernetesVersion = "v1.38.0" })
	w.whole(t, "v1.38.0")
	made := w.backups(t)
	require.Len(t, made, 2, "an upgrade begins with a backup")
	w.remember(t, "of-the-next-version")
	w.change(t, func(version *tenancyv1alpha1.ClusterVersionSpec) { version.KubernetesVersion = "v1.37.2" })
	require.NoError(t, w.restore(t, ""))
	require.Eventually(t, func() bool { return w.current(t).Status.RestoredFrom == "" }, patience, tick)
	w.restored(t, made[1].Name, "v1.37.2")
	w.remembers(t, "kept", "of-the-older-version")
	w.forgot(t, "of-the-next-version")

	out, said, err := w.vc(t, "backup", "acme")
	require.NoError(t, err, said)
	require.Equal(t, "virtualcluster.tenancy.x-k8s.io/acme backed up\n", out)
	made = w.backups(t)
	newest := made[len(made)-1].Name
	require.Contains(t, said, newest+" is whole: kubectl vc restore acme -n default "+newest)
	require.Equal(t, newest, w.current(t).Status.LastBackupName)

	claims := &unstructured.UnstructuredList{}
	claims.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaimList"))
	require.NoError(t, w.client.List(t.Context(), claims, client.InNamespace(root)))
	require.Len(t, claims.Items, 4, "the volumes of before are there, and that of the backups")
}

// forgot demands that the tenant's control plane has no ConfigMap of a name.
func (w *world) forgot(t *testing.T, name string) {
	t.Helper()
	_, err := w.tenant(t).CoreV1().ConfigMaps("default").Get(t.Context(), name, metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%s: %v", name, err)
}

// backups returns the backups that are whole, the oldest first.
func (w *world) backups(t *testing.T) (whole []batchv1.Job) {
	t.Helper()
	var list batchv1.JobList
	require.NoError(t, w.client.List(t.Context(), &list, client.InNamespace(root), client.MatchingLabels{"app.kubernetes.io/name": "etcd-backup"}))
	for _, job := range list.Items { // by name, which has the time
		if job.Status.Succeeded > 0 {
			whole = append(whole, job)
		}
	}
	return whole
}

// restore wishes for a control plane of a backup, and returns what refuses it.
func (w *world) restore(t *testing.T, from string) error {
	t.Helper()
	return w.update(t, func(spec *tenancyv1alpha1.VirtualClusterSpec) { spec.RestoreFrom = from })
}

// restored demands that a control plane is one of a backup, whole, and of a version.
func (w *world) restored(t *testing.T, from, version string) {
	t.Helper()
	require.NoError(t, w.restore(t, from))
	require.Eventually(t, func() bool { return w.current(t).Status.RestoredFrom == from }, patience, tick, "it is restored")
	w.whole(t, version)
}

// refusesRestore demands that a condition says why a control plane is not restored.
func (w *world) refusesRestore(t *testing.T, why string) {
	t.Helper()
	said := ""
	require.Eventually(t, func() bool {
		if condition := meta.FindStatusCondition(w.current(t).Status.Conditions, tenancyv1alpha1.ConditionUpToDate); condition.Reason == tenancyv1alpha1.ReasonInvalid {
			said = condition.Message
		}
		return said != ""
	}, patience, tick, "it is refused")
	require.Contains(t, said, why)
}
