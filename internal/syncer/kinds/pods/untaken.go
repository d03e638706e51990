package pods

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/claimhome"
	"github.com/superpool/superpool/internal/failedchoice"
	"github.com/superpool/superpool/internal/syncer/assign"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/choice"
	"github.com/superpool/superpool/internal/tenancy"
)

// patience returns how long this super cluster may take to take the tenant pod of the pair, which may be nil.
func (p *Pods) patience(pair *podPair) time.Duration {
	if pair.tenantPod == nil {
		return p.env.PodPatience
	}
	failures, now := failedchoice.Of(pair.tenantPod), p.env.Clock.Now()
	patience := failures.Patience(p.env.PodPatience, now)
	if known := choice.UntakenOf(p.env).Of(pair.key); known.Reason == failedchoice.NoVolume && known.Choice == choice.Of(pair.tenantPod) {
		patience = min(patience, known.ReasonSince.Sub(known.Since)+failures.Patience(choice.VolumePatience, now))
	}
	if p.needs.ClaimIsTakenBack(p.env, pair.tenant, pair.tenantPod) {
		return min(patience, choice.MinPodPatience) // its claim goes elsewhere
	}
	return patience
}

// readUntaken reads the facts about a pod that this super cluster may not take.
func (p *Pods) readUntaken(pair *podPair) {
	now := p.env.Clock.Now()
	switch {
	case !p.chosen(pair.tenantPod):
		choice.UntakenOf(p.env).Drop(pair.key)
		return
	case p.env.PodPatience == 0:
		return
	case pair.superPod == nil: // create and await note what is refused
	case isUnscheduled(pair.superPod):
		_, scheduled := podutil.GetPodCondition(&pair.superPod.Status, corev1.PodScheduled)
		choice.UntakenOf(p.env).Note(pair.key, choice.Of(pair.tenantPod), whyUnscheduled(scheduled.Message), tenancy.SchedulingWords(scheduled.Message), now)
	case pair.superPod.DeletionTimestamp == nil:
		choice.UntakenOf(p.env).Drop(pair.key)
		return
	}
	pair.facts.GivenUp, pair.facts.TakenBack = choice.Judge(p.env, pair.key, pair.tenantPod, p.patience(pair))
}

// chosen returns whether a tenant pod, which may be nil, names this super cluster and awaits its super pod.
func (p *Pods) chosen(tenantPod *corev1.Pod) bool {
	return tenantPod != nil && awaitsSuperPod(tenantPod, p.env.ID) && tenantPod.Labels[schedulerv1alpha1.LabelSuperCluster] == p.env.ID
}

// readLeaves reads Facts.Leaves of a pod that has no node here. One that is pinned to a node here waits for a placement
// instead: it can go nowhere else.
func (p *Pods) readLeaves(ctx context.Context, pair *podPair) error {
	if !p.chosen(pair.tenantPod) || pair.tenantPod.Spec.NodeName != "" || pair.superPod != nil && pair.superPod.Spec.NodeName != "" {
		return nil
	}
	assigned, err := choice.Assigned(ctx, p.env, pair.key)
	pair.facts.Leaves = assigned.State == assign.Placed && assigned.Reserved == nil // vc-scheduler looks at those of namespaces that have left
	return err
}

// isUnscheduled returns whether the super cluster's scheduler finds no node for a super pod, and evicts nothing for it.
func isUnscheduled(superPod *corev1.Pod) bool {
	_, scheduled := podutil.GetPodCondition(&superPod.Status, corev1.PodScheduled)
	return superPod.Spec.NodeName == "" && superPod.DeletionTimestamp == nil && superPod.Status.NominatedNodeName == "" &&
		scheduled != nil && scheduled.Status == corev1.ConditionFalse && scheduled.Reason == corev1.PodReasonUnschedulable
}

// noVolume are what kube-scheduler's plugin VolumeBinding says of nodes, or of the super cluster, that have no
// volume for a claim, nor make one.
var noVolume = []string{
	"node(s) didn't find available persistent volumes to bind",
	"node(s) did not have enough free storage",
}

// noClass is how it says that the super cluster lacks a StorageClass, without looking at nodes.
const noClass = `running PreFilter plugin "VolumeBinding": storageclass.storage.k8s.io `

// whyUnscheduled returns the reason of failedchoice for what the super cluster's scheduler says of a pod, as in "0/3
// nodes are available: 1 Insufficient cpu, 2 node(s) had volume node affinity conflict. preemption: ...". A node that
// lacks anything but the volume may have that, and becomes free as other pods end.
func whyUnscheduled(message string) string {
	if strings.HasPrefix(message, noClass) {
		return failedchoice.NoVolume
	}
	_, reasons, _ := strings.Cut(message, " nodes are available: ")
	reasons, _, _ = strings.Cut(reasons+" ", ". ")
	for reason := range strings.SplitSeq(reasons, ", ") {
		if _, counted, _ := strings.Cut(reason, " "); !slices.Contains(noVolume, counted) {
			return failedchoice.Unschedulable
		}
	}
	return failedchoice.NoVolume
}

// notTaken notes that the super cluster does not take the super pod of the pair.
func (p *Pods) notTaken(pair *podPair, reason, message string) {
	choice.NotTaken(p.env, pair.key, pair.tenantPod, reason, message)
}

