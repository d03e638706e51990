// Package launch starts the programs of control planes: etcd, kube-apiserver, kube-controller-manager and
// kube-scheduler, as processes that outlive the caller. Whatever is asked of one later (a restart, the end) needs only
// its folder:
//
//	pki/NAME/             its certificates and keys, made when they are missing
//	etcd/NAME/            its data
//	NAME.kubeconfig       its administrator's
//	pids/PROGRAM-NAME     the process
//	logs/PROGRAM-NAME.log what it printed, after its command line
package launch

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/superpool/superpool/internal/controlplane"
)

// Program is one of the programs of a control plane.
type Program string

// The programs, in the order in which they start.
const (
	Etcd              Program = "etcd"
	APIServer         Program = "kube-apiserver"
	ControllerManager Program = "kube-controller-manager"
	Scheduler         Program = "kube-scheduler"
)

// patience is how long a program may take until it is ready, on a machine that has much else to do.
const patience = 5 * time.Minute

// ControlPlane says where one control plane lies and what it is like. Its fields are not changed after the first Start.
type ControlPlane struct {
	// Name is that of its files. It is unique in Folder.
	Name string
	// Folder holds its state, and can hold that of others. It is absolute.
	Folder string
	// Bin is the folder of the programs.
	Bin string
	// Address is where its API server listens. The other programs listen on 127.0.0.1: etcd serves everybody who
	// reaches it.
	Address string
	// AdvertiseAddress is the endpoint of its Service kubernetes. "" is Address; one of the machine itself is none.
	AdvertiseAddress string
	Ports            Ports
	// SharePorts lets programs listen on ports that ReservePorts holds.
	SharePorts bool
	// ServiceCIDR holds the addresses of its Services. The first of them is the API server's.
	ServiceCIDR string
	// ServiceNodePortRange holds the node ports of its Services, as <first>-<last>; "" is the API server's default.
	ServiceNodePortRange string
	// EtcdPrefix is below which its objects are in the etcd of another control plane, whose Ports.Etcd it has. "": it
	// has an etcd of its own.
	EtcdPrefix string
	// DisableAdmission names admission plugins that it does without.
	DisableAdmission []string
	// Emulates is the older minor version that its API server emulates, as "1.36"; "" is none.
	Emulates string
	// Unlimited lifts the bounds of its API server on requests in flight, and those of its controllers on their own.
	Unlimited bool
	// KubeletCA is the file (without .crt) of the authority of kubelets' serving certificates; "" is its own CA.
	KubeletCA string
	// KubeletClientCA is the file (without .crt and .key) of the authority that signs what its API server shows to
	// kubelets; "" is its own CA. With another's, the certificate names nobody until somebody replaces it.
	KubeletClientCA string
}

// Ports are those of a control plane's programs.
type Ports struct {
	APIServer, Etcd, EtcdPeers, ControllerManager, Scheduler int
}

// PortsFrom returns a block of ports that starts with first.
func PortsFrom(first int) Ports {
	return Ports{APIServer: first, Etcd: first + 1, EtcdPeers: first + 2, ControllerManager: first + 3, Scheduler: first + 4}
}

// KubeconfigFile returns the file of the administrator's kubeconfig.
func (c *ControlPlane) KubeconfigFile() string { return filepath.Join(c.Folder, c.Name+".kubeconfig") }

// DataFolder returns the folder of its etcd's data.
func (c *ControlPlane) DataFolder() string { return filepath.Join(c.Folder, "etcd", c.Name) }

// URL returns where its API server serves.
func (c *ControlPlane) URL() string {
	return "https://" + net.JoinHostPort(c.Address, strconv.Itoa(c.Ports.APIServer))
}

// FrontProxyFile returns the file (without .crt and .key) of the certificate by which its API server knows a proxy that
// says who asks.
func (c *ControlPlane) FrontProxyFile() string { return c.pki("front-proxy-client") }

// files is the folder of its certificates.
func (c *ControlPlane) files() controlplane.Files { return controlplane.Files(c.pki("")) }

// pki returns one of its files of certificates, without .crt and .key.
func (c *ControlPlane) pki(name string) string { return filepath.Join(c.Folder, "pki", c.Name, name) }

func (c *ControlPlane) etcdURL(port int) string { return "http://127.0.0.1:" + strconv.Itoa(port) }

// Start makes the certificates that are missing and starts programs one after the other, each when the former is ready.
// What it started runs on after an error, too; the processes that it returns are those.
func (c *ControlPlane) Start(ctx context.Context, programs ...Program) ([]*Process, error) {
	if err := c.ensurePKI(); err != nil {
		return nil, fmt.Errorf("making the certificates of %s: %w", c.Name, err)
	}
	var started []*Process
	for _, program := range programs {
		command, err := c.command(program)
		if err != nil {
			return started, err
		}
		process, err := Run(c.Folder, string(program)+"-"+c.Name, command)
		if err != nil {
			return started, err
		}
		started = append(started, process)
		if err := c.waitReady(ctx, program, process); err != nil {
			return started, err
		}
	}
	return started, nil
}

// waitReady waits until a program that just started answers.
func (c *ControlPlane) waitReady(ctx context.Context, program Program, process *Process) error {
	client, target, err := c.probe(program)
	if err != nil {
		return err
	}
	var last error
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		if process.Ended() {
			return false, errors.New("it ended")
		}
		last = get(ctx, client, target)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %s, see %s: %w", process.Name, process.Log, errors.Join(err, last))
	}
	return nil
}

// probe returns how to ask whether a program is ready. Those of controllers have certificates that they made
// themselves.
func (c *ControlPlane) probe(program Program) (*http.Client, string, error) {
	switch program {
	case Etcd:
		return http.DefaultClient, c.etcdURL(c.Ports.Etcd) + "/health", nil
	case APIServer:
		config, err := clientcmd.BuildConfigFromFlags("", c.KubeconfigFile())
		if err != nil {
			return nil, "", fmt.Errorf("reading the kubeconfig of %s: %w", c.Name, err)
		}
		client, err := rest.HTTPClientFor(config)
		return client, config.Host + "/readyz", err
	case ControllerManager:
		return selfSigned, c.healthURL(c.Ports.ControllerManager), nil
	case Scheduler:
		return selfSigned, c.healthURL(c.Ports.Scheduler), nil
	default:
		return nil, "", fmt.Errorf("there is no program %s", program)
	}
}

// selfSigned asks servers that nobody vouches for, on this machine.
var selfSigned = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // it sends nothing

func (c *ControlPlane) healthURL(port int) string {
	return "https://127.0.0.1:" + strconv.Itoa(port) + "/healthz"
}

func get(ctx context.Context, client *http.Client, target string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	if err := response.Body.Close(); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", target, response.Status)
	}
	return nil
}
