package controlplane

import (
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// The programs of a control plane.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
)

// FrontProxyUser is the user that an API server is for the aggregated API servers that it asks.
const FrontProxyUser = "front-proxy-client"

// Flags are those of a command line, without their dashes, with their values.
type Flags map[string]string

// Args returns the flags in the order of their names, so that what is equal reads equal.
func (f Flags) Args() []string {
	args := make([]string, 0, len(f))
	for _, name := range slices.Sorted(maps.Keys(f)) {
		args = append(args, "--"+name+"="+f[name])
	}
	return args
}

// With returns the flags with others added, which replace those of the same name.
func (f Flags) With(others map[string]string) Flags {
	all := maps.Clone(f)
	maps.Copy(all, others)
	return all
}

// Files is a folder of certificates and keys: NAME.crt and NAME.key for each pair.
type Files string

// Certificate returns the file of a certificate.
func (f Files) Certificate(name string) string { return filepath.Join(string(f), name+".crt") }

// Key returns the file of a private key.
func (f Files) Key(name string) string { return filepath.Join(string(f), name+".key") }

// Server is what the flags of a kube-apiserver depend on.
type Server struct {
	Files Files
	// Address and Port are where it listens.
	Address string
	Port    int
	// EtcdServers are the URLs of its etcd, and EtcdPrefix is below which its objects are there; "" is the default.
	EtcdServers []string
	EtcdPrefix  string
	// Issuer is that of the tokens of service accounts.
	Issuer string
	// ServiceCIDRs hold the addresses of Services, one for each family. ServiceNodePortRange are their node ports; "" is
	// the default.
	ServiceCIDRs         []string
	ServiceNodePortRange string
	// KubeletClient is the pair that it shows to kubelets, "" for none, and KubeletCA the file of the authority of their
	// serving certificates.
	KubeletClient, KubeletCA string
}

// Flags returns the flags that each kube-apiserver has, wherever it runs.
func (s *Server) Flags() Flags {
	flags := Flags{
		"bind-address": s.Address, "secure-port": strconv.Itoa(s.Port), "etcd-servers": strings.Join(s.EtcdServers, ","),
		"service-cluster-ip-range": strings.Join(s.ServiceCIDRs, ","),
		"tls-cert-file":            s.Files.Certificate("apiserver"), "tls-private-key-file": s.Files.Key("apiserver"), "client-ca-file": s.Files.Certificate("ca"),
		"service-account-issuer": s.Issuer, "service-account-key-file": s.Files.Certificate("service-accounts"),
		"service-account-signing-key-file": s.Files.Key("service-accounts"),
		"authorization-mode":               "Node,RBAC", "enable-admission-plugins": "NodeRestriction", "allow-privileged": "true",
		"kubelet-certificate-authority": s.KubeletCA, "kubelet-preferred-address-types": "InternalIP",
		// Aggregated API servers, as metrics-server, are reached at their pods, and know who asks from these headers.
		"enable-aggregator-routing": "true",
		"proxy-client-cert-file":    s.Files.Certificate("front-proxy-client"), "proxy-client-key-file": s.Files.Key("front-proxy-client"),
		"requestheader-client-ca-file": s.Files.Certificate("front-proxy-ca"), "requestheader-allowed-names": FrontProxyUser,
		"requestheader-extra-headers-prefix": "X-Remote-Extra-", "requestheader-group-headers": "X-Remote-Group",
		"requestheader-username-headers": "X-Remote-User",
	}
	if s.KubeletClient != "" {
		flags["kubelet-client-certificate"], flags["kubelet-client-key"] = s.Files.Certificate(s.KubeletClient), s.Files.Key(s.KubeletClient)
	}
	if s.EtcdPrefix != "" {
		flags["etcd-prefix"] = s.EtcdPrefix
	}
	if s.ServiceNodePortRange != "" {
		flags["service-node-port-range"] = s.ServiceNodePortRange
	}
	return flags
}

// Manager is what the flags of a kube-controller-manager depend on.
type Manager struct {
	Files Files
	// Signer is the pair that signs what users of the control plane ask for.
	Signer string
	// Kubeconfig is the file of its kubeconfig.
	Kubeconfig string
	// Address and Port are where it serves its health.
	Address      string
	Port         int
	ServiceCIDRs []string
}

// Flags returns the flags that each kube-controller-manager has, wherever it runs.
func (m *Manager) Flags() Flags {
	return Flags{
		"kubeconfig": m.Kubeconfig, "bind-address": m.Address, "secure-port": strconv.Itoa(m.Port), "use-service-account-credentials": "true",
		"root-ca-file": m.Files.Certificate("ca"), "service-account-private-key-file": m.Files.Key("service-accounts"),
		"cluster-signing-cert-file": m.Files.Certificate(m.Signer), "cluster-signing-key-file": m.Files.Key(m.Signer),
		"service-cluster-ip-range": strings.Join(m.ServiceCIDRs, ","),
		// A charge of a request that died in between stays until quotas are counted: five minutes by default.
		"resource-quota-sync-period": "15s",
	}
}
