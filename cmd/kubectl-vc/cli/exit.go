package cli

import (
	"errors"
	"os/exec"
	"syscall"

	"github.com/superpool/superpool/internal/simulation"
)

// ExitCode returns the exit code for an error of the command: that of the command that exec ran, 3 where something does not
// fit into the pool, else 1.
func ExitCode(err error) int {
	var ended *exec.ExitError
	var unfit *simulation.DoesNotFit
	switch {
	case err == nil:
		return 0
	case errors.As(err, &unfit):
		return unfit.ExitCode()
	case errors.As(err, &ended):
		if status, is := ended.Sys().(syscall.WaitStatus); is && status.Signaled() {
			const signalled = 128 // as shells have it
			return signalled + int(status.Signal())
		}
		return ended.ExitCode()
	}
	return 1
}
