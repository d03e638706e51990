package scripts_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// programs makes a folder of scripts that take the place of programs, and returns a PATH that begins with it.
func programs(t *testing.T, scripts map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for name, script := range scripts {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/bash\n"+script), 0o755)) //nolint:gosec // they are run
	}
	return "PATH=" + folder + string(os.PathListSeparator) + os.Getenv("PATH")
}

func TestModuleDir(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for _, tc := range []struct {
		name, fake string
		want       string
		fails      bool
	}{
		{name: "downloaded", fake: `printf '{\n\t"Path": "m",\n\t"Dir": "` + folder + `",\n\t"Sum": "h1:"\n}\n'`, want: folder + "\n"},
		{
			name: "the environment's flags are not read", want: folder + "\n",
			fake: `printf '{\n\t"Dir": "%s"\n}\n' "$GOFLAGS` + folder + `"`,
		},
		{
			name: "the proxy does not answer", fails: true,
			fake: `printf '{\n\t"Path": "m",\n\t"Error": "no route to host"\n}\n'; exit 1`, want: "the module m cannot be downloaded: no route to host\n",
		},
		{
			name: "go names a folder that is not there", fails: true,
			fake: `printf '{\n\t"Dir": ""\n}\n'`, want: "the module m: go mod download names no folder of its files, but \"\"\n",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			output, err := bash(t, `source hack/lib/module.sh; module_dir . m`, programs(t, map[string]string{"go": tc.fake}), "GOFLAGS=-mod=vendor")
			require.Equal(t, tc.fails, err != nil, output)
			require.Equal(t, tc.want, output)
		})
	}
}

func TestCheckNamesWhatImagesLack(t *testing.T) {
	t.Parallel()
	const lacksDig = `command() { [[ $2 != dig ]] && builtin command "$@"; }; export -f command; `
	output, err := bash(t, `hack/realnodes/check.sh --packages`)
	require.NoError(t, err, output)
	require.Subset(t, strings.Fields(output), []string{"containerd", "containernetworking-plugins", "bind9-dnsutils", "netcat-openbsd", "busybox-static", "wget"})

	output, err = bash(t, lacksDig+`source hack/lib/packages.sh; cni_bin() { :; }; missing_programs images | grep '^dig '; has_program cni-plugins || echo none`)
	require.NoError(t, err, output)
	require.Equal(t, "dig bind9-dnsutils images \\[sig-network\\] DNS should (provide DNS|resolve DNS|support configurable)\nnone\n", output)

	// Whether a bed could start here is another question.
	output, _ = bash(t, lacksDig+`hack/realnodes/check.sh`)
	require.Contains(t, output, "realnodes: without dig (apt-get install bind9-dnsutils) the images of tests lack it, and these conformance tests can fail: ")

	// up.sh checks the machine again, after make realnodes-images has printed these lines.
	output, _ = bash(t, lacksDig+`hack/realnodes/check.sh --bed`)
	require.NotContains(t, output, "the images of tests lack it")
	up, err := os.ReadFile("../../hack/realnodes/up.sh")
	require.NoError(t, err)
	require.Contains(t, string(up), `"$HERE/check.sh" --bed`)
}
