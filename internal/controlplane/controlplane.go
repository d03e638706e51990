// Package controlplane says what the control plane of a tenant consists of, as objects of the meta cluster. Everything
// here is pure: equal input gives equal objects. The flags of its programs are those of all control planes that tests
// and beds run.
//
// The objects lie in the root namespace of the tenant, and none has a name of the tenant's choosing:
//
//	Service, ConfigMap, StatefulSet, PodDisruptionBudget, NetworkPolicy   etcd
//	Service, Deployment, PodDisruptionBudget, NetworkPolicy               kube-apiserver
//	Deployment, NetworkPolicy                                             kube-controller-manager
//	Secrets                                                               one for each pair of Certificates, one for each of Authorities, kubelet-client, files
package controlplane

import (
	"fmt"
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	utilnet "k8s.io/utils/net"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

const (
	// ManagedBy is the value of label app.kubernetes.io/managed-by on all objects.
	ManagedBy = "vc-manager"

	labelManagedBy = "app.kubernetes.io/managed-by"
	labelName      = "app.kubernetes.io/name"

	// defaultServiceCIDR is the range of the Services of a tenant that names none.
	defaultServiceCIDR = "10.96.0.0/12"

	apiServerPort  = 6443
	clientPort     = 2379
	peerPort       = 2380
	etcdHealthPort = 2381
	managerPort    = 10257
)

// ControlPlane is what the objects are made of. Nothing of it is changed.
type ControlPlane struct {
	// Namespace is the root namespace of the tenant.
	Namespace string
	Tenant    *tenancyv1alpha1.VirtualCluster
	Version   *tenancyv1alpha1.ClusterVersion
	// Service is that of the API servers as it is, nil for none.
	Service *corev1.Service
	// Trusted has, for each of Authorities, the certificates of those that are trusted, in PEM: more than one while it is
	// being replaced. Pods have them in annotations, so that they are replaced when they are to trust others.
	Trusted map[string]string
	// FileKeys are the keys of SecretFiles that have the files of Version which are secrets.
	FileKeys map[FileSource]string
	// Generation is that of its store.
	Generation int64
	// External is where its store is whose Secret ExternalClient is there, nil for one that vc-manager runs. Trusted has then
	// of EtcdCA those by which the store is known.
	External *External
	// Network is what its pods may reach.
	Network Network
	// Agents is whether Secret KubeletClient is there, by which the API server and vn-agents know each other. Without it
	// the API server reaches no kubelet: it trusts only what its own authority has signed.
	Agents bool
}

// serviceCIDRs are the ranges of Services.
func (c *ControlPlane) serviceCIDRs() []string {
	if given := c.Tenant.Spec.ServiceRanges(); len(given) > 0 {
		return given
	}
	return []string{defaultServiceCIDR}
}

// clusterDomain is the DNS domain of Services.
func (c *ControlPlane) clusterDomain() string {
	if given := c.Tenant.Spec.ClusterDomain; given != "" {
		return given
	}
	return "cluster.local"
}

// serviceAddresses returns the address of Service kubernetes in each range, the first one there.
func (c *ControlPlane) serviceAddresses() ([]net.IP, error) {
	var addresses []net.IP
	for _, text := range c.serviceCIDRs() {
		_, cidr, err := net.ParseCIDR(text)
		if err != nil {
			return nil, fmt.Errorf("spec.serviceCIDRs: %w", err)
		}
		first, err := utilnet.GetIndexedIP(cidr, 1)
		if err != nil {
			return nil, fmt.Errorf("spec.serviceCIDRs: %s has no address for Service kubernetes: %w", text, err)
		}
		addresses = append(addresses, first)
	}
	return addresses, nil
}

// host returns the name by which others in the meta cluster reach a Service.
func (c *ControlPlane) host(service string) string { return service + "." + c.Namespace + ".svc" }

// URL returns where vc-manager, and the controller manager, reach the API server.
func (c *ControlPlane) URL() string {
	return "https://" + net.JoinHostPort(c.host(APIServer), strconv.Itoa(apiServerPort))
}

// ManagerKubeconfig returns the kubeconfig of the controller manager, which names the files of its certificate: it reads
// them again when they change.
func (c *ControlPlane) ManagerKubeconfig() ([]byte, error) {
	const name = ManagerUser
	config := clientcmdapi.NewConfig()
	config.Clusters[c.Namespace] = &clientcmdapi.Cluster{Server: c.URL(), CertificateAuthority: certificates.Certificate(CA)}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificate: certificates.Certificate(name), ClientKey: certificates.Key(name)}
	config.Contexts[c.Namespace] = &clientcmdapi.Context{Cluster: c.Namespace, AuthInfo: name}
	config.CurrentContext = c.Namespace
	content, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("encoding the kubeconfig of the controller manager: %w", err)
	}
	return content, nil
}

// Managed selects vc-manager's objects.
func Managed() labels.Selector { return labels.SelectorFromSet(labels.Set{labelManagedBy: ManagedBy}) }

// IsManaged reports whether an object is vc-manager's.
func IsManaged(object metav1.Object) bool { return object.GetLabels()[labelManagedBy] == ManagedBy }

// meta returns the metadata of an object of a component.
func (c *ControlPlane) meta(component, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: c.Namespace, Name: name, Labels: Labels(component)}
}

// Credentials is the component of all Secrets.
const Credentials = "credentials"

// Labels returns the labels of all that belongs to a component, by which its pods are selected.
func Labels(component string) map[string]string {
	return map[string]string{labelManagedBy: ManagedBy, labelName: component}
}

// service returns the Service of a component.
func (c *ControlPlane) service(component string, ports ...int32) *corev1.Service {
	service := &corev1.Service{ObjectMeta: c.meta(component, component), Spec: corev1.ServiceSpec{Selector: Labels(component)}}
	service.APIVersion, service.Kind = "v1", "Service"
	for _, port := range ports {
		service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{Name: "port-" + strconv.Itoa(int(port)), Port: port, Protocol: corev1.ProtocolTCP})
	}
	return service
}
