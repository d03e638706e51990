package launch

import (
	"cmp"
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
)

// issuer is that of all control planes: tokens are distinguished by the keys that sign them.
const issuer = "https://kubernetes.default.svc.cluster.local"

// unlimited are flags of programs whose own limit of requests a second is to be out of reach.
var unlimited = []string{"--kube-api-qps=10000", "--kube-api-burst=10000"}

// command returns the command line of a program.
func (c *ControlPlane) command(program Program) ([]string, error) {
	var arguments []string
	switch program {
	case Etcd:
		arguments = c.etcd()
	case APIServer:
		arguments = c.apiServer()
	case ControllerManager:
		arguments = c.controllerManager()
	case Scheduler:
		arguments = c.scheduler()
	default:
		return nil, fmt.Errorf("%s is no program of a control plane", program)
	}
	return append([]string{filepath.Join(c.Bin, string(program))}, arguments...), nil
}

// etcd does without fsync: what a killed process wrote is kept, and a machine that loses power loses its tests and beds
// anyway.
func (c *ControlPlane) etcd() []string {
	client, peer := c.etcdURL(c.Ports.Etcd), c.etcdURL(c.Ports.EtcdPeers)
	arguments := []string{
		"--name=" + c.Name, "--data-dir=" + c.DataFolder(), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=" + c.Name + "=" + peer,
	}
	if c.SharePorts {
		arguments = append(arguments, "--socket-reuse-port")
	}
	return arguments
}

func (c *ControlPlane) apiServer() []string {
	advertised, kubeletCA := cmp.Or(c.AdvertiseAddress, c.Address), c.KubeletCA
	if kubeletCA == "" {
		kubeletCA = c.pki("ca")
	}
	arguments := []string{
		"--bind-address=" + c.Address, "--advertise-address=" + advertised, "--secure-port=" + strconv.Itoa(c.Ports.APIServer),
		"--etcd-servers=" + c.etcdURL(c.Ports.Etcd), "--service-cluster-ip-range=" + c.ServiceCIDR,
		"--tls-cert-file=" + c.pki("apiserver.crt"), "--tls-private-key-file=" + c.pki("apiserver.key"), "--client-ca-file=" + c.pki("ca.crt"),
		"--service-account-issuer=" + issuer, "--service-account-key-file=" + c.pki("service-accounts.key"),
		"--service-account-signing-key-file=" + c.pki("service-accounts.key"),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
		"--kubelet-client-certificate=" + c.pki("kubelet-client.crt"), "--kubelet-client-key=" + c.pki("kubelet-client.key"),
		"--kubelet-certificate-authority=" + kubeletCA + ".crt", "--kubelet-preferred-address-types=InternalIP",
		// Aggregated API servers, as metrics-server, are reached at their pods, and know who asks from these headers.
		"--enable-aggregator-routing=true",
		"--proxy-client-cert-file=" + c.pki("front-proxy-client.crt"), "--proxy-client-key-file=" + c.pki("front-proxy-client.key"),
		"--requestheader-client-ca-file=" + c.pki("front-proxy-ca.crt"), "--requestheader-allowed-names=" + frontProxy,
		"--requestheader-extra-headers-prefix=X-Remote-Extra-", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
	}
	if address, err := netip.ParseAddr(advertised); err == nil && address.IsLoopback() {
		arguments = append(arguments, "--endpoint-reconciler-type=none") // an API server of 1.37 ends where its endpoint is none
	}
	if c.EtcdPrefix != "" {
		arguments = append(arguments, "--etcd-prefix="+c.EtcdPrefix)
	}
	if c.ServiceNodePortRange != "" {
		arguments = append(arguments, "--service-node-port-range="+c.ServiceNodePortRange)
	}
	if len(c.DisableAdmission) > 0 {
		arguments = append(arguments, "--disable-admission-plugins="+strings.Join(c.DisableAdmission, ","))
	}
	if c.Emulates != "" {
		arguments = append(arguments, "--emulated-version="+c.Emulates)
	}
	if c.Unlimited {
		arguments = append(arguments, "--enable-priority-and-fairness=false", "--max-requests-inflight=0", "--max-mutating-requests-inflight=0")
	}
	if c.SharePorts {
		arguments = append(arguments, "--permit-port-sharing")
	}
	return arguments
}

// controllerManager runs all controllers. One of each program runs, so there is nobody to elect. Autoscaling looks
// often, for who waits.
func (c *ControlPlane) controllerManager() []string {
	arguments := []string{
		"--kubeconfig=" + c.KubeconfigFile(), "--leader-elect=false", "--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(c.Ports.ControllerManager), "--use-service-account-credentials=true",
		"--root-ca-file=" + c.pki("ca.crt"), "--service-account-private-key-file=" + c.pki("service-accounts.key"),
		"--cluster-signing-cert-file=" + c.pki("ca.crt"), "--cluster-signing-key-file=" + c.pki("ca.key"),
		"--service-cluster-ip-range=" + c.ServiceCIDR,
		// A charge of a request that died in between stays until quotas are counted: five minutes by default.
		"--resource-quota-sync-period=15s",
		"--horizontal-pod-autoscaler-sync-period=5s", "--horizontal-pod-autoscaler-cpu-initialization-period=5s",
		"--horizontal-pod-autoscaler-initial-readiness-delay=5s",
	}
	if c.Unlimited {
		arguments = append(arguments, unlimited...)
	}
	if c.SharePorts {
		arguments = append(arguments, "--permit-port-sharing")
	}
	return arguments
}

func (c *ControlPlane) scheduler() []string {
	arguments := []string{
		"--kubeconfig=" + c.KubeconfigFile(), "--leader-elect=false", "--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(c.Ports.Scheduler),
	}
	if c.Unlimited {
		arguments = append(arguments, unlimited...)
	}
	if c.SharePorts {
		arguments = append(arguments, "--permit-port-sharing")
	}
	return arguments
}
