// Package app is the command line of syncer and wires its parts.
package app

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/features"
	"github.com/superpool/superpool/internal/syncer"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kinds"
	"github.com/superpool/superpool/internal/tenants"
	"github.com/superpool/superpool/internal/virtualclusters"
)

// Options are the flags of syncer.
type Options struct {
	// MetaKubeconfig and SuperClusterKubeconfig are files; "" means the cluster that the process runs in.
	MetaKubeconfig         string
	SuperClusterKubeconfig string
	// LeaderElect lets one of several replicas work; LeaderElectNamespace holds their Lease in the meta cluster.
	LeaderElect          bool
	LeaderElectNamespace string
	// MetricsBindAddress, HealthProbeBindAddress and PprofBindAddress are served; "0" serves nothing.
	MetricsBindAddress     string
	HealthProbeBindAddress string
	PprofBindAddress       string
	// ConcurrentSyncs is the number of objects of each kind that are worked on at a time, at least 2.
	ConcurrentSyncs int
	// PodSecurityLevel is enforced in the namespaces of tenants; "" leaves it to the super cluster.
	PodSecurityLevel string
	// VNAgentPort and VNAgentAddress are where tenants find the kubelet API of nodes; port 0 means nowhere, address "" at each node.
	VNAgentPort    int32
	VNAgentAddress string
	// Gate holds the feature gates.
	Gate featuregate.MutableFeatureGate
	// Logs are the flags of klog.
	Logs *logs.Options
}

// NewOptions returns the defaults.
func NewOptions() (*Options, error) {
	gate, err := features.NewGate()
	if err != nil {
		return nil, err
	}
	return &Options{
		LeaderElect:            true,
		LeaderElectNamespace:   "vc-manager",
		MetricsBindAddress:     ":8080",
		HealthProbeBindAddress: ":8081",
		PprofBindAddress:       "0",
		ConcurrentSyncs:        engine.DefaultWorkers,
		PodSecurityLevel:       "baseline",
		VNAgentPort:            10550,
		Gate:                   gate,
		Logs:                   logs.NewOptions(),
	}, nil
}

// AddFlags adds a flag for every option.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.MetaKubeconfig, "meta-kubeconfig", o.MetaKubeconfig, "kubeconfig file of the meta cluster; without it the cluster that this process runs in")
	flags.StringVar(&o.SuperClusterKubeconfig, "super-cluster-kubeconfig", o.SuperClusterKubeconfig, "kubeconfig file of the super cluster; without it the cluster that this process runs in")
	flags.BoolVar(&o.LeaderElect, "leader-elect", o.LeaderElect, "let one of several replicas work")
	flags.StringVar(&o.LeaderElectNamespace, "leader-elect-namespace", o.LeaderElectNamespace, "namespace of the meta cluster that holds the Lease")
	flags.StringVar(&o.MetricsBindAddress, "metrics-bind-address", o.MetricsBindAddress, `address that serves /metrics; "0" for none`)
	flags.StringVar(&o.HealthProbeBindAddress, "health-probe-bind-address", o.HealthProbeBindAddress, `address that serves /healthz and /readyz; "0" for none`)
	flags.StringVar(&o.PprofBindAddress, "pprof-bind-address", o.PprofBindAddress, `address that serves profiles under /debug/pprof/ to everyone who reaches it, as 127.0.0.1:6060; "0" for none`)
	flags.IntVar(&o.ConcurrentSyncs, "concurrent-syncs", o.ConcurrentSyncs, "number of objects of each kind that are worked on at a time; one tenant has at most half of them. Raise it for many tenants whose control planes are far away")
	flags.StringVar(&o.PodSecurityLevel, "pod-security-level", o.PodSecurityLevel, `pod security level that the super cluster enforces on tenants: privileged, baseline or restricted; "" for none`)
	flags.Int32Var(&o.VNAgentPort, "vn-agent-port", o.VNAgentPort, "port of vn-agent, which serves logs and exec to tenants; 0 if there is none")
	flags.StringVar(&o.VNAgentAddress, "vn-agent-address", o.VNAgentAddress, "address of one vn-agent for all nodes; without it each node has its own")
	o.Gate.AddFlag(flags)
	logsapi.AddFlags(o.Logs, flags)
}

