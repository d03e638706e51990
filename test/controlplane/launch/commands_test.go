package launch

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

// sample is a control plane of a bed.
func sample() *ControlPlane {
	return &ControlPlane{
		Name: "r1", Folder: "/bed", Bin: "/bin", Address: "10.213.0.1", Ports: PortsFrom(21005), ServiceCIDR: "10.96.0.0/12",
	}
}

// flags returns the values of a command line's flags, "" for those without.
func flags(t *testing.T, c *ControlPlane, program Program) map[string]string {
	t.Helper()
	command, err := c.command(program)
	require.NoError(t, err)
	require.Equal(t, "/bin/"+string(program), command[0])
	values := map[string]string{}
	for _, argument := range command[1:] {
		name, value, _ := strings.Cut(argument, "=")
		require.True(t, strings.HasPrefix(name, "--"), argument)
		require.NotContains(t, values, name, "said twice")
		values[name] = value
	}
	return values
}

func TestCommands(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change  func(*ControlPlane)
		program Program
		want    map[string]string
		without []string
	}{
		"etcd is reached from this machine alone": {program: Etcd, want: map[string]string{
			"--listen-client-urls": "http://127.0.0.1:21006", "--advertise-client-urls": "http://127.0.0.1:21006",
			"--listen-peer-urls": "http://127.0.0.1:21007", "--initial-advertise-peer-urls": "http://127.0.0.1:21007",
			"--initial-cluster": "r1=http://127.0.0.1:21007", "--data-dir": "/bed/etcd/r1", "--name": "r1",
		}, without: []string{"--socket-reuse-port"}},
		"etcd on a reserved port": {
			program: Etcd, change: func(c *ControlPlane) { c.SharePorts = true }, want: map[string]string{"--socket-reuse-port": ""},
		},
		"an API server": {program: APIServer, want: map[string]string{
			"--bind-address": "10.213.0.1", "--advertise-address": "10.213.0.1", "--secure-port": "21005", "--etcd-servers": "http://127.0.0.1:21006",
			"--service-cluster-ip-range": "10.96.0.0/12", "--client-ca-file": "/bed/pki/r1/ca.crt", "--authorization-mode": "Node,RBAC",
			"--tls-cert-file": "/bed/pki/r1/apiserver.crt", "--tls-private-key-file": "/bed/pki/r1/apiserver.key",
			"--kubelet-client-certificate": "/bed/pki/r1/kubelet-client.crt", "--kubelet-client-key": "/bed/pki/r1/kubelet-client.key",
			"--enable-admission-plugins": "NodeRestriction", "--requestheader-allowed-names": "front-proxy-client",
		}, without: []string{"--disable-admission-plugins", "--permit-port-sharing", "--service-node-port-range", "--etcd-prefix", "--endpoint-reconciler-type"}},
		"an API server that only this machine reaches": {
			program: APIServer, change: func(c *ControlPlane) { c.Address = "127.0.0.1" }, want: map[string]string{"--endpoint-reconciler-type": "none"},
		},
		"an API server that bounds nothing": {
			program: APIServer, change: func(c *ControlPlane) { c.Unlimited = true },
			want: map[string]string{"--enable-priority-and-fairness": "false", "--max-requests-inflight": "0", "--max-mutating-requests-inflight": "0"},
		},
		"an API server that is an older one": {
			program: APIServer, change: func(c *ControlPlane) { c.Emulates = "1.36" }, want: map[string]string{"--emulated-version": "1.36"},
		},
		"controllers that bound nothing": {
			program: ControllerManager, change: func(c *ControlPlane) { c.Unlimited = true }, want: map[string]string{"--kube-api-qps": "10000", "--kube-api-burst": "10000"},
		},
		"a scheduler with bounds": {program: Scheduler, without: []string{"--kube-api-qps", "--kube-api-burst"}},
		"kubelets of its own CA":  {program: APIServer, want: map[string]string{"--kubelet-certificate-authority": "/bed/pki/r1/ca.crt"}},
		"kubelets of another's CA": {
			program: APIServer, change: func(c *ControlPlane) { c.KubeletCA = "/bed/pki/serving-ca" },
			want: map[string]string{"--kubelet-certificate-authority": "/bed/pki/serving-ca.crt"},
		},
		"an API server without some admission": {
			program: APIServer, change: func(c *ControlPlane) { c.DisableAdmission = []string{"ServiceAccount", "ResourceQuota"} },
			want: map[string]string{"--disable-admission-plugins": "ServiceAccount,ResourceQuota"},
		},
		"an API server with node ports of its own": {
			program: APIServer, change: func(c *ControlPlane) { c.ServiceNodePortRange = "31000-31499" },
			want: map[string]string{"--service-node-port-range": "31000-31499"},
		},
		"an API server in the etcd of another": {
			program: APIServer, change: func(c *ControlPlane) { c.EtcdPrefix = "/t01" }, want: map[string]string{"--etcd-prefix": "/t01"},
		},
		"an API server on a reserved port": {
			program: APIServer, change: func(c *ControlPlane) { c.SharePorts = true }, want: map[string]string{"--permit-port-sharing": "true"},
		},
		"a controller manager": {program: ControllerManager, want: map[string]string{
			"--kubeconfig": "/bed/r1.kubeconfig", "--secure-port": "21008", "--bind-address": "127.0.0.1", "--leader-elect": "false",
			"--service-account-private-key-file": "/bed/pki/r1/service-accounts.key", "--cluster-signing-key-file": "/bed/pki/r1/ca.key",
			"--use-service-account-credentials": "true",
		}},
		"a scheduler": {program: Scheduler, want: map[string]string{
			"--kubeconfig": "/bed/r1.kubeconfig", "--secure-port": "21009", "--bind-address": "127.0.0.1", "--leader-elect": "false",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := sample()
			if tc.change != nil {
				tc.change(c)
			}
			got := flags(t, c, tc.program)
			for flag, want := range tc.want {
				require.Contains(t, got, flag)
				require.Equal(t, want, got[flag], flag)
			}
			for _, flag := range tc.without {
				require.NotContains(t, got, flag)
			}
		})
	}
}

func TestTokensAreSignedAndVerifiedByOneKey(t *testing.T) {
	t.Parallel()
	c := sample()
	server, manager := flags(t, c, APIServer), flags(t, c, ControllerManager)
	require.Equal(t, c.pki("service-accounts.crt"), server["--service-account-key-file"])
	require.Equal(t, c.pki("service-accounts.key"), server["--service-account-signing-key-file"])
	require.Equal(t, c.pki("service-accounts.key"), manager["--service-account-private-key-file"])
}

func TestUnknownProgram(t *testing.T) {
	t.Parallel()
	_, err := sample().command("kubelet")
	require.EqualError(t, err, "kubelet is no program of a control plane")
}

func TestPortsFrom(t *testing.T) {
	t.Parallel()
	require.Empty(t, cmp.Diff(Ports{APIServer: 1, Etcd: 2, EtcdPeers: 3, ControllerManager: 4, Scheduler: 5}, PortsFrom(1)))
}

// TestCommandsAreOfTheFolder shows that what looks for the processes of a folder finds each by its command line.
func TestCommandsAreOfTheFolder(t *testing.T) {
	t.Parallel()
	for _, program := range []Program{Etcd, APIServer, ControllerManager, Scheduler} {
		command, err := sample().command(program)
		require.NoError(t, err)
		require.True(t, slices.ContainsFunc(command, func(argument string) bool { return strings.Contains(argument, "/bed/") }), program)
	}
}
