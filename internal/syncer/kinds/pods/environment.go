package pods

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/nodelabels"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/podspec"
	"github.com/superpool/superpool/internal/tenancy"
)

const (
	// dnsService is the Service of cluster DNS, in namespace kube-system.
	dnsService = "kube-dns"
)

// environment returns the environment of a pod. It returns a WaitError while the super cluster has yet to allocate
// the cluster IP of a Service, for at most kind.QuietTime: waited is how long the pod has been waiting.
func (p *Pods) environment(tenant *kind.Tenant, tenantPod *corev1.Pod, waited time.Duration) (podspec.PodEnvironment, error) {
	e := p.env
	env := podspec.PodEnvironment{SuperCluster: e.ID, Nodes: e.SuperCache, Domain: tenant.ClusterDomain}
	env.Defines, env.Keys = defines(tenant, tenantPod.Namespace), keys(tenant, tenantPod.Namespace)
	var err error
	if env.PriorityClass, err = p.needs.PriorityClass(e, tenant, tenantPod.Spec.PriorityClassName); err != nil {
		return env, err
	}
	if err := readTenantNodes(e, tenant, tenantPod, &env); err != nil {
		return env, err
	}
	apiServer, err := serviceInSuper(e, tenant, metav1.NamespaceDefault, kind.APIServerService, waited)
	if err != nil {
		return env, err
	}
	if apiServer != nil {
		env.Services = append(env.Services, apiServer)
	}
	if podspec.UsesClusterDNS(&tenantPod.Spec) {
		dns, err := serviceInSuper(e, tenant, metav1.NamespaceSystem, dnsService, waited)
		if err != nil {
			return env, err
		}
		if dns != nil {
			env.Nameservers = dns.Spec.ClusterIPs
		}
	}
	if !ptr.Deref(tenantPod.Spec.EnableServiceLinks, true) {
		return env, nil
	}
	text := 0
	for _, object := range tenant.Cache.InNamespace(kind.Service, tenantPod.Namespace) {
		service, ok := object.(*corev1.Service)
		if !ok || service.Name == kind.APIServerService && service.Namespace == metav1.NamespaceDefault {
			continue
		}
		if service := inSuper(e, tenant, service); service != nil {
			env.Services = append(env.Services, service)
			if text += policy.ServiceText(service); text > policy.MaxServiceText {
				break // the pod has an excess of them
			}
		}
	}
	return env, nil
}

// readTenantNodes sets the tenant's Nodes in env if the pod names labels of its own. It returns a WaitError until they
// are known.
func readTenantNodes(e *kind.Env, tenant *kind.Tenant, tenantPod *corev1.Pod, env *podspec.PodEnvironment) error {
	if tenant.Nodes != tenancyv1alpha1.NodesPlaced || !nodelabels.Uses(&tenantPod.Spec, tenant.Policy.Get().IsTenants) {
		return nil
	}
	if _, synced := tenant.Cache.Get(kind.Node, "", e.ID); !synced {
		return engine.Waitf("the cache of the tenant's Nodes")
	}
	env.OwnLabels = true
	for _, object := range tenant.Cache.List(kind.Node) {
		if node, ok := object.(*corev1.Node); ok && kind.IsOurNode(node, e.ID) {
			env.TenantNodes = append(env.TenantNodes, nodelabels.Of(node.Name, node.Labels))
		}
	}
	asks := corev1.PodSpec{NodeSelector: maps.Clone(tenantPod.Spec.NodeSelector), Affinity: tenantPod.Spec.Affinity.DeepCopy()}
	env.NoNode = nodelabels.Translate(&asks, tenant.Policy.Get().IsTenants, env.TenantNodes)
	return nil
}

// serviceInSuper returns a Service of the environment as inSuper does, nil if there is none. It returns a WaitError as
// environment does.
func serviceInSuper(e *kind.Env, tenant *kind.Tenant, namespace, name string, waited time.Duration) (*corev1.Service, error) {
	service, exists, synced := kind.Get[*corev1.Service](tenant.Cache, kind.Service, namespace, name)
	if !synced {
		return nil, engine.Waitf("the cache of the tenant's Services")
	}
	if !exists || !kind.HasClusterIP(service) {
		return nil, nil
	}
	found := inSuper(e, tenant, service)
	if found == nil && waited < kind.QuietTime {
		return nil, engine.Waitf("an address of Service %s/%s in the super cluster", namespace, name)
	}
	return found, nil
}

// inSuper returns a copy of a Service of the tenant with the cluster IPs that it has in this super cluster, nil if it
// has none.
func inSuper(e *kind.Env, tenant *kind.Tenant, service *corev1.Service) *corev1.Service {
	if !kind.HasClusterIP(service) || len(service.Spec.Ports) == 0 {
		return nil
	}
	addresses := kind.ClusterIPs(service, tenant.ServiceCIDRs)
	if len(addresses) == 0 {
		superService, exists, _ := kind.Get[*corev1.Service](e.SuperCache, kind.Service, tenancy.SuperNamespace(tenant.Key, service.Namespace), service.Name)
		if !exists || !kind.HasClusterIP(superService) {
			return nil
		}
		if owner, ours := tenancy.GetOwner(superService); !ours || owner != tenant.Owner(service.Namespace, service.UID) {
			return nil
		}
		addresses = []string{superService.Spec.ClusterIP}
	}
	withAddresses := *service
	withAddresses.Spec.ClusterIP, withAddresses.Spec.ClusterIPs = addresses[0], addresses
	return &withAddresses
}

// maxVariable is how long the name of a Service's variable may be: twice 63 bytes, and what is around them.
const maxVariable = 253

// defines returns PodEnvironment.Defines for the ConfigMaps and Secrets of a tenant namespace. It leaves out names that
// no variable of a Service has.
func defines(t *kind.Tenant, namespace string) func(source *corev1.EnvFromSource) []string {
	return func(source *corev1.EnvFromSource) (names []string) {
		define := func(name string) {
			if len(source.Prefix)+len(name) <= maxVariable {
				names = append(names, source.Prefix+name)
			}
		}
		configMap, secret := sources(t, namespace, source)
		for name := range configMap {
			define(name)
		}
		for name := range secret {
			define(name)
		}
		return names
	}
}

// keys returns PodEnvironment.Keys for the ConfigMaps and Secrets of a tenant namespace.
func keys(t *kind.Tenant, namespace string) func(source *corev1.EnvFromSource) int {
	return func(source *corev1.EnvFromSource) int {
		configMap, secret := sources(t, namespace, source)
		return len(configMap) + len(secret)
	}
}

// sources returns what the ConfigMap and the Secret of an envFrom source hold, nil where there is none.
func sources(t *kind.Tenant, namespace string, source *corev1.EnvFromSource) (configMap map[string]string, secret map[string][]byte) {
	if ref := source.ConfigMapRef; ref != nil {
		if found, exists, _ := kind.Get[*corev1.ConfigMap](t.Cache, kind.ConfigMap, namespace, ref.Name); exists {
			configMap = found.Data
		}
	}
	if ref := source.SecretRef; ref != nil {
		if found, exists, _ := kind.Get[*corev1.Secret](t.Cache, kind.Secret, namespace, ref.Name); exists {
			secret = found.Data
		}
	}
	return configMap, secret
}