// Validate returns what is wrong with the options.
func (o *Options) Validate() error {
	var errs []error
	if !o.Gate.Enabled(features.SuperClusterPooling) {
		errs = append(errs, errors.New("syncing a single super cluster without a pool is not built yet: set --feature-gates=SuperClusterPooling=true"))
	}
	if o.MetaKubeconfig == "" && o.SuperClusterKubeconfig == "" {
		errs = append(errs, errors.New("set --meta-kubeconfig, --super-cluster-kubeconfig or both: they are two clusters"))
	}
	if o.ConcurrentSyncs < 2 {
		errs = append(errs, fmt.Errorf("--concurrent-syncs %d: use 2 or more, of which one tenant has half", o.ConcurrentSyncs))
	}
	switch o.PodSecurityLevel {
	case "", "privileged", "baseline", "restricted":
	default:
		errs = append(errs, fmt.Errorf("--pod-security-level %q: use privileged, baseline, restricted or nothing", o.PodSecurityLevel))
	}
	if o.VNAgentPort < 0 || o.VNAgentPort > 65535 {
		errs = append(errs, fmt.Errorf("--vn-agent-port %d: use 1 to 65535, or 0 for none", o.VNAgentPort))
	}
	if address := o.VNAgentAddress; address != "" && net.ParseIP(address) == nil && len(validation.IsDNS1123Subdomain(address)) > 0 {
		errs = append(errs, fmt.Errorf("--vn-agent-address %q: use an IP address or a DNS name, without a port", address))
	}
	return errors.Join(errs...)
}

// NewCommand returns the command.
func NewCommand() (*cobra.Command, error) {
	options, err := NewOptions()
	if err != nil {
		return nil, err
	}
	command := &cobra.Command{
		Use:   "syncer",
		Short: "Connects one super cluster of the pool to its tenants",
		Long: `syncer connects one super cluster of the pool to the tenants that hold placements in it. What their pods need goes down into
namespaces of the super cluster, and the status of pods, their nodes and bindings come up.

The super cluster must hold its id: ConfigMap kube-system/supercluster-info, data key id.`,
		Example: `  syncer --meta-kubeconfig meta.kubeconfig --super-cluster-kubeconfig r1.kubeconfig \
    --feature-gates=SuperClusterPooling=true --metrics-bind-address=:8080 --health-probe-bind-address=:8081`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := options.Validate(); err != nil {
				return err
			}
			if err := logsapi.ValidateAndApply(options.Logs, options.Gate); err != nil {
				return fmt.Errorf("logging flags: %w", err)
			}
			return Run(command.Context(), options)
		},
	}
	options.AddFlags(command.Flags())
	return command, nil
}

// Run syncs until ctx ends.
func Run(ctx context.Context, options *Options) error {
	logger := klog.Background()
	ctx = klog.NewContext(ctx, logger)
	ctrl.SetLogger(logger)
	meta, err := restConfig("--meta-kubeconfig", options.MetaKubeconfig)
	if err != nil {
		return err
	}
	meta.QPS = -1 // each tenant's start takes several requests; the server's priority and fairness bounds them
	super, err := restConfig("--super-cluster-kubeconfig", options.SuperClusterKubeconfig)
	if err != nil {
		return err
	}
	id, err := syncer.SuperClusterID(ctx, super)
	if err != nil {
		return err
	}
	mgr, err := newManager(ctx, options, meta, id)
	if err != nil {
		return err
	}
	numbers, err := engine.NewMetrics(metrics.Registry)
	if err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	made, err := syncer.New(ctx, mgr, syncer.Options{
		ID: id, Super: super, PodSecurityLevel: options.PodSecurityLevel, Metrics: numbers,
		VNAgent: kinds.VNAgent{Port: options.VNAgentPort, Address: options.VNAgentAddress},
		Engine:  engine.Options{Workers: options.ConcurrentSyncs},
	})
	if err != nil {
		return err
	}
	controller := &tenants.Controller{Client: mgr.GetClient(), Lifecycle: virtualclusters.Reader{Reader: mgr.GetAPIReader()}, Engage: made.Engage}
	if err := controller.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("setting up tenants: %w", err)
	}
	if err := errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("caches", made.Ready())); err != nil {
		return fmt.Errorf("adding probes: %w", err)
	}
	logger.Info("Starting", "superCluster", id)
	return mgr.Start(ctx)
}

// newManager returns a manager of the meta cluster, one leader per super cluster.
func newManager(ctx context.Context, options *Options, meta *rest.Config, id string) (ctrl.Manager, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, tenancyv1alpha1.AddToScheme, schedulerv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("building the scheme: %w", err)
		}
	}
	mgr, err := ctrl.NewManager(meta, ctrl.Options{
		Scheme:                        scheme,
		Cache:                         cache.Options{DefaultTransform: cache.TransformStripManagedFields()},
		LeaderElection:                options.LeaderElect,
		LeaderElectionID:              id + "-syncer",
		LeaderElectionNamespace:       options.LeaderElectNamespace,
		LeaderElectionReleaseOnCancel: true,
		Metrics:                       metricsserver.Options{BindAddress: options.MetricsBindAddress},
		HealthProbeBindAddress:        options.HealthProbeBindAddress,
		PprofBindAddress:              options.PprofBindAddress,
		BaseContext:                   func() context.Context { return ctx },
	})
	if err != nil {
		return nil, fmt.Errorf("connecting to the meta cluster: %w", err)
	}
	return mgr, nil
}

func restConfig(flagName, file string) (*rest.Config, error) {
	if file == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("%s is not set: %w", flagName, err)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", flagName, err)
	}
	return config, nil
}
