package soak

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// The check translates with the functions of the syncer, so a wrong translation agrees with itself. What follows is
// written by hand, and calls none of them.

// differences are what a copy has otherwise than is expected.
type differences []string

// equal adds a difference unless there is want.
func (d *differences) equal(what string, want, there any) {
	if !equality.Semantic.DeepEqual(want, there) {
		*d = append(*d, fmt.Sprintf("%s is %v, and should be %v", what, there, want))
	}
}

// secretDifferences are those of a Secret's copy: it has the same data, and is never one whose token the super cluster
// would write.
func secretDifferences(from, there *corev1.Secret) differences {
	var d differences
	d.equal("number of keys", len(from.Data), len(there.Data))
	for key, value := range from.Data {
		if string(there.Data[key]) != string(value) { // which is not printed
			d = append(d, "another value of key "+key)
		}
	}
	wantType := from.Type
	if wantType == "kubernetes.io/service-account-token" {
		wantType = "Opaque"
	}
	d.equal("type", wantType, there.Type)
	d.equal("immutable", from.Immutable, there.Immutable)
	return d
}

// serviceDifferences are those of a Service's copy: it selects no pods there, has the same ports, and is published
// where it may be alone. A load balancer is one in the home of its namespace, and an inner Service elsewhere.
func serviceDifferences(from, there *corev1.Service, home bool) differences {
	var d differences
	wantType := from.Spec.Type
	if wantType == "LoadBalancer" && !home {
		wantType = "ClusterIP"
	}
	d.equal("type", wantType, there.Spec.Type)
	d.equal("number of labels in the selector", 0, len(there.Spec.Selector))
	d.equal("number of external IPs", 0, len(there.Spec.ExternalIPs))
	d.equal("headless", from.Spec.ClusterIP == "None", there.Spec.ClusterIP == "None")
	d.equal("lack of a cluster IP", false, there.Spec.ClusterIP == "")
	d.equal("sessionAffinity", from.Spec.SessionAffinity, there.Spec.SessionAffinity)
	d.equal("publishNotReadyAddresses", from.Spec.PublishNotReadyAddresses, there.Spec.PublishNotReadyAddresses)
	d.equal("number of ports", len(from.Spec.Ports), len(there.Spec.Ports))
	for i := range min(len(from.Spec.Ports), len(there.Spec.Ports)) {
		want, port := from.Spec.Ports[i], there.Spec.Ports[i]
		if wantType == "ClusterIP" {
			d.equal(fmt.Sprintf("node port of port %d", want.Port), int32(0), port.NodePort)
		}
		want.NodePort, port.NodePort = 0, 0
		d.equal(fmt.Sprintf("port number %d", i), want, port)
	}
	return d
}

// endpointSliceDifferences are those of an EndpointSlice's copy: the same addresses, of the same Service. Nodes have
// the names that they have there, and none if they are those of another super cluster.
func endpointSliceDifferences(from, there *discoveryv1.EndpointSlice, superCluster string) differences {
	var d differences
	d.equal("service", from.Labels["kubernetes.io/service-name"], there.Labels["kubernetes.io/service-name"])
	d.equal("managed-by", "syncer.tenancy.x-k8s.io", there.Labels["endpointslice.kubernetes.io/managed-by"])
	d.equal("addressType", from.AddressType, there.AddressType)
	d.equal("ports", from.Ports, there.Ports)
	d.equal("number of endpoints", len(from.Endpoints), len(there.Endpoints))
	for i := range min(len(from.Endpoints), len(there.Endpoints)) {
		want, endpoint := &from.Endpoints[i], &there.Endpoints[i]
		of := fmt.Sprintf(" of endpoint %v", want.Addresses)
		d.equal("addresses"+of, want.Addresses, endpoint.Addresses)
		d.equal("conditions"+of, want.Conditions, endpoint.Conditions)
		d.equal("hostname"+of, value(want.Hostname), value(endpoint.Hostname))
		d.equal("zone"+of, value(want.Zone), value(endpoint.Zone))
		d.equal("target"+of, (*corev1.ObjectReference)(nil), endpoint.TargetRef)
		node, here := strings.CutPrefix(value(want.NodeName), superCluster+".")
		if !here {
			node = ""
		}
		d.equal("node"+of, node, value(endpoint.NodeName))
	}
	return d
}

// value is what a pointer points to, "" for nil.
func value(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}
