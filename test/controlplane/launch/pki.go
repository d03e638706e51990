package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"

	utilnet "k8s.io/utils/net"

	"github.com/superpool/superpool/internal/controlplane"
	"github.com/superpool/superpool/internal/pki"
)

// administrators is the group that may do everything.
const administrators = "system:masters"

// ensurePKI makes the certificates that are missing; those of a former start stay. The administrator's kubeconfig is
// made last.
func (c *ControlPlane) ensurePKI() error {
	if _, err := os.Stat(c.KubeconfigFile()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	authority, err := newAuthority(c.pki("ca"), c.Name)
	if err != nil {
		return err
	}
	front, err := newAuthority(c.pki("front-proxy-ca"), c.Name+"-front-proxy")
	if err != nil {
		return err
	}
	server, err := c.serving()
	if err != nil {
		return err
	}
	kubelets, kubeletClient := authority, pki.Certificate{User: "kube-apiserver-kubelet-client", Groups: []string{administrators}}
	if c.KubeletClientCA != "" {
		if kubelets, err = pki.LoadAuthority(c.KubeletClientCA); err != nil {
			return err
		}
		kubeletClient = pki.Certificate{User: "nobody"}
	}
	for name, wanted := range map[string]struct {
		by          *pki.Authority
		certificate pki.Certificate
	}{
		"apiserver":          {authority, server},
		"kubelet-client":     {kubelets, kubeletClient},
		"front-proxy-client": {front, pki.Certificate{User: controlplane.FrontProxyUser}},
	} {
		pair, err := wanted.by.Issue(wanted.certificate)
		if err != nil {
			return err
		}
		if err := pair.Write(c.pki(name)); err != nil {
			return err
		}
	}
	if _, err := newAuthority(c.pki(controlplane.ServiceAccounts), c.Name+"-service-accounts"); err != nil {
		return err
	}
	return c.administrator(authority)
}

// serving describes the API server: its address and the names that pods know it by.
func (c *ControlPlane) serving() (pki.Certificate, error) {
	_, services, err := net.ParseCIDR(c.ServiceCIDR)
	if err != nil {
		return pki.Certificate{}, fmt.Errorf("reading the range of Services: %w", err)
	}
	service, err := utilnet.GetIndexedIP(services, 1)
	if err != nil {
		return pki.Certificate{}, fmt.Errorf("choosing the address of the API server's Service: %w", err)
	}
	address := net.ParseIP(c.Address)
	if address == nil {
		return pki.Certificate{}, fmt.Errorf("%q is no IP address", c.Address)
	}
	return pki.Certificate{User: "kube-apiserver", IPs: []net.IP{address, net.IPv4(127, 0, 0, 1), service}, DNSNames: []string{
		"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
	}}, nil
}

// administrator writes the kubeconfig of who may do everything, and the same certificate as files.
func (c *ControlPlane) administrator(authority *pki.Authority) error {
	const user = "kubernetes-admin"
	own, err := authority.Pair()
	if err != nil {
		return err
	}
	pair, err := authority.Issue(pki.Certificate{User: user, Groups: []string{administrators}})
	if err != nil {
		return err
	}
	if err := pair.Write(c.pki("admin")); err != nil {
		return err
	}
	kubeconfig, err := pki.Kubeconfig(c.Name, c.URL(), own.Certificate, user, pair)
	if err != nil {
		return err
	}
	return pki.WriteFile(c.KubeconfigFile(), kubeconfig)
}

func newAuthority(file, name string) (*pki.Authority, error) {
	authority, err := pki.NewAuthority(name)
	if err != nil {
		return nil, err
	}
	pair, err := authority.Pair()
	if err != nil {
		return nil, err
	}
	return authority, pair.Write(file)
}
