package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/controlplane"
	"github.com/superpool/superpool/test/controlplane/launch"
)

// metaName is the name of the meta cluster's control plane. Those of super clusters have their ids.
const metaName = "meta"

// patience bounds what a pool does while it starts.
const patience = 5 * time.Minute

// cluster is a control plane of the bed, reached without faults.
type cluster struct {
	name    string
	plane   *controlplane.ControlPlane
	client  client.WithWatch
	typed   *kubernetes.Clientset
	dynamic dynamic.Interface
	proxy   *proxy
}

// bed is the pool, and all that it runs on.
type bed struct {
	options Options
	folder  string
	out     io.Writer
	auditor *auditor
	// ids are those of the super clusters.
	ids []string
	// elect is whether our programs elect leaders.
	elect bool
	stops []func()

	meta            *cluster
	supers, tenants []*cluster
	// before names the objects of meta and super clusters without tenants.
	before map[string]bool

	mu       sync.Mutex
	programs []*program
}

// program is one of ours.
type program struct {
	name    string
	command []string
	process *launch.Process
	// starts is how often it was started again, and kills how often it was killed before.
	starts, kills int
}

func (b *bed) say(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, _ = fmt.Fprintf(b.out, time.Now().Format(time.TimeOnly)+" "+format+"\n", args...)
}

// stop ends all processes.
func (b *bed) stop() {
	for i := len(b.stops) - 1; i >= 0; i-- {
		b.stops[i]()
	}
	for _, p := range b.programs {
		if p.process == nil {
			continue // it could not be started
		}
		p.process.Kill()
		if b.options.Keep != "" {
			if content, err := os.ReadFile(p.process.Log); err == nil {
				_ = os.MkdirAll(b.options.Keep, 0o755)                                         // then nothing is written either
				_ = os.WriteFile(filepath.Join(b.options.Keep, p.name+".log"), content, 0o644) //nolint:gosec // logs are for readers
			}
		}
	}
}

func (b *bed) clusters() []*cluster {
	return append(append([]*cluster{b.meta}, b.supers...), b.tenants...)
}

// start starts control planes, proxies and programs, and returns when the pool serves all tenants.
func (b *bed) start(ctx context.Context, random *rand.Rand) error {
	begin := time.Now()
	err := b.startControlPlanes(ctx)
	if err != nil {
		return err
	}
	for _, c := range b.clusters() {
		front, err := c.plane.Front()
		if err != nil {
			return err
		}
		if c.proxy, err = startProxy(ctx, c.name, front, rand.New(rand.NewPCG(random.Uint64(), 0)), b.auditor.wrote); err != nil { //nolint:gosec // it is to be repeated
			return err
		}
		b.stops = append(b.stops, c.proxy.close)
	}
	if err := controlplane.Create(ctx, b.meta.client, tenantPolicy()); err != nil {
		return err
	}
	for _, super := range b.supers {
		if err := b.makeSuper(ctx, super); err != nil {
			return fmt.Errorf("making super cluster %s: %w", super.name, err)
		}
	}
	if err := b.startPrograms(ctx); err != nil {
		return err
	}
	if err := b.eventually(ctx, patience, b.claimed); err != nil {
		return fmt.Errorf("waiting for the syncers: %w", err)
	}
	if b.before, err = b.inventory(ctx); err != nil {
		return err
	}
	for _, tenant := range b.tenants {
		if err := b.importTenant(ctx, tenant); err != nil {
			return err
		}
	}
	if err := b.eventually(ctx, patience, b.tenantsReady); err != nil {
		return fmt.Errorf("waiting for the tenants: %w", err)
	}
	b.say("The pool serves %d tenants after %s", len(b.tenants), time.Since(begin).Round(time.Second))
	return nil
}

func (b *bed) startControlPlanes(ctx context.Context) error {
	crds, err := controlplane.MetaCRDs(ctx)
	if err != nil {
		return err
	}
	without := []string{"TaintNodesByCondition"}
	options := []controlplane.Options{{CRDs: crds, DisableAdmission: without}}
	names := []string{metaName}
	for _, id := range b.ids {
		names = append(names, id)
		options = append(options, controlplane.Options{Controllers: true, ServiceClusterIPRange: "10.0.0.0/16"})
	}
	for i := range b.options.Tenants {
		names = append(names, fmt.Sprintf("t%d", i+1))
		options = append(options, controlplane.Options{DisableAdmission: without, ServiceClusterIPRange: fmt.Sprintf("10.0.%d.0/24", 128+i)})
	}
	b.say("Starting %d control planes", len(options))
	started, stop, err := controlplane.StartIn(b.folder, options...)
	b.stops = append(b.stops, stop)
	if err != nil {
		return err
	}
	for i, plane := range started {
		made, err := connect(names[i], plane)
		if err != nil {
			return err
		}
		switch {
		case i == 0:
			b.meta = made
		case i <= b.options.SuperClusters:
			b.supers = append(b.supers, made)
			continue // its controllers run
		default:
			b.tenants = append(b.tenants, made)
		}
		if err := plane.StartControllers(ctx); err != nil {
			return err
		}
	}
	return nil
}

