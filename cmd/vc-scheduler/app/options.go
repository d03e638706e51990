// Package app holds the command line of vc-scheduler and wires its parts.
package app

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	intree "k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/superpool/superpool/internal/kubescheduler"
	"github.com/superpool/superpool/internal/leadership"
	"github.com/superpool/superpool/internal/placer"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/manifests/profiles"
	"github.com/superpool/superpool/plugins"
)

func init() {
	utilruntime.Must(logsapi.AddFeatureGates(utilfeature.DefaultMutableFeatureGate))
}

// Options holds the values of vc-scheduler's flags.
type Options struct {
	// Kubeconfig is the kubeconfig file of the meta cluster; "" means the service account of the pod.
	Kubeconfig string
	// NamespaceSchedulerConfig and PodSchedulerConfig are files that hold a KubeSchedulerConfiguration; "" means the
	// built-in one.
	NamespaceSchedulerConfig, PodSchedulerConfig string
	// DefaultSlice is the slice size of namespaces that name none, as a JSON resource list. What it does not name is
	// that of slice.Shipped, in proportion.
	DefaultSlice string
	// LostToleration is for how long a super cluster may not answer before what namespaces have there is placed
	// elsewhere.
	LostToleration time.Duration
	// PreemptionGrace is how long disruption budgets count for pods of namespaces that borrow and give way.
	PreemptionGrace time.Duration
	// QuotaGrace is how long a namespace keeps what it has once it has no ResourceQuota any more.
	QuotaGrace time.Duration
	// ProbePeriod is how often super clusters are asked whether they are there; 0 means 10 seconds. It is no flag:
	// tests do not wait for it.
	ProbePeriod time.Duration
	// LossPeriod is how often losses of super clusters are simulated; 0 means losses.DefaultPeriod. It is no flag, as
	// ProbePeriod.
	LossPeriod time.Duration
	// ClusterSelector selects the Clusters that may become super clusters by their labels; "": all may.
	ClusterSelector string
	// SyncerNamespace is the namespace of the syncers' service accounts, which may read kubeconfigs of tenants.
	SyncerNamespace string
	// Election is how replicas elect a leader. Its shard is the part of the tenants whose pods this process schedules.
	Election leadership.Options
	// MetricsBindAddress, HealthProbeBindAddress and PprofBindAddress are host:port; "0" turns one off.
	MetricsBindAddress, HealthProbeBindAddress, PprofBindAddress string
	// MetricsSecure serves metrics by HTTPS to authorized readers only.
	MetricsSecure bool
	// Logs holds the values of klog's flags.
	Logs *logs.Options
	// Plugins add plugins that profiles of pods can enable.
	Plugins []Option
}

// Option adds to a registry of plugins, as kube-scheduler's own app.Option does.
type Option func(registry frameworkruntime.Registry) error

// WithPlugin makes a plugin known by its name, so that profiles of pods (--pod-scheduler-config) can enable it. Plugins
// of kube-scheduler and of the pool keep their names. The factory is called for each profile of
// each tenant; docs/developing/add-a-plugin.md says what that asks of it.
func WithPlugin(name string, factory frameworkruntime.PluginFactory) Option {
	return func(registry frameworkruntime.Registry) error {
		if err := registry.Register(name, factory); err != nil {
			return fmt.Errorf("adding plugin %s: %w", name, err)
		}
		return nil
	}
}

// registry returns what Plugins add.
func (o *Options) registry() (frameworkruntime.Registry, error) {
	taken, added := plugins.Registry(plugins.Options{}), frameworkruntime.Registry{}
	if err := taken.Merge(intree.NewInTreeRegistry()); err != nil {
		return nil, fmt.Errorf("listing plugins: %w", err)
	}
	for _, add := range o.Plugins {
		if err := add(added); err != nil {
			return nil, err
		}
	}
	for name := range added {
		if _, exists := taken[name]; exists {
			return nil, fmt.Errorf("adding plugin %s: there is one of that name", name)
		}
	}
	return added, nil
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{
		DefaultSlice:           slice.Shipped,
		LostToleration:         5 * time.Minute,
		PreemptionGrace:        10 * time.Minute,
		QuotaGrace:             30 * time.Second,
		SyncerNamespace:        "vc-manager",
		Election:               leadership.NewOptions("vc-manager"),
		MetricsBindAddress:     ":8443",
		MetricsSecure:          true,
		HealthProbeBindAddress: ":8081",
		PprofBindAddress:       "0",
		Logs:                   logs.NewOptions(),
	}
}

