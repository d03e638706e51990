// Command pause waits for SIGINT or SIGTERM. As process 1 it keeps the namespaces of a pod's sandbox, or of a node. The
// kernel makes it the parent of orphaned processes, so it reaps them.
package main

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for received := range signals {
		if received != syscall.SIGCHLD {
			return
		}
		collect()
	}
}

// collect reaps all children that have exited: signals coalesce, so one SIGCHLD can stand for several.
func collect() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if err != nil && !errors.Is(err, syscall.EINTR) || err == nil && pid <= 0 {
			return
		}
	}
}
