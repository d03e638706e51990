package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/test/controlplane"
	"github.com/superpool/superpool/test/pool"
)

// patience bounds one step of a soak.
const patience = 5 * time.Minute

// cluster is a control plane of the bed, reached without faults.
type cluster struct {
	name    string
	pooled  *pool.Cluster
	client  client.WithWatch
	typed   *kubernetes.Clientset
	dynamic dynamic.Interface
	proxy   *proxy
}

// bed is the pool, and all that it runs on.
type bed struct {
	*pool.Pool
	options Options
	auditor *auditor
	// ids are those of the super clusters.
	ids []string
	// random is what weather and faults are drawn from.
	random *rand.Rand

	meta            *cluster
	supers, tenants []*cluster
	// before names the objects of meta and super clusters without tenants.
	before   map[string]bool
	programs []*program
}

// program is one of ours.
type program struct {
	*pool.Program
	// starts is how often it was started again, and kills how often it was killed before.
	starts, kills int
}

// newBed makes a bed; elect is whether our programs elect leaders.
func newBed(options Options, out io.Writer, elect bool) (b *bed, err error) {
	b = &bed{options: options, random: rand.New(rand.NewPCG(options.Seed, 1))} //nolint:gosec // it is to be repeated
	var tenants []string
	for i := range options.SuperClusters {
		b.ids = append(b.ids, fmt.Sprintf("r%d", i+1))
	}
	for i := range options.Tenants {
		tenants = append(tenants, fmt.Sprintf("t%d", i+1))
	}
	b.auditor = newAuditor(b.ids)
	b.Pool, err = pool.New(pool.Options{
		Supers: b.ids, Tenants: tenants, Policy: func(string) string { return policyName }, Log: out, Folder: options.Folder, Keep: options.Keep, Front: b.front,
		Flags: func(string) ([]string, error) { return []string{"--leader-elect=" + strconv.FormatBool(elect)}, nil },
	})
	return b, err
}

func (b *bed) clusters() []*cluster {
	return append(append([]*cluster{b.meta}, b.supers...), b.tenants...)
}

// start starts control planes, proxies and programs, and returns when the pool serves all tenants.
func (b *bed) start(ctx context.Context) error {
	begin := time.Now()
	if err := b.StartControlPlanes(ctx); err != nil {
		return err
	}
	if err := controlplane.Create(ctx, b.meta.client, tenantPolicy()); err != nil {
		return err
	}
	for _, super := range b.supers {
		if err := b.makeSuper(ctx, super); err != nil {
			return fmt.Errorf("making super cluster %s: %w", super.name, err)
		}
	}
	if err := b.StartPrograms(ctx); err != nil {
		return err
	}
	for _, p := range b.Programs {
		b.programs = append(b.programs, &program{Program: p})
	}
	if err := b.Eventually(ctx, b.claimed); err != nil {
		return fmt.Errorf("waiting for the syncers: %w", err)
	}
	var err error
	if b.before, err = b.inventory(ctx); err != nil {
		return err
	}
	if err := b.Import(ctx); err != nil {
		return fmt.Errorf("importing the tenants: %w", err)
	}
	b.Say("The pool serves %d tenants after %s", len(b.tenants), time.Since(begin).Round(time.Second))
	return nil
}

// front starts the proxy of a control plane.
func (b *bed) front(ctx context.Context, c *pool.Cluster) (string, error) {
	made, err := connect(c)
	if err != nil {
		return "", err
	}
	front, err := c.Front()
	if err != nil {
		return "", err
	}
	if made.proxy, err = startProxy(ctx, c.Name, front, rand.New(rand.NewPCG(b.random.Uint64(), 0)), b.auditor.wrote); err != nil { //nolint:gosec // it is to be repeated
		return "", err
	}
	b.OnStop(made.proxy.close)
	switch {
	case b.meta == nil:
		b.meta = made
	case slices.Contains(b.ids, c.Name):
		b.supers = append(b.supers, made)
	default:
		b.tenants = append(b.tenants, made)
	}
	return made.proxy.url, nil
}

func connect(c *pool.Cluster) (*cluster, error) {
	config := rest.CopyConfig(c.Config)
	config.QPS = -1
	made := &cluster{name: c.Name, pooled: c, client: c.Client}
	var errs [2]error
	made.typed, errs[0] = kubernetes.NewForConfig(config)
	made.dynamic, errs[1] = dynamic.NewForConfig(config)
	return made, errors.Join(errs[:]...)
}

const nodesOfSuper = 3

// makeSuper makes what a super cluster has, and registers it.
func (b *bed) makeSuper(ctx context.Context, super *cluster) error {
	if err := offer(ctx, super.client, b.options.Tenants); err != nil {
		return err
	}
	number := 1 + slices.Index(b.ids, super.name)
	if err := b.startCloud(ctx, super, number); err != nil {
		return err
	}
	var nodes []*corev1.Node
	for i := range nodesOfSuper {
		nodes = append(nodes, pool.Node(fmt.Sprintf("n%d", i), "cpu", "100", "memory", "400Gi", "pods", "500"))
	}
	// No two super clusters give one address: an endpoint in one would be taken for somebody else's pod in the other.
	cidr := fmt.Sprintf("10.%d.0.1/16", number)
	return b.Join(ctx, super.pooled, nodes, "--node-lease-duration-seconds", "40", "--cidr", cidr)
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

func (b *bed) virtualCluster(ctx context.Context, tenant *cluster) (*tenancyv1alpha1.VirtualCluster, error) {
	return b.VirtualCluster(ctx, tenant.pooled)
}

// eventually waits until done says so; its error says what is missing, and is returned if the time is over. Our
// programs may end meanwhile.
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
