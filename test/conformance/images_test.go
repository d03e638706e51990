package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

const dnsTest = "[sig-network] DNS should provide DNS for pods for Subdomain [Conformance]"

func TestReadLacks(t *testing.T) {
	tests := []string{plainTest, dnsTest}
	for _, tc := range []struct {
		name, content string
		want          []lack
		wantError     string
	}{
		{name: "nothing is missing"},
		{
			name:    "a program that tests call",
			content: "dig bind9-dnsutils images DNS should (provide|resolve)\n",
			want:    []lack{{Program: "dig", Package: "bind9-dnsutils", Tests: []string{dnsTest}}},
		},
		{
			name:    "two programs, one of which no test of this run calls",
			content: "wget wget images PreStop\nbusybox busybox-static images \\[sig-(node|network)\\]\n",
			want:    []lack{{Program: "busybox", Package: "busybox-static", Tests: tests}},
		},
		{name: "a row that is cut off", content: "dig bind9-dnsutils\n", wantError: "fewer than four fields"},
		{name: "not an expression", content: "dig bind9-dnsutils images (\n", wantError: "missing closing"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "missing")
			require.NoError(t, os.WriteFile(path, []byte(tc.content), 0o600))
			got, err := readLacks(path, tests)
			if tc.wantError != "" {
				require.ErrorContains(t, err, tc.wantError)
				return
			}
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(tc.want, got))
		})
	}
	t.Run("images of another checkout", func(t *testing.T) {
		got, err := readLacks(filepath.Join(t.TempDir(), "missing"), tests)
		require.NoError(t, err)
		require.Empty(t, got)
	})
	t.Run("a file that cannot be read", func(t *testing.T) {
		_, err := readLacks(t.TempDir(), tests)
		require.ErrorContains(t, err, "reading what the images lack")
	})
}

// TestRowsOfPackagesAreRead reads all of the table that images.sh writes rows of.
func TestRowsOfPackagesAreRead(t *testing.T) {
	table := filepath.Join("..", "..", "hack", "lib", "packages.sh")
	_, err := os.ReadFile(table) // the cached result of this test rests on it
	require.NoError(t, err)
	rows, err := exec.CommandContext(t.Context(), "bash", "-c", `source "$0"; packages | grep ' images '`, table).Output()
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "missing")
	require.NoError(t, os.WriteFile(path, rows, 0o600))
	got, err := readLacks(path, []string{dnsTest})
	require.NoError(t, err)
	programs := make([]string, 0, len(got))
	for _, lacking := range got {
		programs = append(programs, lacking.Program)
	}
	require.Empty(t, cmp.Diff([]string{"busybox", "dig", "getent"}, programs))
}

func TestLackIsPrinted(t *testing.T) {
	require.Equal(t, "the images lack dig (apt-get install bind9-dnsutils, then make realnodes): 1 tests can fail for it\n  "+dnsTest+"\n",
		lack{Program: "dig", Package: "bind9-dnsutils", Tests: []string{dnsTest}}.String())
	require.Equal(t, 1, strings.Count(lack{Tests: make([]string, 21)}.String(), "\n"), "many tests are counted only")
}

// TestReportListsWhatTheImagesLack prints before the first test and writes into the report.
func TestReportListsWhatTheImagesLack(t *testing.T) {
	folder := t.TempDir()
	missing := filepath.Join(folder, "missing")
	require.NoError(t, os.WriteFile(missing, []byte("dig bind9-dnsutils images DNS should\n"), 0o600))
	results, err := openStore(filepath.Join(folder, "out"))
	require.NoError(t, err)
	out := &strings.Builder{}
	require.NoError(t, results.readLacks(missing, []string{dnsTest}, out))
	require.Contains(t, out.String(), "the images lack dig")
	_, err = results.report()
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(folder, "out", reportFile))
	require.NoError(t, err)
	require.Contains(t, string(text), "## What the images lack\n")
	require.Contains(t, string(text), "| dig (bind9-dnsutils) | "+dnsTest+" |\n")

	require.NoError(t, results.readLacks(filepath.Join(folder, "none"), []string{dnsTest}, io.Discard))
	_, err = results.report()
	require.NoError(t, err)
	text, err = os.ReadFile(filepath.Join(folder, "out", reportFile))
	require.NoError(t, err)
	require.NotContains(t, string(text), "images lack")
}
