package tenant

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	cliresource "k8s.io/cli-runtime/pkg/resource"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
	"github.com/superpool/superpool/manifests/parameters"
)

// outputs are the values of -o of create that print the VirtualCluster; any other is a file for its kubeconfig, but for
// others that kubectl has.
var (
	outputs = []string{"json", "yaml", "name"}
	foreign = []string{"wide", "jsonpath", "jsonpath-as-json", "jsonpath-file", "go-template", "go-template-file", "template", "templatefile", "custom-columns", "custom-columns-file", "kyaml"}
)

// creation is what create is to make.
type creation struct {
	cli.Waiting
	dry cli.DryRun
	// file has a VirtualCluster, or is where one is; with it the other fields say nothing.
	file, output            string
	version, policy, secret string
	serviceCIDRs, hosts     []string
	exposure                string
	port                    int32
}

func (o *creation) addFlags(flags *pflag.FlagSet) {
	o.AddFlags(flags)
	o.dry.AddFlags(flags)
	flags.StringVarP(&o.file, "filename", "f", "", `file or URL with a VirtualCluster; "-" is the standard input`)
	flags.StringVarP(&o.output, "output", "o", "", "file for the tenant's kubeconfig; or json, yaml or name, to print the VirtualCluster")
	flags.StringVar(&o.version, "cluster-version", "", "name of the ClusterVersion of a control plane that vc-manager makes; by default the only one that there is")
	flags.StringVar(&o.policy, "policy", "", "name of the TenantPolicy: standard or trusted, which kubectl vc init applies, or one of yours; default: default, which is closed, or what --policies of init says")
	flags.StringVar(&o.secret, "kubeconfig-secret", "", "name of a Secret with the kubeconfig of a control plane that there is, with /KEY behind it where that is not value")
	flags.StringSliceVar(&o.serviceCIDRs, "service-cidr", nil, "range of the tenant's Services, one for each family, which no other tenant has")
	flags.StringVar(&o.exposure, "expose", "", "how its API servers are reached from outside of the meta cluster: LoadBalancer, NodePort or ClusterIP")
	flags.StringSliceVar(&o.hosts, "host", nil, "name or address that leads to its API servers")
	flags.Int32Var(&o.port, "port", 0, "port of the first --host that leads there")
}

// create returns the command that makes a tenant.
func (c *verbs) create() *cobra.Command {
	var o creation
	command := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a tenant, and wait until the pool serves it",
		Long: `create makes a VirtualCluster: of a control plane that vc-manager makes of a ClusterVersion, or of one that there is. It waits until the
pool serves it, and writes its administrator's kubeconfig to the file of -o.`,
		Example: `  kubectl vc create acme --service-cidr 10.97.0.0/16 --expose LoadBalancer -o acme.kubeconfig
  kubectl vc create acme --policy standard -o acme.kubeconfig
  kubectl vc create acme --kubeconfig-secret acme-kubeconfig
  kubectl vc create -f manifests/samples/virtualcluster.yaml -o vc-1.kubeconfig
  kubectl vc create acme --cluster-version v1.37 --dry-run=client -o yaml`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error { return c.make(command.Context(), &o, args) },
	}
	o.addFlags(command.Flags())
	for flag, list := range map[string]client.ObjectList{
		"cluster-version": &tenancyv1alpha1.ClusterVersionList{}, "policy": &tenancyv1alpha1.TenantPolicyList{}, "kubeconfig-secret": &corev1.SecretList{},
	} {
		_ = command.RegisterFlagCompletionFunc(flag, c.Names(list)) // the flag is there
	}
	return command
}

// make makes a tenant.
func (c *verbs) make(ctx context.Context, o *creation, args []string) error {
	cluster, namespace, err := c.Connect()
	if err != nil {
		return err
	}
	vc, err := c.wanted(ctx, o, cluster, namespace, args)
	if err != nil {
		return err
	}
	file, err := o.open()
	if err != nil {
		return err
	}
	defer file.discard()
	if err := o.dry.Create(ctx, cluster, vc); err != nil {
		return fmt.Errorf("creating the VirtualCluster: %w", err)
	}
	if err := c.print(o, vc); err != nil || o.dry != cli.DryRunNone || !o.Wait {
		return err
	}
	err = c.follow(ctx, cluster, vc, o.Waiting, runs, cli.State{Refused: true, Says: "it was deleted meanwhile"})
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w; mend it, or delete it: kubectl vc delete %s; kubectl vc kubeconfig %s has its kubeconfig once it is there", err, cli.Named(vc), cli.Named(vc))
	}
	if err != nil || file == nil {
		return err
	}
	return c.handOut(ctx, cluster, vc, file)
}

