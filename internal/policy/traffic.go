package policy

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/utils/ptr"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// resourceServices and resourceIngresses are the resources to which traffic.annotations applies.
const resourceServices, resourceIngresses = "services", "ingresses"

// anyHost is the entry of ingressHosts that stands for all hosts, and for none.
const anyHost = "*"

// traffic is a compiled TrafficRules.
type traffic struct {
	// keys and prefixes are of annotations.
	keys, prefixes []string
	// hosts are whole ones, below are suffixes that begin with a dot.
	hosts, below []string
	anyHost      bool
	// loadBalancers are classes of load balancers.
	loadBalancers classes
}

func newTraffic(rules *tenancyv1alpha1.TrafficRules) traffic {
	compiled := traffic{loadBalancers: setOf(rules.LoadBalancerClasses)}
	for _, key := range rules.Annotations {
		if prefix, found := strings.CutSuffix(key, "*"); found {
			compiled.prefixes = append(compiled.prefixes, prefix)
		} else {
			compiled.keys = append(compiled.keys, key)
		}
	}
	for _, host := range rules.IngressHosts {
		suffix, found := strings.CutPrefix(host, "*.")
		switch {
		case host == anyHost:
			compiled.anyHost = true
		case found:
			compiled.below = append(compiled.below, "."+suffix)
		default:
			compiled.hosts = append(compiled.hosts, host)
		}
	}
	return compiled
}

