package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

// makefile has targets that end in each way. What go test prints is written by hand: go doc test2json.
const makefile = `
green:
	@echo '{"Action":"pass","Package":"p","Test":"TestA","Elapsed":2}'
	@echo '{"Action":"pass","Package":"p","Elapsed":2.5}'
red:
	@echo 'a script says something'
	@echo '{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN TestA\n"}'
	@echo '{"Action":"output","Package":"p","Test":"TestA/one","Output":"I1125 a log\n"}'
	@echo '{"Action":"output","Package":"p","Test":"TestA/one","Output":"    a_test.go:7: it is wrong: $(SEED)\n"}'
	@echo '{"Action":"fail","Package":"p","Test":"TestA/one","Elapsed":1.5}'
	@echo '{"Action":"fail","Package":"p","Test":"TestA","Elapsed":1.5}'
	@echo '{"Action":"pass","Package":"p","Test":"TestB","Elapsed":3}'
	@echo '{"Action":"fail","Package":"p","Elapsed":5}'
	@exit 1
uncompiled:
	@echo '{"ImportPath":"q [q.test]","Action":"build-output","Output":"# q [q.test]\n"}'
	@echo '{"ImportPath":"q [q.test]","Action":"build-output","Output":"q/a_test.go:3:1: syntax error\n"}'
	@echo '{"ImportPath":"q [q.test]","Action":"build-fail"}'
	@exit 1
script:
	@echo 'it went wrong' >&2
	@exit 7
unable:
	@exit 3
leaves:
	@setsid sh -c 'echo $$$$ >pid; exec sleep 1000' & while [ ! -s pid ]; do sleep 0.01; done
leaves-and-waits: leaves
	@sleep 1000
takes-down:
	@(trap 'sleep 0.2; echo >down; exit' TERM; echo >pid; while :; do sleep 0.01; done) & sleep 1000
endless:
	@echo begun; (trap '' TERM; while :; do sleep 0.1; done)
`

// TestMain is the program, too: the runner starts it to reap.
func TestMain(m *testing.M) {
	if isReaper(os.Args) {
		main()
	}
	os.Exit(m.Run())
}

// bed is a repository with a commit and that Makefile, and a folder of results.
func bed(t *testing.T) (*runner, store, repository, *bytes.Buffer) {
	t.Helper()
	root := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(root, "Makefile"), []byte(makefile), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(root, ".gitignore"), []byte("_output\n"), 0o600))
	git(t, root, "init", "-q")
	commit(t, root, "first")
	out := &bytes.Buffer{}
	return &runner{root: root, output: filepath.Join(root, "_output", "gate"), out: out, grace: 100 * time.Millisecond}, store{folder: t.TempDir()}, repository{root: root}, out
}

func git(t *testing.T, root string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=a", "-c", "user.email=a@b"}, args...)...)
	command.Dir = root
	output, err := command.CombinedOutput()
	require.NoError(t, err, "%s", output)
	return strings.TrimSpace(string(output))
}

// commit commits all of the tree, and returns its name.
func commit(t *testing.T, root, message string) string {
	t.Helper()
	git(t, root, "add", "-A")
	git(t, root, "commit", "-q", "--allow-empty", "-m", message)
	return git(t, root, "rev-parse", "HEAD")
}

func TestRun(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		make     string
		timeout  time.Duration
		want     outcome
		failures []string
	}{
		{make: "green", want: passed},
		{make: "red", want: failed, failures: []string{"p TestA/one"}},
		{make: "uncompiled", want: failed, failures: []string{"q [q.test]"}},
		{make: "script", want: failed},
		{make: "unable", want: cannotRun},
		{make: "endless", timeout: 300 * time.Millisecond, want: timedOut},
		{make: "missing", want: failed},
	} {
		t.Run(tc.make, func(t *testing.T) {
			t.Parallel()
			bed, _, _, _ := bed(t)
			if tc.timeout == 0 {
				tc.timeout = time.Minute
			}
			done := bed.run(t.Context(), &target{name: "x", make: []string{tc.make}, timeout: tc.timeout}, 0)
			require.Equal(t, tc.want, done.outcome)
			var failures []string
			for _, test := range done.tests.failures() {
				failures = append(failures, test.String())
			}
			require.Equal(t, tc.failures, failures)
		})
	}
}

// TestNothingOutlivesATarget: not in a session of its own either, whether the target ends or is cut off.
func TestNothingOutlivesATarget(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		make string
		want outcome
	}{
		{make: "leaves", want: passed},
		{make: "leaves-and-waits", want: cutOff},
	} {
		t.Run(tc.make, func(t *testing.T) {
			t.Parallel()
			bed, _, _, _ := bed(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ran := make(chan result, 1)
			go func() { ran <- bed.run(ctx, &target{name: "x", make: []string{tc.make}, timeout: time.Minute}, 0) }()
			var pid int
			require.Eventually(t, func() bool {
				data, err := os.ReadFile(filepath.Join(bed.root, "pid"))
				if err == nil {
					pid, err = strconv.Atoi(strings.TrimSpace(string(data)))
				}
				return err == nil
			}, time.Minute, time.Millisecond)
			if tc.want == cutOff {
				cancel()
			}
			require.Equal(t, tc.want, (<-ran).outcome)
			require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
		})
	}
}

