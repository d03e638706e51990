package scripts_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/superpool/superpool/test/controlplane"
)

// stubKubectl answers hack/setup-supercluster.sh as a super cluster without an id does.
const stubKubectl = `#!/usr/bin/env bash
case "$*" in
  *".cluster.server}"*) echo https://192.0.2.1:6443 ;;
  *"config view"*) echo '{"server":"https://192.0.2.1:6443"}' ;;
  *"get secret"*) echo dG9rZW4= ;;
  *"apply"*"-f -") cat >/dev/null ;;
esac
`

// TestSetupSuperCluster: nobody but its owner can read what holds credentials, whatever the files of an earlier run
// were like.
func TestSetupSuperCluster(t *testing.T) {
	t.Parallel()
	root, err := controlplane.Root()
	require.NoError(t, err)
	script, err := os.ReadFile(filepath.Join(root, "hack", "setup-supercluster.sh"))
	require.NoError(t, err)
	dir := t.TempDir()
	made := filepath.Join(dir, "out", "cluster_r1")
	for name, content := range map[string]string{
		"hack/setup-supercluster.sh": string(script), "bin/kubectl": stubKubectl, "admin.kubeconfig": "",
		"out/cluster_r1/syncer.kubeconfig": "", "out/cluster_r1/secret-for-scheduler.yaml": "", "out/cluster_r1/kustomization.yaml": "mine",
	} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o755))
	}
	output, err := exec.CommandContext(t.Context(), filepath.Join(dir, "hack", "setup-supercluster.sh"),
		"r1", "--kubeconfig", filepath.Join(dir, "admin.kubeconfig"), "--out", filepath.Join(dir, "out")).CombinedOutput()
	require.NoError(t, err, "%s", output)
	for _, name := range []string{"scheduler.kubeconfig", "syncer.kubeconfig", "secret-for-scheduler.yaml", "secret-for-vc-syncer.yaml"} {
		info, err := os.Stat(filepath.Join(made, name))
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o600), info.Mode().Perm(), name)
		require.NotZero(t, info.Size(), name)
	}
	mine, err := os.ReadFile(filepath.Join(made, "kustomization.yaml"))
	require.NoError(t, err)
	require.Equal(t, "mine", string(mine), "a file that the script does not write stays")
}