// AllowsTrafficAnnotation reports whether traffic.annotations lets an annotation of a resource go down, also one of
// Kubernetes' own domains. Those of ours never do.
func (p *Policy) AllowsTrafficAnnotation(resource, key string) bool {
	if resource != resourceServices && resource != resourceIngresses || isOurs(key) {
		return false
	}
	return slices.Contains(p.traffic.keys, key) || !isDangerous(key) &&
		slices.ContainsFunc(p.traffic.prefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}

// dangerous are parts of the names of annotations that prefixes do not stand for: those whose values are code, hosts of
// others, Secrets of other namespaces, configuration of the whole controller, or addresses.
var dangerous = [...]string{snippet, "alias", "config-", "secret", "server-", "loadbalancerip"}

// snippet is in the names of annotations whose values are code.
const snippet = "snippet"

// isDangerous returns whether traffic.annotations must list a key by its whole name.
func isDangerous(key string) bool {
	name := strings.ToLower(nameOf(key))
	return slices.ContainsFunc(dangerous[:], func(part string) bool { return strings.Contains(name, part) }) ||
		slices.ContainsFunc(strings.FieldsFunc(name, func(r rune) bool { return strings.ContainsRune("-_.", r) }), func(word string) bool {
			return word == "ip" || word == "ips" || word == "ipv4" || word == "ipv6"
		})
}

// nameOf returns what is behind the slash of an annotation's key, all of a key without domain.
func nameOf(key string) string {
	if _, name, found := strings.Cut(key, "/"); found {
		return name
	}
	return key
}

// checkTraffic checks the values of the annotations that go down by traffic.annotations: controllers write them into
// configuration of their own, line by line. Snippets, which have lines, are code anyway.
func (p *Policy) checkTraffic(resource string, annotations map[string]string, found *refusals) {
	for _, key := range keysThat(annotations, func(key string) bool {
		return strings.ContainsFunc(annotations[key], unicode.IsControl) && p.AllowsTrafficAnnotation(resource, key) &&
			!strings.Contains(strings.ToLower(nameOf(key)), snippet)
	}) {
		value := annotations[key]
		// Another value is another Message, whatever the length of both.
		found.add("metadata.annotations["+key+"]", "the value of annotation %s is not allowed: it has a control character, such as the end of a line, at byte %d (SHA-256 %.8x)",
			key, strings.IndexFunc(value, unicode.IsControl), sha256.Sum256([]byte(value)))
	}
}

// allowsLoadBalancerClass reports whether Services may name a class; all may have "", none.
func (p *Policy) allowsLoadBalancerClass(class string) bool {
	return class == "" || p.traffic.loadBalancers.has(class)
}

// AllowsLoadBalancer reports whether the policy allows load balancers, and the class of this one.
func (p *Policy) AllowsLoadBalancer(service *corev1.Service) bool {
	return p.spec.Limits.LoadBalancers > 0 && p.allowsLoadBalancerClass(ptr.Deref(service.Spec.LoadBalancerClass, ""))
}

// AllowsIngressClass reports whether Ingresses may name an IngressClass of super clusters.
func (p *Policy) AllowsIngressClass(class string) bool {
	return p.MayOffer(IngressClasses, class)
}

// AllowsIngresses reports whether the policy allows any Ingress.
func (p *Policy) AllowsIngresses() bool {
	return p.spec.Traffic.IngressClass != "" || len(p.spec.Traffic.IngressClasses) > 0
}

// allowsHost reports whether Ingresses may name a host, "" for all hosts.
func (p *Policy) allowsHost(host string) bool {
	if p.traffic.anyHost {
		return true
	}
	return host != "" && (slices.Contains(p.traffic.hosts, host) ||
		slices.ContainsFunc(p.traffic.below, func(suffix string) bool { return len(host) > len(suffix) && strings.HasSuffix(host, suffix) }))
}

// checkIngress checks class, hosts, paths and backends of an Ingress, and values of annotations.
func (p *Policy) checkIngress(ingress *networkingv1.Ingress, found *refusals) {
	p.checkTraffic(resourceIngresses, ingress.Annotations, found)
	spec, rules := &ingress.Spec, &p.spec.Traffic
	switch class := ptr.Deref(spec.IngressClassName, ""); {
	case p.AllowsIngressClass(class):
	case class == "":
		found.add("spec.ingressClassName", "an Ingress without a class is not allowed: traffic.ingressClasses allows %s", names(rules.IngressClasses))
	default:
		found.add("spec.ingressClassName", "ingress class %s is not allowed: traffic.ingressClasses allows %s", class, names(rules.IngressClasses))
	}
	if spec.DefaultBackend != nil {
		if !p.allowsHost("") {
			found.add("spec.defaultBackend", "a default backend is not allowed: it serves all hosts, and traffic.ingressHosts allows %s", names(rules.IngressHosts))
		}
		checkBackend("spec.defaultBackend", spec.DefaultBackend, found)
	}
	for i := range spec.Rules {
		rule := &spec.Rules[i]
		p.checkHost(at("spec.rules", i)+".host", rule.Host, found)
		if rule.HTTP != nil {
			for j := range rule.HTTP.Paths {
				field := at(at("spec.rules", i)+".http.paths", j)
				checkPath(field+".path", rule.HTTP.Paths[j].Path, found)
				checkBackend(field+".backend", &rule.HTTP.Paths[j].Backend, found)
			}
		}
	}
	for i := range spec.TLS {
		for j, host := range spec.TLS[i].Hosts {
			p.checkHost(at(at("spec.tls", i)+".hosts", j), host, found)
		}
	}
}

func (p *Policy) checkHost(field, host string, found *refusals) {
	switch {
	case p.allowsHost(host):
	case host == "":
		found.add(field, "a rule without a host is not allowed: it serves all hosts, and traffic.ingressHosts allows %s", names(p.spec.Traffic.IngressHosts))
	default:
		found.add(field, "host %s is not allowed: traffic.ingressHosts allows %s", host, names(p.spec.Traffic.IngressHosts))
	}
}

// checkPath refuses characters that end a path where a controller writes it: rules of Traefik have it in backquotes,
// and nginx in double quotes, or in none before a brace.
func checkPath(field, path string, found *refusals) {
	for _, character := range path {
		if unicode.IsControl(character) || unicode.IsSpace(character) || strings.ContainsRune("`\"';{}\\", character) {
			found.add(field, "path %s is not allowed: %q may end a path in the configuration of an ingress controller", quoted(path), character)
			return
		}
	}
}

// quoted returns a value in quotes. Of a long one that is the beginning, and a hash: another value gives another text.
func quoted(value string) string {
	const most = 256
	if len(value) <= most {
		return strconv.Quote(value)
	}
	return fmt.Sprintf("%q… (SHA-256 %.8x)", value[:most], sha256.Sum256([]byte(value)))
}

// checkBackend refuses objects that no super cluster has.
func checkBackend(field string, backend *networkingv1.IngressBackend, found *refusals) {
	if resource := backend.Resource; resource != nil {
		found.add(field+".resource", "%s %s is not allowed: a backend is a Service", resource.Kind, resource.Name)
	}
}