// TestWhatTakesDownHasAGrace: also where who started it has ended.
func TestWhatTakesDownHasAGrace(t *testing.T) {
	t.Parallel()
	bed, _, _, _ := bed(t)
	bed.grace = time.Minute
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ran := make(chan result, 1)
	go func() { ran <- bed.run(ctx, &target{name: "x", make: []string{"takes-down"}, timeout: time.Minute}, 0) }()
	require.Eventually(t, func() bool { _, err := os.Stat(filepath.Join(bed.root, "pid")); return err == nil }, time.Minute, time.Millisecond)
	cancel()
	require.Equal(t, cutOff, (<-ran).outcome)
	require.FileExists(t, filepath.Join(bed.root, "down"))
}

// TestAllAreRun: what fails ends nothing, and the report has it all.
func TestAllAreRun(t *testing.T) {
	t.Parallel()
	bed, kept, repository, out := bed(t)
	targets := []choice{
		{target: &target{name: "unit", make: []string{"red", "SEED=SEED"}, timeout: time.Minute, again: "make unit UNIT=./{package} RUN={test}"}},
		{target: &target{name: "scripts", make: []string{"script"}, timeout: time.Minute}},
		{target: &target{name: "left", make: []string{"red"}, timeout: time.Minute}, skip: true, why: "nothing has changed"},
		{target: &target{name: "late", make: []string{"green"}, timeout: time.Minute}, before: func() bool { return false }, why: "the time was up"},
		{target: &target{name: "last", make: []string{"green"}, timeout: time.Minute}},
	}
	code, err := runAll(t.Context(), bed, kept, repository, targets)
	require.NoError(t, err)
	require.Equal(t, exitFailed, code)

	past, err := kept.get("unit")
	require.NoError(t, err)
	require.Equal(t, []string{"p TestA/one"}, past.Last.Tests)
	require.Equal(t, []int64{past.Last.Seed}, past.FailedSeeds)
	require.Nil(t, past.Green)
	past, err = kept.get("last")
	require.NoError(t, err)
	require.Equal(t, passed, past.Green.Outcome)
	past, err = kept.get("left")
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(history{}, past), "what was not run leaves nothing")

	table, err := os.ReadFile(filepath.Join(bed.output, "report.txt"))
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(out.String(), string(table)), "the table comes last")
	for _, want := range []string{
		"--- FAIL: TestA/one (1.50s)\n    target unit, package p\n          a_test.go:7: it is wrong: ",
		"    again: make unit UNIT=./p RUN=TestA\n",
		"\nscripts: FAILED\n      it went wrong\n",
		"    again: make script\n",
		"3.0 s  p TestB\n",
		"left     -         0 min 00 s  0 tests  nothing has changed\n",
		"late     -         0 min 00 s  0 tests  the time was up\n",
		"last     ok        0 min 00 s  1 tests  \n",
	} {
		require.Contains(t, out.String(), want)
	}
	require.NotContains(t, out.String(), "a log", "the report begins where a test says why")
}

// TestAFailedBuildEndsAll, for nothing that comes after it would say anything.
func TestAFailedBuildEndsAll(t *testing.T) {
	t.Parallel()
	bed, kept, repository, out := bed(t)
	code, err := runAll(t.Context(), bed, kept, repository, []choice{
		{target: &target{name: "build", make: []string{"script"}, timeout: time.Minute, builds: true}},
		{target: &target{name: "unit", make: []string{"green"}, timeout: time.Minute}},
	})
	require.NoError(t, err)
	require.Equal(t, exitFailed, code)
	require.NotContains(t, out.String(), "gate: unit (2 of 2)")
}

