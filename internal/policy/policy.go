// Package policy answers what a TenantPolicy allows: it compiles the API object, and checks objects of super clusters
// against it.
//
// Everything here is pure: no clients, no clock, no logging. Arguments are never changed but by SetDefaults, Force and
// ForceEphemeral, which are there to do so.
package policy

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/manifests/policies"
)

// Policy is a compiled TenantPolicy. It is immutable and safe for concurrent use.
type Policy struct {
	name string
	spec tenancyv1alpha1.TenantPolicySpec

	pods                    podRules
	forcedKeys              []string           // of spec.Pods.NodeSelector, sorted
	defaults                []containerDefault // sorted by name
	metadata                metadata
	traffic                 traffic
	objects                 map[string]objectLimit
	offers                  map[string]classes // by resource
	poolCIDRs, allowedCIDRs []netip.Prefix
}

type objectLimit struct{ count, bytes int64 }

const (
	// namespaceBytes is what a super namespace may take, of those that there may be: 100 labels, twice.
	namespaceBytes = 16 << 10
	// minWriteRate and minWriteBurst keep a tenant working whatever its policy says: a burst of less than the largest
	// object would count that for less than it is.
	minWriteRate, minWriteBurst = 64 << 10, 4 << 20
)

// New compiles a TenantPolicy. The API server has validated it and set its defaults; an error means that it did not.
func New(name string, spec *tenancyv1alpha1.TenantPolicySpec) (*Policy, error) {
	policy := &Policy{name: name, spec: *spec.DeepCopy()}
	policy.metadata = newMetadata(&policy.spec.Metadata)
	policy.traffic = newTraffic(&policy.spec.Traffic)
	policy.objects = make(map[string]objectLimit, len(spec.Limits.Objects))
	for i := range policy.spec.Limits.Objects {
		limit := &policy.spec.Limits.Objects[i]
		policy.objects[limit.Resource] = objectLimit{count: limit.Count, bytes: limit.Bytes.Value()}
	}
	policy.offers = offers(&policy.spec)
	policy.defaults = containerDefaults(&policy.spec.Pods)
	policy.forcedKeys = slices.Sorted(maps.Keys(policy.spec.Pods.NodeSelector))
	var err error
	if policy.pods, err = newPodRules(&policy.spec); err != nil {
		return nil, fmt.Errorf("compiling TenantPolicy %s: %w", name, err)
	}
	if policy.poolCIDRs, err = parseCIDRs("spec.network.poolCIDRs", spec.Network.PoolCIDRs); err != nil {
		return nil, fmt.Errorf("compiling TenantPolicy %s: %w", name, err)
	}
	if policy.allowedCIDRs, err = parseCIDRs("spec.network.allowedCIDRs", spec.Network.AllowedCIDRs); err != nil {
		return nil, fmt.Errorf("compiling TenantPolicy %s: %w", name, err)
	}
	if err = checkCallers(spec.Traffic.CallerCIDRs, policy.poolCIDRs); err != nil {
		return nil, fmt.Errorf("compiling TenantPolicy %s: %w", name, err)
	}
	return policy, nil
}

// checkCallers returns an error for callers that have addresses outside of the pool: those may call without being
// listed, so that whoever lists them has taken them for another range.
func checkCallers(texts []string, pool []netip.Prefix) error {
	callers, err := parseCIDRs("spec.traffic.callerCIDRs", texts)
	if err != nil {
		return err
	}
	for _, caller := range callers {
		if !within(caller, pool) {
			return fmt.Errorf("reading spec.traffic.callerCIDRs: %s is not within spec.network.poolCIDRs, which must hold all addresses of it", caller)
		}
	}
	return nil
}

// within returns whether ranges together hold all addresses of prefix.
func within(prefix netip.Prefix, ranges []netip.Prefix) bool {
	var overlapping []netip.Prefix
	for _, each := range ranges {
		if !each.Overlaps(prefix) {
			continue
		}
		if each.Bits() <= prefix.Bits() {
			return true
		}
		overlapping = append(overlapping, each)
	}
	if len(overlapping) == 0 {
		return false
	}
	// All of them are smaller, so the prefix has two halves.
	bits := prefix.Bits()
	upper := prefix.Addr().AsSlice()
	upper[bits/8] |= 1 << (7 - bits%8)
	second, _ := netip.AddrFromSlice(upper)
	return within(netip.PrefixFrom(prefix.Addr(), bits+1), overlapping) && within(netip.PrefixFrom(second, bits+1), overlapping)
}

