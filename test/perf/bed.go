package perf

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/superpool/superpool/test/pool"
)

// superID is the id of the super cluster.
const superID = "r1"

// patience bounds what a pool does before it is measured.
const patience = 3 * time.Minute

// bed is the pool, and all that it runs on. Its tenants have no controllers, and share an etcd: those would cost the
// same without a pool, and most of what ten etcds use here is for their own sake.
type bed struct {
	*pool.Pool
	options Options

	super   *kubernetes.Clientset
	tenants []*kubernetes.Clientset
	// programs are all processes.
	programs programs
	// ours are those of the pool, and probes where each of them says what it does.
	ours   []*program
	probes map[string]probes
}

// probes are the addresses of a program's metrics and profiles.
type probes struct{ metrics, pprof string }

func newBed(options Options, log io.Writer) (b *bed, err error) {
	b = &bed{options: options, probes: map[string]probes{}}
	var tenants []string
	for i := range options.Tenants {
		tenants = append(tenants, fmt.Sprintf("t%02d", i))
	}
	b.Pool, err = pool.New(pool.Options{
		Supers: []string{superID}, Tenants: tenants, Lean: true, Unlimited: true, Log: log, Folder: options.Folder, Keep: options.Keep,
		Flags: b.flags, Environment: []string{"GOGC=200"}, // that of its manifest
	})
	return b, err
}

// start starts the control planes and our programs, and returns when the pool serves all tenants.
func (b *bed) start(ctx context.Context) error {
	begin := time.Now()
	if err := b.StartControlPlanes(ctx); err != nil {
		return err
	}
	if err := b.connect(); err != nil {
		return err
	}
	var nodes []*corev1.Node
	for i := range b.options.Nodes {
		nodes = append(nodes, pool.Node(fmt.Sprintf("n%03d", i), "cpu", "1000", "memory", "1Ti", "pods", "2000"))
	}
	super := b.Supers[0]
	if err := b.Join(ctx, super, nodes, "--node-lease-duration-seconds", "40"); err != nil {
		return fmt.Errorf("making the super cluster: %w", err)
	}
	b.programs.add("super kwok", super.Kwok.Process)
	if err := b.StartPrograms(ctx); err != nil {
		return err
	}
	for _, p := range b.Programs {
		added := b.programs.add(strings.TrimSuffix(p.Name, "-"+superID), p.Process)
		added.pooled, added.metrics, added.pprof = p, "http://"+b.probes[p.Name].metrics+"/metrics", "http://"+b.probes[p.Name].pprof+"/debug/pprof/"
		b.ours = append(b.ours, added)
	}
	if err := b.Import(ctx); err != nil {
		return err
	}
	b.Say("The pool serves %d tenants after %s", len(b.tenants), time.Since(begin).Round(time.Second))
	return nil
}

// connect makes the clients of what pods are created in, and counts the programs of all control planes.
func (b *bed) connect() (err error) {
	if b.super, err = clientset(b.Supers[0].Config); err != nil {
		return err
	}
	for _, tenant := range b.Tenants {
		made, err := clientset(tenant.Config)
		if err != nil {
			return err
		}
		b.tenants = append(b.tenants, made)
	}
	for i, c := range b.Clusters() {
		b.programs.addControlPlane([]string{"meta", "super", "tenant"}[min(i, 2)], c.ControlPlane)
	}
	return nil
}

// clientset returns clients that cost the generator and the API servers as little as they can.
func clientset(config *rest.Config) (*kubernetes.Clientset, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return kubernetes.NewForConfig(config)
}

// flags gives one of our programs ports for its metrics and profiles.
func (b *bed) flags(name string) ([]string, error) {
	var found [2]string
	for i := range found {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		found[i] = "127.0.0.1:" + strconv.Itoa(port)
	}
	b.probes[name] = probes{metrics: found[0], pprof: found[1]}
	flags := []string{"--metrics-secure=false", "--metrics-bind-address=" + found[0], "--pprof-bind-address=" + found[1]}
	if b.options.Workers > 0 && name != "vc-scheduler" {
		flags = append(flags, "--concurrent-syncs="+strconv.Itoa(b.options.Workers))
	}
	return flags, nil
}

// freePort returns a port on which nobody listens.
func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is closed at once
	if err != nil {
		return 0, fmt.Errorf("looking for a port: %w", err)
	}
	return listener.Addr().(*net.TCPAddr).Port, listener.Close()
}
