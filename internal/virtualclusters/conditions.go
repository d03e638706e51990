package virtualclusters

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
)

// Report writes the conditions of a VirtualCluster when they changed: Ready from the state of its connection, Paused
// from what its namespaces hold, PolicyFound from why another TenantPolicy holds than the one that it names, VersionSkew
// from why Superpool does not work with its version, those about overlaps from all VirtualClusters. A change for the
// worse is an Event too. The duration is after how long to report again, 0 for when the state changes: what another
// VirtualCluster causes is checked every conflictRetryAfter, and what a pause waits for every pauseRetryAfter.
func (o *Owner) Report(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster, state, policy tenancy.Reason, version *tenancy.Reason) (time.Duration, error) {
	var again time.Duration
	if state.Reason == tenancyv1alpha1.ReasonKeyConflict {
		again = conflictRetryAfter
	}
	overlap, err := o.overlap(ctx, vc)
	if err != nil {
		return again, err
	}
	if overlap != (overlaps{}) {
		again = conflictRetryAfter
	}
	paused, later, err := o.paused(ctx, vc)
	if err != nil {
		return again, err
	}
	if later > 0 && (again == 0 || later < again) {
		again = later
	}
	before := vc.DeepCopy()
	setConditions(vc, state, policy, version, overlap)
	if paused == nil {
		meta.RemoveStatusCondition(&vc.Status.Conditions, tenancyv1alpha1.ConditionPaused)
	} else {
		meta.SetStatusCondition(&vc.Status.Conditions, *paused)
	}
	if equality.Semantic.DeepEqual(before.Status, vc.Status) {
		return again, nil
	}
	if err := o.Client.Status().Patch(ctx, vc, locked(before)); err != nil {
		return again, client.IgnoreNotFound(fmt.Errorf("writing the conditions: %w", err))
	}
	o.recordChanges(ctx, before, vc)
	return again, nil
}

// setConditions sets the conditions that follow from the state of the connection, from what is wrong with the policy
// and the version, the zero Reason for nothing, and from what the ranges share with those of others. What was said of a
// version stays while it is not known: nil.
func setConditions(vc *tenancyv1alpha1.VirtualCluster, state, policy tenancy.Reason, version *tenancy.Reason, overlap overlaps) {
	setReady(vc, state)
	if policy == (tenancy.Reason{}) {
		meta.RemoveStatusCondition(&vc.Status.Conditions, tenancyv1alpha1.ConditionPolicyFound)
	} else {
		meta.SetStatusCondition(&vc.Status.Conditions, metav1.Condition{
			Type: tenancyv1alpha1.ConditionPolicyFound, Status: metav1.ConditionFalse, Reason: policy.Reason, Message: policy.Message, ObservedGeneration: vc.Generation,
		})
	}
	if version != nil {
		setTrue(vc, tenancyv1alpha1.ConditionVersionSkew, version.Reason, version.Message)
	}
	setTrue(vc, tenancyv1alpha1.ConditionServiceCIDRsOverlap, tenancyv1alpha1.ReasonSharedAddresses, overlap.cidrs)
	setTrue(vc, tenancyv1alpha1.ConditionServiceNodePortsOverlap, tenancyv1alpha1.ReasonSharedNodePorts, overlap.nodePorts)
}

// setReady sets condition Ready, from the state of the connection.
func setReady(vc *tenancyv1alpha1.VirtualCluster, state tenancy.Reason) {
	ready := metav1.Condition{
		Type: tenancyv1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: state.Reason, Message: tenancy.Cut(state.Message, tenancy.MaxConditionMessage), ObservedGeneration: vc.Generation,
	}
	if state.Reason == tenancyv1alpha1.ReasonConnected {
		ready.Status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&vc.Status.Conditions, ready)
}

// setTrue sets a condition that is there while something is wrong, or removes it where there is nothing to say.
func setTrue(vc *tenancyv1alpha1.VirtualCluster, kind, reason, message string) {
	if message == "" {
		meta.RemoveStatusCondition(&vc.Status.Conditions, kind)
		return
	}
	meta.SetStatusCondition(&vc.Status.Conditions, metav1.Condition{
		Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: tenancy.Cut(message, tenancy.MaxConditionMessage), ObservedGeneration: vc.Generation,
	})
}

// recordChanges records Events for what changed in the conditions.
func (o *Owner) recordChanges(ctx context.Context, before, after *tenancyv1alpha1.VirtualCluster) {
	find := func(kind string) (old, current *metav1.Condition) {
		return meta.FindStatusCondition(before.Status.Conditions, kind), meta.FindStatusCondition(after.Status.Conditions, kind)
	}
	for _, kind := range [...]string{
		tenancyv1alpha1.ConditionVersionSkew, tenancyv1alpha1.ConditionServiceCIDRsOverlap, tenancyv1alpha1.ConditionServiceNodePortsOverlap,
	} {
		if old, wrong := find(kind); wrong != nil && (old == nil || old.Message != wrong.Message) {
			o.record(after, corev1.EventTypeWarning, wrong)
		}
	}
	if old, policy := find(tenancyv1alpha1.ConditionPolicyFound); policy != nil && (old == nil || old.Message != policy.Message) {
		o.Recorder.Event(after, corev1.EventTypeWarning, policy.Reason, policy.Message)
	}
	old, ready := find(tenancyv1alpha1.ConditionReady)
	if old != nil && old.Status == ready.Status && old.Reason == ready.Reason {
		return
	}
	klog.FromContext(ctx).V(2).Info("Tenant changed", "ready", ready.Status, "reason", ready.Reason, "message", ready.Message)
	switch {
	case ready.Status == metav1.ConditionTrue, ready.Reason == tenancyv1alpha1.ReasonPaused:
		o.record(after, corev1.EventTypeNormal, ready)
	case ready.Reason != tenancyv1alpha1.ReasonConnecting:
		o.record(after, corev1.EventTypeWarning, ready)
	}
}

// record records an Event that says what a condition says.
func (o *Owner) record(vc *tenancyv1alpha1.VirtualCluster, kind string, condition *metav1.Condition) {
	o.Recorder.Event(vc, kind, condition.Reason, tenancy.Cut(condition.Message, tenancy.MaxEventNote))
}
