package controlplane

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/superpool/superpool/internal/pki"
)

// Front is what an authenticating proxy before an API server needs, on 127.0.0.1.
type Front struct {
	// URL is where the API server is.
	URL string
	// Serving is the configuration of the proxy's listener: programs trust it as they trust the API server, and those
	// that show a certificate have one that the API server would take.
	Serving *tls.Config
	// Transport reaches the API server, which takes who asks from the headers X-Remote-User and X-Remote-Group.
	Transport *http.Transport
}

// Front returns what a proxy before the API server needs.
func (c *ControlPlane) Front() (*Front, error) {
	serving, err := c.authority.Issue(pki.Certificate{User: "proxy", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	if err != nil {
		return nil, err
	}
	certificate, err := tls.X509KeyPair(serving.Certificate, serving.Key)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate of a proxy: %w", err)
	}
	file := c.files.FrontProxyFile()
	shown, err := tls.LoadX509KeyPair(file+".crt", file+".key")
	if err != nil {
		return nil, fmt.Errorf("reading the certificate that the API server knows proxies by: %w", err)
	}
	own, err := c.authority.Pair()
	if err != nil {
		return nil, err
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(own.Certificate)
	return &Front{
		URL:     c.url,
		Serving: &tls.Config{Certificates: []tls.Certificate{certificate}, ClientCAs: trusted, ClientAuth: tls.VerifyClientCertIfGiven, MinVersion: tls.VersionTLS12},
		Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: trusted, Certificates: []tls.Certificate{shown}, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true,
			DisableCompression: true, // answers are passed on as they are
		},
	}, nil
}

// Through returns a kubeconfig that leads to another server, for the same user and the same authority.
func Through(kubeconfig []byte, server string) ([]byte, error) {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading a kubeconfig: %w", err)
	}
	for _, cluster := range config.Clusters {
		cluster.Server = server
	}
	content, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("encoding a kubeconfig: %w", err)
	}
	return content, nil
}
