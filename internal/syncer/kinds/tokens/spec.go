package tokens

import (
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenancy"
)

const (
	// annotationPod holds, on a Secret of tokens, the name of the pod.
	// Written by the syncer; read by the syncer.
	annotationPod = "tenancy.x-k8s.io/pod"
	// annotationTokens holds, on a Secret of tokens, a JSON object from data key to what the token was asked for, and
	// when it is to be renewed. Written by the syncer; read by the syncer.
	annotationTokens = "tenancy.x-k8s.io/issued-tokens"
)

// Spec is that of the Secrets with pods' tokens.
func Spec() kind.Spec {
	return kind.Spec{
		Name: kind.Token, From: kind.Pod, Scope: kind.ScopePlaced, Super: kind.WatchOwned(&corev1.Secret{}, kind.LabelTokens), Cleared: true,
		TenantKey: tokenTenantKey, SuperKey: tokenSuperKey,
		Wakes:         map[string]func(*kind.Env, kind.Change) []engine.Key{kind.Pod: podWakesToken},
		New:           func(env *kind.Env) engine.Kind { return &Tokens{env: env, line: make(chan func(), lineLength)} },
		Uses:          []client.Object{&certificatesv1.PodCertificateRequest{}},
		UsesOfCluster: []client.Object{&certificatesv1.ClusterTrustBundle{}},
	}
}

// podWakesToken enqueues the tokens of a tenant's pod that changed, and of a super pod that was created or deleted.
// Volumes are immutable: a pod without any of what its Secret holds never has any.
func podWakesToken(_ *kind.Env, change kind.Change) []engine.Key {
	if change.Side == kind.TenantSide {
		if tenantPod, isPod := change.Object().(*corev1.Pod); isPod && !hasAny(&tenantPod.Spec) {
			return nil
		}
		key, _ := tokenTenantKey(change.Tenant, change.Object())
		return []engine.Key{key}
	}
	superPod, ok := kind.CreatedOrDeletedSuperPod(&change)
	if !ok {
		return nil
	}
	owner, owned := tenancy.GetOwner(superPod)
	if !owned || !slices.ContainsFunc(superPod.Spec.Volumes, func(volume corev1.Volume) bool { return volume.Projected != nil }) {
		return nil
	}
	return []engine.Key{{Tenant: owner.ClusterKey, Kind: kind.Token, Namespace: owner.Namespace, Name: tokenName(superPod.Name, owner.UID)}}
}

// tokenName returns the name in keys of a pod's tokens: a pod that is created again under the same name has others.
func tokenName(pod string, uid types.UID) string { return pod + "/" + string(uid) }

// tokenTenantKey returns the key of the tokens of a tenant's pod.
func tokenTenantKey(tenant string, tenantPod client.Object) (engine.Key, bool) {
	return engine.Key{Tenant: tenant, Kind: kind.Token, Namespace: tenantPod.GetNamespace(), Name: tokenName(tenantPod.GetName(), tenantPod.GetUID())}, true
}

// tokenSuperKey returns the key of a Secret of tokens. It returns false for other Secrets.
func tokenSuperKey(secret client.Object) (engine.Key, bool) {
	owner, owned := tenancy.GetOwner(secret)
	if !owned || secret.GetLabels()[kind.LabelTokens] == "" {
		return engine.Key{}, false
	}
	return engine.Key{
		Tenant: owner.ClusterKey, Kind: kind.Token, Namespace: owner.Namespace, Name: tokenName(secret.GetAnnotations()[annotationPod], owner.UID),
	}, true
}
