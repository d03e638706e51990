package launch

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Process is a program that was started. It runs on when the program that started it ends.
type Process struct {
	// Name is that of its files, and Log what it prints.
	Name, Log string

	command *exec.Cmd
	ended   chan struct{}
}

// Run starts a program in a process group of its own, which a terminal's Ctrl-C does not reach. It appends to the log
// of its name in folder and writes its process id. The command is the path of the program and its arguments.
func Run(folder, name string, command []string) (*Process, error) {
	p := &Process{Name: name, Log: filepath.Join(folder, "logs", name+".log"), ended: make(chan struct{})}
	pidFile := filepath.Join(folder, "pids", name)
	for _, file := range []string{p.Log, pidFile} {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return nil, fmt.Errorf("starting %s: %w", name, err)
		}
	}
	log, err := os.OpenFile(p.Log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	defer log.Close() //nolint:errcheck // the program has it
	if _, err := fmt.Fprintln(log, "---", strings.Join(command, " ")); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	// A context would end it with its caller.
	p.command = exec.Command(command[0], command[1:]...) //nolint:noctx // see above
	p.command.Stdout, p.command.Stderr = log, log
	p.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.command.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() {
		defer close(p.ended)
		_ = p.command.Wait() // how it ended is in its log
	}()
	return p, os.WriteFile(pidFile, []byte(strconv.Itoa(p.command.Process.Pid)+"\n"), 0o644)
}

// PID returns the process id.
func (p *Process) PID() int { return p.command.Process.Pid }

// Ended reports whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// Succeeded reports whether the process has ended without an error.
func (p *Process) Succeeded() bool { return p.Ended() && p.command.ProcessState.Success() }

// Stop asks the process to end, by SIGTERM, and waits until it is gone.
func (p *Process) Stop() {
	_ = p.command.Process.Signal(syscall.SIGTERM) // it has ended already
	<-p.ended
}

// Kill ends the process and waits until it is gone.
func (p *Process) Kill() {
	_ = p.command.Process.Kill() // it has ended already
	<-p.ended
}
