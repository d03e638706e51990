// Package scripts_test runs single functions of the scripts in hack/ in folders of their own, without control planes.
package scripts_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/superpool/superpool/test/controlplane"
)

// A bed that may run on this machine is no business of these tests: what bed looks for has other names.
const (
	pool = `source hack/lib/pool.sh; `
	bed  = `source hack/realnodes/lib.sh; BRIDGE=superpool-test; netns() { echo superpool-test; }; cgroup() { echo /superpool-test; }
		bed_cgroups() { :; }; bed_rules() { :; }; `
)

// bash runs a script in the root of the repository as hack/'s scripts run, and returns what it prints on both streams.
func bash(t *testing.T, script string, environment ...string) (string, error) {
	t.Helper()
	root, err := controlplane.Root()
	require.NoError(t, err)
	// What a test reads is what its cached result rests on.
	for _, scripts := range []string{"hack/*.sh", "hack/*/*.sh", "hack/*/*/*.sh", "hack/realnodes/node/*", "hack/realnodes/tenant/*"} {
		files, err := filepath.Glob(filepath.Join(root, scripts))
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			_, err := os.ReadFile(file)
			require.NoError(t, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, "bash", "-c", "set -euo pipefail; "+script)
	command.Dir = root
	command.Env = append(os.Environ(), environment...)
	command.WaitDelay = time.Second
	output, err := command.CombinedOutput()
	return string(output), err
}

// TestBinOf: each control plane of the demo has the version that is named for what it is.
func TestBinOf(t *testing.T) {
	t.Parallel()
	for versions, want := range map[string]string{
		"":                                "meta= r1= r2= vc-sample-1=",
		"tenant=1.35":                     "meta= r1= r2= vc-sample-1=/1.35",
		"super=1.36 meta=1.35":            "meta=/1.35 r1=/1.36 r2=/1.36 vc-sample-1=",
		"meta=1.37 super=1.37 tenant=1.3": "meta=/1.37 r1=/1.37 r2=/1.37 vc-sample-1=/1.3",
	} {
		output, err := bash(t, pool+`for name in "${CLUSTERS[@]}"; do bin=$(bin_of "$name"); echo "$name=${bin#"$BIN"}"; done | xargs`, "CONTROL_PLANES="+versions)
		require.NoError(t, err, output)
		require.Equal(t, want+"\n", output)
	}
}

// TestOnlyFoldersOfAPoolAreRemoved names folders to scripts that remove all in them.
func TestOnlyFoldersOfAPoolAreRemoved(t *testing.T) {
	t.Parallel()
	for _, stop := range []struct{ name, variable, script string }{
		{name: "demo", variable: "DEMO_DIR", script: pool + "stop_pool"},
		{name: "real nodes", variable: "REALNODES_DIR", script: bed + "stop_bed"},
	} {
		for _, tc := range []struct {
			name  string
			files []string
			kept  bool
		}{
			{name: "somebody's", files: []string{"thesis.txt"}, kept: true},
			{name: "somebody's, hidden", files: []string{".ssh/id"}, kept: true},
			{name: "of a pool", files: []string{"pids/vc-scheduler", "logs/vc-scheduler.log"}},
			{name: "of a pool that was killed at its start", files: []string{"pids/"}},
			{name: "empty"},
		} {
			t.Run(stop.name+", "+tc.name, func(t *testing.T) {
				t.Parallel()
				folder := filepath.Join(t.TempDir(), "a folder")
				require.NoError(t, os.Mkdir(folder, 0o700))
				for _, file := range tc.files {
					require.NoError(t, os.MkdirAll(filepath.Join(folder, filepath.Dir(file)), 0o700))
					if name := filepath.Join(folder, file); file[len(file)-1] != '/' {
						require.NoError(t, os.WriteFile(name, nil, 0o600))
					}
				}
				output, err := bash(t, stop.script, fmt.Sprintf("%s=%s", stop.variable, folder))
				if !tc.kept {
					require.NoError(t, err, output)
					require.NoDirExists(t, folder)
					return
				}
				require.Error(t, err)
				require.Contains(t, output, folder+" holds files that are not of a pool")
				for _, file := range tc.files {
					require.FileExists(t, filepath.Join(folder, file))
				}
			})
		}
	}
}

// TestWhatHasNoPIDFileIsEnded starts programs of bin/ and what starts them, and kills the start before it says so.
func TestWhatHasNoPIDFileIsEnded(t *testing.T) {
	t.Parallel()
	const (
		starting = `mkdir -p "$OUT"/{pids,logs}; exec 9>"$OUT/start"; (for _ in {1..100}; do sleep 0.1; done) & left=$!; exec 9>&-; `
		linked   = `mkdir -p "$REALNODES_DIR-real"; cp -r hack "$REALNODES_DIR-real"; ln -s "$REALNODES_DIR-real" "$REALNODES_DIR"; cd "$REALNODES_DIR"; unset REALNODES_DIR DEMO_DIR; `
		inBin    = `mkdir -p "$BIN" "$OUT"/{pids,logs}; cp "$(command -v tail)" "$BIN/etcd"; : >"$OUT/pids/etcd"; "$BIN/etcd" -f "$OUT/pids/etcd" >/dev/null 2>&1 & left=$!; `
		program  = `BIN=$OUT-bin; ` + inBin
		foreign  = `sleep 30 & kept=$!; `
		ended    = `; wait "$left" || code=$?; kill "$kept"; echo "ended by ${code:-nothing}"`
	)
	for name, script := range map[string]string{
		"a program of the demo":                                 pool + foreign + program + "stop_pool" + ended,
		"a program of the demo, by a script that has failed":    pool + foreign + program + "(trap stop_pool EXIT; exit 1) || true" + ended,
		"a program of the bed":                                  bed + foreign + program + "stop_bed" + ended,
		"a program of the demo, its checkout reached by a link": linked + pool + foreign + inBin + "stop_pool" + ended + `; rm "$PWD"`,
		"a program of the bed, its checkout reached by a link":  linked + bed + foreign + inBin + "stop_bed" + ended + `; rm "$PWD"`,
		"a part of the bed's start":                             bed + foreign + starting + "stop_bed" + ended,
		"a part of a start, its folder gone":                    bed + foreign + starting + `rm -r "$OUT"; stop_bed` + ended,
		"a part of a start, with a new start":                   bed + foreign + starting + `rm -r "$OUT"; mkdir -p "$OUT/pids"; stop_bed` + ended,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := filepath.Join(t.TempDir(), "a folder")
			output, err := bash(t, script, "DEMO_DIR="+folder, "REALNODES_DIR="+folder)
			require.NoError(t, err, output)
			require.Contains(t, output, "ended by 137")
			require.NoDirExists(t, folder)
		})
	}
}

