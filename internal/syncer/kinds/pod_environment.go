package kinds

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/kubelet/envvars"
	"k8s.io/utils/ptr"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/tenancy"
)

const (
	// apiServerService is the Service of a control plane's own API server, in namespace default.
	apiServerService = "kubernetes"
	// dnsService is the Service of cluster DNS, in namespace kube-system.
	dnsService = "kube-dns"

	// What a super cluster takes in a DNS configuration at most.
	maxNameservers      = 3
	maxSearches         = 32
	maxSearchCharacters = 2048
)

// PodEnvironment is what containers learn of the cluster that they live in, by variables and DNS: the tenant's, not the
// super cluster's. As with any kubelet they learn it once, when they start.
type PodEnvironment struct {
	// SuperCluster is the id in the names of the tenant's nodes.
	SuperCluster string
	// Services are those that get variables: the API server's, and those of the pod's namespace unless it does without.
	// Their cluster IPs are those that they have in this super cluster.
	Services []*corev1.Service
	// Nameservers are the addresses of the tenant's DNS, none if it has no such Service. Domain is what it serves.
	Nameservers []string
	Domain      string
	// Defines returns the names of variables that a ConfigMap or Secret gives a container; nil knows none.
	Defines func(source *corev1.EnvFromSource) []string
}

// podEnvironment returns the environment of a pod. A Service whose address the super cluster has yet to give is waited
// for, but not for long: waited is how long the pod has been waiting.
func (e *Env) podEnvironment(tenant *Tenant, tenantPod *corev1.Pod, waited time.Duration) (PodEnvironment, error) {
	env := PodEnvironment{SuperCluster: e.ID, Domain: tenant.ClusterDomain, Defines: tenant.defines(tenantPod.Namespace)}
	apiServer, err := e.needed(tenant, metav1.NamespaceDefault, apiServerService, waited)
	if err != nil {
		return env, err
	}
	if apiServer != nil {
		env.Services = append(env.Services, apiServer)
	}
	if usesClusterDNS(&tenantPod.Spec) {
		dns, err := e.needed(tenant, metav1.NamespaceSystem, dnsService, waited)
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
	for _, object := range tenant.Cache.InNamespace(KindService, tenantPod.Namespace) {
		service, ok := object.(*corev1.Service)
		if !ok || service.Name == apiServerService && service.Namespace == metav1.NamespaceDefault {
			continue
		}
		if service := e.here(tenant, service); service != nil {
			env.Services = append(env.Services, service)
		}
	}
	return env, nil
}

// needed returns a Service of the environment with the addresses that it has here, nil if there is none.
func (e *Env) needed(tenant *Tenant, namespace, name string, waited time.Duration) (*corev1.Service, error) {
	service, exists, synced := get[*corev1.Service](tenant.Cache, KindService, namespace, name)
	if !synced {
		return nil, engine.Waitf("the cache of the tenant's Services")
	}
	if !exists || !hasClusterIP(service) {
		return nil, nil
	}
	found := e.here(tenant, service)
	if found == nil && waited < quietTime {
		return nil, engine.Waitf("an address of Service %s/%s in the super cluster", namespace, name)
	}
	return found, nil
}

// here returns a Service of the tenant with the cluster IPs that it has in this super cluster, nil if it has none.
func (e *Env) here(tenant *Tenant, service *corev1.Service) *corev1.Service {
	if !hasClusterIP(service) || len(service.Spec.Ports) == 0 {
		return nil
	}
	addresses := ClusterIPs(service, tenant.ServiceCIDRs)
	if len(addresses) == 0 {
		superService, exists, _ := get[*corev1.Service](e.SuperCache, KindService, tenancy.SuperNamespace(tenant.Key, service.Namespace), service.Name)
		if !exists || !hasClusterIP(superService) {
			return nil
		}
		if owner, ours := tenancy.GetOwner(superService); !ours || owner != tenant.owner(service.Namespace, service.UID) {
			return nil
		}
		addresses = []string{superService.Spec.ClusterIP}
	}
	found := *service
	found.Spec.ClusterIP, found.Spec.ClusterIPs = addresses[0], addresses
	return &found
}

// defines returns how to find the variables that ConfigMaps and Secrets of a tenant namespace give.
func (t *Tenant) defines(namespace string) func(source *corev1.EnvFromSource) []string {
	return func(source *corev1.EnvFromSource) []string {
		var names []string
		if ref := source.ConfigMapRef; ref != nil {
			if configMap, exists, _ := get[*corev1.ConfigMap](t.Cache, KindConfigMap, namespace, ref.Name); exists {
				for name := range configMap.Data {
					names = append(names, source.Prefix+name)
				}
			}
		}
		if ref := source.SecretRef; ref != nil {
			if secret, exists, _ := get[*corev1.Secret](t.Cache, KindSecret, namespace, ref.Name); exists {
				for name := range secret.Data {
					names = append(names, source.Prefix+name)
				}
			}
		}
		return names
	}
}

// serviceEnv returns the variables that a kubelet would make of Services, sorted by the Service's name.
func serviceEnv(services []*corev1.Service) []corev1.EnvVar {
	services = slices.SortedFunc(slices.Values(services), func(a, b *corev1.Service) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(b.Namespace, a.Namespace))
	})
	var env []corev1.EnvVar
	known := map[string]int{}
	for _, variable := range envvars.FromServices(services) {
		if at, exists := known[variable.Name]; exists {
			env[at] = variable
			continue
		}
		known[variable.Name] = len(env)
		env = append(env, variable)
	}
	return env
}

