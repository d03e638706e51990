package kinds

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// KindServiceAccount is the kind of service accounts.
const KindServiceAccount = "serviceaccount"

// defaultServiceAccount is made by every control plane in every namespace.
const defaultServiceAccount = "default"

func serviceAccounts() Copy[*corev1.ServiceAccount] {
	return Copy[*corev1.ServiceAccount]{
		Name:      KindServiceAccount,
		New:       func() *corev1.ServiceAccount { return &corev1.ServiceAccount{} },
		Adopt:     func(superAccount *corev1.ServiceAccount) bool { return superAccount.Name == defaultServiceAccount },
		Translate: plain(SuperServiceAccount),
	}
}

// SuperServiceAccount writes onto superAccount what it should be for tenantAccount: a name without any credentials.
func SuperServiceAccount(tenantAccount, superAccount *corev1.ServiceAccount) {
	superAccount.AutomountServiceAccountToken = ptr.To(false)
	superAccount.ImagePullSecrets = tenantAccount.DeepCopy().ImagePullSecrets
}
