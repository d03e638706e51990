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

// Report writes the conditions of a VirtualCluster when they changed: Ready from the state of its connection,
// ServiceCIDRsOverlap from all VirtualClusters. A change for the worse is an Event too. The duration is after how long
// to report again, 0 for when the state changes: what another VirtualCluster causes is checked every
// conflictRetryAfter.
func (o *Owner) Report(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster, state tenancy.Reason) (time.Duration, error) {
	var again time.Duration
	if state.Reason == tenancyv1alpha1.ReasonKeyConflict {
		again = conflictRetryAfter
	}
	overlap, err := o.overlap(ctx, vc)
	if err != nil {
		return again, err
	}
	if overlap != "" {
		again = conflictRetryAfter
	}
	before := vc.DeepCopy()
	setConditions(vc, state, overlap)
	if equality.Semantic.DeepEqual(before.Status, vc.Status) {
		return again, nil
	}
	if err := o.Client.Status().Patch(ctx, vc, locked(before)); err != nil {
		return again, client.IgnoreNotFound(fmt.Errorf("writing the conditions: %w", err))
	}
	o.recordChanges(ctx, before, vc)
	return again, nil
}

// setConditions sets the conditions that follow from the state of the connection, and from the message about
// overlapping ranges, "" for none.
func setConditions(vc *tenancyv1alpha1.VirtualCluster, state tenancy.Reason, overlap string) {
	ready := metav1.Condition{
		Type: tenancyv1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: state.Reason, Message: state.Message, ObservedGeneration: vc.Generation,
	}
	if state.Reason == tenancyv1alpha1.ReasonConnected {
		ready.Status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&vc.Status.Conditions, ready)
	if overlap == "" {
		meta.RemoveStatusCondition(&vc.Status.Conditions, tenancyv1alpha1.ConditionServiceCIDRsOverlap)
		return
	}
	meta.SetStatusCondition(&vc.Status.Conditions, metav1.Condition{
		Type: tenancyv1alpha1.ConditionServiceCIDRsOverlap, Status: metav1.ConditionTrue, Reason: tenancyv1alpha1.ReasonSharedAddresses,
		Message: overlap, ObservedGeneration: vc.Generation,
	})
}

// recordChanges records Events for what changed in the conditions.
func (o *Owner) recordChanges(ctx context.Context, before, after *tenancyv1alpha1.VirtualCluster) {
	find := func(kind string) (old, current *metav1.Condition) {
		return meta.FindStatusCondition(before.Status.Conditions, kind), meta.FindStatusCondition(after.Status.Conditions, kind)
	}
	if old, overlap := find(tenancyv1alpha1.ConditionServiceCIDRsOverlap); overlap != nil && (old == nil || old.Message != overlap.Message) {
		o.Recorder.Event(after, corev1.EventTypeWarning, overlap.Reason, overlap.Message)
	}
	old, ready := find(tenancyv1alpha1.ConditionReady)
	if old != nil && old.Status == ready.Status && old.Reason == ready.Reason {
		return
	}
	klog.FromContext(ctx).V(2).Info("Tenant changed", "ready", ready.Status, "reason", ready.Reason, "message", ready.Message)
	switch {
	case ready.Status == metav1.ConditionTrue:
		o.Recorder.Event(after, corev1.EventTypeNormal, ready.Reason, ready.Message)
	case ready.Reason != tenancyv1alpha1.ReasonConnecting:
		o.Recorder.Event(after, corev1.EventTypeWarning, ready.Reason, ready.Message)
	}
}
