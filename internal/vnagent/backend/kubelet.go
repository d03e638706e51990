package backend

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"

	"github.com/superpool/superpool/internal/vnagent/pods"
	"github.com/superpool/superpool/internal/vnagent/route"
)

// KubeletOptions say where a kubelet is and how it is spoken to. All files are read again when they change.
type KubeletOptions struct {
	// Address is host:port.
	Address string
	// CAFile holds the certificates that sign the kubelet's.
	CAFile string
	// CertFile and KeyFile are our certificate; without them TokenFile is our bearer token.
	CertFile, KeyFile string
	TokenFile         string
}

// Kubelet asks the kubelet of one node.
type Kubelet struct {
	options KubeletOptions
	ca      *dynamiccertificates.DynamicFileCAContent
	cert    *dynamiccertificates.DynamicCertKeyPairContent
	forwarder

	mu sync.Mutex
	// current is made from the files' contents; streams go on with the one that they began with.
	current *http.Transport
}

var _ Backend = &Kubelet{}

// NewKubelet reads the files of options. Run keeps them up to date.
func NewKubelet(options KubeletOptions) (*Kubelet, error) {
	if (options.CertFile == "") != (options.KeyFile == "") {
		return nil, errors.New("a client certificate for the kubelet needs its key, and the key its certificate")
	}
	kubelet := &Kubelet{options: options}
	var err error
	if kubelet.ca, err = dynamiccertificates.NewDynamicCAContentFromFile("kubelet-ca", options.CAFile); err != nil {
		return nil, fmt.Errorf("reading the kubelet's certificate authority: %w", err)
	}
	kubelet.ca.AddListener(kubelet)
	if options.CertFile != "" {
		if kubelet.cert, err = dynamiccertificates.NewDynamicServingContentFromFiles("kubelet-client", options.CertFile, options.KeyFile); err != nil {
			return nil, fmt.Errorf("reading the client certificate for the kubelet: %w", err)
		}
		kubelet.cert.AddListener(kubelet)
	}
	if _, err := kubelet.connections(); err != nil {
		return nil, err
	}
	kubelet.transport = kubelet
	if options.CertFile == "" {
		if kubelet.transport, err = transport.NewBearerAuthWithRefreshRoundTripper("", options.TokenFile, kubelet); err != nil {
			return nil, fmt.Errorf("reading the token for the kubelet: %w", err)
		}
	}
	return kubelet, nil
}

// Run follows the files until ctx ends.
func (k *Kubelet) Run(ctx context.Context) {
	var group sync.WaitGroup
	group.Go(func() { k.ca.Run(ctx, 1) })
	if k.cert != nil {
		group.Go(func() { k.cert.Run(ctx, 1) })
	}
	group.Wait()
}

// Enqueue implements dynamiccertificates.Listener: what was read has changed.
func (k *Kubelet) Enqueue() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current != nil {
		k.current.CloseIdleConnections()
		k.current = nil
	}
}

// RoundTrip implements http.RoundTripper with the newest credentials.
func (k *Kubelet) RoundTrip(request *http.Request) (*http.Response, error) {
	connections, err := k.connections()
	if err != nil {
		return nil, err
	}
	return connections.RoundTrip(request)
}

func (k *Kubelet) connections() (*http.Transport, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current != nil {
		return k.current, nil
	}
	verify, ok := k.ca.VerifyOptions()
	if !ok {
		return nil, errors.New("no certificate authority for the kubelet")
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: verify.Roots, NextProtos: []string{"http/1.1"}}
	if k.cert != nil {
		pair, err := tls.X509KeyPair(k.cert.CurrentCertKeyContent())
		if err != nil {
			return nil, fmt.Errorf("reading the client certificate for the kubelet: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	k.current = newTransport(config)
	return k.current, nil
}

func (k *Kubelet) locate(path string, query url.Values) *url.URL {
	return &url.URL{Scheme: "https", Host: k.options.Address, Path: path, RawQuery: query.Encode()}
}

// Forward implements Backend. The kubelet is told the UID of the pod whose marks were checked. Of Kubernetes 1.34 it heeds that for an attach
// alone; elsewhere a later pod of that name may answer until the watch brings it. It is the same tenant's: a super namespace has one owner.
func (k *Kubelet) Forward(w http.ResponseWriter, r *http.Request, request route.Request, pod pods.Pod) {
	k.forward(w, r, k.locate(request.KubeletPath(pod.Super.Namespace, string(pod.Super.UID)), request.KubeletQuery()), request, pod)
}

// Scrape implements Backend. There is one node.
func (k *Kubelet) Scrape(ctx context.Context, request route.Request, _ []string, read func(io.Reader) error) error {
	err := k.scrape(ctx, k.locate(request.KubeletPath("", ""), request.KubeletQuery()), request.Kind, read)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Asking the kubelet")
	}
	return err
}
