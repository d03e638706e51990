package services

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kind/copier"
	"github.com/superpool/superpool/internal/tenancy"
)

// managedBySyncer is the value of label endpointslice.kubernetes.io/managed-by: the super cluster's own controllers
// ignore such an EndpointSlice.
const managedBySyncer = "syncer.tenancy.x-k8s.io"

// ReasonEndpointsForbidden: an EndpointSlice names addresses of the pool that no pod of the tenant has, or has names
// instead of addresses; the syncer writes it without these endpoints to the super cluster.
const ReasonEndpointsForbidden = "EndpointsForbidden"

// EndpointSliceSpec is that of EndpointSlices, which are copied for the namespaces of which Services are. forbidden
// returns whether those of a tenant may not name an address.
func EndpointSliceSpec(forbidden func(*kind.Env, *kind.Tenant) func(netip.Addr) bool) kind.Spec {
	spec := copier.Spec(copier.Copy[*discoveryv1.EndpointSlice]{
		Name:  kind.EndpointSlice,
		New:   func() *discoveryv1.EndpointSlice { return &discoveryv1.EndpointSlice{} },
		Scope: kind.ScopeTenant,
		Recreate: func(_ *kind.Tenant, tenantSlice, superSlice *discoveryv1.EndpointSlice) bool {
			return tenantSlice.AddressType != superSlice.AddressType
		},
		Facts: func(env *kind.Env, tenant *kind.Tenant) policy.Facts {
			return policy.Facts{Forbidden: forbidden(env, tenant)}
		},
		Trim: func(env *kind.Env, tenant *kind.Tenant, superSlice *discoveryv1.EndpointSlice) bool {
			return superSlice.AddressType != discoveryv1.AddressTypeFQDN && len(forbiddenEndpoints(superSlice, superSlice, forbidden(env, tenant), tenant, env.ID)) > 0
		},
		Translate: func(env *kind.Env, tenant *kind.Tenant, tenantSlice, superSlice *discoveryv1.EndpointSlice) (copier.Notice, error) {
			return translateEndpointSlice(env, tenant, tenantSlice, superSlice, forbidden(env, tenant)), nil
		},
		Indexes: map[string]func(client.Object) []string{kind.IndexAddress: addressesOfSlice},
		Wakes:   map[string]func(*kind.Env, kind.Change) []engine.Key{kind.Pod: wakesEndpointSlices},
	})
	spec.Aside = true
	return spec
}

// translateEndpointSlice is SuperEndpointSlice without the endpoints that the tenant may not have. Only these are left
// out, not the whole slice: a Service keeps those of its pods when one of them has just gone.
func translateEndpointSlice(env *kind.Env, tenant *kind.Tenant, tenantSlice, superSlice *discoveryv1.EndpointSlice, isForbidden func(netip.Addr) bool) copier.Notice {
	SuperEndpointSlice(tenantSlice, superSlice, env.ID)
	if superSlice.AddressType == discoveryv1.AddressTypeFQDN {
		return withoutNames(superSlice)
	}
	forbidden := forbiddenEndpoints(tenantSlice, superSlice, isForbidden, tenant, env.ID)
	if len(forbidden) == 0 {
		return copier.Notice{}
	}
	return copier.Notice{Reason: ReasonEndpointsForbidden, Message: fmt.Sprintf(
		"addresses %s are the pool's, and no pod of the tenant has them here: their endpoints are left out", kind.SomeOf(forbidden))}
}

// withoutNames removes all endpoints of a super EndpointSlice whose addresses are names. Ingress controllers resolve
// them, so that they are what a Service of type ExternalName is.
func withoutNames(superSlice *discoveryv1.EndpointSlice) copier.Notice {
	var found []string
	for i := range superSlice.Endpoints {
		found = append(found, superSlice.Endpoints[i].Addresses...)
	}
	superSlice.Endpoints = nil
	if len(found) == 0 {
		return copier.Notice{}
	}
	return copier.Notice{Reason: ReasonEndpointsForbidden, Message: fmt.Sprintf(
		"names %s may lead anywhere: the endpoints of an EndpointSlice of addressType FQDN are left out", kind.SomeOf(found))}
}

