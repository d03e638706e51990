package backend

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"

	"github.com/superpool/superpool/internal/vnagent/pods"
	"github.com/superpool/superpool/internal/vnagent/route"
)

// KubeletOptions holds the address of a kubelet and the files to authenticate it, and us to it. Changed files are
// reloaded.
type KubeletOptions struct {
	// Address is host:port.
	Address string
	// CAFile holds the certificate authorities that the kubelet's serving certificate is verified against. It is
	// required.
	CAFile string
	// CertFile and KeyFile hold our client certificate and its key; without them TokenFile holds our bearer token.
	CertFile, KeyFile string
	TokenFile         string
}

// Kubelet forwards to the kubelet of one node. It is safe for concurrent use.
type Kubelet struct {
	options KubeletOptions
	ca      *dynamiccertificates.DynamicFileCAContent
	cert    *dynamiccertificates.DynamicCertKeyPairContent
	forwarder

	mu sync.Mutex
	// current is built from the files' contents, nil after a change of them. Running streams keep the transport that
	// they began with.
	current *http.Transport
}

var _ Backend = &Kubelet{}

// NewKubelet loads the files of options; Run reloads them. An error means that one is missing, or does not hold what it
// should.
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
	if _, err := kubelet.currentTransport(); err != nil {
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

// Run watches the files, and calls Enqueue when one changes, until ctx ends. It returns when its goroutines have ended.
func (k *Kubelet) Run(ctx context.Context) {
	var group sync.WaitGroup
	group.Go(func() { k.ca.Run(ctx, 1) })
	if k.cert != nil {
		group.Go(func() { k.cert.Run(ctx, 1) })
	}
	group.Wait()
}

// Enqueue implements dynamiccertificates.Listener. It drops the transport, so that the next request builds one from the
// changed files.
func (k *Kubelet) Enqueue() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current != nil {
		k.current.CloseIdleConnections()
		k.current = nil
	}
}

// RoundTrip implements http.RoundTripper with the credentials that the files hold now.
func (k *Kubelet) RoundTrip(request *http.Request) (*http.Response, error) {
	current, err := k.currentTransport()
	if err != nil {
		return nil, err
	}
	return current.RoundTrip(request)
}

// currentTransport returns the transport of the files' contents, and builds it where they have changed.
func (k *Kubelet) currentTransport() (*http.Transport, error) {
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

// locate returns the URL of path at the kubelet.
func (k *Kubelet) locate(path string, query url.Values) *url.URL {
	return &url.URL{Scheme: "https", Host: k.options.Address, Path: path, RawQuery: query.Encode()}
}

// Forward implements Backend. The path holds the UID of the pod whose ownership was checked. The kubelet of Kubernetes
// 1.37 compares it for attach alone; for the others it may serve a newer pod of that name until the informer sees it.
// That one is the same tenant's: a super namespace has one owner.
func (k *Kubelet) Forward(w http.ResponseWriter, r *http.Request, request route.Request, pod pods.Pod) {
	k.forward(w, r, k.locate(request.KubeletPath(pod.Super.Namespace, string(pod.Super.UID)), request.KubeletQuery()), request, pod)
}

// Pods returns all pods that the kubelet has, without their managed fields. It ends within scrapeTimeout.
func (k *Kubelet) Pods(ctx context.Context) ([]*corev1.Pod, error) {
	var all []*corev1.Pod
	err := k.scrape(ctx, k.locate("/pods", nil), route.Pods, func(in io.Reader) error {
		var err error
		all, err = readPods(in)
		return err
	})
	return all, err
}

// readPods decodes a PodList pod by pod, so that text and objects are not in memory together. A list that breaks off is
// an error: half of the pods would look as if the others were gone. So there is no bound of its text, which one tenant
// could reach for all.
func readPods(in io.Reader) ([]*corev1.Pod, error) {
	decoder := json.NewDecoder(in)
	var token json.Token
	var err error
	for err == nil && token != "items" {
		token, err = decoder.Token()
	}
	if err == nil {
		token, err = decoder.Token()
	}
	if err == nil && token == nil { // null, which is an empty list
		return nil, nil
	}
	if err == nil && token != json.Delim('[') {
		err = fmt.Errorf("its items are %v", token)
	}
	var all []*corev1.Pod
	for err == nil && decoder.More() {
		pod := &corev1.Pod{}
		err = decoder.Decode(pod)
		pod.ManagedFields = nil
		all = append(all, pod)
	}
	if err == nil {
		_, err = decoder.Token() // the end of the list
	}
	if err != nil {
		return nil, fmt.Errorf("reading a list of pods: %w", err)
	}
	return all, nil
}

// Scrape implements Backend. It ignores the list of nodes: there is one.
func (k *Kubelet) Scrape(ctx context.Context, request route.Request, _ []string, read func(io.Reader) error) error {
	err := k.scrape(ctx, k.locate(request.KubeletPath("", ""), request.KubeletQuery()), request.Kind, read)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Scraping the kubelet")
	}
	return err
}