// AddFlags adds a flag for every option to fs, and those of klog and the feature gates.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "kubeconfig file of the meta cluster; default: the service account of the pod that vc-scheduler runs in")
	fs.StringVar(&o.NamespaceSchedulerConfig, "namespace-scheduler-config", o.NamespaceSchedulerConfig,
		"file with the KubeSchedulerConfiguration of the namespace scheduler; default: the built-in one")
	fs.StringVar(&o.PodSchedulerConfig, "pod-scheduler-config", o.PodSchedulerConfig,
		"file with the KubeSchedulerConfiguration of the pod schedulers; default: the built-in one")
	fs.StringVar(&o.DefaultSlice, "default-slice", o.DefaultSlice,
		"slice size of namespaces that name none; others hold in proportion to it what their slice annotation does not name")
	fs.DurationVar(&o.PreemptionGrace, "preemption-grace-period", o.PreemptionGrace,
		"How long disruption budgets count for pods of namespaces that borrow room which is guaranteed to another tenant. After that they are deleted.")
	fs.DurationVar(&o.LostToleration, "lost-toleration", o.LostToleration,
		"for how long a super cluster may not answer before what namespaces have there is placed elsewhere; a namespace may name another time")
	fs.DurationVar(&o.QuotaGrace, "quota-grace", o.QuotaGrace,
		"how long a namespace keeps what it has once it has no ResourceQuota any more, so that one that is deleted and created again loses nothing")
	fs.StringVar(&o.ClusterSelector, "cluster-selector", o.ClusterSelector,
		"labels of the Clusters of Cluster API that may become super clusters, as pool=superpool; default: all Clusters of the meta cluster may")
	fs.StringVar(&o.SyncerNamespace, "syncer-namespace", o.SyncerNamespace,
		"namespace of the meta cluster with the service accounts vc-syncer-ID, which are granted the kubeconfigs of the tenants that they serve")
	o.Election.AddFlags(fs, "")
	fs.Var(&o.Election.Shard, "shard", "schedule the pods of one shard of the tenants, "+leadership.ShardUsage+". The leader of shard 0 does all that is decided over the whole pool, too")
	fs.BoolVar(&o.MetricsSecure, "metrics-secure", o.MetricsSecure, "serve /metrics by HTTPS, to those whom the meta cluster knows and allows to get it (ClusterRole superpool:metrics-reader). Without it everyone who reaches the address reads them")
	fs.StringVar(&o.MetricsBindAddress, "metrics-bind-address", o.MetricsBindAddress, `address of /metrics; "0" turns it off`)
	fs.StringVar(&o.HealthProbeBindAddress, "health-probe-bind-address", o.HealthProbeBindAddress, `address of /healthz and /readyz; "0" turns them off`)
	fs.StringVar(&o.PprofBindAddress, "pprof-bind-address", o.PprofBindAddress,
		`address of profiles under /debug/pprof/, open to everyone who reaches it, as 127.0.0.1:6060; "0" turns them off`)
	utilfeature.DefaultMutableFeatureGate.AddFlag(fs)
	logsapi.AddFlags(o.Logs, fs)
}

// settings are what options and their files hold, parsed.
type settings struct {
	defaultSlice                                slice.Amounts
	namespaceConfig, podConfig                  *config.KubeSchedulerConfiguration
	namespaceProfiles, podProfiles              sets.Set[string]
	outOfTree                                   frameworkruntime.Registry
	syncerNamespace                             string
	lostToleration, quotaGrace, preemptionGrace time.Duration
	probePeriod, lossPeriod                     time.Duration
	clusterSelector                             labels.Selector
}

// read parses the options and reads their files. It reaches no API server.
func (o *Options) read() (*settings, error) {
	read := settings{
		syncerNamespace: o.SyncerNamespace, lostToleration: o.LostToleration, quotaGrace: o.QuotaGrace, preemptionGrace: o.PreemptionGrace,
		probePeriod: o.ProbePeriod, lossPeriod: o.LossPeriod,
	}
	if o.PreemptionGrace < 0 {
		return nil, fmt.Errorf("--preemption-grace-period: %s is negative", o.PreemptionGrace)
	}
	if o.LostToleration < 0 {
		return nil, fmt.Errorf("--lost-toleration: %s is negative", o.LostToleration)
	}
	if err := o.Election.Validate(); err != nil {
		return nil, err //nolint:wrapcheck // it names the flag
	}
	if o.QuotaGrace < 0 {
		return nil, fmt.Errorf("--quota-grace: %s is negative", o.QuotaGrace)
	}
	var err error
	if read.clusterSelector, err = labels.Parse(o.ClusterSelector); err != nil {
		return nil, fmt.Errorf("--cluster-selector: %w", err)
	}
	if read.defaultSlice, err = slice.ParseDefault(o.DefaultSlice); err != nil {
		return nil, fmt.Errorf("--default-slice: %w", err)
	}
	if read.namespaceConfig, err = kubescheduler.LoadConfig(o.NamespaceSchedulerConfig, profiles.NamespaceScheduler); err != nil {
		return nil, fmt.Errorf("--namespace-scheduler-config: %w", err)
	}
	if read.namespaceProfiles, err = placer.Profiles(read.namespaceConfig); err != nil {
		return nil, fmt.Errorf("--namespace-scheduler-config: %w", err)
	}
	if read.outOfTree, err = o.registry(); err != nil {
		return nil, err
	}
	if read.podConfig, err = kubescheduler.LoadConfigWith(o.PodSchedulerConfig, profiles.PodScheduler, read.outOfTree); err != nil {
		return nil, fmt.Errorf("--pod-scheduler-config: %w", err)
	}
	if err := plugins.CheckPods(read.podConfig); err != nil {
		return nil, fmt.Errorf("--pod-scheduler-config: %w", err)
	}
	read.podProfiles = sets.New[string]()
	for i := range read.podConfig.Profiles {
		read.podProfiles.Insert(read.podConfig.Profiles[i].SchedulerName)
	}
	return &read, nil
}
