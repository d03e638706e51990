package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// cannotRunCode is the exit code of a script that this machine cannot run.
	cannotRunCode = 3
	// sayEvery is how often a line says what runs, where the output is no terminal.
	sayEvery = 30 * time.Second
	// reapDelay is how long it may take to kill what a target leaves.
	reapDelay = 10 * time.Second
	// keptLines are the last lines of a target that no test printed.
	keptLines = 40
)

// result of a target.
type result struct {
	target  *target
	outcome outcome
	// why it was not run.
	why     string
	started time.Time
	took    time.Duration
	seed    int64
	tests   tests
	// lines are the last ones that no test printed.
	lines []string
	// log is the path of everything that it printed.
	log string
}

// runner runs targets, one at a time.
type runner struct {
	root, output string
	out          io.Writer
	terminal     bool
	// grace is how long a target that is ended may take down what it has started.
	grace time.Duration
}

// announce says what begins.
func (r *runner) announce(target *target, number, of int) {
	say(r.out, "gate: %s (%d of %d): make %s\n", target.name, number, of, strings.Join(target.make, " "))
}

// run runs a target in a process group of its own. When its time is up, or ctx ends, the group gets SIGTERM, and after
// the grace make gets SIGKILL. What outlives make is killed. seed is for one that is run with a seed; 0 draws it.
func (r *runner) run(ctx context.Context, target *target, seed int64) result {
	done := result{target: target, started: time.Now(), log: filepath.Join(r.output, target.name+".log")}
	if target.draws() {
		done.seed = cmp.Or(seed, done.started.Unix())
	}
	if seed != 0 { // another run of the target follows
		done.log = filepath.Join(r.output, fmt.Sprintf("%s-%d.log", target.name, seed))
	}
	args := target.arguments(done.seed)
	within, cancel := context.WithTimeout(ctx, target.timeout)
	defer cancel()
	err := r.command(within, args, &done)
	done.took = time.Since(done.started)
	var exit *exec.ExitError
	switch {
	case err == nil:
		done.outcome = passed
	case ctx.Err() != nil:
		done.outcome = cutOff
	case within.Err() != nil:
		done.outcome = timedOut
	case errors.As(err, &exit) && saysCannotRun(exit, done.lines):
		done.outcome = cannotRun
	default:
		done.outcome = failed
		if !errors.As(err, &exit) {
			done.lines = append(done.lines, err.Error())
		}
	}
	if done.outcome == passed && target.again != "" && done.tests.passed == 0 {
		done.outcome = failed
		done.lines = append(done.lines, "no test has run")
	}
	r.ended(&done)
	return done
}

// saysCannotRun returns whether a recipe of make has ended with cannotRunCode: make's own code is 2.
func saysCannotRun(exit *exec.ExitError, lines []string) bool {
	suffix := fmt.Sprintf("] Error %d", cannotRunCode)
	for _, line := range lines {
		if strings.HasPrefix(line, "make") && strings.HasSuffix(line, suffix) {
			return true
		}
	}
	return exit.ExitCode() == cannotRunCode
}

// command runs make below a process that reaps what make leaves, and reads what they print until all have ended.
func (r *runner) command(ctx context.Context, args []string, done *result) error {
	if err := os.MkdirAll(r.output, 0o755); err != nil {
		return fmt.Errorf("making the folder of logs: %w", err)
	}
	log, err := os.Create(done.log)
	if err != nil {
		return fmt.Errorf("making the log: %w", err)
	}
	defer log.Close() //nolint:errcheck // what it could say has been said by the writes
	kept := &bestEffort{to: log}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding the gate: %w", err)
	}
	command := exec.CommandContext(ctx, self, append([]string{reapArgument, r.grace.String(), "make", "--no-print-directory", "TEST_JSON=-json"}, args...)...)
	command.Dir, command.Env = r.root, withoutMake(os.Environ())
	// It gets SIGTERM, too, if this process is killed: Linux sends it when the thread ends that has started it.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = r.grace + reapDelay
	reader, writer := io.Pipe()
	command.Stdout, command.Stderr = writer, writer
	if err := command.Start(); err != nil {
		return fmt.Errorf("starting the gate to run make: %w", err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		r.read(io.TeeReader(reader, kept), done)
	}()
	err = command.Wait()
	_ = writer.Close()
	<-read
	if kept.err != nil {
		done.lines = append(done.lines, "writing the log: "+kept.err.Error())
	}
	return err //nolint:wrapcheck // the caller asks for its kind
}

// bestEffort writes until that fails once, and keeps the error: a full disk must not hold up who writes.
type bestEffort struct {
	to  io.Writer
	err error
}

// Write implements io.Writer.
func (b *bestEffort) Write(data []byte) (int, error) {
	if b.err == nil {
		_, b.err = b.to.Write(data)
	}
	return len(data), nil
}

// ours are variables by which a caller chooses what make's targets do: a target is always run as the table says, or a
// part of it would be kept as the whole.
var ours = []string{
	"MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "GNUMAKEFLAGS", "MAKELEVEL", "RUN", "SKIP", "TEST_ARGS", "TEST_FLAGS", "UNIT", "UNIT_RACE", "INTEGRATION", "FUZZTIME", "TARGETS", "CONTROL_PLANES", "MINORS", "ROLES",
}

func withoutMake(environment []string) []string {
	return slices.DeleteFunc(environment, func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.Contains(ours, name)
	})
}

// read takes what a target prints, and says each failure as it comes.
func (r *runner) read(from io.Reader, done *result) {
	lines := bufio.NewReader(from)
	said := time.Now()
	for {
		line, err := lines.ReadString('\n')
		line = strings.TrimRight(line, "\n")
		if e, ok := parseEvent(line); ok {
			if run := done.tests.add(e); run != nil && run.test != "" {
				r.clear()
				say(r.out, "--- FAIL: %s (%.2fs) %s\n", run.test, run.seconds, run.pkg)
			}
		} else if line != "" {
			done.lines = append(done.lines, line)
			done.lines = done.lines[max(0, len(done.lines)-keptLines):]
		}
		if err != nil {
			return
		}
		if interval := r.interval(); time.Since(said) >= interval {
			said = time.Now()
			r.say(done)
		}
	}
}

func (r *runner) interval() time.Duration {
	if r.terminal {
		return time.Second
	}
	return sayEvery
}

// say prints how far a target is: in place on a terminal.
func (r *runner) say(done *result) {
	text := fmt.Sprintf("gate: %s, %s, %d tests passed", done.target.name, time.Since(done.started).Round(time.Second), done.tests.passed)
	r.clear()
	if r.terminal {
		say(r.out, "%s", text)
		return
	}
	say(r.out, "%s\n", text)
}

func (r *runner) clear() {
	if r.terminal {
		say(r.out, "\r\033[K")
	}
}

func (r *runner) ended(done *result) {
	r.clear()
	say(r.out, "gate: %s: %s after %s, %d tests passed\n", done.target.name, done.outcome, done.took.Round(time.Second), done.tests.passed)
}

// isTerminal returns whether a file is one.
func isTerminal(file *os.File) bool {
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "" && os.Getenv("TERM") != "dumb"
}
