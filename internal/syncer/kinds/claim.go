package kinds

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
	"github.com/superpool/superpool/internal/tenancy"
)

// Claims syncs PersistentVolumeClaims: those whose home is this super cluster go down, and a volume for each that is
// bound goes up, to which the tenant's own volume controller binds the claim. A reconcile reads both sides from caches,
// NextClaimStep chooses one step, and perform executes it.
type Claims struct{ env *Env }

var _ engine.Kind = &Claims{}

// Name implements engine.Kind.
func (c *Claims) Name() string { return KindClaim }

// Keys implements engine.Kind. Among them are those of volumes whose claim neither side has.
func (c *Claims) Keys() []engine.Key {
	keys := c.env.keys(KindClaim)
	for _, tenant := range c.env.Tenants() {
		for _, object := range tenant.Cache.List(KindVolume) {
			if key, ours := volumeKey(tenant.Key, object); ours {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// claimPair is a claim as the caches of both sides have it, nil where there is none.
type claimPair struct {
	tenant                  *Tenant
	key                     engine.Key
	tenantClaim, superClaim *corev1.PersistentVolumeClaim
	facts                   ClaimFacts
}

// superName returns the name of the super claim.
func (p *claimPair) superName() types.NamespacedName {
	return types.NamespacedName{Namespace: tenancy.SuperNamespace(p.key.Tenant, p.key.Namespace), Name: p.key.Name}
}

// Reconcile implements engine.Kind.
func (c *Claims) Reconcile(ctx context.Context, key engine.Key, _ time.Duration) (time.Duration, error) {
	tenant := c.env.Tenant(key.Tenant)
	if tenant == nil {
		return 0, nil
	}
	pair := &claimPair{tenant: tenant, key: key}
	pair.facts = ClaimFacts{SuperCluster: c.env.ID, Owner: tenant.owner(key.Namespace, ""), Whole: c.env.Assignments.Whole()}
	name := pair.superName()
	var superSynced, volumesSynced bool
	pair.tenantClaim, _, pair.facts.Known = get[*corev1.PersistentVolumeClaim](tenant.Cache, KindClaim, key.Namespace, key.Name)
	pair.superClaim, _, superSynced = get[*corev1.PersistentVolumeClaim](c.env.SuperCache, KindClaim, name.Namespace, name.Name)
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
	return untakenOf(c.env).after(key, c.patience(pair), c.env.Clock.Now()), err
}

// readAwaited reads the facts about a claim that has no volume here yet: where its namespace is, and what the super
// claim is made from. It returns false while a cache is not synced.
func (c *Claims) readAwaited(ctx context.Context, pair *claimPair) (synced bool, err error) {
	if pair.tenantClaim == nil || pair.superClaim != nil && hasVolume(pair.superClaim) {
		return true, nil
	}
	assignment, err := assigned(ctx, c.env, pair.key)
	if err != nil {
		return false, err
	}
	pair.facts.Leaves = c.chosen(pair.tenantClaim) && assignment.Leaves()
	if pair.superClaim != nil {
		return true, nil
	}
	placed, err := c.env.namespacePlaced(ctx, pair.tenant, pair.key.Namespace)
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
		c.env.clearWarning(pair.key)
		return nil
	case ClaimStepCreate:
		return c.create(ctx, pair)
	case ClaimStepChoose:
		return chooseHere(ctx, c.env, pair.tenant, KindClaim, pair.tenantClaim)
	case ClaimStepWarnSource, ClaimStepWarnClass, ClaimStepWarnConflict, ClaimStepWarnUnused:
		return c.warn(ctx, step, pair)
	case ClaimStepGiveUp:
		return c.giveUp(ctx, pair)
	case ClaimStepTakeBack:
		return c.takeBack(ctx, pair)
	case ClaimStepSync:
		return c.sync(ctx, pair)
	case ClaimStepDelete:
		return c.delete(ctx, pair)
	case ClaimStepKeep:
		if isKept(pair.superClaim) {
			c.tellKept(pair)
			return nil
		}
		return c.delete(ctx, pair)
	case ClaimStepRelease:
		return c.env.release(ctx, pair.tenant, KindClaim, "", pair.tenantClaim, &corev1.PersistentVolumeClaim{})
	case ClaimStepRemoveVolume:
		return c.removeVolume(ctx, pair, volume)
	}
	return fmt.Errorf("step %v of claims is not implemented", step)
}

// warn tells the tenant what a step says of its claim.
func (c *Claims) warn(ctx context.Context, step ClaimStep, pair *claimPair) error {
	switch step { //nolint:exhaustive // The rest is that of a volume which is not used.
	case ClaimStepWarnSource:
		c.env.warnOnce(pair.tenant, pair.key, pair.tenantClaim, ReasonFailedCreate, fmt.Sprintf("Super cluster %s: the claim waits for %s", c.env.ID, pair.facts.Missing))
		return nil
	case ClaimStepWarnClass:
		c.env.warnOnce(pair.tenant, pair.key, pair.tenantClaim, ReasonFailedCreate, fmt.Sprintf("Super cluster %s has no StorageClass %s", c.env.ID, pair.facts.NoClass))
		return nil
	case ClaimStepWarnConflict:
		c.warnConflict(pair)
		return nil
	}
	if err := c.env.adopt(ctx, pair.tenant, KindClaim, pair.tenantClaim); err != nil {
		return err
	}
	c.env.warnOnce(pair.tenant, pair.key, pair.tenantClaim, ReasonVolumeUnused, fmt.Sprintf(
		"Super cluster %s has a volume for the claim, which is bound to volume %s: it stays there until the claim is deleted", c.env.ID, pair.tenantClaim.Spec.VolumeName))
	return nil
}

// write sets superClaim to the desired super claim.
func (c *Claims) write(pair *claimPair, superClaim *corev1.PersistentVolumeClaim) {
	name := pair.superName()
	superClaim.Namespace, superClaim.Name = name.Namespace, name.Name
	copyMeta(pair.tenantClaim, superClaim, resourceOf(KindClaim), pair.tenant.owner(pair.key.Namespace, pair.tenantClaim.UID), pair.tenant.rules())
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
	if !c.env.admit(pair.tenant, pair.key, pair.tenantClaim, created, nil, policy.Facts{}) {
		if c.env.warned(pair.key, pair.tenantClaim, ReasonTenantLimit) {
			c.notTaken(pair, failedchoice.Limit, "a limit of the tenant is reached there")
		}
		return nil
	}
	if err := c.env.adopt(ctx, pair.tenant, KindClaim, pair.tenantClaim); err != nil {
		c.env.cancel(pair.key, nil)
		return err
	}
	err := c.env.Super.Create(ctx, created)
	c.env.unadmit(pair.key, nil, err)
	if apierrors.IsAlreadyExists(err) {
		return c.nameTaken(ctx, pair)
	}
	if err == nil {
		untakenOf(c.env).forget(pair.key)
		c.env.clearWarning(pair.key)
	}
	if reason, message, refused := refusalOf(c.env, pair.tenant, pair.key, err); refused {
		c.notTaken(pair, reason, message)
	}
	c.env.warnRefused(pair.tenant, pair.key, pair.tenantClaim, ReasonFailedCreate, err)
	return c.env.done(ctx, KindClaim, "create", err)
}

// nameTaken reads the super claim that the cache did not show, and warns the tenant if it is not this one's.
func (c *Claims) nameTaken(ctx context.Context, pair *claimPair) error {
	live := &corev1.PersistentVolumeClaim{}
	if err := c.env.Super.Get(ctx, pair.superName(), live); err != nil {
		return fmt.Errorf("reading super claim %s: %w", pair.superName(), err)
	}
	if err := c.env.relabel(ctx, KindClaim, live, pair.tenant.owner(pair.key.Namespace, pair.tenantClaim.UID)); err != nil {
		return err
	}
	if owner, owned := tenancy.GetOwner(live); !owned || !pair.tenant.owns(owner, pair.key.Namespace) {
		c.env.cancel(pair.key, nil) // the cache never shows it
		c.warnConflict(pair)
		return nil
	}
	return engine.Waitf("the cache of super claims")
}

func (c *Claims) warnConflict(pair *claimPair) {
	c.env.warnOnce(pair.tenant, pair.key, pair.tenantClaim, ReasonConflict, fmt.Sprintf("Super cluster %s has a claim of that name with another owner", c.env.ID))
}

// sync brings both sides of a claim that is here into line.
func (c *Claims) sync(ctx context.Context, pair *claimPair) error {
	if err := c.env.adopt(ctx, pair.tenant, KindClaim, pair.tenantClaim); err != nil {
		return err
	}
	if err := c.down(ctx, pair); err != nil {
		return err
	}
	if pair.superClaim.Status.Phase == corev1.ClaimLost && pair.tenantClaim.Status.Phase == corev1.ClaimBound {
		c.env.warnOnce(pair.tenant, pair.key, pair.tenantClaim, ReasonVolumeLost, fmt.Sprintf(
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
		c.env.report(pair.tenant, pair.key, pair.tenantClaim, desired, policy.Facts{})
		return nil
	}
	if !c.env.admit(pair.tenant, pair.key, pair.tenantClaim, desired, pair.superClaim, policy.Facts{}) {
		return nil
	}
	err := c.env.Super.Update(ctx, desired)
	c.env.unadmit(pair.key, pair.superClaim, err)
	c.env.warnRefused(pair.tenant, pair.key, pair.tenantClaim, ReasonFailedUpdate, err)
	return c.env.done(ctx, KindClaim, "update", err)
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
		return true, c.env.done(ctx, KindVolume, "update", pair.tenant.Client.Update(ctx, desired))
	}
	superVolume := &corev1.PersistentVolume{}
	if err := c.env.Super.Get(ctx, types.NamespacedName{Name: pair.superClaim.Spec.VolumeName}, superVolume); err != nil {
		return false, fmt.Errorf("reading super volume %s: %w", pair.superClaim.Spec.VolumeName, err)
	}
	if !claimedBy(superVolume, pair.superClaim.UID) {
		return false, engine.Waitf("volume %s, which is another claim's", superVolume.Name)
	}
	created := &corev1.PersistentVolume{}
	TenantVolume(created, c.env.ID, pair.tenantClaim, pair.superClaim, superVolume.Spec.PersistentVolumeReclaimPolicy)
	err := pair.tenant.Client.Create(ctx, created)
	if apierrors.IsAlreadyExists(err) {
		return false, c.volumeNameTaken(ctx, pair, created.Name)
	}
	return false, c.env.done(ctx, KindVolume, "create", err)
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
			return c.env.done(ctx, KindVolume, "update", pair.tenant.Client.Update(ctx, desired))
		}
	default:
		c.env.warnOnce(pair.tenant, pair.key, pair.tenantClaim, ReasonConflict, fmt.Sprintf(
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
	return c.env.done(ctx, KindClaim, "status", client.IgnoreNotFound(pair.tenant.Client.Status().Update(ctx, desired)))
}

// delete deletes a super claim that has no place here, or keeps it. Its volume goes as the super cluster's class says.
func (c *Claims) delete(ctx context.Context, pair *claimPair) error {
	if pair.facts.Leaves {
		if err := confirmLeaves(ctx, c.env, pair.key); err != nil {
			return err
		}
	}
	superClaim, live := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolumeClaim{}
	return c.env.end(ctx, pair.tenant, pair.key, "", superClaim, live, func(found bool, owner tenancy.Owner) fate {
		tenantClaim := live
		if !found {
			tenantClaim = nil
		}
		switch stepWithSuperClaim(tenantClaim, superClaim, owner.UID, c.env.ID) {
		case ClaimStepDelete:
			return fateGoes
		case ClaimStepKeep:
			return fateKept
		case ClaimStepSync:
			if pair.facts.Leaves && c.chosen(tenantClaim) && !hasVolume(superClaim) {
				return fateGoes
			}
		}
		return fateStays
	})
}

// tellKept tells the operator of a super claim that is kept, and the tenant, if it has another claim of that name.
func (c *Claims) tellKept(pair *claimPair) {
	if pair.tenantClaim != nil {
		c.env.warnOnce(pair.tenant, pair.key, pair.tenantClaim, ReasonConflict, fmt.Sprintf(
			"Super cluster %s keeps the volume of an earlier claim of this name, whose deletion it has not seen: ask the operator to delete that", c.env.ID))
	}
	c.env.tellKept(pair.key, pair.superClaim, ReasonClaimKept, "PersistentVolumeClaim")
}

// removeVolume deletes a volume of the tenant whose super claim is gone, after a live read of that. A claim that is
// still bound to the volume becomes Lost, as anywhere.
func (c *Claims) removeVolume(ctx context.Context, pair *claimPair, volume *corev1.PersistentVolume) error {
	live, owner := &corev1.PersistentVolumeClaim{}, ownerOfVolume(pair.tenant, volume)
	proven, lacks, err := c.env.superCluster().Lacks(ctx, pair.superName(), live, func() bool {
		return mayStillBe(live, owner) && tenantVolumeName(c.env.ID, live) == volume.Name
	})
	switch {
	case err != nil:
		return unproven(err)
	case !lacks:
		return c.env.awaitMarks(ctx, pair.tenant, KindClaim, volume, live, owner)
	}
	if pair.tenantClaim != nil && claimedBy(volume, pair.tenantClaim.UID) && pair.tenantClaim.DeletionTimestamp == nil {
		c.env.warnOnce(pair.tenant, pair.key, pair.tenantClaim, ReasonVolumeLost, fmt.Sprintf("The claim no longer exists in super cluster %s, and what its volume held is gone", c.env.ID))
	}
	return c.env.remove(ctx, pair.tenant.Client, KindVolume, "delete", volume, nil, proven)
}
