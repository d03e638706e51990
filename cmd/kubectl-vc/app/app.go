// Package app is the command line of kubectl-vc. Each verb changes a VirtualCluster, and says what becomes of it until that
// is so.
package app

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// resource is how kubectl names VirtualClusters.
const resource = "virtualcluster.tenancy.x-k8s.io"

// completionTimeout is how long a shell waits for names.
const completionTimeout = 2 * time.Second

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
		Use:   "kubectl-vc",
		Short: "Make, use and change the tenants of a pool",
		Long: `kubectl vc makes, uses and changes the tenants of a pool: VirtualClusters of the meta cluster, which your kubeconfig reaches.
What kubectl does is not here: kubectl get virtualclusters, kubectl describe virtualcluster NAME.`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl vc"},
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	command.SetIn(streams.In)
	command.SetOut(streams.Out)
	command.SetErr(streams.ErrOut)
	c.flags.AddFlags(command.PersistentFlags())
	command.AddCommand(c.create(), c.delete(), c.kubeconfig(), c.exec())
	for _, change := range changes() {
		command.AddCommand(c.change(&change))
	}
	return command
}

// Execute runs the command with the arguments of the process, and returns its exit code: that of the command that exec ran,
// else 1 for an error, which it prints.
func Execute(ctx context.Context, streams genericiooptions.IOStreams) int {
	err := NewCommand(streams).ExecuteContext(ctx)
	var ended *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &ended): // it has said itself why
		return ended.ExitCode()
	default:
		_, _ = fmt.Fprintln(streams.ErrOut, "error:", err) // nobody reads it who has closed it
		return 1
	}
}

// connect returns a client of the meta cluster, and the namespace that is meant.
func (c *cli) connect() (client.Client, string, error) {
	config, err := c.flags.ToRESTConfig()
	if err != nil {
		return nil, "", err //nolint:wrapcheck // it names the kubeconfig
	}
	namespace, _, err := c.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, "", err //nolint:wrapcheck // as above
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), tenancyv1alpha1.AddToScheme(scheme)); err != nil {
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
	if err := cluster.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, vc); err != nil {
		return nil, nil, fmt.Errorf("%w in namespace %s: kubectl get virtualclusters -A", err, namespace)
	}
	return cluster, vc, nil
}

// names completes an argument, or the value of a flag, by the names of the objects that there are of a list's kind, in the
// namespace that is meant.
func (c *cli) names(list client.ObjectList) cobra.CompletionFunc {
	return func(command *cobra.Command, _ []string, _ string) (names []string, directive cobra.ShellCompDirective) {
		directive = cobra.ShellCompDirectiveNoFileComp
		cluster, namespace, err := c.connect()
		if err != nil {
			return nil, directive
		}
		ctx, cancel := context.WithTimeout(command.Context(), completionTimeout)
		defer cancel()
		if err := cluster.List(ctx, list, client.InNamespace(namespace)); err != nil {
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
	names := c.names(&tenancyv1alpha1.VirtualClusterList{})
	command.ValidArgsFunction = func(command *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names(command, args, prefix)
	}
	return command
}
