package kinds

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// KindSecret is the kind of Secrets but those of kind token.
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

// SuperSecret writes onto superSecret the content of tenantSecret.
func SuperSecret(tenantSecret, superSecret *corev1.Secret) {
	content := tenantSecret.DeepCopy()
	superSecret.Type, superSecret.Data, superSecret.Immutable = content.Type, content.Data, content.Immutable
	// A super cluster would take it for its own, and delete it or put its token in. Pods look at the data only, which
	// are the tenant's.
	if superSecret.Type == corev1.SecretTypeServiceAccountToken {
		superSecret.Type = corev1.SecretTypeOpaque
	}
}
