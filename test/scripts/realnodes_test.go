package scripts_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTemplatesAreFilled writes all configurations of a node and its vn-agent, with a path that sed or a pattern would
// misread.
func TestTemplatesAreFilled(t *testing.T) {
	t.Parallel()
	const script = `start_in_node() { :; }; in_node() { :; }; user_kubeconfig() { :; }; image_name() { echo "image of $1"; }
		cni_bin() { echo /cni; }; kubectl() { :; }; setup_vn_agent() { :; }; act() { :; }; meta() { :; }
		mkdir -p "$PKI"; touch "$PKI"/{serving-ca.crt,vn-agent-client-ca.crt,r1-vn-agent.crt,r1-vn-agent.key}
		for id in r1 r1-2 meta; do start_containerd $id; start_kubelet $id; start_kube_proxy $id; done; deploy_vn_agent r1 node; start_manager
		for name in coredns metrics-server; do fill "tenant/$name.yaml" CLUSTER_IP=10.97.0.10 IMAGE=image CA_BUNDLE=Y2E= >"$OUT/$name.yaml"; done`
	folder := filepath.Join(t.TempDir(), `a & | \1 folder`)
	output, err := bash(t, bed+script, "REALNODES_DIR="+folder)
	require.NoError(t, err, output)
	left, files := regexp.MustCompile(`<[A-Z_]+>`), 0
	require.NoError(t, filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(file)
		if len(content) > 0 {
			files++
		}
		require.Empty(t, left.FindString(string(content)), file)
		return err
	}))
	require.Equal(t, 22, files, "containerd, its network and its registry, kubelet and kube-proxy of three nodes, vn-agent, CoreDNS twice, metrics-server, volumes, vc-manager and its ClusterVersion")
	second, err := os.ReadFile(filepath.Join(folder, "nodes", "r1-2", "kubelet.yaml"))
	require.NoError(t, err)
	require.Contains(t, string(second), "clientCAFile: "+folder+"/pki/r1/ca.crt}\n")
	require.Contains(t, string(second), "\naddress: 10.213.0.21\n")
	kubelet, err := os.ReadFile(filepath.Join(folder, "nodes", "r1", "kubelet.yaml"))
	require.NoError(t, err)
	require.Contains(t, string(kubelet), "\nresolvConf: "+folder+"/nodes/r1/resolv.conf\n")
	require.Contains(t, string(kubelet), "\naddress: 10.213.0.11\n")
}

// TestTheFirewallsRuleGoes removes the rule as often as the host's firewall has it.
func TestTheFirewallsRuleGoes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		script, want string
		fails        bool
	}{
		"there is none": {script: "rules=0"},
		"there is one":  {script: "rules=1", want: "iptables -D FORWARD -i superpool0 -o superpool0 -m comment --comment superpool -j ACCEPT\n"},
		"one of each of two starts": {
			script: "rules=2", want: "iptables -D FORWARD -i superpool0 -o superpool0 -m comment --comment superpool -j ACCEPT\n" +
				"iptables -D FORWARD -i superpool0 -o superpool0 -m comment --comment superpool -j ACCEPT\n",
		},
		"one that cannot be removed": {script: "rules=1 refused=true", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			output, err := bash(t, `source hack/realnodes/lib.sh; NODES=(); INTERFACES=$OUT; `+tc.script+`
				iptables() {
					case $1 in
						-C) ((rules > 0)) ;;
						-D) [[ -z ${refused:-} ]] || return 1; rules=$((rules - 1)); echo "iptables $*" ;;
					esac
				}
				stop_network`, "REALNODES_DIR="+filepath.Join(t.TempDir(), "bed"))
			require.Equal(t, tc.fails, err != nil, output)
			require.Equal(t, tc.want, output)
		})
	}
}

// TestRestartStartsOneProgram restarts a program of a control plane whose name has hyphens, too.
func TestRestartStartsOneProgram(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"kube-apiserver-vc-sample-1":      "controlplane start kube-apiserver --name vc-sample-1 --kubelet-client-ca\n",
		"kube-apiserver-r1":               "controlplane start kube-apiserver --name r1\n",
		"etcd-vc-sample-2":                "controlplane start etcd --name vc-sample-2 --kubelet-client-ca\n",
		"kube-controller-manager-meta":    "controlplane start kube-controller-manager --name meta\n",
		"kube-scheduler-r2":               "controlplane start kube-scheduler --name r2\n",
		"kube-scheduler-of-nobody-s-pool": "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := filepath.Join(t.TempDir(), "bed")
			output, err := bash(t, `mkdir -p "$REALNODES_DIR"/{pids,bin}; cp -r hack "$REALNODES_DIR"; echo 21000 >"$REALNODES_DIR/ports"
				for program in kube-apiserver-vc-sample-1 kube-apiserver-r1 etcd-vc-sample-2 kube-controller-manager-meta kube-scheduler-r2; do
					: >"$REALNODES_DIR/pids/$program"
				done
				cat >"$REALNODES_DIR/bin/controlplane" <<'SH'
#!/bin/bash
echo "controlplane $1 $2 $3 $4$([[ "$*" != *--kubelet-client-ca* ]] || echo " --kubelet-client-ca")"
SH
				chmod +x "$REALNODES_DIR/bin/controlplane"; "$REALNODES_DIR/hack/realnodes/restart.sh" `+name, "REALNODES_DIR="+folder)
			if want == "" {
				require.Error(t, err)
				require.Contains(t, output, name+" is none of: ")
				return
			}
			require.NoError(t, err, output)
			require.Equal(t, want+name+" runs again, process \n", output)
		})
	}
}
