package provision

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
)

const (
	// retryPeriod is after how long a backup that failed is made again, hangTime how much longer than it may take one
	// runs that has failed, and freshTime how old that is with which an upgrade begins.
	retryPeriod = 10 * time.Minute
	hangTime    = 10 * time.Minute
	freshTime   = time.Hour
	// maxRestores is how many Jobs try to restore a backup.
	maxRestores = 3
)

// jobs returns the Jobs of a component, the oldest first.
func (b *bed) jobs(component string) []batchv1.Job {
	b.t.Helper()
	var list batchv1.JobList
	require.NoError(b.t, b.reconciler.Client.List(b.t.Context(), &list, client.MatchingLabels(controlplane.Labels(component))))
	return list.Items
}

// ends says what became of the last Job of a component, and returns it.
func (b *bed) ends(component string, became batchv1.JobConditionType) *batchv1.Job {
	b.t.Helper()
	jobs := b.jobs(component)
	require.NotEmpty(b.t, jobs, component)
	job := &jobs[len(jobs)-1]
	require.Empty(b.t, job.Status.Conditions, "one is made")
	job.Status.Conditions = []batchv1.JobCondition{{Type: became, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(b.clock.Now())}}
	require.NoError(b.t, b.reconciler.Client.Status().Update(b.t.Context(), job))
	return job
}

// newBackupBed returns a bed with a control plane that is whole and to have backups.
func newBackupBed(t *testing.T, template tenancyv1alpha1.BackupTemplate) *bed {
	t.Helper()
	b := newBed(t, nil)
	b.whole()
	b.change(func(version *tenancyv1alpha1.ClusterVersionSpec) { version.Backup = &template })
	return b
}

func (b *bed) backedUp() *metav1.Condition {
	b.t.Helper()
	return meta.FindStatusCondition(b.vc().Status.Conditions, tenancyv1alpha1.ConditionBackedUp)
}

// TestBackupsOnASchedule: the first backup is made at once, the next one when its time comes, and one that failed ten
// minutes later, in the place of that one; the oldest one makes room.
func TestBackupsOnASchedule(t *testing.T) {
	t.Parallel()
	b := newBackupBed(t, tenancyv1alpha1.BackupTemplate{Schedule: "@every 6h", Keep: 2})
	made := func(slot int32, count int) *batchv1.Job {
		t.Helper()
		b.reconcile()
		require.Len(t, b.jobs(controlplane.EtcdBackup), count)
		b.reconcile()
		require.Len(t, b.jobs(controlplane.EtcdBackup), count, "one at a time")
		job := b.ends(controlplane.EtcdBackup, batchv1.JobComplete)
		require.Equal(t, slot, controlplane.SlotOf(job))
		require.Equal(t, "v1.37.2", controlplane.WrittenBy(job))
		b.reconcile()
		require.Equal(t, metav1.ConditionTrue, b.backedUp().Status)
		require.WithinDuration(t, b.clock.Now(), b.vc().Status.LastBackup.Time, time.Second)
		return job
	}
	b.reconcile()
	require.Equal(t, metav1.ConditionFalse, b.backedUp().Status)
	first := made(0, 1)
	require.Equal(t, []string{"etcdctl", "snapshot", "save", "/backups/0.db", "--endpoints=https://etcd-0.etcd." + root + ".svc:2379"}, first.Spec.Template.Spec.Containers[0].Command[:5])
	claim := &corev1.PersistentVolumeClaim{}
	require.NoError(t, b.reconciler.Client.Get(t.Context(), client.ObjectKey{Namespace: root, Name: controlplane.BackupClaim}, claim))

	b.later(6*time.Hour - time.Second)
	b.reconcile()
	require.Len(t, b.jobs(controlplane.EtcdBackup), 1, "not yet")
	b.later(37 * time.Minute) // a tenth, and what is left of the second
	second := made(1, 2)
	b.later(7 * time.Hour)
	b.reconcile()
	failed := b.ends(controlplane.EtcdBackup, batchv1.JobFailed)
	require.Equal(t, int32(0), controlplane.SlotOf(failed), "the oldest one makes room")
	b.reconcile()
	require.Equal(t, tenancyv1alpha1.ReasonFailed, b.backedUp().Reason)
	require.Contains(t, b.backedUp().Message, "kubectl -n "+root+" logs job/"+failed.Name)
	require.Len(t, b.jobs(controlplane.EtcdBackup), 2)
	b.later(retryPeriod - time.Second)
	b.reconcile()
	require.Equal(t, failed.Name, b.jobs(controlplane.EtcdBackup)[1].Name, "not yet")
	b.later(time.Second)
	made(0, 2)
	require.Equal(t, second.Name, b.jobs(controlplane.EtcdBackup)[0].Name, "the one that is whole stays")

	for schedule, why := range map[string]string{
		"every night": "give five fields as those of a CronJob", "0 0 30 2 *": "it never comes", "@every 1s": "it comes more often than every 15m0s", "TZ=x": "it is in UTC",
	} {
		b.change(func(version *tenancyv1alpha1.ClusterVersionSpec) { version.Backup.Schedule = schedule })
		b.reconcile()
		require.Equal(t, tenancyv1alpha1.ReasonInvalid, b.backedUp().Reason)
		require.Contains(t, b.backedUp().Message, why)
	}
	missing, _ := b.conditions()
	require.NotContains(t, missing, tenancyv1alpha1.ConditionUpToDate, "the rest goes on")
	b.change(func(version *tenancyv1alpha1.ClusterVersionSpec) { version.Backup = nil })
	b.reconcile()
	require.Nil(t, b.backedUp())
}

