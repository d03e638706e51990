package volumes

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	volumehelper "k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/claimhome"
	"github.com/superpool/superpool/internal/failedchoice"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/proof"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/choice"
	"github.com/superpool/superpool/internal/tenancy"
)

// chosen returns whether a tenant claim, which may be nil, awaits its volume here because this super cluster was chosen
// for it. Nobody chose the home of one that is to be restored from a snapshot, which is nowhere else.
func (c *Claims) chosen(tenantClaim *corev1.PersistentVolumeClaim) bool {
	return claimIsChosen(c.env, tenantClaim)
}

func claimIsChosen(e *kind.Env, tenantClaim *corev1.PersistentVolumeClaim) bool {
	return tenantClaim != nil && tenantClaim.DeletionTimestamp == nil && tenantClaim.Spec.VolumeName == "" &&
		claimhome.Of(tenantClaim) == e.ID && claimhome.Snapshot(tenantClaim) == "" && !e.Assignments.Whole()
}

// GoesWithPod returns whether a tenant claim loses its home here when a pod that uses it is taken back, by the caches:
// it has no volume here, and none is being made.
func GoesWithPod(e *kind.Env, tenant *kind.Tenant, tenantClaim *corev1.PersistentVolumeClaim) bool {
	if !claimIsChosen(e, tenantClaim) {
		return false
	}
	namespace := tenancy.SuperNamespace(tenant.Key, tenantClaim.Namespace)
	superClaim, exists, _ := kind.Get[*corev1.PersistentVolumeClaim](e.SuperCache, kind.Claim, namespace, tenantClaim.Name)
	return !exists || tenant.IsFor(superClaim, tenantClaim) && !getsVolume(e, superClaim)
}

// getsVolume returns whether a super claim has a volume, or a provisioner may be making one: once the super cluster's
// scheduler has chosen a node, or at any time where the StorageClass, by the cache, binds Immediate, which nothing on
// the claim tells. Nobody makes a volume of a class that is gone.
func getsVolume(e *kind.Env, superClaim *corev1.PersistentVolumeClaim) bool {
	if hasVolume(superClaim) || superClaim.Annotations[volumehelper.AnnSelectedNode] != "" {
		return true
	}
	class, exists, synced := kind.Get[*storagev1.StorageClass](e.SuperCache, kind.StorageClass, "", volumehelper.GetPersistentVolumeClaimClass(superClaim))
	return !synced || exists && ptr.Deref(class.VolumeBindingMode, storagev1.VolumeBindingImmediate) == storagev1.VolumeBindingImmediate
}

// patience returns how long this super cluster may take to make the super claim of the pair.
func (c *Claims) patience(pair *claimPair) time.Duration {
	if pair.tenantClaim == nil {
		return c.env.PodPatience
	}
	if known := choice.UntakenOf(c.env).Of(pair.key); known.With > 0 && known.Choice == choice.Of(pair.tenantClaim) {
		return known.With
	}
	return failedchoice.Of(pair.tenantClaim).Patience(c.env.PodPatience, c.env.Clock.Now())
}

// readUntaken reads the facts about a claim that this super cluster may not be able to make.
func (c *Claims) readUntaken(ctx context.Context, pair *claimPair) error {
	exists := pair.superClaim != nil
	withPod := c.givenUpWithPod(pair)
	switch {
	case !pair.facts.Known: // it may be there as before
		return nil
	case !c.chosen(pair.tenantClaim), exists && hasVolume(pair.superClaim), withPod && exists && getsVolume(c.env, pair.superClaim):
		choice.UntakenOf(c.env).Drop(pair.key)
		return nil
	case c.env.PodPatience == 0, exists && pair.superClaim.DeletionTimestamp != nil: // one that was given up stays so
		return nil
	}
	_, lacks, err := c.lacksClass(ctx, pair)
	switch {
	case err != nil:
		return err
	case lacks:
		pair.facts.NoClass = volumehelper.GetPersistentVolumeClaimClass(pair.tenantClaim)
		choice.NotTaken(c.env, pair.key, pair.tenantClaim, failedchoice.NoClass, fmt.Sprintf("it has no StorageClass %s", pair.facts.NoClass))
	case exists && !withPod:
		choice.UntakenOf(c.env).Drop(pair.key)
		return nil
	}
	pair.facts.GivenUp, pair.facts.TakenBack = choice.Judge(c.env, pair.key, pair.tenantClaim, c.patience(pair))
	return nil
}

// givenUpWithPod returns whether the claim of the pair is given up because a pod is that uses it.
func (c *Claims) givenUpWithPod(pair *claimPair) bool {
	known := choice.UntakenOf(c.env).Of(pair.key)
	return pair.tenantClaim != nil && known.With > 0 && known.GivenUp && known.Choice == choice.Of(pair.tenantClaim)
}

