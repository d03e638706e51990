package launch

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// withPrograms returns a control plane whose programs are shell scripts. Its scheduler is said to be ready by another
// one.
func withPrograms(t *testing.T, programs map[Program]string) *ControlPlane {
	t.Helper()
	c := sample().in(t)
	c.Bin = t.TempDir()
	// A bed may run on this machine, at the ports of the sample.
	ports, release, err := ReservePorts()
	require.NoError(t, err)
	t.Cleanup(release)
	healthy := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(healthy.Close)
	ports.Scheduler = healthy.Listener.Addr().(*net.TCPAddr).Port
	c.Ports = ports
	for program, script := range programs {
		require.NoError(t, os.WriteFile(filepath.Join(c.Bin, string(program)), []byte("#!/bin/sh\n"+script+"\n"), 0o700))
	}
	return c
}

func (c *ControlPlane) file(t *testing.T, elements ...string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(append([]string{c.Folder}, elements...)...))
	require.NoError(t, err)
	return string(content)
}

func TestStartLeavesFiles(t *testing.T) {
	t.Parallel()
	c := withPrograms(t, map[Program]string{Scheduler: "echo it runs; exec sleep 60"})
	started, err := c.Start(t.Context(), Scheduler)
	require.NoError(t, err)
	require.Len(t, started, 1)
	t.Cleanup(started[0].Kill)
	pid, err := strconv.Atoi(strings.TrimSpace(c.file(t, "pids", "kube-scheduler-r1")))
	require.NoError(t, err)
	group, err := syscall.Getpgid(pid)
	require.NoError(t, err)
	require.Equal(t, pid, group, "Ctrl-C in a terminal does not reach it")
	require.Eventually(t, func() bool { return strings.HasSuffix(c.file(t, "logs", "kube-scheduler-r1.log"), "it runs\n") }, time.Minute, 10*time.Millisecond)
	require.True(t, strings.HasPrefix(c.file(t, "logs", "kube-scheduler-r1.log"), "--- "+c.Bin+"/kube-scheduler --bind-address=127.0.0.1 --kubeconfig="+c.Folder+"/r1.kubeconfig "))
	require.False(t, started[0].Ended())

	started[0].Kill()
	require.True(t, started[0].Ended())
	require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
	again, err := c.Start(t.Context(), Scheduler)
	require.NoError(t, err)
	t.Cleanup(again[0].Kill)
	require.NotEqual(t, strconv.Itoa(pid), strings.TrimSpace(c.file(t, "pids", "kube-scheduler-r1")))
	require.Equal(t, 2, strings.Count(c.file(t, "logs", "kube-scheduler-r1.log"), "--- "), "the log of the first one stays")
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		programs map[Program]string
		start    []Program
		want     []string
		started  int
	}{
		"a program that is not built":        {start: []Program{Etcd}, want: []string{"starting etcd-r1"}},
		"a program that ends at once":        {programs: map[Program]string{Etcd: "exit 1"}, start: []Program{Etcd}, want: []string{"etcd-r1.log", "it ended"}, started: 1},
		"no program of a control plane":      {start: []Program{"kubelet"}, want: []string{"kubelet is no program"}},
		"the one after one that does not":    {programs: map[Program]string{Scheduler: "exec sleep 60"}, start: []Program{Scheduler, Etcd}, want: []string{"etcd-r1"}, started: 1},
		"an API server that ends at once":    {programs: map[Program]string{APIServer: "exit 1"}, start: []Program{APIServer, Scheduler}, want: []string{"kube-apiserver-r1.log"}, started: 1},
		"a controller manager of a bad name": {start: []Program{""}, want: []string{"is no program"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := withPrograms(t, tc.programs)
			started, err := c.Start(t.Context(), tc.start...)
			for _, process := range started {
				process.Kill()
			}
			require.Len(t, started, tc.started)
			for _, want := range tc.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

// TestReservePorts listens on a reserved port as programs do, which share it, and as others do, who cannot.
func TestReservePorts(t *testing.T) {
	t.Parallel()
	ports, release, err := ReservePorts()
	require.NoError(t, err)
	t.Cleanup(release)
	all := []int{ports.APIServer, ports.Etcd, ports.EtcdPeers, ports.ControllerManager, ports.Scheduler}
	seen := map[int]bool{}
	for _, port := range all {
		require.Positive(t, port)
		seen[port] = true
	}
	require.Len(t, seen, len(all))

	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(ports.Etcd))
	var config net.ListenConfig
	_, err = config.Listen(t.Context(), "tcp", address)
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	config.Control = func(_, _ string, connection syscall.RawConn) error {
		var set error
		if err := connection.Control(func(socket uintptr) { set = share(int(socket)) }); err != nil {
			return err
		}
		return set
	}
	shared, err := config.Listen(t.Context(), "tcp", address)
	require.NoError(t, err)
	accepted := make(chan error, 1)
	go func() {
		connection, err := shared.Accept()
		if err == nil {
			err = connection.Close()
		}
		accepted <- err
	}()
	var dialer net.Dialer
	connection, err := dialer.DialContext(t.Context(), "tcp", address)
	require.NoError(t, err, "the reservation takes no connections")
	require.NoError(t, <-accepted)
	require.NoError(t, connection.Close())
	require.NoError(t, shared.Close())
}
