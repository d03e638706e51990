package pki

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"
)

// maxPair bounds what is parsed of a pair, in bytes: it may come from a Secret that somebody has edited.
const maxPair = 64 << 10

// Due says when a pair is to be made anew that the authority issued as wanted: when two thirds of its life have passed,
// or of the life that is wanted now. why says what is wrong with it at now, "" for nothing: at is now then. A pair
// without a certificate is none.
func (a *Authority) Due(pair *Pair, wanted Certificate, now time.Time) (at time.Time, why string) {
	if len(pair.Certificate) == 0 {
		return now, "there is none"
	}
	parsed, err := parse(pair)
	if err != nil {
		return now, err.Error()
	}
	leaf := parsed.Leaf
	switch {
	case !bytes.Equal(leaf.RawIssuer, a.certificate.RawSubject), leaf.CheckSignatureFrom(a.certificate) != nil: // who verifies looks for the name first
		return now, fmt.Sprintf("authority %s has not signed it", a.Name())
	case !slices.EqualFunc(parsed.Certificate[1:], a.behind(), bytes.Equal):
		return now, "it shows other certificates than its own"
	case !describes(&wanted, leaf):
		return now, "it is for another user, or for other names"
	case !slices.Equal(slices.Sorted(slices.Values(leaf.ExtKeyUsage)), slices.Sorted(slices.Values(wanted.uses()))):
		return now, "it is for another use"
	case now.Before(leaf.NotBefore):
		return now, "it is not valid yet"
	}
	issued := leaf.NotBefore.Add(backdated)
	at = issued.Add(min(leaf.NotAfter.Sub(issued), wanted.validity()) * 2 / 3)
	if !now.Before(at) {
		return now, fmt.Sprintf("it ends at %s", leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return at, ""
}

// behind returns the certificates behind each that the authority issues, in DER.
func (a *Authority) behind() [][]byte {
	if a.cross == nil {
		return nil
	}
	return [][]byte{a.cross}
}

// describes reports whether a certificate is what was wanted, by whatever order of its names.
func describes(wanted *Certificate, found *x509.Certificate) bool {
	addresses := func(ips []net.IP) (sorted []string) {
		for _, ip := range ips {
			sorted = append(sorted, ip.String())
		}
		slices.Sort(sorted)
		return slices.Compact(sorted)
	}
	same := func(a, b []string) bool {
		a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
		return slices.Equal(slices.Compact(a), slices.Compact(b))
	}
	return found.Subject.CommonName == wanted.User && same(found.Subject.Organization, wanted.Groups) &&
		same(found.DNSNames, wanted.DNSNames) && slices.Equal(addresses(found.IPAddresses), addresses(wanted.IPs))
}

// parse reads a pair whose key is that of its first certificate.
func parse(pair *Pair) (*tls.Certificate, error) {
	if len(pair.Certificate)+len(pair.Key) > maxPair {
		return nil, fmt.Errorf("it has %d bytes, and %d are read", len(pair.Certificate)+len(pair.Key), maxPair)
	}
	parsed, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		return nil, fmt.Errorf("it cannot be read: %w", err)
	}
	if parsed.Leaf == nil {
		return nil, errors.New("it cannot be read")
	}
	return &parsed, nil
}

// Life returns when the certificate of a pair was issued, and when it ends, zero times for one that cannot be read.
func Life(pair *Pair) (issued, ends time.Time) {
	parsed, err := parse(pair)
	if err != nil {
		return time.Time{}, time.Time{}
	}
	return parsed.Leaf.NotBefore.Add(backdated), parsed.Leaf.NotAfter
}