func connect(name string, plane *controlplane.ControlPlane) (*cluster, error) {
	config := rest.CopyConfig(plane.Config)
	config.QPS = -1
	made := &cluster{name: name, plane: plane}
	var errs [3]error
	made.client, errs[0] = client.NewWithWatch(config, client.Options{Scheme: controlplane.Scheme()})
	made.typed, errs[1] = kubernetes.NewForConfig(config)
	made.dynamic, errs[2] = dynamic.NewForConfig(config)
	return made, errors.Join(errs[:]...)
}

// makeSuper makes a super cluster's nodes and registers it.
func (b *bed) makeSuper(ctx context.Context, super *cluster) error {
	// The syncer asks there whether Pod Security is enforced.
	own := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "superpool-system", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}
	if err := controlplane.Create(ctx, super.client, own, builders.SuperClusterInfo(super.name)); err != nil {
		return err
	}
	for i := range nodesOfSuper {
		name := fmt.Sprintf("n%d", i)
		node := builders.Node(name, "cpu", "100", "memory", "400Gi", "pods", "500").Label(corev1.LabelHostname, name).Label(corev1.LabelOSStable, "linux").Obj()
		if err := controlplane.CreateNode(ctx, super.client, node); err != nil {
			return err
		}
	}
	if err := offer(ctx, super.client, b.options.Tenants); err != nil {
		return err
	}
	number := 1 + slices.Index(b.ids, super.name)
	if err := b.startCloud(ctx, super, number); err != nil {
		return err
	}
	kubeconfig := filepath.Join(b.folder, super.name+"-kwok.kubeconfig")
	if err := os.WriteFile(kubeconfig, super.plane.KubeConfig, 0o600); err != nil {
		return err
	}
	// No two super clusters give one address: an endpoint in one would be taken for somebody else's pod in the other.
	cidr := fmt.Sprintf("10.%d.0.1/16", number)
	kwok, err := b.run("kwok-"+super.name, "kwok", "--kubeconfig", kubeconfig, "--manage-all-nodes", "--node-lease-duration-seconds", "40", "--cidr", cidr)
	if err != nil {
		return err
	}
	b.stops = append(b.stops, kwok.Kill)
	account, err := controlplane.Account(ctx, super.plane, "supercluster/vc-scheduler.yaml", "superpool-system", "vc-scheduler")
	if err != nil {
		return err
	}
	through, err := controlplane.Through(account.KubeConfig, super.proxy.url)
	if err != nil {
		return err
	}
	return controlplane.Create(ctx, b.meta.client, builders.KubeconfigSecret(super.name+"-kubeconfig", through), builders.Cluster(super.name))
}

const nodesOfSuper = 3

// importTenant makes the VirtualCluster of a tenant, whose kubeconfig leads through its proxy.
func (b *bed) importTenant(ctx context.Context, tenant *cluster) error {
	through, err := controlplane.Through(tenant.plane.KubeConfig, tenant.proxy.url)
	if err != nil {
		return err
	}
	vc := builders.VirtualCluster(tenant.name)
	vc.Spec.PolicyName = policyName
	return controlplane.Create(ctx, b.meta.client, builders.KubeconfigSecret(tenant.name, through), vc)
}

// run starts a program of bin under a name of its own, which is also what its requests say of who asks.
func (b *bed) run(name, binary string, args ...string) (*launch.Process, error) {
	root, err := controlplane.Root()
	if err != nil {
		return nil, err
	}
	link := filepath.Join(b.folder, name)
	if err := os.Symlink(filepath.Join(root, "bin", binary), link); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	return launch.Run(b.folder, name, append([]string{link}, args...))
}

