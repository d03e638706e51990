package podspec

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
)

// The API server's bounds of a pod's DNS configuration.
const (
	maxNameservers      = 3
	maxSearches         = 32
	maxSearchCharacters = 2048
)

// UsesClusterDNS returns whether a kubelet would write the cluster's DNS into resolv.conf of a pod's containers.
func UsesClusterDNS(spec *corev1.PodSpec) bool {
	switch spec.DNSPolicy {
	case corev1.DNSNone, corev1.DNSDefault:
		return false
	case corev1.DNSClusterFirstWithHostNet:
		return true
	default:
		return !spec.HostNetwork
	}
}

// translateDNS replaces the DNS policy of a pod by the explicit configuration that a kubelet of the tenant's own
// cluster would derive from it.
func translateDNS(spec *corev1.PodSpec, namespace string, env *PodEnvironment) {
	switch {
	case spec.DNSPolicy == corev1.DNSNone || spec.DNSPolicy == corev1.DNSDefault:
		return
	case !UsesClusterDNS(spec) || len(env.Nameservers) == 0:
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
	seen := sets.New[string]()
	for _, value := range values {
		if !seen.Has(value) {
			seen.Insert(value)
			kept = append(kept, value)
		}
	}
	return kept
}

// boundSearches cuts the search domains at the API server's bounds, as kubelets do.
func boundSearches(searches []string) []string {
	length := -len(" ")
	for i := range searches {
		if length += len(" ") + len(searches[i]); i == maxSearches || length > maxSearchCharacters {
			return searches[:i]
		}
	}
	return searches
}

// mergeOptions appends more to options. Of two options with one name the last one's value stays.
func mergeOptions(options, more []corev1.PodDNSConfigOption) []corev1.PodDNSConfigOption {
	index := make(map[string]int, len(options)+len(more))
	for i := range options {
		index[options[i].Name] = i
	}
	for _, option := range more {
		if same, exists := index[option.Name]; exists {
			options[same] = option
			continue
		}
		index[option.Name] = len(options)
		options = append(options, option)
	}
	return options
}
