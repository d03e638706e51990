// Package volumes syncs claims, their volumes, and snapshots: what holds data.
package volumes

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	volumehelper "k8s.io/component-helpers/storage/volume"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/claimhome"
	"github.com/superpool/superpool/internal/failedchoice"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/choice"
	"github.com/superpool/superpool/internal/tenancy"
)

// Claims syncs PersistentVolumeClaims: those whose home is this super cluster go down, and a volume for each that is
// bound goes up, to which the tenant's own volume controller binds the claim. A reconcile reads both sides from caches,
// NextClaimStep chooses one step, and perform executes it.
type Claims struct{ env *kind.Env }

var _ engine.Kind = &Claims{}

// Name implements engine.Kind.
func (c *Claims) Name() string { return kind.Claim }

// Keys implements engine.Kind. Among them are those of volumes whose claim neither side has.
func (c *Claims) Keys() []engine.Key {
	keys := c.env.Keys(kind.Claim)
	for _, tenant := range c.env.Tenants() {
		for _, object := range tenant.Cache.List(kind.Volume) {
			if key, ours := volumeKey(tenant.Key, object); ours {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// claimPair is a claim as the caches of both sides have it, nil where there is none.
type claimPair struct {
	// waited is for how long the key has waited.
	waited                  time.Duration
	tenant                  *kind.Tenant
	key                     engine.Key
	tenantClaim, superClaim *corev1.PersistentVolumeClaim
	facts                   ClaimFacts
}

// superName returns the name of the super claim.
func (p *claimPair) superName() types.NamespacedName {
	return types.NamespacedName{Namespace: tenancy.SuperNamespace(p.key.Tenant, p.key.Namespace), Name: p.key.Name}
}

// Reconcile implements engine.Kind.
func (c *Claims) Reconcile(ctx context.Context, key engine.Key, waited time.Duration) (time.Duration, error) {
	tenant := c.env.Tenant(key.Tenant)
	if tenant == nil {
		return 0, nil
	}
	pair := &claimPair{tenant: tenant, key: key, waited: waited}
	pair.facts = ClaimFacts{SuperCluster: c.env.ID, Owner: tenant.Owner(key.Namespace, ""), Whole: c.env.Assignments.Whole()}
	name := pair.superName()
	var superSynced, volumesSynced bool
	pair.tenantClaim, _, pair.facts.Known = kind.Get[*corev1.PersistentVolumeClaim](tenant.Cache, kind.Claim, key.Namespace, key.Name)
	pair.superClaim, _, superSynced = kind.Get[*corev1.PersistentVolumeClaim](c.env.SuperCache, kind.Claim, name.Namespace, name.Name)
	pair.facts.Volumes, volumesSynced = volumesOf(c.env, tenant, key)
	if !superSynced || !volumesSynced {
		return 0, nil // session.filled and engine.Patrol enqueue this key again once the caches are synced
	}
	if err := c.readUntaken(ctx, pair); err != nil {
		return 0, err
	}
	if synced, err := c.readAwaited(ctx, pair); err != nil || !synced {
		return 0, err
	}
	step, volume := NextClaimStep(pair.tenantClaim, pair.superClaim, &pair.facts)
	err := c.perform(ctx, step, pair, volume)
	return choice.UntakenOf(c.env).After(key, c.patience(pair), c.env.Clock.Now()), err
}

// readAwaited reads the facts about a claim that has no volume here yet: where its namespace is, and what the super
// claim is made from. It returns false while a cache is not synced.
func (c *Claims) readAwaited(ctx context.Context, pair *claimPair) (synced bool, err error) {
	if pair.tenantClaim == nil || pair.superClaim != nil && hasVolume(pair.superClaim) {
		return true, nil
	}
	assignment, err := choice.Assigned(ctx, c.env, pair.key)
	if err != nil {
		return false, err
	}
	pair.facts.Leaves = c.chosen(pair.tenantClaim) && assignment.Leaves()
	if pair.superClaim != nil {
		return true, nil
	}
	placed, err := c.env.NamespacePlaced(ctx, pair.tenant, pair.key.Namespace)
	if err != nil {
		return false, err
	}
	pair.facts.Ready = placed && assignment.Reserved != nil // nil: all of it leaves
	snapshot := claimhome.Snapshot(pair.tenantClaim)
	pair.facts.Restores = snapshot != ""
	if pair.tenantClaim.DeletionTimestamp != nil || pair.tenantClaim.Spec.VolumeName != "" {
		return true, nil
	}
	pair.facts.Missing, synced = missingSnapshot(c.env, pair.tenant, pair.key.Namespace, snapshot)
	return synced, nil
}

// perform executes a step. It is the only place from where this kind writes.
func (c *Claims) perform(ctx context.Context, step ClaimStep, pair *claimPair, volume *corev1.PersistentVolume) error {
	switch step {
	case ClaimStepNone:
		return nil
	case ClaimStepForget:
		c.env.Settle(pair.key)
		return nil
	case ClaimStepCreate, ClaimStepSync:
		return c.copy(ctx, step, pair)
	case ClaimStepChoose:
		return chooseHere(ctx, c.env, pair.tenant, kind.Claim, pair.tenantClaim)
	case ClaimStepWarnSource, ClaimStepWarnClass, ClaimStepWarnConflict, ClaimStepWarnUnused:
		return c.warn(ctx, step, pair)
	case ClaimStepWaitForPredecessor:
		return c.env.AwaitEnd(pair.tenant, pair.key, pair.tenantClaim, pair.waited)
	case ClaimStepGiveUp:
		return c.giveUp(ctx, pair)
	case ClaimStepTakeBack:
		return c.takeBack(ctx, pair)
	case ClaimStepDelete:
		return c.delete(ctx, pair)
	case ClaimStepKeep:
		if kind.IsKept(pair.superClaim) {
			c.tellKept(pair)
			return nil
		}
		return c.delete(ctx, pair)
	case ClaimStepRelease:
		return c.env.Release(ctx, pair.tenant, kind.Claim, "", pair.tenantClaim, &corev1.PersistentVolumeClaim{})
	case ClaimStepRemoveVolume:
		return c.removeVolume(ctx, pair, volume)
	}
	return fmt.Errorf("step %v of claims is not implemented", step)
}

// copy executes a step that copies the tenant's claim, unless that holds too much.
func (c *Claims) copy(ctx context.Context, step ClaimStep, pair *claimPair) error {
	switch {
	case !c.env.Bounded(pair.tenant, pair.key, pair.tenantClaim, policy.ExcessOfEntries(pair.tenantClaim)):
		return nil
	case step == ClaimStepCreate:
		return c.create(ctx, pair)
	}
	return c.sync(ctx, pair)
}

// warn tells the tenant what a step says of its claim.
func (c *Claims) warn(ctx context.Context, step ClaimStep, pair *claimPair) error {
	switch step { //nolint:exhaustive // The rest is that of a volume which is not used.
	case ClaimStepWarnSource:
		c.env.WarnOnce(pair.tenant, pair.key, pair.tenantClaim, kind.ReasonFailedCreate, fmt.Sprintf("Super cluster %s: the claim waits for %s", c.env.ID, pair.facts.Missing))
		return nil
	case ClaimStepWarnClass:
		c.env.WarnOnce(pair.tenant, pair.key, pair.tenantClaim, kind.ReasonFailedCreate, fmt.Sprintf("Super cluster %s has no StorageClass %s", c.env.ID, pair.facts.NoClass))
		return nil
	case ClaimStepWarnConflict:
		c.warnConflict(pair)
		return nil
	}
	if err := c.env.Adopt(ctx, pair.tenant, kind.Claim, pair.tenantClaim); err != nil {
		return err
	}
	c.env.WarnOnce(pair.tenant, pair.key, pair.tenantClaim, kind.ReasonVolumeUnused, fmt.Sprintf(
		"Super cluster %s has a volume for the claim, which is bound to volume %s: it stays there until the claim is deleted", c.env.ID, pair.tenantClaim.Spec.VolumeName))
	return nil
}

// write sets superClaim to the desired super claim.
func (c *Claims) write(pair *claimPair, superClaim *corev1.PersistentVolumeClaim) {
	name := pair.superName()
	superClaim.Namespace, superClaim.Name = name.Namespace, name.Name
	kind.CopyMeta(pair.tenantClaim, superClaim, kind.ResourceOf(kind.Claim), pair.tenant.Owner(pair.key.Namespace, pair.tenantClaim.UID), pair.tenant.Rules())
	delete(superClaim.Labels, tenancyv1alpha1.LabelKept)
	SuperClaim(pair.tenantClaim, superClaim)
}

// create makes the super claim, once the tenant's has our finalizer: whatever is written to a volume of it goes with a
// deletion that was seen.
func (c *Claims) create(ctx context.Context, pair *claimPair) error {
	if err := c.confirmHome(ctx, pair); err != nil {
		return err
	}
	created := &corev1.PersistentVolumeClaim{}
	c.write(pair, created)
	switch c.env.Admit(pair.tenant, pair.key, pair.tenantClaim, created, nil, policy.Facts{}) {
	case kind.Admitted:
	case kind.OverLimit:
		c.notTaken(pair, failedchoice.Limit, "a limit of the tenant is reached there")
		return nil
	case kind.Forbidden:
		return nil
	}
	if err := c.env.Adopt(ctx, pair.tenant, kind.Claim, pair.tenantClaim); err != nil {
		c.env.Cancel(pair.key, nil)
		return err
	}
	err := c.env.Super.Create(ctx, created)
	c.env.Unadmit(pair.key, nil, err)
	if apierrors.IsAlreadyExists(err) {
		return c.nameTaken(ctx, pair)
	}
	if err == nil {
		choice.UntakenOf(c.env).Drop(pair.key)
		c.env.Settle(pair.key)
	}
	if reason, message, refused := choice.RefusalOf(c.env, pair.tenant, pair.key, err); refused {
		c.notTaken(pair, reason, message)
	}
	c.env.WarnRefused(pair.tenant, pair.key, pair.tenantClaim, kind.ReasonFailedCreate, err)
	return c.env.Done(ctx, kind.Claim, "create", err)
}

// nameTaken reads the super claim that the cache did not show, and warns the tenant if it is not this one's.
func (c *Claims) nameTaken(ctx context.Context, pair *claimPair) error {
	live := &corev1.PersistentVolumeClaim{}
	if err := c.env.Super.Get(ctx, pair.superName(), live); err != nil {
		return fmt.Errorf("reading super claim %s: %w", pair.superName(), err)
	}
	if err := c.env.Relabel(ctx, kind.Claim, live, pair.tenant.Owner(pair.key.Namespace, pair.tenantClaim.UID)); err != nil {
		return err
	}
	if owner, owned := tenancy.GetOwner(live); !owned || !pair.tenant.Owns(owner, pair.key.Namespace) {
		c.env.Cancel(pair.key, nil) // the cache never shows it
		c.warnConflict(pair)
		return nil
	}
	return engine.Waitf("the cache of super claims")
}

func (c *Claims) warnConflict(pair *claimPair) {
	c.env.WarnOnce(pair.tenant, pair.key, pair.tenantClaim, kind.ReasonConflict, fmt.Sprintf("Super cluster %s has a claim of that name with another owner", c.env.ID))
}

// sync brings both sides of a claim that is here into line.
func (c *Claims) sync(ctx context.Context, pair *claimPair) error {
	if err := c.env.Adopt(ctx, pair.tenant, kind.Claim, pair.tenantClaim); err != nil {
		return err
	}
	if err := c.down(ctx, pair); err != nil {
		return err
	}
	if pair.superClaim.Status.Phase == corev1.ClaimLost && pair.tenantClaim.Status.Phase == corev1.ClaimBound {
		c.env.WarnOnce(pair.tenant, pair.key, pair.tenantClaim, kind.ReasonVolumeLost, fmt.Sprintf(
			"Super cluster %s has lost the volume of the claim, and what that held: delete the claim", c.env.ID))
	}
	if pair.superClaim.Status.Phase != corev1.ClaimBound || pair.superClaim.Spec.VolumeName == "" {
		return nil
	}
	if ready, err := c.ensureVolume(ctx, pair); err != nil || !ready {
		return err
	}
	return c.up(ctx, pair)
}

// down writes the tenant's changes to the super claim.
func (c *Claims) down(ctx context.Context, pair *claimPair) error {
	desired := pair.superClaim.DeepCopy()
	c.write(pair, desired)
	if slice.DeepEqual(pair.superClaim, desired) {
		desired.Spec.VolumeName = "" // the super cluster's choice, not the tenant's
		c.env.Report(pair.tenant, pair.key, pair.tenantClaim, desired, policy.Facts{})
		return nil
	}
	if c.env.Admit(pair.tenant, pair.key, pair.tenantClaim, desired, pair.superClaim, policy.Facts{}) != kind.Admitted {
		return nil
	}
	err := c.env.Super.Update(ctx, desired)
	c.env.Unadmit(pair.key, pair.superClaim, err)
	c.env.WarnRefused(pair.tenant, pair.key, pair.tenantClaim, kind.ReasonFailedUpdate, err)
	return c.env.Done(ctx, kind.Claim, "update", err)
}

// ensureVolume makes the tenant's volume for a bound super claim, or writes its size and claim. It returns whether it
// is as desired.
func (c *Claims) ensureVolume(ctx context.Context, pair *claimPair) (bool, error) {
	for _, volume := range pair.facts.Volumes {
		if volume.Name != tenantVolumeName(c.env.ID, pair.superClaim) {
			continue // NextClaimStep has it removed once it may be
		}
		desired := volume.DeepCopy()
		TenantVolume(desired, c.env.ID, pair.tenantClaim, pair.superClaim, "")
		if volume.DeletionTimestamp != nil || slice.DeepEqual(volume, desired) {
			return true, nil
		}
		return true, c.env.Done(ctx, kind.Volume, "update", pair.tenant.Client.Update(ctx, desired))
	}
	superVolume := &corev1.PersistentVolume{}
	if err := c.env.Super.Get(ctx, types.NamespacedName{Name: pair.superClaim.Spec.VolumeName}, superVolume); err != nil {
		return false, fmt.Errorf("reading super volume %s: %w", pair.superClaim.Spec.VolumeName, err)
	}
	if !claimedBy(superVolume, pair.superClaim.UID) {
		if ref := superVolume.Spec.ClaimRef; ref != nil && ref.UID != "" {
			c.env.WarnOnce(pair.tenant, pair.key, pair.tenantClaim, kind.ReasonConflict, fmt.Sprintf(
				"Super cluster %s: the claim is bound to a volume that is another claim's: its operator has to say whose it is; without data in it, delete this claim and make it anew",
				c.env.ID))
		}
		return false, engine.Waitf("volume %s, which is another claim's", superVolume.Name)
	}
	created := &corev1.PersistentVolume{}
	TenantVolume(created, c.env.ID, pair.tenantClaim, pair.superClaim, superVolume.Spec.PersistentVolumeReclaimPolicy)
	err := pair.tenant.Client.Create(ctx, created)
	if apierrors.IsAlreadyExists(err) {
		return false, c.volumeNameTaken(ctx, pair, created.Name)
	}
	return false, c.env.Done(ctx, kind.Volume, "create", err)
}

// volumeNameTaken reads the tenant's volume that the cache did not show, and warns the tenant of one that it has made
// itself.
func (c *Claims) volumeNameTaken(ctx context.Context, pair *claimPair, name string) error {
	live := &corev1.PersistentVolume{}
	if err := pair.tenant.Client.Get(ctx, types.NamespacedName{Name: name}, live); err != nil {
		return fmt.Errorf("reading volume %s of the tenant: %w", name, err)
	}
	desired := live.DeepCopy()
	TenantVolume(desired, c.env.ID, pair.tenantClaim, pair.superClaim, "")
	switch {
	case live.Annotations[volumehelper.AnnDynamicallyProvisioned] == provisionedBy && claimedBy(live, pair.tenantClaim.UID):
		if !slice.DeepEqual(live, desired) { // the tenant has taken our labels off
			return c.env.Done(ctx, kind.Volume, "update", pair.tenant.Client.Update(ctx, desired))
		}
	default:
		c.env.WarnOnce(pair.tenant, pair.key, pair.tenantClaim, kind.ReasonConflict, fmt.Sprintf(
			"PersistentVolume %s was not made for this claim by the syncer of super cluster %s: delete it", name, c.env.ID))
	}
	return engine.Waitf("volume %s of the tenant", name)
}

// up writes to a tenant claim that is bound what the super cluster says of its size.
func (c *Claims) up(ctx context.Context, pair *claimPair) error {
	if pair.tenantClaim.Status.Phase != corev1.ClaimBound || pair.tenantClaim.Spec.VolumeName == "" {
		return nil // the tenant's volume controller binds it, which enqueues the key
	}
	desired := pair.tenantClaim.DeepCopy()
	TenantClaimStatus(pair.superClaim, desired)
	if slice.DeepEqual(pair.tenantClaim.Status, desired.Status) {
		return nil
	}
	return c.env.Done(ctx, kind.Claim, "status", client.IgnoreNotFound(pair.tenant.Client.Status().Update(ctx, desired)))
}

// delete deletes a super claim that has no place here, or keeps it. Its volume goes as the super cluster's class says.
func (c *Claims) delete(ctx context.Context, pair *claimPair) error {
	if pair.facts.Leaves {
		if err := choice.ConfirmLeaves(ctx, c.env, pair.key); err != nil {
			return err
		}
	}
	superClaim, live := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolumeClaim{}
	return c.env.End(ctx, pair.tenant, pair.key, "", superClaim, live, func(found bool, owner tenancy.Owner) kind.Fate {
		tenantClaim := live
		if !found {
			tenantClaim = nil
		}
		switch stepWithSuperClaim(tenantClaim, superClaim, owner.UID, c.env.ID) {
		case ClaimStepDelete:
			return kind.FateGoes
		case ClaimStepKeep:
			return kind.FateKept
		case ClaimStepSync:
			if pair.facts.Leaves && c.chosen(tenantClaim) && !hasVolume(superClaim) {
				return kind.FateGoes
			}
		}
		return kind.FateStays
	})
}

// tellKept tells the operator of a super claim that is kept, and the tenant, if it has another claim of that name.
func (c *Claims) tellKept(pair *claimPair) {
	if pair.tenantClaim != nil {
		c.env.WarnOnce(pair.tenant, pair.key, pair.tenantClaim, kind.ReasonConflict, fmt.Sprintf(
			"Super cluster %s keeps the volume of an earlier claim of this name, whose deletion it has not seen: ask the operator to delete that", c.env.ID))
	}
	c.env.TellKept(pair.key, pair.superClaim, kind.ReasonClaimKept, "PersistentVolumeClaim")
}

// removeVolume deletes a volume of the tenant whose super claim is gone, after a live read of that. A claim that is
// still bound to the volume becomes Lost, as anywhere.
func (c *Claims) removeVolume(ctx context.Context, pair *claimPair, volume *corev1.PersistentVolume) error {
	live, owner := &corev1.PersistentVolumeClaim{}, ownerOfVolume(pair.tenant, volume)
	proven, lacks, err := c.env.SuperCluster().Lacks(ctx, pair.superName(), live, func() bool {
		return kind.MayStillBe(live, owner) && tenantVolumeName(c.env.ID, live) == volume.Name
	})
	switch {
	case err != nil:
		return kind.Unproven(err)
	case !lacks:
		return c.env.AwaitMarks(ctx, pair.tenant, kind.Claim, volume, live, owner)
	}
	if pair.tenantClaim != nil && claimedBy(volume, pair.tenantClaim.UID) && pair.tenantClaim.DeletionTimestamp == nil {
		c.env.WarnOnce(pair.tenant, pair.key, pair.tenantClaim, kind.ReasonVolumeLost, fmt.Sprintf("The claim no longer exists in super cluster %s, and what its volume held is gone", c.env.ID))
	}
	return c.env.Remove(ctx, pair.tenant.Client, kind.Volume, "delete", volume, nil, proven)
}
