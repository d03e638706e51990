// Package app holds the command line of vn-agent and wires its parts.
package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/superpool/superpool/internal/metricsauth"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/internal/version"
	"github.com/superpool/superpool/internal/vnagent"
	"github.com/superpool/superpool/internal/vnagent/backend"
	"github.com/superpool/superpool/internal/vnagent/pods"
	"github.com/superpool/superpool/internal/vnagent/rename"
)

// The values of --mode: which server of the super cluster requests about pods are forwarded to.
const (
	// ModeKubelet forwards to the kubelet of this node: one vn-agent per node.
	ModeKubelet = "kubelet"
	// ModeAPIServer forwards to the API server of the super cluster: one vn-agent for all nodes.
	ModeAPIServer = "apiserver"
)

// Options holds the values of vn-agent's flags.
type Options struct {
	// Mode is ModeKubelet or ModeAPIServer.
	Mode string
	// Kubeconfig of the super cluster; "" means the cluster that the process runs in. In ModeKubelet only MetricsSecure
	// uses it.
	Kubeconfig string
	// SuperCluster is the id that prefixes node names in responses, as tenants see them; "" leaves nodes their own
	// names.
	SuperCluster string
	// BindAddress and SecurePort are where vn-agent serves the kubelet API.
	BindAddress string
	SecurePort  int
	// Certificates of the kubelet API.
	Certificates vnagent.Certificates
	// KubeletHost is the host, and Kubelet the address and files of the kubelet, in ModeKubelet. Kubelet.Address may
	// lack the host, which is then KubeletHost, or be "".
	KubeletHost string
	Kubelet     backend.KubeletOptions
	// MaxStreams bounds the requests about single pods that run for one tenant at a time, at least 1.
	MaxStreams int
	// MaxAllStreams bounds those of all tenants together, at least 1.
	MaxAllStreams int
	// MetricsBindAddress and HealthProbeBindAddress are host:port; "0" turns one off.
	MetricsBindAddress     string
	HealthProbeBindAddress string
	// MetricsSecure serves metrics by HTTPS to authorized readers only.
	MetricsSecure bool
	// ShutdownGrace is how long running requests may continue after a signal to terminate.
	ShutdownGrace time.Duration
	// Logs holds the values of klog's flags.
	Logs *logs.Options
}

// NewOptions returns the defaults, with NODE_IP of the environment that getenv reads.
func NewOptions(getenv func(string) string) *Options {
	return &Options{
		Mode:                   ModeKubelet,
		BindAddress:            "0.0.0.0",
		SecurePort:             10550,
		KubeletHost:            getenv("NODE_IP"),
		Kubelet:                backend.KubeletOptions{TokenFile: "/var/run/secrets/kubernetes.io/serviceaccount/token"},
		MaxStreams:             vnagent.DefaultMaxStreams,
		MaxAllStreams:          vnagent.DefaultMaxAllStreams,
		MetricsBindAddress:     "127.0.0.1:10551",
		HealthProbeBindAddress: "127.0.0.1:10552",
		MetricsSecure:          true,
		ShutdownGrace:          30 * time.Second,
		Logs:                   logs.NewOptions(),
	}
}

