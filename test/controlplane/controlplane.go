// Package controlplane starts the real API servers of integration tests: etcd and kube-apiserver from bin/, with
// controllers only where they are asked for. Package launch, below it, starts the processes, for tests and for the bed
// of real nodes (cmd/controlplane).
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/superpool/superpool/internal/pki"
	"github.com/superpool/superpool/test/controlplane/launch"
)

// Options describe one control plane.
type Options struct {
	// Role decides which version it has, see VersionsVariable.
	Role Role
	// CRDs are files and folders of CRDs to install; see SuperpoolCRDs.
	CRDs []string
	// DisableAdmission names admission plugins that need a controller which a test does not run. Without controllers
	// ServiceAccount is always one of them.
	DisableAdmission []string
	// Controllers runs kube-controller-manager and kube-scheduler too, Manager the former alone, where no nodes are.
	Controllers, Manager bool
	// Emulates is that of launch.ControlPlane.
	Emulates string
	// Unlimited lifts the bounds of the API server on requests in flight, and those of the controllers on their own.
	Unlimited bool
	// EtcdOf is a control plane that runs, in whose etcd the objects are, too, below a prefix of their own. nil: it has
	// an etcd of its own.
	EtcdOf *ControlPlane
	// ServiceClusterIPRange holds the addresses of Services, in CIDR notation; "" is 10.0.0.0/24.
	ServiceClusterIPRange string
	// AdvertiseAddress is that of launch.ControlPlane.
	AdvertiseAddress string
}

// ControlPlane is one that runs.
type ControlPlane struct {
	// Config and KubeConfig reach it as its administrator.
	Config     *rest.Config
	KubeConfig []byte

	url       string
	authority *pki.Authority
	files     *launch.ControlPlane
	programs  []launch.Program
	// apiServer is one of processes.
	apiServer *launch.Process
	processes []*launch.Process
}

// Processes returns the programs that run, each named PROGRAM-N, where N counts the options of Start.
func (c *ControlPlane) Processes() []*launch.Process { return slices.Clone(c.processes) }

// StopAPIServer kills its API server. etcd runs on.
func (c *ControlPlane) StopAPIServer() { c.apiServer.Kill() }

// StartAPIServer starts its API server again, after StopAPIServer.
func (c *ControlPlane) StartAPIServer(ctx context.Context) error {
	started, err := c.files.Start(ctx, launch.APIServer)
	c.add(started)
	return err
}

// StartControllers starts kube-controller-manager, after Start without Options.Controllers.
func (c *ControlPlane) StartControllers(ctx context.Context) error {
	started, err := c.files.Start(ctx, launch.ControllerManager)
	c.processes = append(c.processes, started...)
	return err
}

// add takes over processes that were started.
func (c *ControlPlane) add(started []*launch.Process) {
	c.processes = append(c.processes, started...)
	for _, process := range started {
		if strings.HasPrefix(process.Name, string(launch.APIServer)+"-") {
			c.apiServer = process
		}
	}
}

// Start starts one control plane for each of options, all at once. stop is never nil, and to be called even after an
// error.
func Start(options ...Options) (started []*ControlPlane, stop func(), err error) {
	return StartIn("", options...)
}

// StartIn is Start with all state in a new folder of parent; "" is the folder of temporary files.
func StartIn(parent string, options ...Options) (started []*ControlPlane, stop func(), err error) {
	root, err := Root()
	if err != nil {
		return nil, func() {}, err
	}
	folder, err := os.MkdirTemp(parent, "superpool-controlplanes")
	if err != nil {
		return nil, func() {}, fmt.Errorf("making a folder for control planes: %w", err)
	}
	errs, releases := make([]error, len(options)), make([]func(), len(options))
	var group sync.WaitGroup
	for i, option := range options {
		c := &ControlPlane{}
		started = append(started, c)
		group.Go(func() {
			release, err := c.start(root, folder, strconv.Itoa(i), option)
			if err != nil {
				errs[i] = fmt.Errorf("starting a control plane: %w", err)
			}
			releases[i] = release
		})
	}
	group.Wait()
	return started, func() {
		for i, c := range started {
			c.Stop()
			releases[i]()
		}
		if err := os.RemoveAll(folder); err != nil {
			fmt.Fprintln(os.Stderr, "removing the folder of control planes:", err)
		}
	}, errors.Join(errs...)
}

