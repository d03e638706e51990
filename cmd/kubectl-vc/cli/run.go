package cli

import (
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// Start runs a command, whose exit code becomes that of this program. A terminal sends its signals to both, and the command
// ends as it likes; others are passed on.
func (c *CLI) Start(environment, run []string) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	program := exec.Command(run[0], run[1:]...) //nolint:gosec,noctx // it is the person's own
	program.Stdin, program.Stdout, program.Stderr, program.Env = c.In, c.Out, c.ErrOut, environment
	if err := program.Start(); err != nil {
		return err //nolint:wrapcheck // it names the command
	}
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for {
			select {
			case <-ended:
				return
			case got := <-signals:
				if got == syscall.SIGTERM || got == syscall.SIGHUP {
					_ = program.Process.Signal(got) // it may have ended
				}
			}
		}
	}()
	return program.Wait() //nolint:wrapcheck // as above
}
