// Package app is the command line of vc-manager and wires its parts.
package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/census"
	"github.com/superpool/superpool/internal/controlplane"
	"github.com/superpool/superpool/internal/kubeconfig"
	"github.com/superpool/superpool/internal/metricsauth"
	"github.com/superpool/superpool/internal/pki"
	"github.com/superpool/superpool/internal/provision"
	"github.com/superpool/superpool/internal/provision/stores"
	"github.com/superpool/superpool/internal/skew"
	"github.com/superpool/superpool/internal/version"
)

// maxPrefixes bounds the ranges of a flag: a NetworkPolicy of each tenant has them.
const maxPrefixes = 64

// leastValidity is the least life of certificates: the third that is left of it when they are renewed is as long as
// kubelets take to write Secrets into pods.
const leastValidity = 5 * time.Minute

// leaseName is the name of the Lease by which replicas elect their leader.
const leaseName = "vc-manager"

// Options holds the values of vc-manager's flags.
type Options struct {
	// Kubeconfig is that of the meta cluster; "" means the service account of the pod that the process runs in.
	Kubeconfig string
	// LeaderElect makes replicas elect a leader; LeaderElectNamespace of the meta cluster holds their Lease.
	LeaderElect          bool
	LeaderElectNamespace string
	// MetricsBindAddress, HealthProbeBindAddress and PprofBindAddress are host:port; "0" turns one off.
	MetricsBindAddress     string
	HealthProbeBindAddress string
	PprofBindAddress       string
	// MetricsSecure serves metrics by HTTPS to authorized readers only.
	MetricsSecure bool
	// CertificateValidity is how long certificates are valid. They are renewed after two thirds of it.
	CertificateValidity time.Duration
	// AgentsNamespace is the namespace of the meta cluster with Secret vn-agent-client-ca and ConfigMap
	// vn-agent-serving-ca. "": the pool has no vn-agents.
	AgentsNamespace string
	// BaseVersion names the ClusterVersion with the images of those that are written as StatefulSets, "" for none.
	BaseVersion string
	// Reachable are the ranges that API servers of tenants may reach, and Closed those of them that they may not, as CIDRs.
	Reachable, Closed []string
	// Logs holds the values of klog's flags.
	Logs *logs.Options
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{
		LeaderElect: true, LeaderElectNamespace: "vc-manager", MetricsBindAddress: ":8443", MetricsSecure: true, HealthProbeBindAddress: ":8081",
		PprofBindAddress: "0", CertificateValidity: pki.DefaultValidity, AgentsNamespace: "vc-manager",
		Reachable: []string{"0.0.0.0/0", "::/0"}, Logs: logs.NewOptions(),
	}
}

// AddFlags adds a flag for every option.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "kubeconfig file of the meta cluster; default: the service account of the pod that vc-manager runs in")
	flags.BoolVar(&o.LeaderElect, "leader-elect", o.LeaderElect, "elect a leader before working; needed when more than one replica runs")
	flags.StringVar(&o.LeaderElectNamespace, "leader-elect-namespace", o.LeaderElectNamespace, "namespace of the meta cluster that holds the Lease")
	flags.BoolVar(&o.MetricsSecure, "metrics-secure", o.MetricsSecure, "serve /metrics by HTTPS, to those whom the meta cluster knows and allows to get it (ClusterRole superpool:metrics-reader). Without it everyone who reaches the address reads them")
	flags.StringVar(&o.MetricsBindAddress, "metrics-bind-address", o.MetricsBindAddress, `address of /metrics; "0" turns it off`)
	flags.StringVar(&o.HealthProbeBindAddress, "health-probe-bind-address", o.HealthProbeBindAddress, `address of /healthz and /readyz; "0" turns them off`)
	flags.StringVar(&o.PprofBindAddress, "pprof-bind-address", o.PprofBindAddress,
		`address of profiles under /debug/pprof/, open to everyone who reaches it, as 127.0.0.1:6060; "0" turns them off`)
	flags.DurationVar(&o.CertificateValidity, "certificate-validity", o.CertificateValidity,
		"how long the certificates of control planes are valid, at least 5m. Each is renewed after two thirds of it, and nothing is restarted for it. With each, streams of exec and logs end once, one that begins then fails, and syncers list "+
			"all of a tenant anew; below 20m, controller managers are refused once, too, because they read theirs every five minutes")
	flags.StringVar(&o.AgentsNamespace, "vn-agent-namespace", o.AgentsNamespace,
		`namespace of the meta cluster with Secret vn-agent-client-ca, which signs what tenants show to vn-agents, and ConfigMap vn-agent-serving-ca (ca.crt). Without the Secret, or with "", no tenant gets any. In another namespace than its own vc-manager needs a Role to get these two`)
	flags.StringVar(&o.BaseVersion, "base-cluster-version", o.BaseVersion,
		"name of the ClusterVersion whose images run for those that are written as for the first VirtualCluster, as StatefulSets, with images that are too old")
	flags.StringSliceVar(&o.Reachable, "reachable-cidrs", o.Reachable,
		"ranges that API servers of tenants may reach: of pods and nodes of super clusters, of webhooks. Of link-local addresses and the API server of the meta cluster they reach DNS at most")
	flags.StringSliceVar(&o.Closed, "closed-cidrs", o.Closed, "ranges in --reachable-cidrs that API servers of tenants may not reach")
	logsapi.AddFlags(o.Logs, flags)
}

