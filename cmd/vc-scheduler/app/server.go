package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/census"
	"github.com/superpool/superpool/internal/grants"
	"github.com/superpool/superpool/internal/kubeconfig"
	"github.com/superpool/superpool/internal/kubescheduler"
	"github.com/superpool/superpool/internal/proof"
	"github.com/superpool/superpool/internal/scheduling"
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/scheduling/eviction"
	"github.com/superpool/superpool/internal/scheduling/losses"
	"github.com/superpool/superpool/internal/scheduling/namespacescheduler"
	"github.com/superpool/superpool/internal/scheduling/placements"
	"github.com/superpool/superpool/internal/scheduling/preemption"
	"github.com/superpool/superpool/internal/scheduling/requests"
	"github.com/superpool/superpool/internal/skew"
	"github.com/superpool/superpool/internal/superclusters"
	"github.com/superpool/superpool/internal/tenantclient"
	"github.com/superpool/superpool/internal/tenants"
	"github.com/superpool/superpool/internal/version"
	"github.com/superpool/superpool/internal/virtualclusters"
)

const (
	component = "vc-scheduler"
	leaseName = "vc-scheduler"

	// metaQPS and metaBurst are the client's rate limit at the meta cluster, where each placement of a namespace is
	// written.
	metaQPS, metaBurst = 200, 400
)

// NewCommand returns the command vc-scheduler, with further plugins. The context that it is executed with ends it.
func NewCommand(plugins ...Option) *cobra.Command {
	options := NewOptions()
	options.Plugins = plugins
	cmd := &cobra.Command{
		Use:     component,
		Version: version.String(),
		Short:   "Place tenant namespaces and their pods over a pool of super clusters",
		Long: `vc-scheduler watches tenant control planes and super clusters. It cuts the ResourceQuota of each tenant namespace into slices,
places the slices over the super clusters, and picks a super cluster for each tenant pod.`,
		Example: `  # Run against the meta cluster of a kubeconfig, with the built-in scheduler profiles
  vc-scheduler --kubeconfig meta.kubeconfig

  # Run with profiles of your own
  vc-scheduler --namespace-scheduler-config namespaces.yaml --pod-scheduler-config pods.yaml`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := logsapi.ValidateAndApply(options.Logs, utilfeature.DefaultFeatureGate); err != nil {
				return fmt.Errorf("logging flags: %w", err)
			}
			if err := errors.Join(tenantclient.CheckFeatures(), kubescheduler.CheckFeatures()); err != nil {
				return fmt.Errorf("feature gates: %w", err)
			}
			ctrl.SetLogger(klog.Background())
			kubescheduler.RecoverExits()
			return Run(cmd.Context(), options)
		},
	}
	options.AddFlags(cmd.Flags())
	return cmd
}

// Run schedules until ctx ends or another replica is elected; the first returns nil, the second an error, as does a
// flag that cannot be used.
func Run(ctx context.Context, options *Options) error {
	cfg, err := metaConfig(options.Kubeconfig)
	if err != nil {
		return err
	}
	cfg.QPS, cfg.Burst = metaQPS, metaBurst
	read, err := options.read() // a wrong file is reported before anything connects
	if err != nil {
		return err
	}
	elected, err := newElection(cfg, options)
	if err != nil {
		return err
	}
	mgr, err := newManager(cfg, options, elected)
	if err != nil {
		return err
	}
	if err := skew.CheckServed(mgr.GetRESTMapper(), tenancyv1alpha1.GroupVersion.WithKind("VirtualCluster"),
		tenancyv1alpha1.GroupVersion.WithKind("TenantPolicy"), schedulerv1alpha1.GroupVersion.WithKind("NamespacePlacement")); err != nil {
		return err //nolint:wrapcheck // it says all
	}
	setup := setupPool
	if elected.shard.Index > 0 {
		setup = setupShard
	}
	if err := setup(ctx, mgr, read, elected); err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running: %w", err)
	}
	return nil
}

// metaConfig returns how to reach the meta cluster by a kubeconfig file, or by the service account of the pod if file
// is "".
func metaConfig(file string) (*rest.Config, error) {
	get := rest.InClusterConfig
	if file != "" {
		get = func() (*rest.Config, error) { return kubeconfig.FromFile(file) }
	}
	config, err := get()
	if err != nil {
		return nil, fmt.Errorf("reading --kubeconfig: %w", err)
	}
	return config, nil
}

