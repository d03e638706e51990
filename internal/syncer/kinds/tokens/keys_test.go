package tokens

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/superpool/superpool/internal/syncer/engine"
)

// TestRefreshOf: when certificates are renewed, whatever their signer says.
func TestRefreshOf(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0).UTC()
	day := 24 * time.Hour
	for _, tc := range []struct {
		name          string
		said          *metav1.Time
		expires       time.Time
		least, latest time.Duration
	}{
		{name: "as the signer says, and a little later", said: ptr.To(metav1.NewTime(now.Add(12 * time.Hour))), expires: now.Add(day), least: 12 * time.Hour, latest: 12*time.Hour + 5*time.Minute},
		{name: "it does not say", expires: now.Add(day), least: day * 4 / 5, latest: day*4/5 + 5*time.Minute},
		{name: "in the past", said: ptr.To(metav1.NewTime(time.Unix(0, 0))), expires: now.Add(day), least: 10 * time.Minute, latest: 10 * time.Minute},
		{name: "after its end", said: ptr.To(metav1.NewTime(now.Add(2 * day))), expires: now.Add(day), least: day, latest: day},
		{
			name: "in thousands of years", said: ptr.To(metav1.NewTime(now.AddDate(8000, 0, 0))), expires: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
			least: 91 * day, latest: 91 * day,
		},
		{name: "unsaid, in thousands of years", expires: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), least: 91 * day, latest: 91 * day},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			refresh := refreshOf(tc.said, tc.expires, now, engine.Key{Name: "p"}).Sub(now)
			require.GreaterOrEqual(t, refresh, tc.least)
			require.LessOrEqual(t, refresh, tc.latest)
			text, err := json.Marshal(issuedCertificate{Expires: tc.expires, Refresh: now.Add(refresh)})
			require.NoError(t, err)
			var read issuedCertificate
			require.NoError(t, json.Unmarshal(text, &read))
			require.Equal(t, issuedCertificate{Expires: tc.expires, Refresh: now.Add(refresh)}, read, "so that nothing is written again")
		})
	}
}

// TestNewKey: keys are of the type that is asked for.
func TestNewKey(t *testing.T) {
	t.Parallel()
	for keyType, want := range map[string]x509.PublicKeyAlgorithm{
		"ED25519": x509.Ed25519, "ECDSAP256": x509.ECDSA, "ECDSAP384": x509.ECDSA, "ECDSAP521": x509.ECDSA, "RSA3072": x509.RSA,
	} {
		key, err := newKey(keyType)
		require.NoError(t, err)
		stub, err := x509.ParseCertificateRequest(key.stub)
		require.NoError(t, err)
		require.Equal(t, want, stub.PublicKeyAlgorithm)
		require.Empty(t, stub.Subject.String())
		require.NoError(t, stub.CheckSignature())
		block, rest := pem.Decode(key.text)
		require.Equal(t, "PRIVATE KEY", block.Type)
		require.Empty(t, rest)
	}
	_, err := newKey("DSA")
	require.ErrorIs(t, err, errKeyType)
}

// FuzzChainOf: whatever a tenant's API server says, a chain that is taken is of the key, and has nothing but certificates.
func FuzzChainOf(f *testing.F) {
	now := time.Unix(1_000_000, 0)
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(f, err)
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(f, err)
	der, err := x509.MarshalPKCS8PrivateKey(signer)
	require.NoError(f, err)
	key := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	certificate := func(public crypto.PublicKey) string {
		template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now, NotAfter: now.Add(time.Hour)}
		raw, err := x509.CreateCertificate(rand.Reader, template, template, public, other)
		require.NoError(f, err)
		return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw, Headers: map[string]string{"a": "b"}}))
	}
	ours, others := certificate(signer.Public()), certificate(other.Public())
	for _, text := range []string{"", "x", ours, ours + others, others + ours, "x\n" + ours + "x", string(key), ours + string(key), ours[:len(ours)/2]} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		chain, expires, err := chainOf(text, signer.Public(), now)
		if err != nil {
			require.Empty(t, chain)
			return
		}
		require.LessOrEqual(t, len(chain), len(text)+len(text)/8+1024)
		require.True(t, expires.After(now))
		_, err = tls.X509KeyPair(chain, key)
		require.NoError(t, err)
		again, _, err := chainOf(string(chain), signer.Public(), now)
		require.NoError(t, err)
		require.Equal(t, string(chain), string(again))
	})
}