// Validate returns one error for each value that cannot be used, joined; nil where all can.
func (o *Options) Validate() error {
	if o.CertificateValidity < leastValidity {
		return fmt.Errorf("--certificate-validity %s: use %s or more", o.CertificateValidity, leastValidity)
	}
	_, err := o.network()
	return err
}

// network returns what the pods of control planes may reach.
func (o *Options) network() (controlplane.Network, error) {
	reachable, err := parsePrefixes("--reachable-cidrs", o.Reachable)
	if err != nil {
		return controlplane.Network{}, err
	}
	closed, err := parsePrefixes("--closed-cidrs", o.Closed)
	return controlplane.Network{Manager: o.namespace(), Reachable: reachable, Closed: closed}, err
}

// namespace returns the namespace of the pod that vc-manager runs in, or of its Lease where it runs in none.
func (o *Options) namespace() string {
	if own, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace"); err == nil && o.Kubeconfig == "" {
		return strings.TrimSpace(string(own))
	}
	return o.LeaderElectNamespace
}

func parsePrefixes(flag string, texts []string) (prefixes []netip.Prefix, err error) {
	if len(texts) > maxPrefixes {
		return nil, fmt.Errorf("%s: give %d ranges at most", flag, maxPrefixes)
	}
	for _, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", flag, err)
		}
		prefixes = append(prefixes, prefix.Masked())
	}
	return prefixes, nil
}

// NewCommand returns the command vc-manager. The context that it is executed with ends it.
func NewCommand() *cobra.Command {
	options := NewOptions()
	command := &cobra.Command{
		Use:     "vc-manager",
		Version: version.String(),
		Short:   "Makes the control planes of tenants",
		Long: `vc-manager makes the control plane of each VirtualCluster that names a ClusterVersion: etcd, kube-apiserver and kube-controller-manager,
as pods in the tenant's root namespace of the meta cluster. It renews their certificates and upgrades them.

The administrator's kubeconfig is in Secret NAME-kubeconfig beside the VirtualCluster, key value. Where the pool has vn-agents, the API server of a
VirtualCluster that is imported shows them what is in Secret NAME-vn-agent, which vc-manager renews.`,
		Example: `  vc-manager --kubeconfig meta.kubeconfig --leader-elect=false

  kubectl apply -f manifests/samples/clusterversion.yaml
  kubectl get virtualclusters
  kubectl get secret acme-kubeconfig -o jsonpath='{.data.value}' | base64 -d >acme.kubeconfig`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := options.Validate(); err != nil {
				return err
			}
			if err := logsapi.ValidateAndApply(options.Logs, nil); err != nil {
				return fmt.Errorf("logging flags: %w", err)
			}
			return Run(command.Context(), options)
		},
	}
	options.AddFlags(command.Flags())
	return command
}