// TestAnUpgradeBeginsWithABackup: of what there is just before it, whatever was made by the clock, and it waits for it.
func TestAnUpgradeBeginsWithABackup(t *testing.T) {
	t.Parallel()
	b := newBackupBed(t, tenancyv1alpha1.BackupTemplate{})
	b.reconcile()
	b.ends(controlplane.EtcdBackup, batchv1.JobComplete)
	b.later(time.Minute)
	image := func() string {
		set := workload(controlplane.Etcd).(*appsv1.StatefulSet)
		require.NoError(t, b.reconciler.Client.Get(t.Context(), client.ObjectKeyFromObject(set), set))
		return set.Spec.Template.Spec.Containers[0].Image
	}
	b.change(func(version *tenancyv1alpha1.ClusterVersionSpec) { version.KubernetesVersion = "v1.37.3" })
	b.made()
	require.Equal(t, "v1.37.3", b.version(), "a patch needs none")
	b.change(func(version *tenancyv1alpha1.ClusterVersionSpec) {
		version.KubernetesVersion, version.Etcd.Image = "v1.38.0", "newer"
	})
	b.reconcile()
	_, message := b.conditions()
	require.Contains(t, message, "A backup comes before the upgrade, unless spec.backup is taken out of the ClusterVersion: etcd-backup-")
	b.ends(controlplane.EtcdBackup, batchv1.JobFailed)
	b.reconcile()
	_, message = b.conditions()
	require.Contains(t, message, "failed, and is made again in 10m0s")
	b.later(retryPeriod)
	b.reconcile()
	require.Equal(t, "of v1.37.2", image(), "nothing has begun")
	job := b.ends(controlplane.EtcdBackup, batchv1.JobComplete)
	require.Equal(t, "v1.37.3", controlplane.WrittenBy(job))
	b.reconcile()
	require.Equal(t, "newer", image())
	b.made()
	require.Equal(t, "v1.38.0", b.version())
	require.Len(t, b.jobs(controlplane.EtcdBackup), 3)
}

// stopped ends what runs, as the meta cluster does, when all is scaled to nothing.
func (b *bed) stopped() {
	b.t.Helper()
	for _, name := range []string{controlplane.ControllerManager, controlplane.APIServer, controlplane.Etcd} {
		b.reconcile()
		object := workload(name)
		require.NoError(b.t, b.reconciler.Client.Get(b.t.Context(), client.ObjectKeyFromObject(object), object))
		switch live := object.(type) {
		case *appsv1.StatefulSet:
			require.Zero(b.t, *live.Spec.Replicas)
			live.Status.ObservedGeneration, live.Status.Replicas = live.Generation, 0
		case *appsv1.Deployment:
			require.Zero(b.t, *live.Spec.Replicas, name)
			live.Status = appsv1.DeploymentStatus{ObservedGeneration: live.Generation}
		}
		require.NoError(b.t, b.reconciler.Client.Status().Update(b.t.Context(), object))
	}
}

