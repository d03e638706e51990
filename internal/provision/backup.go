package provision

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
	"github.com/superpool/superpool/internal/tenancy"
)

const (
	// retryPeriod is after how long a backup that failed is made again.
	retryPeriod = 10 * time.Minute
	// freshTime is how old the backup is at most that an upgrade begins with.
	freshTime = time.Hour
	// spreadParts is the part of the time between two backups in which those of one schedule begin.
	spreadParts = 10
	// defaultSchedule and defaultKeep are those of a ClusterVersion that does not say them.
	defaultSchedule = "@daily"
	defaultKeep     = 7
)

// backups are those of one control plane.
type backups struct {
	*Reconciler
	plane *controlplane.ControlPlane
	// made and restores are Jobs, the newest first, read without a cache.
	made, restores []batchv1.Job
}

// openBackups reads the backups of a control plane; it has none where none are wanted and none is to be restored.
func (r *Reconciler) openBackups(ctx context.Context, plane *controlplane.ControlPlane) (*backups, error) {
	b := &backups{Reconciler: r, plane: plane}
	if plane.Version.Spec.Backup == nil && plane.Tenant.Spec.RestoreFrom == "" {
		return b, nil
	}
	for component, jobs := range map[string]*[]batchv1.Job{controlplane.EtcdBackup: &b.made, controlplane.EtcdRestore: &b.restores} {
		var list batchv1.JobList
		if err := r.Reader.List(ctx, &list, client.InNamespace(plane.Namespace), client.MatchingLabels(controlplane.Labels(component))); err != nil {
			return nil, fmt.Errorf("listing Jobs %s of %s: %w", component, plane.Namespace, err)
		}
		slices.SortFunc(list.Items, func(a, b batchv1.Job) int { return cmp.Compare(b.Name, a.Name) }) // names have the time
		*jobs = list.Items
	}
	return b, nil
}

// outcome is what became of a Job.
type outcome int

const (
	running outcome = iota
	complete
	failed
)

// outcomeOf returns what became of a Job, and when.
func outcomeOf(job *batchv1.Job) (outcome, *metav1.Time) {
	for i := range job.Status.Conditions {
		condition := &job.Status.Conditions[i]
		switch {
		case condition.Status != corev1.ConditionTrue:
		case condition.Type == batchv1.JobComplete:
			return complete, &condition.LastTransitionTime
		case condition.Type == batchv1.JobFailed:
			return failed, &condition.LastTransitionTime
		}
	}
	return running, nil
}

// newest returns when the newest backup was whole, nil for none.
func (b *backups) newest() *metav1.Time {
	for i := range b.made {
		if became, at := outcomeOf(&b.made[i]); became == complete {
			return at
		}
	}
	return nil
}

// make makes a backup if one is due, and says what is known of them. again is shortened to when the next one is due.
func (b *backups) make(ctx context.Context, store *store, report *report, again *time.Duration) error {
	if b.plane.Version.Spec.Backup == nil {
		report.without = append(report.without, tenancyv1alpha1.ConditionBackedUp)
		return nil
	}
	report.lastBackup = b.newest()
	due, err := b.due()
	if err != nil {
		report.set(tenancyv1alpha1.ConditionBackedUp, tenancy.Reason{Reason: tenancyv1alpha1.ReasonInvalid, Message: fmt.Sprintf(
			"ClusterVersion %s: spec.backup.schedule: %v; give five fields as those of a CronJob, @daily or @every 6h", b.plane.Version.Name, err)})
		return nil
	}
	why, err := b.at(ctx, store, due, "")
	if err != nil {
		return err
	}
	*again = min(*again, max(due.Sub(b.Clock.Now()), time.Second))
	report.set(tenancyv1alpha1.ConditionBackedUp, why)
	return nil
}

// at makes a backup if it is time, none is being made, and none has failed just now. It returns what is waited for, the
// zero Reason if the newest backup is whole. to is the version that the API servers get after it, "" for none.
func (b *backups) at(ctx context.Context, store *store, due time.Time, to string) (tenancy.Reason, error) {
	if len(b.made) > 0 {
		switch became, at := outcomeOf(&b.made[0]); became {
		case running:
			return b.state(), nil
		case failed:
			due = at.Add(retryPeriod)
		case complete:
		}
	}
	if b.Clock.Now().Before(due) {
		return b.state(), nil
	}
	return b.begin(ctx, store, to)
}

// state says why the newest backup is not whole, the zero Reason if it is.
func (b *backups) state() tenancy.Reason {
	if len(b.made) == 0 {
		return tenancy.Reason{Reason: tenancyv1alpha1.ReasonProgressing, Message: "There is no backup yet"}
	}
	newest := &b.made[0]
	switch became, _ := outcomeOf(newest); became {
	case complete:
		return tenancy.Reason{}
	case failed:
		return tenancy.Reason{Reason: tenancyv1alpha1.ReasonFailed, Message: fmt.Sprintf(
			"%s failed, and is made again in %v: kubectl -n %s logs job/%s", newest.Name, retryPeriod, b.plane.Namespace, newest.Name)}
	default:
		if b.newest() != nil {
			return tenancy.Reason{} // it is the one before
		}
		return b.waitsFor(newest)
	}
}

// waitsFor says that a Job is waited for.
func (b *backups) waitsFor(job *batchv1.Job) tenancy.Reason {
	return tenancy.Reason{Reason: tenancyv1alpha1.ReasonProgressing, Message: fmt.Sprintf(
		"%s runs: kubectl -n %s describe job/%s", job.Name, b.plane.Namespace, job.Name)}
}

