package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// reapArgument, as the first one, makes this program reap: behind it come the grace, and the command with its
// arguments.
const reapArgument = "reap"

// isReaper returns whether a program that was started with these arguments is to reap.
func isReaper(args []string) bool { return len(args) > 3 && args[1] == reapArgument }

// reap runs a command as a child, and returns its exit code once nothing that it started runs any more: when the
// command has ended, the rest is killed, whatever session or process group it is in, but for the grace below. At
// SIGTERM the process group gets SIGTERM, and has a grace to take down what it has started: make and go end at once,
// and leave a test behind that does.
func reap(args []string) (int, error) {
	grace, err := time.ParseDuration(args[0])
	if err != nil {
		return 0, fmt.Errorf("reading the grace: %w", err)
	}
	path, err := exec.LookPath(args[1])
	if err != nil {
		return 0, fmt.Errorf("finding the command: %w", err)
	}
	// Linux gives it the children of each process below it that ends.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 0, fmt.Errorf("becoming the parent of what is left: %w", err)
	}
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	child, err := syscall.ForkExec(path, args[1:], &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
	if err != nil {
		return 0, fmt.Errorf("starting the command: %w", err)
	}
	var graced atomic.Bool
	go func() {
		<-terminated
		graced.Store(true)
		_ = syscall.Kill(0, syscall.SIGTERM) // its process group
		time.AfterFunc(grace, func() {
			graced.Store(false)
			_ = killChildren(false)
		})
	}()
	return waitForAll(child, &graced)
}

// waitForAll returns the exit code of a child when all children have ended, and kills those that outlive it, but for
// those of its process group while graced. Each that ends has left its own children to this process by then.
func waitForAll(child int, graced *atomic.Bool) (int, error) {
	code, ended := 0, false
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.ECHILD):
			return code, nil
		case err != nil:
			return 0, fmt.Errorf("waiting for children: %w", err)
		case pid == child:
			code, ended = status.ExitStatus(), true
			if status.Signaled() {
				code = 128 + int(status.Signal())
			}
		}
		if ended {
			if err := killChildren(graced.Load()); err != nil {
				return 0, err
			}
		}
	}
}

// killChildren kills all children of this process, but for those of its process group if that is spared.
func killChildren(spared bool) error {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return fmt.Errorf("listing processes: %w", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		// PID (NAME) STATE PPID PGRP ...; a name may have parentheses and spaces.
		fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
		if len(fields) < 3 || string(fields[1]) != strconv.Itoa(os.Getpid()) {
			continue
		}
		if spared && string(fields[2]) == strconv.Itoa(syscall.Getpgrp()) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return fmt.Errorf("reading the name of %s: %w", file, err)
		}
		_ = syscall.Kill(pid, syscall.SIGKILL) // it has ended
	}
	return nil
}
