package kinds

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/tenancy"
)

// deleteDown deletes the super pod.
func (p *Pods) deleteDown(ctx context.Context, step Step, pair *podPair) error {
	switch step { //nolint:exhaustive // The others do not delete the super pod.
	case StepDeleteOrphan:
		if proven, err := p.proveOrphan(ctx, pair); err != nil || !proven {
			return err
		}
		return p.deleteSuper(ctx, pair.superPod, nil)
	case StepDeleteElsewhere:
		return p.deleteSuper(ctx, pair.superPod, nil)
	}
	if err := p.deleteSuper(ctx, pair.superPod, remainingGrace(pair.tenantPod, pair.superPod, p.env.Clock.Now())); err != nil || step == StepDeleteSuper {
		return err
	}
	_, err := p.up(ctx, pair, pair.tenantPod.Status.ObservedGeneration)
	return err
}

// proveOrphan reads from the tenant's API server whether the pod that the super pod was created for is gone, replaced,
// or assigned to another super cluster before it was bound here.
func (p *Pods) proveOrphan(ctx context.Context, pair *podPair) (bool, error) {
	live := &corev1.Pod{}
	err := pair.tenant.Client.Get(ctx, client.ObjectKey{Namespace: pair.key.Namespace, Name: pair.key.Name}, live)
	owner, _ := tenancy.GetOwner(pair.superPod)
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("reading the tenant's pod: %w", err)
	case live.UID != owner.UID:
		return true, nil
	case live.Labels[schedulerv1alpha1.LabelSuperCluster] == p.env.ID:
		return false, engine.Waitf("the cache of the tenant's pods")
	}
	// A pod that is bound here stays: vc-scheduler writes the label again.
	return !boundIn(live, p.env.ID), nil
}

// deleteSuper deletes a super pod, unless it is being deleted with at most that grace period. grace is in seconds; nil
// means the pod's.
func (p *Pods) deleteSuper(ctx context.Context, superPod *corev1.Pod, grace *int64) error {
	if superPod.DeletionTimestamp != nil && (grace == nil || ptr.Deref(superPod.DeletionGracePeriodSeconds, 0) <= *grace) {
		return nil
	}
	return p.env.remove(ctx, p.env.Super, KindPod, "delete", superPod, grace)
}

// remainingGrace returns the grace period in seconds for the super pod of a tenant pod that is being deleted: the rest
// of the tenant's, at least 1, because with 0 the API server removes the pod before its containers have stopped. A
// super pod that is being deleted already gets the tenant's whole period, which shortens its own only if the tenant has
// shortened it since: the rest falls with each reconcile, and each would be another delete request.
func remainingGrace(tenantPod, superPod *corev1.Pod, now time.Time) *int64 {
	if superPod.DeletionTimestamp != nil {
		return ptr.To(max(1, ptr.Deref(tenantPod.DeletionGracePeriodSeconds, 0)))
	}
	return ptr.To(max(1, int64(tenantPod.DeletionTimestamp.Sub(now).Round(time.Second)/time.Second)))
}

// removeUp deletes the tenant pod with grace period 0: its super pod is gone, or on another node than the tenant pod.
func (p *Pods) removeUp(ctx context.Context, step Step, pair *podPair) error {
	if step != StepRemoveMoved {
		if err := p.proveNoSuperPod(ctx, pair); err != nil {
			return err
		}
		lost := ""
		if step == StepRemoveLost {
			lost = fmt.Sprintf("The pod no longer exists in super cluster %s", p.env.ID)
			p.env.warnOnce(pair.tenant, pair.key, pair.tenantPod, ReasonSuperPodDeleted, lost)
		}
		if err := p.markFailed(ctx, pair, lost); err != nil {
			return err
		}
	}
	return p.env.remove(ctx, pair.tenant.Client, KindPod, "remove", pair.tenantPod, ptr.To[int64](0))
}

// proveNoSuperPod reads from the super cluster's API server that it has no super pod of the tenant pod. Otherwise it
// returns an error.
func (p *Pods) proveNoSuperPod(ctx context.Context, pair *podPair) error {
	live := &corev1.Pod{}
	err := p.env.Super.Get(ctx, pair.superName(), live)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading super pod %s: %w", pair.superName(), err)
	}
	if owner, owned := tenancy.GetOwner(live); owned && owner == pair.owner() {
		return engine.Waitf("the cache of super pods")
	}
	return nil
}

// markFailed sets phase Failed on a tenant pod that awaitsEnd and whose super pod is gone: a kubelet deletes a pod
// right after it has written the last status, which the informer may have missed. lost is the message of condition
// DisruptionTarget, "" if the tenant deleted the pod.
func (p *Pods) markFailed(ctx context.Context, pair *podPair, lost string) error {
	if !awaitsEnd(pair.tenantPod) {
		return nil
	}
	status := pair.tenantPod.Status.DeepCopy()
	status.Phase = corev1.PodFailed
	if _, disrupted := podutil.GetPodCondition(status, corev1.DisruptionTarget); lost != "" && disrupted == nil {
		status.Conditions = append(status.Conditions, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: ReasonSuperPodDeleted, Message: lost,
			LastTransitionTime: metav1.NewTime(p.env.Clock.Now()),
		})
	}
	return p.writeStatus(ctx, pair, "fail", status)
}