// notTaken notes that the super cluster does not make the super claim of the pair, if it was chosen for it.
func (c *Claims) notTaken(pair *claimPair, reason, message string) {
	if c.chosen(pair.tenantClaim) {
		choice.NotTaken(c.env, pair.key, pair.tenantClaim, reason, message)
	}
}

// lacksClass returns whether the super cluster lacks the StorageClass of a claim, by a live read if the cache does. It
// asks for none that the tenant's policy does not list: no super cluster makes that claim. A syncer that may not read
// them knows of none that is lacking.
func (c *Claims) lacksClass(ctx context.Context, pair *claimPair) (proof.Proof, bool, error) {
	class := volumehelper.GetPersistentVolumeClaimClass(pair.tenantClaim)
	if !pair.tenant.Policy.Get().MayOffer(policy.StorageClasses, class) {
		return proof.Proof{}, false, nil
	}
	if cached, synced := c.env.SuperCache.Get(kind.StorageClass, "", class); cached != nil || !synced {
		return proof.Proof{}, false, nil
	}
	proven, lacks, err := c.env.SuperCluster().Lacks(ctx, types.NamespacedName{Name: class}, &storagev1.StorageClass{}, nil)
	if apierrors.IsForbidden(err) {
		return proof.Proof{}, false, nil
	}
	if err != nil {
		return proof.Proof{}, false, kind.Unproven(err)
	}
	return proven, lacks, nil
}

// confirmHome reads a tenant claim live before a super claim is made for it, if its finalizer of ours is there already:
// this process's list of claims may be older than a choice that another process has taken back. Else that finalizer is
// written first, which fails for an older version.
func (c *Claims) confirmHome(ctx context.Context, pair *claimPair) error {
	if !c.env.Witnesses(pair.tenantClaim) {
		return nil
	}
	live := &corev1.PersistentVolumeClaim{}
	err := pair.tenant.Client.Get(ctx, client.ObjectKeyFromObject(pair.tenantClaim), live)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("reading claim %s of the tenant: %w", client.ObjectKeyFromObject(pair.tenantClaim), err)
	case err != nil, live.UID != pair.tenantClaim.UID, !isAwaited(live, &pair.facts):
		return engine.Waitf("the cache of the tenant's claims")
	}
	return nil
}

// giveUp deletes a super claim that has no volume, and whose StorageClass or pod is gone. Nobody may have written it
// since it was seen: one that got a volume stays.
func (c *Claims) giveUp(ctx context.Context, pair *claimPair) error {
	if c.givenUpWithPod(pair) {
		return c.env.RemoveVersion(ctx, c.env.Super, kind.Claim, pair.superClaim, proof.NotNeeded("it has no volume in the version that goes"))
	}
	proven, lacks, err := c.lacksClass(ctx, pair)
	switch {
	case err != nil:
		return err
	case !lacks:
		return engine.Waitf("the cache of StorageClasses")
	}
	return c.env.RemoveVersion(ctx, c.env.Super, kind.Claim, pair.superClaim, proven)
}

// takeBack removes the home from a tenant claim that was given up, or whose namespace leaves, once a live read has
// shown that it has no super claim here, and tells the tenant. The patch is of the version that was read, which has no
// volume.
func (c *Claims) takeBack(ctx context.Context, pair *claimPair) error {
	if pair.facts.Leaves {
		if err := choice.ConfirmLeaves(ctx, c.env, pair.key); err != nil {
			return err
		}
	}
	if err := c.env.ProveNotHere(ctx, pair.tenant, kind.Claim, "", pair.tenantClaim, &corev1.PersistentVolumeClaim{}); err != nil {
		return err
	}
	_, _, err := choice.TakeBack(ctx, c.env, pair.tenant, pair.key, pair.tenantClaim, pair.tenantClaim.DeepCopy(), choice.Withdrawal{
		Kind: kind.Claim, Noun: "claim", Leaves: pair.facts.Leaves, Patience: c.patience(pair),
	})
	return err
}

// ClaimIsTakenBack returns whether the home of a claim of a tenant's pod, this super cluster, was taken back lately and
// nobody has chosen another one: the pod cannot run here either.
func ClaimIsTakenBack(e *kind.Env, tenant *kind.Tenant, tenantPod *corev1.Pod) bool {
	for i := range tenantPod.Spec.Volumes {
		name := claimhome.ClaimName(tenantPod, &tenantPod.Spec.Volumes[i])
		if name == "" {
			continue
		}
		claim, exists, _ := kind.Get[*corev1.PersistentVolumeClaim](tenant.Cache, kind.Claim, tenantPod.Namespace, name)
		if exists && claim.Spec.VolumeName == "" && claimhome.Of(claim) == "" && failedchoice.Of(claim).Keeps(e.ID, e.Clock.Now()) {
			return true
		}
	}
	return false
}