// addServiceEnv puts the variables of Services before those of a container, which win, and leaves out what the
// container takes from ConfigMaps and Secrets, which win too.
func addServiceEnv(own []corev1.EnvVar, envFrom []corev1.EnvFromSource, services []corev1.EnvVar, env *PodEnvironment) []corev1.EnvVar {
	defined := map[string]bool{}
	for i := range envFrom {
		if env.Defines != nil {
			for _, name := range env.Defines(&envFrom[i]) {
				defined[name] = true
			}
		}
	}
	if len(services) == 0 {
		return own
	}
	all := make([]corev1.EnvVar, 0, len(services)+len(own))
	for i := range services {
		if !defined[services[i].Name] {
			all = append(all, services[i])
		}
	}
	return append(all, own...)
}

// usesClusterDNS says whether a kubelet would lead the containers of a pod to the cluster's DNS.
func usesClusterDNS(spec *corev1.PodSpec) bool {
	switch spec.DNSPolicy {
	case corev1.DNSNone, corev1.DNSDefault:
		return false
	case corev1.DNSClusterFirstWithHostNet:
		return true
	default:
		return !spec.HostNetwork
	}
}

// translateDNS says in full what the kubelet of a tenant's own cluster would make of the pod's DNS policy.
func translateDNS(spec *corev1.PodSpec, namespace string, env *PodEnvironment) {
	switch {
	case spec.DNSPolicy == corev1.DNSNone || spec.DNSPolicy == corev1.DNSDefault:
		return
	case !usesClusterDNS(spec) || len(env.Nameservers) == 0:
		spec.DNSPolicy = corev1.DNSDefault
		return
	}
	own := ptr.Deref(spec.DNSConfig, corev1.PodDNSConfig{})
	spec.DNSPolicy = corev1.DNSNone
	spec.DNSConfig = &corev1.PodDNSConfig{
		Nameservers: distinct(slices.Concat(env.Nameservers, own.Nameservers)),
		Searches:    boundSearches(distinct(slices.Concat([]string{namespace + ".svc." + env.Domain, "svc." + env.Domain, env.Domain}, own.Searches))),
		Options:     mergeOptions([]corev1.PodDNSConfigOption{{Name: "ndots", Value: ptr.To("5")}}, own.Options),
	}
	if len(spec.DNSConfig.Nameservers) > maxNameservers {
		spec.DNSConfig.Nameservers = spec.DNSConfig.Nameservers[:maxNameservers]
	}
}

func distinct(values []string) []string {
	var kept []string
	for _, value := range values {
		if !slices.Contains(kept, value) {
			kept = append(kept, value)
		}
	}
	return kept
}

// boundSearches leaves out the last search domains that are too many, as kubelets do.
func boundSearches(searches []string) []string {
	if len(searches) > maxSearches {
		searches = searches[:maxSearches]
	}
	for len(strings.Join(searches, " ")) > maxSearchCharacters {
		searches = searches[:len(searches)-1]
	}
	return searches
}

// mergeOptions returns options in order; the last one of a name wins.
func mergeOptions(options, more []corev1.PodDNSConfigOption) []corev1.PodDNSConfigOption {
	for _, option := range more {
		same := slices.IndexFunc(options, func(known corev1.PodDNSConfigOption) bool { return known.Name == option.Name })
		if same >= 0 {
			options[same] = option
			continue
		}
		options = append(options, option)
	}
	return options
}
