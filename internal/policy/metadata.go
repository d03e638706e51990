package policy

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// resourceNamespaces takes no labels of tenants: in super clusters they are what others trust.
const resourceNamespaces = "namespaces"

// metadata is a compiled MetadataRules.
type metadata struct {
	labels, annotations domains
	byResource          map[string]resourceMetadata
}

type resourceMetadata struct{ labels, annotations domains }

func newMetadata(rules *tenancyv1alpha1.MetadataRules) metadata {
	compiled := metadata{labels: newDomains(rules.Labels), annotations: newDomains(rules.Annotations)}
	if len(rules.ByResource) > 0 {
		compiled.byResource = make(map[string]resourceMetadata, len(rules.ByResource))
	}
	for i := range rules.ByResource {
		rule := &rules.ByResource[i]
		compiled.byResource[rule.Resource] = resourceMetadata{labels: newDomains(rule.Labels), annotations: newDomains(rule.Annotations)}
	}
	return compiled
}

// AllowsLabel reports whether the policy lets a label of a tenant's object go down as it is. resource is the plural
// name of the object's resource, such as pods. Domains of Kubernetes' own that no tenant may write are the caller's to
// refuse, whatever this says.
func (p *Policy) AllowsLabel(resource, key string) bool {
	if isOrder(key) || resource == resourceNamespaces {
		return false
	}
	domain := domainOf(key)
	return IsProxyLabel(resource, key) || p.metadata.labels.contains(domain) || p.metadata.byResource[resource].labels.contains(domain)
}

// isOrder reports whether a label key without a domain tells a controller that is common in clusters what to do for an
// object, in whatever namespace. Such a label goes down under no policy: that keys without a domain may go down is no
// permission.
func isOrder(key string) bool {
	switch key {
	// AAD Pod Identity gives a pod the cloud identity of this name:
	// https://azure.github.io/aad-pod-identity/docs/concepts/azureidentitybinding/
	case "aadpodidbinding":
		return true
	// Istio's Gateways select by it the proxies that they configure, in all namespaces:
	// https://istio.io/latest/docs/reference/config/networking/gateway/
	case "istio":
		return true
	}
	return false
}

// IsProxyLabel reports whether a label says that kube-proxy leaves an object of resource alone. Those of Services go
// down under every policy: a tenant gives up traffic of its own with them.
func IsProxyLabel(resource, key string) bool {
	return resource == "services" && (key == "service.kubernetes.io/service-proxy-name" || key == corev1.IsHeadlessService)
}

// AllowsAnnotation is AllowsLabel for annotations.
func (p *Policy) AllowsAnnotation(resource, key string) bool {
	domain := domainOf(key)
	return p.metadata.annotations.contains(domain) || p.metadata.byResource[resource].annotations.contains(domain) ||
		p.AllowsTrafficAnnotation(resource, key)
}

// domainOf returns what is before the slash of a label or annotation key, "" where there is none.
func domainOf(key string) string {
	domain, _, found := strings.Cut(key, "/")
	if !found {
		return ""
	}
	return domain
}

// domains is a set of domains. The zero value is empty.
type domains struct {
	exact []string // "" for keys without a domain
	below []string // ".example.com" for all subdomains of example.com
}

func newDomains(patterns []string) domains {
	var set domains
	for _, pattern := range patterns {
		if suffix, found := strings.CutPrefix(pattern, "*"); found {
			set.below = append(set.below, suffix)
		} else {
			set.exact = append(set.exact, pattern)
		}
	}
	return set
}

func (d domains) contains(domain string) bool {
	return slices.Contains(d.exact, domain) ||
		slices.ContainsFunc(d.below, func(suffix string) bool { return len(domain) > len(suffix) && strings.HasSuffix(domain, suffix) })
}