// handOut writes the administrator's kubeconfig of a tenant.
func (c *verbs) handOut(ctx context.Context, cluster client.Client, vc *tenancyv1alpha1.VirtualCluster, file *kubeconfigFile) error {
	if err := cluster.Get(ctx, client.ObjectKeyFromObject(vc), vc); err != nil { // its root namespace was made since
		return fmt.Errorf("getting the VirtualCluster: %w", err)
	}
	text, err := cli.Administrator(ctx, cluster, vc)
	if err == nil {
		err = file.write(text)
	}
	if err == nil {
		_, _ = fmt.Fprintf(c.ErrOut, "its kubeconfig is in %[1]s: kubectl --kubeconfig %[1]s get namespaces\n", file.Name()) // nobody reads it who has closed it
	}
	return err
}

// kubeconfigFile is a file that is to get a kubeconfig; nil is none.
type kubeconfigFile struct {
	*os.File
	written bool
}

// open makes the file of -o, which was not there, for its owner alone: what cannot be written is told before anything is made.
func (o *creation) open() (*kubeconfigFile, error) {
	format, _, _ := strings.Cut(strings.ToLower(o.output), "=")
	switch {
	case o.output == "" || slices.Contains(outputs, o.output):
		return nil, nil
	case slices.Contains(foreign, format), slices.Contains(outputs, format):
		return nil, fmt.Errorf("--output %s: give json, yaml or name, or a file for the kubeconfig", o.output)
	case o.dry != cli.DryRunNone:
		return nil, nil
	case !o.Wait:
		return nil, errors.New("--output is a file, which is written when the tenant is there: leave --wait=false out")
	}
	const ownerOnly = 0o600
	file, err := os.OpenFile(o.output, os.O_CREATE|os.O_EXCL|os.O_WRONLY, ownerOnly)
	if errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("%s is there: name another file, or remove it", o.output)
	}
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the file
	}
	return &kubeconfigFile{File: file}, nil
}

// write writes the kubeconfig.
func (f *kubeconfigFile) write(text []byte) error {
	_, err := f.Write(text)
	f.written = err == nil
	return err //nolint:wrapcheck // it names the file
}

// discard closes the file, and removes it where nothing was written.
func (f *kubeconfigFile) discard() {
	if f == nil {
		return
	}
	_ = f.Close() // what was written is said
	if !f.written {
		_ = os.Remove(f.Name()) // it is empty
	}
}

// wanted returns the VirtualCluster that is to be.
func (c *verbs) wanted(ctx context.Context, o *creation, cluster client.Client, namespace string, args []string) (*tenancyv1alpha1.VirtualCluster, error) {
	switch {
	case o.file == "" && len(args) == 1:
		return o.tenant(ctx, cluster, namespace, args[0])
	case o.file == "" || len(args) == 1:
		return nil, errors.New("give the NAME of the tenant, or a file with --filename: kubectl vc create --help")
	}
	if o.version+o.policy+o.secret+o.exposure != "" || len(o.serviceCIDRs)+len(o.hosts) > 0 || o.port != 0 {
		return nil, errors.New("--filename has all of the VirtualCluster: leave out the flags that describe one")
	}
	vc, err := read(o.file, namespace)
	if err == nil && ptr.Deref(c.Flags.Namespace, "") != "" && vc.Namespace != namespace {
		return nil, fmt.Errorf("the VirtualCluster of %s is of namespace %s, and --namespace is %s", o.file, vc.Namespace, namespace)
	}
	return vc, err
}

// writes reports whether -o is a file.
func (o *creation) writes() bool { return o.output != "" && !slices.Contains(outputs, o.output) }

// print says what was made.
func (c *verbs) print(o *creation, vc *tenancyv1alpha1.VirtualCluster) error {
	if o.output == "" || o.writes() {
		_, _ = fmt.Fprintf(c.Out, "%s/%s created%s\n", cli.Resource, vc.Name, o.dry.Suffix()) // nobody reads it who has closed it
		return nil
	}
	flags := genericclioptions.NewPrintFlags("created")
	flags.OutputFormat = &o.output
	printer, err := flags.ToPrinter()
	if err != nil {
		return err //nolint:wrapcheck // it names the format
	}
	vc.SetGroupVersionKind(tenancyv1alpha1.GroupVersion.WithKind("VirtualCluster"))
	return printer.PrintObj(vc, c.Out) //nolint:wrapcheck // as above
}

