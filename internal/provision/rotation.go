package provision

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
	"github.com/superpool/superpool/internal/pki"
	"github.com/superpool/superpool/internal/tenancy"
)

// Keys of the Secret of an authority that is being replaced, besides the pair that signs.
const (
	nextCertificate     = "next.crt"
	nextKey             = "next.key"
	previousCertificate = "previous.crt"
	crossCertificate    = "cross.crt"
)

// spreadPeriod is how long a certificate takes at most to be shown by a program that runs: a kubelet looks at a Secret
// every minute and a half (syncFrequency, with its jitter), and an API server at its files every minute.
const spreadPeriod = 3 * time.Minute

// phase is how far an authority is replaced.
type phase int

const (
	// alone: it signs, and it alone is trusted.
	alone phase = iota
	// trusting: another one, which signs nothing yet, is trusted too.
	trusting
	// issuing: that one signs, and the one before is trusted yet.
	issuing
)

// next is the phase behind this one.
func (p phase) next() phase { return (p + 1) % (issuing + 1) }

// says is what is happening to an authority in a phase.
func (p phase) says() string {
	switch p {
	case trusting:
		return "1 of 3: all parts get to trust the new authorities"
	case issuing:
		return "2 of 3: the new authorities issue"
	case alone:
	}
	return "3 of 3: all parts get to trust the new authorities alone"
}

// authority is one of a control plane, as its Secret has it. What is replaced goes through the phases in this order, and
// each begins when all parts are whole in the one before: so nobody meets what he does not trust.
type authority struct {
	// secret is nil where it was made just now.
	secret *corev1.Secret
	phase  phase
	// signs issues all certificates, with what makes it known to who trusts previous alone.
	signs *pki.Authority
	// next is the one that is to sign, nil but while it is trusted first.
	next *pki.Authority
	// previous is the one that has signed until since, in PEM, nil where it is trusted no more.
	previous []byte
	since    time.Time
}

// readAuthority reads an authority.
func readAuthority(secret *corev1.Secret) (a *authority, err error) {
	a = &authority{secret: secret}
	if a.signs, err = pki.ParseAuthority(pairOf(secret)); err != nil {
		return nil, err //nolint:wrapcheck // it says all
	}
	switch {
	case len(secret.Data[nextCertificate]) > 0:
		a.phase = trusting
		a.next, err = pki.ParseAuthority(&pki.Pair{Certificate: secret.Data[nextCertificate], Key: secret.Data[nextKey]})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", nextCertificate, err)
		}
	case len(secret.Data[previousCertificate]) > 0:
		a.phase = issuing
		if a.previous, err = pki.Trusted(secret.Data[previousCertificate]); err != nil {
			return nil, fmt.Errorf("%s: %w", previousCertificate, err)
		}
		if a.signs, a.since, err = a.signs.Behind(secret.Data[crossCertificate]); err != nil {
			return nil, fmt.Errorf("%s: %w", crossCertificate, err)
		}
	}
	return a, nil
}

// trusted returns the certificates of those that are trusted, in PEM.
func (a *authority) trusted() string {
	text := string(a.signs.Certificate()) + string(a.previous)
	if a.next != nil {
		text += string(a.next.Certificate())
	}
	return text
}

// turn is the next phase of an authority.
type turn struct {
	// data is that of its Secret then, nil where it does not begin now: at says when, the zero time where nobody knows, and
	// waits what for, "" where there is no next phase.
	data  map[string][]byte
	at    time.Time
	waits string
}

