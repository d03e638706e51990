package tenant

import (
	"context"
	"crypto"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
	"github.com/superpool/superpool/cmd/kubectl-vc/text"
	"github.com/superpool/superpool/internal/page"
	"github.com/superpool/superpool/internal/pki"
)

const (
	// shortest is the shortest life of a certificate that an API server lets one ask for, and longest that of one that ends soon.
	shortest = 10 * time.Minute
	longest  = 365 * 24 * time.Hour
	// signingTimeout is how long the tenant's controller manager takes to sign one, at most.
	signingTimeout = time.Minute
)

// kubeconfig returns the command that prints a kubeconfig of a tenant.
func (c *verbs) kubeconfig() *cobra.Command {
	var user string
	var groups []string
	var life time.Duration
	command := c.OfTenant(&cobra.Command{
		Use:   "kubeconfig NAME",
		Short: "Print a kubeconfig of a tenant: its administrator's, or one of a user that ends soon",
		Long: `kubeconfig prints the administrator's kubeconfig of a tenant. With --username it prints one of a user, with a certificate that the tenant's own
control plane signs and that ends soon: what the user may do there, RoleBindings of the tenant say. A terminal, which keeps what it
shows, gets none: have it written to a file.`,
		Example: `  kubectl vc kubeconfig acme >acme.kubeconfig
  kubectl vc kubeconfig acme --username anna --group developers --for 8h >anna.kubeconfig`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			if err := c.NoTerminal("a kubeconfig", "kubectl vc kubeconfig "+args[0]+" >FILE, or kubectl vc exec "+args[0]); err != nil {
				return err
			}
			cluster, vc, err := c.Get(command.Context(), args[0])
			if err != nil {
				return err
			}
			text, err := cli.Administrator(command.Context(), cluster, vc)
			switch {
			case err != nil:
				return err
			case user != "":
				text, err = ofUser(command.Context(), vc.Name, text, user, groups, life)
			case len(groups) > 0 || command.Flags().Changed("for"):
				err = errors.New("--group and --for are of a --username")
			}
			if err != nil {
				return err
			}
			return printKubeconfig(c.Out, text)
		},
	})
	command.Flags().StringVar(&user, "username", "", "name of the user; default: the administrator")
	command.Flags().StringSliceVar(&groups, "group", nil, "group of the user")
	command.Flags().DurationVar(&life, "for", 8*time.Hour, "how long the user's certificate is valid, 10m at least")
	return command
}

// printKubeconfig prints a kubeconfig, which somebody else may have written.
func printKubeconfig(out io.Writer, text []byte) error {
	encoded, err := yaml.YAMLToJSON(text)
	if err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return page.YAML(out, json.RawMessage(encoded)) //nolint:wrapcheck // it says what it did
}

