// Package pool starts pools for tests: control planes (test/controlplane), fake nodes, which kwok plays, vc-scheduler
// and a syncer for each super cluster, with the rights that they have in a pod. A bed calls the steps one after the
// other, and does between them what is its own:
//
//	New ► StartControlPlanes ► Join, for each super cluster ► StartPrograms ► Import ► … ► Stop
//
// All are processes in groups of their own, below one folder of all state. Stop ends them and removes it.
package pool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/test/controlplane"
	"github.com/superpool/superpool/test/controlplane/launch"
)

// Options say what a pool is like.
type Options struct {
	// Supers are the ids of the super clusters, at most 9, Tenants the names of the tenants.
	Supers, Tenants []string
	// Lean leaves the meta cluster and the tenants without controllers, and lets the tenants share an etcd.
	Lean bool
	// Unlimited is controlplane.Options.Unlimited of each.
	Unlimited bool
	// Front returns the URL by which our programs reach a control plane; nil is that of its API server.
	Front func(ctx context.Context, c *Cluster) (string, error)
	// Flags returns the flags of one of our programs besides; nil is none. Environment are variables of all, as
	// NAME=value.
	Flags       func(program string) ([]string, error)
	Environment []string
	// Source is the folder of the source tree, built, whose programs, CRDs and rights the pool has; "" is this one.
	Source string
	// Policy returns the TenantPolicy of a tenant, "" for the default; nil is the default of all.
	Policy func(tenant string) string
	// Log gets a line for what a pool does.
	Log io.Writer
	// Folder gets the folder of all state; "" is /dev/shm where there is one, so that etcd writes to memory.
	Folder string
	// Keep is a folder to which Stop copies the logs of our programs and of what Run starts, and below the name of each
	// control plane those of its programs; "" for nowhere.
	Keep string
}

// MetaName is the name of the meta cluster.
const MetaName = "meta"

// Pool is one that runs.
type Pool struct {
	options Options
	// root is the folder of this repository.
	root string
	// Folder holds all state.
	Folder          string
	Meta            *Cluster
	Supers, Tenants []*Cluster
	// Programs are ours: vc-scheduler, then the syncers, as syncer-ID.
	Programs []*Program

	mu    sync.Mutex
	stops []func()
	// stopping is whether Stop was called, so that nothing is launched any more.
	stopping bool
	notKept  error // of keep
}

// Cluster is a control plane of a pool.
type Cluster struct {
	*controlplane.ControlPlane
	// Name is MetaName, the id of a super cluster or the name of a tenant.
	Name string
	// Client reaches the control plane itself, as its administrator.
	Client client.WithWatch
	// Kwok plays the nodes of a super cluster, from Join on.
	Kwok *Program

	// front is the URL by which our programs reach it, "" for its own.
	front string
}

// Program is one that can be started again, and of which a copy can be started beside it.
type Program struct {
	Name    string
	Process *launch.Process
	// binary is the file of the program, command what starts it by a link to that, which has its name.
	binary  string
	command []string
	// stopped is one that is not meant to run.
	stopped bool
}

// New makes the folder of a pool.
func New(options Options) (*Pool, error) {
	parent := options.Folder
	if _, err := os.Stat("/dev/shm"); parent == "" && err == nil {
		parent = "/dev/shm"
	}
	folder, err := os.MkdirTemp(parent, "superpool-pool")
	if err != nil {
		return nil, fmt.Errorf("making the folder of a pool: %w", err)
	}
	root, err := controlplane.Root()
	if options.Source == "" {
		options.Source = root
	}
	return &Pool{options: options, root: root, Folder: folder}, err
}

// Say writes a line with the time to the log.
func (p *Pool) Say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = fmt.Fprintf(p.options.Log, time.Now().Format(time.TimeOnly)+" "+format+"\n", args...)
}

// OnStop lets Stop call stop, before all that was started until now ends.
func (p *Pool) OnStop(stop func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stops = append(p.stops, stop)
}

// Stop ends all processes, keeps the logs and removes the folder.
func (p *Pool) Stop() error {
	p.mu.Lock()
	p.stopping = true
	stops := p.stops
	p.mu.Unlock()
	for _, stop := range slices.Backward(stops) {
		stop()
	}
	return errors.Join(p.notKept, os.RemoveAll(p.Folder))
}

// all returns our programs and each kwok.
func (p *Pool) all() []*Program {
	all := slices.Clone(p.Programs)
	for _, super := range p.Supers {
		if super.Kwok != nil {
			all = append(all, super.Kwok)
		}
	}
	return all
}

// keep copies the logs of processes to a folder below Options.Keep.
func (p *Pool) keep(below string, processes ...*launch.Process) {
	if p.options.Keep == "" {
		return
	}
	for _, process := range processes {
		p.notKept = errors.Join(p.notKept, copyTo(filepath.Join(p.options.Keep, below), process.Log))
	}
}

// copyTo copies a file to a folder.
func copyTo(folder, file string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, filepath.Base(file)), content, 0o644) //nolint:gosec // logs are for readers
}

// Clusters returns all control planes.
func (p *Pool) Clusters() []*Cluster { return slices.Concat([]*Cluster{p.Meta}, p.Supers, p.Tenants) }

