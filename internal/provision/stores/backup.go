package stores

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

// Backups are those of one control plane, for one reconcile. They are for one goroutine.
type Backups struct {
	store *Store
	// made and restores are Jobs, the newest first, read without a cache.
	made, restores []batchv1.Job
}

// Backups reads the backups of a control plane. An objects.BrokenError says that nothing is left of a store which was
// restored once.
func (s *Store) Backups(ctx context.Context) (*Backups, error) {
	b := &Backups{store: s}
	for component, jobs := range map[string]*[]batchv1.Job{controlplane.EtcdBackup: &b.made, controlplane.EtcdRestore: &b.restores} {
		var list batchv1.JobList
		if err := s.stores.reader.List(ctx, &list, client.InNamespace(s.plane.Namespace), client.MatchingLabels(controlplane.Labels(component))); err != nil {
			return nil, fmt.Errorf("listing Jobs %s of %s: %w", component, s.plane.Namespace, err)
		}
		slices.SortFunc(list.Items, func(a, b batchv1.Job) int {
			return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(b.Name, a.Name))
		})
		*jobs = list.Items
	}
	if s.state.New && len(b.restores) > 0 {
		return nil, objects.Broken("ConfigMap and StatefulSet etcd and the API servers are gone, and there are Jobs etcd-restore-N: name the store, by the N of a claim data-N-etcd-0: "+
			"kubectl -n %[1]s create configmap etcd --from-literal=generation=N && kubectl -n %[1]s label configmap etcd app.kubernetes.io/managed-by=vc-manager", s.plane.Namespace)
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

// outcomeOf returns what became of a Job, and when. One that should have ended long ago has failed, as one whose node
// is lost: the meta cluster waits for its pod.
func (b *Backups) outcomeOf(job *batchv1.Job) (became outcome, at time.Time) {
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
	if at := job.CreationTimestamp.Add(controlplane.BackupTime + hangTime); at.Before(b.store.stores.clock.Now()) {
		return failed, at
	}
	return running, time.Time{}
}

// runs reports whether a backup is being made.
func (b *Backups) runs() bool {
	return slices.ContainsFunc(b.made, func(job batchv1.Job) bool { became, _ := b.outcomeOf(&job); return became == running })
}

// newest returns the newest backup that is whole, with when it was, "" and nil for none.
func (b *Backups) newest() (name string, whole *metav1.Time) {
	for i := range b.made {
		if became, at := b.outcomeOf(&b.made[i]); became == complete {
			return b.made[i].Name, ptr.To(metav1.NewTime(at))
		}
	}
	return "", nil
}

// wished returns when a backup is wished for by spec.backupAfter, nil where none is, or the one of that name, "" for
// none, was begun since.
func (b *Backups) wished(name string) *time.Time {
	after := b.store.plane.Tenant.Spec.BackupAfter
	if after == nil || !controlplane.BackupBegun(name).Before(after.Truncate(time.Second)) {
		return nil
	}
	return &after.Time
}

// isOwed reports whether one is wished for instead of that of a name, and the time has come.
func (b *Backups) isOwed(name string) bool {
	after := b.wished(name)
	return after != nil && !b.store.stores.clock.Now().Before(*after)
}

// last returns the name of the backup that was begun last, whatever became of it, "" for none.
func (b *Backups) last() string {
	if len(b.made) == 0 {
		return ""
	}
	return b.made[0].Name
}

// Kept is what is known of the backups of a control plane.
type Kept struct {
	// Newest is when the newest one was whole, and Name its name, nil and "" for none.
	Newest *metav1.Time
	Name   string
	// Why is why they are not as they are to be, the zero Reason when they are.
	Why tenancy.Reason
	// Again is after how long they are looked at again, 0 where an event tells.
	Again time.Duration
}

// KeepUp makes a backup if one is due, and returns what is known of them, nil where there are to be none. With an error
// Newest alone is known. None is begun while what API servers write may change: it says of which version it is.
func (b *Backups) KeepUp(ctx context.Context) (*Kept, error) {
	if b.store.plane.Version.Spec.Backup == nil {
		return nil, nil
	}
	kept := &Kept{}
	kept.Name, kept.Newest = b.newest()
	due, err := b.due()
	if err != nil {
		kept.Why = tenancy.Reason{Reason: tenancyv1alpha1.ReasonInvalid, Message: fmt.Sprintf(
			"ClusterVersion %s: spec.backup.schedule: %v; give five fields as those of a CronJob, @daily or @every 6h", b.store.plane.Version.Name, err)}
		return kept, nil
	}
	clock := b.store.stores.clock
	mayUpgrade := b.store.ChangesMinor() && b.store.preflight() == (tenancy.Reason{})
	if !b.runs() && (!b.store.HasServed() || mayUpgrade) {
		kept.Why = b.state()
		if kept.Why == (tenancy.Reason{}) && clock.Now().After(due) {
			kept.Why = tenancy.Reason{Reason: tenancyv1alpha1.ReasonProgressing, Message: "A backup is due, and comes when the API servers are what they are to be"}
		}
		return kept, nil
	}
	due, kept.Why, err = b.makeAt(ctx, due, "")
	var broken *objects.BrokenError
	switch {
	case errors.As(err, &broken):
		due, kept.Why = clock.Now().Add(objects.MendingPeriod), tenancy.Reason{Reason: tenancyv1alpha1.ReasonInvalid, Message: err.Error()}
	case err != nil && objects.IsRefused(err):
		due, kept.Why = clock.Now().Add(objects.MendingPeriod), tenancy.Reason{Reason: tenancyv1alpha1.ReasonFailed, Message: err.Error()}
	case err != nil:
		return kept, err
	}
	kept.Again = max(due.Sub(clock.Now()), AskPeriod)
	return kept, nil
}

// makeAt makes a backup if it is time, none is being made, and none has failed just now. It returns when it is time,
// and what is waited for, the zero Reason if the newest backup is whole. to is the version that the API servers get
// after it, "" for none.
func (b *Backups) makeAt(ctx context.Context, due time.Time, to string) (time.Time, tenancy.Reason, error) {
	now := b.store.stores.clock.Now()
	if len(b.made) > 0 {
		if became, at := b.outcomeOf(&b.made[0]); became == failed {
			due = at.Add(retryPeriod)
		}
	}
	if after := b.wished(b.last()); after != nil && after.Before(due) {
		due = *after
	}
	if b.runs() {
		return now.Add(controlplane.BackupTime), b.state(), nil // its end is an event
	}
	if now.Before(due) {
		return due, b.state(), nil
	}
	why, err := b.begin(ctx, to)
	return due, why, err
}

// state says why the newest backup is not whole, the zero Reason if it is.
func (b *Backups) state() tenancy.Reason {
	if len(b.made) == 0 {
		return tenancy.Reason{Reason: tenancyv1alpha1.ReasonProgressing, Message: "There is no backup yet"}
	}
	newest := &b.made[0]
	whole, _ := b.newest()
	switch became, _ := b.outcomeOf(newest); {
	case became != running && b.isOwed(newest.Name):
		return tenancy.Reason{Reason: tenancyv1alpha1.ReasonProgressing, Message: "A backup is wished for, and comes when the API servers are what they are to be"}
	case became == failed:
		return tenancy.Reason{Reason: tenancyv1alpha1.ReasonFailed, Message: fmt.Sprintf(
			"%s failed, and is made again in %v: kubectl -n %s logs job/%s", newest.Name, retryPeriod, b.store.plane.Namespace, newest.Name)}
	case became == running && (whole == "" || b.isOwed(whole)):
		return b.waitsFor(newest)
	default:
		return tenancy.Reason{} // the one before is whole while another one is made
	}
}

// waitsFor says that a Job is waited for.
func (b *Backups) waitsFor(job *batchv1.Job) tenancy.Reason {
	return tenancy.Reason{Reason: tenancyv1alpha1.ReasonProgressing, Message: fmt.Sprintf(
		"%s runs: kubectl -n %s describe job/%s", job.Name, b.store.plane.Namespace, job.Name)}
}

// due returns when the next backup is made by the schedule.
func (b *Backups) due() (time.Time, error) {
	text := cmp.Or(b.store.plane.Version.Spec.Backup.Schedule, defaultSchedule)
	if strings.Contains(text, "TZ=") { // ParseStandard would take it
		return time.Time{}, errors.New("it is in UTC")
	}
	schedule, err := cron.ParseStandard(text)
	if err != nil {
		return time.Time{}, err //nolint:wrapcheck // the caller says of what
	}
	now := b.store.stores.clock.Now().UTC()
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
	_, _ = sum.Write([]byte(b.store.plane.Tenant.UID)) // it takes all
	const parts = 1000
	next := schedule.Next(b.made[0].CreationTimestamp.UTC())
	return next.Add(schedule.Next(next).Sub(next) / spreadParts / parts * time.Duration(sum.Sum32()%parts)), nil
}

// begin makes a backup of a member that is ready, in the place of the oldest one where there are enough.
func (b *Backups) begin(ctx context.Context, to string) (tenancy.Reason, error) {
	member, _, err := b.store.readyMember(ctx)
	switch {
	case err != nil:
		return tenancy.Reason{}, err
	case member == "":
		return tenancy.Reason{Reason: tenancyv1alpha1.ReasonProgressing, Message: "A backup is due, and no member of etcd is ready"}, nil
	}
	if err := b.policies(ctx); err != nil {
		return tenancy.Reason{}, err
	}
	if err := b.claim(ctx, b.store.plane.Backups()); err != nil {
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
	job := b.store.plane.Backup(controlplane.BackupName(b.store.stores.clock.Now()), slot, member, b.store.version(), to)
	if err := b.store.stores.client.Create(ctx, job); err != nil {
		return tenancy.Reason{}, fmt.Errorf("creating Job %s/%s: %w", job.Namespace, job.Name, err)
	}
	b.made = slices.Insert(b.made, 0, *job)
	return b.waitsFor(job), nil
}

// policies lets Jobs reach what they need, and nothing else.
func (b *Backups) policies(ctx context.Context) error {
	for _, policy := range b.store.plane.BackupPolicies() {
		if _, err := b.store.stores.objects.Apply(ctx, policy); err != nil {
			return err
		}
	}
	return nil
}

// slot returns the number of the file of the next backup: where there are two for the same upgrade, that of the later
// one, so that an upgrade which hangs does not take all; else one that no backup has, or that of one which failed,
// rather than of the oldest; and never that of the one that is to be restored. to is the version of the upgrade, "" for
// none.
func (b *Backups) slot(to string) int32 {
	keep := max(2, cmp.Or(b.store.plane.Version.Spec.Backup.Keep, defaultKeep))
	own := slices.DeleteFunc(slices.Clone(b.made), func(job batchv1.Job) bool {
		slot := controlplane.SlotOf(&job)
		return to == "" || !controlplane.IsBefore(&job, to) || slot < 0 || slot >= keep || job.Name == b.store.plane.Tenant.Spec.RestoreFrom
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
		if slot := controlplane.SlotOf(job); slot >= 0 && slot < keep && job.Name != b.store.plane.Tenant.Spec.RestoreFrom {
			if oldest = slot; b.isFailed(job) {
				break
			}
		}
	}
	return oldest
}

func (b *Backups) isFailed(job *batchv1.Job) bool {
	became, _ := b.outcomeOf(job)
	return became == failed
}

// claim creates a claim where there is none of that name. One that is not vc-manager's is an error.
func (b *Backups) claim(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	live := &corev1.PersistentVolumeClaim{}
	err := b.store.stores.reader.Get(ctx, client.ObjectKeyFromObject(claim), live)
	switch {
	case apierrors.IsNotFound(err):
		err = b.store.stores.client.Create(ctx, claim)
	case err == nil && !controlplane.IsManaged(live):
		return objects.Broken("PersistentVolumeClaim %s/%s is not vc-manager's: delete it", claim.Namespace, claim.Name)
	}
	if err != nil {
		return fmt.Errorf("creating PersistentVolumeClaim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}

// remove deletes the Job that was read, with its pods.
func (b *Backups) remove(ctx context.Context, job *batchv1.Job) error {
	err := b.store.stores.client.Delete(ctx, job, client.Preconditions{UID: &job.UID}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting Job %s/%s: %w", job.Namespace, job.Name, err)
	}
	return nil
}

// named returns the backup of a name, nil for none.
func (b *Backups) named(name string) *batchv1.Job {
	for i := range b.made {
		if b.made[i].Name == name {
			return &b.made[i]
		}
	}
	return nil
}
