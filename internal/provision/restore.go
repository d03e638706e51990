package provision

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
	"github.com/superpool/superpool/internal/tenancy"
)

// maxRestores is how many Jobs try to restore a backup: each takes a volume of its own.
const maxRestores = 3

// isRestored reports whether the store is to be made anew of a backup.
func (s *store) isRestored() bool {
	from := s.plane.Tenant.Spec.RestoreFrom
	return from != "" && from != s.state.Restored
}

// restorable returns why the store cannot be made anew of the backup that is named, "" when it can, and that backup.
func (s *store) restorable(b *backups) (backup *batchv1.Job, why string) {
	backup = b.named(s.plane.Tenant.Spec.RestoreFrom)
	if backup == nil {
		return nil, fmt.Sprintf("there is no such backup: kubectl -n %s get jobs -l app.kubernetes.io/name=%s", s.plane.Namespace, controlplane.EtcdBackup)
	}
	if became, _ := outcomeOf(backup); became != complete || controlplane.SlotOf(backup) < 0 {
		return nil, "it is not whole"
	}
	by, err := version.ParseSemantic(controlplane.WrittenBy(backup))
	to, others := version.ParseSemantic(s.plane.Version.Spec.KubernetesVersion)
	switch {
	case err != nil || others != nil: // a control plane that was never whole
		return backup, ""
	case by.Major() != to.Major() || to.Minor() < by.Minor() || to.Minor() > by.Minor()+1:
		return nil, fmt.Sprintf("API servers of v%s have written it: name a ClusterVersion of v%d.%d with it", by, by.Major(), by.Minor())
	}
	return backup, ""
}

// restore ends all programs, makes a store of one member of the backup that is named, in a new volume, and lets that be the
// store. It returns what it waits for; the zero Reason when the store is the one that was restored. Until then what there
// was can be had back by another wish.
func (s *store) restore(ctx context.Context, b *backups, backup *batchv1.Job) (tenancy.Reason, error) {
	waits := func(what string) tenancy.Reason {
		return tenancy.Reason{Reason: tenancyv1alpha1.ReasonProgressing, Message: "Restoring " + backup.Name + ": " + what}
	}
	what, err := s.endAll(ctx, s.plane.Namespace)
	if err != nil || what != "" {
		return waits("waiting for the end of " + what), err
	}
	if pods, _, err := s.pods(ctx); err != nil || len(pods) > 0 || s.set.Status.Replicas > 0 { // the cache may be behind
		return waits("waiting for the end of " + controlplane.Etcd), err
	}
	job, tries := b.restoring(s.state.Volume)
	if job == nil {
		if tries == maxRestores {
			return tenancy.Reason{Reason: tenancyv1alpha1.ReasonFailed, Message: fmt.Sprintf(
				"%s cannot be restored: kubectl -n %s logs -l app.kubernetes.io/name=%s; name another one, or none: what there was is there",
				backup.Name, s.plane.Namespace, controlplane.EtcdRestore)}, nil
		}
		return waits("a Job is made for it"), b.beginRestore(ctx, backup)
	}
	if became, _ := outcomeOf(job); became == running {
		return waits(fmt.Sprintf("waiting for Job %s: kubectl -n %s describe job/%s", job.Name, s.plane.Namespace, job.Name)), nil
	}
	return tenancy.Reason{}, s.become(ctx, controlplane.Store{
		Pods: 1, Members: []string{controlplane.MemberName(0)}, Volume: controlplane.RestoredVolume(job), Restored: backup.Name,
	})
}

// restoring returns the Job that restores the backup that is named for a store which has another volume, nil for none, and
// how many others have failed.
func (b *backups) restoring(volume string) (job *batchv1.Job, tries int) {
	for i := range b.restores {
		of := &b.restores[i]
		switch {
		case controlplane.SourceOf(of) != b.plane.Tenant.Spec.RestoreFrom, controlplane.RestoredVolume(of) <= volume: // of another wish
		case isFailed(of):
			tries++
		case job == nil:
			job = of
		}
	}
	return job, tries
}

// beginRestore makes the claim and the Job that restores a backup into it.
func (b *backups) beginRestore(ctx context.Context, backup *batchv1.Job) error {
	for _, policy := range b.plane.BackupPolicies() {
		if _, err := b.apply(ctx, policy); err != nil {
			return err
		}
	}
	claim, job := b.plane.Restore(backup, b.Clock.Now())
	if err := b.claim(ctx, claim); err != nil {
		return err
	}
	if err := b.Client.Create(ctx, job); err != nil {
		return fmt.Errorf("creating Job %s/%s: %w", job.Namespace, job.Name, err)
	}
	return nil
}

// become puts a store in the place of the one that there was, whose programs have ended: its StatefulSet goes, as the names
// of volumes of one cannot change, and its claims stay. What API servers stored is of the version that is wanted.
func (s *store) become(ctx context.Context, state controlplane.Store) error {
	if s.set.ResourceVersion != "" {
		err := s.Client.Delete(ctx, s.set, client.Preconditions{UID: &s.set.UID, ResourceVersion: &s.set.ResourceVersion},
			client.PropagationPolicy(metav1.DeletePropagationBackground))
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting StatefulSet %s/%s: %w", s.plane.Namespace, s.set.Name, err)
		}
	}
	servers, err := s.servers(ctx, s.plane.Namespace)
	if err != nil {
		return err
	}
	if servers.ResourceVersion != "" {
		before := servers.DeepCopy()
		controlplane.SetVersion(servers, s.plane.Version.Spec.KubernetesVersion)
		if err := s.Client.Patch(ctx, servers, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(fieldManager)); err != nil {
			return fmt.Errorf("writing the version of the API servers of %s: %w", s.plane.Namespace, err)
		}
	}
	s.set, s.state = &appsv1.StatefulSet{}, state
	return s.tell(ctx)
}