// start starts the programs. release gives their ports back, and is never nil.
func (c *ControlPlane) start(root, folder, name string, option Options) (release func(), err error) {
	bin, err := option.Role.programs(root, os.Getenv(VersionsVariable))
	if err != nil {
		return func() {}, err
	}
	ports, release, err := launch.ReservePorts()
	if err != nil {
		return release, err
	}
	files := &launch.ControlPlane{
		Name: name, Folder: folder, Bin: bin, Address: "127.0.0.1", Ports: ports, SharePorts: true,
		AdvertiseAddress: option.AdvertiseAddress, ServiceCIDR: option.ServiceClusterIPRange,
		DisableAdmission: slices.Clone(option.DisableAdmission), Emulates: option.Emulates, Unlimited: option.Unlimited,
	}
	c.programs = []launch.Program{launch.Etcd, launch.APIServer}
	if option.EtcdOf != nil {
		c.programs = c.programs[1:]
		files.Ports.Etcd, files.EtcdPrefix = option.EtcdOf.files.Ports.Etcd, "/beside-"+name
	}
	switch {
	case option.Controllers:
		c.programs = append(c.programs, launch.ControllerManager, launch.Scheduler)
	case option.Manager:
		c.programs = append(c.programs, launch.ControllerManager)
	default:
		files.DisableAdmission = append(files.DisableAdmission, "ServiceAccount")
	}
	if files.ServiceCIDR == "" {
		files.ServiceCIDR = "10.0.0.0/24"
	}
	c.files = files
	processes, err := files.Start(context.Background(), c.programs...) //nolint:forbidigo // a TestMain has no context
	c.add(processes)
	if err != nil {
		return release, err
	}
	c.url = files.URL()
	if c.authority, err = pki.LoadAuthority(filepath.Join(folder, "pki", name, "ca")); err != nil {
		return release, err
	}
	if c.KubeConfig, err = os.ReadFile(files.KubeconfigFile()); err != nil {
		return release, fmt.Errorf("reading the administrator's kubeconfig: %w", err)
	}
	if c.Config, err = restConfig(c.KubeConfig); err != nil {
		return release, err
	}
	if len(option.CRDs) == 0 {
		return release, nil
	}
	return release, c.InstallCRDs(option.CRDs)
}

// InstallCRDs creates the CRDs of files and folders, and updates those that there are.
func (c *ControlPlane) InstallCRDs(paths []string) error {
	// By itself it waits for ten seconds, which is little while several API servers start.
	_, err := envtest.InstallCRDs(c.Config, envtest.CRDInstallOptions{Paths: paths, ErrorIfPathMissing: true, MaxTime: 5 * time.Minute})
	return err
}

// Backup stops the control plane, copies its data to folder, which is not there yet, and starts it again.
func (c *ControlPlane) Backup(ctx context.Context, folder string) error {
	return c.whileStopped(ctx, func() error { return os.CopyFS(folder, os.DirFS(c.files.DataFolder())) })
}

// Restore stops the control plane, puts the data of a Backup in place of its own, and starts it again: what was written
// since is gone, and resource versions go back.
func (c *ControlPlane) Restore(ctx context.Context, folder string) error {
	return c.whileStopped(ctx, func() error {
		if err := os.RemoveAll(c.files.DataFolder()); err != nil {
			return err
		}
		return os.CopyFS(c.files.DataFolder(), os.DirFS(folder))
	})
}

func (c *ControlPlane) whileStopped(ctx context.Context, change func() error) error {
	c.Stop()
	if err := change(); err != nil {
		return fmt.Errorf("copying the data of a control plane: %w", err)
	}
	return c.StartAgain(ctx)
}

// StartAgain starts the programs of Start, after Stop.
func (c *ControlPlane) StartAgain(ctx context.Context) error {
	started, err := c.files.Start(ctx, c.programs...)
	c.processes = nil
	c.add(started)
	return err
}

// Stop kills the programs: an API server that is asked to end waits for its watches. Their data stay.
func (c *ControlPlane) Stop() {
	for _, process := range c.processes {
		process.Kill()
	}
}

// restConfig returns the configuration of clients that are not held back.
func restConfig(kubeconfig []byte) (*rest.Config, error) {
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading a kubeconfig: %w", err)
	}
	config.QPS, config.Burst = 1000, 2000
	return config, nil
}
