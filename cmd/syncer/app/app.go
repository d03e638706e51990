// Package app is the command line of syncer and wires its parts.
package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/features"
	"github.com/superpool/superpool/internal/kubeconfig"
	"github.com/superpool/superpool/internal/leadership"
	"github.com/superpool/superpool/internal/metricsauth"
	"github.com/superpool/superpool/internal/skew"
	"github.com/superpool/superpool/internal/syncer"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/choice"
	"github.com/superpool/superpool/internal/tenantclient"
	"github.com/superpool/superpool/internal/tenants"
	"github.com/superpool/superpool/internal/version"
	"github.com/superpool/superpool/internal/virtualclusters"
)

// Options holds the values of syncer's flags.
type Options struct {
	// MetaKubeconfig and SuperClusterKubeconfig are kubeconfig files; "" means the service account of the pod that the
	// process runs in.
	MetaKubeconfig         string
	SuperClusterKubeconfig string
	// Election is how replicas elect a leader. Its namespace "" means vc-manager, and superpool-system without a pool; its
	// shard is the part of the tenants that this process syncs.
	Election leadership.Options
	// MetricsBindAddress, HealthProbeBindAddress and PprofBindAddress are host:port; "0" turns one off.
	MetricsBindAddress     string
	HealthProbeBindAddress string
	PprofBindAddress       string
	// MetricsSecure serves metrics by HTTPS to authorized readers only.
	MetricsSecure bool
	// ConcurrentSyncs is the number of workers of each kind, at least 2.
	ConcurrentSyncs int
	// PodSecurityLevel is the least Pod Security level that super namespaces enforce, whatever TenantPolicies say; ""
	// leaves it to the super cluster's default.
	PodSecurityLevel string
	// PodPatience is how long the super cluster may take to find a node for a pod, or to make a claim, before it goes
	// to another super cluster; 0 means for ever.
	PodPatience time.Duration
	// VNAgentPort and VNAgentAddress become the kubelet endpoint of tenants' Nodes. Port 0 means that there is none;
	// address "" means each node's own.
	VNAgentPort    int32
	VNAgentAddress string
	// Gate holds the feature gates.
	Gate featuregate.MutableFeatureGate
	// Logs holds the values of klog's flags.
	Logs *logs.Options
}

// NewOptions returns the defaults. An error means a fault of the program: its feature gates are declared twice.
func NewOptions() (*Options, error) {
	gate, err := features.NewGate()
	if err != nil {
		return nil, err
	}
	return &Options{
		Election:               leadership.NewOptions(""),
		MetricsBindAddress:     ":8443",
		MetricsSecure:          true,
		HealthProbeBindAddress: ":8081",
		PprofBindAddress:       "0",
		ConcurrentSyncs:        engine.DefaultWorkers,
		PodSecurityLevel:       "privileged",
		PodPatience:            time.Minute,
		VNAgentPort:            10550,
		Gate:                   gate,
		Logs:                   logs.NewOptions(),
	}, nil
}

// AddFlags adds a flag for every option.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.MetaKubeconfig, "meta-kubeconfig", o.MetaKubeconfig, "kubeconfig file of the meta cluster; default: the service account of the pod that syncer runs in. Without the feature SuperClusterPooling it is the super cluster")
	flags.StringVar(&o.SuperClusterKubeconfig, "super-cluster-kubeconfig", o.SuperClusterKubeconfig, "kubeconfig file of the super cluster; default: the service account of the pod that syncer runs in")
	o.Election.AddFlags(flags, "; default vc-manager, without the feature SuperClusterPooling superpool-system")
	flags.Var(&o.Election.Shard, "shard", "sync one shard of the tenants, "+leadership.ShardUsage+". More than one needs the feature SuperClusterPooling")
	flags.BoolVar(&o.MetricsSecure, "metrics-secure", o.MetricsSecure, "serve /metrics by HTTPS, to those whom the meta cluster knows and allows to get it (ClusterRole superpool:metrics-reader). Without it everyone who reaches the address reads them")
	flags.StringVar(&o.MetricsBindAddress, "metrics-bind-address", o.MetricsBindAddress, `address of /metrics; "0" turns it off`)
	flags.StringVar(&o.HealthProbeBindAddress, "health-probe-bind-address", o.HealthProbeBindAddress, `address of /healthz and /readyz; "0" turns them off`)
	flags.StringVar(&o.PprofBindAddress, "pprof-bind-address", o.PprofBindAddress, `address of profiles under /debug/pprof/, open to everyone who reaches it, as 127.0.0.1:6060; "0" turns them off`)
	flags.IntVar(&o.ConcurrentSyncs, "concurrent-syncs", o.ConcurrentSyncs, "number of workers of each kind; one tenant has at most half of them. Raise it for many tenants whose control planes are far away")
	flags.StringVar(&o.PodSecurityLevel, "pod-security-level", o.PodSecurityLevel, `Least Pod Security level that namespaces of tenants enforce in the super cluster, whatever their TenantPolicy says: privileged, baseline or restricted. The syncer ends if the super cluster does not enforce Pod Security, unless it is "", which leaves the level to the super cluster`)
	flags.DurationVar(&o.PodPatience, "pod-patience", o.PodPatience, "how long the super cluster may refuse a pod or a claim, or find no node for a pod, before it goes to another super cluster: at least 10s, and twice as long after each failure; 0 for ever, as without the feature SuperClusterPooling")
	flags.Int32Var(&o.VNAgentPort, "vn-agent-port", o.VNAgentPort, "port of vn-agent, which serves logs and exec to tenants; 0 if there is none")
	flags.StringVar(&o.VNAgentAddress, "vn-agent-address", o.VNAgentAddress, "address of one vn-agent for all nodes; without it each node has its own")
	o.Gate.AddFlag(flags)
	logsapi.AddFlags(o.Logs, flags)
}

