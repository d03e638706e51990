// Package app is the command line of kubectl-vc. Each verb changes a VirtualCluster or a virtual Node, and says what becomes
// of it until that is so, or shows what there is.
package app

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/cmd/kubectl-vc/install"
	"github.com/superpool/superpool/internal/simulation"
	"github.com/superpool/superpool/internal/version"
)

// resource is how kubectl names VirtualClusters.
const resource = "virtualcluster.tenancy.x-k8s.io"

const (
	// requestTimeout is how long a request may take where --request-timeout does not say it, and completionTimeout one for
	// names that a shell waits for.
	requestTimeout    = 30 * time.Second
	completionTimeout = 2 * time.Second
)

// cli is what all verbs have.
type cli struct {
	genericiooptions.IOStreams
	// flags are those by which kubectl reaches a cluster, here the meta cluster.
	flags *genericclioptions.ConfigFlags
}

// NewCommand returns the command, which reads and writes streams. The context that it is executed with ends it.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	c := &cli{IOStreams: streams, flags: genericclioptions.NewConfigFlags(true)}
	ctrl.SetLogger(logr.Discard())
	command := &cobra.Command{
		Use:     "kubectl-vc",
		Version: version.String(),
		Short:   "Make, use and change the tenants of a pool, and look after its super clusters",
		Long: `kubectl vc makes, uses and changes the tenants of a pool: VirtualClusters of the meta cluster, which your kubeconfig reaches. It shows
how full super clusters are, and empties them. What kubectl does is not here: kubectl get, edit, logs.`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl vc"},
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	command.SetIn(streams.In)
	command.SetOut(streams.Out)
	command.SetErr(streams.ErrOut)
	command.CompletionOptions.HiddenDefaultCmd = true           // its scripts complete kubectl-vc, and not kubectl vc
	command.Flags().Bool("version", false, "print the version") // without -v, which is another flag of kubectl
	c.flags.AddFlags(command.PersistentFlags())
	command.PersistentFlags().VisitAll(func(flag *pflag.Flag) {
		flag.Hidden = !slices.Contains([]string{"kubeconfig", "context", "namespace"}, flag.Name) // kubectl options lists the others
	})
	command.AddCommand(c.create(), c.delete(), c.kubeconfig(), c.exec(), c.list(), c.describe(), c.pool(), c.drain())
	command.AddCommand(install.Commands(streams, c.flags, c.superClusters())...)
	for _, change := range changes() {
		command.AddCommand(c.change(&change))
	}
	for _, change := range nodeChanges() {
		command.AddCommand(c.nodeChange(&change))
	}
	return command
}

// Execute runs the command with the arguments of the process, prints its error, and returns its exit code.
func Execute(ctx context.Context, streams genericiooptions.IOStreams) int {
	err := NewCommand(streams).ExecuteContext(ctx)
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) { // that of a command has said itself why
		_, _ = fmt.Fprintln(streams.ErrOut, "error:", line(err.Error())) // nobody reads it who has closed it
	}
	return ExitCode(err)
}

// ExitCode returns the exit code for an error of the command: that of the command that exec ran, 3 where something does not
// fit into the pool, else 1.
func ExitCode(err error) int {
	var ended *exec.ExitError
	var unfit *simulation.DoesNotFit
	switch {
	case err == nil:
		return 0
	case errors.As(err, &unfit):
		return unfit.ExitCode()
	case errors.As(err, &ended):
		if status, is := ended.Sys().(syscall.WaitStatus); is && status.Signaled() {
			const signalled = 128 // as shells have it
			return signalled + int(status.Signal())
		}
		return ended.ExitCode()
	}
	return 1
}

// named returns how a VirtualCluster is named behind a verb.
func named(vc *tenancyv1alpha1.VirtualCluster) string { return vc.Name + " -n " + vc.Namespace }

// connect returns a client of the meta cluster, and the namespace that is meant.
func (c *cli) connect() (client.Client, string, error) {
	config, err := c.flags.ToRESTConfig()
	if err != nil {
		return nil, "", err //nolint:wrapcheck // it names the kubeconfig
	}
	config.WarningHandler = rest.NewWarningWriter(c.ErrOut, rest.WarningWriterOptions{Deduplicate: true})
	if config.Timeout == 0 {
		config.Timeout = requestTimeout
	}
	namespace, _, err := c.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, "", err //nolint:wrapcheck // as above
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), tenancyv1alpha1.AddToScheme(scheme), schedulerv1alpha1.AddToScheme(scheme)); err != nil {
		return nil, "", fmt.Errorf("building the scheme: %w", err)
	}
	cluster, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, "", fmt.Errorf("connecting to the meta cluster: %w", err)
	}
	return cluster, namespace, nil
}

// get returns a VirtualCluster of the namespace that is meant.
func (c *cli) get(ctx context.Context, name string) (client.Client, *tenancyv1alpha1.VirtualCluster, error) {
	cluster, namespace, err := c.connect()
	if err != nil {
		return nil, nil, err
	}
	vc := &tenancyv1alpha1.VirtualCluster{}
	err = cluster.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, vc)
	if apierrors.IsNotFound(err) {
		return nil, nil, fmt.Errorf("%w in namespace %s: kubectl get virtualclusters -A", err, namespace)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("getting the VirtualCluster: %w", err)
	}
	return cluster, vc, nil
}

// names completes an argument, or the value of a flag, by the names of the objects that there are of a list's kind, in the
// namespace that is meant.
func (c *cli) names(list client.ObjectList, options ...client.ListOption) cobra.CompletionFunc {
	return func(command *cobra.Command, _ []string, _ string) (names []string, directive cobra.ShellCompDirective) {
		directive = cobra.ShellCompDirectiveNoFileComp
		*c.flags.Timeout = completionTimeout.String()
		cluster, namespace, err := c.connect()
		if err != nil {
			return nil, directive
		}
		if err := cluster.List(command.Context(), list, append(options, client.InNamespace(namespace))...); err != nil {
			return nil, directive
		}
		_ = meta.EachListItem(list, func(object runtime.Object) error { // it returns what this returns
			names = append(names, object.(client.Object).GetName()) //nolint:forcetypeassert // all objects of a list are
			return nil
		})
		slices.Sort(names)
		return names, directive
	}
}

// ofTenant lets a verb have the name of a VirtualCluster as its first argument.
func (c *cli) ofTenant(command *cobra.Command) *cobra.Command {
	return completed(command, c.names(&tenancyv1alpha1.VirtualClusterList{}))
}

// ofSuperCluster lets a verb have the name of a super cluster as its first argument.
func (c *cli) ofSuperCluster(command *cobra.Command) *cobra.Command {
	return completed(command, c.superClusters())
}

func (c *cli) superClusters() cobra.CompletionFunc {
	return c.names(&corev1.NodeList{}, client.HasLabels{schedulerv1alpha1.LabelVirtualNode})
}

// completed lets names complete the first argument of a verb.
func completed(command *cobra.Command, names cobra.CompletionFunc) *cobra.Command {
	command.ValidArgsFunction = func(command *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names(command, args, prefix)
	}
	return command
}
