package pods

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/proof"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/podspec"
	"github.com/superpool/superpool/internal/tenancy"
)

// deleteDown deletes the super pod.
func (p *Pods) deleteDown(ctx context.Context, step Step, pair *podPair) error {
	switch step { //nolint:exhaustive // The others do not delete the super pod.
	case StepDeleteOrphan:
		proven, err := p.proveOrphan(ctx, pair)
		if err != nil || !proven.Holds() {
			return err
		}
		return p.deleteSuper(ctx, pair, nil, proven)
	case StepDeleteElsewhere:
		return p.deleteSuper(ctx, pair, nil, proof.NotNeeded("its pod, by UID, has another node"))
	}
	elapsed := momentsOf(p.env).endings.First(pair.key, pair.tenantPod.UID, p.env.Clock.Now())
	grace := remainingGrace(pair.tenantPod, pair.superPod, elapsed)
	endsOf(p.env).await(pair)
	err := p.deleteSuper(ctx, pair, grace, proof.NotNeeded("its pod, by UID, is being deleted"))
	if err != nil {
		return err
	}
	momentsOf(p.env).endings.Delete(pair.key)
	if step == StepDeleteSuper {
		return nil
	}
	_, err = p.up(ctx, pair, pair.tenantPod.Status.ObservedGeneration)
	return err
}

// proveOrphan reads from the tenant's API server whether the pod that the super pod was created for is gone, replaced,
// or assigned to another super cluster before it was bound here, unless this process has seen its deletion begin. The
// Proof does not hold if it is to stay.
func (p *Pods) proveOrphan(ctx context.Context, pair *podPair) (proof.Proof, error) {
	live := &corev1.Pod{}
	owner, _ := tenancy.GetOwner(pair.superPod)
	if endsOf(p.env).isDeleted(pair.key, owner.UID) {
		return proof.NotNeeded("its pod, by UID, was being deleted"), nil
	}
	proven, lacks, err := pair.tenant.ControlPlane().Lacks(ctx, client.ObjectKey{Namespace: pair.key.Namespace, Name: pair.key.Name}, live, func() bool {
		// A pod that is bound here stays: vc-scheduler writes the label again. It takes that of one that is only
		// pinned.
		return live.UID == owner.UID && (p.env.Belongs(live) || boundIn(live, p.env.ID) && podspec.IsBound(live))
	})
	switch {
	case err != nil:
		return proof.Proof{}, kind.Unproven(err)
	case !lacks && p.env.Belongs(live):
		return proof.Proof{}, engine.Waitf("the cache of the tenant's pods")
	}
	return proven, nil
}

// deleteSuper deletes the super pod, unless it is being deleted with at most that grace period. grace is in seconds;
// nil means the pod's. It is cut to the longest that the tenant's policy allows.
func (p *Pods) deleteSuper(ctx context.Context, pair *podPair, grace *int64, proven proof.Proof) error {
	superPod := pair.superPod
	grace = cutGrace(superPod, grace, pair.facts.MaxGrace)
	if superPod.DeletionTimestamp != nil && (grace == nil || ptr.Deref(superPod.DeletionGracePeriodSeconds, 0) <= *grace) {
		return nil
	}
	return p.env.Remove(ctx, p.env.Super, kind.Pod, "delete", superPod, grace, proven)
}

// cutGrace returns grace cut to longest. nil is the super pod's own, or the one with which it is being deleted already.
func cutGrace(superPod *corev1.Pod, grace *int64, longest int64) *int64 {
	if grace != nil {
		return ptr.To(min(*grace, longest))
	}
	own := superPod.Spec.TerminationGracePeriodSeconds
	if superPod.DeletionTimestamp != nil {
		own = superPod.DeletionGracePeriodSeconds
	}
	if ptr.Deref(own, 0) > longest {
		return ptr.To(longest)
	}
	return nil
}

