package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/rest"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/superpool/superpool/internal/scheduling/rebalance"
	"github.com/superpool/superpool/internal/simulation"
	"github.com/superpool/superpool/internal/slice"
)

// ExitCode returns the exit code of the program for an error of its command.
func ExitCode(err error) int {
	var unfit *simulation.DoesNotFit
	switch {
	case err == nil:
		return 0
	case errors.As(err, &unfit):
		return unfit.ExitCode()
	}
	return 1
}

// maxMoves bounds how many slices one rebalance moves.
const maxMoves = 1000

// outputUsage is the usage of --output.
const outputUsage = "how to print: table or json"

func newSimulateCommand() *cobra.Command {
	options, from, output := NewOptions(), "", string(simulation.Table)
	var drained []string
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Place namespaces in memory, and print where they go, how full super clusters are, and what does not fit and why",
		Long: `simulate places what waits, and what is to leave super clusters that are drained, by the namespace scheduler's own code, and writes
nothing. Without --from it reads the virtual Nodes and NamespacePlacements of the meta cluster, which the kubeconfig must allow to list.
From the files of a directory it reads, one by one or in lists:

- virtual Nodes and NamespacePlacements, as "kubectl get nodes,nsp -A -o yaml" prints them for the meta cluster. A Node needs no more than
  a name, the label scheduler.tenancy.x-k8s.io/super-cluster and status.allocatable;
- Namespaces and ResourceQuotas of a tenant, from a directory that has the name of the tenant's root namespace, or any other name for a new
  tenant. They say what NamespacePlacements request, in place of what these say.

Files end in .yaml, .yml or .json. Priorities and weights of TenantPolicies are those in NamespacePlacements. What leaves a super cluster
stays reserved there until pods have left; what is placed in one that is cordoned or lost stays.

It exits with 0 if all fits, with 3 if something does not, and with 1 if it could not tell.`,
		Example: `  # What would move where, and what would not fit, if r1 were drained?
  vc-scheduler simulate --drain r1 --kubeconfig meta.kubeconfig

  # Would what waits fit if r1 were cordoned?
  mkdir pool && kubectl --kubeconfig meta.kubeconfig get nodes,namespaceplacements -A -o yaml > pool/meta.yaml
  $EDITOR pool/meta.yaml # set spec.unschedulable of Node r1
  vc-scheduler simulate --from pool

  # What if a tenant raises its quotas?
  mkdir pool/tenant-a && $EDITOR pool/tenant-a/quotas.yaml
  vc-scheduler simulate --from pool -o json`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			format, err := simulation.ParseFormat(output)
			if err != nil {
				return fmt.Errorf("--output: %w", err)
			}
			read, err := options.read()
			if err != nil {
				return err
			}
			ctx, err := quiet(cmd.Context(), options)
			if err != nil {
				return err
			}
			pool, err := poolOf(ctx, from, options.Kubeconfig, read.defaultSlice)
			if err != nil {
				return err
			}
			if err := pool.Drain(drained...); err != nil {
				return fmt.Errorf("--drain: %w", err)
			}
			report, err := simulation.Simulate(ctx, read.namespaceConfig, pool)
			if err != nil {
				return err //nolint:wrapcheck // it says what was simulated
			}
			return errors.Join(report.Print(cmd.OutOrStdout(), format), report.Err())
		},
	}
	cmd.Flags().StringVar(&from, "from", from, "directory with the objects; empty for those of the meta cluster")
	cmd.Flags().StringSliceVar(&drained, "drain", drained, "super clusters to drain, by the names of their virtual Nodes")
	cmd.Flags().StringVarP(&output, "output", "o", output, outputUsage)
	options.addKubeconfig(cmd.Flags())
	options.addNamespaceSchedulerConfig(cmd.Flags())
	options.addDefaultSlice(cmd.Flags())
	return cmd
}

// poolOf reads the files of a directory, or the meta cluster where from is empty.
func poolOf(ctx context.Context, from, kubeconfig string, defaultSlice slice.Amounts) (*simulation.Pool, error) {
	if from != "" {
		pool, err := simulation.Read(os.DirFS(from), defaultSlice)
		if err != nil {
			return nil, fmt.Errorf("--from %s: %w", from, err)
		}
		return pool, nil
	}
	meta, err := metaClient(kubeconfig)
	if err != nil {
		return nil, err
	}
	return livePool(ctx, meta)
}

