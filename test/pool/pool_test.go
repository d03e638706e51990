package pool

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/superpool/superpool/test/controlplane"
)

// TestEnded lets a kwok end by itself, and with its super cluster.
func TestEnded(t *testing.T) {
	t.Parallel()
	kept := filepath.Join(t.TempDir(), "logs")
	p, err := New(Options{Folder: t.TempDir(), Keep: kept})
	require.NoError(t, err)
	super := &Cluster{ControlPlane: &controlplane.ControlPlane{}, Name: "r1"}
	p.Supers = []*Cluster{super}
	require.NoError(t, p.Ended(), "before it has joined")

	sleep, err := exec.LookPath("sleep")
	require.NoError(t, err)
	super.Kwok = p.prepare("kwok-r1", sleep, "60")
	require.NoError(t, p.Launch(super.Kwok))
	require.NoError(t, p.Ended())
	super.Kwok.Process.Kill()
	require.ErrorContains(t, p.Ended(), "kwok-r1 ended: --- "+p.Folder+"/kwok-r1 60")

	p.StopSuper(super)
	require.NoError(t, p.Ended())
	require.NoError(t, p.Launch(super.Kwok))
	super.Kwok.Process.Kill()
	require.ErrorContains(t, p.Ended(), "kwok-r1 ended")

	require.NoError(t, p.Stop())
	log, err := os.ReadFile(filepath.Join(kept, "kwok-r1.log"))
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(strings.Repeat("--- "+p.Folder+"/kwok-r1 60\n", 2), string(log)))
	require.NoDirExists(t, p.Folder)
}
