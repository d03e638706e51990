package volumes

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/proof"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenancy"
)

// IndexClaim finds the PersistentVolumes of a tenant by OfClaim.
const IndexClaim = "claim"

// OfClaim is the value of IndexClaim for the volumes of a claim.
func OfClaim(namespace, name string) string { return namespace + "/" + name }

// ClaimSpec is that of PersistentVolumeClaims.
func ClaimSpec() kind.Spec {
	spec := kind.Spec{
		Name: kind.Claim, Involved: schema.GroupKind{Kind: "PersistentVolumeClaim"}, Scope: kind.ScopeTenant, Tenant: kind.WatchAll(&corev1.PersistentVolumeClaim{}), Super: kind.WatchOwned(&corev1.PersistentVolumeClaim{}),
		LacksData: superLacksClaims,
		New:       func(env *kind.Env) engine.Kind { return &Claims{env: env} },
	}
	spec.Wakes = map[string]func(*kind.Env, kind.Change) []engine.Key{
		kind.Volume: func(_ *kind.Env, change kind.Change) []engine.Key {
			if key, ours := volumeKey(change.Tenant, change.Object()); ours {
				return []engine.Key{key}
			}
			return nil
		},
		kind.Snapshot: snapshotWakesClaims,
	}
	return spec
}

// VolumeSpec is that of the PersistentVolumes that syncers keep in tenants.
func VolumeSpec() kind.Spec {
	return kind.Spec{
		Name: kind.Volume, Scope: kind.ScopeUp, ClusterScoped: true, TenantKey: volumeKey,
		Tenant: &kind.Watch{Object: &corev1.PersistentVolume{}, Labels: func(env *kind.Env) string {
			return tenancyv1alpha1.LabelTenantVolume + "=true," + tenancyv1alpha1.LabelSuperClusterID + "=" + env.ID
		}},
		Indexes: map[string]func(client.Object) []string{IndexClaim: claimsOfVolume},
		Wakes:   map[string]func(*kind.Env, kind.Change) []engine.Key{kind.Volume: func(*kind.Env, kind.Change) []engine.Key { return nil }},
	}
}

// volumeKey returns the key of the claim that a tenant's volume is for. It returns false for a volume without claim.
func volumeKey(tenant string, object client.Object) (engine.Key, bool) {
	volume, ok := object.(*corev1.PersistentVolume)
	if !ok || volume.Spec.ClaimRef == nil {
		return engine.Key{}, false
	}
	return engine.Key{Tenant: tenant, Kind: kind.Claim, Namespace: volume.Spec.ClaimRef.Namespace, Name: volume.Spec.ClaimRef.Name}, true
}

// claimsOfVolume returns the values of IndexClaim of a volume.
func claimsOfVolume(object client.Object) []string {
	volume, ok := object.(*corev1.PersistentVolume)
	if !ok || volume.Spec.ClaimRef == nil {
		return nil
	}
	return []string{OfClaim(volume.Spec.ClaimRef.Namespace, volume.Spec.ClaimRef.Name)}
}

// volumesOf returns the volumes that this syncer keeps in a tenant for a claim. synced is false if there may be more.
func volumesOf(e *kind.Env, tenant *kind.Tenant, key engine.Key) (volumes []*corev1.PersistentVolume, synced bool) {
	_, synced = tenant.Cache.Get(kind.Volume, "", "")
	for _, object := range tenant.Cache.Index(kind.Volume, IndexClaim, OfClaim(key.Namespace, key.Name)) {
		volume, ok := object.(*corev1.PersistentVolume)
		if of, hasClaim := volumeKey(key.Tenant, object); ok && hasClaim && of == key && isOurVolume(volume, e.ID) {
			volumes = append(volumes, volume)
		}
	}
	return volumes, synced
}

// isOurVolume returns whether the syncer of a super cluster made a tenant's volume.
func isOurVolume(volume *corev1.PersistentVolume, superCluster string) bool {
	return volume.Labels[tenancyv1alpha1.LabelTenantVolume] == "true" && volume.Labels[tenancyv1alpha1.LabelSuperClusterID] == superCluster &&
		strings.HasPrefix(volume.Name, superCluster+".")
}

// ownerOfVolume returns the owner of the super claim that a tenant's volume stands for.
func ownerOfVolume(t *kind.Tenant, volume *corev1.PersistentVolume) tenancy.Owner {
	return t.Owner(volume.Spec.ClaimRef.Namespace, volume.Spec.ClaimRef.UID)
}

// superLacksClaims is Spec.LacksData for claims.
func superLacksClaims(ctx context.Context, env *kind.Env, superNamespace string) (proof.Proof, bool, error) {
	return env.SuperCluster().LacksAll(ctx, &corev1.PersistentVolumeClaimList{}, client.InNamespace(superNamespace), client.HasLabels{tenancyv1alpha1.LabelCluster}) //nolint:wrapcheck // it names what was read
}