// newManager returns a manager of the meta cluster, whose cache holds virtual Nodes alone of all Nodes.
func newManager(cfg *rest.Config, options *Options, elected *election) (ctrl.Manager, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	virtualNodes, err := labels.NewRequirement(schedulerv1alpha1.LabelVirtualNode, selection.Exists, nil)
	if err != nil {
		return nil, fmt.Errorf("selecting virtual Nodes: %w", err)
	}
	election := &options.Election
	fenced := rest.AddUserAgent(rest.CopyConfig(cfg), component)
	if election.Elect {
		fenced.Wrap(elected.fence.Wrap)
	}
	mgr, err := ctrl.NewManager(fenced, ctrl.Options{
		Scheme: scheme,
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&corev1.Node{}: {Label: labels.NewSelector().Add(*virtualNodes)},
		}},
		LeaderElection:                      election.Elect,
		LeaderElectionID:                    elected.shard.LeaseName(leaseName), // as metrics name it
		LeaderElectionResourceLockInterface: elected.lock,
		LeaderElectionReleaseOnCancel:       true,
		LeaseDuration:                       &election.LeaseDuration,
		RenewDeadline:                       &election.RenewDeadline,
		RetryPeriod:                         &election.RetryPeriod,
		Metrics:                             metricsOptions(options),
		HealthProbeBindAddress:              options.HealthProbeBindAddress,
		PprofBindAddress:                    options.PprofBindAddress,
		// Tests run the program several times in one process.
		Controller: ctrlconfig.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		return nil, fmt.Errorf("connecting to the meta cluster: %w", err)
	}
	return mgr, nil
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, tenancyv1alpha1.AddToScheme, schedulerv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("building the scheme: %w", err)
		}
	}
	return scheme, nil
}

// setupPool adds the controllers of super clusters and tenants, the namespace scheduler and the probes to mgr.
func setupPool(ctx context.Context, mgr ctrl.Manager, read *settings, elected *election) error {
	dispatcher := dispatch.New(false)
	if err := watchMeta(ctx, mgr, dispatcher); err != nil {
		return err
	}
	if err := census.RegisterPool(ctx, ctrlmetrics.Registry, mgr.GetCache()); err != nil {
		return err //nolint:wrapcheck // it says all
	}
	recorder := mgr.GetEventRecorderFor(component)
	metrics, err := superclusters.NewMetrics(ctrlmetrics.Registry)
	if err != nil {
		return fmt.Errorf("setting up super clusters: %w", err)
	}
	superClusters := &superclusters.Controller{Client: mgr.GetClient(), Recorder: recorder, Metrics: metrics, DefaultSlice: read.defaultSlice, ProbePeriod: read.probePeriod, Selector: read.clusterSelector}
	if err := superClusters.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("setting up super clusters: %w", err)
	}
	store, err := newStore(mgr)
	if err != nil {
		return err
	}
	releaser := &eviction.Releaser{Store: store, Usage: superClusters}
	for _, controller := range []interface{ SetupWithManager(mgr ctrl.Manager) error }{
		releaser,
		&eviction.Evacuator{Store: store, Usage: superClusters, LostToleration: read.lostToleration},
		&requests.Rescheduler{Store: store, Reader: mgr.GetClient(), Config: read.namespaceConfig, Clock: clock.RealClock{}},
		&preemption.Guarantor{Store: store, Clock: clock.RealClock{}},
		&preemption.GuaranteeAudit{Reader: mgr.GetClient(), Recorder: recorder},
		&tenants.NameAudit{Reader: mgr.GetClient(), Recorder: recorder, NamespaceProfiles: read.namespaceProfiles, PodProfiles: read.podProfiles},
		&preemption.Preemptor{Store: store, Reader: mgr.GetClient(), Usage: superClusters, Config: read.namespaceConfig, Grace: read.preemptionGrace, Clock: clock.RealClock{}},
	} {
		if err := controller.SetupWithManager(mgr); err != nil {
			return err
		}
	}
	superClusters.OnFreed(dispatcher.Freed)
	superClusters.OnFreed(releaser.Freed)
	schedulers := &scheduling.Tenants{
		Fence: elected.wrap(), Client: mgr.GetClient(), Store: store, Usage: superClusters, Holds: superClusters.Holds, Dispatcher: dispatcher, PodConfig: read.podConfig, Profiles: read.namespaceProfiles,
		DefaultSlice: read.defaultSlice, QuotaGrace: read.quotaGrace, Metrics: store.Metrics, OutOfTree: read.outOfTree,
	}
	owner := &virtualclusters.Owner{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Recorder: recorder, Left: superClusters.Left, Runs: superClusters.Runs}
	ofTenants := &tenants.Controller{Client: mgr.GetClient(), Lifecycle: owner, Engage: elected.engage(schedulers), Version: tenants.AskVersion}
	if err := ofTenants.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("setting up tenants: %w", err)
	}
	grants := &grants.Controller{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), SyncerNamespace: read.syncerNamespace, Clock: clock.RealClock{}}
	if err := grants.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("setting up grants: %w", err)
	}
	namespaceScheduler := &namespacescheduler.Scheduler{
		Informers: mgr.GetCache(), Cached: mgr.GetClient(), Live: mgr.GetAPIReader(),
		Store: store, KubeConfig: mgr.GetConfig(), Config: read.namespaceConfig,
	}
	simulator := &losses.Simulator{Reader: mgr.GetCache(), Config: read.namespaceConfig, Tell: superClusters.SetReplaceable, Clock: clock.RealClock{}, Period: read.lossPeriod}
	if err := errors.Join(mgr.Add(namespaceScheduler), mgr.Add(simulator)); err != nil {
		return fmt.Errorf("adding the namespace scheduler, and simulations of losses: %w", err)
	}
	return addChecks(mgr)
}