// volume returns the name of the volumes of the store, and how many pods it has.
func (b *bed) volume() (string, int32) {
	b.t.Helper()
	set := workload(controlplane.Etcd).(*appsv1.StatefulSet)
	require.NoError(b.t, b.reconciler.Client.Get(b.t.Context(), client.ObjectKeyFromObject(set), set))
	return set.Spec.VolumeClaimTemplates[0].Name, *set.Spec.Replicas
}

// TestARestore: the backup is restored into a volume of its own while all programs run; then they end, also those that are
// about to, and the store is the one of that volume. It is done once, whoever deletes what is known of it.
func TestARestore(t *testing.T) {
	t.Parallel()
	b := newBackupBed(t, tenancyv1alpha1.BackupTemplate{Keep: 2})
	for range 3 {
		b.reconcile()
		b.ends(controlplane.EtcdBackup, batchv1.JobComplete)
		b.later(27 * time.Hour)
	}
	source := b.jobs(controlplane.EtcdBackup)[0].DeepCopy() // whose file is the next one's
	b.wish(func(spec *tenancyv1alpha1.VirtualClusterSpec) { spec.RestoreFrom = source.Name })
	b.reconcile()
	b.reconcile() // the Job comes before the claim
	claim := &corev1.PersistentVolumeClaim{}
	require.NoError(t, b.reconciler.Client.Get(t.Context(), client.ObjectKey{Namespace: root, Name: "data-1-etcd-0"}, claim))
	name, pods := b.volume()
	require.Equal(t, "data", name)
	require.EqualValues(t, 1, pods, "what runs goes on")
	_, message := b.conditions()
	require.Contains(t, message, "waiting for Job etcd-restore-1")
	require.Equal(t, source.Name, b.jobs(controlplane.EtcdBackup)[0].Name, "it makes no room")
	b.ends(controlplane.EtcdBackup, batchv1.JobComplete)

	job := b.ends(controlplane.EtcdRestore, batchv1.JobComplete)
	require.Equal(t, "/backups/"+source.Annotations["tenancy.x-k8s.io/backup-slot"]+".db", job.Spec.Template.Spec.Containers[0].Command[3])
	b.stopped()
	b.reconcile()
	_, message = b.conditions()
	require.Contains(t, message, "waiting for the end of etcd", "its pod is there yet")
	var left corev1.PodList
	require.NoError(t, b.reconciler.Client.List(t.Context(), &left))
	left.Items[0].Status.Phase = corev1.PodFailed
	require.NoError(t, b.reconciler.Client.Status().Update(t.Context(), &left.Items[0]))
	b.ahead = func(spec *tenancyv1alpha1.VirtualClusterSpec) { spec.RestoreFrom = "" }
	b.reconcile()
	_, message = b.conditions()
	require.Contains(t, message, "it is wished for no more", "the cache is behind")
	b.ahead = nil
	b.reconcile()
	told := &corev1.ConfigMap{}
	require.NoError(t, b.reconciler.Client.Get(t.Context(), client.ObjectKey{Namespace: root, Name: controlplane.Etcd}, told))
	require.Equal(t, "1", told.Data["generation"], "a pod that was evicted is there for months")
	require.NoError(t, b.reconciler.Client.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(root)))
	b.reconcile()
	name, pods = b.volume()
	require.Equal(t, "data-1", name)
	require.EqualValues(t, 1, pods)
	require.Equal(t, source.Name, b.vc().Status.RestoredFrom)
	require.NoError(t, b.reconciler.Client.Get(t.Context(), client.ObjectKey{Namespace: root, Name: controlplane.Etcd}, told))
	require.Equal(t, "existing", told.Data["initial-cluster-state"])
	require.Equal(t, "v1.37.2", told.Data["kubernetes-version"])
	require.NoError(t, b.reconciler.Client.Delete(t.Context(), told))
	b.made()
	name, _ = b.volume()
	require.Equal(t, "data-1", name, "whoever deletes what is known of it")
	require.Equal(t, source.Name, b.vc().Status.RestoredFrom)
	require.Len(t, b.jobs(controlplane.EtcdRestore), 1, "it is restored once")
	_, message = b.conditions()
	require.Empty(t, message)

	b.wish(func(spec *tenancyv1alpha1.VirtualClusterSpec) { spec.RestoreFrom = "" })
	b.reconcile()
	require.Empty(t, b.vc().Status.RestoredFrom)
	b.wish(func(spec *tenancyv1alpha1.VirtualClusterSpec) { spec.RestoreFrom = source.Name })
	b.reconcile()
	require.Len(t, b.jobs(controlplane.EtcdRestore), 2, "the same one again")
}

