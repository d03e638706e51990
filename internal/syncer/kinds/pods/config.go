package pods

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
)

// missing names a ConfigMap or Secret that a tenant's pod refers to, that the tenant has and that is not in the super
// namespace yet, else NetworkPolicies of its namespace, or returns "". Without the wait a kubelet would start
// containers without optional ones and pull images without credentials, and a CNI plugin would allow all traffic.
func missing(e *kind.Env, tenant *kind.Tenant, tenantPod *corev1.Pod) string {
	missing := ""
	present := func(kindName, name, superName string) bool {
		tenantObject, synced := tenant.Cache.Get(kindName, tenantPod.Namespace, name)
		if synced && tenantObject == nil || tenantObject != nil && kind.IsDown(e, tenant, kindName, tenantObject, superName) {
			return true
		}
		missing = kindName + " " + name
		return false
	}
	podutil.VisitPodConfigmapNames(tenantPod, func(name string) bool { return present(kind.ConfigMap, name, kind.SuperConfigMap(name)) })
	podutil.VisitPodSecretNames(tenantPod, func(name string) bool { return present(kind.Secret, name, name) })
	if missing == "" && awaitsPolicies(e, tenant, tenantPod.Namespace) {
		missing = "networkpolicies of namespace " + tenantPod.Namespace
	}
	return missing
}

// awaitsPolicies returns whether NetworkPolicies of a tenant namespace are not in the super namespace yet. It ignores
// those that the super cluster refused: the tenant has an Event about each.
func awaitsPolicies(e *kind.Env, tenant *kind.Tenant, namespace string) bool {
	if _, synced := tenant.Cache.Get(kind.NetworkPolicy, namespace, ""); !synced {
		return true
	}
	return slices.ContainsFunc(tenant.Cache.InNamespace(kind.NetworkPolicy, namespace), func(policy client.Object) bool {
		key := engine.Key{Tenant: tenant.Key, Kind: kind.NetworkPolicy, Namespace: namespace, Name: policy.GetName()}
		return !kind.IsDown(e, tenant, kind.NetworkPolicy, policy, policy.GetName()) && !e.IsRefused(key, policy)
	})
}
