package tokens

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"
)

// maxChainSize is the size in bytes of a chain as it is sent; API servers let it have 100 kB.
const maxChainSize = 64 << 10

var (
	errChainTooLong = fmt.Errorf("the chain is too long: it may have %d kB", maxChainSize>>10)
	errChainInvalid = errors.New("the chain is not of certificates in PEM alone")
	errOtherKey     = errors.New("the certificate was issued to another key than that of the request")
	errEndsSoon     = fmt.Errorf("the certificate ends within %v", minCertificateAge)
	errKeyType      = errors.New("no such key type is known")
)

// privateKey is the key of a pod's certificate. It is in no log, no error and no Event.
type privateKey struct {
	// text is the key, in PEM, stub the PKCS#10 request that proves who has it, and public its other half.
	text, stub []byte
	public     crypto.PublicKey
}

// isSlow reports whether a key of that type takes long to compute.
func isSlow(keyType string) bool { return strings.HasPrefix(keyType, "RSA") }

// newKey computes a key as kubelets do.
func newKey(keyType string) (*privateKey, error) {
	var signer crypto.Signer
	var err error
	switch keyType {
	case "RSA3072":
		signer, err = rsa.GenerateKey(rand.Reader, 3072)
	case "RSA4096":
		signer, err = rsa.GenerateKey(rand.Reader, 4096)
	case "ECDSAP256":
		signer, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "ECDSAP384":
		signer, err = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case "ECDSAP521":
		signer, err = ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	case "ED25519":
		_, signer, err = ed25519.GenerateKey(rand.Reader)
	default:
		return nil, errKeyType
	}
	if err != nil {
		return nil, fmt.Errorf("computing a key: %w", err)
	}
	stub, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, signer)
	if err != nil {
		return nil, fmt.Errorf("signing with a new key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(signer)
	if err != nil {
		return nil, fmt.Errorf("encoding a new key: %w", err)
	}
	return &privateKey{text: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), stub: stub, public: signer.Public()}, nil
}

// chainOf returns the certificates of a chain in PEM, with nothing between them, and when the first of them ends, which is
// that of the key.
func chainOf(text string, public crypto.PublicKey, now time.Time) (chain []byte, expires time.Time, err error) {
	if len(text) > maxChainSize {
		return nil, time.Time{}, errChainTooLong
	}
	var clean bytes.Buffer
	for rest := []byte(text); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil || block.Type != typeCertificate {
			return nil, time.Time{}, errChainInvalid // without the parser's words, which are about what a tenant wrote
		}
		if clean.Len() == 0 {
			if known, comparable := public.(interface {
				Equal(other crypto.PublicKey) bool
			}); !comparable || !known.Equal(certificate.PublicKey) {
				return nil, time.Time{}, errOtherKey
			}
			expires = certificate.NotAfter.UTC()
		}
		_ = pem.Encode(&clean, &pem.Block{Type: typeCertificate, Bytes: block.Bytes}) // a buffer takes all
	}
	switch {
	case clean.Len() == 0:
		return nil, time.Time{}, errChainInvalid
	case expires.Before(now.Add(minCertificateAge)):
		return nil, time.Time{}, errEndsSoon
	}
	return clean.Bytes(), expires, nil
}
