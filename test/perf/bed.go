package perf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/controlplane"
	"github.com/superpool/superpool/test/controlplane/launch"
)

// superID is the id of the super cluster.
const superID = "r1"

// bed is the pool, and all that it runs on.
type bed struct {
	options Options
	folder  string
	log     io.Writer
	stops   []func()

	meta    client.Client
	super   *kubernetes.Clientset
	tenants []*kubernetes.Clientset
	// programs are all processes.
	programs programs
	// ours are those of the pool.
	ours []*program
}

func (b *bed) say(format string, args ...any) {
	_, _ = fmt.Fprintf(b.log, time.Now().Format(time.TimeOnly)+" "+format+"\n", args...)
}

// stop ends all processes.
func (b *bed) stop() {
	if b.options.Keep != "" {
		for _, p := range b.ours {
			if content, err := os.ReadFile(p.process.Log); err == nil {
				_ = os.MkdirAll(b.options.Keep, 0o755)                                          // then nothing is written either
				_ = os.WriteFile(filepath.Join(b.options.Keep, p.group+".log"), content, 0o644) //nolint:gosec // logs are for readers
			}
		}
	}
	for i := len(b.stops) - 1; i >= 0; i-- {
		b.stops[i]()
	}
}

// start starts the control planes and our programs, and returns when the pool serves all tenants.
func (b *bed) start(ctx context.Context) error {
	begin := time.Now()
	options, err := b.controlPlanes(ctx)
	if err != nil {
		return err
	}
	b.say("Starting %d control planes", len(options))
	// The etcd of the first tenant is that of all.
	started, stop, err := controlplane.StartIn(b.folder, options[:3]...)
	b.stops = append(b.stops, stop)
	if err != nil {
		return err
	}
	for i := range options[3:] {
		options[3+i].EtcdOf = started[2]
	}
	beside, stop, err := controlplane.StartIn(b.folder, options[3:]...)
	b.stops = append(b.stops, stop)
	if err != nil {
		return err
	}
	started = append(started, beside...)
	for i, c := range started {
		b.programs.addControlPlane([]string{"meta", "super", "tenant"}[min(i, 2)], c)
	}
	if err := b.connect(started); err != nil {
		return err
	}
	if err := b.makeSuper(ctx, started[1]); err != nil {
		return fmt.Errorf("making the super cluster: %w", err)
	}
	if err := b.startPrograms(ctx, started[0], started[1]); err != nil {
		return err
	}
	for i := range b.tenants {
		name := tenantName(i)
		if err := controlplane.Create(ctx, b.meta, builders.KubeconfigSecret(name, started[2+i].KubeConfig), builders.VirtualCluster(name)); err != nil {
			return err
		}
	}
	if err := b.waitTenants(ctx); err != nil {
		return err
	}
	b.say("The pool serves %d tenants after %s", len(b.tenants), time.Since(begin).Round(time.Second))
	return nil
}

// controlPlanes returns how to start the control planes: meta, the super cluster, and those of the tenants. Tenants
// have no controllers, and share an etcd: those would cost the same without a pool, and most of what ten etcds use here
// is for their own sake.
func (b *bed) controlPlanes(ctx context.Context) ([]controlplane.Options, error) {
	crds, err := controlplane.MetaCRDs(ctx)
	if err != nil {
		return nil, err
	}
	without := []string{"TaintNodesByCondition"}
	options := []controlplane.Options{
		{CRDs: crds, DisableAdmission: without, Unlimited: true},
		{Controllers: true, Unlimited: true, ServiceClusterIPRange: "10.0.0.0/16"},
	}
	for range b.options.Tenants {
		options = append(options, controlplane.Options{DisableAdmission: without, Unlimited: true, ServiceClusterIPRange: "10.0.128.0/24"})
	}
	return options, nil
}

func tenantName(i int) string { return fmt.Sprintf("t%02d", i) }

