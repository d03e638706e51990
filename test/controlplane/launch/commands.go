package launch

import (
	"cmp"
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/superpool/superpool/internal/controlplane"
)

// issuer is that of all control planes: tokens are distinguished by the keys that sign them.
const issuer = "https://kubernetes.default.svc.cluster.local"

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
	server := controlplane.Server{
		Files: c.files(), Address: c.Address, Port: c.Ports.APIServer, EtcdServers: []string{c.etcdURL(c.Ports.Etcd)}, EtcdPrefix: c.EtcdPrefix,
		Issuer: issuer, ServiceCIDRs: []string{c.ServiceCIDR}, ServiceNodePortRange: c.ServiceNodePortRange, KubeletClient: controlplane.KubeletClient, KubeletCA: c.pki("ca.crt"),
	}
	if c.KubeletCA != "" {
		server.KubeletCA = c.KubeletCA + ".crt"
	}
	flags, advertised := server.Flags(), cmp.Or(c.AdvertiseAddress, c.Address)
	flags["advertise-address"] = advertised
	if address, err := netip.ParseAddr(advertised); err == nil && address.IsLoopback() {
		flags["endpoint-reconciler-type"] = "none" // an API server of 1.37 ends where its endpoint is none
	}
	if len(c.DisableAdmission) > 0 {
		flags["disable-admission-plugins"] = strings.Join(c.DisableAdmission, ",")
	}
	if c.Emulates != "" {
		flags["emulated-version"] = c.Emulates
	}
	if c.Unlimited {
		flags = flags.With(controlplane.Flags{"enable-priority-and-fairness": "false", "max-requests-inflight": "0", "max-mutating-requests-inflight": "0"})
	}
	return c.shared(flags)
}

// shared returns the arguments of a program that may listen on a port that ReservePorts holds.
func (c *ControlPlane) shared(flags controlplane.Flags) []string {
	if c.SharePorts {
		flags["permit-port-sharing"] = "true"
	}
	return flags.Args()
}

// controllerManager runs all controllers. One of each program runs, so there is nobody to elect. Autoscaling looks
// often, for who waits.
func (c *ControlPlane) controllerManager() []string {
	manager := controlplane.Manager{
		Files: c.files(), Signer: controlplane.CA, Kubeconfig: c.KubeconfigFile(), Address: "127.0.0.1", Port: c.Ports.ControllerManager, ServiceCIDRs: []string{c.ServiceCIDR},
	}
	flags := manager.Flags().With(controlplane.Flags{
		"leader-elect":                          "false",
		"horizontal-pod-autoscaler-sync-period": "5s", "horizontal-pod-autoscaler-cpu-initialization-period": "5s",
		"horizontal-pod-autoscaler-initial-readiness-delay": "5s",
	})
	return c.shared(c.unlimited(flags))
}

// unlimited takes the limit of requests a second off a program of an Unlimited control plane.
func (c *ControlPlane) unlimited(flags controlplane.Flags) controlplane.Flags {
	if !c.Unlimited {
		return flags
	}
	return flags.With(controlplane.Flags{"kube-api-qps": "10000", "kube-api-burst": "10000"})
}

func (c *ControlPlane) scheduler() []string {
	return c.shared(c.unlimited(controlplane.Flags{
		"kubeconfig": c.KubeconfigFile(), "leader-elect": "false", "bind-address": "127.0.0.1", "secure-port": strconv.Itoa(c.Ports.Scheduler),
	}))
}
