package kinds

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/syncer/engine"
)

// missing names a ConfigMap or Secret that a tenant's pod refers to, that the tenant has and that is not in the super
// namespace yet, else NetworkPolicies of its namespace, or returns "". Without the wait a kubelet would start
// containers without optional ones and pull images without credentials, and a CNI plugin would allow all traffic.
func missing(e *Env, tenant *Tenant, tenantPod *corev1.Pod) string {
	missing := ""
	present := func(kind, name, superName string) bool {
		tenantObject, synced := tenant.Cache.Get(kind, tenantPod.Namespace, name)
		if synced && tenantObject == nil || tenantObject != nil && isDown(e, tenant, kind, tenantObject, superName) {
			return true
		}
		missing = kind + " " + name
		return false
	}
	podutil.VisitPodConfigmapNames(tenantPod, func(name string) bool { return present(KindConfigMap, name, superConfigMapName(name)) })
	podutil.VisitPodSecretNames(tenantPod, func(name string) bool { return present(KindSecret, name, name) })
	if missing == "" && awaitsPolicies(e, tenant, tenantPod.Namespace) {
		missing = "networkpolicies of namespace " + tenantPod.Namespace
	}
	return missing
}

// awaitsPolicies returns whether NetworkPolicies of a tenant namespace are not in the super namespace yet. It ignores
// those that the super cluster refused: the tenant has an Event about each.
func awaitsPolicies(e *Env, tenant *Tenant, namespace string) bool {
	if _, synced := tenant.Cache.Get(KindNetworkPolicy, namespace, ""); !synced {
		return true
	}
	return slices.ContainsFunc(tenant.Cache.InNamespace(KindNetworkPolicy, namespace), func(policy client.Object) bool {
		key := engine.Key{Tenant: tenant.Key, Kind: KindNetworkPolicy, Namespace: namespace, Name: policy.GetName()}
		return !isDown(e, tenant, KindNetworkPolicy, policy, policy.GetName()) &&
			!e.warned(key, policy, ReasonFailedCreate) && !e.warned(key, policy, ReasonConflict)
	})
}
