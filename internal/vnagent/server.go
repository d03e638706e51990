package vnagent

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	requestx509 "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/klog/v2"
)

const (
	readHeaderTimeout = 30 * time.Second
	// idleTimeout bounds connections between requests.
	idleTimeout = 90 * time.Second
)

// Certificates are the files of a server; all are needed, and read again when they change.
type Certificates struct {
	// CertFile and KeyFile are shown to clients.
	CertFile, KeyFile string
	// ClientCAFile holds the certificates that sign clients'. Without it nobody could be told from anybody else.
	ClientCAFile string
}

// Server serves a Handler over TLS.
type Server struct {
	cert     *dynamiccertificates.DynamicCertKeyPairContent
	clientCA *dynamiccertificates.DynamicFileCAContent
}

// NewServer reads the files.
func NewServer(files Certificates) (*Server, error) {
	if files.ClientCAFile == "" {
		return nil, errors.New("the certificate authority of clients is missing: without it any client could say that it is any tenant")
	}
	clientCA, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca", files.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate authority of clients: %w", err)
	}
	cert, err := dynamiccertificates.NewDynamicServingContentFromFiles("serving-cert", files.CertFile, files.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("reading the serving certificate: %w", err)
	}
	return &Server{cert: cert, clientCA: clientCA}, nil
}

// Authenticator verifies client certificates against what the CA file holds now. It is that of k8s.io/apiserver's package x509 without its
// metrics, which requests that come at once write without a lock.
func (s *Server) Authenticator() authenticator.Request {
	return authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
			return nil, false, nil
		}
		options, ok := s.clientCA.VerifyOptions()
		if !ok {
			return nil, false, nil
		}
		options.Intermediates = x509.NewCertPool()
		for _, intermediate := range r.TLS.PeerCertificates[1:] {
			options.Intermediates.AddCert(intermediate)
		}
		chains, err := r.TLS.PeerCertificates[0].Verify(options)
		if err != nil {
			return nil, false, fmt.Errorf("verifying the certificate: %w", err)
		}
		return requestx509.CommonNameUserConversion.User(chains[0])
	})
}

// Run serves on listener until ctx ends, then lets what runs finish for at most grace.
func (s *Server) Run(ctx context.Context, listener net.Listener, handler *Handler, grace time.Duration) error {
	// HTTP/1.1 only: a stream has a connection of its own, whose receiver sets the pace. Certificates are asked for here and verified by
	// the authenticator, which answers with a status that says what is wrong.
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, ClientAuth: tls.RequestClientCert}
	reload := dynamiccertificates.NewDynamicServingCertificateController(config, s.clientCA, s.cert, nil, nil)
	s.clientCA.AddListener(reload)
	s.cert.AddListener(reload)
	if err := reload.RunOnce(); err != nil {
		return fmt.Errorf("loading certificates: %w", err)
	}
	config.GetConfigForClient = reload.GetConfigForClient

	var group sync.WaitGroup
	defer group.Wait()
	files, stopFiles := context.WithCancel(ctx)
	defer stopFiles()
	group.Go(func() { s.clientCA.Run(files, 1) })
	group.Go(func() { s.cert.Run(files, 1) })
	group.Go(func() { reload.Run(1, files.Done()) })

	logger := klog.FromContext(ctx)
	// Without this the server would add HTTP/2 to config, which each change of a certificate copies.
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	server := &http.Server{
		Protocols: protocols,
		Handler:   handler, TLSConfig: config, MaxHeaderBytes: maxHeader, ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout,
		DisableGeneralOptionsHandler: true, // it would wait for a body
		ErrorLog:                     log.New(handshakes{logger}, "", 0),
		BaseContext:                  func(net.Listener) context.Context { return klog.NewContext(context.WithoutCancel(ctx), logger) },
	}
	failed := make(chan error, 1)
	group.Go(func() { failed <- server.ServeTLS(batchListener{listener}, "", "") })
	logger.Info("Serving the kubelet API", "address", listener.Addr().String())
	select {
	case err := <-failed:
		return fmt.Errorf("serving: %w", err)
	case <-ctx.Done():
	}
	return stop(context.WithoutCancel(ctx), server, handler, grace)
}

// stop closes the listener, waits for what runs, and ends what is left after grace.
func stop(ctx context.Context, server *http.Server, handler *Handler, grace time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	var group sync.WaitGroup
	group.Go(func() { handler.Drain(ctx) })
	err := server.Shutdown(ctx)
	group.Wait()
	if errors.Is(err, context.DeadlineExceeded) {
		return server.Close()
	}
	return err
}

// handshakes takes what the server says about connections that are no use.
type handshakes struct{ logger klog.Logger }

func (h handshakes) Write(message []byte) (int, error) {
	h.logger.V(5).Info("Connection refused", "message", string(bytes.TrimSpace(message)))
	return len(message), nil
}
