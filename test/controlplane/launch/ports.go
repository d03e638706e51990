package launch

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// ReservePorts finds free ports of 127.0.0.1, and holds them for programs of a ControlPlane with SharePorts until
// release is called: nobody else is given a port that is bound, and only who asks for sharing may listen on it.
func ReservePorts() (ports Ports, release func(), err error) {
	var held []int
	release = func() {
		for _, socket := range held {
			_ = unix.Close(socket) // nothing was written to it
		}
	}
	for _, port := range []*int{&ports.APIServer, &ports.Etcd, &ports.EtcdPeers, &ports.ControllerManager, &ports.Scheduler} {
		socket, bound, err := bind()
		if err != nil {
			release()
			return Ports{}, func() {}, fmt.Errorf("reserving a port: %w", err)
		}
		held, *port = append(held, socket), bound
	}
	return ports, release, nil
}

// bind returns a socket that has a port and does not listen on it.
func bind() (socket, port int, err error) {
	if socket, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0); err != nil {
		return 0, 0, err
	}
	unix.CloseOnExec(socket)
	var name unix.Sockaddr
	if err = share(socket); err == nil {
		if err = unix.Bind(socket, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err == nil {
			name, err = unix.Getsockname(socket)
		}
	}
	if err != nil {
		_ = unix.Close(socket) // the first error counts
		return 0, 0, err
	}
	return socket, name.(*unix.SockaddrInet4).Port, nil
}

// share lets others of the same user who ask for it, too, have the port of a socket.
func share(socket int) error {
	return unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
}
