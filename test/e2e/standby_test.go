//go:build e2e

package e2e_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// takeover bounds the time from the kill of the leaders to a running pod: another leads within 7 s, and the rest is for
// a busy machine.
const takeover = 90 * time.Second

// workload is a namespace with a quota, and a pod within it.
const workload = `{"apiVersion": "v1", "kind": "List", "items": [
  {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "standby", "annotations": {"scheduler.tenancy.x-k8s.io/slice": "{\"cpu\":\"100m\"}"}}},
  {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"namespace": "standby", "name": "quota"}, "spec": {"hard": {"cpu": "100m"}}},
  {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": "standby", "name": "pod"}},
  {"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "standby", "name": "pod"}, "spec": {"serviceAccountName": "pod", "automountServiceAccountToken": false,
    "containers": [{"name": "c", "image": "image", "resources": {"requests": {"cpu": "100m"}}}]}}]}`

// standby replaces the demo's programs by two replicas of each, kills the leaders, and checks that a pod then runs by
// the other replicas.
func standby(t *testing.T, dir string) {
	flags := map[string][]string{
		"vc-scheduler": {"--kubeconfig", filepath.Join(dir, "vc-scheduler.kubeconfig")},
		"syncer-r1":    {"--super-cluster-kubeconfig", filepath.Join(dir, "cluster_r1", "syncer.kubeconfig")},
		"syncer-r2":    {"--super-cluster-kubeconfig", filepath.Join(dir, "cluster_r2", "syncer.kubeconfig")},
	}
	// The Leases of syncers end with a hash of the super cluster's UID.
	leases := map[string]string{"vc-scheduler": "vc-scheduler", "syncer-r1": "r1-syncer-", "syncer-r2": "r2-syncer-"}
	holder := func(name string) string {
		output, err := kubectl(t, dir, "meta", "", "get", "lease", "-n", "vc-manager", "-o", `jsonpath={range .items[*]}{.metadata.name}{"="}{.spec.holderIdentity}{"\n"}{end}`)
		require.NoError(t, err, output)
		for line := range strings.Lines(output) {
			if lease, identity, _ := strings.Cut(strings.TrimSpace(line), "="); strings.HasPrefix(lease, leases[name]) {
				return identity
			}
		}
		return ""
	}
	start := func(name string) *exec.Cmd {
		program := strings.SplitN(name, "-r", 2)[0]
		args := append(flags[name], "--leader-elect", "--metrics-bind-address=0", "--health-probe-bind-address=0", "-v=2")
		if program == "syncer" {
			args = append(args, "--meta-kubeconfig", filepath.Join(dir, "vc-"+name+".kubeconfig"), "--feature-gates=SuperClusterPooling=true")
		}
		command := exec.CommandContext(t.Context(), filepath.Join(root(t), "bin", program), args...)
		var log bytes.Buffer
		command.Stdout, command.Stderr = &log, &log
		require.NoError(t, command.Start())
		t.Cleanup(func() {
			_ = command.Process.Kill()
			_ = command.Wait()
			if t.Failed() {
				t.Logf("end of %s:\n%s", name, log.Bytes()[max(0, log.Len()-8<<10):])
			}
		})
		return command
	}

	leaders, first := map[string]*exec.Cmd{}, map[string]string{}
	for name := range flags {
		killByPID(t, filepath.Join(dir, "pids", name))
		leaders[name] = start(name)
	}
	for name := range flags {
		require.Eventually(t, func() bool { first[name] = holder(name); return first[name] != "" }, takeover, 200*time.Millisecond, "%s has a leader", name)
		start(name)
	}
	for name, leader := range leaders {
		require.NoError(t, leader.Process.Kill(), name)
	}
	killed := time.Now()
	output, err := kubectl(t, dir, "vc-sample-1", workload, "apply", "-f", "-")
	require.NoError(t, err, output)
	output, err = kubectl(t, dir, "vc-sample-1", "", "wait", "-n", "standby", "pod/pod", "--for=jsonpath={.status.phase}=Running", "--timeout", takeover.String())
	require.NoError(t, err, output)
	t.Logf("the pod runs %s after the leaders were killed", time.Since(killed).Round(time.Second))
	// The pod runs in one super cluster: the standby of the other's syncer may become leader later.
	for name := range flags {
		require.Eventually(t, func() bool { now := holder(name); return now != "" && now != first[name] }, takeover, 200*time.Millisecond,
			"another replica of %s leads", name)
	}
}

// killByPID kills the process of a pid file.
func killByPID(t *testing.T, file string) {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	output, err := exec.CommandContext(t.Context(), "kill", "-KILL", strings.TrimSpace(string(content))).CombinedOutput()
	require.NoError(t, err, "%s", output)
	require.NoError(t, os.Remove(file))
}

// kubectl runs kubectl against a control plane of the demo.
func kubectl(t *testing.T, dir, cluster, stdin string, args ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(root(t), "bin", "kubectl"), append([]string{"--kubeconfig", filepath.Join(dir, cluster+".kubeconfig")}, args...)...)
	command.Stdin = strings.NewReader(stdin)
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	output, err := command.CombinedOutput()
	return string(output), err
}
