package kinds

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/superpool/superpool/internal/tenancy"
)

// managedBySyncer is the value of label endpointslice.kubernetes.io/managed-by: the super cluster's own controllers
// ignore such an EndpointSlice.
const managedBySyncer = "syncer.tenancy.x-k8s.io"

// KindEndpointSlice is the kind of EndpointSlices.
const KindEndpointSlice = "endpointslice"

// endpointSlices are copied for the namespaces of which Services are.
func endpointSlices() Copy[*discoveryv1.EndpointSlice] {
	return Copy[*discoveryv1.EndpointSlice]{
		Name:  KindEndpointSlice,
		New:   func() *discoveryv1.EndpointSlice { return &discoveryv1.EndpointSlice{} },
		Scope: ScopeTenant,
		Recreate: func(_ *Tenant, tenantSlice, superSlice *discoveryv1.EndpointSlice) bool {
			return tenantSlice.AddressType != superSlice.AddressType
		},
		Translate: func(env *Env, _ *Tenant, tenantSlice, superSlice *discoveryv1.EndpointSlice) (Notice, error) {
			SuperEndpointSlice(tenantSlice, superSlice, env.ID)
			return Notice{}, nil
		},
	}
}

// SuperEndpointSlice sets superSlice to the desired one for tenantSlice. nodeName is the node's own name in this super
// cluster, and removed for nodes of others. References to objects of the tenant are removed.
func SuperEndpointSlice(tenantSlice, superSlice *discoveryv1.EndpointSlice, superCluster string) {
	labels := maps.Clone(superSlice.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	for _, key := range [...]string{discoveryv1.LabelServiceName, corev1.IsHeadlessService} {
		delete(labels, key)
		if value, exists := tenantSlice.Labels[key]; exists {
			labels[key] = value
		}
	}
	labels[discoveryv1.LabelManagedBy] = managedBySyncer
	superSlice.Labels = labels
	content := tenantSlice.DeepCopy()
	superSlice.AddressType, superSlice.Ports, superSlice.Endpoints = content.AddressType, content.Ports, content.Endpoints
	for i := range superSlice.Endpoints {
		endpoint := &superSlice.Endpoints[i]
		endpoint.TargetRef, endpoint.Hints, endpoint.DeprecatedTopology = nil, nil, nil
		if endpoint.NodeName == nil {
			continue
		}
		name, here := nodeHere(superCluster, *endpoint.NodeName)
		endpoint.NodeName = &name
		if !here {
			endpoint.NodeName = nil
		}
	}
}

// nodeHere returns the node's name in this super cluster for the name of a tenant's Node. It returns false for nodes of
// other super clusters.
func nodeHere(superCluster, nodeName string) (string, bool) {
	if id, ok := tenancy.NodeSuperCluster(nodeName); !ok || id != superCluster {
		return "", false
	}
	return strings.TrimPrefix(nodeName, superCluster+"."), true
}
