package forecast

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
	"github.com/superpool/superpool/internal/simulation"
	"github.com/superpool/superpool/internal/slice"
)

// explaining is what is explained.
type explaining struct {
	profiles Profiles
	format   cli.Output
	// tenant is a VirtualCluster, as name or namespace/name, "" where --namespace is the root namespace.
	tenant string
	// size, file and pod say what a pod requests, which file has one, and how one of the tenant is named: one of them
	// at most.
	size, file, pod string
}

// explain returns the command that says why a namespace waits.
func (c *verbs) explain() *cobra.Command {
	var e explaining
	command := cli.Completed(&cobra.Command{
		Use:   "explain NAMESPACE --tenant NAME",
		Short: "Say where a tenant's namespace is, what is missing of it, and why each super cluster is refused",
		Long: `explain reads the virtual Nodes and NamespacePlacements of the meta cluster, tries what is missing of one namespace in memory beside what
all others hold now, and prints what comes out, with figures, and its place among all that wait. It writes nothing. Your kubeconfig must
allow to list nodes and namespaceplacements, to get virtualclusters for --tenant, and for --pod-name to get the Secret with the tenant's
kubeconfig. Where vc-scheduler has another configuration of the namespace scheduler than is shipped, name it.

--tenant is a VirtualCluster of the namespace that is meant, or NAMESPACE/NAME. Without it --namespace is the tenant's root namespace.

It exits with 0 if nothing is missing or all fits, with 3 if something does not, and with 1 if it could not tell.`,
		Example: `  # Why does namespace web of tenant acme wait?
  kubectl vc explain web --tenant acme

  # The same by the tenant's root namespace
  kubectl vc explain web -n default-c8b1a5-acme -o json

  # Which slices would have to move for a pod of 3 CPUs?
  kubectl vc explain web -t acme --pod '{"cpu":"3"}'

  # Which super clusters have the labels, taints and size that a pod of the tenant demands?
  kubectl vc explain web -t acme --pod-name p

  # And one that is not there yet?
  kubectl vc explain web -t acme --pod-file pod.yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error { return c.runExplain(command.Context(), &e, args[0]) },
	}, c.NamesIn(&schedulerv1alpha1.NamespacePlacementList{}, func(ctx context.Context, cluster client.Reader, namespace string) (string, error) {
		root, _, err := c.rootOf(ctx, cluster, namespace, &e)
		return root, err
	}))
	command.Flags().StringVarP(&e.tenant, "tenant", "t", "", "VirtualCluster of the tenant, as NAME or NAMESPACE/NAME")
	command.Flags().StringVar(&e.size, "pod", "", `what a pod of the namespace requests, such as {"cpu":"3"}: say which slices would have to move for it`)
	command.Flags().StringVar(&e.file, "pod-file", "", "file with a Pod of the namespace, in place of --pod: say what super clusters lack for it, too")
	command.Flags().StringVar(&e.pod, "pod-name", "", "name of a pod that the namespace has in the tenant's control plane, in place of --pod-file")
	e.format.AddTo(command, cli.OutputJSON, cli.OutputYAML)
	e.profiles.AddFlags(command.Flags())
	_ = command.RegisterFlagCompletionFunc("tenant", c.Names(&tenancyv1alpha1.VirtualClusterList{})) // the flag is there
	return command
}

func (c *verbs) runExplain(ctx context.Context, e *explaining, namespace string) error {
	isNamed := ptr.Deref(c.Flags.Namespace, "") != ""
	switch {
	case e.tenant == "" && !isNamed:
		return errors.New("either --tenant or --namespace must name the tenant: kubectl vc list -A")
	case e.tenant == "" && e.pod != "":
		return errors.New("--pod-name is of a --tenant")
	case isNamed && strings.Contains(e.tenant, "/"):
		return errors.New("--tenant and --namespace name two namespaces")
	}
	pod, err := e.read()
	if err != nil {
		return err
	}
	cfg, err := e.profiles.Load()
	if err != nil {
		return err
	}
	cluster, current, err := c.Connect()
	if err != nil {
		return err //nolint:wrapcheck // it says what it did
	}
	return c.say(ctx, cluster, cfg, e, types.NamespacedName{Namespace: current, Name: namespace}, pod)
}

// say explains a namespace of the tenant, and what there is for a pod, nil for none or that of --pod-name. asked is the
// namespace, in the namespace of the meta cluster that is meant.
func (c *verbs) say(
	ctx context.Context, cluster client.Client, cfg *config.KubeSchedulerConfiguration, e *explaining, asked types.NamespacedName, pod *corev1.Pod,
) error {
	root, vc, err := c.rootOf(ctx, cluster, asked.Namespace, e)
	if err != nil {
		return err
	}
	if e.pod != "" {
		if pod, err = podOf(ctx, cluster, vc, asked.Name, e.pod); err != nil {
			return err
		}
	}
	pool, err := c.Pool(ctx, cluster)
	if err != nil {
		return err //nolint:wrapcheck // it says what it did
	}
	why, err := Explain(ctx, c.CLI, cfg, pool, types.NamespacedName{Namespace: root, Name: asked.Name}, pod)
	if err != nil {
		return err
	}
	return errors.Join(c.Show(e.format, why, nil, why.Print), why.Err())
}

// Explain tries what is missing of a namespace, and what there is for a pod, nil for none.
func Explain(
	ctx context.Context, c *cli.CLI, cfg *config.KubeSchedulerConfiguration, pool *simulation.Pool, key types.NamespacedName, pod *corev1.Pod,
) (why *simulation.Explanation, err error) {
	err = c.Doing(trying(pool), func() error {
		if why, err = simulation.Explain(quiet(ctx), cfg, pool, key); err != nil || pod == nil {
			return err //nolint:wrapcheck // it says what was explained
		}
		why.Pod, err = simulation.ExplainPod(quiet(ctx), cfg, pool, key, pod)
		return err //nolint:wrapcheck // as above
	})
	return why, err //nolint:wrapcheck // as above
}

// rootOf returns the root namespace of the tenant, and its VirtualCluster, nil where the namespace that is meant is the
// root namespace.
func (c *verbs) rootOf(ctx context.Context, cluster client.Reader, namespace string, e *explaining) (string, *tenancyv1alpha1.VirtualCluster, error) {
	if e.tenant == "" {
		return namespace, nil, nil
	}
	name := e.tenant
	if before, after, isCut := strings.Cut(e.tenant, "/"); isCut {
		namespace, name = before, after
	}
	if namespace == "" || name == "" || strings.Contains(name, "/") {
		return "", nil, fmt.Errorf("--tenant: %q is no NAME and no NAMESPACE/NAME", e.tenant)
	}
	vc, err := cli.VirtualCluster(ctx, cluster, namespace, name)
	if err != nil {
		return "", nil, fmt.Errorf("--tenant: %w", err)
	}
	return cli.RootOf(vc), vc, nil
}

// read returns the pod of --pod or --pod-file, nil for none.
func (e *explaining) read() (*corev1.Pod, error) {
	named := 0
	for _, flag := range []string{e.size, e.file, e.pod} {
		if flag != "" {
			named++
		}
	}
	switch {
	case named > 1:
		return nil, errors.New("--pod, --pod-file and --pod-name each name a pod: give one of them")
	case e.size != "":
		size, err := slice.ParseSize(e.size)
		if err != nil {
			return nil, fmt.Errorf("--pod: %w", err)
		}
		return simulation.PodOf(size), nil
	case e.file == "":
		return nil, nil //nolint:nilnil // none is asked about
	}
	manifest, err := os.ReadFile(e.file)
	if err != nil {
		return nil, fmt.Errorf("--pod-file: %w", err)
	}
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict(manifest, pod); err != nil {
		return nil, fmt.Errorf("--pod-file: %w", err)
	}
	if pod.GroupVersionKind() != corev1.SchemeGroupVersion.WithKind("Pod") {
		return nil, fmt.Errorf("--pod-file: %s is no Pod", pod.GroupVersionKind())
	}
	return pod, nil
}

// podOf reads a pod of a tenant from its control plane, whose answer is bounded.
func podOf(ctx context.Context, cluster client.Client, vc *tenancyv1alpha1.VirtualCluster, namespace, name string) (*corev1.Pod, error) {
	admin, err := cli.Administrator(ctx, cluster, vc)
	if err != nil {
		return nil, fmt.Errorf("--pod-name: %w", err)
	}
	api, err := cli.Tenant(admin)
	if err != nil {
		return nil, fmt.Errorf("--pod-name: %w", err)
	}
	pod, err := api.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("--pod-name: reading pod %s of namespace %s of the tenant: %w", name, namespace, err)
	}
	return pod, nil
}
