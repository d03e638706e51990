package provision

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
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

// maxRestores is how many Jobs try to restore a backup: each takes a volume of its own.
const maxRestores = 3

// restorable returns why the store cannot be made anew of the backup that is named, "" when it can, and that backup.
func (s *store) restorable(b *backups) (backup *batchv1.Job, why string) {
	backup = b.named(s.plane.Tenant.Spec.RestoreFrom)
	if backup == nil {
		return nil, fmt.Sprintf("there is no such backup: kubectl -n %s get jobs -l app.kubernetes.io/name=%s", s.plane.Namespace, controlplane.EtcdBackup)
	}
	if became, _ := b.outcomeOf(backup); became != complete || controlplane.SlotOf(backup) < 0 {
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

// restore makes the store anew of the backup that is named. A Job makes a store of one member of it, in a new volume, while
// all programs run; then they end, and that is the store. Before that nothing of what there was is touched, and another wish
// takes it back. It returns what it waits for, or why it does nothing, and whether the rest goes on meanwhile.
func (s *store) restore(ctx context.Context, b *backups) (why tenancy.Reason, goesOn bool, err error) {
	wish := s.plane.Tenant.Spec.RestoreFrom
	if err := s.forget(ctx, b, wish); err != nil || wish == "" || wish == s.state.Restored {
		return tenancy.Reason{}, true, err
	}
	says := func(reason, format string, values ...any) tenancy.Reason {
		return tenancy.Reason{Reason: reason, Message: fmt.Sprintf("spec.restoreFrom: %s: ", wish) + fmt.Sprintf(format, values...)}
	}
	backup, refused := s.restorable(b)
	if refused != "" {
		return says(tenancyv1alpha1.ReasonInvalid, "%s; what runs goes on", refused), true, nil
	}
	job, tries := b.restoring(s.state.Generation)
	switch {
	case job == nil && tries >= maxRestores:
		return says(tenancyv1alpha1.ReasonFailed, "%d Jobs have failed; what runs goes on: kubectl -n %s logs -l app.kubernetes.io/name=%s; clear spec.restoreFrom, and set it again to try again",
			tries, s.plane.Namespace, controlplane.EtcdRestore), true, nil
	case job == nil && b.runs():
		return says(tenancyv1alpha1.ReasonProgressing, "waiting for a backup that is being made"), false, nil
	case job == nil:
		job, err = b.beginRestore(ctx, backup, s.state.Generation)
	}
	if err != nil {
		return tenancy.Reason{}, false, err
	}
	if became, _ := b.outcomeOf(job); became != complete {
		_, claim := s.plane.Restore(backup, controlplane.GenerationOf(job))
		return says(tenancyv1alpha1.ReasonProgressing, "waiting for Job %s: kubectl -n %s describe job/%s", job.Name, s.plane.Namespace, job.Name), false, b.claim(ctx, claim)
	}
	runs, err := s.endForRestore(ctx)
	if err != nil || runs != "" {
		return says(tenancyv1alpha1.ReasonProgressing, "waiting for the end of %s", runs), false, err
	}
	return tenancy.Reason{}, true, s.become(ctx, controlplane.Store{
		Pods: 1, Members: []string{controlplane.MemberName(0)}, Generation: controlplane.GenerationOf(job), Restored: backup.Name, Version: controlplane.WrittenBy(backup),
	})
}

// forget lets a wish that is there no more be wished for again: it deletes the Jobs which tried to restore another backup
// than the one that is named.
func (s *store) forget(ctx context.Context, b *backups, wish string) error {
	if wish == "" && s.told != nil && controlplane.ForgetRestored(s.told) {
		if err := s.Client.Update(ctx, s.told); err != nil {
			return fmt.Errorf("writing ConfigMap %s/%s: %w", s.plane.Namespace, controlplane.Etcd, err)
		}
	}
	if wish == "" {
		s.state.Restored = ""
	}
	for i := range b.restores {
		if job := &b.restores[i]; controlplane.SourceOf(job) != wish && controlplane.GenerationOf(job) > s.state.Generation {
			if err := b.remove(ctx, job); err != nil {
				return err
			}
		}
	}
	return nil
}

// endForRestore ends all programs, and returns the name of one that has pods, "" for none: also those that are about to end,
// as they may write yet.
func (s *store) endForRestore(ctx context.Context) (string, error) {
	if waits, err := s.endAll(ctx, s.plane.Namespace); err != nil || waits != "" {
		return waits, err
	}
	for _, component := range []string{controlplane.ControllerManager, controlplane.APIServer, controlplane.Etcd} {
		var list corev1.PodList
		if err := s.Reader.List(ctx, &list, client.InNamespace(s.plane.Namespace), client.MatchingLabels(controlplane.Labels(component))); err != nil {
			return "", fmt.Errorf("listing the pods of %s of %s: %w", component, s.plane.Namespace, err)
		}
		if len(list.Items) > 0 {
			return component, nil
		}
	}
	return "", nil
}

// restoring returns the Job that restores the backup that is named into a store which comes behind a generation, nil for
// none, and how many others have failed.
func (b *backups) restoring(generation int64) (job *batchv1.Job, tries int) {
	for i := range b.restores {
		of := &b.restores[i]
		switch {
		case controlplane.SourceOf(of) != b.plane.Tenant.Spec.RestoreFrom, controlplane.GenerationOf(of) <= generation: // of another wish
		case b.isFailed(of):
			tries++
		case job == nil:
			job = of
		}
	}
	return job, tries
}

// beginRestore makes the Job that restores a backup, into a generation that there was never.
func (b *backups) beginRestore(ctx context.Context, backup *batchv1.Job, generation int64) (*batchv1.Job, error) {
	if err := b.policies(ctx); err != nil {
		return nil, err
	}
	generation = max(generation, controlplane.GenerationOf(backup))
	for i := range b.restores {
		generation = max(generation, controlplane.GenerationOf(&b.restores[i]))
	}
	for {
		generation++
		job, claim := b.plane.Restore(backup, generation)
		err := b.Reader.Get(ctx, client.ObjectKeyFromObject(claim), claim)
		switch {
		case err == nil: // of a Job that somebody has deleted
			continue
		case apierrors.IsNotFound(err):
			err = b.Client.Create(ctx, job)
		}
		if err != nil {
			return nil, fmt.Errorf("creating Job %s/%s: %w", job.Namespace, job.Name, err)
		}
		return job, nil
	}
}

// become puts a store in the place of the one that there was, whose programs have ended: its StatefulSet goes, as the names
// of volumes of one cannot change, and its claims stay.
func (s *store) become(ctx context.Context, state controlplane.Store) error {
	if s.set.ResourceVersion != "" {
		err := s.Client.Delete(ctx, s.set, client.Preconditions{UID: &s.set.UID}, client.PropagationPolicy(metav1.DeletePropagationBackground))
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting StatefulSet %s/%s: %w", s.plane.Namespace, s.set.Name, err)
		}
	}
	s.set = &appsv1.StatefulSet{}
	return s.tell(ctx, state)
}