// remainingGrace returns the grace period in seconds for the super pod of a tenant pod that is being deleted: the
// tenant's, less what has elapsed since this process saw it first, because clocks of two machines are not compared. It
// is at least 1: with 0 the API server removes the pod before its containers have stopped. A super pod that is being
// deleted already gets the tenant's whole period, which shortens its own only if the tenant has shortened it since: the
// rest falls with each reconcile, and each would be another delete request.
func remainingGrace(tenantPod, superPod *corev1.Pod, elapsed time.Duration) *int64 {
	grace := ptr.Deref(tenantPod.DeletionGracePeriodSeconds, 0)
	if superPod.DeletionTimestamp == nil {
		grace -= int64(elapsed.Round(time.Second) / time.Second)
	}
	return ptr.To(max(1, grace))
}

// removeUp deletes the tenant pod with grace period 0: its super pod is gone, or on another node than the tenant pod.
func (p *Pods) removeUp(ctx context.Context, step Step, pair *podPair) error {
	proven := proof.NotNeeded("its super pod, by the UID of its owner, is on another node")
	if step != StepRemoveMoved {
		prove := p.proveNoSuperPod
		if step == StepRemoveTenant {
			prove = p.proveEnd
		}
		var err error
		if proven, err = prove(ctx, pair); err != nil {
			return err
		}
		lost := ""
		if step == StepRemoveLost {
			lost = fmt.Sprintf("The pod no longer exists in super cluster %s", p.env.ID)
			p.env.WarnOnce(pair.tenant, pair.key, pair.tenantPod, kind.ReasonSuperPodDeleted, lost)
		}
		if err := p.markFailed(ctx, pair, lost); err != nil {
			return err
		}
	}
	return p.env.Remove(ctx, pair.tenant.Client, kind.Pod, "remove", pair.tenantPod, ptr.To[int64](0), proven)
}

// proveEnd is proveNoSuperPod for a pod that the tenant deletes, unless this process has seen that its super pod ended.
func (p *Pods) proveEnd(ctx context.Context, pair *podPair) (proof.Proof, error) {
	if endsOf(p.env).hasEnded(pair.key, pair.tenantPod.UID) {
		return proof.NotNeeded("its super pod, by the UID of its owner, had a grace period of 0"), nil
	}
	return p.proveNoSuperPod(ctx, pair)
}

// proveNoSuperPod reads from the super cluster's API server that it has no super pod of the tenant pod. Otherwise it
// returns an error, and puts right what a super pod has lost of its marks, or tells the tenant.
func (p *Pods) proveNoSuperPod(ctx context.Context, pair *podPair) (proof.Proof, error) {
	live := &corev1.Pod{}
	proven, lacks, err := p.env.SuperCluster().Lacks(ctx, pair.superName(), live, func() bool {
		return kind.IsOrWas(live, pair.owner()) || p.mayBe(pair.tenantPod, live)
	})
	switch {
	case err != nil:
		return proof.Proof{}, kind.Unproven(err)
	case lacks:
		return proven, nil
	}
	if err := p.env.Relabel(ctx, kind.Pod, live, pair.owner()); err != nil {
		return proof.Proof{}, err
	}
	if kind.CarriesOwner(live, pair.owner()) {
		return proof.Proof{}, engine.Waitf("the cache of super pods")
	}
	p.env.WarnOnce(pair.tenant, pair.key, pair.tenantPod, kind.ReasonConflict, fmt.Sprintf(
		"Super cluster %s has a pod of that name that may be this one and has lost its marks: the pod stays until the operator deletes that, or writes its tenancy.x-k8s.io label and annotations again",
		p.env.ID))
	return proof.Proof{}, engine.Waitf("the marks of super pod %s", pair.superName())
}

// mayBe returns whether a pod of the super cluster, of the name of the super pod and with no owner, may be that without
// its marks: it has not ended, and is on the node of the tenant pod, or anywhere if that is not bound yet. Nothing is
// done to it, but the tenant pod is not removed, nor its choice, for another one would run beside it.
func (p *Pods) mayBe(tenantPod, live *corev1.Pod) bool {
	if _, owned := tenancy.GetOwner(live); owned || podutil.IsPodTerminal(live) {
		return false
	}
	at := tenantPod.Spec.NodeName
	return at == "" || live.Spec.NodeName != "" && at == tenancy.NodeName(p.env.ID, live.Spec.NodeName)
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
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: kind.ReasonSuperPodDeleted, Message: lost,
			LastTransitionTime: metav1.NewTime(p.env.Clock.Now()),
		})
	}
	return p.writeStatus(ctx, pair, "fail", status)
}
