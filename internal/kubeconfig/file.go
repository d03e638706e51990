package kubeconfig

import (
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// readPeriod is how often a file is read, as long as requests are sent. client-go reads token files as often.
	readPeriod = 10 * time.Second
	// refusedPeriod is how often it is read while the server refuses the credentials.
	refusedPeriod = time.Second
)

// FromFile returns how to reach the server of the current context of a kubeconfig file. The file is the operator's, so
// it may name other files and programs, unlike what Parse reads. It may change while the process runs, as a Secret does
// that is mounted: requests that begin readPeriod later at the latest are sent with its new credentials and certificate
// authority. Watches go on until they end. A file that cannot be used, or names another server, changes nothing, and is
// logged: what is another server may be another cluster.
func FromFile(path string) (*rest.Config, error) {
	return fromFile(path, clock.RealClock{})
}

func fromFile(path string, clock clock.PassiveClock) (*rest.Config, error) {
	r := &rotating{path: path, clock: clock, read: clock.Now()}
	var err error
	if r.current, err = r.load(); err != nil {
		return nil, err
	}
	return &rest.Config{Host: r.current.server, Transport: r}, nil
}

// rotating sends each request as the kubeconfig file says that was read last. It is safe for concurrent use.
type rotating struct {
	path  string
	clock clock.PassiveClock

	mu      sync.Mutex
	current *target
	// read is when the file was read last.
	read time.Time
	// failed is the error that was logged last, "" for none.
	failed string
}

// target is what one version of a kubeconfig says.
type target struct {
	fingerprint, server string
	transport           http.RoundTripper
}

// load reads the file. Without a server in it there is an error, where clientcmd.BuildConfigFromFlags would return the
// service account of the pod.
func (r *rotating) load() (*target, error) {
	data, err := os.ReadFile(r.path)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: r.path}
	raw, err := rules.Load() // it resolves paths that are relative to the file
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config, err := clientcmd.NewDefaultClientConfig(*raw, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("using the credentials of the kubeconfig: %w", err)
	}
	return &target{fingerprint: Fingerprint(data), server: config.Host, transport: transport}, nil
}

// now returns the target of a request that begins now. It reads the file if that was read more than period ago.
func (r *rotating) now(period time.Duration) *target {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	if now.Sub(r.read) < period {
		return r.current
	}
	r.read = now
	logger := klog.Background().WithValues("file", r.path)
	data, err := os.ReadFile(r.path)
	if err == nil && Fingerprint(data) == r.current.fingerprint {
		r.failed = ""
		return r.current
	}
	next, err := r.load()
	if err == nil && next.server != r.current.server {
		err = fmt.Errorf("the server was %s and is %s: restart the process", r.current.server, next.server)
	}
	if err != nil {
		if r.failed != err.Error() {
			logger.Error(err, "The kubeconfig has changed and cannot be used: going on with what it said before")
		}
		r.failed = err.Error()
		return r.current
	}
	logger.Info("The kubeconfig has changed", "server", next.server)
	utilnet.CloseIdleConnectionsFor(r.current.transport)
	r.current, r.failed = next, ""
	return next
}

// RoundTrip implements http.RoundTripper.
func (r *rotating) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.now(readPeriod).transport.RoundTrip(request)
	if err == nil && response.StatusCode == http.StatusUnauthorized {
		r.now(refusedPeriod) // for those that follow
	}
	return response, err //nolint:wrapcheck // a RoundTripper passes errors on
}

// WrappedRoundTripper implements utilnet.RoundTripperWrapper.
func (r *rotating) WrappedRoundTripper() http.RoundTripper {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current.transport
}
