// Command gate runs what this repository is tested by, and keeps what came out: docs/developing/testing.md.
//
//	gate land [TARGET...]   what decides whether a change lands: .ci/run
//	gate nightly            everything else, beginning with what failed, until -for has elapsed
//	gate ran                when each target last passed, and how many commits its inputs have changed since
//
// It runs make's targets, one after the other: each uses all cores, and tests that wait for real API servers must not
// be slowed down by others.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

const usage = `usage: gate [flags] land [TARGET...] | nightly | ran

Examples:
  gate land                  what decides whether a change lands
  gate land unit attacks     these targets alone
  gate -for 2h nightly       what failed, then what has changed, then what is oldest
  gate ran                   when each target last passed

`

// Exit codes besides 0.
const (
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	if isReaper(os.Args) {
		code, err := reap(os.Args[2:])
		if err != nil {
			fmt.Fprintln(os.Stderr, "gate:", err)
			code = exitFailed
		}
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP) //nolint:forbidigo // the process' own
	defer stop()
	context.AfterFunc(ctx, stop) // the second signal ends it at once
	code, err := run(ctx, os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "gate:", err)
	}
	if code != 0 {
		stop()
		os.Exit(code) //nolint:gocritic // stop has been called
	}
}

func run(ctx context.Context, args []string) (int, error) {
	flags := flag.NewFlagSet("gate", flag.ContinueOnError)
	flags.Usage = func() {
		say(flags.Output(), usage)
		flags.PrintDefaults()
	}
	root := flags.String("root", ".", "folder of the repository")
	results := flags.String("results", os.Getenv("RAN_DIR"), "folder of the results, shared by all clones on this machine (default: in the user's cache folder)")
	output := flags.String("output", "", "folder of logs and report (default: _output/gate in the root)")
	length := flags.Duration("for", 2*time.Hour, "how long nightly begins targets")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0, nil
	case err != nil:
		return exitUsage, nil //nolint:nilerr // flags has printed it
	}
	if *results == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return exitUsage, fmt.Errorf("finding a folder for the results: %w; give one by -results or RAN_DIR", err)
		}
		*results = filepath.Join(cache, "superpool", "ran")
	}
	repository := repository{root: *root}
	kept := store{folder: *results}
	bed := &runner{root: *root, output: cmp.Or(*output, filepath.Join(*root, "_output", "gate")), out: os.Stdout, terminal: isTerminal(os.Stdout), grace: time.Minute}
	switch command, names := flags.Arg(0), flags.Args()[min(1, flags.NArg()):]; command {
	case "land":
		chosen, err := landing(ctx, names, kept, repository)
		if err != nil {
			return exitUsage, err
		}
		return runAll(ctx, bed, kept, repository, chosen)
	case "nightly":
		due, err := nightly(ctx, kept, repository)
		if err != nil {
			return exitUsage, err
		}
		return runAll(ctx, bed, kept, repository, until(time.Now().Add(*length), due))
	case "ran":
		if err := printRan(ctx, os.Stdout, kept, repository, time.Now()); err != nil {
			return exitFailed, err
		}
		return 0, nil
	default:
		flags.Usage()
		return exitUsage, nil
	}
}

// runAll runs targets in their order, keeps what came out, and prints the report. A target that fails ends nothing but
// those that need what it builds.
func runAll(ctx context.Context, bed *runner, kept store, repository repository, chosen []choice) (int, error) {
	commit, clean, err := repository.head(ctx)
	if err != nil {
		return exitUsage, err
	}
	report := &report{commit: commit, clean: clean}
	var unkept error
	for i, choice := range chosen {
		result := result{target: choice.target, outcome: notRun, why: choice.why}
		switch {
		case ctx.Err() != nil, report.unbuilt():
		case choice.skip, choice.before != nil && !choice.before():
		default:
			bed.announce(choice.target, i+1, len(chosen))
			result = bed.run(ctx, choice.target, choice.seed)
			after, stillClean, err := repository.head(context.WithoutCancel(ctx))
			unkept = errors.Join(unkept, err, kept.put(choice.target, runOf(&result, commit, clean && stillClean && after == commit)))
		}
		report.results = append(report.results, result)
	}
	if err := report.print(bed.out, filepath.Join(bed.output, "report.txt")); err != nil {
		return exitUsage, err
	}
	switch {
	case ctx.Err() != nil:
		return 128 + int(syscall.SIGTERM), unkept
	case report.failed(), unkept != nil:
		return exitFailed, unkept
	}
	return 0, nil
}
