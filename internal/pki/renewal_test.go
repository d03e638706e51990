package pki_test

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/util/keyutil"

	"github.com/superpool/superpool/internal/pki"
)

const day = 24 * time.Hour

func TestDue(t *testing.T) {
	t.Parallel()
	authority, other := newAuthority(t, "ca"), newAuthority(t, "ca")
	server := pki.Certificate{
		User: "kube-apiserver", Groups: []string{"a", "b"}, IPs: []net.IP{net.IPv4(10, 0, 0, 1), net.IPv6loopback}, DNSNames: []string{"kubernetes", "localhost"},
	}
	reordered := server
	reordered.Groups, reordered.DNSNames = []string{"b", "a"}, []string{"localhost", "kubernetes", "localhost"}
	reordered.IPs = []net.IP{net.IPv6loopback, net.IPv4(10, 0, 0, 1).To4()}
	for name, tc := range map[string]struct {
		issued, wanted pki.Certificate
		by             *pki.Authority
		change         func(pair *pki.Pair)
		after          time.Duration
		// due is after how long since it was issued, and why the reason if that is over.
		due time.Duration
		why string
	}{
		"a new one":               {issued: server, wanted: server, due: 365 * day * 2 / 3},
		"its names in any order":  {issued: server, wanted: reordered, due: 365 * day * 2 / 3},
		"just before":             {issued: server, wanted: server, after: 243 * day, due: 365 * day * 2 / 3},
		"two thirds are over":     {issued: server, wanted: server, after: 244 * day, why: "it ends at "},
		"it has ended":            {issued: server, wanted: server, after: 400 * day, why: "it ends at "},
		"of seconds":              {issued: living(server, 30*time.Second), wanted: living(server, 30*time.Second), due: 20 * time.Second},
		"is wanted for less":      {issued: server, wanted: living(server, 30*day), due: 20 * day},
		"is wanted for longer":    {issued: living(server, 30*day), wanted: server, due: 20 * day},
		"no longer than the CA":   {issued: living(server, 20*365*day), wanted: living(server, 20*365*day), due: 3650 * day * 2 / 3},
		"another authority's":     {issued: server, wanted: server, by: other, why: "authority ca has not signed it"},
		"another user's":          {issued: server, wanted: pki.Certificate{User: "x"}, why: "it is for another user, or for other names"},
		"a clock that went back":  {issued: server, wanted: server, after: -time.Hour, why: "it is not valid yet"},
		"none":                    {issued: server, wanted: server, change: func(pair *pki.Pair) { *pair = pki.Pair{} }, why: "there is none"},
		"another one's key":       {issued: server, wanted: server, change: func(pair *pki.Pair) { pair.Key = keyOf(t, authority) }, why: "it cannot be read: "},
		"what is no certificate":  {issued: server, wanted: server, change: func(pair *pki.Pair) { pair.Certificate = []byte("no") }, why: "it cannot be read: "},
		"more than is ever right": {issued: server, wanted: server, change: func(pair *pki.Pair) { pair.Key = bytes.Repeat([]byte("x"), 1<<17) }, why: "it has "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			by := authority
			if tc.by != nil {
				by = tc.by
			}
			pair, err := by.Issue(tc.issued)
			require.NoError(t, err)
			if tc.change != nil {
				tc.change(pair)
			}
			now := time.Now().Add(tc.after)
			at, why := authority.Due(pair, tc.wanted, now)
			if tc.why != "" {
				require.Contains(t, why, tc.why)
				require.Equal(t, now, at)
				return
			}
			require.Empty(t, why)
			require.WithinDuration(t, time.Now().Add(tc.due), at, 3*time.Second)
			require.True(t, at.After(now))
		})
	}
}

