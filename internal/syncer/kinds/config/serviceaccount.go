package config

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kind/copier"
)

// defaultServiceAccount is the ServiceAccount that every kube-controller-manager creates in every namespace.
const defaultServiceAccount = "default"

// ServiceAccounts declares how service accounts are copied.
func ServiceAccounts() copier.Copy[*corev1.ServiceAccount] {
	return copier.Copy[*corev1.ServiceAccount]{
		Name:      kind.ServiceAccount,
		New:       func() *corev1.ServiceAccount { return &corev1.ServiceAccount{} },
		Adopt:     func(superAccount *corev1.ServiceAccount) bool { return superAccount.Name == defaultServiceAccount },
		Translate: copier.Plain(SuperServiceAccount),
	}
}

// SuperServiceAccount sets superAccount to the desired one for tenantAccount. No token of the super cluster is mounted
// for it.
func SuperServiceAccount(tenantAccount, superAccount *corev1.ServiceAccount) {
	superAccount.AutomountServiceAccountToken = ptr.To(false)
	superAccount.ImagePullSecrets = tenantAccount.DeepCopy().ImagePullSecrets
}
