// Package install is the verbs of kubectl vc that make a pool: they set up its meta cluster, and have super clusters
// join and leave it. They write by server-side apply, as one field manager, so that each may be run again: it finishes
// what was begun, and changes nothing where nothing is to be changed.
package install

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
)

// requestTimeout is how long a request may take where --request-timeout does not say it.
const requestTimeout = 30 * time.Second

// systemNamespace is the namespace of Superpool in a super cluster.
const systemNamespace = "superpool-system"

// verbs are what these commands have.
type verbs struct {
	genericiooptions.IOStreams
	// flags are those by which kubectl reaches a cluster, here the meta cluster.
	flags *genericclioptions.ConfigFlags
}

// Commands returns the verbs.
func Commands(line *cli.CLI) []*cobra.Command {
	c := &verbs{IOStreams: line.IOStreams, flags: line.Flags}
	return []*cobra.Command{c.check(), c.init(), c.join(), line.OfSuperCluster(c.leave())}
}

// cluster is one that is reached, as an administrator does.
type cluster struct {
	client.Client
	config *rest.Config
	// name is how messages name it.
	name string
	// uid is that of its namespace kube-system, which tells it from all others.
	uid types.UID
}

// connect reaches a cluster, and asks which one it is.
func (c *verbs) connect(ctx context.Context, config *rest.Config, name string) (*cluster, error) {
	config = rest.CopyConfig(config)
	config.WarningHandler = rest.NewWarningWriter(c.ErrOut, rest.WarningWriterOptions{Deduplicate: true})
	if config.Timeout == 0 {
		config.Timeout = requestTimeout
	}
	config.QPS = -1 // the API server's priority and fairness bounds what is asked
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), tenancyv1alpha1.AddToScheme(scheme), schedulerv1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("building the scheme: %w", err)
	}
	reached, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", name, err)
	}
	system := &corev1.Namespace{}
	if err := reached.Get(ctx, types.NamespacedName{Name: metav1.NamespaceSystem}, system); err != nil {
		return nil, fmt.Errorf("asking which cluster %s is: %w", name, err)
	}
	return &cluster{Client: reached, config: config, name: name, uid: system.UID}, nil
}

// meta reaches the meta cluster, and returns the namespace that is meant, too.
func (c *verbs) meta(ctx context.Context) (*cluster, string, error) {
	config, err := c.flags.ToRESTConfig()
	if err != nil {
		return nil, "", err //nolint:wrapcheck // it names the kubeconfig
	}
	namespace, _, err := c.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, "", err //nolint:wrapcheck // as above
	}
	meta, err := c.connect(ctx, config, "the meta cluster")
	return meta, namespace, err
}

// say says what a person may want to know meanwhile.
func (c *verbs) say(format string, arguments ...any) {
	_, _ = fmt.Fprintln(c.ErrOut, line(fmt.Sprintf(format, arguments...))) // nobody reads it who has closed it
}

// print prints what was done.
func (c *verbs) print(format string, arguments ...any) {
	_, _ = fmt.Fprintln(c.Out, line(fmt.Sprintf(format, arguments...))) // as above
}

// common are the flags of all verbs that write.
type common struct {
	dry     string
	wait    bool
	timeout time.Duration
}

// Values of --dry-run.
const (
	dryNone   = "none"
	dryClient = "client"
	dryServer = "server"
)

func (o *common) addFlags(flags *pflag.FlagSet, timeout time.Duration) {
	flags.StringVar(&o.dry, "dry-run", dryNone, `"none"; "client": print what would be done; "server": have the API servers check it, too`)
	flags.DurationVar(&o.timeout, "timeout", timeout, "how long to wait for each step")
}

// addWait adds the flag of a verb whose last step is to wait.
func (o *common) addWait(flags *pflag.FlagSet) {
	flags.BoolVar(&o.wait, "wait", true, "wait until all that was applied works")
}

// check says what is wrong with these flags.
func (o *common) check() error {
	switch o.dry {
	case dryNone, dryClient, dryServer:
		return nil
	}
	return errors.New("--dry-run: give none, client or server")
}

func (o *common) isDry() bool { return o.dry != dryNone }

// again adds to an error how what was begun is finished.
func (o *common) again(err error) error {
	if o.isDry() {
		return err
	}
	return fmt.Errorf("%w. What was done stays done: the same command goes on", err)
}
