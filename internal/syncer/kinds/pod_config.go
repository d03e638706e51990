package kinds

import (
	corev1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/superpool/superpool/internal/tenancy"
)

// missing names a ConfigMap or Secret that a tenant's pod refers to, that the tenant has and that has not come down
// yet, or returns "". A kubelet starts the containers without what is optional, and pulls images without credentials
// that are not there.
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
			if owner, _ := tenancy.GetOwner(superObject); owner.UID == tenantObject.GetUID() {
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
