package pool

import (
	"os"
	"path/filepath"
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

	super.Kwok = &Program{Name: "kwok-r1", command: []string{"sleep", "60"}}
	require.NoError(t, p.Launch(super.Kwok))
	require.NoError(t, p.Ended())
	super.Kwok.Process.Kill()
	require.ErrorContains(t, p.Ended(), "kwok-r1 ended: --- sleep 60")

	p.StopSuper(super)
	require.NoError(t, p.Ended())
	require.NoError(t, p.Launch(super.Kwok))
	super.Kwok.Process.Kill()
	require.ErrorContains(t, p.Ended(), "kwok-r1 ended")

	require.NoError(t, p.Stop())
	log, err := os.ReadFile(filepath.Join(kept, "kwok-r1.log"))
	require.NoError(t, err)
	require.Empty(t, cmp.Diff("--- sleep 60\n--- sleep 60\n", string(log)))
	require.NoDirExists(t, p.Folder)
}