// TestAPastStoreDoesNotComeBack: once another store has taken its place, whatever is refused then.
func TestAPastStoreDoesNotComeBack(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.whole()
	b.paused()
	told := &corev1.ConfigMap{}
	require.NoError(t, b.reconciler.Client.Get(t.Context(), client.ObjectKey{Namespace: root, Name: controlplane.Etcd}, told))
	told.Data["generation"], told.Data["kubernetes-version"] = "1", "v1.37.2"
	b.update(told) // and vc-manager was killed behind it
	b.change(func(version *tenancyv1alpha1.ClusterVersionSpec) { version.KubernetesVersion = "v1.36.0" })
	b.pause(false, false)
	b.reconcile()
	_, message := b.conditions()
	require.Contains(t, message, "API servers of v1.37.2 may have written what those of v1.36.0 do not read")
	require.Equal(t, []int32{0, 0, 0}, b.sizes())
	b.change(func(version *tenancyv1alpha1.ClusterVersionSpec) { version.KubernetesVersion = "v1.37.2" })
	b.reconcile()
	b.reconcile()
	name, _ := b.volume()
	require.Equal(t, "data-1", name)
}

// TestARestoreThatFails: three Jobs are all, what runs goes on, and another wish begins anew, in volumes that nobody had.
func TestARestoreThatFails(t *testing.T) {
	t.Parallel()
	b := newBackupBed(t, tenancyv1alpha1.BackupTemplate{})
	b.reconcile()
	source := b.ends(controlplane.EtcdBackup, batchv1.JobComplete)
	b.later(time.Minute)
	b.wish(func(spec *tenancyv1alpha1.VirtualClusterSpec) { spec.RestoreFrom = source.Name })
	for tries := range maxRestores {
		b.reconcile()
		b.reconcile()
		require.Len(t, b.jobs(controlplane.EtcdRestore), 1+tries, "one at a time")
		b.ends(controlplane.EtcdRestore, batchv1.JobFailed)
	}
	b.reconcile()
	missing, message := b.conditions()
	require.Equal(t, tenancyv1alpha1.ReasonFailed, missing[tenancyv1alpha1.ConditionUpToDate])
	require.Contains(t, message, "3 Jobs have failed; what runs goes on")
	name, pods := b.volume()
	require.Equal(t, "data", name)
	require.EqualValues(t, 1, pods)

	b.wish(func(spec *tenancyv1alpha1.VirtualClusterSpec) { spec.RestoreFrom = "" })
	b.reconcile()
	require.Empty(t, b.jobs(controlplane.EtcdRestore))
	_, message = b.conditions()
	require.Empty(t, message)
	b.wish(func(spec *tenancyv1alpha1.VirtualClusterSpec) { spec.RestoreFrom = source.Name })
	b.reconcile()
	require.Equal(t, "etcd-restore-4", b.jobs(controlplane.EtcdRestore)[0].Name)
}

// TestABackupThatHangs: a Job whose node is lost does not end, and is one that has failed.
func TestABackupThatHangs(t *testing.T) {
	t.Parallel()
	b := newBackupBed(t, tenancyv1alpha1.BackupTemplate{})
	b.reconcile()
	hung := b.jobs(controlplane.EtcdBackup)[0].Name
	b.later(controlplane.BackupTime + hangTime + time.Second)
	b.reconcile()
	require.Equal(t, tenancyv1alpha1.ReasonFailed, b.backedUp().Reason)
	b.later(retryPeriod)
	b.reconcile()
	require.Len(t, b.jobs(controlplane.EtcdBackup), 2)
	require.Equal(t, hung, b.jobs(controlplane.EtcdBackup)[0].Name, "another one has a file of its own")
}