// rotate begins the next phase of each authority where it may begin: all parts are whole in this one. again is shortened
// to when it may.
func (s *secrets) rotate(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster, report *report, again *time.Duration) error {
	said, errs := tenancy.Reason{}, []error(nil)
	for _, name := range controlplane.Authorities() {
		authority := s.authorities[name]
		if authority.secret == nil { // it was made just now
			continue
		}
		next, err := s.turn(name, authority, &vc.Spec)
		switch {
		case err != nil:
		case next.data != nil:
			said = tenancy.Reason{Reason: tenancyv1alpha1.ReasonProgressing, Message: authority.phase.next().says()}
			*again = min(*again, time.Second)
			err = s.update(ctx, authority.secret, next.data, authority.secret.OwnerReferences...)
		case next.waits != "":
			said = tenancy.Reason{Reason: tenancyv1alpha1.ReasonWaiting, Message: next.waits}
		}
		if !next.at.IsZero() {
			*again = min(*again, max(time.Second, next.at.Sub(s.now)))
		}
		errs = append(errs, err)
	}
	if said != (tenancy.Reason{}) || vc.Spec.RotateAfter != nil {
		report.set(tenancyv1alpha1.ConditionRotated, said)
	} else {
		report.without = append(report.without, tenancyv1alpha1.ConditionRotated)
	}
	return errors.Join(errs...)
}

// sayRotating says that authorities are being replaced, if they are.
func (s *secrets) sayRotating(report *report) {
	for _, authority := range s.authorities {
		if authority.phase != alone {
			report.set(tenancyv1alpha1.ConditionRotated, tenancy.Reason{Reason: tenancyv1alpha1.ReasonProgressing, Message: authority.phase.says()})
		}
	}
}

// turn returns the next phase of an authority.
func (s *secrets) turn(name string, a *authority, spec *tenancyv1alpha1.VirtualClusterSpec) (turn, error) {
	switch a.phase {
	case trusting:
		return a.issue(s.now)
	case issuing:
		return a.distrust(spec.DistrustAfter, s.now), nil
	case alone:
	}
	switch after := spec.RotateAfter; {
	case after == nil || !a.signs.Made().Before(after.Time):
		return turn{}, nil
	case s.now.Before(after.Time):
		return turn{at: after.Time, waits: "The authorities are replaced from " + after.UTC().Format(time.RFC3339) + " on"}, nil
	}
	_, pair, err := s.newAuthority(name)
	if err != nil {
		return turn{}, err
	}
	data := maps.Clone(a.secret.Data)
	data[nextCertificate], data[nextKey] = pair.Certificate, pair.Key
	return turn{data: data}, nil
}

// newAuthority returns an authority that is made now.
func (s *secrets) newAuthority(name string) (*pki.Authority, *pki.Pair, error) {
	key, err := pki.NewKey()
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // it says what it did
	}
	return s.authorityOf(name, key)
}

// authorityOf returns the authority of a key as one that is made now, of a name that none before has.
func (s *secrets) authorityOf(name string, key crypto.Signer) (*pki.Authority, *pki.Pair, error) {
	authority, err := pki.AuthorityOf(fmt.Sprintf("%s-%s@%d", s.namespace, name, s.now.Unix()), key, s.now)
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // it says what it did
	}
	pair, err := authority.Pair()
	return authority, pair, err //nolint:wrapcheck // it says what it did
}

// issue lets the next authority sign. Nobody can sign with the one before then.
func (a *authority) issue(now time.Time) (turn, error) {
	cross, err := a.next.SignedBy(a.signs, now)
	if err != nil {
		return turn{}, err //nolint:wrapcheck // it says what it did
	}
	pair, err := a.next.Pair()
	if err != nil {
		return turn{}, err //nolint:wrapcheck // it says what it did
	}
	data := dataOf(pair)
	data[previousCertificate], data[crossCertificate] = a.signs.Certificate(), cross
	return turn{data: data}, nil
}

// distrust lets the authority that signs alone be trusted, once somebody wishes so for a time behind since, and when all
// programs show what it has issued.
func (a *authority) distrust(after *metav1.Time, now time.Time) turn {
	const said = "2 of 3: the new authorities issue, and those of before are trusted"
	switch {
	case after == nil:
		return turn{waits: said + " until spec.distrustAfter, which is not set"}
	case !after.After(a.since):
		return turn{waits: fmt.Sprintf("%s: spec.distrustAfter is to be later than %s, when the new ones began", said, a.since.UTC().Format(time.RFC3339))}
	}
	at := after.Time
	if shown := a.since.Add(spreadPeriod); at.Before(shown) {
		at = shown
	}
	if now.Before(at) {
		return turn{at: at, waits: said + " until " + at.UTC().Format(time.RFC3339)}
	}
	return turn{data: dataOf(pairOf(a.secret))}
}
