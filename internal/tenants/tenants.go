// Package tenants keeps the connections to tenant control planes: it watches VirtualClusters and the Secrets that hold
// their kubeconfigs, and runs the caller's work once per tenant whose control plane answers. What VirtualClusters need
// besides is behind Lifecycle.
package tenants

import (
	"context"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/internal/tenantclient"
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
	// ControlPlaneUID is the UID of the control plane's namespace kube-system, as the VirtualCluster records it.
	ControlPlaneUID types.UID
	// ClusterDomain is the DNS domain of the tenant's Services, never empty.
	ClusterDomain string
	// ServiceCIDRs are the addresses that belong to the tenant's Services.
	ServiceCIDRs []netip.Prefix
	// NodePorts are those that belong to the tenant's Services; with Size 0 super clusters allocate others.
	NodePorts utilnet.PortRange
	// Nodes is which nodes of super clusters the tenant has Nodes for.
	Nodes tenancyv1alpha1.NodesMode
	// OpaqueMetaPrefixes lists prefixes of label and annotation keys that are not copied down.
	OpaqueMetaPrefixes []string
	// TransparentMetaPrefixes lists prefixes of label and annotation keys that are copied up.
	TransparentMetaPrefixes []string
	// Policy holds the TenantPolicy in force. It may change while the instance lasts.
	Policy *policy.Ref
	// Bounds are the bounds on what this program takes from the control plane. Config obeys them; informers open an
	// account.
	Bounds *tenantclient.Bounds
	// Config reaches the control plane. It must not be changed; copy it to set other rates.
	Config *rest.Config
}

// Engage works on one tenant until ctx ends, which it does when the tenant is deleted, its credentials change or the
// process stops. It calls ready once, when its caches are filled. An error or a panic ends the instance; another is
// started after a delay that grows. It runs on a goroutine of its own, never twice at a time for one tenant. Goroutines
// that it starts defer engage.Recover, or their panic ends the process.
type Engage func(ctx context.Context, tenant *Tenant, ready func()) error

// Lifecycle is what happens to a VirtualCluster around its connection. One process of a pool owns that life
// (virtualclusters.Owner); all others wait for what the owner writes (virtualclusters.Reader). The methods may run
// concurrently for different VirtualClusters.
type Lifecycle interface {
	// Prepare is called before the kubeconfig is read. It returns why the tenant must not be connected to, the zero
	// Reason for nothing.
	Prepare(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster) (tenancy.Reason, error)
	// Recognize is called with the UID of a control plane that answers, when status.controlPlaneUID is empty: it writes
	// the UID, or returns an error. A conflict makes the caller read vc anew and try again.
	Recognize(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster, uid types.UID) error
	// Withdraw is called when the control plane with the UID in status.controlPlaneUID turns out to be somebody else's:
	// it removes the UID, so that no process connects. Processes that wait for the owner write nothing.
	Withdraw(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster) error
	// Report is called at each reconcile with the state of the connection, or why there is none. policy is why another
	// TenantPolicy holds than the one that the VirtualCluster names, version why Superpool does not work with that of
	// the control plane, each the zero Reason for nothing; nil for a version that is not known. The duration is after how
	// long to reconcile again, 0 for no time.
	Report(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster, state, policy tenancy.Reason, version *tenancy.Reason) (time.Duration, error)
	// Release is called for a VirtualCluster that is being deleted, after its connection in this process has ended.
	Release(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster) (time.Duration, error)
}