// TestAnUpgradeThatMendsTheStore: where no member is ready no backup can be made, and one of before is enough.
func TestAnUpgradeThatMendsTheStore(t *testing.T) {
	t.Parallel()
	b := newBackupBed(t, tenancyv1alpha1.BackupTemplate{})
	b.reconcile()
	b.ends(controlplane.EtcdBackup, batchv1.JobComplete)
	b.later(2 * time.Hour)
	var pods corev1.PodList
	require.NoError(t, b.reconciler.Client.List(t.Context(), &pods))
	pods.Items[0].Status.Conditions = nil
	require.NoError(t, b.reconciler.Client.Status().Update(t.Context(), &pods.Items[0]))
	b.change(func(version *tenancyv1alpha1.ClusterVersionSpec) {
		version.KubernetesVersion, version.Etcd.Image = "v1.38.0", "newer"
	})
	b.reconcile()
	set := workload(controlplane.Etcd).(*appsv1.StatefulSet)
	require.NoError(t, b.reconciler.Client.Get(t.Context(), client.ObjectKeyFromObject(set), set))
	require.Equal(t, "newer", set.Spec.Template.Spec.Containers[0].Image)
}

// TestAnUpgradeThatHangs: it takes the files of two backups, the first one and the last.
func TestAnUpgradeThatHangs(t *testing.T) {
	t.Parallel()
	b := newBackupBed(t, tenancyv1alpha1.BackupTemplate{Keep: 4})
	for range 2 {
		b.reconcile()
		b.ends(controlplane.EtcdBackup, batchv1.JobComplete)
		b.later(27 * time.Hour)
	}
	daily := b.jobs(controlplane.EtcdBackup)
	b.change(func(version *tenancyv1alpha1.ClusterVersionSpec) {
		version.KubernetesVersion, version.Etcd.Image = "v1.38.0", "newer"
	})
	var first string
	for hour := range 5 {
		b.reconcile()
		made := b.ends(controlplane.EtcdBackup, batchv1.JobComplete)
		if hour == 0 {
			first = made.Name
		}
		b.reconcile()
		b.later(freshTime + time.Second)
	}
	jobs := b.jobs(controlplane.EtcdBackup)
	require.Len(t, jobs, 4)
	require.Equal(t, []string{daily[0].Name, daily[1].Name, first}, []string{jobs[0].Name, jobs[1].Name, jobs[2].Name})
}

// TestAStoreWhoseConfigMapSaysLittle: it never gets fewer pods than it has.
func TestAStoreWhoseConfigMapSaysLittle(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.whole()
	set := workload(controlplane.Etcd).(*appsv1.StatefulSet)
	require.NoError(t, b.reconciler.Client.Get(t.Context(), client.ObjectKeyFromObject(set), set))
	set.Spec.Replicas = ptr.To[int32](3)
	b.update(set)
	told := &corev1.ConfigMap{}
	require.NoError(t, b.reconciler.Client.Get(t.Context(), client.ObjectKey{Namespace: root, Name: controlplane.Etcd}, told))
	told.Data = map[string]string{"generation": "0"}
	b.update(told)
	b.reconcile()
	_, message := b.conditions()
	require.Contains(t, message, "etcd has 3 pods, which do not become fewer")
	_, pods := b.volume()
	require.EqualValues(t, 3, pods)
}

// TestABackupSaysWhatWroteIt: none is made of a store that nobody has served, or while its API servers become others.
func TestABackupSaysWhatWroteIt(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.change(func(version *tenancyv1alpha1.ClusterVersionSpec) { version.Backup = &tenancyv1alpha1.BackupTemplate{} })
	b.reconcile()
	b.ready(controlplane.Etcd)
	b.reconcile()
	require.Empty(t, b.jobs(controlplane.EtcdBackup), "the API servers were made just now")
	b.reconcile()
	require.Equal(t, "v1.37.2", controlplane.WrittenBy(b.ends(controlplane.EtcdBackup, batchv1.JobComplete)))
	b.ready(controlplane.APIServer)
	b.reconcile()
	b.ready(controlplane.ControllerManager)
	b.reconcile()
	b.later(27 * time.Hour)
	b.change(func(version *tenancyv1alpha1.ClusterVersionSpec) { version.KubernetesVersion = "v1.38.0" })
	b.reconcile()
	require.True(t, controlplane.IsBefore(b.ends(controlplane.EtcdBackup, batchv1.JobComplete), "v1.38.0"))
	b.later(25 * time.Hour)
	b.reconcile() // it is due, and the upgrade begins with another one, too
	b.ends(controlplane.EtcdBackup, batchv1.JobComplete)
	b.made()
	for _, job := range b.jobs(controlplane.EtcdBackup) {
		require.Equal(t, "v1.37.2", controlplane.WrittenBy(&job))
	}
}

