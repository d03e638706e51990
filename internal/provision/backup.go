package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
	"github.com/superpool/superpool/internal/provision/objects"
	"github.com/superpool/superpool/internal/tenancy"
)

const (
	// retryPeriod is after how long a backup that failed is made again.
	retryPeriod = 10 * time.Minute
	// freshTime is how old the backup is at most that an upgrade begins with.
	freshTime = time.Hour
	// hangTime is how much longer than it may take a Job runs that has failed.
	hangTime = 10 * time.Minute
	// leastPeriod is the time between two backups, at least.
	leastPeriod = 15 * time.Minute
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

// openBackups reads the backups of a control plane.
func (r *Reconciler) openBackups(ctx context.Context, plane *controlplane.ControlPlane) (*backups, error) {
	b := &backups{Reconciler: r, plane: plane}
	for component, jobs := range map[string]*[]batchv1.Job{controlplane.EtcdBackup: &b.made, controlplane.EtcdRestore: &b.restores} {
		var list batchv1.JobList
		if err := r.Reader.List(ctx, &list, client.InNamespace(plane.Namespace), client.MatchingLabels(controlplane.Labels(component))); err != nil {
			return nil, fmt.Errorf("listing Jobs %s of %s: %w", component, plane.Namespace, err)
		}
		slices.SortFunc(list.Items, func(a, b batchv1.Job) int {
			return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(b.Name, a.Name))
		})
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

// outcomeOf returns what became of a Job, and when. One that should have ended long ago has failed, as one whose node is
// lost: the meta cluster waits for its pod.
func (b *backups) outcomeOf(job *batchv1.Job) (became outcome, at time.Time) {
	for i := range job.Status.Conditions {
		condition := &job.Status.Conditions[i]
		switch {
		case condition.Status != corev1.ConditionTrue:
		case condition.Type == batchv1.JobComplete:
			return complete, condition.LastTransitionTime.Time
		case condition.Type == batchv1.JobFailed:
			return failed, condition.LastTransitionTime.Time
		}
	}
	if at := job.CreationTimestamp.Add(controlplane.BackupTime + hangTime); at.Before(b.Clock.Now()) {
		return failed, at
	}
	return running, time.Time{}
}

// runs reports whether a backup is being made.
func (b *backups) runs() bool {
	return slices.ContainsFunc(b.made, func(job batchv1.Job) bool { became, _ := b.outcomeOf(&job); return became == running })
}

// newest returns when the newest backup was whole, nil for none.
func (b *backups) newest() *metav1.Time {
	for i := range b.made {
		if became, at := b.outcomeOf(&b.made[i]); became == complete {
			return ptr.To(metav1.NewTime(at))
		}
	}
	return nil
}

// keepUp makes a backup if one is due, and says what is known of them. again is shortened to when the next one is due. None
// is begun while what API servers write may change: it says of which version it is.
func (b *backups) keepUp(ctx context.Context, store *store, report *report, again *time.Duration) error {
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
	mayUpgrade := changesMinor(store.version(), b.plane.Version.Spec.KubernetesVersion) && preflight(store) == (tenancy.Reason{})
	if !b.runs() && (!store.hasServed() || mayUpgrade) {
		why := b.state()
		if why == (tenancy.Reason{}) && b.Clock.Now().After(due) {
			why = tenancy.Reason{Reason: tenancyv1alpha1.ReasonProgressing, Message: "A backup is due, and comes when the API servers are what they are to be"}
		}
		report.set(tenancyv1alpha1.ConditionBackedUp, why)
		return nil
	}
	due, why, err := b.makeAt(ctx, store, due, "")
	var broken *objects.BrokenError
	switch {
	case errors.As(err, &broken):
		due, why = b.Clock.Now().Add(mendingPeriod), tenancy.Reason{Reason: tenancyv1alpha1.ReasonInvalid, Message: err.Error()}
	case err != nil && objects.IsRefused(err):
		due, why = b.Clock.Now().Add(mendingPeriod), tenancy.Reason{Reason: tenancyv1alpha1.ReasonFailed, Message: err.Error()}
	case err != nil:
		return err
	}
	*again = min(*again, max(due.Sub(b.Clock.Now()), storePeriod))
	report.set(tenancyv1alpha1.ConditionBackedUp, why)
	return nil
}

// makeAt makes a backup if it is time, none is being made, and none has failed just now. It returns when it is time, and
// what is waited for, the zero Reason if the newest backup is whole. to is the version that the API servers get after it,
// "" for none.
func (b *backups) makeAt(ctx context.Context, store *store, due time.Time, to string) (time.Time, tenancy.Reason, error) {
	now := b.Clock.Now()
	if len(b.made) > 0 {
		if became, at := b.outcomeOf(&b.made[0]); became == failed {
			due = at.Add(retryPeriod)
		}
	}
	if b.runs() {
		return now.Add(controlplane.BackupTime), b.state(), nil // its end is an event
	}
	if now.Before(due) {
		return due, b.state(), nil
	}
	why, err := b.begin(ctx, store, to)
	return due, why, err
}

// state says why the newest backup is not whole, the zero Reason if it is.
func (b *backups) state() tenancy.Reason {
	if len(b.made) == 0 {
		return tenancy.Reason{Reason: tenancyv1alpha1.ReasonProgressing, Message: "There is no backup yet"}
	}
	newest := &b.made[0]
	switch became, _ := b.outcomeOf(newest); {
	case became == failed:
		return tenancy.Reason{Reason: tenancyv1alpha1.ReasonFailed, Message: fmt.Sprintf(
			"%s failed, and is made again in %v: kubectl -n %s logs job/%s", newest.Name, retryPeriod, b.plane.Namespace, newest.Name)}
	case became == running && b.newest() == nil:
		return b.waitsFor(newest)
	default:
		return tenancy.Reason{} // the one before is whole while another one is made
	}
}

// waitsFor says that a Job is waited for.
func (b *backups) waitsFor(job *batchv1.Job) tenancy.Reason {
	return tenancy.Reason{Reason: tenancyv1alpha1.ReasonProgressing, Message: fmt.Sprintf(
		"%s runs: kubectl -n %s describe job/%s", job.Name, b.plane.Namespace, job.Name)}
}

// due returns when the next backup is made by the schedule.
func (b *backups) due() (time.Time, error) {
	text := cmp.Or(b.plane.Version.Spec.Backup.Schedule, defaultSchedule)
	if strings.Contains(text, "TZ=") { // ParseStandard would take it
		return time.Time{}, errors.New("it is in UTC")
	}
	schedule, err := cron.ParseStandard(text)
	if err != nil {
		return time.Time{}, err //nolint:wrapcheck // the caller says of what
	}
	now := b.Clock.Now().UTC()
	for at := range 10 {
		next := schedule.Next(now.Add(time.Duration(at) * leastPeriod))
		switch after := schedule.Next(next); {
		case next.IsZero():
			return time.Time{}, errors.New("it never comes")
		case after.Sub(next) < leastPeriod:
			return time.Time{}, fmt.Errorf("it comes more often than every %v", leastPeriod)
		}
	}
	if len(b.made) == 0 {
		return now, nil
	}
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(b.plane.Tenant.UID)) // it takes all
	const parts = 1000
	next := schedule.Next(b.made[0].CreationTimestamp.UTC())
	return next.Add(schedule.Next(next).Sub(next) / spreadParts / parts * time.Duration(sum.Sum32()%parts)), nil
}

// readyMember returns the name of a member that is ready, "" for none, and whether that is so for long: it does not just
// start.
func (s *store) readyMember(ctx context.Context) (member string, isDown bool, err error) {
	pods, states, err := s.pods(ctx)
	if err != nil {
		return "", false, err
	}
	since := time.Time{}
	for i, pod := range states {
		if pod.Ready && !pod.Ending {
			member = max(member, pod.Name)
		}
		changed := pods[i].CreationTimestamp.Time
		if _, ready := podutil.GetPodCondition(&pods[i].Status, corev1.PodReady); ready != nil {
			changed = ready.LastTransitionTime.Time
		}
		if changed.After(since) {
			since = changed
		}
	}
	return member, member == "" && (s.set.ResourceVersion == "" || len(pods) > 0 && s.Clock.Since(since) > retryPeriod), nil
}

// begin makes a backup of a member that is ready, in the place of the oldest one where there are enough.
func (b *backups) begin(ctx context.Context, store *store, to string) (tenancy.Reason, error) {
	member, _, err := store.readyMember(ctx)
	switch {
	case err != nil:
		return tenancy.Reason{}, err
	case member == "":
		return tenancy.Reason{Reason: tenancyv1alpha1.ReasonProgressing, Message: "A backup is due, and no member of etcd is ready"}, nil
	}
	if err := b.policies(ctx); err != nil {
		return tenancy.Reason{}, err
	}
	if err := b.claim(ctx, b.plane.Backups()); err != nil {
		return tenancy.Reason{}, err
	}
	slot := b.slot(to)
	for i := range b.made {
		if older := &b.made[i]; controlplane.SlotOf(older) == slot {
			if err := b.remove(ctx, older); err != nil {
				return tenancy.Reason{}, err
			}
		}
	}
	job := b.plane.Backup(controlplane.BackupName(b.Clock.Now()), slot, member, store.version(), to)
	if err := b.Client.Create(ctx, job); err != nil {
		return tenancy.Reason{}, fmt.Errorf("creating Job %s/%s: %w", job.Namespace, job.Name, err)
	}
	b.made = slices.Insert(b.made, 0, *job)
	return b.waitsFor(job), nil
}

// policies lets Jobs reach what they need, and nothing else.
func (b *backups) policies(ctx context.Context) error {
	for _, policy := range b.plane.BackupPolicies() {
		if _, err := b.objects().Apply(ctx, policy); err != nil {
			return err
		}
	}
	return nil
}

// slot returns the number of the file of the next backup: where there are two for the same upgrade, that of the later one, so
// that an upgrade which hangs does not take all; else one that no backup has, or that of one which failed, rather than of
// the oldest; and never that of the one that is to be restored. to is the version of the upgrade, "" for none.
func (b *backups) slot(to string) int32 {
	keep := max(2, cmp.Or(b.plane.Version.Spec.Backup.Keep, defaultKeep))
	own := slices.DeleteFunc(slices.Clone(b.made), func(job batchv1.Job) bool {
		slot := controlplane.SlotOf(&job)
		return to == "" || !controlplane.IsBefore(&job, to) || slot < 0 || slot >= keep || job.Name == b.plane.Tenant.Spec.RestoreFrom
	})
	if len(own) > 1 {
		return controlplane.SlotOf(&own[0])
	}
	for slot := range keep {
		if !slices.ContainsFunc(b.made, func(job batchv1.Job) bool { return controlplane.SlotOf(&job) == slot }) {
			return slot
		}
	}
	oldest := int32(0)
	for i := range b.made { // the newest first
		job := &b.made[i]
		if slot := controlplane.SlotOf(job); slot >= 0 && slot < keep && job.Name != b.plane.Tenant.Spec.RestoreFrom {
			if oldest = slot; b.isFailed(job) {
				break
			}
		}
	}
	return oldest
}

func (b *backups) isFailed(job *batchv1.Job) bool {
	became, _ := b.outcomeOf(job)
	return became == failed
}

// claim creates a claim where there is none of that name. One that is not vc-manager's is an error.
func (b *backups) claim(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	live := &corev1.PersistentVolumeClaim{}
	err := b.Reader.Get(ctx, client.ObjectKeyFromObject(claim), live)
	switch {
	case apierrors.IsNotFound(err):
		err = b.Client.Create(ctx, claim)
	case err == nil && !controlplane.IsManaged(live):
		return objects.Broken("PersistentVolumeClaim %s/%s is not vc-manager's: delete it", claim.Namespace, claim.Name)
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

// beforeUpgrade returns what an upgrade to another minor version waits for: a backup that is made for it, not older than
// freshTime; any of the store where no member is ready for long, for the upgrade may mend that. None is being made then, as
// it would be one of another version than it says.
func (b *backups) beforeUpgrade(ctx context.Context, store *store) (tenancy.Reason, error) {
	to := b.plane.Version.Spec.KubernetesVersion
	if b.plane.Version.Spec.Backup == nil || !store.hasServed() || !changesMinor(store.version(), to) {
		return tenancy.Reason{}, nil
	}
	if !b.runs() {
		hasAny, hasOwn := b.has(store, to)
		if hasOwn {
			return tenancy.Reason{}, nil
		}
		if _, isDown, err := store.readyMember(ctx); err != nil || isDown && hasAny {
			return tenancy.Reason{}, err
		}
	}
	_, why, err := b.makeAt(ctx, store, b.Clock.Now(), to)
	if why == (tenancy.Reason{}) && err == nil {
		why = b.waitsFor(&b.made[0])
	}
	why.Message = "A backup comes before the upgrade, unless spec.backup is taken out of the ClusterVersion: " + why.Message
	return why, err
}

// has reports whether there is a backup of a store, and one that was made just now for its upgrade to a version.
func (b *backups) has(store *store, to string) (hasAny, hasOwn bool) {
	for i := range b.made {
		job := &b.made[i]
		became, at := b.outcomeOf(job)
		if became == complete && controlplane.WrittenBy(job) == store.version() && controlplane.GenerationOf(job) == store.state.Generation {
			hasAny = true
			hasOwn = hasOwn || controlplane.IsBefore(job, to) && b.Clock.Now().Before(at.Add(freshTime))
		}
	}
	return hasAny, hasOwn
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
