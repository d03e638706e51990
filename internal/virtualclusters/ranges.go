package virtualclusters

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// overlapsNamed bounds what a condition names: all tenants may have the same range.
const overlapsNamed = 3

// ServiceCIDRs returns spec.serviceCIDRs, or serviceCidr, parsed. The CRD's validation refuses what is no range, so an error means that
// it was evaded.
func ServiceCIDRs(vc *tenancyv1alpha1.VirtualCluster) ([]netip.Prefix, error) {
	texts := vc.Spec.ServiceRanges()
	ranges := make([]netip.Prefix, 0, len(texts))
	for _, text := range texts {
		parsed, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("reading serviceCIDRs: %w", err)
		}
		ranges = append(ranges, parsed)
	}
	return ranges, nil
}

// ServiceNodePorts returns spec.serviceNodePortRange, parsed; without one, and for an error, its Size is 0. The CRD's
// validation refuses what is no range, so an error means that it was evaded.
func ServiceNodePorts(vc *tenancyv1alpha1.VirtualCluster) (utilnet.PortRange, error) {
	if vc.Spec.ServiceNodePortRange == "" {
		return utilnet.PortRange{}, nil
	}
	parsed, err := utilnet.ParsePortRange(vc.Spec.ServiceNodePortRange)
	if err != nil {
		return utilnet.PortRange{}, fmt.Errorf("reading serviceNodePortRange: %w", err)
	}
	return *parsed, nil
}

// overlaps name what a VirtualCluster shares with others, "" for nothing.
type overlaps struct{ cidrs, nodePorts string }

// overlap returns messages that name the other VirtualClusters with which a VirtualCluster shares addresses or node
// ports of Services. It reads all of them from the cache, for each report of one.
func (o *Owner) overlap(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster) (overlaps, error) {
	// What is no range shares nothing; whoever connects to the tenant returns the error.
	ranges, _ := ServiceCIDRs(vc)
	ports, _ := ServiceNodePorts(vc)
	if len(ranges) == 0 && ports.Size == 0 {
		return overlaps{}, nil
	}
	var list tenancyv1alpha1.VirtualClusterList
	if err := o.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return overlaps{}, fmt.Errorf("listing VirtualClusters: %w", err)
	}
	return overlaps{cidrs: overlapMessage(vc, ranges, list.Items), nodePorts: sharedPorts(vc, ports, list.Items)}, nil
}

// sharedPorts compares the node ports of a VirtualCluster with those of all.
func sharedPorts(vc *tenancyv1alpha1.VirtualCluster, own utilnet.PortRange, all []tenancyv1alpha1.VirtualCluster) string {
	var shared []string
	for i := range all {
		other := &all[i]
		theirs, err := ServiceNodePorts(other)
		if err != nil || other.UID == vc.UID || own.Size == 0 || theirs.Size == 0 {
			continue
		}
		if own.Contains(theirs.Base) || theirs.Contains(own.Base) {
			shared = append(shared, fmt.Sprintf("%s of %s/%s", other.Spec.ServiceNodePortRange, other.Namespace, other.Name))
		}
	}
	if len(shared) == 0 {
		return ""
	}
	return fmt.Sprintf("serviceNodePortRange %s shares ports with %s: a super cluster gives a port once, to the Service that asks first. Give each tenant "+
		"a range of its own, as --service-node-port-range of its API server and here", vc.Spec.ServiceNodePortRange, firstOf(shared))
}

// firstOf returns the first of some names, sorted, and whether there are others.
func firstOf(names []string) string {
	slices.Sort(names)
	if len(names) > overlapsNamed {
		names = append(names[:overlapsNamed], "others")
	}
	return strings.Join(names, ", ")
}

// overlapMessage compares the ranges of a VirtualCluster, parsed as own, with those of all.
func overlapMessage(vc *tenancyv1alpha1.VirtualCluster, own []netip.Prefix, all []tenancyv1alpha1.VirtualCluster) string {
	var shared []string
	for i := range all {
		other := &all[i]
		ranges, err := ServiceCIDRs(other)
		if err != nil || other.UID == vc.UID {
			continue
		}
		for _, theirs := range ranges {
			if slices.ContainsFunc(own, theirs.Overlaps) {
				shared = append(shared, fmt.Sprintf("%s of %s/%s", theirs, other.Namespace, other.Name))
			}
		}
	}
	if len(shared) == 0 {
		return ""
	}
	return fmt.Sprintf("serviceCIDRs %s share addresses with %s: a super cluster gives an address once, to the Service that asks first. Give each tenant "+
		"a range of its own, as --service-cluster-ip-range of its API server and here", strings.Join(vc.Spec.ServiceRanges(), ", "), firstOf(shared))
}