// TestAllThatIsKnownOfARestoreIsGone: the first store, which is there yet, does not come up in the place of the last.
func TestAllThatIsKnownOfARestoreIsGone(t *testing.T) {
	t.Parallel()
	b := newBackupBed(t, tenancyv1alpha1.BackupTemplate{})
	b.reconcile()
	source := b.ends(controlplane.EtcdBackup, batchv1.JobComplete)
	b.wish(func(spec *tenancyv1alpha1.VirtualClusterSpec) { spec.RestoreFrom = source.Name })
	b.reconcile()
	b.ends(controlplane.EtcdRestore, batchv1.JobComplete)
	for _, object := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: root, Name: controlplane.Etcd}}, workload(controlplane.Etcd), workload(controlplane.APIServer),
	} {
		b.delete(object)
	}
	b.reconcile()
	require.Equal(t, []string{controlplane.ControllerManager}, b.exists())
	missing, message := b.conditions()
	require.Equal(t, tenancyv1alpha1.ReasonInvalid, missing[tenancyv1alpha1.ConditionUpToDate])
	require.Contains(t, message, "create configmap etcd --from-literal=generation=N")

	told := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: root, Name: controlplane.Etcd, Labels: controlplane.Labels(controlplane.Etcd)}, Data: map[string]string{"generation": "1"}}
	b.create(told)
	b.wish(func(spec *tenancyv1alpha1.VirtualClusterSpec) { spec.RestoreFrom = "" })
	b.reconcile()
	name, _ := b.volume()
	require.Equal(t, "data-1", name)
	require.NoError(t, b.reconciler.Client.Get(t.Context(), client.ObjectKeyFromObject(told), told))
	require.Equal(t, "existing", told.Data["initial-cluster-state"])
	require.Contains(t, told.Data["initial-cluster"], "etcd-0=")

	delete(told.Data, "generation")
	b.update(told)
	b.reconcile()
	_, message = b.conditions()
	require.Contains(t, message, "says generation 0, and there is a store of generation 1")
	name, _ = b.volume()
	require.Equal(t, "data-1", name, "an older copy brings no older store")
}

// TestABackupThatIsRefused: it is said where backups are told of, and the rest goes on.
func TestABackupThatIsRefused(t *testing.T) {
	t.Parallel()
	b := newBackupBed(t, tenancyv1alpha1.BackupTemplate{})
	b.create(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: root, Name: controlplane.BackupClaim}})
	b.reconcile()
	require.Equal(t, tenancyv1alpha1.ReasonInvalid, b.backedUp().Reason)
	require.Contains(t, b.backedUp().Message, "is not vc-manager's: delete it")
	missing, _ := b.conditions()
	require.NotContains(t, missing, tenancyv1alpha1.ConditionUpToDate)
}

