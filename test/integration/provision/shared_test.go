package provision

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/superpool/superpool/internal/etcd"
	"github.com/superpool/superpool/internal/pki"
)

// newShared starts an etcd that others use too, whose certificate, and those of whose users, an authority signs.
func newShared(t *testing.T, authority *pki.Authority, address string, flags ...string) *external {
	t.Helper()
	bin, err := filepath.Abs(filepath.Join("..", "..", "..", "bin"))
	require.NoError(t, err)
	return startExternal(t, authority, bin, t.TempDir(), address, flags...)
}

// asked returns the ID of the etcd at URLs, or why there is none, for who shows what signer, nil for none, has signed
// for root, and trusts what trusted has signed.
func asked(t *testing.T, signer, trusted *pki.Authority, urls ...string) (string, error) {
	t.Helper()
	c := dialShared(t, signer, trusted, urls...)
	defer c.Close()
	return c.ID(t.Context())
}

// dialShared connects to the etcd at URLs as asked does.
func dialShared(t *testing.T, signer, trusted *pki.Authority, urls ...string) *etcd.Shared {
	t.Helper()
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(trusted.Certificate())
	if signer != nil {
		pair, err := signer.Issue(pki.Certificate{User: etcd.Root})
		require.NoError(t, err)
		shown, err := tls.X509KeyPair(pair.Certificate, pair.Key)
		require.NoError(t, err)
		config.Certificates = append(config.Certificates, shown)
	}
	c, err := etcd.DialShared(urls, config)
	require.NoError(t, err)
	return c
}

// TestWhoAnExternalStoreIs: what keeps a real etcd from being used is told apart, and of several URLs one that answers
// is enough.
func TestWhoAnExternalStoreIs(t *testing.T) {
	t.Parallel()
	authority, err := pki.NewAuthority("etcd")
	require.NoError(t, err)
	other, err := pki.NewAuthority("etcd") // of the same name
	require.NoError(t, err)
	first := network()
	unnamed := "https://" + net.JoinHostPort(first+"252", "2379") // which is not in its certificate
	e := newShared(t, authority, first+"250", "--listen-client-urls=https://"+net.JoinHostPort(first+"250", "2379")+","+unnamed)
	another, asksNobody := newShared(t, authority, first+"251"), newShared(t, authority, first+"253", "--client-cert-auth=false")
	asksNobody.enable(t)
	_, err = asked(t, authority, authority, e.url)
	require.ErrorIs(t, err, etcd.ErrOpen)
	e.enable(t)
	id, err := asked(t, authority, authority, e.url)
	require.NoError(t, err)
	require.NotEmpty(t, id)
	nobody := "https://" + net.JoinHostPort(first+"254", "2379")
	for name, tc := range map[string]struct {
		signer, trusted *pki.Authority
		urls            []string
		want            error
	}{
		"one that is silent":               {signer: authority, trusted: authority, urls: []string{e.url, nobody}},
		"two of them":                      {signer: authority, trusted: authority, urls: []string{e.url, another.url}, want: etcd.ErrMixed},
		"a certificate of somebody else":   {signer: other, trusted: authority, urls: []string{e.url}, want: etcd.ErrNotRoot},
		"no certificate":                   {trusted: authority, urls: []string{e.url}, want: etcd.ErrNotRoot},
		"its certificate is somebody's":    {signer: authority, trusted: other, urls: []string{e.url}, want: etcd.ErrUntrusted},
		"its certificate is another one's": {signer: authority, trusted: authority, urls: []string{unnamed}, want: etcd.ErrUntrusted},
		"one that asks for no certificate": {signer: authority, trusted: authority, urls: []string{asksNobody.url}, want: etcd.ErrNotRoot},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var err error
			var found string
			require.Eventually(t, func() bool { // it listens for a part of a second to why
				found, err = asked(t, tc.signer, tc.trusted, tc.urls...)
				return errors.Is(err, tc.want)
			}, patience, tick, "%s", tc.want)
			if tc.want == nil {
				require.Equal(t, id, found)
			}
		})
	}
	t.Run("nobody", func(t *testing.T) {
		t.Parallel()
		_, err := asked(t, authority, authority, nobody)
		require.Error(t, err)
		for _, known := range []error{etcd.ErrOpen, etcd.ErrNotRoot, etcd.ErrUntrusted, etcd.ErrMixed} {
			require.NotErrorIs(t, err, known)
		}
	})
}

// TestClearingAnExternalStore: what is below a prefix goes, a part at a time, also what is written meanwhile, and all
// of those whose prefixes differ by one character stays.
func TestClearingAnExternalStore(t *testing.T) {
	t.Parallel()
	authority, err := pki.NewAuthority("etcd")
	require.NoError(t, err)
	e := newShared(t, authority, network()+"250")
	root := e.enable(t)
	const most, many = 500, 1203
	counts := map[string]int64{"/superpool/b/": many, "/superpool/a/": 2, "/superpool/c/": 2, "/superpool/bb/": 2}
	for prefix, count := range counts {
		var puts []clientv3.Op
		for i := range count {
			puts = append(puts, clientv3.OpPut(fmt.Sprintf("%s%04d", prefix, i), "x"))
			if len(puts) == 100 || i == count-1 { // etcd takes 128 at a time
				_, err := root.Txn(t.Context()).Then(puts...).Commit()
				require.NoError(t, err)
				puts = nil
			}
		}
	}
	for _, key := range []string{"/superpool/b", "/superpool/b0"} { // before the first one, and behind the last
		_, err := root.Put(t.Context(), key, "x")
		require.NoError(t, err)
	}
	all := keys(t, root, "\x00", "\x00")
	c := dialShared(t, authority, authority, e.url)
	defer c.Close()
	_, err = c.ID(t.Context())
	require.NoError(t, err)
	left := func() int64 { return keys(t, root, "/superpool/b/", "/superpool/b0") }
	for _, want := range []int64{many - most, many - 2*most} {
		done, err := c.Clear(t.Context(), "/superpool/b/", most)
		require.NoError(t, err)
		require.False(t, done)
		require.Equal(t, want, left())
	}
	_, err = root.Put(t.Context(), "/superpool/b/", "written meanwhile")
	require.NoError(t, err)
	calls := 0
	for done := false; !done; calls++ {
		require.Less(t, calls, 6)
		done, err = c.Clear(t.Context(), "/superpool/b/", most)
		require.NoError(t, err)
	}
	require.Zero(t, left())
	require.Equal(t, all-many, keys(t, root, "\x00", "\x00"), "all of others is there")
}
