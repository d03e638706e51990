package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// target is something that make runs, by which a change is judged.
type target struct {
	name string
	// make are the arguments of make. SEED in them stands for a seed that is drawn.
	make []string
	// again is what runs one test of it alone: {package} and {test} stand for its package, relative to the root, and
	// its name.
	again string
	// timeout is after how long it has failed.
	timeout time.Duration
	// lands is whether every change is judged by it. One that touches a path of touches is, besides, unless the target
	// has passed since.
	lands   bool
	touches []string
	// light is whether it is run, too, where it has never passed and nobody knows what has changed.
	light bool
	// builds is whether the others need what it builds.
	builds bool
	// inputs are the paths that its result depends on; nil for everything.
	inputs []string
	// nightly is whether it is a row of `make nightly`.
	nightly bool
}

// program is what every pool of real API servers depends on.
var program = []string{
	"apis", "cmd", "go.mod", "go.sum", "hack/lib", "hack/tools", "internal", "Makefile", "manifests", "plugins", "test/await", "test/builders",
	"test/controlplane", "test/modcache", "test/pool",
}

func dependsOn(paths ...string) []string { return append(paths, program...) }

// What runs one test alone.
const (
	againInIntegration = "make test-integration INTEGRATION=./{package} RUN={test}"
	againInDemo        = "make test-e2e RUN={test}"
	againInAttacks     = "make test-attacks RUN={test}"
	againInRealnodes   = "make test-realnodes RUN={test}"
)

