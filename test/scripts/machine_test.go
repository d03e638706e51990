package scripts_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/superpool/superpool/test/controlplane"
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

// copied copies a script of the repository to the same place in a folder of its own, and returns that folder.
func copied(t *testing.T, script string) string {
	t.Helper()
	root, err := controlplane.Root()
	require.NoError(t, err)
	content, err := os.ReadFile(filepath.Join(root, script))
	require.NoError(t, err)
	folder := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(folder, filepath.Dir(script)), 0o755)) //nolint:gosec // a checkout
	require.NoError(t, os.WriteFile(filepath.Join(folder, script), content, 0o755))     //nolint:gosec // it is run
	return folder
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

func TestBuildPlan(t *testing.T) {
	t.Parallel()
	const (
		etcd = `cd hack/tools && ../gobuild.sh "etcd" go build -o bin/etcd` + "\n"
		kwok = `cd hack/tools && GOBIN="bin" ../gobuild.sh "kwok v0.7.0" go install` + "\n"
		kube = `cd hack/tools && ../gobuild.sh "kube-apiserver v1.34.10" go build` + "\n"
		ours = `hack/gobuild.sh "syncer vc-scheduler" go build` + "\n"
		test = `../../gobuild.sh "conformance tests" go build` + "\n"
	)
	for _, tc := range []struct{ name, plan, want string }{
		{name: "nothing to build", plan: "mkdir -p bin\n"},
		{name: "our programs are there", plan: ours},
		{
			name: "tools", plan: etcd + kwok + kube + ours,
			want: "make demo builds 3 programs into bin/, once: etcd kwok kube-apiserver\nOn two cores this takes about 5 min and the downloads;",
		},
		{name: "conformance", plan: test, want: "make demo builds 1 program into bin/, once: e2e.test\n"},
		{name: "a small one", plan: etcd, want: "less than a minute and the downloads"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			folder := copied(t, "hack/build-plan.sh")
			require.NoError(t, os.Mkdir(filepath.Join(folder, "bin"), 0o700))
			for _, program := range []string{"syncer", "vc-scheduler"} {
				require.NoError(t, os.WriteFile(filepath.Join(folder, "bin", program), nil, 0o700)) //nolint:gosec // a program
			}
			output, err := bash(t, `"$FOLDER/hack/build-plan.sh" demo <<<"$PLAN"`, "FOLDER="+folder, "PLAN="+tc.plan)
			require.NoError(t, err, output)
			if tc.want == "" {
				require.Empty(t, output)
			}
			require.Contains(t, output, tc.want)
		})
	}
}

// TestEveryProgramHasATime compares what the Makefile builds with the times of build-plan.sh.
func TestEveryProgramHasATime(t *testing.T) {
	t.Parallel()
	output, err := bash(t, `all() { make --no-print-directory -n -B "$@" | sed -nE 's/.*gobuild\.sh "([^"]*)".*/\1/p'; }
all tools build realnodes-images | sed 's/ v[0-9.]*$//' | tr ' ' '\n' | sort -u | while read -r name; do
  grep -qF "[$name]=" hack/build-plan.sh || echo "no time for $name"
done`)
	require.NoError(t, err, output)
	require.Empty(t, output)
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