// due returns when the next backup is made.
func (b *backups) due() (time.Time, error) {
	schedule, err := cron.ParseStandard(cmp.Or(b.plane.Version.Spec.Backup.Schedule, defaultSchedule))
	if err != nil || len(b.made) == 0 {
		return b.Clock.Now(), err //nolint:wrapcheck // the caller says of what
	}
	next := schedule.Next(controlplane.BackupTime(&b.made[0]))
	if next.IsZero() {
		return next, fmt.Errorf("it never comes")
	}
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(b.plane.Tenant.UID)) // it takes all
	const parts = 1000
	spread := schedule.Next(next).Sub(next) / spreadParts
	return next.Add(max(spread, 0) / parts * time.Duration(sum.Sum32()%parts)), nil
}

// begin makes a backup of a member that is ready, in the place of the oldest one where there are enough.
func (b *backups) begin(ctx context.Context, store *store, to string) (tenancy.Reason, error) {
	_, states, err := store.pods(ctx)
	if err != nil {
		return tenancy.Reason{}, err
	}
	member := ""
	for _, pod := range states {
		if pod.Ready && !pod.Ending {
			member = max(member, pod.Name)
		}
	}
	if member == "" {
		return tenancy.Reason{Reason: tenancyv1alpha1.ReasonProgressing, Message: "A backup is due, and no member of etcd is ready"}, nil
	}
	for _, policy := range b.plane.BackupPolicies() {
		if _, err := b.apply(ctx, policy); err != nil {
			return tenancy.Reason{}, err
		}
	}
	if err := b.claim(ctx, b.plane.Backups()); err != nil {
		return tenancy.Reason{}, err
	}
	from, err := b.versionNow(ctx)
	if err != nil {
		return tenancy.Reason{}, err
	}
	slot, older := b.slot()
	if older != nil {
		if err := b.remove(ctx, older); err != nil {
			return tenancy.Reason{}, err
		}
	}
	job := b.plane.Backup(controlplane.BackupName(b.Clock.Now()), slot, member, from, to)
	if err := b.Client.Create(ctx, job); err != nil {
		return tenancy.Reason{}, fmt.Errorf("creating Job %s/%s: %w", job.Namespace, job.Name, err)
	}
	return b.waitsFor(job), nil
}

// versionNow returns the version of Kubernetes of the API servers, "" where there are none.
func (b *backups) versionNow(ctx context.Context) (string, error) {
	servers, err := b.servers(ctx, b.plane.Namespace)
	return controlplane.VersionOf(servers), err
}

// slot returns the number of the file of the next backup, and the one that has it, nil for none: one that failed rather
// than the oldest, and never the one that is to be restored.
func (b *backups) slot() (int32, *batchv1.Job) {
	keep := cmp.Or(b.plane.Version.Spec.Backup.Keep, defaultKeep)
	for slot := range keep {
		if !slices.ContainsFunc(b.made, func(job batchv1.Job) bool { return controlplane.SlotOf(&job) == slot }) {
			return slot, nil
		}
	}
	var older *batchv1.Job
	for i := range b.made { // the newest first
		job := &b.made[i]
		if slot := controlplane.SlotOf(job); slot < 0 || slot >= keep || job.Name == b.plane.Tenant.Spec.RestoreFrom {
			continue
		}
		if older = job; isFailed(job) {
			break
		}
	}
	return controlplane.SlotOf(older), older
}

func isFailed(job *batchv1.Job) bool { became, _ := outcomeOf(job); return became == failed }

// claim creates a claim where there is none of that name. One that is not vc-manager's is an error.
func (b *backups) claim(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	live := &corev1.PersistentVolumeClaim{}
	err := b.Reader.Get(ctx, client.ObjectKeyFromObject(claim), live)
	switch {
	case apierrors.IsNotFound(err):
		err = b.Client.Create(ctx, claim)
	case err == nil && !controlplane.IsManaged(live):
		return broken("PersistentVolumeClaim %s/%s is not vc-manager's: delete it", claim.Namespace, claim.Name)
	}
	if err != nil {
		return fmt.Errorf("creating PersistentVolumeClaim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}

// remove deletes the Job that was read, with its pods.
func (b *backups) remove(ctx context.Context, job *batchv1.Job) error {
	err := b.Client.Delete(ctx, job, client.Preconditions{UID: &job.UID}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting Job %s/%s: %w", job.Namespace, job.Name, err)
	}
	return nil
}

// before returns what an upgrade to another minor version waits for: a backup that is made for it, not older than
// freshTime.
func (b *backups) before(ctx context.Context, store *store) (tenancy.Reason, error) {
	from, err := b.versionNow(ctx)
	to := b.plane.Version.Spec.KubernetesVersion
	if err != nil || b.plane.Version.Spec.Backup == nil || from == "" || !changesMinor(from, to) {
		return tenancy.Reason{}, err
	}
	now := b.Clock.Now()
	for i := range b.made {
		became, at := outcomeOf(&b.made[i])
		if became == complete && controlplane.IsBefore(&b.made[i], from, to, store.state.Volume) && now.Before(at.Add(freshTime)) {
			return tenancy.Reason{}, nil
		}
	}
	why, err := b.at(ctx, store, now, to)
	if why == (tenancy.Reason{}) && err == nil {
		why = b.waitsFor(&b.made[0])
	}
	why.Message = "A backup comes before the upgrade: " + why.Message
	return why, err
}

// changesMinor reports whether a version is of another minor version.
func changesMinor(from, to string) bool {
	before, err := version.ParseSemantic(from)
	after, others := version.ParseSemantic(to)
	return err != nil || others != nil || !sameMinor(before, after)
}

// named returns the backup of a name, nil for none.
func (b *backups) named(name string) *batchv1.Job {
	for i := range b.made {
		if b.made[i].Name == name {
			return &b.made[i]
		}
	}
	return nil
}