// AddFlags adds a flag for every option.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Mode, "mode", o.Mode, "where requests about pods are forwarded to: kubelet (that of this node) or apiserver (the super cluster's, for all nodes)")
	flags.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "kubeconfig file of the super cluster; default: the service account of the pod that vn-agent runs in. In mode kubelet --metrics-secure alone needs it")
	flags.StringVar(&o.SuperCluster, "super-cluster", o.SuperCluster, "id of the super cluster: names nodes in lists as tenants see them, <id>.<node>; default: nodes keep their names")
	flags.StringVar(&o.BindAddress, "bind-address", o.BindAddress, "address that serves the kubelet API")
	flags.IntVar(&o.SecurePort, "secure-port", o.SecurePort, "port that serves the kubelet API")
	flags.StringVar(&o.Certificates.ClientCAFile, "client-ca-file", "", "file with the certificate authorities that sign the client certificates of tenants' API servers; required")
	flags.StringVar(&o.Certificates.CertFile, "tls-cert-file", "", "file with the serving certificate; required")
	flags.StringVar(&o.Certificates.KeyFile, "tls-private-key-file", "", "file with the key of the serving certificate; required")
	flags.StringVar(&o.KubeletHost, "kubelet-host", o.KubeletHost, "host of the kubelet where --kubelet-address has none; default: environment variable NODE_IP")
	flags.StringVar(&o.Kubelet.Address, "kubelet-address", "", "host:port of the kubelet; default: --kubelet-host, port 10250")
	flags.StringVar(&o.Kubelet.CAFile, "kubelet-certificate-authority", "", "file with the certificate authorities that sign the kubelet's serving certificate; required in mode kubelet")
	flags.StringVar(&o.Kubelet.CertFile, "kubelet-client-certificate", "", "file with the client certificate for the kubelet; default: the token of --kubelet-token-file")
	flags.StringVar(&o.Kubelet.KeyFile, "kubelet-client-key", "", "file with the key of --kubelet-client-certificate")
	flags.StringVar(&o.Kubelet.TokenFile, "kubelet-token-file", o.Kubelet.TokenFile, "file with the bearer token for the kubelet, used without --kubelet-client-certificate")
	flags.IntVar(&o.MaxStreams, "max-streams-per-tenant", o.MaxStreams, "maximum number of logs, commands and forwarded ports that run for one tenant at a time")
	flags.IntVar(&o.MaxAllStreams, "max-streams", o.MaxAllStreams, "maximum number of logs, commands and forwarded ports that run for all tenants at a time; a tenant with N of them may begin another while more than N are free")
	flags.StringVar(&o.MetricsBindAddress, "metrics-bind-address", o.MetricsBindAddress, `address of /metrics; "0" turns it off`)
	flags.BoolVar(&o.MetricsSecure, "metrics-secure", o.MetricsSecure, "serve /metrics by HTTPS, to those whom the super cluster knows and allows to get it (ClusterRole superpool:metrics-reader). Without it everyone who reaches the address reads them")
	flags.StringVar(&o.HealthProbeBindAddress, "health-probe-bind-address", o.HealthProbeBindAddress, `address of /healthz and /readyz; "0" turns them off`)
	flags.DurationVar(&o.ShutdownGrace, "shutdown-grace", o.ShutdownGrace, "how long running streams may continue after a signal to terminate")
	logsapi.AddFlags(o.Logs, flags)
}

// Validate returns one error for each value that cannot be used, joined; nil where all can.
func (o *Options) Validate() error {
	var errs []error
	require := func(value, text string) {
		if value == "" {
			errs = append(errs, errors.New(text))
		}
	}
	require(o.Certificates.ClientCAFile, "set --client-ca-file: without it any client could say that it is any tenant")
	require(o.Certificates.CertFile, "set --tls-cert-file")
	require(o.Certificates.KeyFile, "set --tls-private-key-file")
	if o.SecurePort < 1 || o.SecurePort > 65535 {
		errs = append(errs, fmt.Errorf("--secure-port %d: use 1 to 65535", o.SecurePort))
	}
	if o.SuperCluster != "" {
		if err := tenancy.ValidateSuperClusterID(o.SuperCluster); err != nil {
			errs = append(errs, fmt.Errorf("--super-cluster: %w", err))
		}
	}
	if o.MaxStreams < 1 {
		errs = append(errs, fmt.Errorf("--max-streams-per-tenant %d: use 1 or more", o.MaxStreams))
	}
	if o.MaxAllStreams < 1 {
		errs = append(errs, fmt.Errorf("--max-streams %d: use 1 or more", o.MaxAllStreams))
	}
	if o.ShutdownGrace < 0 {
		errs = append(errs, fmt.Errorf("--shutdown-grace %s: use 0s or more", o.ShutdownGrace))
	}
	switch o.Mode {
	case ModeKubelet:
		require(o.Kubelet.CAFile, "set --kubelet-certificate-authority in mode kubelet: a kubelet that is not verified could be anybody")
		if _, err := o.kubeletAddress(); err != nil {
			errs = append(errs, err)
		}
		if (o.Kubelet.CertFile == "") != (o.Kubelet.KeyFile == "") {
			errs = append(errs, errors.New("set both --kubelet-client-certificate and --kubelet-client-key, or neither"))
		}
	case ModeAPIServer:
	default:
		errs = append(errs, fmt.Errorf("--mode %q: use %s or %s", o.Mode, ModeKubelet, ModeAPIServer))
	}
	return errors.Join(errs...)
}

