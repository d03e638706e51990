package stores

import (
	"context"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
	"github.com/superpool/superpool/internal/provision/objects"
	"github.com/superpool/superpool/internal/tenancy"
)

// maxRestores is how many Jobs try to restore a backup: each takes a volume of its own.
const maxRestores = 3

// restorable returns the backup that is named and the state of the store that it becomes, or why it becomes none.
func (s *Store) restorable(b *Backups) (backup *batchv1.Job, state controlplane.Store, why string) {
	if s.state.External != nil {
		return nil, state, "its etcd is an external one, of which vc-manager has no backups"
	}
	backup = b.named(s.plane.Tenant.Spec.RestoreFrom)
	if backup == nil {
		return nil, state, fmt.Sprintf("there is no such backup: kubectl -n %s get jobs -l app.kubernetes.io/name=%s", s.plane.Namespace, controlplane.EtcdBackup)
	}
	if became, _ := b.outcomeOf(backup); became != complete || controlplane.SlotOf(backup) < 0 {
		return nil, state, "it is not whole"
	}
	state = controlplane.Store{
		Pods: 1, Members: []string{controlplane.MemberName(0)}, Generation: s.state.Generation + 1, Restored: backup.Name, Version: controlplane.WrittenBy(backup),
	}
	then := *s
	then.state = state
	return backup, state, then.preflight().Message
}

// Restore makes the store anew of the backup that is named. A Job makes a store of one member of it, in a new volume,
// while all programs run; then they end, and that is the store. Before that nothing of what there was is touched, and
// another wish takes it back. It returns what it waits for, or why it does nothing, and whether the rest goes on
// meanwhile.
func (s *Store) Restore(ctx context.Context, b *Backups) (why tenancy.Reason, goesOn bool, err error) {
	wish := s.plane.Tenant.Spec.RestoreFrom
	if err := s.dropOldWish(ctx, b, wish); err != nil || wish == "" || wish == s.state.Restored {
		return tenancy.Reason{}, true, err
	}
	says := func(reason, format string, values ...any) tenancy.Reason {
		return tenancy.Reason{Reason: reason, Message: fmt.Sprintf("spec.restoreFrom: %s: ", wish) + fmt.Sprintf(format, values...)}
	}
	progress := func(format string, values ...any) tenancy.Reason {
		return says(tenancyv1alpha1.ReasonProgressing, format, values...)
	}
	backup, state, refused := s.restorable(b)
	if refused != "" {
		return says(tenancyv1alpha1.ReasonInvalid, "%s; what runs goes on", strings.TrimSuffix(refused, "; what runs goes on")), true, nil
	}
	job, failures := b.restoring(s.state.Generation)
	switch {
	case job == nil && failures >= maxRestores:
		return says(tenancyv1alpha1.ReasonFailed, "%d Jobs have failed; what runs goes on: kubectl -n %s logs -l app.kubernetes.io/name=%s; clear spec.restoreFrom, and set it again to try again",
			failures, s.plane.Namespace, controlplane.EtcdRestore), true, nil
	case job == nil && b.runs():
		return progress("waiting for a backup that is being made"), true, nil
	case job == nil:
		return progress("a Job is being made"), true, b.beginRestore(ctx, backup, s.state.Generation)
	}
	if became, _ := b.outcomeOf(job); became != complete {
		_, claim := s.plane.Restore(backup, controlplane.GenerationOf(job))
		return progress("waiting for Job %s: kubectl -n %s describe job/%s", job.Name, s.plane.Namespace, job.Name), true, b.claim(ctx, claim)
	}
	state.Generation = controlplane.GenerationOf(job)
	what, err := s.become(ctx, state)
	if err != nil || what != "" {
		return progress("%s", what), false, err
	}
	return tenancy.Reason{}, true, nil
}

// become lets another store be the one, once all programs of the one that there was have ended. It returns what it
// waits for, "" when it is.
func (s *Store) become(ctx context.Context, state controlplane.Store) (string, error) {
	runs, err := s.endForRestore(ctx)
	if err != nil || runs != "" {
		return "waiting for the end of " + runs, err
	}
	if is, err := s.isWished(ctx, state.Restored); err != nil || !is {
		return "it is wished for no more", err
	}
	return "", s.tell(ctx, state)
}

