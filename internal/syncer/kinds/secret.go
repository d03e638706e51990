package kinds

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// KindSecret is the kind of Secrets, except for those of kind token.
const KindSecret = "secret"

func secrets() Copy[*corev1.Secret] {
	return Copy[*corev1.Secret]{
		Name:        KindSecret,
		New:         func() *corev1.Secret { return &corev1.Secret{} },
		SuperLabels: "!" + LabelTokens,
		Foreign:     func(superSecret client.Object) bool { return superSecret.GetLabels()[LabelTokens] != "" },
		Translate:   plain(SuperSecret),
	}
}

// SuperSecret sets type and data of superSecret to those of tenantSecret.
func SuperSecret(tenantSecret, superSecret *corev1.Secret) {
	content := tenantSecret.DeepCopy()
	superSecret.Type, superSecret.Data, superSecret.Immutable = content.Type, content.Data, content.Immutable
	// The token controller of the super cluster would delete it, or write a token of its own. Pods read the data alone.
	if superSecret.Type == corev1.SecretTypeServiceAccountToken {
		superSecret.Type = corev1.SecretTypeOpaque
	}
}