// kubeletAddress returns host:port of the kubelet, or an error that names the flag to set.
func (o *Options) kubeletAddress() (string, error) {
	host, port := o.KubeletHost, "10250"
	if o.Kubelet.Address != "" {
		var err error
		if host, port, err = net.SplitHostPort(o.Kubelet.Address); err != nil {
			return "", fmt.Errorf("--kubelet-address: %w", err)
		}
		if host == "" {
			host = o.KubeletHost
		}
	}
	if host == "" {
		return "", errors.New("set --kubelet-address, --kubelet-host or NODE_IP in mode kubelet")
	}
	return net.JoinHostPort(host, port), nil
}

// NewCommand returns the command vn-agent. The context that it is executed with ends it.
func NewCommand() *cobra.Command {
	options := NewOptions(os.Getenv)
	command := &cobra.Command{
		Use:     "vn-agent",
		Version: version.String(),
		Short:   "Serves the kubelet API of a super cluster's nodes to tenants' API servers",
		Long: `vn-agent answers tenants' API servers in place of the kubelets of a super cluster: logs, exec, attach, port-forward, and the
metrics of pods. Each tenant can reach its own pods and nothing else.

A tenant is authenticated by the client certificate of its API server alone: the common name is the tenant's cluster
key, the organisation is superpool:tenants, and a certificate authority of --client-ca-file has signed it.`,
		Example: `  # On a node of the super cluster, in front of its kubelet:
  vn-agent --kubelet-address 10.0.0.11:10250 --kubelet-certificate-authority kubelet-ca.crt \
    --kubelet-client-certificate vn-agent.crt --kubelet-client-key vn-agent.key --metrics-secure=false \
    --client-ca-file tenants-ca.crt --tls-cert-file serving.crt --tls-private-key-file serving.key

  # One for all nodes, in front of the API server:
  vn-agent --mode apiserver --kubeconfig r1.kubeconfig \
    --client-ca-file tenants-ca.crt --tls-cert-file serving.crt --tls-private-key-file serving.key`,
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

// Run serves until ctx ends, and up to ShutdownGrace longer while requests run; then it returns nil. The caller has
// validated options.
func Run(ctx context.Context, options *Options) error {
	logger := klog.Background()
	ctx = klog.NewContext(ctx, logger)
	ctrl.SetLogger(logger)
	config, err := superConfig(options)
	if err != nil {
		return err
	}
	// NewServer loads the certificates, so that a wrong file is reported before a port is open.
	server, err := vnagent.NewServer(options.Certificates)
	if err != nil {
		return err
	}
	upstream, err := newUpstream(config, options)
	if err != nil {
		return err
	}
	requestMetrics, err := vnagent.NewMetrics(metrics.Registry)
	if err := errors.Join(err, server.RegisterMetrics(metrics.Registry)); err != nil {
		return err
	}
	mgr, err := newManager(ctx, config, options, upstream.ready)
	if err != nil {
		return err
	}
	handler := vnagent.NewHandler(vnagent.Options{
		Authenticator: server.Authenticator(), Pods: upstream.pods, Backend: upstream.backend, Metrics: requestMetrics,
		Nodes: rename.Nodes{SuperCluster: options.SuperCluster}, MaxStreams: options.MaxStreams, MaxAllStreams: options.MaxAllStreams,
	})
	err = errors.Join(
		mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { upstream.run(ctx); return nil })),
		mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
			address := net.JoinHostPort(options.BindAddress, strconv.Itoa(options.SecurePort))
			listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
			if err != nil {
				return fmt.Errorf("listening on %s: %w", address, err)
			}
			return server.Run(ctx, listener, handler, options.ShutdownGrace)
		})))
	if err != nil {
		return fmt.Errorf("adding the parts: %w", err)
	}
	logger.Info("Starting", "mode", options.Mode, "port", options.SecurePort)
	return mgr.Start(ctx)
}