// Validate returns one error for each value that cannot be used, joined; nil where all can.
func (o *Options) Validate() error {
	var errs []error
	switch pooled := o.Gate.Enabled(features.SuperClusterPooling); {
	case pooled && o.MetaKubeconfig == "" && o.SuperClusterKubeconfig == "":
		errs = append(errs, errors.New("set --meta-kubeconfig, --super-cluster-kubeconfig or both: they are two clusters"))
	case !pooled && o.MetaKubeconfig != "":
		errs = append(errs, errors.New("--meta-kubeconfig is that of a pool: set --feature-gates=SuperClusterPooling=true, or leave it out, where the super cluster itself holds the VirtualClusters"))
	}
	errs = append(errs, o.Election.Validate(), o.validateShard())
	if o.ConcurrentSyncs < 2 {
		errs = append(errs, fmt.Errorf("--concurrent-syncs %d: use 2 or more, of which one tenant has half", o.ConcurrentSyncs))
	}
	switch o.PodSecurityLevel {
	case "", "privileged", "baseline", "restricted":
	default:
		errs = append(errs, fmt.Errorf("--pod-security-level %q: use privileged, baseline, restricted or nothing", o.PodSecurityLevel))
	}
	if o.PodPatience != 0 && o.PodPatience < choice.MinPodPatience {
		errs = append(errs, fmt.Errorf("--pod-patience %s: use %s or more, or 0 for ever", o.PodPatience, choice.MinPodPatience))
	}
	if o.VNAgentPort < 0 || o.VNAgentPort > 65535 {
		errs = append(errs, fmt.Errorf("--vn-agent-port %d: use 1 to 65535, or 0 for none", o.VNAgentPort))
	}
	if address := o.VNAgentAddress; address != "" && net.ParseIP(address) == nil && len(validation.IsDNS1123Subdomain(address)) > 0 {
		errs = append(errs, fmt.Errorf("--vn-agent-address %q: use an IP address or a DNS name, without a port", address))
	}
	return errors.Join(errs...)
}

// validateShard returns an error for a shard where there is no pool.
func (o *Options) validateShard() error {
	if shard := &o.Election.Shard; shard.Count > 1 && !o.Gate.Enabled(features.SuperClusterPooling) {
		return fmt.Errorf("--shard %s: without the feature SuperClusterPooling the leader does all, use 0/1", shard)
	}
	return nil
}

// NewCommand returns the command syncer. The context that it is executed with ends it. An error is that of NewOptions.
func NewCommand() (*cobra.Command, error) {
	options, err := NewOptions()
	if err != nil {
		return nil, err
	}
	command := &cobra.Command{
		Use:     "syncer",
		Version: version.String(),
		Short:   "Connects one super cluster of the pool to its tenants",
		Long: `syncer connects one super cluster of the pool to the tenants that hold placements in it. It writes what their pods need into
namespaces of the super cluster, and the status of the pods, their Nodes and bindings into the tenants.

The super cluster holds its id: ConfigMap kube-system/supercluster-info, data key id.

Without the feature SuperClusterPooling there is no pool: one cluster holds the VirtualClusters and runs all pods of all tenants. It needs
no vc-scheduler, and tenants set no ResourceQuota.`,
		Example: `  # One super cluster of a pool
  syncer --meta-kubeconfig meta.kubeconfig --super-cluster-kubeconfig r1.kubeconfig \
    --feature-gates=SuperClusterPooling=true --metrics-bind-address=:8443 --health-probe-bind-address=:8081

  # A cluster without a pool
  syncer --super-cluster-kubeconfig cluster.kubeconfig`,
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
			if err := tenantclient.CheckFeatures(); err != nil {
				return fmt.Errorf("feature gates: %w", err)
			}
			return Run(command.Context(), options)
		},
	}
	options.AddFlags(command.Flags())
	return command, nil
}

