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
	// readHeaderTimeout bounds the time that a client has for the handshake, and then for the request line and headers.
	readHeaderTimeout = 5 * time.Second
	// idleTimeout bounds how long a keep-alive connection waits for the next request.
	idleTimeout = 90 * time.Second
)

// Certificates names the files of a Server. All are required; Server.Run reloads them when they change.
type Certificates struct {
	// CertFile and KeyFile hold the serving certificate and its key.
	CertFile, KeyFile string
	// ClientCAFile holds the certificate authorities that client certificates are verified against.
	ClientCAFile string
}

// Server serves a Handler over TLS. Its methods are safe for concurrent use; Run is called once.
type Server struct {
	cert     *dynamiccertificates.DynamicCertKeyPairContent
	clientCA *dynamiccertificates.DynamicFileCAContent
}

// NewServer loads the files. An error means that one is missing, or does not hold what it should.
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

// Authenticator returns an authenticator that verifies client certificates against the current contents of
// ClientCAFile. It does what the one of k8s.io/apiserver's package x509 does, without that one's metrics, which
// concurrent requests write without a lock. It is safe for concurrent use.
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

// Run serves on listener until ctx ends, then waits up to grace for running requests and cancels those that are left.
// It returns nil after such a shutdown, and an error if the certificates cannot be loaded or serving fails. It closes
// listener.
func (s *Server) Run(ctx context.Context, listener net.Listener, handler *Handler, grace time.Duration) error {
	// HTTP/1.1 only: each stream has its own connection, so TCP's flow control holds back that stream alone. The
	// handshake requests a client certificate without verifying it; the authenticator verifies it, so that a client
	// gets status 401 rather than a failed handshake.
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
	// Without Protocols, http.Server would add HTTP/2 to config, which the reload controller copies at each change of a
	// certificate.
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	server := &http.Server{
		Protocols: protocols,
		Handler:   handler, TLSConfig: config, MaxHeaderBytes: maxHeader, ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout,
		DisableGeneralOptionsHandler: true, // net/http's handler of "OPTIONS *" reads the body without a deadline
		ErrorLog:                     log.New(serverLog{logger}, "", 0),
		ConnContext:                  withConnection,
		BaseContext:                  func(net.Listener) context.Context { return klog.NewContext(context.WithoutCancel(ctx), logger) },
	}
	failed := make(chan error, 1)
	accepting := batchListener{Listener: listener, strangers: &strangers{}, handshakes: newHandshakes(), refused: handler.options.Metrics.refused}
	group.Go(func() { failed <- server.ServeTLS(accepting, "", "") })
	logger.Info("Serving the kubelet API", "address", listener.Addr().String())
	select {
	case err := <-failed:
		return fmt.Errorf("serving: %w", err)
	case <-ctx.Done():
	}
	return stop(context.WithoutCancel(ctx), server, handler, grace)
}

// stop closes the listener, waits up to grace for running requests (http.Server.Shutdown) and hijacked streams
// (Handler.Drain), then closes what is left.
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

// serverLog is the io.Writer of http.Server's ErrorLog. What the server reports there, failed handshakes above all, is
// logged at V(5): any client can cause it.
type serverLog struct{ logger klog.Logger }

func (l serverLog) Write(message []byte) (int, error) {
	l.logger.V(5).Info("Connection refused", "message", string(bytes.TrimSpace(message)))
	return len(message), nil
}
