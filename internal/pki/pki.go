// Package pki makes the certificate authorities, certificates and kubeconfigs of control planes, and says when one is to
// be made anew. Keys are of P-256; an authority is valid for ten years, what it issues for one by default. Nothing
// revokes them.
package pki

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const (
	// DefaultValidity is how long an issued certificate is valid.
	DefaultValidity = 365 * 24 * time.Hour
	// backdated is how long before it is issued a certificate is valid, an authority's too, for clocks that are behind.
	backdated = 5 * time.Minute
)

// Authority is a certificate authority. Its methods can be called concurrently.
type Authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
	// cross is the certificate that another authority has given this one, in DER, which what it issues shows behind its own;
	// nil for none.
	cross []byte
}

// Certificate describes what an Authority issues. One with addresses or DNS names is a server's, which it may show as a
// client, too.
type Certificate struct {
	// User and Groups are what Kubernetes authenticates the holder as: common name and organisations.
	User   string
	Groups []string
	// IPs and DNSNames are where a server is reached.
	IPs      []net.IP
	DNSNames []string
	// Validity is how long it is valid from when it is issued, 0 for DefaultValidity, and never longer than its
	// authority.
	Validity time.Duration
}

func (c *Certificate) validity() time.Duration { return cmp.Or(c.Validity, DefaultValidity) }

// uses returns what the holder may show it as.
func (c *Certificate) uses() []x509.ExtKeyUsage {
	if len(c.IPs)+len(c.DNSNames) > 0 {
		return []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	}
	return []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
}

// Pair is a certificate and its private key, in PEM.
type Pair struct {
	Certificate, Key []byte
}

// NewKey returns a new private key.
func NewKey() (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating a key: %w", err)
	}
	return key, nil
}

// NewAuthority returns a new authority of that common name.
func NewAuthority(name string) (*Authority, error) {
	key, err := NewKey()
	if err != nil {
		return nil, err
	}
	return AuthorityOf(name, key, time.Now())
}

// AuthorityOf returns an authority of that common name that signs with a key, as one that is made now.
func AuthorityOf(name string, key crypto.Signer, now time.Time) (*Authority, error) {
	certificate, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: name, NotBefore: now.Add(-backdated).UTC()}, key)
	if err != nil {
		return nil, fmt.Errorf("signing the authority %s: %w", name, err)
	}
	return &Authority{certificate: certificate, key: key}, nil
}

// LoadAuthority reads the authority that Pair.Write wrote to FILE.crt and FILE.key.
func LoadAuthority(file string) (*Authority, error) {
	pair := &Pair{}
	var err error
	if pair.Certificate, err = os.ReadFile(file + ".crt"); err != nil {
		return nil, fmt.Errorf("reading an authority: %w", err)
	}
	if pair.Key, err = os.ReadFile(file + ".key"); err != nil {
		return nil, fmt.Errorf("reading the key of an authority: %w", err)
	}
	authority, err := ParseAuthority(pair)
	if err != nil {
		return nil, fmt.Errorf("reading an authority from %s: %w", file, err)
	}
	return authority, nil
}

// ParseAuthority returns the authority whose Pair that is.
func ParseAuthority(pair *Pair) (*Authority, error) {
	parsed, err := parse(pair)
	if err != nil {
		return nil, err
	}
	key, ok := parsed.PrivateKey.(crypto.Signer)
	if !ok || !parsed.Leaf.IsCA {
		return nil, errors.New("it is not an authority")
	}
	return &Authority{certificate: parsed.Leaf, key: key}, nil
}

// Name returns the authority's common name.
func (a *Authority) Name() string { return a.certificate.Subject.CommonName }

// Made returns when the authority was made, to the second.
func (a *Authority) Made() time.Time { return a.certificate.NotBefore.Add(backdated) }

// Pair returns the authority's own certificate and key.
func (a *Authority) Pair() (*Pair, error) { return encode(a.certificate.Raw, a.key) }

// Certificate returns the authority's own certificate, in PEM: who has it trusts what the authority issues.
func (a *Authority) Certificate() []byte { return encodeCertificate(a.certificate.Raw) }

// Issue makes a key and signs a certificate for it, which is valid from now on.
func (a *Authority) Issue(wanted Certificate) (*Pair, error) { return a.IssueAt(time.Now(), wanted) }

// IssueAt is Issue at another time.
func (a *Authority) IssueAt(now time.Time, wanted Certificate) (*Pair, error) {
	key, err := NewKey()
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(math.MaxInt64))
	if err != nil {
		return nil, fmt.Errorf("choosing a serial number: %w", err)
	}
	began, ends := a.certificate.NotBefore, a.certificate.NotAfter
	if from := now.Add(-backdated).UTC(); from.After(began) {
		began = from
	}
	if until := now.Add(wanted.validity()).UTC(); until.Before(ends) {
		ends = until
	}
	template := &x509.Certificate{
		Subject:      pkix.Name{CommonName: wanted.User, Organization: wanted.Groups},
		SerialNumber: serial.Add(serial, big.NewInt(1)),
		NotBefore:    began, NotAfter: ends,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: wanted.uses(), BasicConstraintsValid: true,
		IPAddresses: wanted.IPs, DNSNames: wanted.DNSNames,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("signing the certificate of %s: %w", wanted.User, err)
	}
	pair, err := encode(der, key)
	if err == nil && a.cross != nil {
		pair.Certificate = append(pair.Certificate, encodeCertificate(a.cross)...)
	}
	return pair, err
}

// Kubeconfig issues a client certificate, and returns a kubeconfig that holds it and trusts this authority.
func (a *Authority) Kubeconfig(server string, user Certificate) ([]byte, error) {
	pair, err := a.Issue(user)
	if err != nil {
		return nil, err
	}
	return Kubeconfig(a.Name(), server, a.Certificate(), user.User, pair)
}

// Kubeconfig returns a kubeconfig of one cluster and one user that refers to no file; authority is the CA of the
// server, in PEM.
func Kubeconfig(cluster, server string, authority []byte, user string, pair *Pair) ([]byte, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters[cluster] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: authority}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificateData: pair.Certificate, ClientKeyData: pair.Key}
	config.Contexts[cluster] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: user}
	config.CurrentContext = cluster
	content, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("encoding the kubeconfig of %s: %w", user, err)
	}
	return content, nil
}

func encode(der []byte, key crypto.Signer) (*Pair, error) {
	text, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a key: %w", err)
	}
	return &Pair{Certificate: encodeCertificate(der), Key: text}, nil
}

func encodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: der})
}

// Write stores the pair in FILE.crt and FILE.key, and makes their folder. Each file takes its place at once, the key
// first: programs that reload certificates never read half a file, and read again after a mismatch.
func (p *Pair) Write(file string) error {
	if err := WriteFile(file+".key", p.Key); err != nil {
		return err
	}
	return WriteFile(file+".crt", p.Certificate)
}

// WriteFile replaces a file that only its owner may read, and makes its folder.
func WriteFile(file string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	if err := os.WriteFile(file+".new", content, 0o600); err != nil {
		return fmt.Errorf("writing a file: %w", err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		return fmt.Errorf("replacing a file: %w", err)
	}
	return nil
}