// Run syncs until ctx ends or another replica is elected; the first returns nil, the second an error. The caller has
// validated options.
func Run(ctx context.Context, options *Options) error {
	logger := klog.Background()
	ctx = klog.NewContext(ctx, logger)
	ctrl.SetLogger(logger)
	meta, super, err := options.clusters()
	if err != nil {
		return err
	}
	pooled := options.Gate.Enabled(features.SuperClusterPooling)
	meta.QPS = -1 // each tenant's start takes several requests; the server's priority and fairness bounds them
	identity, err := syncer.Identify(ctx, super)
	if err != nil {
		return err
	}
	if !pooled {
		options.Election.Shard = leadership.Shard{} // there is no pool to be split
	}
	fence, lock, err := options.election().NewLock(meta, identity.Lock())
	if err != nil {
		return err
	}
	mgr, err := newManager(ctx, options, fence.Config(meta), identity, lock)
	if err != nil {
		return err
	}
	events, err := client.New(meta, client.Options{Scheme: mgr.GetScheme()}) // the Lease may be gone when there is one to write
	if err != nil {
		return fmt.Errorf("making a client of Events: %w", err)
	}
	if pooled {
		// Before anything is tried there, watched, or a Lease taken.
		if _, err := identity.Recorded(ctx, mgr.GetAPIReader()); err != nil {
			identity.Refuse(ctx, events, err)
			return err
		}
	} else {
		options.PodPatience = 0 // there is no other super cluster
	}
	if err := options.provePodSecurity(ctx, super); err != nil {
		return err
	}
	engineMetrics, err := engine.NewMetrics(metrics.Registry)
	if err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	superClusterSyncer, err := syncer.New(ctx, mgr, syncer.Options{
		Identity: identity, Super: super, Single: !pooled, PodSecurityLevel: options.PodSecurityLevel, PodPatience: options.PodPatience, Metrics: engineMetrics,
		VNAgent: kind.VNAgent{Port: options.VNAgentPort, Address: options.VNAgentAddress}, Shard: options.Election.Shard, Fence: fence,
		Engine: engine.Options{Workers: options.ConcurrentSyncs},
	})
	if err != nil {
		return err
	}
	recorder := mgr.GetEventRecorderFor("syncer-" + identity.ID)
	controller := &tenants.Controller{Client: mgr.GetClient(), Engage: superClusterSyncer.Engage}
	if pooled {
		controller.Lifecycle, controller.Serves = virtualclusters.Reader{Reader: mgr.GetAPIReader(), Recorder: recorder}, superClusterSyncer.Serves
		controller.Standby = true // without a pool the leader alone writes VirtualClusters
	} else {
		controller.Lifecycle = &virtualclusters.Owner{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Recorder: recorder, Left: superClusterSyncer.Left}
	}
	if err := controller.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("setting up tenants: %w", err)
	}
	if err := errors.Join(
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddReadyzCheck("caches", superClusterSyncer.Ready()), mgr.AddReadyzCheck("super-cluster", superClusterSyncer.Answers()),
	); err != nil {
		return fmt.Errorf("adding probes: %w", err)
	}
	logger.Info("Starting", "superCluster", identity.ID, "uid", identity.UID, "pooled", pooled)
	err = mgr.Start(ctx)
	identity.Refuse(ctx, events, err)
	return err
}

// kinds returns the kinds of Superpool's own without which there is nothing to sync.
func (o *Options) kinds() []schema.GroupVersionKind {
	kinds := []schema.GroupVersionKind{tenancyv1alpha1.GroupVersion.WithKind("VirtualCluster"), tenancyv1alpha1.GroupVersion.WithKind("TenantPolicy")}
	if o.Gate.Enabled(features.SuperClusterPooling) {
		kinds = append(kinds, schedulerv1alpha1.GroupVersion.WithKind("NamespacePlacement"))
	}
	return kinds
}

