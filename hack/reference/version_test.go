package main

import (
	"bytes"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	kubectlvc "github.com/superpool/superpool/cmd/kubectl-vc/app"
	syncer "github.com/superpool/superpool/cmd/syncer/app"
	vcmanager "github.com/superpool/superpool/cmd/vc-manager/app"
	vcscheduler "github.com/superpool/superpool/cmd/vc-scheduler/app"
	vnagent "github.com/superpool/superpool/cmd/vn-agent/app"
	"github.com/superpool/superpool/internal/version"
)

// TestVersion: every program prints the version that the linker gave it, and -v is not a short form of that.
func TestVersion(t *testing.T) {
	t.Parallel()
	syncerCommand, err := syncer.NewCommand()
	require.NoError(t, err)
	commands := []*cobra.Command{syncerCommand, vcmanager.NewCommand(), vcscheduler.NewCommand(), vnagent.NewCommand(), kubectlvc.NewCommand(genericiooptions.IOStreams{})}
	for _, command := range commands {
		out := &bytes.Buffer{}
		command.SetOut(out)
		command.SetArgs([]string{"--version"})
		require.NoError(t, command.ExecuteContext(t.Context()))
		require.Equal(t, command.DisplayName()+" version "+version.String()+"\n", out.String())
		require.Empty(t, command.Flags().Lookup("version").Shorthand, command.Name())
	}
}