// upstream is what a mode reads pods from, and forwards requests to.
type upstream struct {
	pods    vnagent.Pods
	backend backend.Backend
	// ready returns why pods are not known yet, and run keeps all up to date until ctx ends.
	ready func(ctx context.Context) error
	run   func(ctx context.Context)
}

// newUpstream returns the kubelet of the node, or the API server of config.
func newUpstream(config *rest.Config, options *Options) (upstream, error) {
	if options.Mode == ModeAPIServer {
		index, err := newIndex(config)
		if err != nil {
			return upstream{}, err
		}
		server, err := backend.NewAPIServer(config)
		return upstream{pods: index, backend: server, ready: index.Ready, run: index.Run}, err
	}
	files := options.Kubelet
	var err error
	if files.Address, err = options.kubeletAddress(); err != nil {
		return upstream{}, err
	}
	kubelet, err := backend.NewKubelet(files)
	if err != nil {
		return upstream{}, err
	}
	node := pods.NewNode(kubelet.Pods)
	return upstream{pods: node, backend: kubelet, ready: node.Ready, run: kubelet.Run}, nil
}

// newIndex returns the index of all pods.
func newIndex(config *rest.Config) (*pods.Index, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // all tenants would share one rate limit; the index has one per tenant
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the super cluster: %w", err)
	}
	return pods.New(client)
}

// newManager returns a manager that runs the parts, without leader election, and serves metrics and probes. /readyz is
// 200 while known returns nil.
func newManager(ctx context.Context, config *rest.Config, options *Options, known func(context.Context) error) (ctrl.Manager, error) {
	grace := options.ShutdownGrace + 5*time.Second
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Metrics:                 metricsOptions(options),
		HealthProbeBindAddress:  options.HealthProbeBindAddress,
		GracefulShutdownTimeout: &grace,
		BaseContext:             func() context.Context { return ctx },
	})
	if err != nil {
		return nil, fmt.Errorf("setting up: %w", err)
	}
	ready := func(request *http.Request) error {
		if ctx.Err() != nil {
			return errors.New("shutting down")
		}
		return known(request.Context())
	}
	if err := errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("pods", ready)); err != nil {
		return nil, fmt.Errorf("adding probes: %w", err)
	}
	return mgr, nil
}

// metricsOptions returns the options of the manager's metrics server.
func metricsOptions(options *Options) metricsserver.Options {
	served := metricsserver.Options{BindAddress: options.MetricsBindAddress, SecureServing: options.MetricsSecure}
	if options.MetricsSecure {
		served.FilterProvider = metricsauth.FilterProvider
	}
	return served
}

// superConfig returns the configuration that reaches the super cluster's API server; an empty one where nobody asks.
func superConfig(options *Options) (*rest.Config, error) {
	if options.Mode == ModeKubelet && (!options.MetricsSecure || options.MetricsBindAddress == "0") {
		return &rest.Config{}, nil
	}
	config, err := restConfig(options.Kubeconfig)
	if err != nil && options.Mode == ModeKubelet {
		return nil, fmt.Errorf("--metrics-secure asks the super cluster who may read: %w", err)
	}
	return config, err
}

// restConfig returns the configuration of a kubeconfig file, or of the pod's service account if file is "".
func restConfig(file string) (*rest.Config, error) {
	if file == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("--kubeconfig is not set: %w", err)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return nil, fmt.Errorf("reading --kubeconfig: %w", err)
	}
	return config, nil
}
