package virtualclusters

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// overlapsNamed bounds what a condition names: all tenants may have the same range.
const overlapsNamed = 3

// ServiceCIDRs returns spec.serviceCIDRs, parsed. The CRD's validation refuses what is no range, so an error means that
// it was evaded.
func ServiceCIDRs(vc *tenancyv1alpha1.VirtualCluster) ([]netip.Prefix, error) {
	ranges := make([]netip.Prefix, 0, len(vc.Spec.ServiceCIDRs))
	for _, text := range vc.Spec.ServiceCIDRs {
		parsed, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("reading serviceCIDRs: %w", err)
		}
		ranges = append(ranges, parsed)
	}
	return ranges, nil
}

// overlap returns a message that names the other VirtualClusters with which a VirtualCluster shares addresses of
// Services, "" for none. It reads all of them from the cache, for each report of one.
func (o *Owner) overlap(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster) (string, error) {
	own, err := ServiceCIDRs(vc)
	if err != nil || len(own) == 0 {
		return "", nil //nolint:nilerr // what is no range shares nothing; whoever connects to the tenant returns the error
	}
	var list tenancyv1alpha1.VirtualClusterList
	if err := o.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("listing VirtualClusters: %w", err)
	}
	return overlapMessage(vc, own, list.Items), nil
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
	slices.Sort(shared)
	if len(shared) > overlapsNamed {
		shared = append(shared[:overlapsNamed], "others")
	}
	return fmt.Sprintf("serviceCIDRs %s share addresses with %s: a super cluster gives an address once, to the Service that asks first. Give each tenant "+
		"a range of its own, as --service-cluster-ip-range of its API server and here", strings.Join(vc.Spec.ServiceCIDRs, ", "), strings.Join(shared, ", "))
}
