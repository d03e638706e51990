package controlplane

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// The components of Jobs: a backup is made by one, which stays for as long as the snapshot is there, and restored by
// another.
const (
	EtcdBackup  = "etcd-backup"
	EtcdRestore = "etcd-restore"
)

const (
	// BackupClaim is the claim of the volume with the snapshots.
	BackupClaim = "etcd-backups"
	// backupStorage is its size where the ClusterVersion does not say it.
	backupStorage = "16Gi"
	// backupFolder is where it is mounted.
	backupFolder = "/backups"
	// backupTime bounds how long a snapshot, and a restore, of 2 GiB takes.
	backupTime = time.Hour
	// moments is how the names of Jobs and volumes say when they were made, in UTC: later ones sort behind.
	moments = "20060102-150405"

	// annotationSlot is the number of the file of a backup: there are as many as backups are kept, and a snapshot takes the
	// place of an older one. Written by vc-manager; read by vc-manager.
	annotationSlot = "tenancy.x-k8s.io/backup-slot"
	// annotationUpgrade is the version of Kubernetes whose upgrade begins with a backup. Written by vc-manager; read by
	// vc-manager.
	annotationUpgrade = "tenancy.x-k8s.io/before-upgrade-to"
	// annotationSource is the backup that a Job restores. Written by vc-manager; read by vc-manager.
	annotationSource = "tenancy.x-k8s.io/restores"
)

// BackupName returns the name of a backup that is made now.
func BackupName(now time.Time) string { return EtcdBackup + "-" + now.UTC().Format(moments) }

// BackupTime returns when a backup began, in UTC: its name says it.
func BackupTime(backup *batchv1.Job) time.Time {
	began, err := time.Parse(moments, strings.TrimPrefix(backup.Name, EtcdBackup+"-"))
	if err != nil {
		return backup.CreationTimestamp.UTC() // somebody else's
	}
	return began
}

// SlotOf returns the number of the file of a backup, -1 where it has none.
func SlotOf(backup *batchv1.Job) int32 {
	slot, err := strconv.ParseInt(backup.Annotations[annotationSlot], 10, 32)
	if err != nil {
		return -1
	}
	return int32(slot)
}

// WrittenBy returns the version of Kubernetes of the API servers when a backup was made, "" where it does not say it.
func WrittenBy(backup *batchv1.Job) string { return backup.Annotations[annotationVersion] }

// IsBefore reports whether an upgrade from one version to another begins with a backup, of a store with a volume.
func IsBefore(backup *batchv1.Job, from, to, volume string) bool {
	isLater := strings.TrimPrefix(backup.Name, EtcdBackup) > strings.TrimPrefix(volume, firstVolume)
	return isLater && WrittenBy(backup) == from && backup.Annotations[annotationUpgrade] == to
}

// SourceOf returns the name of the backup that a Job restores.
func SourceOf(restore *batchv1.Job) string { return restore.Annotations[annotationSource] }

// RestoredVolume returns the name of the volumes of a store that a Job restores.
func RestoredVolume(restore *batchv1.Job) string {
	return firstVolume + strings.TrimPrefix(restore.Name, EtcdRestore)
}

// Backups returns the claim of the snapshots, which stays as it is where there is one.
func (c *ControlPlane) Backups() *corev1.PersistentVolumeClaim {
	template := c.Version.Spec.Backup
	size := template.Storage
	if size.IsZero() {
		size = resource.MustParse(backupStorage)
	}
	return &corev1.PersistentVolumeClaim{ObjectMeta: c.meta(EtcdBackup, BackupClaim), Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: template.StorageClassName,
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: size}},
	}}
}

// Backup returns the Job that writes a snapshot of a member into the file of a number. etcdctl writes another file first,
// so the one of before stays whole until this one is. from is the version of the API servers, and to the one that they
// get after it, "" for none.
func (c *ControlPlane) Backup(name string, slot int32, member, from, to string) *batchv1.Job {
	job := c.job(EtcdBackup, name, &program{
		template: &tenancyv1alpha1.ComponentTemplate{Image: c.Version.Spec.Etcd.Image, Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
		}},
		pairs: []string{EtcdManager}, authorities: []string{EtcdCA},
	}, "etcdctl", "snapshot", "save", backupFile(slot), "--endpoints="+c.address(member).Client,
		"--cacert="+certificates.Certificate(EtcdCA), "--cert="+certificates.Certificate(EtcdManager), "--key="+certificates.Key(EtcdManager))
	job.Annotations = map[string]string{annotationSlot: strconv.Itoa(int(slot)), annotationVersion: from}
	if to != "" {
		job.Annotations[annotationUpgrade] = to
	}
	job.Spec.BackoffLimit = ptr.To[int32](2)
	return job
}

// Restore returns the Job that makes the volume of a store of one member of a backup, and the claim of that. The volume is a
// new one: what there was before stays, whatever happens. Revisions go on behind all that there ever were, as long as
// there are fewer than a thousand writes in each second, so that each watch lists anew.
func (c *ControlPlane) Restore(backup *batchv1.Job, now time.Time) (*corev1.PersistentVolumeClaim, *batchv1.Job) {
	name, member := EtcdRestore+"-"+now.UTC().Format(moments), MemberName(0)
	peer := c.address(member).Peer
	job := c.job(EtcdRestore, name, &program{template: &c.Version.Spec.Etcd},
		"etcdutl", "snapshot", "restore", backupFile(SlotOf(backup)), "--data-dir="+dataFolder+"/data", "--name="+member,
		"--initial-cluster="+member+"="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster-token="+name,
		"--bump-revision="+strconv.FormatInt(now.Unix()*1000, 10), "--mark-compacted")
	job.Annotations = map[string]string{annotationSource: backup.Name}
	job.Spec.BackoffLimit = ptr.To[int32](0) // what is half made is not made whole: another Job has another volume
	volume := RestoredVolume(job)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: c.meta(Etcd, volume+"-"+member), Spec: etcdClaim()}
	mount(&job.Spec.Template.Spec, volume, claim.Name, dataFolder)
	return claim, job
}

func backupFile(slot int32) string { return path.Join(backupFolder, fmt.Sprintf("%d.db", slot)) }

// job returns a Job with the snapshots that runs a command of the image of etcd, once.
func (c *ControlPlane) job(component, name string, of *program, command ...string) *batchv1.Job {
	of.component = component
	pod := of.pod()
	container := &pod.Spec.Containers[0]
	container.Command, container.StartupProbe, container.LivenessProbe, container.ReadinessProbe = command, nil, nil, nil
	pod.Spec.RestartPolicy, pod.Spec.TopologySpreadConstraints = corev1.RestartPolicyNever, nil
	if len(of.pairs) == 0 { // a volume of nothing is refused
		pod.Spec.Volumes, container.VolumeMounts = nil, nil
	}
	mount(&pod.Spec, "backups", BackupClaim, backupFolder)
	return &batchv1.Job{
		TypeMeta: metav1.TypeMeta{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job"}, ObjectMeta: c.meta(component, name),
		Spec: batchv1.JobSpec{Template: pod, ActiveDeadlineSeconds: ptr.To(int64(backupTime.Seconds()))},
	}
}

// mount gives a pod the volume of a claim.
func mount(pod *corev1.PodSpec, name, claim, at string) {
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}})
	pod.Containers[0].VolumeMounts = append(pod.Containers[0].VolumeMounts, corev1.VolumeMount{Name: name, MountPath: at})
}