// setupShard adds the pod schedulers of the tenants of a shard, whose pool another process leads, and the probes to
// mgr.
func setupShard(ctx context.Context, mgr ctrl.Manager, read *settings, elected *election) error {
	dispatcher := dispatch.New(true)
	if err := watchMeta(ctx, mgr, dispatcher); err != nil {
		return err
	}
	store, err := newStore(mgr)
	if err != nil {
		return err
	}
	controller := &tenants.Controller{
		Client: mgr.GetClient(), Has: elected.has, Engage: shardTenants(mgr.GetClient(), mgr.GetAPIReader(), read, elected, store, dispatcher).Engage,
		Lifecycle: virtualclusters.Reader{Reader: mgr.GetAPIReader(), Recorder: mgr.GetEventRecorderFor(component)},
	}
	if err := controller.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("setting up tenants: %w", err)
	}
	return addChecks(mgr)
}

// shardTenants returns what is run for each tenant of a shard: as the leader of the pool does it, without what that
// alone knows.
func shardTenants(
	cached client.Client, live client.Reader, read *settings, elected *election, store *placements.Store, dispatcher *dispatch.Dispatcher,
) *scheduling.Tenants {
	asked := &superclusters.Controller{Client: cached, Reader: live} // it connects to none
	return &scheduling.Tenants{
		Part: scheduling.PartPods, Fence: elected.wrap(), Client: cached, Store: store, Holds: asked.Holds, Dispatcher: dispatcher,
		PodConfig: read.podConfig, Profiles: read.namespaceProfiles, Metrics: store.Metrics, OutOfTree: read.outOfTree,
	}
}

// watchMeta lets dispatcher follow the meta cluster, which must stay the same one.
func watchMeta(ctx context.Context, mgr ctrl.Manager, dispatcher *dispatch.Dispatcher) error {
	if err := dispatcher.Watch(ctx, mgr.GetCache()); err != nil {
		return fmt.Errorf("following placements: %w", err)
	}
	if err := mgr.Add(&proof.Guard{Name: "the meta cluster", Namespaces: proof.By(mgr.GetAPIReader())}); err != nil {
		return fmt.Errorf("adding the guard of the meta cluster: %w", err)
	}
	return nil
}

func newStore(mgr ctrl.Manager) (*placements.Store, error) {
	metrics, err := placements.NewMetrics(ctrlmetrics.Registry)
	if err != nil {
		return nil, fmt.Errorf("setting up placements: %w", err)
	}
	store := placements.NewStore(mgr.GetClient(), mgr.GetAPIReader())
	store.Metrics = metrics
	return store, nil
}

// addChecks adds the probes. /readyz is 200 once the meta cluster's caches have synced.
func addChecks(mgr manager.Manager) error {
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("adding /healthz: %w", err)
	}
	synced := func(request *http.Request) error {
		if !mgr.GetCache().WaitForCacheSync(request.Context()) {
			return errors.New("caches of the meta cluster have not synced")
		}
		return nil
	}
	if err := mgr.AddReadyzCheck("caches", synced); err != nil {
		return fmt.Errorf("adding /readyz: %w", err)
	}
	return nil
}
