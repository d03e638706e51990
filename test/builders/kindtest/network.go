package kindtest

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/network"
	"github.com/superpool/superpool/internal/syncer/kinds/nodes"
	"github.com/superpool/superpool/internal/tenancy"
)

// TenantNode returns the tenant's Node for a node of the super cluster.
func TenantNode(superNode *corev1.Node) *corev1.Node {
	tenantNode := &corev1.Node{}
	nodes.TenantNode(superNode, tenantNode, "r1", kind.VNAgent{}, nodes.NodeShare{})
	return tenantNode
}

// IsolationKey is the key of what isolates the tenant's namespace web.
var IsolationKey = engine.Key{Tenant: ClusterKey, Kind: kind.Isolation, Namespace: "web", Name: "superpool-isolation"}

// IsolationFloor returns the policy that pods of the tenant's namespace web wait for.
func IsolationFloor() *networkingv1.NetworkPolicy {
	floor := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{
		Namespace: ClusterKey + "-web", Name: "superpool-isolation", Labels: map[string]string{network.LabelIsolation: "floor"},
	}}
	tenancy.SetOwner(floor, OwnerOf("ns-uid"))
	return floor
}

// ServiceCIDR returns the ServiceCIDR of a cluster.
func ServiceCIDR(ranges ...string) *networkingv1.ServiceCIDR {
	return &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: ranges}}
}

// NodeAt returns a node of a super cluster whose pods have a range.
func NodeAt(address, podRange string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n-" + address}, Spec: corev1.NodeSpec{PodCIDRs: []string{podRange}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "n"}, {Type: corev1.NodeInternalIP, Address: address}}},
	}
}

// ServerAt returns how an API server is reached.
func ServerAt(host string) *rest.Config { return &rest.Config{Host: host} }
