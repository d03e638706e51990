package pool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	nodeutil "k8s.io/kubernetes/pkg/util/node"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/manifests/policies"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/controlplane"
)

// systemNamespace is where our programs have their accounts in super clusters.
const systemNamespace = "superpool-system"

// What grants our programs their rights, below manifests.
const (
	ofScheduler        = "base/vc-scheduler-rbac.yaml"
	ofSyncer           = "base/vc-syncer-rbac.yaml"
	ofSchedulerInSuper = "supercluster/vc-scheduler.yaml"
	ofSyncerInSuper    = "supercluster/syncer.yaml"
)

// Node returns a node that kwok plays. Its capacity are pairs: "cpu", "4".
func Node(name string, capacity ...string) *corev1.Node {
	return builders.Node(name, capacity...).Label(corev1.LabelHostname, name).Label(corev1.LabelOSStable, "linux").Obj()
}

// Interruptible returns a context that ends at a signal to end, and a minute before a test's time does, zero for never:
// processes of a pool end by Stop alone. Whoever reads the test's output may have ended at that signal, so that writes
// fail from then on, where the process would end.
func Interruptible(parent context.Context, deadline time.Time) (context.Context, context.CancelFunc) {
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(parent, os.Interrupt, syscall.SIGTERM)
	if deadline.IsZero() {
		return ctx, stop
	}
	ctx, cancel := context.WithDeadline(ctx, deadline.Add(-time.Minute))
	return ctx, func() { cancel(); stop() }
}

// Create creates the objects of a file, in YAML, with their statuses where their API keeps these.
func (c *Cluster) Create(ctx context.Context, content []byte) error {
	for documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096); ; {
		object := &unstructured.Unstructured{}
		if err := documents.Decode(&object.Object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading an object: %w", err)
		}
		if err := controlplane.Create(ctx, c.Client, object); err != nil {
			return err
		}
	}
}

// CreatePolicies creates the TenantPolicies that are shipped.
func (p *Pool) CreatePolicies(ctx context.Context) error {
	return fs.WalkDir(policies.All, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := policies.All.ReadFile(file)
		if err != nil {
			return err
		}
		return p.Meta.Create(ctx, content)
	})
}

// Join gives a super cluster nodes and registers it. flags are those of kwok. Its pods have addresses that those of no
// other super cluster have: a Service has endpoints where it is known whose they are.
func (p *Pool) Join(ctx context.Context, super *Cluster, nodes []*corev1.Node, flags ...string) error {
	// The syncer asks there whether Pod Security is enforced.
	own := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: systemNamespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}
	if err := controlplane.Create(ctx, super.Client, own, builders.SuperClusterInfo(super.Name)); err != nil {
		return err
	}
	for _, node := range nodes {
		if err := controlplane.CreateNode(ctx, super.Client, node); err != nil {
			return err
		}
	}
	kubeconfig := filepath.Join(p.Folder, super.Name+"-kwok.kubeconfig")
	if err := os.WriteFile(kubeconfig, super.KubeConfig, 0o600); err != nil {
		return err
	}
	kwok, err := p.Run("kwok-"+super.Name, "kwok", append([]string{
		"--kubeconfig", kubeconfig, "--manage-all-nodes", "--cidr", fmt.Sprintf("10.%d.0.1/16", 1+slices.Index(p.Supers, super)),
	}, flags...)...)
	if err != nil {
		return err
	}
	super.Kwok = kwok
	account, err := controlplane.AccountOf(ctx, super.ControlPlane, p.options.Source, ofSchedulerInSuper, systemNamespace, "vc-scheduler")
	if err != nil {
		return err
	}
	through, err := super.through(account.KubeConfig)
	if err != nil {
		return err
	}
	return controlplane.Create(ctx, p.Meta.Client, builders.KubeconfigSecret(super.Name+"-kubeconfig", through), builders.Cluster(super.Name))
}

// StopSuper kills all programs of a super cluster: an API server that is asked to end waits for its watches.
func (p *Pool) StopSuper(super *Cluster) {
	super.Kwok.stopped = true
	super.Kwok.Process.Kill()
	super.Stop()
}

// StartSuper starts them again, after StopSuper.
func (p *Pool) StartSuper(ctx context.Context, super *Cluster) error {
	if err := super.StartAgain(ctx); err != nil {
		return err
	}
	return p.Launch(super.Kwok)
}

// StartPrograms starts vc-scheduler and the syncers.
func (p *Pool) StartPrograms(ctx context.Context) error {
	scheduler, err := p.account(ctx, p.Meta, ofScheduler, "vc-manager", "vc-scheduler")
	if err != nil {
		return err
	}
	if err := p.add("vc-scheduler", "vc-scheduler", "--kubeconfig", scheduler); err != nil {
		return err
	}
	for _, super := range p.Supers {
		up, err := p.account(ctx, p.Meta, ofSyncer, "vc-manager", "vc-syncer-"+super.Name)
		if err != nil {
			return err
		}
		down, err := p.account(ctx, super, ofSyncerInSuper, systemNamespace, "syncer")
		if err != nil {
			return err
		}
		// A syncer ends where it does not find its own virtual Node.
		if err := p.Eventually(ctx, func(ctx context.Context) error { return p.offers(ctx, super.Name) }); err != nil {
			return fmt.Errorf("waiting for the virtual Node: %w", err)
		}
		if err := p.add("syncer-"+super.Name, "syncer", "--meta-kubeconfig", up, "--super-cluster-kubeconfig", down,
			"--feature-gates=SuperClusterPooling=true", "--vn-agent-port=0"); err != nil {
			return err
		}
	}
	return nil
}

