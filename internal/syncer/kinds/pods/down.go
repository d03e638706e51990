package pods

import (
	"bytes"
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/podspec"
	"github.com/superpool/superpool/internal/tenancy"
)

// podChanges are the differences between a super pod and what SuperPod computes for it.
type podChanges struct {
	// update is the super pod with the desired labels, annotations, images and tolerations, nil if they are in sync.
	// Its status is empty.
	update *corev1.Pod
	// ephemeral is whether the tenant's pod has ephemeral containers that the super pod lacks.
	ephemeral bool
	// resize is the super pod with the desired requests and limits, nil if they are in sync. Its status is empty.
	resize *corev1.Pod
	// excess is what files of the downward API do not show because it is too much, "" for nothing.
	excess string
}

// none returns whether the super pod is in sync.
func (c *podChanges) none() bool {
	return c.update == nil && !c.ephemeral && c.resize == nil
}

// changesOf returns what is to be written to a super pod, which is not changed. If an update is needed it compares no
// further: the reconcile after the update does.
func changesOf(tenantPod, superPod *corev1.Pod, owner tenancy.Owner, rules *kind.Rules) podChanges {
	// Without the status, which an update ignores: a patrol calls this for every pod, and a status is large.
	desired := &corev1.Pod{ObjectMeta: *superPod.ObjectMeta.DeepCopy(), Spec: *superPod.Spec.DeepCopy()}
	changes := podChanges{excess: podspec.UpdatePod(tenantPod, desired, owner, rules)}
	if !Same(&superPod.ObjectMeta, &desired.ObjectMeta) || !Same(&superPod.Spec, &desired.Spec) {
		changes.update = desired
		return changes
	}
	changes.ephemeral = len(podspec.MissingEphemeral(tenantPod, superPod)) > 0
	// A tenant that has never changed the spec has not resized the pod: admission in the super cluster has.
	if tenantPod.Generation > 1 {
		podspec.ResizePod(tenantPod, desired)
		if !Same(&superPod.Spec, &desired.Spec) {
			changes.resize = desired
		}
	}
	return changes
}

// Same returns whether two parts of objects mean the same. Mostly they are equal to the byte, which their protobuf
// tells in a fraction of the time: it is deterministic, and holds every field.
func Same[T interface{ Marshal() ([]byte, error) }](a, b T) bool {
	textA, errA := a.Marshal()
	textB, errB := b.Marshal()
	return errA == nil && errB == nil && bytes.Equal(textA, textB) || slice.DeepEqual(a, b)
}

// sync writes the tenant's changes to the super pod, and its node or status to the tenant pod. It writes the status
// also if the super cluster refuses the changes, as a privileged ephemeral container, for good.
func (p *Pods) sync(ctx context.Context, step Step, pair *podPair) error {
	observed := pair.tenantPod.Status.ObservedGeneration
	var errDown, errUp error
	// A super pod that is being deleted is not updated, nor one whose tenant pod holds more than goes down.
	if pair.superPod.DeletionTimestamp == nil && p.bounded(pair, policy.ExcessOfMetadata(pair.tenantPod)) {
		changes := changesOf(pair.tenantPod, pair.superPod, pair.owner(), pair.tenant.Rules())
		if changes.none() {
			observed = podspec.ObservedGeneration(pair.tenantPod, pair.superPod)
			if pair.tenantPod.Generation > max(1, pair.tenantPod.Status.ObservedGeneration) {
				p.tellLeftOut(pair) // the tenant may have added some
			}
			if p.bounded(pair, changes.excess) {
				errDown = p.report(ctx, pair)
			}
		} else {
			errDown = p.down(ctx, pair, &changes)
		}
	}
	switch step { //nolint:exhaustive // StepDown writes nothing to the tenant.
	case StepDownAndBind:
		errUp = p.bind(ctx, pair)
	case StepDownAndUp:
		// Both patches are computed from one version of the tenant pod. The first one enqueues the key again.
		var written bool
		if written, errUp = p.metaUp(ctx, pair); !written && errUp == nil {
			_, errUp = p.up(ctx, pair, observed)
		}
	}
	return errors.Join(errDown, errUp)
}

// down writes changes to the super pod.
func (p *Pods) down(ctx context.Context, pair *podPair, changes *podChanges) error {
	if changes.update != nil {
		return p.write(ctx, pair, "update", changes.update, func() error { return p.env.Super.Update(ctx, changes.update) })
	}
	var errEphemeral, errResize error
	if changes.ephemeral {
		errEphemeral = p.addEphemeral(ctx, pair)
	}
	if changes.resize != nil {
		errResize = p.write(ctx, pair, "resize", changes.resize, func() error { return p.env.Super.SubResource("resize").Update(ctx, changes.resize) })
	}
	return errors.Join(errEphemeral, errResize)
}

// addEphemeral writes new ephemeral containers to the super pod.
func (p *Pods) addEphemeral(ctx context.Context, pair *podPair) error {
	// A person with kubectl debug waits: a Service without an address is left out instead of waited for.
	env, err := p.environment(pair.tenant, pair.tenantPod, kind.QuietTime)
	if err != nil {
		return err
	}
	missing := podspec.MissingEphemeral(pair.tenantPod, pair.superPod)
	added := make([]corev1.Container, 0, len(missing))
	for _, container := range missing {
		added = append(added, corev1.Container(container.EphemeralContainerCommon))
	}
	if !p.bounded(pair, policy.ExcessOfContainers(pair.tenantPod, env.Around(), added)) {
		return nil
	}
	desired := pair.superPod.DeepCopy()
	podspec.AddEphemeralContainers(pair.tenantPod, desired, pair.owner(), pair.tenant.Rules(), &env)
	isNew := &corev1.PodSpec{EphemeralContainers: desired.Spec.EphemeralContainers[len(pair.superPod.Spec.EphemeralContainers):]}
	if err := p.withhold(ctx, pair, kind.ReasonFailedUpdate, isNew); err != nil {
		return err
	}
	return p.write(ctx, pair, "ephemeral", desired, func() error { return p.env.Super.SubResource("ephemeralcontainers").Update(ctx, desired) })
}

// write writes the tenant's changes to the super pod unless the tenant's policy forbids them, and warns the tenant if
// they were refused.
func (p *Pods) write(ctx context.Context, pair *podPair, operation string, desired *corev1.Pod, update func() error) error {
	if admitted, err := p.admits(ctx, pair, desired); err != nil || !admitted {
		return err
	}
	err := update()
	p.env.Unadmit(pair.key, pair.superPod, err)
	p.env.WarnRefused(pair.tenant, pair.key, pair.tenantPod, kind.ReasonFailedUpdate, err)
	return p.env.Done(ctx, kind.Pod, operation, err)
}
