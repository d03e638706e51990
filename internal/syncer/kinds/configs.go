package kinds

import (
	corev1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/tenancy"
)

const (
	// rootCA is the ConfigMap that every control plane puts into every namespace, with its own certificate authority.
	rootCA = "kube-root-ca.crt"
	// tenantRootCA is the name of the tenant's in super clusters, where rootCA is the super cluster's.
	tenantRootCA = "tenant-kube-root-ca.crt"
	// defaultServiceAccount is made by every control plane in every namespace.
	defaultServiceAccount = "default"
)

// Kinds of objects that pods refer to.
const (
	KindServiceAccount = "serviceaccount"
	KindSecret         = "secret"
	KindConfigMap      = "configmap"
)

func serviceAccounts() Copy[*corev1.ServiceAccount] {
	return Copy[*corev1.ServiceAccount]{
		Name:      KindServiceAccount,
		New:       func() *corev1.ServiceAccount { return &corev1.ServiceAccount{} },
		Adopt:     func(superAccount *corev1.ServiceAccount) bool { return superAccount.Name == defaultServiceAccount },
		Translate: plain(SuperServiceAccount),
	}
}

func secrets() Copy[*corev1.Secret] {
	return Copy[*corev1.Secret]{
		Name:        KindSecret,
		New:         func() *corev1.Secret { return &corev1.Secret{} },
		SuperLabels: "!" + LabelTokens,
		Foreign:     func(superSecret client.Object) bool { return superSecret.GetLabels()[LabelTokens] != "" },
		Translate:   plain(SuperSecret),
	}
}

func configMaps() Copy[*corev1.ConfigMap] {
	return Copy[*corev1.ConfigMap]{
		Name:       KindConfigMap,
		New:        func() *corev1.ConfigMap { return &corev1.ConfigMap{} },
		SuperName:  superConfigMapName,
		TenantName: tenantConfigMapName,
		Skip:       func(tenantConfigMap *corev1.ConfigMap) bool { return tenantConfigMap.Name == tenantRootCA },
		Translate:  plain(SuperConfigMap),
	}
}

// plain makes the translation of a kind that is the same for all tenants.
func plain[T client.Object](translate func(tenantObject, superObject T)) func(*Env, *Tenant, T, T) {
	return func(_ *Env, _ *Tenant, tenantObject, superObject T) { translate(tenantObject, superObject) }
}

// SuperServiceAccount writes onto superAccount what it should be for tenantAccount: a name without any credentials.
func SuperServiceAccount(tenantAccount, superAccount *corev1.ServiceAccount) {
	superAccount.AutomountServiceAccountToken = ptr.To(false)
	superAccount.ImagePullSecrets = tenantAccount.DeepCopy().ImagePullSecrets
}

// SuperSecret writes onto superSecret the content of tenantSecret.
func SuperSecret(tenantSecret, superSecret *corev1.Secret) {
	content := tenantSecret.DeepCopy()
	superSecret.Type, superSecret.Data, superSecret.Immutable = content.Type, content.Data, content.Immutable
	// A super cluster would take it for its own, and delete it or put its token in. Pods look at the data only, which are the tenant's.
	if superSecret.Type == corev1.SecretTypeServiceAccountToken {
		superSecret.Type = corev1.SecretTypeOpaque
	}
}

// SuperConfigMap writes onto superConfigMap the content of tenantConfigMap.
func SuperConfigMap(tenantConfigMap, superConfigMap *corev1.ConfigMap) {
	content := tenantConfigMap.DeepCopy()
	superConfigMap.Data, superConfigMap.BinaryData, superConfigMap.Immutable = content.Data, content.BinaryData, content.Immutable
}

// missing names a ConfigMap or Secret that a tenant's pod refers to, that the tenant has and that has not come down yet, or returns "". A
// kubelet starts the containers without what is optional, and pulls images without credentials that are not there.
func (e *Env) missing(tenant *Tenant, tenantPod *corev1.Pod) string {
	superNamespace := tenancy.SuperNamespace(tenant.Key, tenantPod.Namespace)
	found := ""
	down := func(kind, name, superName string) bool {
		tenantObject, synced := tenant.Cache.Get(kind, tenantPod.Namespace, name)
		superObject, _ := e.SuperCache.Get(kind, superNamespace, superName)
		switch {
		case synced && tenantObject == nil:
			return true
		case tenantObject != nil && superObject != nil:
			if owner, _ := tenancy.OwnerOf(superObject); owner.UID == tenantObject.GetUID() {
				return true
			}
		}
		found = kind + " " + name
		return false
	}
	podutil.VisitPodConfigmapNames(tenantPod, func(name string) bool { return down(KindConfigMap, name, superConfigMapName(name)) })
	podutil.VisitPodSecretNames(tenantPod, func(name string) bool { return down(KindSecret, name, name) })
	return found
}

// superConfigMapName returns the name in super clusters of a tenant's ConfigMap, and tenantConfigMapName its inverse.
func superConfigMapName(name string) string {
	if name == rootCA {
		return tenantRootCA
	}
	return name
}

func tenantConfigMapName(name string) string {
	if name == tenantRootCA {
		return rootCA
	}
	return name
}