// targets are all that there are, in the order in which they run: what builds, then what answers soonest.
var targets = []target{
	{name: "build", lands: true, builds: true, timeout: time.Hour, make: []string{"tools", "build", "build-tests"}},
	{name: "unit", lands: true, timeout: 30 * time.Minute, make: []string{"test-unit"}, again: "make test-unit UNIT=./{package} RUN={test}"},
	{name: "model", lands: true, timeout: 10 * time.Minute, make: []string{"test-model", "MODEL_STEPS=20000", "MODEL_SEED=SEED"}},
	{name: "verify", lands: true, timeout: 30 * time.Minute, make: []string{"verify"}},
	{name: "integration", lands: true, timeout: 40 * time.Minute, make: []string{"test-integration", "SKIP=" + leftForTheNight}, again: againInIntegration},
	{name: "demo", lands: true, timeout: 15 * time.Minute, make: []string{"test-demo"}, again: againInDemo},
	{name: "attacks", lands: true, timeout: 20 * time.Minute, make: []string{"test-attacks", "SKIP=TestTime|TestSize"}, again: againInAttacks},

	{
		name: "shards", timeout: 10 * time.Minute, again: againInIntegration, light: true,
		make: []string{"test-integration", "RUN=TestShards", "INTEGRATION=./test/integration/scheduling ./test/integration/syncer"},
		touches: []string{
			"internal/leadership", "internal/scheduling/tenant.go", "internal/syncer/custom.go", "internal/syncer/session.go", "internal/syncer/syncer.go",
			"cmd/syncer/app", "cmd/vc-scheduler/app", "manifests/shards", "test/integration/scheduling/shards_test.go", "test/integration/syncer/shards_test.go",
		},
	},
	{
		name: "realnodes", timeout: 75 * time.Minute, make: []string{"test-realnodes", "REALNODES_MODES=node"}, again: againInRealnodes, nightly: true,
		touches: []string{
			"internal/vnagent", "cmd/vn-agent", "manifests/vn-agent", "hack/setup-vn-agent.sh", "test/realnodes", "hack/realnodes",
			"internal/controlplane", "internal/provision", "internal/grants", "cmd/vc-manager", "manifests/vc-manager", "manifests/base/vc-manager-grants.yaml",
		},
		inputs: dependsOn("test/realnodes", "hack/realnodes"),
	},
	{
		name: "fresh", timeout: 30 * time.Minute, make: []string{"test-fresh"}, nightly: true,
		touches: []string{"go.mod", "go.sum", "Makefile", "hack/tools", "hack/lib", "hack/demo.sh", "hack/gobuild.sh", "hack/test-fresh.sh"},
		inputs:  dependsOn("hack"),
	},
	{
		name: "skew", timeout: time.Hour, make: []string{"test-versions", "MINORS=1.35", "ROLES=tenant super", "SKIP=" + leftForTheNight}, nightly: true,
		touches: []string{"go.mod", "hack/tools/go.mod", "hack/tools/minors.mk", "hack/lib/kubernetes.sh", "hack/build-kubernetes.sh", "hack/test-versions.sh"},
		inputs:  dependsOn("test", "hack"),
	},
	{
		name: "soak-short", timeout: 20 * time.Minute, make: []string{"soak", "SOAK=3m", "SOAK_SEED=SEED"}, nightly: true,
		touches: []string{"internal/syncer/engine", "internal/engage", "test/pool", "test/soak"}, inputs: dependsOn("test/soak"),
	},

	{
		name: "integration-all", timeout: 40 * time.Minute, make: []string{"test-integration"}, again: againInIntegration, nightly: true, inputs: dependsOn("test"),
	},
	{
		name: "integration-race", timeout: 90 * time.Minute, make: []string{"test-integration-race"}, again: "make test-integration-race INTEGRATION=./{package} RUN={test}", nightly: true,
		inputs: dependsOn("test"),
	},
	{name: "e2e", timeout: 30 * time.Minute, make: []string{"test-e2e"}, again: againInDemo, nightly: true, inputs: dependsOn("test/e2e", "test/perf", "hack")},
	{name: "attacks-all", timeout: 20 * time.Minute, make: []string{"test-attacks"}, again: againInAttacks, nightly: true, inputs: dependsOn("test/attacks")},
	{name: "siege", timeout: 20 * time.Minute, make: []string{"siege"}, nightly: true, inputs: dependsOn("test/attacks")},
	{name: "model-all", timeout: time.Hour, make: []string{"test-model", "MODEL_STEPS=1000000", "MODEL_SEED=SEED"}, nightly: true, inputs: program},
	{name: "soak", timeout: 90 * time.Minute, make: []string{"soak", "SOAK=1h", "SOAK_SEED=SEED"}, nightly: true, inputs: dependsOn("test/soak")},
	{name: "drills", timeout: 40 * time.Minute, make: []string{"drills"}, again: "make drills", nightly: true, inputs: dependsOn("test/drills")},
	{name: "upgrade", timeout: 30 * time.Minute, make: []string{"upgrade"}, nightly: true, inputs: dependsOn("test/upgrade")},
	{
		name: "realnodes-all", timeout: 2 * time.Hour, make: []string{"test-realnodes"}, again: againInRealnodes, nightly: true,
		inputs: dependsOn("test/realnodes", "hack/realnodes"),
	},
	{name: "versions-1.34", timeout: 2 * time.Hour, make: []string{"test-versions", "MINORS=1.34", "SKIP=" + leftForTheNight}, nightly: true, inputs: dependsOn("test", "hack")},
	{name: "versions-1.35", timeout: 2 * time.Hour, make: []string{"test-versions", "MINORS=1.35", "SKIP=" + leftForTheNight}, nightly: true, inputs: dependsOn("test", "hack")},
	{name: "versions-1.36", timeout: 2 * time.Hour, make: []string{"test-versions", "MINORS=1.36", "SKIP=" + leftForTheNight}, nightly: true, inputs: dependsOn("test", "hack")},
	{name: "slow", timeout: 3 * time.Hour, make: []string{"test-slow", "SLOW_TIMES=1"}, nightly: true},
	{
		name: "ui", timeout: 30 * time.Minute, make: []string{"test-ui"}, again: "make test-ui RUN={test}", nightly: true,
		touches: []string{"cmd/kubectl-vc/ui", "test/browser"}, inputs: []string{"apis", "cmd/kubectl-vc", "go.mod", "internal", "Makefile", "plugins", "test/browser"},
	},
	{name: "fuzz", timeout: 90 * time.Minute, make: []string{"test-fuzz"}, nightly: true, inputs: dependsOn("hack/fuzz.sh")},
	{name: "vulnerabilities", timeout: 30 * time.Minute, make: []string{"vulnerabilities"}, nightly: true, inputs: dependsOn()},
	{
		name: "release", timeout: time.Hour, make: []string{"release", "VERSION=v0.0.0-nightly", "REGISTRY=registry.example.com/superpool", "FORCE=1"}, nightly: true,
		inputs: dependsOn("CHANGELOG.md", "docs/operating.md", "hack/gobuild.sh", "hack/release", "hack/setup-vn-agent.sh", "LICENSE"),
	},
	{name: "charts", timeout: 15 * time.Minute, make: []string{"test-charts"}, again: "make test-charts", nightly: true, inputs: dependsOn("hack/release")},
	{name: "bench", timeout: time.Hour, make: []string{"bench", "BENCH_COUNT=1"}, nightly: true, inputs: program},
	{name: "conformance", timeout: 3 * time.Hour, make: []string{"test-conformance"}, nightly: true, inputs: dependsOn("test/conformance", "hack/realnodes")},
}

// leftForTheNight are the tests on real API servers that no landing waits for: those that take longest, of what the
// model, the demo or the soak show too, and those of leases, which target shards runs by what a change touches.
const leftForTheNight = "TestShards|TestCredentials|TestLost|TestBudgets|TestMissingVirtualCluster|TestWhatIsGuaranteedIsGivenBack|TestADrainKeepsRoomWhereVolumesAre|" +
	"TestStorageThatIsReserved|TestClaimsOfWorkloads|TestClaimsOfARestoredTenant|TestThirdTenant|TestSingle|TestSnapshotsAreCounted|TestRest|TestStoreOfThree|TestAuthorities"

