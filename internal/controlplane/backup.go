package controlplane

import (
	"fmt"
	"path"
	"strconv"
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
	backupStorage = "20Gi"
	// backupFolder is where it is mounted.
	backupFolder = "/backups"
	// BackupTime bounds how long a snapshot, and a restore, of 2 GiB takes.
	BackupTime = time.Hour
	// revisions is how far a store is beyond the one before it, of which it may be an older one: more than were ever written.
	revisions = 1 << 40

	// annotationSlot is the number of the file of a backup: there are as many as backups are kept, and a snapshot takes the
	// place of an older one. Written by vc-manager; read by vc-manager.
	annotationSlot = "tenancy.x-k8s.io/backup-slot"
	// annotationUpgrade is the version of Kubernetes whose upgrade begins with a backup. Written by vc-manager; read by
	// vc-manager.
	annotationUpgrade = "tenancy.x-k8s.io/before-upgrade-to"
	// annotationSource is the backup that a Job restores. Written by vc-manager; read by vc-manager.
	annotationSource = "tenancy.x-k8s.io/restores"
)

// backupBegun is how the name of a backup says when it was begun.
const backupBegun = EtcdBackup + "-20060102-150405"

// BackupName returns the name of a backup that is made now.
func BackupName(now time.Time) string { return now.UTC().Format(backupBegun) }

// BackupBegun returns when a backup of that name was begun, to the second, by the clock of vc-manager; the zero time of
// what is no such name.
func BackupBegun(name string) time.Time {
	at, err := time.Parse(backupBegun, name)
	if err != nil {
		return time.Time{}
	}
	return at
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

// IsBefore reports whether the upgrade to a version of Kubernetes begins with a backup.
func IsBefore(backup *batchv1.Job, version string) bool {
	return backup.Annotations[annotationUpgrade] == version
}

// SourceOf returns the name of the backup that a Job restores.
func SourceOf(restore *batchv1.Job) string { return restore.Annotations[annotationSource] }

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
	job := c.job(EtcdBackup, name, &program{pairs: []string{EtcdManager}, authorities: []string{EtcdCA}}, corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi")},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
	}, "etcdctl", "snapshot", "save", backupFile(slot), "--endpoints="+c.address(member).Client,
		"--cacert="+certificates.Certificate(EtcdCA), "--cert="+certificates.Certificate(EtcdManager), "--key="+certificates.Key(EtcdManager))
	job.Annotations = map[string]string{
		annotationSlot: strconv.Itoa(int(slot)), annotationVersion: from, annotationGeneration: strconv.FormatInt(c.Generation, 10),
	}
	if to != "" {
		job.Annotations[annotationUpgrade] = to
	}
	job.Spec.BackoffLimit = ptr.To[int32](2)
	return job
}

// Restore returns the Job that makes the store of a generation, of one member, of a backup, and the claim of its volume,
// which is a new one: what there was before stays, whatever happens. Its revisions go on behind all that there were, in
// stores of before too, so that each watch lists anew.
func (c *ControlPlane) Restore(backup *batchv1.Job, generation int64) (*batchv1.Job, *corev1.PersistentVolumeClaim) {
	member, number := MemberName(0), strconv.FormatInt(generation, 10)
	peer := c.address(member).Peer
	job := c.job(EtcdRestore, EtcdRestore+"-"+number, &program{}, c.Version.Spec.Etcd.Resources,
		"etcdutl", "snapshot", "restore", backupFile(SlotOf(backup)), "--data-dir="+dataFolder+"/data", "--name="+member,
		"--initial-cluster="+member+"="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster-token="+EtcdRestore+"-"+number,
		"--bump-revision="+strconv.FormatInt((generation-GenerationOf(backup))*revisions, 10), "--mark-compacted")
	job.Annotations = map[string]string{annotationSource: backup.Name, annotationGeneration: number}
	job.Spec.BackoffLimit = ptr.To[int32](0) // what is half made is not made whole: another Job has another volume
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: c.meta(Etcd, ClaimName(member, generation)), Spec: etcdClaim()}
	mount(&job.Spec.Template.Spec, volumeName, claim.Name, dataFolder)
	return job, claim
}

func backupFile(slot int32) string { return path.Join(backupFolder, fmt.Sprintf("%d.db", slot)) }

// job returns a Job with the snapshots that runs a command of the image of etcd, once.
func (c *ControlPlane) job(component, name string, of *program, resources corev1.ResourceRequirements, command ...string) *batchv1.Job {
	of.component, of.template = component, &tenancyv1alpha1.ComponentTemplate{Image: c.Version.Spec.Etcd.Image, Resources: resources}
	pod := of.pod(c)
	container := &pod.Spec.Containers[0]
	container.Command, container.StartupProbe, container.LivenessProbe, container.ReadinessProbe = command, nil, nil, nil
	pod.Spec.RestartPolicy, pod.Spec.TopologySpreadConstraints = corev1.RestartPolicyNever, nil
	if len(of.pairs) == 0 { // a volume of nothing is refused
		pod.Spec.Volumes, container.VolumeMounts = nil, nil
	}
	mount(&pod.Spec, "backups", BackupClaim, backupFolder)
	return &batchv1.Job{
		TypeMeta: metav1.TypeMeta{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job"}, ObjectMeta: c.meta(component, name),
		Spec: batchv1.JobSpec{Template: pod, ActiveDeadlineSeconds: ptr.To(int64(BackupTime.Seconds()))},
	}
}

// mount gives a pod the volume of a claim.
func mount(pod *corev1.PodSpec, name, claim, at string) {
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}})
	pod.Containers[0].VolumeMounts = append(pod.Containers[0].VolumeMounts, corev1.VolumeMount{Name: name, MountPath: at})
}
