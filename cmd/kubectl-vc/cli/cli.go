// Package cli is what the verbs of kubectl-vc share: how they reach the meta cluster, what they ask and print, and how they
// wait for what a person wished for.
package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// Resource is how kubectl names VirtualClusters.
const Resource = "virtualcluster.tenancy.x-k8s.io"

const (
	// RequestTimeout is how long a request may take where --request-timeout does not say it, and completionTimeout one for
	// names that a shell waits for.
	RequestTimeout    = 30 * time.Second
	completionTimeout = 2 * time.Second
)

// CLI is what all verbs have.
type CLI struct {
	genericiooptions.IOStreams
	// Flags are those by which kubectl reaches a cluster, here the meta cluster.
	Flags *genericclioptions.ConfigFlags
	// Columns is how wide the output is, 0 where a terminal says it, or there is none.
	Columns int
}

// New returns what verbs share that read and write streams.
func New(streams genericiooptions.IOStreams) *CLI {
	return &CLI{IOStreams: streams, Flags: genericclioptions.NewConfigFlags(true)}
}

// Connect returns a client of the meta cluster, and the namespace that is meant.
func (c *CLI) Connect() (client.Client, string, error) {
	config, err := c.Flags.ToRESTConfig()
	if err != nil {
		return nil, "", err //nolint:wrapcheck // it names the kubeconfig
	}
	namespace, _, err := c.Flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, "", err //nolint:wrapcheck // as above
	}
	cluster, err := c.Client(config, "the meta cluster")
	return cluster, namespace, err
}

// Client returns a client of a cluster, which an error names.
func (c *CLI) Client(config *rest.Config, name string) (client.Client, error) {
	config = rest.CopyConfig(config)
	config.WarningHandler = rest.NewWarningWriter(c.ErrOut, rest.WarningWriterOptions{Deduplicate: true})
	if config.Timeout == 0 {
		config.Timeout = RequestTimeout
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), tenancyv1alpha1.AddToScheme(scheme), schedulerv1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("building the scheme: %w", err)
	}
	cluster, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", name, err)
	}
	return cluster, nil
}

// Get returns a VirtualCluster of the namespace that is meant.
func (c *CLI) Get(ctx context.Context, name string) (client.Client, *tenancyv1alpha1.VirtualCluster, error) {
	cluster, namespace, err := c.Connect()
	if err != nil {
		return nil, nil, err
	}
	vc, err := VirtualCluster(ctx, cluster, namespace, name)
	return cluster, vc, err
}

// Names completes an argument, or the value of a flag, by the names of the objects that there are of a list's kind, in the
// namespace that is meant.
func (c *CLI) Names(list client.ObjectList, options ...client.ListOption) cobra.CompletionFunc {
	return c.NamesIn(list, func(_ context.Context, _ client.Reader, namespace string) (string, error) { return namespace, nil }, options...)
}

// NamesIn is Names for objects of another namespace: in returns it, of the one that is meant.
func (c *CLI) NamesIn(
	list client.ObjectList, in func(ctx context.Context, cluster client.Reader, namespace string) (string, error), options ...client.ListOption,
) cobra.CompletionFunc {
	return func(command *cobra.Command, _ []string, _ string) (names []string, directive cobra.ShellCompDirective) {
		directive = cobra.ShellCompDirectiveNoFileComp
		*c.Flags.Timeout = completionTimeout.String()
		cluster, namespace, err := c.Connect()
		if err == nil {
			namespace, err = in(command.Context(), cluster, namespace)
		}
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

// OfTenant lets a verb have the name of a VirtualCluster as its first argument.
func (c *CLI) OfTenant(command *cobra.Command) *cobra.Command {
	return Completed(command, c.Names(&tenancyv1alpha1.VirtualClusterList{}))
}

// OfSuperCluster lets a verb have the name of a super cluster as its first argument.
func (c *CLI) OfSuperCluster(command *cobra.Command) *cobra.Command {
	return Completed(command, c.SuperClusters())
}

// SuperClusters completes an argument, or the value of a flag, by the names of super clusters.
func (c *CLI) SuperClusters() cobra.CompletionFunc {
	return c.Names(&corev1.NodeList{}, client.HasLabels{schedulerv1alpha1.LabelVirtualNode})
}

// Completed lets names complete the first argument of a verb.
func Completed(command *cobra.Command, names cobra.CompletionFunc) *cobra.Command {
	command.ValidArgsFunction = func(command *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names(command, args, prefix)
	}
	return command
}

// SuperCluster returns the name of a super cluster by an argument: r1, or node/r1 as kubectl prints it.
func SuperCluster(argument string) (string, error) {
	kind, name, isNamed := strings.Cut(argument, "/")
	switch {
	case !isNamed && argument != "":
		return argument, nil
	case isNamed && (kind == "node" || kind == "nodes" || kind == "no") && name != "" && !strings.Contains(name, "/"):
		return name, nil
	}
	return "", fmt.Errorf("%q names no super cluster: give r1 or node/r1: kubectl vc pool", argument)
}