// election returns how the leader is elected: its Lease carries the super cluster's identity, so that there is one per
// super cluster and shard.
func (o *Options) election() *leadership.Options {
	election := o.Election
	if o.Gate.Enabled(features.SuperClusterPooling) {
		election.Namespace = cmp.Or(election.Namespace, "vc-manager")
	}
	election.Namespace = cmp.Or(election.Namespace, "superpool-system")
	return &election
}

// provePodSecurity returns why the super cluster does not enforce the level of Pod Security that is asked for.
func (o *Options) provePodSecurity(ctx context.Context, super *rest.Config) error {
	if o.PodSecurityLevel == "" {
		return nil
	}
	return syncer.ProvePodSecurity(ctx, super) //nolint:wrapcheck // it says all
}

// clusters returns the client configurations of the meta cluster and of the super cluster: without a pool they are one.
func (o *Options) clusters() (meta, super *rest.Config, err error) {
	if o.Gate.Enabled(features.SuperClusterPooling) {
		if meta, err = restConfig("--meta-kubeconfig", o.MetaKubeconfig); err != nil {
			return nil, nil, err
		}
	}
	if super, err = restConfig("--super-cluster-kubeconfig", o.SuperClusterKubeconfig); err != nil {
		return nil, nil, err
	}
	if meta == nil {
		meta = rest.CopyConfig(super)
	}
	return meta, super, nil
}

// newManager returns a manager of the meta cluster, which serves the kinds that are needed.
func newManager(ctx context.Context, options *Options, meta *rest.Config, identity syncer.Identity, lock resourcelock.Interface) (ctrl.Manager, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, tenancyv1alpha1.AddToScheme, schedulerv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("building the scheme: %w", err)
		}
	}
	election := &options.Election
	mgr, err := ctrl.NewManager(meta, ctrl.Options{
		Scheme:                              scheme,
		LeaderElectionResourceLockInterface: lock,
		Cache:                               cache.Options{DefaultTransform: cache.TransformStripManagedFields(), ByObject: options.cached(identity)},
		LeaderElection:                      election.Elect,
		LeaderElectionID:                    election.Shard.LeaseName(identity.Lock()), // as metrics name it
		LeaderElectionReleaseOnCancel:       true,
		LeaseDuration:                       &election.LeaseDuration,
		RenewDeadline:                       &election.RenewDeadline,
		RetryPeriod:                         &election.RetryPeriod,
		Metrics:                             metricsOptions(options),
		HealthProbeBindAddress:              options.HealthProbeBindAddress,
		PprofBindAddress:                    options.PprofBindAddress,
		BaseContext:                         func() context.Context { return ctx },
	})
	if err != nil {
		return nil, fmt.Errorf("connecting to the meta cluster: %w", err)
	}
	if err := skew.CheckServed(mgr.GetRESTMapper(), options.kinds()...); err != nil {
		return nil, err //nolint:wrapcheck // it says all
	}
	return mgr, nil
}

// cached returns which objects of a kind the manager's cache holds: of Nodes the virtual one, and without a pool, where
// the copies of tenants' objects are in the same cluster, none of these.
func (o *Options) cached(identity syncer.Identity) map[client.Object]cache.ByObject {
	cached := map[client.Object]cache.ByObject{&corev1.Node{}: {Field: fields.OneTermEqualSelector("metadata.name", identity.ID)}}
	if o.Gate.Enabled(features.SuperClusterPooling) {
		return cached
	}
	notOfTenants, err := labels.Parse("!" + tenancyv1alpha1.LabelCluster)
	utilruntime.Must(err)
	for _, kind := range []string{"Secret", "Namespace"} {
		object := &metav1.PartialObjectMetadata{}
		object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
		cached[object] = cache.ByObject{Label: notOfTenants}
	}
	return cached
}

// metricsOptions returns the options of the manager's metrics server.
func metricsOptions(options *Options) metricsserver.Options {
	served := metricsserver.Options{BindAddress: options.MetricsBindAddress, SecureServing: options.MetricsSecure}
	if options.MetricsSecure {
		served.FilterProvider = metricsauth.FilterProvider
	}
	return served
}

// restConfig returns the configuration of a kubeconfig file, or of the pod's service account if file is "". flagName is
// for errors.
func restConfig(flagName, file string) (*rest.Config, error) {
	if file == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("%s is not set: %w", flagName, err)
		}
		return config, nil
	}
	config, err := kubeconfig.FromFile(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flagName, err)
	}
	return config, nil
}