// Apply gives the meta cluster the CRDs, and all accounts the rights, of another source tree.
func (p *Pool) Apply(ctx context.Context, source string) error {
	p.options.Source = source
	crds, err := controlplane.MetaCRDsOf(ctx, source)
	if err != nil {
		return err
	}
	if err := p.Meta.InstallCRDs(crds); err != nil {
		return err
	}
	if _, err := p.account(ctx, p.Meta, ofScheduler, "vc-manager", "vc-scheduler"); err != nil {
		return err
	}
	for _, super := range p.Supers {
		if _, err := p.account(ctx, p.Meta, ofSyncer, "vc-manager", "vc-syncer-"+super.Name); err != nil {
			return err
		}
		if _, err := p.account(ctx, super, ofSyncerInSuper, systemNamespace, "syncer"); err != nil {
			return err
		}
		if _, err := controlplane.AccountOf(ctx, super.ControlPlane, source, ofSchedulerInSuper, systemNamespace, "vc-scheduler"); err != nil {
			return err
		}
	}
	return nil
}

// Replace ends one of our programs, as a rollout does, and starts that of another source tree.
func (p *Pool) Replace(program *Program, source string) error {
	program.Process.Stop()
	program.binary = filepath.Join(source, "bin", filepath.Base(program.binary))
	return p.Launch(program)
}

// account writes the kubeconfig of a service account, and returns its file.
func (p *Pool) account(ctx context.Context, c *Cluster, manifest, namespace, name string) (string, error) {
	user, err := controlplane.AccountOf(ctx, c.ControlPlane, p.options.Source, manifest, namespace, name)
	if err != nil {
		return "", fmt.Errorf("making the account %s: %w", name, err)
	}
	kubeconfig, err := c.through(user.KubeConfig)
	if err != nil {
		return "", err
	}
	file := filepath.Join(p.Folder, c.Name+"-"+name+".kubeconfig")
	return file, os.WriteFile(file, kubeconfig, 0o600)
}

// offers returns an error while a virtual Node offers nothing.
func (p *Pool) offers(ctx context.Context, id string) error {
	node := &corev1.Node{}
	if err := p.Meta.Client.Get(ctx, client.ObjectKey{Name: id}, node); err != nil {
		return err
	}
	if node.Status.Allocatable.Cpu().IsZero() {
		return fmt.Errorf("virtual Node %s offers nothing", id)
	}
	return nil
}

// add starts one of our programs. It is alone, so it elects no leader, and a port that nobody asks is none.
func (p *Pool) add(name, binary string, args ...string) error {
	args = append(args, "--leader-elect=false", "--metrics-bind-address=0", "--pprof-bind-address=0", "--health-probe-bind-address=0", "-v=2")
	if p.options.Flags != nil {
		flags, err := p.options.Flags(name)
		if err != nil {
			return err
		}
		args = append(args, flags...) // the last of a name counts
	}
	program := p.prepare(name, filepath.Join(p.options.Source, "bin", binary), args...)
	if len(p.options.Environment) > 0 { // env becomes the program
		program.command = slices.Concat([]string{"env"}, p.options.Environment, program.command)
	}
	if err := p.Launch(program); err != nil {
		return err
	}
	p.Programs = append(p.Programs, program)
	return nil
}

// Import makes the VirtualClusters, and returns when the pool serves all tenants with all super clusters.
func (p *Pool) Import(ctx context.Context) error {
	for _, tenant := range p.Tenants {
		through, err := tenant.through(tenant.KubeConfig)
		if err != nil {
			return err
		}
		vc := builders.VirtualCluster(tenant.Name)
		if p.options.Policy != nil {
			vc.Spec.PolicyName = p.options.Policy(tenant.Name)
		}
		if err := controlplane.Create(ctx, p.Meta.Client, builders.KubeconfigSecret(tenant.Name, through), vc); err != nil {
			return err
		}
	}
	return p.Eventually(ctx, func(ctx context.Context) error { return errors.Join(p.tenantsReady(ctx), p.supersReady(ctx)) })
}

func (p *Pool) supersReady(ctx context.Context) error {
	for _, super := range p.Supers {
		node := &corev1.Node{}
		if err := p.Meta.Client.Get(ctx, client.ObjectKey{Name: super.Name}, node); err != nil {
			return err
		}
		if !nodeutil.IsNodeReady(node) {
			return fmt.Errorf("super cluster %s is not Ready", super.Name)
		}
	}
	return nil
}

func (p *Pool) tenantsReady(ctx context.Context) error {
	for _, tenant := range p.Tenants {
		vc, err := p.VirtualCluster(ctx, tenant)
		if err != nil {
			return err
		}
		if !apimeta.IsStatusConditionTrue(vc.Status.Conditions, tenancyv1alpha1.ConditionReady) {
			return fmt.Errorf("VirtualCluster %s is not ready: %s", vc.Name, conditions(vc.Status.Conditions))
		}
	}
	return nil
}

// VirtualCluster returns that of a tenant.
func (p *Pool) VirtualCluster(ctx context.Context, tenant *Cluster) (*tenancyv1alpha1.VirtualCluster, error) {
	vc := &tenancyv1alpha1.VirtualCluster{}
	return vc, p.Meta.Client.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: tenant.Name}, vc)
}

func conditions(list []metav1.Condition) string {
	var text []string
	for i := range list {
		text = append(text, fmt.Sprintf("%s=%s %s: %s", list[i].Type, list[i].Status, list[i].Reason, list[i].Message))
	}
	return strings.Join(text, "; ")
}
