package controlplane

import (
	"net"
	"time"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/pki"
)

// The authorities of a control plane: of its users, of its etcd, of those who tell its aggregated API servers who asks,
// and of the tokens of service accounts, which issues no certificates. Each is a Secret of that name.
const (
	CA              = "ca"
	EtcdCA          = "etcd-ca"
	FrontProxyCA    = "front-proxy-ca"
	ServiceAccounts = "service-accounts"
)

// Authorities returns the names of all authorities.
func Authorities() []string { return []string{CA, EtcdCA, FrontProxyCA, ServiceAccounts} }

// Other Secrets of a control plane.
const (
	// EtcdManager has the certificate by which vc-manager asks etcd.
	EtcdManager = "etcd-manager"
	// ManagerUser has the certificate of the controller manager.
	ManagerUser = "controller-manager"
	// KubeconfigKey is the key of a kubeconfig in the Secret of its user's certificate. It names the files of that, so
	// that the user reads them again.
	KubeconfigKey = "kubeconfig"
	// KubeletClient has the certificate that the API server shows to kubelets, which are vn-agents, and their authority. No
	// authority of the control plane issues it: vn-agents trust the pool's.
	KubeletClient = "kubelet-client"
	// ServingCAKey is the key of the authorities of vn-agents, in PEM, in the Secrets of those who ask them.
	ServingCAKey = "ca.crt"
)

// administrators is the group that may do everything.
const administrators = "system:masters"

// Certificate is one that a program of a control plane shows, or a user of it. It is a Secret of that name.
type Certificate struct {
	Name, Authority string
	Wanted          pki.Certificate
}

// Validity returns how long the certificates of a tenant are valid: byDefault where it does not say so.
func Validity(vc *tenancyv1alpha1.VirtualCluster, byDefault time.Duration) time.Duration {
	if days := vc.Spec.PKIExpireDays; days > 0 {
		return time.Duration(days) * 24 * time.Hour
	}
	return byDefault
}

// Certificates returns all that authorities of the control plane issue, each valid for so long. All are read again by the
// programs that show them when they change.
func (c *ControlPlane) Certificates(validity time.Duration) ([]Certificate, error) {
	addresses, err := c.serviceAddresses()
	if err != nil {
		return nil, err
	}
	names := []string{
		"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + c.clusterDomain(), c.host(APIServer),
	}
	addresses = append(addresses, net.IPv4(127, 0, 0, 1))
	for _, host := range c.hosts() {
		if address := net.ParseIP(host); address != nil {
			addresses = append(addresses, address)
			continue
		}
		names = append(names, host)
	}
	members := []string{"localhost", c.host(Etcd), "*." + c.host(Etcd)}
	local := []net.IP{net.IPv4(127, 0, 0, 1)}
	all := []Certificate{
		{Name: "apiserver", Authority: CA, Wanted: pki.Certificate{User: APIServer, IPs: addresses, DNSNames: names}},
		{Name: ManagerUser, Authority: CA, Wanted: pki.Certificate{User: "system:kube-controller-manager"}},
		{Name: tenancyv1alpha1.SecretAdminKubeconfig, Authority: CA, Wanted: pki.Certificate{User: "kubernetes-admin", Groups: []string{administrators}}},
		{Name: "front-proxy-client", Authority: FrontProxyCA, Wanted: pki.Certificate{User: FrontProxyUser}},
		{Name: "etcd-server", Authority: EtcdCA, Wanted: pki.Certificate{User: Etcd, IPs: local, DNSNames: members}},
		{Name: "etcd-peer", Authority: EtcdCA, Wanted: pki.Certificate{User: "etcd-peer", IPs: local, DNSNames: members}},
		{Name: "etcd-client", Authority: EtcdCA, Wanted: pki.Certificate{User: APIServer}},
		{Name: EtcdManager, Authority: EtcdCA, Wanted: pki.Certificate{User: ManagedBy}},
	}
	for i := range all {
		all[i].Wanted.Validity = validity
	}
	return all, nil
}