func livePool(ctx context.Context, meta client.Reader) (*simulation.Pool, error) {
	pool, err := simulation.Live(ctx, meta)
	if err != nil {
		return nil, fmt.Errorf("the meta cluster: %w", err)
	}
	return pool, nil
}

func newExplainCommand() *cobra.Command {
	options, tenant, root, output, pod, manifest := NewOptions(), "", "", string(simulation.Table), "", ""
	cmd := &cobra.Command{
		Use:   "explain NAMESPACE",
		Short: "Say where a tenant's namespace is, what is missing of it, and why each super cluster is refused",
		Long: `explain reads the virtual Nodes and NamespacePlacements of the meta cluster, tries what is missing of one namespace in memory beside what
all others hold now, and prints what comes out, with figures. It writes nothing. The kubeconfig must allow to list nodes and
namespaceplacements, and virtualclusters for --tenant.

It exits with 0 if nothing is missing or all fits, with 3 if something does not, and with 1 if it could not tell.`,
		Example: `  # Why does namespace web of VirtualCluster vc-sample-1 wait?
  vc-scheduler explain web --tenant vc-sample-1 --kubeconfig meta.kubeconfig

  # The same by the tenant's root namespace
  vc-scheduler explain web -n default-c8b1a5-vc-sample-1 --kubeconfig meta.kubeconfig -o json

  # Which slices would have to move for a pod of 3 CPUs?
  vc-scheduler explain web --tenant vc-sample-1 --kubeconfig meta.kubeconfig --pod '{"cpu":"3"}'

  # Which super clusters have the labels, taints and size that a pod demands?
  kubectl --kubeconfig tenant.kubeconfig -n web get pod p -o yaml > pod.yaml
  vc-scheduler explain web --tenant vc-sample-1 --kubeconfig meta.kubeconfig --pod-file pod.yaml`,
		Args:         cobra.ExactArgs(1),
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			format, err := simulation.ParseFormat(output)
			if err != nil {
				return fmt.Errorf("--output: %w", err)
			}
			if (tenant == "") == (root == "") {
				return errors.New("either --tenant or --namespace must name the tenant")
			}
			asked, err := podAskedAbout(pod, manifest)
			if err != nil {
				return err
			}
			read, err := options.read()
			if err != nil {
				return err
			}
			ctx, err := quiet(cmd.Context(), options)
			if err != nil {
				return err
			}
			meta, err := metaClient(options.Kubeconfig)
			if err != nil {
				return err
			}
			if tenant != "" {
				if root, err = simulation.RootOf(ctx, meta, tenant); err != nil {
					return fmt.Errorf("--tenant: %w", err)
				}
			}
			pool, err := livePool(ctx, meta)
			if err != nil {
				return err
			}
			key := types.NamespacedName{Namespace: root, Name: args[0]}
			why, err := simulation.Explain(ctx, read.namespaceConfig, pool, key)
			if err != nil {
				return err //nolint:wrapcheck // it says what was explained
			}
			if asked != nil {
				if why.Pod, err = simulation.ExplainPod(ctx, read.namespaceConfig, pool, key, asked); err != nil {
					return err //nolint:wrapcheck // it says what was explained
				}
			}
			return errors.Join(why.Print(cmd.OutOrStdout(), format), why.Err())
		},
	}
	cmd.Flags().StringVar(&tenant, "tenant", tenant, "VirtualCluster of the tenant, as NAME or NAMESPACE/NAME")
	cmd.Flags().StringVarP(&root, "namespace", "n", root, "root namespace of the tenant in the meta cluster, in place of --tenant")
	cmd.Flags().StringVar(&pod, "pod", pod, `what a pod of the namespace requests, such as {"cpu":"3"}: say which slices would have to move for it`)
	cmd.Flags().StringVar(&manifest, "pod-file", manifest, "file with a Pod of the namespace, in place of --pod: say what super clusters lack for it, too")
	cmd.Flags().StringVarP(&output, "output", "o", output, outputUsage)
	options.addKubeconfig(cmd.Flags())
	options.addNamespaceSchedulerConfig(cmd.Flags())
	return cmd
}