// forbiddenEndpoints removes the endpoints of a super EndpointSlice, made of tenantSlice, with an address that is
// forbidden. It returns these addresses but for endpoints that are not ready, as pods that have ended are until the
// tenant's controllers remove them, and for those on nodes of other super clusters, of which this one is told a moment
// later.
func forbiddenEndpoints(tenantSlice, superSlice *discoveryv1.EndpointSlice, isForbidden func(netip.Addr) bool, tenant *kind.Tenant, superCluster string) []string {
	var forbidden []string
	otherPort := false
	server, serverPort, exists := tenant.APIServer()
	for _, port := range superSlice.Ports {
		otherPort = otherPort || ptr.Deref(port.Port, 0) != serverPort
	}
	at := -1
	superSlice.Endpoints = slices.DeleteFunc(superSlice.Endpoints, func(endpoint discoveryv1.Endpoint) bool {
		at++
		for _, text := range endpoint.Addresses {
			address, err := netip.ParseAddr(text)
			// The host of the tenant's API server may have other servers, such as those of other tenants.
			atServer := exists && otherPort && server.Contains(address.Unmap())
			if err == nil && !isForbidden(address) && !atServer {
				continue
			}
			id, onNode := tenancy.NodeSuperCluster(ptr.Deref(tenantSlice.Endpoints[at].NodeName, ""))
			if ptr.Deref(endpoint.Conditions.Ready, true) && (!onNode || id == superCluster) {
				forbidden = append(forbidden, text)
			}
			return true
		}
		return false
	})
	return forbidden
}

// wakesEndpointSlices enqueues the EndpointSlices that name an address which a super pod no longer has: others may get
// it.
func wakesEndpointSlices(env *kind.Env, change kind.Change) []engine.Key {
	if change.Side != kind.SuperSide || change.Old == nil {
		return nil
	}
	before := kind.AddressesOfPod(change.Old)
	if change.Current != nil {
		after := kind.AddressesOfPod(change.Current)
		before = slices.DeleteFunc(before, func(address string) bool { return slices.Contains(after, address) })
	}
	var keys []engine.Key
	for _, address := range before {
		for _, slice := range env.SuperCache.Index(kind.EndpointSlice, kind.IndexAddress, address) {
			if key, ours := env.SuperKey(kind.EndpointSlice, slice); ours {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// SuperEndpointSlice sets superSlice to the desired one for tenantSlice. nodeName is the node's own name in this super
// cluster, and removed for nodes of others. References to objects of the tenant are removed. Hints stay: zones have the
// same names in the tenant.
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
		endpoint.TargetRef, endpoint.DeprecatedTopology = nil, nil
		hintHere(endpoint.Hints, superCluster)
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

// hintHere gives the nodes that hints name the names that they have in this super cluster. The hint at a node of
// another one stays as it is, and is no node's here: where one endpoint has no hint, kube-proxy heeds none.
func hintHere(hints *discoveryv1.EndpointHints, superCluster string) {
	if hints == nil {
		return
	}
	for i := range hints.ForNodes {
		if name, here := nodeHere(superCluster, hints.ForNodes[i].Name); here {
			hints.ForNodes[i].Name = name
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

// addressesOfSlice returns the values of IndexAddress of a super EndpointSlice.
func addressesOfSlice(object client.Object) []string {
	slice, ok := object.(*discoveryv1.EndpointSlice)
	if !ok {
		return nil
	}
	var texts []string
	for i := range slice.Endpoints {
		texts = append(texts, slice.Endpoints[i].Addresses...)
	}
	return kind.AtAddresses(slice, texts)
}
