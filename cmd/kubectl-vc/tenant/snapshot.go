package tenant

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
	"github.com/superpool/superpool/internal/controlplane"
	"github.com/superpool/superpool/internal/etcd"
)

// etcdPort is where members of etcd answer clients.
const etcdPort = 2379

// addSnapshot lets backup write a snapshot to a file.
func (c *verbs) addSnapshot(command *cobra.Command) {
	output, inVolume := "", command.RunE
	command.Flags().StringVarP(&output, "output", "o", "", `file that is made with a snapshot, "-" for the standard output; default: a backup in the volume that there is for them`)
	command.RunE = func(command *cobra.Command, args []string) error {
		isDry := command.Flag("dry-run").Value.String() != string(cli.DryRunNone)
		if output == "" || isDry {
			return inVolume(command, args)
		}
		timeout, err := command.Flags().GetDuration("timeout")
		if err != nil {
			return err //nolint:wrapcheck // it names the flag
		}
		ctx, stop := context.WithTimeout(command.Context(), timeout)
		defer stop()
		return c.snapshot(ctx, args[0], output)
	}
}

// snapshot writes a snapshot of a tenant's etcd to a file.
func (c *verbs) snapshot(ctx context.Context, name, output string) error {
	if output == "-" {
		if err := c.NoTerminal("a snapshot", "give -o FILE"); err != nil {
			return err //nolint:wrapcheck // it says what is wrong
		}
	}
	cluster, vc, err := c.Get(ctx, name)
	if err != nil {
		return err //nolint:wrapcheck // it says what it did
	}
	if vc.Spec.ClusterVersionName == "" {
		return fmt.Errorf("%s/%s: its control plane is imported: whoever runs it backs it up", cli.Resource, vc.Name)
	}
	root := cli.RootOf(vc)
	member, err := readyMember(ctx, cluster, root)
	if err != nil {
		return fmt.Errorf("%s/%s: %w", cli.Resource, vc.Name, err)
	}
	credentials, err := credentialsOf(ctx, cluster, root)
	if err != nil {
		return err
	}
	config, err := c.Flags.ToRESTConfig()
	if err != nil {
		return err //nolint:wrapcheck // it names the kubeconfig
	}
	address, end, err := forward(ctx, config, root, member)
	if err != nil {
		return err
	}
	defer end()
	url := fmt.Sprintf("https://%s.%s.%s.svc:%d", member, controlplane.Etcd, root, etcdPort) // its certificate is to have that name
	var written int64
	err = c.WriteFile(output, "a snapshot", func(out io.Writer) error {
		return c.Doing("reading a snapshot of "+member, func() (err error) {
			written, err = etcd.Snapshot(ctx, url, credentials, func(ctx context.Context, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "tcp", address)
			}, out)
			return err //nolint:wrapcheck // it says what it did
		})
	})
	if err != nil {
		return fmt.Errorf("%s/%s of %s: %w", root, member, vc.Name, err)
	}
	_, _ = fmt.Fprintf(c.ErrOut, "%d bytes of %s: it has all that the tenant stores, Secrets too\n", written, member) // nobody reads it who has closed it
	if output != "-" {
		_, _ = fmt.Fprintf(c.Out, "%s/%s backed up\n", cli.Resource, vc.Name) // as above
	}
	return nil
}

// readyMember returns the name of a pod of a tenant's etcd that is Ready: the last one, which leads least often.
func readyMember(ctx context.Context, cluster client.Reader, root string) (string, error) {
	pods := &corev1.PodList{}
	if err := cluster.List(ctx, pods, client.InNamespace(root), client.MatchingLabels(controlplane.Labels(controlplane.Etcd))); err != nil {
		return "", fmt.Errorf("listing the pods of its etcd: %w", err)
	}
	var ready []string
	for i := range pods.Items {
		if pod := &pods.Items[i]; pod.DeletionTimestamp == nil && podutil.IsPodReady(pod) {
			ready = append(ready, pod.Name)
		}
	}
	if len(ready) == 0 {
		return "", fmt.Errorf("no pod of an etcd of its own is Ready in namespace %s: it is paused, or down, or has an external one", root)
	}
	return slices.Max(ready), nil
}

// credentialsOf returns how members are asked: as vc-manager does.
func credentialsOf(ctx context.Context, cluster client.Reader, root string) (*tls.Config, error) {
	authority, own := &corev1.Secret{}, &corev1.Secret{}
	for name, secret := range map[string]*corev1.Secret{controlplane.EtcdCA: authority, controlplane.EtcdManager: own} {
		if err := cluster.Get(ctx, client.ObjectKey{Namespace: root, Name: name}, secret); err != nil {
			return nil, fmt.Errorf("getting what its etcd is asked with: %w", err)
		}
	}
	pair, err := tls.X509KeyPair(own.Data[corev1.TLSCertKey], own.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, fmt.Errorf("reading Secret %s/%s: %w", root, own.Name, err)
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(authority.Data[corev1.TLSCertKey]) {
		return nil, fmt.Errorf("reading Secret %s/%s: there is no certificate in %s", root, authority.Name, corev1.TLSCertKey)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: trusted, Certificates: []tls.Certificate{pair}}, nil
}

// forward returns an address of this machine that leads to a pod of etcd, and what ends that.
func forward(ctx context.Context, config *rest.Config, namespace, pod string) (address string, end func(), err error) {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", nil, fmt.Errorf("connecting to the meta cluster: %w", err)
	}
	what := "forwarding a port to pod " + namespace + "/" + pod
	url := clients.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("portforward").URL()
	round, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", what, err)
	}
	ready, ended := make(chan struct{}), make(chan struct{})
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: round}, http.MethodPost, url)
	forwarding, stop := context.WithCancel(ctx)
	forwarder, err := portforward.NewOnAddressesWithContext(
		forwarding, dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", etcdPort)}, ready, io.Discard, io.Discard)
	if err != nil {
		stop()
		return "", nil, fmt.Errorf("%s: %w", what, err)
	}
	var why error // why it has ended
	go func() {
		defer close(ended)
		why = forwarder.ForwardPorts()
	}()
	end = func() {
		stop()
		select {
		case <-ended:
		case <-time.After(time.Second): // a kubelet that does not answer
		}
	}
	select {
	case <-ended:
		return "", nil, fmt.Errorf("%s: %w", what, why)
	case <-ctx.Done():
		end()
		return "", nil, fmt.Errorf("%s: %w", what, ctx.Err())
	case <-ready:
	}
	ports, err := forwarder.GetPorts()
	if err == nil && len(ports) != 1 {
		err = errors.New("it has no port")
	}
	if err != nil {
		end()
		return "", nil, fmt.Errorf("%s: %w", what, err)
	}
	return fmt.Sprintf("127.0.0.1:%d", ports[0].Local), end, nil
}