// Run works until ctx ends or another replica is elected; the first returns nil, the second an error. The caller has
// validated options.
func Run(ctx context.Context, options *Options) error {
	logger := klog.Background()
	ctx = klog.NewContext(ctx, logger)
	ctrl.SetLogger(logger)
	config, err := options.config()
	if err != nil {
		return err
	}
	config.QPS = -1 // each tenant takes a request for each of its Secrets; the server's priority and fairness bounds them
	mgr, err := newManager(ctx, options, config)
	if err != nil {
		return err
	}
	if err := skew.CheckServed(mgr.GetRESTMapper(), tenancyv1alpha1.GroupVersion.WithKind("VirtualCluster"), tenancyv1alpha1.GroupVersion.WithKind("ClusterVersion")); err != nil {
		return err //nolint:wrapcheck // it says all
	}
	network, err := options.network()
	if err != nil {
		return err
	}
	kept := stores.New(stores.Options{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Clock: clock.RealClock{}, DialEtcd: stores.DialEtcd, DialShared: stores.DialShared,
		Manager: network.Manager, Validity: options.CertificateValidity, Workers: provision.ConcurrentTenants,
	})
	reconciler := &provision.Reconciler{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Clock: clock.RealClock{}, Stores: kept, DialTenant: provision.DialTenant, LookUp: lookUp,
		Validity: options.CertificateValidity, AgentsNamespace: options.AgentsNamespace, Network: network, BaseVersion: options.BaseVersion,
	}
	if err := errors.Join(reconciler.SetupWithManager(mgr), mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("ping", healthz.Ping)); err != nil {
		return fmt.Errorf("setting up: %w", err)
	}
	if err := census.RegisterControlPlanes(ctx, ctrlmetrics.Registry, mgr.GetCache()); err != nil {
		return err //nolint:wrapcheck // it says all
	}
	logger.Info("Starting")
	return mgr.Start(ctx) //nolint:wrapcheck // it says what ended it
}

// lookUp asks DNS for the addresses of a name.
func lookUp(ctx context.Context, name string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", name) //nolint:wrapcheck // it names what was asked
}

// config returns the client configuration of the meta cluster.
func (o *Options) config() (*rest.Config, error) {
	if o.Kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("--kubeconfig is not set: %w", err)
		}
		return config, nil
	}
	config, err := kubeconfig.FromFile(o.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	return config, nil
}

// newManager returns a manager of the meta cluster, whose cache has of others' objects nothing.
func newManager(ctx context.Context, options *Options, config *rest.Config) (ctrl.Manager, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), tenancyv1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("building the scheme: %w", err)
	}
	served := metricsserver.Options{BindAddress: options.MetricsBindAddress, SecureServing: options.MetricsSecure}
	if options.MetricsSecure {
		served.FilterProvider = metricsauth.FilterProvider
	}
	ours := cache.ByObject{Label: controlplane.Managed()}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme,
		Cache: cache.Options{DefaultTransform: cache.TransformStripManagedFields(), ByObject: map[client.Object]cache.ByObject{
			&appsv1.StatefulSet{}: ours, &appsv1.Deployment{}: ours, &corev1.Service{}: ours, &policyv1.PodDisruptionBudget{}: ours,
			&networkingv1.NetworkPolicy{}: ours, &batchv1.Job{}: ours,
			&corev1.ConfigMap{}: {Label: controlplane.Managed(), Field: fields.OneTermEqualSelector("metadata.name", controlplane.Etcd)},
		}},
		Client:                        client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}}}},
		LeaderElection:                options.LeaderElect,
		LeaderElectionID:              leaseName,
		LeaderElectionNamespace:       options.LeaderElectNamespace,
		LeaderElectionReleaseOnCancel: true,
		Metrics:                       served,
		HealthProbeBindAddress:        options.HealthProbeBindAddress,
		PprofBindAddress:              options.PprofBindAddress,
		BaseContext:                   func() context.Context { return ctx },
	})
	if err != nil {
		return nil, fmt.Errorf("connecting to the meta cluster: %w", err)
	}
	return mgr, nil
}