// podAskedAbout returns the pod of --pod or --pod-file, nil for none.
func podAskedAbout(requests, manifest string) (*corev1.Pod, error) {
	switch {
	case requests != "" && manifest != "":
		return nil, errors.New("--pod and --pod-file name two pods")
	case requests != "":
		size, err := slice.ParseSize(requests)
		if err != nil {
			return nil, fmt.Errorf("--pod: %w", err)
		}
		return simulation.PodOf(size), nil
	case manifest == "":
		return nil, nil //nolint:nilnil // none is asked about
	}
	text, err := os.ReadFile(manifest)
	if err != nil {
		return nil, fmt.Errorf("--pod-file: %w", err)
	}
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict(text, pod); err != nil {
		return nil, fmt.Errorf("--pod-file: %w", err)
	}
	if pod.GroupVersionKind() != corev1.SchemeGroupVersion.WithKind("Pod") {
		return nil, fmt.Errorf("--pod-file: %s is no Pod", pod.GroupVersionKind())
	}
	return pod, nil
}

func newRebalanceCommand() *cobra.Command {
	options, output, dryRun, most := NewOptions(), string(simulation.Table), false, int32(10)
	cmd := &cobra.Command{
		Use:   "rebalance",
		Short: "Move slices of namespaces that no pods use into fuller super clusters, so that larger pieces are free elsewhere",
		Long: `rebalance reads the virtual Nodes and NamespacePlacements of the meta cluster, looks for slices that could be in super clusters which are
fuller, tries them in memory, and prints what moves and what is free then. With --dry-run that is all. Without it, it orders the moves, by
the annotation scheduler.tenancy.x-k8s.io/move of each NamespacePlacement. The kubeconfig must allow to list nodes and
namespaceplacements, and to patch namespaceplacements.

The meta cluster does not say what pods use, so moves are found as if there were none. vc-scheduler looks again when it takes an order over:
it moves no slice that pods use, evicts nobody, moves no namespace more often than its TenantPolicy allows (scheduling.movesPerHour), and
none whose TenantPolicy says scheduling.movableFor: Nobody. It says what comes of an order in an Event on the namespace's ResourceQuota.`,
		Example: `  # What would move, and what would it gain?
  vc-scheduler rebalance --kubeconfig meta.kubeconfig --dry-run

  # Move at most 20 slices
  vc-scheduler rebalance --kubeconfig meta.kubeconfig --max-moves 20`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			format, err := simulation.ParseFormat(output)
			if err != nil {
				return fmt.Errorf("--output: %w", err)
			}
			if most < 1 || most > maxMoves {
				return fmt.Errorf("--max-moves: %d is not between 1 and %d", most, maxMoves)
			}
			read, err := options.read()
			if err != nil {
				return err
			}
			ctx, err := quiet(cmd.Context(), options)
			if err != nil {
				return err
			}
			meta, err := metaClient(options.Kubeconfig)
			if err != nil {
				return err
			}
			pool, err := livePool(ctx, meta)
			if err != nil {
				return err
			}
			plan, err := rebalance.Find(ctx, read.namespaceConfig, pool, most, time.Now())
			if err != nil {
				return err //nolint:wrapcheck // it says what was looked for
			}
			if err := plan.Print(cmd.OutOrStdout(), format); err != nil || dryRun {
				return err //nolint:wrapcheck // it says what failed
			}
			return plan.Order(ctx, meta) //nolint:wrapcheck // it names the namespace
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", dryRun, "only print what would move")
	cmd.Flags().Int32Var(&most, "max-moves", most, fmt.Sprintf("how many slices move at most, up to %d", maxMoves))
	cmd.Flags().StringVarP(&output, "output", "o", output, outputUsage)
	options.addKubeconfig(cmd.Flags())
	options.addNamespaceSchedulerConfig(cmd.Flags())
	return cmd
}

// metaClient returns a client of the meta cluster that reads from its API server.
func metaClient(file string) (client.Client, error) {
	cfg, err := metaConfig(file)
	if err != nil {
		return nil, err
	}
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	meta, err := client.New(rest.AddUserAgent(cfg, component), client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connecting to the meta cluster: %w", err)
	}
	return meta, nil
}

// quiet returns ctx without a log: what a scheduler logs about objects in memory is about no cluster.
func quiet(ctx context.Context, options *Options) (context.Context, error) {
	if err := logsapi.ValidateAndApply(options.Logs, utilfeature.DefaultFeatureGate); err != nil { // which lets contexts have logs
		return nil, fmt.Errorf("setting up the log: %w", err)
	}
	return klog.NewContext(ctx, logr.Discard()), nil
}