// isWished reports whether the VirtualCluster as it is now wishes for a backup: a cache may be behind.
func (s *Store) isWished(ctx context.Context, wish string) (bool, error) {
	live := &tenancyv1alpha1.VirtualCluster{}
	if err := s.stores.reader.Get(ctx, client.ObjectKeyFromObject(s.plane.Tenant), live); err != nil {
		return false, fmt.Errorf("getting VirtualCluster %s: %w", client.ObjectKeyFromObject(s.plane.Tenant), err)
	}
	return live.UID == s.plane.Tenant.UID && live.Spec.RestoreFrom == wish, nil
}

// dropOldWish lets a wish that is there no more be wished for again: it deletes the Jobs which tried to restore another
// backup than the one that is named.
func (s *Store) dropOldWish(ctx context.Context, b *Backups, wish string) error {
	if wish == "" && s.state.Restored != "" {
		if is, err := s.isWished(ctx, wish); err != nil || !is {
			return err
		}
		if s.told != nil && controlplane.ForgetRestored(s.told) {
			if err := s.stores.client.Update(ctx, s.told); err != nil {
				return fmt.Errorf("writing ConfigMap %s/%s: %w", s.plane.Namespace, controlplane.Etcd, err)
			}
		}
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

// endForRestore ends all programs, and returns the name of one that has pods, "" for none: also those that are about to
// end, as they may write yet.
func (s *Store) endForRestore(ctx context.Context) (string, error) {
	if waits, err := s.stores.objects.EndAll(ctx, s.plane.Namespace); err != nil || waits != "" {
		return waits, err
	}
	if objects.ReplicasOf(s.set.Spec.Replicas) > 0 && s.set.ResourceVersion != "" || objects.ReplicasOf(s.servers.Spec.Replicas) > 0 && s.servers.ResourceVersion != "" {
		return "what the cache has not seen", nil
	}
	for _, component := range []string{controlplane.ControllerManager, controlplane.APIServer, controlplane.Etcd} {
		var list corev1.PodList
		if err := s.stores.reader.List(ctx, &list, client.InNamespace(s.plane.Namespace), client.MatchingLabels(controlplane.Labels(component))); err != nil {
			return "", fmt.Errorf("listing the pods of %s of %s: %w", component, s.plane.Namespace, err)
		}
		if slices.ContainsFunc(list.Items, func(pod corev1.Pod) bool { return !podutil.IsPodTerminal(&pod) }) {
			return component, nil
		}
	}
	return "", nil
}

// restoring returns the Job that restores the backup that is named into a store which comes behind a generation, nil
// for none, and how many others have failed.
func (b *Backups) restoring(generation int64) (job *batchv1.Job, failures int) {
	for i := range b.restores {
		of := &b.restores[i]
		switch {
		case controlplane.SourceOf(of) != b.store.plane.Tenant.Spec.RestoreFrom, controlplane.GenerationOf(of) <= generation: // of another wish
		case b.isFailed(of):
			failures++
		case job == nil:
			job = of
		}
	}
	return job, failures
}

// beginRestore makes the Job that restores a backup, into a generation that there was never.
func (b *Backups) beginRestore(ctx context.Context, backup *batchv1.Job, generation int64) error {
	if err := b.policies(ctx); err != nil {
		return err
	}
	generation = max(generation, controlplane.GenerationOf(backup))
	for i := range b.restores {
		generation = max(generation, controlplane.GenerationOf(&b.restores[i]))
	}
	for {
		generation++
		job, claim := b.store.plane.Restore(backup, generation)
		err := b.store.stores.reader.Get(ctx, client.ObjectKeyFromObject(claim), claim)
		switch {
		case err == nil: // of a Job that somebody has deleted
			continue
		case apierrors.IsNotFound(err):
			err = b.store.stores.client.Create(ctx, job)
		}
		if err != nil {
			return fmt.Errorf("creating Job %s/%s: %w", job.Namespace, job.Name, err)
		}
		return nil
	}
}
