// Package tenants keeps the live connections to tenant control planes: it watches VirtualClusters and the Secrets that hold their
// kubeconfigs, and runs one instance of the caller's work per reachable tenant.
package tenants

import (
	"context"
	"net/netip"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// Tenant is one instance of a connection to a tenant control plane. It is immutable: a changed kubeconfig makes another
// instance, after the work on the old one has ended.
type Tenant struct {
	// Key is the cluster key: the tenant's root namespace in the meta cluster.
	Key string
	// VirtualCluster names the tenant's object in the meta cluster.
	VirtualCluster types.NamespacedName
	// UID is the UID of that object.
	UID types.UID
	// ClusterDomain is the DNS domain of the tenant's Services, never empty.
	ClusterDomain string
	// ServiceCIDRs are the addresses that belong to the tenant's Services.
	ServiceCIDRs []netip.Prefix
	// OpaqueMetaPrefixes lists prefixes of label and annotation keys that are not copied down.
	OpaqueMetaPrefixes []string
	// TransparentMetaPrefixes lists prefixes of label and annotation keys that are copied up.
	TransparentMetaPrefixes []string
	// Config reaches the control plane. It must not be changed; copy it to set other rates.
	Config *rest.Config
}

// Engage works on one tenant until ctx ends, which it does when the tenant is deleted, its credentials change or the process stops.
// It calls ready once, when its caches are filled. An error ends the instance; another is started after a delay that grows.
// It runs on a goroutine of its own, never twice at a time for one tenant.
type Engage func(ctx context.Context, tenant *Tenant, ready func()) error