// TestDueOfEachName: a certificate is for all names that are wanted, and for no others.
func TestDueOfEachName(t *testing.T) {
	t.Parallel()
	authority := newAuthority(t, "ca")
	wanted := pki.Certificate{User: "u", Groups: []string{"g"}, IPs: []net.IP{net.IPv4(10, 0, 0, 1)}, DNSNames: []string{"n"}}
	pair, err := authority.Issue(wanted)
	require.NoError(t, err)
	for name, change := range map[string]func(*pki.Certificate){
		"user": func(c *pki.Certificate) { c.User = "v" }, "group": func(c *pki.Certificate) { c.Groups = nil },
		"another group": func(c *pki.Certificate) { c.Groups = slices.Concat(c.Groups, []string{"h"}) },
		"address":       func(c *pki.Certificate) { c.IPs = []net.IP{net.IPv4(10, 0, 0, 2)} }, "no address": func(c *pki.Certificate) { c.IPs = nil },
		"name": func(c *pki.Certificate) { c.DNSNames = []string{"m"} }, "another name": func(c *pki.Certificate) { c.DNSNames = []string{"n", "m"} },
	} {
		other := wanted
		change(&other)
		_, why := authority.Due(pair, other, time.Now())
		require.Equal(t, "it is for another user, or for other names", why, name)
	}
}

// TestDueOfAnAuthorityOfAnotherName: what an authority has signed by its key under another name leads to nobody that is
// trusted, whatever its signature.
func TestDueOfAnAuthorityOfAnotherName(t *testing.T) {
	t.Parallel()
	key, err := pki.NewKey()
	require.NoError(t, err)
	before, err := pki.AuthorityOf("before", key, time.Now())
	require.NoError(t, err)
	after, err := pki.AuthorityOf("after", key, time.Now())
	require.NoError(t, err)
	wanted := pki.Certificate{User: "u", DNSNames: []string{"n"}}
	pair, err := before.Issue(wanted)
	require.NoError(t, err)
	_, why := after.Due(pair, wanted, time.Now())
	require.Equal(t, "authority after has not signed it", why)
	pair, err = after.Issue(wanted)
	require.NoError(t, err)
	_, why = after.Due(pair, wanted, time.Now())
	require.Empty(t, why)
}

// TestDueOfAnotherUse: a server's certificate that may be shown as none, as another program or version has issued it, is
// made anew.
func TestDueOfAnotherUse(t *testing.T) {
	t.Parallel()
	authority := newAuthority(t, "ca")
	wanted := pki.Certificate{User: "u", DNSNames: []string{"n"}}
	signer, err := authority.Pair()
	require.NoError(t, err)
	parsed, err := tls.X509KeyPair(signer.Certificate, signer.Key)
	require.NoError(t, err)
	key, err := pki.NewKey()
	require.NoError(t, err)
	text, err := keyutil.MarshalPrivateKeyToPEM(key)
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		uses []x509.ExtKeyUsage
		want string
	}{
		"both, in any order": {uses: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}},
		"a client's":         {uses: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, want: "it is for another use"},
		"none":               {want: "it is for another use"},
	} {
		template := &x509.Certificate{
			SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: wanted.User}, DNSNames: wanted.DNSNames, ExtKeyUsage: tc.uses,
			NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(365 * day),
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parsed.Leaf, key.Public(), parsed.PrivateKey)
		require.NoError(t, err)
		pair := &pki.Pair{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), Key: text}
		_, why := authority.Due(pair, wanted, time.Now())
		require.Equal(t, tc.want, why, name)
	}
}

func living(certificate pki.Certificate, validity time.Duration) pki.Certificate {
	certificate.Validity = validity
	return certificate
}

func keyOf(t *testing.T, authority *pki.Authority) []byte {
	t.Helper()
	pair, err := authority.Pair()
	require.NoError(t, err)
	return pair.Key
}

func FuzzDue(f *testing.F) {
	authority, err := pki.NewAuthority("ca")
	require.NoError(f, err)
	wanted := pki.Certificate{User: "u", DNSNames: []string{"n"}}
	pair, err := authority.Issue(wanted)
	require.NoError(f, err)
	f.Add(pair.Certificate, pair.Key)
	f.Add([]byte{}, []byte{})
	f.Fuzz(func(t *testing.T, certificate, key []byte) {
		found, now := &pki.Pair{Certificate: certificate, Key: key}, time.Now()
		if at, why := authority.Due(found, wanted, now); why == "" {
			require.True(t, at.After(now))
			require.Equal(t, "u", parse(t, found).Subject.CommonName)
		}
		_, _ = pki.ParseAuthority(found)
	})
}
