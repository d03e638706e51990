package config

import (
	"bytes"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kind/copier"
)

// Secrets declares how Secrets are copied.
func Secrets() copier.Copy[*corev1.Secret] {
	return copier.Copy[*corev1.Secret]{
		Name:        kind.Secret,
		New:         func() *corev1.Secret { return &corev1.Secret{} },
		SuperLabels: "!" + kind.LabelTokens,
		Foreign:     func(superSecret client.Object) bool { return superSecret.GetLabels()[kind.LabelTokens] != "" },
		Frozen: func(superSecret, desired *corev1.Secret) bool {
			return ptr.Deref(superSecret.Immutable, false) && !maps.EqualFunc(superSecret.Data, desired.Data, bytes.Equal)
		},
		Translate: copier.Plain(SuperSecret),
	}
}

// SuperSecret sets type and data of superSecret to those of tenantSecret. One that others made immutable stays so while
// its data are the same, as a ConfigMap does.
func SuperSecret(tenantSecret, superSecret *corev1.Secret) {
	if isFrozen(tenantSecret.Immutable, superSecret.Immutable) && maps.EqualFunc(tenantSecret.Data, superSecret.Data, bytes.Equal) {
		return
	}
	content := tenantSecret.DeepCopy()
	superSecret.Type, superSecret.Data, superSecret.Immutable = content.Type, content.Data, content.Immutable
	// The token controller of the super cluster would delete it, or write a token of its own. Pods read the data alone.
	if superSecret.Type == corev1.SecretTypeServiceAccountToken {
		superSecret.Type = corev1.SecretTypeOpaque
	}
}
