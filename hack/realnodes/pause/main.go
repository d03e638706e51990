// Command pause does nothing until it is told to end: it holds the namespaces of a pod's sandbox, and of a node, as their process 1. It is
// the parent of processes without one, so it collects their exits.
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

// collect takes the exits of all children that have ended: one SIGCHLD can stand for several.
func collect() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if err != nil && !errors.Is(err, syscall.EINTR) || err == nil && pid <= 0 {
			return
		}
	}
}