// startPrograms starts vc-scheduler and the syncers, with the rights that they have in a pod, behind the proxies.
func (b *bed) startPrograms(ctx context.Context) error {
	scheduler, err := b.account(ctx, b.meta, "base/vc-scheduler-rbac.yaml", "vc-manager", "vc-scheduler")
	if err != nil {
		return err
	}
	if err := b.add("vc-scheduler", "vc-scheduler", "--kubeconfig", scheduler); err != nil {
		return err
	}
	for _, super := range b.supers {
		up, err := b.account(ctx, b.meta, "base/vc-syncer-rbac.yaml", "vc-manager", "vc-syncer-"+super.name)
		if err != nil {
			return err
		}
		down, err := b.account(ctx, super, "supercluster/syncer.yaml", "superpool-system", "syncer")
		if err != nil {
			return err
		}
		if err := b.eventually(ctx, patience, func(ctx context.Context) error { return b.offers(ctx, super.name) }); err != nil {
			return err
		}
		if err := b.add(syncerPrefix+super.name, "syncer", "--meta-kubeconfig", up, "--super-cluster-kubeconfig", down,
			"--feature-gates=SuperClusterPooling=true", "--vn-agent-port=0"); err != nil {
			return err
		}
	}
	return nil
}

// account writes the kubeconfig of a service account behind a proxy, and returns its file.
func (b *bed) account(ctx context.Context, c *cluster, manifest, namespace, name string) (string, error) {
	user, err := controlplane.Account(ctx, c.plane, manifest, namespace, name)
	if err != nil {
		return "", fmt.Errorf("making the account %s: %w", name, err)
	}
	through, err := controlplane.Through(user.KubeConfig, c.proxy.url)
	if err != nil {
		return "", err
	}
	file := filepath.Join(b.folder, c.name+"-"+name+".kubeconfig")
	return file, os.WriteFile(file, through, 0o600)
}

// add starts one of our programs.
func (b *bed) add(name, binary string, args ...string) error {
	p := &program{name: name, command: append([]string{binary}, append(args, "--leader-elect="+strconv.FormatBool(b.elect), "--metrics-bind-address=0",
		"--pprof-bind-address=0", "--health-probe-bind-address=0", "-v=2")...)}
	b.mu.Lock()
	b.programs = append(b.programs, p)
	b.mu.Unlock()
	return b.launch(p)
}

func (b *bed) launch(p *program) error {
	process, err := b.run(p.name, p.command[0], p.command[1:]...)
	if err != nil {
		return err // the one that has ended stays
	}
	p.process = process
	return nil
}

// offers returns an error while a virtual Node offers nothing. A syncer ends where it does not find its own.
func (b *bed) offers(ctx context.Context, id string) error {
	node := &corev1.Node{}
	if err := b.meta.client.Get(ctx, client.ObjectKey{Name: id}, node); err != nil {
		return err
	}
	if node.Status.Allocatable.Cpu().IsZero() {
		return fmt.Errorf("virtual Node %s offers nothing", id)
	}
	return nil
}

// claimed returns an error while a syncer has not yet written to its super cluster who decides there, or controllers
// have not made what they make in each namespace.
func (b *bed) claimed(ctx context.Context) error {
	for _, c := range append([]*cluster{b.meta}, b.supers...) {
		var namespaces corev1.NamespaceList
		if err := c.client.List(ctx, &namespaces); err != nil {
			return err
		}
		for i := range namespaces.Items {
			namespace := namespaces.Items[i].Name
			if err := errors.Join(
				c.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "default"}, &corev1.ServiceAccount{}),
				c.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "kube-root-ca.crt"}, &corev1.ConfigMap{}),
			); err != nil {
				return err
			}
		}
	}
	for _, super := range b.supers {
		if err := super.client.Get(ctx, client.ObjectKey{Namespace: "superpool-system", Name: "authority"}, &corev1.ConfigMap{}); err != nil {
			return err
		}
	}
	return nil
}

func (b *bed) tenantsReady(ctx context.Context) error {
	for _, tenant := range b.tenants {
		vc, err := b.virtualCluster(ctx, tenant)
		if err != nil {
			return err
		}
		if !apimeta.IsStatusConditionTrue(vc.Status.Conditions, tenancyv1alpha1.ConditionReady) {
			return fmt.Errorf("VirtualCluster %s is not ready: %v", vc.Name, vc.Status.Conditions)
		}
	}
	return nil
}

func (b *bed) virtualCluster(ctx context.Context, tenant *cluster) (*tenancyv1alpha1.VirtualCluster, error) {
	vc := &tenancyv1alpha1.VirtualCluster{}
	return vc, b.meta.client.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: tenant.name}, vc)
}

// eventually waits until done says so; its error says what is missing, and is returned if the time is over.
func (b *bed) eventually(ctx context.Context, patience time.Duration, done func(ctx context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		last = done(ctx)
		return last == nil, nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}