func (b *bed) connect(started []*controlplane.ControlPlane) error {
	var err error
	if b.meta, err = client.New(started[0].Config, client.Options{Scheme: controlplane.Scheme()}); err != nil {
		return err
	}
	for i, c := range started[1:] {
		clients, err := clientset(c.Config)
		if err != nil {
			return err
		}
		if i == 0 {
			b.super = clients
		} else {
			b.tenants = append(b.tenants, clients)
		}
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

// makeSuper makes the super cluster's nodes and registers it.
func (b *bed) makeSuper(ctx context.Context, super *controlplane.ControlPlane) error {
	admin, err := client.New(super.Config, client.Options{Scheme: controlplane.Scheme()})
	if err != nil {
		return err
	}
	// The syncer asks there whether Pod Security is enforced.
	own := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "superpool-system", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}
	if err := controlplane.Create(ctx, admin, own, builders.SuperClusterInfo(superID)); err != nil {
		return err
	}
	for i := range b.options.Nodes {
		name := fmt.Sprintf("n%03d", i)
		node := builders.Node(name, "cpu", "1000", "memory", "1Ti", "pods", "2000").Label(corev1.LabelHostname, name).Label(corev1.LabelOSStable, "linux").Obj()
		if err := controlplane.CreateNode(ctx, admin, node); err != nil {
			return err
		}
	}
	kubeconfig := filepath.Join(b.folder, "super.kubeconfig")
	if err := os.WriteFile(kubeconfig, super.KubeConfig, 0o600); err != nil {
		return err
	}
	if err := b.launch("super kwok", "kwok", "--kubeconfig", kubeconfig, "--manage-all-nodes", "--node-lease-duration-seconds", "40"); err != nil {
		return err
	}
	account, err := controlplane.Account(ctx, super, "supercluster/vc-scheduler.yaml", "superpool-system", "vc-scheduler")
	if err != nil {
		return err
	}
	return controlplane.Create(ctx, b.meta, builders.KubeconfigSecret(superID+"-kubeconfig", account.KubeConfig), builders.Cluster(superID))
}

// launch starts a program of bin/ that is no part of a control plane.
func (b *bed) launch(group, name string, args ...string) error {
	_, err := b.launchProgram(group, name, nil, args...)
	return err
}

// launchProgram is launch with variables of the environment besides, as NAME=value.
func (b *bed) launchProgram(group, name string, variables []string, args ...string) (*program, error) {
	root, err := controlplane.Root()
	if err != nil {
		return nil, err
	}
	command := slices.Concat([]string{"env"}, variables, []string{filepath.Join(root, "bin", name)}, args) // env becomes the program
	process, err := launch.Run(b.folder, name, command)
	if err != nil {
		return nil, err
	}
	b.stops = append(b.stops, process.Kill)
	added := b.programs.add(group, process)
	added.command = command
	return added, nil
}

// startPrograms starts vc-scheduler and the syncer, with the rights that they have in a pod.
func (b *bed) startPrograms(ctx context.Context, meta, super *controlplane.ControlPlane) error {
	scheduler, err := b.account(ctx, meta, "base/vc-scheduler-rbac.yaml", "vc-manager", "vc-scheduler")
	if err != nil {
		return err
	}
	syncer, err := b.account(ctx, meta, "base/vc-syncer-rbac.yaml", "vc-manager", "vc-syncer-"+superID)
	if err != nil {
		return err
	}
	down, err := b.account(ctx, super, "supercluster/syncer.yaml", "superpool-system", "syncer")
	if err != nil {
		return err
	}
	if err := b.startOurs("vc-scheduler", "--kubeconfig", scheduler); err != nil {
		return err
	}
	args := []string{"--meta-kubeconfig", syncer, "--super-cluster-kubeconfig", down, "--feature-gates=SuperClusterPooling=true", "--vn-agent-port=0"}
	if b.options.Workers > 0 {
		args = append(args, "--concurrent-syncs="+strconv.Itoa(b.options.Workers))
	}
	// It ends where it does not find its virtual Node.
	if err := b.waitNode(ctx); err != nil {
		return err
	}
	return b.startOurs("syncer", args...)
}

// account writes the kubeconfig of a service account, and returns its file.
func (b *bed) account(ctx context.Context, c *controlplane.ControlPlane, manifest, namespace, name string) (string, error) {
	user, err := controlplane.Account(ctx, c, manifest, namespace, name)
	if err != nil {
		return "", fmt.Errorf("making the account %s: %w", name, err)
	}
	file := filepath.Join(b.folder, name+".kubeconfig")
	return file, os.WriteFile(file, user.KubeConfig, 0o600)
}

// startOurs starts one of our programs, with the garbage collector of its manifest.
func (b *bed) startOurs(name string, args ...string) error {
	ports := make([]string, 3)
	for i := range ports {
		port, err := freePort()
		if err != nil {
			return err
		}
		ports[i] = "127.0.0.1:" + strconv.Itoa(port)
	}
	p, err := b.launchProgram(name, name, []string{"GOGC=200"}, append(args, "--leader-elect=false", "--metrics-secure=false", "-v=2",
		"--metrics-bind-address="+ports[0], "--pprof-bind-address="+ports[1], "--health-probe-bind-address="+ports[2])...)
	if err != nil {
		return err
	}
	p.metrics, p.pprof = "http://"+ports[0]+"/metrics", "http://"+ports[1]+"/debug/pprof/"
	b.ours = append(b.ours, p)
	return nil
}

// freePort returns a port on which nobody listens.
func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is closed at once
	if err != nil {
		return 0, fmt.Errorf("looking for a port: %w", err)
	}
	return listener.Addr().(*net.TCPAddr).Port, listener.Close()
}

// patience bounds what a pool does while it starts.
const patience = 3 * time.Minute

// eventually waits until done says so; its error says what is missing, and is returned if the time is over.
func (b *bed) eventually(ctx context.Context, done func(ctx context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		for _, p := range b.ours {
			if p.process.Ended() {
				return false, fmt.Errorf("%s ended: %s", p.group, p.tail())
			}
		}
		last = done(ctx)
		return last == nil, nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}

func (b *bed) waitNode(ctx context.Context) error {
	return b.eventually(ctx, func(ctx context.Context) error {
		node := &corev1.Node{}
		if err := b.meta.Get(ctx, client.ObjectKey{Name: superID}, node); err != nil {
			return err
		}
		if node.Status.Allocatable.Cpu().IsZero() {
			return fmt.Errorf("virtual Node %s offers nothing", superID)
		}
		return nil
	})
}

func (b *bed) waitTenants(ctx context.Context) error {
	return b.eventually(ctx, func(ctx context.Context) error {
		for i := range b.tenants {
			vc := &tenancyv1alpha1.VirtualCluster{}
			if err := b.meta.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: tenantName(i)}, vc); err != nil {
				return err
			}
			if !apimeta.IsStatusConditionTrue(vc.Status.Conditions, tenancyv1alpha1.ConditionReady) {
				return fmt.Errorf("VirtualCluster %s is not ready: %s", vc.Name, conditions(vc.Status.Conditions))
			}
		}
		return nil
	})
}

func conditions(list []metav1.Condition) string {
	var text []string
	for i := range list {
		text = append(text, fmt.Sprintf("%s=%s %s: %s", list[i].Type, list[i].Status, list[i].Reason, list[i].Message))
	}
	return strings.Join(text, "; ")
}
