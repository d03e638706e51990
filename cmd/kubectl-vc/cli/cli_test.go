package cli

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/superpool/superpool/internal/page"
)

// TestSuperCluster: a super cluster is named as a person does it, or as kubectl prints it.
func TestSuperCluster(t *testing.T) {
	t.Parallel()
	for argument, want := range map[string]string{"r1": "r1", "node/r1": "r1", "nodes/r1": "r1", "no/r1": "r1"} {
		name, err := SuperCluster(argument)
		require.NoError(t, err)
		require.Equal(t, want, name)
	}
	for _, argument := range []string{"", "node/", "/r1", "pod/r1", "node/r1/r2"} {
		_, err := SuperCluster(argument)
		require.ErrorContains(t, err, "names no super cluster: give r1 or node/r1", argument)
	}
}

// TestDoing: what takes longer than two seconds is said once, and all else is silent.
func TestDoing(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration]string{0: "", patience - 1: "", patience + 1: "counting ...\n", time.Hour: "counting ...\n"} {
		synctest.Test(t, func(t *testing.T) {
			var told bytes.Buffer
			c, failed := New(genericiooptions.IOStreams{ErrOut: &told}), errors.New("no")
			require.Equal(t, failed, c.Doing("counting", func() error {
				<-time.After(took)
				return failed
			}))
			require.Equal(t, want, told.String(), took)
		})
	}
}

// TestOutput: a verb has the formats that it names, and a table by that name, too.
func TestOutput(t *testing.T) {
	t.Parallel()
	for argument, want := range map[string]string{"": "A\n", "table": "A\n", "json": "1\n", "yaml": "1\n"} {
		var out bytes.Buffer
		var format Output
		c, command := New(genericiooptions.IOStreams{Out: &out}), &cobra.Command{}
		format.AddTo(command, OutputJSON, OutputYAML)
		if argument != "" {
			require.NoError(t, command.Flags().Set("output", argument))
		}
		require.EqualError(t, command.Flags().Set("output", "wide"), `invalid argument "wide" for "-o, --output" flag: give one of json, yaml`)
		require.NoError(t, c.Show(format, 1, nil, func(p *page.Page) { p.Line("A") }))
		require.Equal(t, want, out.String(), argument)
	}
}

// TestWriteFile: a file has its name when it is whole. One that is there stays, and one that fails leaves nothing.
func TestWriteFile(t *testing.T) {
	t.Parallel()
	c, path := New(genericiooptions.IOStreams{}), filepath.Join(t.TempDir(), "f")
	failed := errors.New("no")
	writes := func(err error) error {
		return c.WriteFile(path, "a text", func(out io.Writer) error {
			require.NoFileExists(t, path)
			_, writing := io.WriteString(out, "whole")
			return errors.Join(writing, err)
		})
	}
	require.ErrorIs(t, writes(failed), failed)
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Empty(t, entries)
	require.NoError(t, writes(nil))
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "whole", string(content))
	require.NoFileExists(t, path+".part")
	require.EqualError(t, writes(nil), path+" is there: name another file, or remove it")
	require.NoError(t, os.Rename(path, path+".part"))
	require.EqualError(t, writes(nil), path+".part is there: name another file, or remove it", "of a run that was killed")
}