// StartControlPlanes starts all control planes.
func (p *Pool) StartControlPlanes(ctx context.Context) error {
	names := slices.Concat([]string{MetaName}, p.options.Supers, p.options.Tenants)
	options, err := p.controlPlanes(ctx)
	if err != nil {
		return err
	}
	p.Say("Starting %d control planes", len(options))
	// The etcd of the first tenant of a lean pool is that of all.
	first := len(options)
	if p.options.Lean {
		first = min(first, 1+len(p.options.Supers)+1)
	}
	started, err := p.start(options[:first])
	if err != nil {
		return err
	}
	if first < len(options) {
		for i := range options[first:] {
			options[first+i].EtcdOf = started[first-1]
		}
		beside, err := p.start(options[first:])
		if err != nil {
			return err
		}
		started = append(started, beside...)
	}
	var clusters []*Cluster
	for i, plane := range started {
		made, err := p.connect(ctx, names[i], plane)
		if err != nil {
			return fmt.Errorf("connecting to %s: %w", names[i], err)
		}
		clusters = append(clusters, made)
	}
	supers := len(p.options.Supers)
	p.Meta, p.Supers, p.Tenants = clusters[0], clusters[1:1+supers], clusters[1+supers:]
	return nil
}

// controlPlanes returns how to start meta, the super clusters and the tenants. Only super clusters have nodes, so only
// they have a kube-scheduler. Without controllers nobody takes off the taint that Nodes are created with. Services have
// addresses that no pod has (Join).
func (p *Pool) controlPlanes(ctx context.Context) ([]controlplane.Options, error) {
	crds, err := controlplane.MetaCRDsOf(ctx, p.options.Source)
	if err != nil {
		return nil, err
	}
	side := controlplane.Options{Role: controlplane.Tenant, Manager: !p.options.Lean}
	if p.options.Lean {
		side.DisableAdmission = []string{"TaintNodesByCondition"}
	}
	options := []controlplane.Options{side}
	options[0].Role, options[0].CRDs = controlplane.Meta, crds
	for range p.options.Supers {
		options = append(options, controlplane.Options{Role: controlplane.Super, Controllers: true, ServiceClusterIPRange: "10.96.0.0/16"})
	}
	for i := range p.options.Tenants {
		side.ServiceClusterIPRange = fmt.Sprintf("10.96.%d.0/24", 128+i)
		options = append(options, side)
	}
	for i := range options {
		options[i].Unlimited = p.options.Unlimited
		options[i].AdvertiseAddress = fmt.Sprintf("192.0.2.%d", 1+i) // one for documents
	}
	return options, nil
}

// start starts control planes at once.
func (p *Pool) start(options []controlplane.Options) ([]*controlplane.ControlPlane, error) {
	started, stop, err := controlplane.StartIn(p.Folder, options...)
	p.OnStop(stop)
	return started, err
}

// connect makes the client of a control plane, and asks how our programs reach it.
func (p *Pool) connect(ctx context.Context, name string, plane *controlplane.ControlPlane) (*Cluster, error) {
	p.OnStop(func() { plane.Stop(); p.keep(name, plane.Processes()...) }) // their logs go with them
	made := &Cluster{ControlPlane: plane, Name: name}
	config := rest.CopyConfig(plane.Config)
	config.QPS = -1
	var err error
	if made.Client, err = client.NewWithWatch(config, client.Options{Scheme: controlplane.Scheme()}); err != nil {
		return nil, err
	}
	if p.options.Front != nil {
		made.front, err = p.options.Front(ctx, made)
	}
	return made, err
}

// through returns a kubeconfig as our programs use it.
func (c *Cluster) through(kubeconfig []byte) ([]byte, error) {
	if c.front == "" {
		return kubeconfig, nil
	}
	return controlplane.Through(kubeconfig, c.front)
}

// Run starts a program of bin/ under a name of its own, which is also what its requests say of who asks. Stop kills it,
// and keeps its log.
func (p *Pool) Run(name, binary string, args ...string) (*Program, error) {
	program := p.prepare(name, filepath.Join(p.root, "bin", binary), args...)
	return program, p.Launch(program)
}

// prepare returns a program that does not run yet, and whose log Stop keeps.
func (p *Pool) prepare(name, binary string, args ...string) *Program {
	program := &Program{Name: name, binary: binary, command: append([]string{filepath.Join(p.Folder, name)}, args...)}
	p.OnStop(func() {
		if program.Process != nil {
			p.keep("", program.Process)
		}
	})
	return program
}

// Launch starts a program again that has ended. It returns an error once Stop was called.
func (p *Pool) Launch(program *Program) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopping {
		return errors.New("the pool is being stopped")
	}
	link := filepath.Join(p.Folder, program.Name)
	if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Symlink(program.binary, link); err != nil {
		return err
	}
	process, err := launch.Run(p.Folder, program.Name, program.command)
	if err != nil {
		return err // the process that has ended stays
	}
	program.Process, program.stopped = process, false
	p.stops = append(p.stops, process.Kill)
	return nil
}

// patience bounds what a pool does while it starts.
const patience = 5 * time.Minute

// Eventually waits until done returns no error, which says what is missing, at most for five minutes. It returns an
// error at once when one of our programs, or a kwok, has ended.
func (p *Pool) Eventually(ctx context.Context, done func(ctx context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		if err := p.Ended(); err != nil {
			return false, err
		}
		last = done(ctx)
		return last == nil, nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}

// Ended returns an error with the end of its log if one of our programs, or a kwok that is meant to run, has ended.
func (p *Pool) Ended() error {
	for _, program := range p.all() {
		if program.stopped || !program.Process.Ended() {
			continue
		}
		content, err := os.ReadFile(program.Process.Log)
		if err != nil {
			return err
		}
		return fmt.Errorf("%s ended: %s", program.Name, content[max(0, len(content)-2000):])
	}
	return nil
}
