package pki_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/superpool/superpool/internal/pki"
)

// TestAnAuthorityThatAnotherHasSigned: a server with a certificate of the new authority, and that of the new one by the old
// one behind it, is believed by who trusts either alone, of whatever names they are.
func TestAnAuthorityThatAnotherHasSigned(t *testing.T) {
	t.Parallel()
	for name, names := range map[string][2]string{"other names": {"ca", "ca-2"}, "the same name": {"ca", "ca"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before, err := pki.NewAuthority(names[0])
			require.NoError(t, err)
			after, err := pki.NewAuthority(names[1])
			require.NoError(t, err)
			now, wanted := time.Now(), pki.Certificate{User: "server", DNSNames: []string{"example.com"}}
			cross, err := after.SignedBy(before, now)
			require.NoError(t, err)
			known, since, err := after.Behind(cross)
			require.NoError(t, err)
			require.WithinDuration(t, now, since, time.Second)
			for by, believes := range map[*pki.Authority]map[*pki.Authority]bool{
				after: {before: false, after: true},
				known: {before: true, after: true},
			} {
				pair, err := by.Issue(wanted)
				require.NoError(t, err)
				for other, want := range map[*pki.Authority]string{before: "authority " + names[0] + " has not signed it", after: "it shows other certificates than its own", known: "it shows other certificates than its own"} {
					if other == by {
						want = ""
					}
					_, why := other.Due(pair, wanted, now)
					require.Equal(t, want, why)
				}
				shows, err := tls.X509KeyPair(pair.Certificate, pair.Key)
				require.NoError(t, err)
				server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
				server.TLS = &tls.Config{Certificates: []tls.Certificate{shows}, MinVersion: tls.VersionTLS12}
				server.StartTLS()
				t.Cleanup(server.Close)
				for authority, want := range believes {
					roots := x509.NewCertPool()
					require.True(t, roots.AppendCertsFromPEM(authority.Certificate()))
					c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "example.com", MinVersion: tls.VersionTLS12}}}
					request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
					require.NoError(t, err)
					response, err := c.Do(request)
					require.Equal(t, want, err == nil, "%v", err)
					if err == nil {
						_, _ = io.Copy(io.Discard, response.Body)
						require.NoError(t, response.Body.Close())
					}
				}
			}
		})
	}
}

// TestCertificatesOfOthers: what others may trust is one certificate of an authority, and nothing else.
func TestCertificatesOfOthers(t *testing.T) {
	t.Parallel()
	one, err := pki.NewAuthority("one")
	require.NoError(t, err)
	other, err := pki.NewAuthority("other")
	require.NoError(t, err)
	pair, err := one.Pair()
	require.NoError(t, err)
	leaf, err := one.Issue(pki.Certificate{User: "user"})
	require.NoError(t, err)
	trusted, err := pki.Trusted(append([]byte("a word\n"), append(pair.Certificate, pair.Key...)...))
	require.NoError(t, err)
	require.Equal(t, string(one.Certificate()), string(trusted))
	for why, text := range map[string][]byte{
		"it cannot be read":                      []byte("nothing"),
		"it is no certificate of an authority":   leaf.Certificate,
		"it has 66000 bytes, and 65536 are read": make([]byte, 66000),
	} {
		_, err := pki.Trusted(text)
		require.ErrorContains(t, err, why)
	}
	_, err = pki.Trusted(append(one.Certificate(), other.Certificate()...))
	require.ErrorContains(t, err, "it is no certificate of an authority")
	_, _, err = one.Behind(other.Certificate())
	require.ErrorContains(t, err, "it is of another key")
}
