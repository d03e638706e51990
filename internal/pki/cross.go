package pki

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"math/big"
	"time"

	certutil "k8s.io/client-go/util/cert"
)

// SignedBy returns the certificate, in PEM, that another authority gives this one now. Who trusts the other one alone
// believes what this one issues by it (Behind). It ends with the other authority.
func (a *Authority) SignedBy(other *Authority, now time.Time) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, big.NewInt(math.MaxInt64))
	if err != nil {
		return nil, fmt.Errorf("choosing a serial number: %w", err)
	}
	template := &x509.Certificate{
		Subject: a.certificate.Subject, SubjectKeyId: a.certificate.SubjectKeyId, SerialNumber: serial.Add(serial, big.NewInt(1)),
		NotBefore: now.Add(-backdated).UTC(), NotAfter: other.certificate.NotAfter,
		KeyUsage: a.certificate.KeyUsage, BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, other.certificate, a.key.Public(), other.key)
	if err != nil {
		return nil, fmt.Errorf("signing the authority %s: %w", a.Name(), err)
	}
	return encodeCertificate(der), nil
}

// Behind returns the authority, with the certificate that another one has given it behind all that it issues, and when that
// was given.
func (a *Authority) Behind(cross []byte) (*Authority, time.Time, error) {
	certificate, err := one(cross)
	switch {
	case err != nil:
		return nil, time.Time{}, err
	case a.key.Public().(interface{ Equal(crypto.PublicKey) bool }).Equal(certificate.PublicKey):
		return &Authority{certificate: a.certificate, key: a.key, cross: certificate.Raw}, certificate.NotBefore.Add(backdated), nil
	default:
		return nil, time.Time{}, errors.New("it is of another key")
	}
}

// Trusted returns a certificate in PEM, and nothing else of it: what others may trust.
func Trusted(text []byte) ([]byte, error) {
	certificate, err := one(text)
	if err != nil {
		return nil, err
	}
	return encodeCertificate(certificate.Raw), nil
}

// maxBundle bounds what Bundle reads, in bytes: each tenant gets a copy.
const maxBundle = 64 << 10

// Bundle returns the certificates in PEM, and nothing else of it. None, and more than 64 KiB, are an error.
func Bundle(text []byte) ([]byte, error) {
	if len(text) > maxBundle {
		return nil, fmt.Errorf("it has %d bytes, and %d are read", len(text), maxBundle)
	}
	certificates, err := certutil.ParseCertsPEM(text)
	if err != nil {
		return nil, err //nolint:wrapcheck // it says all
	}
	return certutil.EncodeCertificates(certificates...) //nolint:wrapcheck // as above
}

// one returns the certificate of a text, which has no other one.
func one(text []byte) (*x509.Certificate, error) {
	if len(text) > maxPair {
		return nil, fmt.Errorf("it has %d bytes, and %d are read", len(text), maxPair)
	}
	certificates, err := certutil.ParseCertsPEM(text)
	if err != nil {
		return nil, fmt.Errorf("it cannot be read: %w", err)
	}
	if len(certificates) != 1 || !certificates[0].IsCA {
		return nil, errors.New("it is no certificate of an authority")
	}
	return certificates[0], nil
}