// read returns the VirtualCluster of a file or URL, of a namespace unless it says another one. A field that a VirtualCluster
// does not have is an error.
func read(file, namespace string) (*tenancyv1alpha1.VirtualCluster, error) {
	infos, err := cliresource.NewLocalBuilder().Unstructured().
		FilenameParam(false, &cliresource.FilenameOptions{Filenames: []string{file}}).Flatten().Do().Infos()
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the file
	}
	if len(infos) != 1 || infos[0].Object.GetObjectKind().GroupVersionKind() != tenancyv1alpha1.GroupVersion.WithKind("VirtualCluster") {
		return nil, fmt.Errorf("%s is to have one VirtualCluster, and nothing else: kubectl apply -f %s", file, file)
	}
	content, err := json.Marshal(infos[0].Object)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	vc := &tenancyv1alpha1.VirtualCluster{}
	if err := yaml.UnmarshalStrict(content, vc); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	vc.Namespace = cmp.Or(vc.Namespace, namespace)
	return vc, nil
}

// tenant returns the VirtualCluster that flags describe.
func (o *creation) tenant(ctx context.Context, cluster client.Client, namespace, name string) (*tenancyv1alpha1.VirtualCluster, error) {
	vc := &tenancyv1alpha1.VirtualCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if o.dry != cli.DryRunClient {
		if err := known(ctx, cluster, o.policy); err != nil {
			return nil, err
		}
	}
	vc.Spec.PolicyName, vc.Spec.ServiceCIDRs = o.policy, o.serviceCIDRs
	if o.exposure != "" || len(o.hosts) > 0 || o.port != 0 {
		vc.Spec.Exposure = &tenancyv1alpha1.Exposure{Type: corev1.ServiceType(o.exposure), Hosts: o.hosts, Port: o.port}
	}
	if o.secret != "" {
		if o.version != "" || vc.Spec.Exposure != nil {
			return nil, errors.New("--kubeconfig-secret is of a control plane that there is: --cluster-version, --expose, --host and --port are of one that vc-manager makes")
		}
		secret, key, _ := strings.Cut(o.secret, "/")
		vc.Spec.KubeconfigSecretRef = &tenancyv1alpha1.SecretKeyRef{Name: secret, Key: key}
		return vc, nil
	}
	var versions tenancyv1alpha1.ClusterVersionList
	if o.version == "" {
		if err := cluster.List(ctx, &versions); err != nil {
			return nil, fmt.Errorf("listing ClusterVersions: %w", err)
		}
		if len(versions.Items) != 1 {
			return nil, fmt.Errorf("there are %d ClusterVersions: name one with --cluster-version, or a Secret with --kubeconfig-secret: kubectl get clusterversions", len(versions.Items))
		}
		o.version = versions.Items[0].Name
	}
	vc.Spec.ClusterVersionName = o.version
	return vc, nil
}

// known returns an error that says which TenantPolicies there are, and how those come that are shipped, unless there is
// one of that name. "" is default, which holds as it is shipped where it is not there.
func known(ctx context.Context, cluster client.Client, name string) error {
	if name == "" || name == tenancyv1alpha1.DefaultPolicyName {
		return nil
	}
	err := cluster.Get(ctx, client.ObjectKey{Name: name}, &tenancyv1alpha1.TenantPolicy{})
	switch {
	case apierrors.IsForbidden(err): // who makes tenants need not read policies
		return nil
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("getting the TenantPolicy: %w", err)
	case err == nil:
		return nil
	case name == parameters.Presets[0]:
		return fmt.Errorf("there is no TenantPolicy %[1]s: %[1]s is what default says unless kubectl vc init --policies made it another one, so leave --policy out", name)
	}
	var list tenancyv1alpha1.TenantPolicyList
	if err := cluster.List(ctx, &list); err != nil {
		return fmt.Errorf("there is no TenantPolicy %s. Listing those that there are: %w", name, err)
	}
	there := make([]string, 0, len(list.Items))
	for i := range list.Items {
		there = append(there, list.Items[i].Name)
	}
	slices.Sort(there)
	says := fmt.Sprintf("there is no TenantPolicy %s, but %s", name, cmp.Or(strings.Join(there, ", "), "none at all"))
	if missing := slices.DeleteFunc(slices.Clone(parameters.Presets[1:]), func(preset string) bool { return slices.Contains(there, preset) }); len(missing) > 0 {
		says += fmt.Sprintf("; kubectl vc init applies %s (a chart of Helm with policies.enabled=true)", strings.Join(missing, " and "))
	}
	return errors.New(says)
}
