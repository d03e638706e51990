package pods

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/proof"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/podspec"
	"github.com/superpool/superpool/internal/tenancy"
)

// bindingTime is how long the tenant's cache may take to show a Binding before a reconcile creates it once more. The
// event of the pod that is bound enqueues its key; if that is lost, patrol does.
const bindingTime = 5 * time.Second

// bind creates the Binding of the tenant pod to the node of its super pod, and before it the tenant's Node for that
// node.
func (p *Pods) bind(ctx context.Context, pair *podPair) error {
	if age, known := momentsOf(p.env).bindings.Age(pair.key, pair.tenantPod.UID, p.env.Clock.Now()); known && age < bindingTime {
		return nil
	}
	superNode := pair.superPod.Spec.NodeName
	if err := p.needs.EnsureNode(ctx, p.env, pair.tenant, superNode); err != nil {
		if foreign := (&kind.ForeignNodeError{}); errors.As(err, &foreign) {
			p.env.WarnOnce(pair.tenant, pair.key, pair.tenantPod, kind.ReasonConflict, fmt.Sprintf("Super cluster %s: %v", p.env.ID, foreign))
		}
		return err
	}
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pair.tenantPod.Namespace, Name: pair.tenantPod.Name, UID: pair.tenantPod.UID,
			Annotations: map[string]string{tenancyv1alpha1.AnnotationBoundBy: p.env.ID}, // the API server writes them onto the pod
		},
		Target: corev1.ObjectReference{Kind: "Node", Name: tenancy.NodeName(p.env.ID, superNode)},
	}
	p.env.Settle(pair.key)
	err := pair.tenant.Client.SubResource("binding").Create(ctx, pair.tenantPod.DeepCopy(), binding)
	if err == nil {
		momentsOf(p.env).bindings.Note(pair.key, pair.tenantPod.UID, p.env.Clock.Now())
	}
	return p.env.Done(ctx, kind.Pod, "bind", client.IgnoreNotFound(err))
}

// up writes the status of the super pod to the tenant pod, with that observedGeneration. It returns false if it is in
// sync.
func (p *Pods) up(ctx context.Context, pair *podPair, observed int64) (bool, error) {
	status, ok := podspec.TenantPodStatus(pair.tenantPod, pair.superPod, p.env.ID, p.env.Clock.Now())
	if !ok {
		return false, nil
	}
	status.ObservedGeneration = observed
	if Same(&pair.tenantPod.Status, status) {
		return false, nil
	}
	return true, p.writeStatus(ctx, pair, "status", status)
}

// upAndEvict deletes the tenant pod of a super pod that is being deleted in the super cluster, as by a drain or a
// kubelet's eviction. The deletionTimestamp makes EndpointSlice controllers remove the pod and workload controllers
// replace it while its containers stop. The status is written first: it has the condition DisruptionTarget.
func (p *Pods) upAndEvict(ctx context.Context, pair *podPair) error {
	if written, err := p.up(ctx, pair, pair.tenantPod.Status.ObservedGeneration); written || err != nil {
		return err
	}
	p.env.WarnOnce(pair.tenant, pair.key, pair.tenantPod, kind.ReasonSuperPodDeleted, fmt.Sprintf("The pod is being deleted in super cluster %s", p.env.ID))
	return p.env.Remove(ctx, pair.tenant.Client, kind.Pod, "end", pair.tenantPod, pair.superPod.DeletionGracePeriodSeconds,
		proof.NotNeeded("its super pod, by the UID of its owner, is being deleted"))
}

// writeStatus patches the status of the tenant pod. The optimistic lock rejects the patch if lists in it were computed
// from an outdated pod. The patch is computed from the status alone: the rest of a pod, which is the same, would be
// encoded twice for it.
func (p *Pods) writeStatus(ctx context.Context, pair *podPair, operation string, status *corev1.PodStatus) error {
	with := func(status *corev1.PodStatus) *corev1.Pod {
		of := pair.tenantPod
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: of.Namespace, Name: of.Name, ResourceVersion: of.ResourceVersion}, Status: *status}
	}
	patch := client.MergeFromWithOptions(with(&pair.tenantPod.Status), client.MergeFromWithOptimisticLock{})
	return p.env.Done(ctx, kind.Pod, operation, client.IgnoreNotFound(pair.tenant.Client.Status().Patch(ctx, with(status), patch)))
}

// metaUp writes the labels and annotations that come up to the tenant pod. It returns false if they are in sync, or if
// the tenant's API server refuses them.
func (p *Pods) metaUp(ctx context.Context, pair *podPair) (bool, error) {
	annotations := pair.tenantPod.Annotations
	if len(pair.tenant.TransparentMetaPrefixes) == 0 && annotations[kind.AnnotationLabelsUp] == "" && annotations[kind.AnnotationAnnotationsUp] == "" {
		return false, nil
	}
	desired := *pair.tenantPod // MetaUp replaces its maps
	kind.MetaUp(pair.superPod, &desired, pair.tenant.TransparentMetaPrefixes)
	if maps.Equal(desired.Labels, pair.tenantPod.Labels) && maps.Equal(desired.Annotations, pair.tenantPod.Annotations) {
		return false, nil
	}
	patch := client.MergeFromWithOptions(pair.tenantPod, client.MergeFromWithOptimisticLock{})
	err := p.env.Done(ctx, kind.Pod, "metadata", client.IgnoreNotFound(pair.tenant.Client.Patch(ctx, desired.DeepCopy(), patch)))
	if engine.IsRefusal(err) {
		p.env.WarnOnce(pair.tenant, pair.key, pair.tenantPod, kind.ReasonMetadataRefused, fmt.Sprintf("Labels and annotations of super cluster %s: %v", p.env.ID, err))
		return false, nil
	}
	return true, err
}