// choice is a target and whether it is to be run.
type choice struct {
	*target
	// skip is whether it is not run, and why.
	skip bool
	why  string
	// before is asked right before it is run, if it is not nil; false is skip.
	before func() bool
	// seed is what it is run with, where it is run with one; 0 draws one.
	seed int64
}

// seedsAgain is how many seeds that failed are tried again in a night, the newest first.
const seedsAgain = 3

// landing chooses the targets of these names; of none, those by which the commit is judged.
func landing(ctx context.Context, names []string, kept store, repository repository) ([]choice, error) {
	var chosen []choice
	for _, name := range names {
		at := slices.IndexFunc(targets, func(t target) bool { return t.name == name })
		if at < 0 {
			return nil, fmt.Errorf("there is no target %s; there are %s", name, strings.Join(namesOf(targets), ", "))
		}
		chosen = append(chosen, choice{target: &targets[at]})
	}
	if len(names) > 0 {
		return chosen, nil
	}
	for i := range targets {
		target := &targets[i]
		switch {
		case target.lands:
			chosen = append(chosen, choice{target: target})
		case len(target.touches) > 0:
			past, err := kept.get(target.name)
			if err != nil {
				return nil, err
			}
			chosen = append(chosen, touched(ctx, target, past, repository))
		}
	}
	return chosen, nil
}

// touched chooses a target that some changes are judged by. What has never run on this machine is not run here: what
// the change is cannot be told then, and the nightly begins with it.
func touched(ctx context.Context, target *target, past history, repository repository) choice {
	switch {
	case past.Last.Outcome == failed, past.Last.Outcome == timedOut:
		return choice{target: target}
	case past.Green == nil && target.light:
		return choice{target: target}
	case past.Green == nil:
		return choice{target: target, skip: true, why: "owed: it has not passed on this machine yet"}
	case repository.differs(ctx, past.Green.Commit, target.touches):
		return choice{target: target}
	}
	return choice{target: target, skip: true, why: "what it is run for is as at " + short(past.Green.Commit) + ", where it passed"}
}

// nightly chooses the targets of a night: what failed, then what has changed inputs since it passed, then the others,
// the oldest first; each with the seeds that failed before one that is drawn.
func nightly(ctx context.Context, kept store, repository repository) ([]choice, error) {
	type row struct {
		target *target
		seeds  []int64
		class  int
		ended  time.Time
	}
	var rows []row
	for i := range targets {
		target := &targets[i]
		if !target.nightly {
			continue
		}
		past, err := kept.get(target.name)
		if err != nil {
			return nil, err
		}
		seeds := past.FailedSeeds[:min(len(past.FailedSeeds), seedsAgain)]
		rows = append(rows, row{target: target, seeds: seeds, class: urgency(ctx, target, past, repository), ended: past.Last.Started})
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(a.class, b.class), a.ended.Compare(b.ended))
	})
	var chosen []choice
	for _, row := range rows {
		for _, seed := range row.seeds {
			chosen = append(chosen, choice{target: row.target, seed: seed})
		}
		chosen = append(chosen, choice{target: row.target})
	}
	return chosen, nil
}

// urgency returns 0 for what failed last, 1 for what has changed since it passed or never did, and 2 for the others.
func urgency(ctx context.Context, target *target, past history, repository repository) int {
	switch {
	case past.Last.Outcome == failed || past.Last.Outcome == timedOut:
		return 0
	case past.Green == nil:
		return 1
	}
	if repository.differs(ctx, past.Green.Commit, target.inputs) {
		return 1
	}
	return 2
}

// until lets no target begin after a time.
func until(end time.Time, chosen []choice) []choice {
	for i := range chosen {
		chosen[i].before, chosen[i].why = func() bool { return time.Now().Before(end) }, "the time was up"
	}
	return chosen
}

// draws is whether the target is run with a seed.
func (t *target) draws() bool {
	return slices.ContainsFunc(t.make, func(arg string) bool { return strings.HasSuffix(arg, "=SEED") })
}

// arguments returns those of make.
func (t *target) arguments(seed int64) []string {
	args := slices.Clone(t.make)
	for i, arg := range args {
		if name, found := strings.CutSuffix(arg, "=SEED"); found {
			args[i] = name + "=" + strconv.FormatInt(seed, 10)
		}
	}
	return args
}

// command returns what a person types to run it: arguments that mean something to a shell are quoted.
func (t *target) command(seed int64) string {
	args := t.arguments(seed)
	for i, arg := range args {
		if strings.ContainsAny(arg, " |()$*") {
			args[i] = "'" + arg + "'"
		}
	}
	return "make " + strings.Join(args, " ")
}

func namesOf(targets []target) []string {
	names := make([]string, len(targets))
	for i := range targets {
		names[i] = targets[i].name
	}
	return names
}
