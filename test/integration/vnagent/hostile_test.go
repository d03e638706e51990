package vnagent_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestBodiesThatDoNotCome announces bodies and sends none: vn-agent closes such connections in bounded time, above all
// those without a certificate.
func TestBodiesThatDoNotCome(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, w *world) {
		for _, tc := range []struct {
			name, start, length string
			shown               []tls.Certificate
			want                int
		}{
			{name: "no certificate", start: "POST /pods", length: "Content-Length: 1", want: http.StatusUnauthorized},
			{name: "no certificate, in chunks", start: "POST /pods", length: "Transfer-Encoding: chunked", want: http.StatusUnauthorized},
			{name: "no certificate, health", start: "GET /healthz", length: "Content-Length: 1", want: http.StatusOK},
			{name: "no certificate, options", start: "OPTIONS *", length: "Content-Length: 1", want: http.StatusUnauthorized},
			{name: "a tenant", start: "POST /run/web/p/c?cmd=who", length: "Content-Length: 1", shown: []tls.Certificate{w.tenants.tenant(t, "a").tls(t)}, want: http.StatusBadRequest},
		} {
			t.Run(tc.name, func(t *testing.T) {
				t.Parallel()
				dialer := tls.Dialer{Config: &tls.Config{RootCAs: w.serving.pool(), MinVersion: tls.VersionTLS12, Certificates: tc.shown}}
				conn, err := dialer.DialContext(t.Context(), "tcp", w.address)
				require.NoError(t, err)
				defer func() { _ = conn.Close() }()
				require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
				_, err = fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: %s\r\n%s\r\n\r\n", tc.start, w.address, tc.length)
				require.NoError(t, err)
				answers := bufio.NewReader(conn)
				response, err := http.ReadResponse(answers, nil)
				require.NoError(t, err)
				_, err = io.Copy(io.Discard, response.Body)
				require.NoError(t, err)
				require.NoError(t, response.Body.Close())
				require.Equal(t, tc.want, response.StatusCode)
				_, err = answers.ReadByte()
				require.ErrorIs(t, err, io.EOF, "the connection is closed")
			})
		}
	})
}

// TestConnectionsOfStrangers: pods open as many connections as they can. A tenant is served, and streams of it that run
// go on.
func TestConnectionsOfStrangers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "kubelet")
	client := w.tenants.tenant(t, "a")
	logs := w.follow(t.Context(), t, w.client(t, client.tls(t)))
	cut := make(chan struct{})
	go func() {
		defer close(cut)
		_, _ = io.Copy(io.Discard, logs)
	}()
	var left atomic.Int64
	for i := range 1200 {
		dialer := tls.Dialer{
			NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(i%4))}},
			Config:    &tls.Config{RootCAs: w.serving.pool(), MinVersion: tls.VersionTLS12},
		}
		conn, err := dialer.DialContext(t.Context(), "tcp", w.address)
		if err != nil {
			continue // it is one too many
		}
		t.Cleanup(func() { _ = conn.Close() })
		left.Add(1)
		go func() {
			defer left.Add(-1)
			_, _ = fmt.Fprintf(conn, "GET /healthz HTTP/1.1\r\nHost: %s\r\n\r\n", w.address) // it is kept alive for 90 s then
			_, _ = io.Copy(io.Discard, conn)
		}()
	}
	w.eventually(t, "those that are too many are closed", func() bool { return left.Load() <= 1024 })
	require.Equal(t, http.StatusOK, w.raw(t, client.tls(t), "/containerLogs/web/p/c"))
	select {
	case <-cut:
		require.Fail(t, "a stream of a tenant was cut")
	default:
	}
}

// TestHTTP2IsNotSpoken: neither before nor after a reload of the certificates.
func TestHTTP2IsNotSpoken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "kubelet")
	show := func(protocols ...string) (serial string, err error) {
		config := &tls.Config{RootCAs: w.serving.pool(), MinVersion: tls.VersionTLS12, NextProtos: protocols}
		conn, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", w.address)
		if err != nil {
			return "", err
		}
		defer func() { _ = conn.Close() }()
		return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.String(), nil
	}
	_, err := show("h2")
	require.Error(t, err)
	next := w.serving.server(t)
	write(t, w.file("server.key"), next.key)
	write(t, w.file("server.crt"), next.cert)
	w.eventually(t, "the new certificate is shown", func() bool {
		serial, err := show("http/1.1")
		return err == nil && serial == next.tls(t).Leaf.SerialNumber.String()
	})
	_, err = show("h2")
	require.Error(t, err)
}

// TestRunWithTooMuch: a run whose output exceeds the bound is answered with an error, not with a part of the output.
func TestRunWithTooMuch(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "apiserver")
	code, body := w.ask(t, w.client(t, w.tenants.tenant(t, "a").tls(t)), http.MethodPost, "/run/web/p/c?cmd=flood+33554432")
	require.Equal(t, http.StatusInternalServerError, code)
	require.Equal(t, "the command's output is larger than the 512 KiB that a run may have: use exec", body)
}