// TestAnotherBedIsLeftAlone lets the bridge of the bed say whose it is.
func TestAnotherBedIsLeftAlone(t *testing.T) {
	t.Parallel()
	const of = `INTERFACES=$OUT-interfaces; mkdir -p "$INTERFACES/$BRIDGE" "$OUT/pids" "$OUT-other"; bed_processes() { :; }; ip() { echo "ip $*"; }; `
	for _, tc := range []struct {
		name, owner string
		kept        bool
	}{
		{name: "another's", owner: "$OUT-other", kept: true},
		{name: "another's whose folder is gone", owner: "$OUT-gone"},
		{name: "this one", owner: "$OUT"},
		{name: "nobody's", owner: ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			folder := filepath.Join(t.TempDir(), "a folder")
			output, err := bash(t, bed+of+fmt.Sprintf(`echo "%s" >"$INTERFACES/$BRIDGE/ifalias"; stop_bed`, tc.owner), "REALNODES_DIR="+folder)
			if tc.kept {
				require.Error(t, err)
				require.Equal(t, fmt.Sprintf("the bed of %s-other runs on this machine: make realnodes-down takes it down where it was started\n", folder), output)
				require.DirExists(t, filepath.Join(folder, "pids"))
				return
			}
			require.NoError(t, err, output)
			require.Contains(t, output, "ip link del superpool-test")
			require.NoDirExists(t, folder)
		})
	}
}

// TestAChangeOfTheModeIsFinished interrupts vn-agent.sh before the syncers know the new mode, and runs it again.
func TestAChangeOfTheModeIsFinished(t *testing.T) {
	t.Parallel()
	const (
		script = `mkdir -p "$OUT"; cp -r hack "$OUT"; cat >>"$OUT/hack/realnodes/lib.sh" <<'SH'
pull_image() { :; }; deploy_vn_agent() { :; }; kill_program() { :; }; wait_ready() { :; }; kubectl() { echo 30550; }
wait_vn_agent() { [[ ! -e $OUT/interrupted ]]; }
start_program() { echo "$1 starts with $(program_flags "$1" | head -n 1)"; }
SH
echo node >"$OUT/vn-agent-mode"; touch "$OUT/interrupted"
"$OUT/hack/realnodes/vn-agent.sh" apiserver && exit 1
rm "$OUT/interrupted"
"$OUT/hack/realnodes/vn-agent.sh" apiserver
echo once more
"$OUT/hack/realnodes/vn-agent.sh"`
		want = `syncer-r1 starts with --vn-agent-port=30550
syncer-r2 starts with --vn-agent-port=30550
vn-agent runs in mode apiserver
once more
`
	)
	output, err := bash(t, bed+script, "REALNODES_DIR="+filepath.Join(t.TempDir(), "a folder"))
	require.NoError(t, err, output)
	require.Equal(t, want, output)
}

// TestFailuresAreSaid lets programs fail that scripts run with their words put aside.
func TestFailuresAreSaid(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ script, want string }{
		"a certificate that cannot be made": {
			script: bed + `BIN=$OUT-bin; mkdir -p "$BIN"; printf '#!/bin/sh\necho "controlplane: no authority" >&2; exit 1\n' >"$BIN/controlplane"; chmod +x "$BIN/controlplane"; name_tenant vc-sample-1 key; echo "went on"`,
			want:   "controlplane: no authority\n",
		},
		"an image that was not packed": {
			script: bed + `IMAGES=$OUT/images; pull_image r1 pause; echo "went on"`,
			want:   "images/pause is missing: make realnodes-images packs it\n",
		},
		"a super cluster that cannot be asked what runs there": {
			script: pool + `for part in steps setup experiment; do source hack/lib/$part.sh; done; kubectl() { return 1; }; equal "what runs in r2" "$(super_pods r2)" ""`,
			want:   "  wrong: what runs in r2 is \"not known\", wanted \"\"\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			output, err := bash(t, tc.script, "REALNODES_DIR="+filepath.Join(t.TempDir(), "a folder"))
			require.Error(t, err)
			require.Contains(t, output, tc.want)
		})
	}
}