// exec returns the command that runs another one with the kubeconfig of a tenant.
func (c *verbs) exec() *cobra.Command {
	return c.OfTenant(&cobra.Command{
		Use:   "exec NAME [-- COMMAND ...]",
		Short: "Run a command, or a shell, with the administrator's kubeconfig of a tenant",
		Long: `exec runs a command with KUBECONFIG set to a file with the administrator's kubeconfig of a tenant, which ends with it. Without a command it
runs the shell of $SHELL.`,
		Example: "  kubectl vc exec acme -- kubectl get namespaces\n  kubectl vc exec acme",
		Args: func(command *cobra.Command, args []string) error {
			if dash := command.ArgsLenAtDash(); len(args) == 0 || dash >= 0 && dash != 1 || dash < 0 && len(args) > 1 {
				return errors.New("give the NAME of a tenant, and a command behind --: kubectl vc exec acme -- kubectl get namespaces")
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			cluster, vc, err := c.Get(command.Context(), args[0])
			if err != nil {
				return err
			}
			text, err := cli.Administrator(command.Context(), cluster, vc)
			if err != nil {
				return err
			}
			folder, err := os.MkdirTemp("", "kubectl-vc-")
			if err != nil {
				return err //nolint:wrapcheck // it says what it did
			}
			defer os.RemoveAll(folder) //nolint:errcheck // it has the name of nobody else's
			file := filepath.Join(folder, "kubeconfig")
			if err := writeKubeconfig(file, text); err != nil {
				return err
			}
			run := args[1:]
			if len(run) == 0 {
				run = []string{shell()}
				_, _ = fmt.Fprintf(c.ErrOut, "KUBECONFIG is that of tenant %s: look whether your shell sets another one\n", vc.Name) // nobody reads it who has closed it
			}
			return c.Start(append(os.Environ(), "KUBECONFIG="+file), run)
		},
	})
}

func shell() string {
	if named := os.Getenv("SHELL"); named != "" {
		return named
	}
	return "sh"
}

// writeKubeconfig writes a kubeconfig to a file that nobody else reads.
func writeKubeconfig(file string, text []byte) error {
	const ownerOnly = 0o600
	if err := os.WriteFile(file, text, ownerOnly); err != nil {
		return err //nolint:wrapcheck // it names the file
	}
	return os.Chmod(file, ownerOnly) //nolint:wrapcheck // as above: it may have been there
}

// ofUser returns a kubeconfig of a user of the tenant that the administrator's kubeconfig reaches.
func ofUser(ctx context.Context, tenant string, admin []byte, user string, groups []string, life time.Duration) ([]byte, error) {
	if life < shortest || life > longest {
		return nil, fmt.Errorf("--for %s: use %s to %s", life, shortest, longest)
	}
	api, err := cli.Tenant(admin)
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what it did
	}
	key, err := pki.NewKey()
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what it did
	}
	certificate, err := signed(ctx, api, key, &pkix.Name{CommonName: user, Organization: groups}, life)
	if err != nil {
		return nil, err
	}
	private, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a key: %w", err)
	}
	raw, err := clientcmd.Load(admin)
	if err != nil {
		return nil, fmt.Errorf("reading the administrator's kubeconfig: %w", err)
	}
	raw.AuthInfos = map[string]*clientcmdapi.AuthInfo{user: {ClientCertificateData: certificate, ClientKeyData: private}}
	raw.Contexts = map[string]*clientcmdapi.Context{tenant: {Cluster: raw.Contexts[raw.CurrentContext].Cluster, AuthInfo: user}}
	raw.CurrentContext = tenant
	return clientcmd.Write(*raw) //nolint:wrapcheck // it says what it did
}

// signed has a tenant's control plane sign a certificate of a user, and returns it in PEM.
func signed(ctx context.Context, api kubernetes.Interface, key crypto.Signer, subject *pkix.Name, life time.Duration) ([]byte, error) {
	csr, err := certutil.MakeCSR(key, subject, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("making a request for a certificate: %w", err)
	}
	requests := api.CertificatesV1().CertificateSigningRequests()
	request, err := requests.Create(ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "kubectl-vc-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: csr, SignerName: certificatesv1.KubeAPIServerClientSignerName, ExpirationSeconds: ptr.To(int32(life.Seconds())),
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("asking the tenant for a certificate: %w", err)
	}
	defer func() {
		_ = requests.Delete(context.WithoutCancel(ctx), request.Name, metav1.DeleteOptions{}) // else the tenant deletes it in an hour
	}()
	request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "KubectlVC", Message: "kubectl vc kubeconfig",
	})
	if _, err := requests.UpdateApproval(ctx, request.Name, request, metav1.UpdateOptions{}); err != nil {
		return nil, fmt.Errorf("approving a certificate: %w", err)
	}
	var certificate []byte
	err = wait.PollUntilContextTimeout(ctx, cli.LookPeriod, signingTimeout, true, func(ctx context.Context) (bool, error) {
		live, err := requests.Get(ctx, request.Name, metav1.GetOptions{})
		if err != nil {
			return false, err //nolint:wrapcheck // it is below
		}
		for _, condition := range live.Status.Conditions {
			if condition.Type == certificatesv1.CertificateFailed {
				return false, errors.New(text.Shortened(condition.Message, text.LongestText))
			}
		}
		certificate = live.Status.Certificate
		return len(certificate) > 0, nil
	})
	if err != nil {
		return nil, fmt.Errorf("waiting for the tenant's controller manager to sign a certificate: %w", err)
	}
	return certificate, nil
}