// confirmLeaves returns an error if the cache has it that the pair's namespace leaves, and a live read does not.
func (p *Pods) confirmLeaves(ctx context.Context, pair *podPair) error {
	if !pair.facts.Leaves {
		return nil
	}
	return choice.ConfirmLeaves(ctx, p.env, pair.key)
}

// giveUp deletes a super pod that has no node. The precondition on its resourceVersion refuses that if it got one: API
// servers bind no pod that is being deleted, so it will never run.
func (p *Pods) giveUp(ctx context.Context, pair *podPair) error {
	if err := p.confirmLeaves(ctx, pair); err != nil {
		return err
	}
	options := &client.DeleteOptions{
		Preconditions:      &metav1.Preconditions{UID: &pair.superPod.UID, ResourceVersion: &pair.superPod.ResourceVersion},
		GracePeriodSeconds: ptr.To[int64](0),
	}
	return p.env.Done(ctx, kind.Pod, "give up", client.IgnoreNotFound(p.env.Super.Delete(ctx, pair.superPod, options)))
}

// takeBack removes the super cluster from a tenant pod that was given up, or whose namespace leaves, once a live read
// has shown that it has no super pod here, and tells the tenant.
func (p *Pods) takeBack(ctx context.Context, pair *podPair) error {
	if err := p.confirmLeaves(ctx, pair); err != nil {
		return err
	}
	if _, err := p.proveNoSuperPod(ctx, pair); err != nil {
		return err
	}
	if err := p.takeBackClaims(pair); err != nil {
		return err
	}
	patched := pair.tenantPod.DeepCopy()
	reason, message, err := choice.TakeBack(ctx, p.env, pair.tenant, pair.key, pair.tenantPod, patched, choice.Withdrawal{
		Kind: kind.Pod, Noun: "pod", Label: true, Leaves: pair.facts.Leaves, Patience: p.patience(pair),
	})
	if err != nil || reason == "" {
		return err
	}
	return p.tellTakenBack(ctx, pair, patched, reason, message)
}

// takeBackClaims gives up the claims of a pod that fails here which have no volume, and returns an error until each of
// them has lost its home here, once: the pod could go nowhere else. They go before the pod, which remembers them in the
// tenant.
func (p *Pods) takeBackClaims(pair *podPair) error {
	if pair.facts.Leaves || pair.tenantPod.Spec.NodeName != "" {
		return nil // the namespace takes its claims along, and a pod that is pinned to a node goes nowhere
	}
	var with []engine.Key
	for i := range pair.tenantPod.Spec.Volumes {
		name := claimhome.ClaimName(pair.tenantPod, &pair.tenantPod.Spec.Volumes[i])
		claim, exists, _ := kind.Get[*corev1.PersistentVolumeClaim](pair.tenant.Cache, kind.Claim, pair.key.Namespace, name)
		if !exists || !p.needs.GoesWithPod(p.env, pair.tenant, claim) {
			continue
		}
		key := engine.Key{Tenant: pair.key.Tenant, Kind: kind.Claim, Namespace: pair.key.Namespace, Name: name}
		if choice.UntakenOf(p.env).GiveUpWith(key, claim, pair.key, p.patience(pair), p.env.Clock.Now()) {
			with = append(with, key)
		}
	}
	if len(with) == 0 {
		return nil
	}
	p.env.Resync(with)
	return engine.Waitf("claim %s, which is taken back with the pod", with[0].Name)
}

// tellTakenBack writes condition PodScheduled. What the pod scheduler has written since is newer, and stays.
func (p *Pods) tellTakenBack(ctx context.Context, pair *podPair, patched *corev1.Pod, reason, message string) error {
	desired := patched.DeepCopy()
	desired.Status.NominatedNodeName = "" // what it had others evicted for was room here
	podutil.UpdatePodCondition(&desired.Status, &corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: reason,
		Message: tenancy.Cut(message, tenancy.MaxConditionMessage),
	})
	patch := client.MergeFromWithOptions(patched, client.MergeFromWithOptimisticLock{})
	err := pair.tenant.Client.Status().Patch(ctx, desired, patch)
	if apierrors.IsConflict(err) {
		err = nil
	}
	return p.env.Done(ctx, kind.Pod, "status", client.IgnoreNotFound(err))
}

// confirmChoice reads a tenant pod live before a super pod is created for it: its choice may have been taken back by
// another process since, and this one's first list of the pods may be older. A pod that is too young for that is not
// read, nor one that was created since this process alone works on the tenant: no process before it has known the pod.
func (p *Pods) confirmChoice(ctx context.Context, pair *podPair) error {
	created := pair.tenantPod.CreationTimestamp.Time
	age := p.env.Clock.Now().Sub(created) // negative by the clock of the tenant's API server
	alone := pair.tenant.Alone()
	watched := !alone.IsZero() && created.Sub(alone) >= choice.MinPodPatience
	if p.env.PodPatience == 0 || age >= 0 && (watched || age < choice.VolumePatience) {
		return nil
	}
	live := &corev1.Pod{}
	err := pair.tenant.Client.Get(ctx, client.ObjectKeyFromObject(pair.tenantPod), live)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("reading pod %s of the tenant: %w", client.ObjectKeyFromObject(pair.tenantPod), err)
	case err != nil, live.UID != pair.tenantPod.UID, live.Labels[schedulerv1alpha1.LabelSuperCluster] != p.env.ID, !awaitsSuperPod(live, p.env.ID):
		return engine.Waitf("the cache of the tenant's pods")
	}
	return nil
}