func containerDefaults(rules *tenancyv1alpha1.PodRules) []containerDefault {
	names := map[corev1.ResourceName]bool{}
	for _, list := range [...]corev1.ResourceList{rules.DefaultRequests, rules.DefaultLimits} {
		for name := range list {
			names[name] = true
		}
	}
	var defaults []containerDefault
	for _, name := range slices.Sorted(maps.Keys(names)) {
		amounts := containerDefault{name: name}
		if request, found := rules.DefaultRequests[name]; found {
			amounts.request = &request
		}
		if limit, found := rules.DefaultLimits[name]; found {
			amounts.limit = &limit
			if amounts.request != nil && exceeds(name, *amounts.request, limit) {
				amounts.request = &limit
			}
		}
		defaults = append(defaults, amounts)
	}
	return defaults
}

func parseCIDRs(field string, texts []string) ([]netip.Prefix, error) {
	var prefixes []netip.Prefix
	for _, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", field, err)
		}
		prefixes = append(prefixes, prefix.Masked())
	}
	return prefixes, nil
}

// Default returns the policy that is shipped.
func Default() *Policy { return shipped }

var shipped = mustParse(policies.Default)

func mustParse(data []byte) *Policy {
	object := &tenancyv1alpha1.TenantPolicy{}
	err := yaml.UnmarshalStrict(data, object)
	var policy *Policy
	if err == nil {
		policy, err = New(object.Name, &object.Spec)
	}
	if err != nil {
		panic(fmt.Sprintf("the shipped TenantPolicy is invalid: %v", err)) // a fault of the build: a test reads it too
	}
	return policy
}

// Name returns the name of the TenantPolicy.
func (p *Policy) Name() string { return p.name }

// Spec returns the TenantPolicy's spec, which must not be changed.
func (p *Policy) Spec() *tenancyv1alpha1.TenantPolicySpec { return &p.spec }

// ObjectLimit returns how many objects of a resource the tenant may have in one super cluster, and their bytes
// together. resource is a plural name, such as configmaps. A resource that the policy does not list has the limit of
// the shipped one; where that lists none either, listed is false, and none may be there. The Secrets with the tokens of
// pods are tokens: unless they are listed, their count is that of pods and their bytes are those of secrets. Super
// namespaces are namespaces: unless they are listed, their count is twice limits.namespaces, for those without a
// placement that hold Services, and their bytes follow from it.
func (p *Policy) ObjectLimit(resource string) (count, bytes int64, listed bool) {
	limit, listed := p.objects[resource]
	switch {
	case listed:
	case resource == "tokens":
		pods, _, _ := p.ObjectLimit("pods")
		_, size, _ := p.ObjectLimit("secrets")
		return pods, size, true
	case resource == "namespaces":
		return 2 * int64(p.spec.Limits.Namespaces), 3 * int64(p.spec.Limits.Namespaces) * namespaceBytes, true
	default:
		limit, listed = Default().objects[resource]
	}
	return limit.count, limit.bytes, listed
}

// WriteRate returns how many bytes syncers may write of the tenant into each super cluster, in a second and at once.
func (p *Policy) WriteRate() (bytesPerSecond, burst int64) {
	writes, shipped := &p.spec.Limits.Writes, &Default().spec.Limits.Writes
	return rateOf(writes.BytesPerSecond, shipped.BytesPerSecond, minWriteRate), rateOf(writes.Burst, shipped.Burst, minWriteBurst)
}

// rateOf returns what a policy sets, or the shipped one where it is from before there was the field, within bounds.
func rateOf(set, shipped resource.Quantity, least int64) int64 {
	if set.IsZero() {
		set = shipped
	}
	return min(max(set.Value(), least), math.MaxInt32)
}

// PoolCIDRs returns spec.network.poolCIDRs, which must not be changed.
func (p *Policy) PoolCIDRs() []netip.Prefix { return p.poolCIDRs }

// AllowedCIDRs returns spec.network.allowedCIDRs, which must not be changed.
func (p *Policy) AllowedCIDRs() []netip.Prefix { return p.allowedCIDRs }