// TestWhatIsNotRestored: what cannot be is said, and what runs goes on.
func TestWhatIsNotRestored(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change  func(*batchv1.Job)
		wants   string
		members int32
		why     string
	}{
		"another one":       {change: func(job *batchv1.Job) { job.Name = "etcd-backup-20200101-000000" }, why: "there is no such backup: kubectl -n " + root + " get jobs"},
		"one that runs":     {change: func(job *batchv1.Job) { job.Status.Conditions = nil }, why: "it is not whole"},
		"one that failed":   {change: func(job *batchv1.Job) { job.Status.Conditions[0].Type = batchv1.JobFailed }, why: "it is not whole"},
		"one without file":  {change: func(job *batchv1.Job) { job.Annotations = nil }, why: "it is not whole"},
		"of a newer one":    {wants: "v1.36.4", why: "API servers of v1.37.2 may have written what those of v1.36.4 do not read"},
		"of a far older":    {wants: "v1.39.0", why: "from v1.37.2 it goes up to v1.38 first, and not to v1.39.0"},
		"into two members":  {members: 2, why: "etcd has 1 replica or 3"},
		"of the one before": {wants: "v1.38.0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBackupBed(t, tenancyv1alpha1.BackupTemplate{})
			b.reconcile()
			job := b.ends(controlplane.EtcdBackup, batchv1.JobComplete)
			wish := job.Name
			if tc.change != nil {
				require.NoError(t, b.reconciler.Client.Delete(t.Context(), job))
				tc.change(job)
				job.ResourceVersion = ""
				require.NoError(t, b.reconciler.Client.Create(t.Context(), job))
			}
			b.wish(func(spec *tenancyv1alpha1.VirtualClusterSpec) { spec.RestoreFrom = wish })
			if tc.wants != "" {
				b.change(func(version *tenancyv1alpha1.ClusterVersionSpec) { version.KubernetesVersion = tc.wants })
			}
			b.change(func(version *tenancyv1alpha1.ClusterVersionSpec) { version.Etcd.Replicas = max(1, tc.members) })
			b.reconcile()
			b.reconcile()
			missing, message := b.conditions()
			if tc.why == "" {
				require.Contains(t, message, "waiting for Job etcd-restore-1")
				return
			}
			require.Equal(t, tenancyv1alpha1.ReasonInvalid, missing[tenancyv1alpha1.ConditionUpToDate])
			require.Contains(t, message, "spec.restoreFrom: "+wish+": ")
			require.Contains(t, message, tc.why)
			servers := workload(controlplane.APIServer).(*appsv1.Deployment)
			require.NoError(t, b.reconciler.Client.Get(t.Context(), client.ObjectKeyFromObject(servers), servers))
			require.NotZero(t, *servers.Spec.Replicas)
		})
	}
}

// TestABackupThatIsWishedFor: one is made when spec.backupAfter has come, once, whatever the schedule says, and also where the
// one before has failed just now. Condition BackedUp says how far it is, and the status its name.
func TestABackupThatIsWishedFor(t *testing.T) {
	t.Parallel()
	b := newBackupBed(t, tenancyv1alpha1.BackupTemplate{Schedule: "@every 24h"})
	wish := func(at time.Time) {
		t.Helper()
		vc := b.vc()
		vc.Spec.BackupAfter = ptr.To(metav1.NewTime(at))
		require.NoError(t, b.reconciler.Client.Update(t.Context(), vc))
	}
	whole := func(count int) *batchv1.Job {
		t.Helper()
		b.reconcile()
		require.Len(t, b.jobs(controlplane.EtcdBackup), count)
		job := b.ends(controlplane.EtcdBackup, batchv1.JobComplete)
		b.reconcile()
		require.Equal(t, metav1.ConditionTrue, b.backedUp().Status)
		require.Equal(t, job.Name, b.vc().Status.LastBackupName)
		require.False(t, controlplane.BackupBegun(job.Name).IsZero())
		return job
	}
	wish(b.clock.Now().Add(-time.Second))
	whole(1)
	b.later(time.Minute)
	b.reconcile()
	require.Len(t, b.jobs(controlplane.EtcdBackup), 1, "the first one was begun since")

	wish(b.clock.Now().Add(time.Minute)) // a clock that goes ahead
	again := b.reconcile()
	require.Len(t, b.jobs(controlplane.EtcdBackup), 1)
	require.Equal(t, metav1.ConditionTrue, b.backedUp().Status, "its time has not come")
	require.LessOrEqual(t, again.RequeueAfter, time.Minute)
	b.later(time.Minute)
	b.reconcile()
	b.reconcile()
	require.Contains(t, b.backedUp().Message, " runs: kubectl -n "+root, "although there is one of before")
	whole(2)
	b.later(time.Hour)
	b.reconcile()
	require.Len(t, b.jobs(controlplane.EtcdBackup), 2, "it is made once")

	wish(b.clock.Now())
	b.reconcile()
	b.ends(controlplane.EtcdBackup, batchv1.JobFailed)
	b.reconcile()
	require.Equal(t, tenancyv1alpha1.ReasonFailed, b.backedUp().Reason)
	require.Len(t, b.jobs(controlplane.EtcdBackup), 3)
	wish(b.clock.Now().Add(time.Minute))
	b.reconcile()
	require.Equal(t, tenancyv1alpha1.ReasonFailed, b.backedUp().Reason, "what failed is said until then")
	b.later(time.Second)
	wish(b.clock.Now())
	whole(4) // not ten minutes later
}