// TestACutOffRunIsReported: the CI's time was up.
func TestACutOffRunIsReported(t *testing.T) {
	t.Parallel()
	bed, kept, repository, out := bed(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	begins := func() bool {
		time.AfterFunc(300*time.Millisecond, cancel)
		return true
	}
	code, err := runAll(ctx, bed, kept, repository, []choice{
		{target: &target{name: "unit", make: []string{"endless"}, timeout: time.Minute}, before: begins},
		{target: &target{name: "last", make: []string{"green"}, timeout: time.Minute}},
	})
	require.NoError(t, err)
	require.NotZero(t, code)
	require.Contains(t, out.String(), "cut off")
	past, err := kept.get("unit")
	require.NoError(t, err)
	require.Equal(t, cutOff, past.Last.Outcome)
}

// TestTouched: a target by which some changes are judged is run unless it has passed since.
func TestTouched(t *testing.T) {
	t.Parallel()
	bed, _, repository, _ := bed(t)
	first := git(t, bed.root, "rev-parse", "HEAD")
	require.NoError(t, os.WriteFile(filepath.Join(bed.root, "a"), []byte("a"), 0o600))
	second := commit(t, bed.root, "second")
	require.NoError(t, os.WriteFile(filepath.Join(bed.root, "b"), []byte("b"), 0o600))
	commit(t, bed.root, "third")
	for _, tc := range []struct {
		name     string
		light    bool
		green    string
		last     outcome
		wantSkip bool
	}{
		{name: "it has never passed here", wantSkip: true},
		{name: "it has never passed here, and costs little", light: true},
		{name: "it has passed before the change", green: first},
		{name: "it has passed since", green: second, wantSkip: true},
		{name: "it has passed since, and failed after that", green: second, last: failed},
		{name: "it has passed at a commit that is not known here", green: strings.Repeat("0", 40)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			past := history{Last: ranOnce{Outcome: tc.last}}
			if tc.green != "" {
				past.Green = &ranOnce{Commit: tc.green}
			}
			require.Equal(t, tc.wantSkip, touched(t.Context(), &target{name: "x", touches: []string{"a"}, light: tc.light}, past, repository).skip)
		})
	}
}

func TestUrgency(t *testing.T) {
	t.Parallel()
	bed, _, repository, _ := bed(t)
	first := git(t, bed.root, "rev-parse", "HEAD")
	require.NoError(t, os.WriteFile(filepath.Join(bed.root, "a"), []byte("a"), 0o600))
	commit(t, bed.root, "second")
	green := &ranOnce{Commit: first}
	for _, tc := range []struct {
		name string
		past history
		from string
		want int
	}{
		{name: "it has failed", past: history{Last: ranOnce{Outcome: failed}, Green: green}, want: 0},
		{name: "its time was up", past: history{Last: ranOnce{Outcome: timedOut}}, want: 0},
		{name: "it never ran", want: 1},
		{name: "it was cut off", past: history{Last: ranOnce{Outcome: cutOff}}, want: 1},
		{name: "its inputs have changed", past: history{Green: green}, from: "a", want: 1},
		{name: "nothing has changed", past: history{Green: green}, from: "b", want: 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, urgency(t.Context(), &target{inputs: []string{tc.from}}, tc.past, repository))
		})
	}
}

// TestSeedsAgain: a night begins with what failed, and that with the seeds that it failed with.
func TestSeedsAgain(t *testing.T) {
	t.Parallel()
	_, kept, repository, _ := bed(t)
	soak := &target{name: "soak"}
	for _, seed := range []int64{4, 5, 6, 7, 8, 6} {
		require.NoError(t, kept.put(soak, ranOnce{Outcome: failed, Seed: seed}))
	}
	require.NoError(t, kept.put(soak, ranOnce{Outcome: passed, Seed: 7}))
	require.NoError(t, kept.put(soak, ranOnce{Outcome: failed}))
	chosen, err := nightly(t.Context(), kept, repository)
	require.NoError(t, err)
	var seeds []int64
	for _, choice := range chosen {
		if choice.name == "soak" {
			seeds = append(seeds, choice.seed)
		}
	}
	require.Equal(t, []int64{6, 8, 5, 0}, seeds)
	require.Equal(t, "soak", chosen[0].name)

	draws := &target{make: []string{"soak", "SOAK=1h", "SOAK_SEED=SEED"}}
	require.True(t, draws.draws())
	require.Equal(t, []string{"soak", "SOAK=1h", "SOAK_SEED=8"}, draws.arguments(8))
	require.False(t, (&target{make: []string{"soak"}}).draws())
}

// TestTargets holds the table against the Makefile and the tree: a path that is not there never changes.
func TestTargets(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("../../Makefile")
	require.NoError(t, err)
	names := map[string]bool{}
	for _, target := range targets {
		require.False(t, names[target.name], "%s is there twice", target.name)
		names[target.name] = true
		require.True(t, target.lands || target.nightly || target.light, "%s is run by nothing", target.name)
		require.Positive(t, target.timeout, target.name)
		for _, arg := range target.make {
			if !strings.Contains(arg, "=") {
				require.Contains(t, string(makefile), "\n"+arg+":", target.name)
			}
		}
		for _, path := range append(target.touches, target.inputs...) {
			_, err := os.Stat(filepath.Join("../..", path))
			require.NoError(t, err, target.name)
		}
	}
}

// TestCommandOfATarget: a shell takes what the report prints as it is meant.
func TestCommandOfATarget(t *testing.T) {
	t.Parallel()
	ran := target{make: []string{"test-integration", "RUN=TestShards|TestLost", "INTEGRATION=./a ./b", "SOAK_SEED=SEED"}}
	require.Equal(t, "make test-integration 'RUN=TestShards|TestLost' 'INTEGRATION=./a ./b' SOAK_SEED=7", ran.command(7))
}
