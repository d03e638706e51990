// Package install is the verbs of kubectl vc that make a pool: they set up its meta cluster, and have super clusters
// join and leave it. They write by server-side apply, as one field manager, so that each may be run again: it finishes
// what was begun, and changes nothing where nothing is to be changed.
package install

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
	"github.com/superpool/superpool/internal/page"
)

// systemNamespace is the namespace of Superpool in a super cluster.
const systemNamespace = "superpool-system"

// verbs are what these commands have.
type verbs struct{ *cli.CLI }

// Commands returns the verbs.
func Commands(line *cli.CLI) []*cobra.Command {
	c := &verbs{line}
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
	config.QPS = -1 // the API server's priority and fairness bounds what is asked
	reached, err := c.Client(config, name)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the cluster
	}
	system := &corev1.Namespace{}
	if err := reached.Get(ctx, types.NamespacedName{Name: metav1.NamespaceSystem}, system); err != nil {
		return nil, fmt.Errorf("asking which cluster %s is: %w", name, err)
	}
	return &cluster{Client: reached, config: config, name: name, uid: system.UID}, nil
}

// meta reaches the meta cluster, and returns the namespace that is meant, too.
func (c *verbs) meta(ctx context.Context) (*cluster, string, error) {
	config, err := c.Flags.ToRESTConfig()
	if err != nil {
		return nil, "", err //nolint:wrapcheck // it names the kubeconfig
	}
	namespace, _, err := c.Flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, "", err //nolint:wrapcheck // as above
	}
	meta, err := c.connect(ctx, config, "the meta cluster")
	return meta, namespace, err
}

// say says what a person may want to know meanwhile.
func (c *verbs) say(format string, arguments ...any) {
	_, _ = fmt.Fprintln(c.ErrOut, page.Printable(fmt.Sprintf(format, arguments...))) // nobody reads it who has closed it
}

// print prints what was done.
func (c *verbs) print(format string, arguments ...any) {
	_, _ = fmt.Fprintln(c.Out, page.Printable(fmt.Sprintf(format, arguments...))) // as above
}

// common are the flags of all verbs that write.
type common struct {
	dry cli.DryRun
	cli.Waiting
}

// step is how a verb waits for one step of several: whether --wait says so or not.
func (o *common) step(until string) cli.Waiting {
	return cli.Waiting{Wait: true, Timeout: o.Timeout, Until: until}
}

func (o *common) isDry() bool { return o.dry != cli.DryRunNone }

// again adds to an error how what was begun is finished.
func (o *common) again(err error) error {
	if o.isDry() {
		return err
	}
	return fmt.Errorf("%w. What was done stays done: the same command goes on", err)
}

// mostNamed is how many objects a message names.
const mostNamed = 10

// named returns the first of some names, and how many there are besides.
func named(names []string) string {
	if others := len(names) - mostNamed; others > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:mostNamed], ", "), others)
	}
	return strings.Join(names, ", ")
}
