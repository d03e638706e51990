package provision

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
	"github.com/superpool/superpool/internal/pki"
	"github.com/superpool/superpool/internal/provision/secrets"
	"github.com/superpool/superpool/internal/tenancy"
)

// Keys of the Secret of an authority that is being replaced, besides the pair that signs.
const (
	nextCertificate     = "next.crt"
	nextKey             = "next.key"
	previousCertificate = "previous.crt"
	crossCertificate    = "cross.crt"
)

// spreadPeriod is how long a file of a Secret takes at most to reach a program that runs: a kubelet looks at a Secret every
// minute and a half (syncFrequency, with its jitter), and an API server at its files every minute. A pod that starts has
// it in less.
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

// begins is what happens once authorities are in a phase.
var begins = map[phase]string{
	trusting: "1 of 3: all parts get to trust the new authorities",
	issuing:  "2 of 3: the new authorities issue",
	alone:    "3 of 3: all parts get to trust the new authorities alone",
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
	if a.signs, err = pki.ParseAuthority(secrets.PairOf(secret)); err != nil {
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

// trusted returns the certificates of those that are trusted, in PEM. One that is trusted no more is out of it.
func (a *authority) trusted() string {
	text := string(a.previous) + string(a.signs.Certificate())
	if a.next != nil {
		text += string(a.next.Certificate())
	}
	return text
}

// trustedBySigner returns those that are trusted, the one that signs first.
func (a *authority) trustedBySigner() string {
	return string(a.signs.Certificate()) + string(a.previous)
}

// isDue reports whether an authority was made before it is to be replaced, both to the second.
func (a *authority) isDue(spec *tenancyv1alpha1.VirtualClusterSpec) bool {
	return a.phase == alone && spec.RotateAfter != nil && a.signs.Made().Before(spec.RotateAfter.Truncate(time.Second))
}

// newAuthority returns an authority that is made now.
func (s *certificates) newAuthority(name string) (*pki.Authority, *pki.Pair, error) {
	key, err := pki.NewKey()
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // it says what it did
	}
	return s.authorityOf(name, key, s.Now)
}

// authorityOf returns the authority of a key as one that was made then, of a name that no other has.
func (s *certificates) authorityOf(name string, key crypto.Signer, made time.Time) (*pki.Authority, *pki.Pair, error) {
	signs, err := pki.AuthorityOf(fmt.Sprintf("%s-%s@%d", s.Namespace, name, made.Unix()), key, made)
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // it says what it did
	}
	pair, err := signs.Pair()
	return signs, pair, err //nolint:wrapcheck // it says what it did
}

// spread returns when what was issued last is shown by all programs.
func (s *certificates) spread(a *authority) time.Time {
	last := a.since
	if s.Issued().After(last) {
		last = s.Issued()
	}
	return last.Add(spreadPeriod)
}

// tellTrusted says in a control plane whom its parts trust. The programs that sign tokens read their key once: when it is
// there for certain they are replaced, by certificates in another order.
func (s *certificates) tellTrusted(plane *controlplane.ControlPlane) {
	plane.Trusted = map[string]string{}
	for name, a := range s.authorities {
		plane.Trusted[name] = a.trusted()
		if name == controlplane.ServiceAccounts && a.phase == issuing && !s.Now.Before(a.since.Add(spreadPeriod)) {
			plane.Trusted[name] = a.trustedBySigner()
		}
	}
}

// sayRotating says how far authorities are replaced, as it is while some part is not whole.
func (s *certificates) sayRotating(vc *tenancyv1alpha1.VirtualCluster, report *report) {
	said, earliest := tenancy.Reason{}, issuing+1
	for _, name := range controlplane.Authorities() {
		switch a := s.authorities[name]; {
		case a == nil: // it could not be read
			return
		case a.phase != alone && a.phase < earliest:
			earliest = a.phase
			said = tenancy.Reason{Reason: tenancyv1alpha1.ReasonProgressing, Message: begins[a.phase]}
		case said == tenancy.Reason{} && a.isDue(&vc.Spec):
			said = tenancy.Reason{Reason: tenancyv1alpha1.ReasonWaiting, Message: fmt.Sprintf(
				"The authorities are replaced when all parts are whole, from %s on", vc.Spec.RotateAfter.UTC().Format(time.RFC3339))}
		}
	}
	before := meta.FindStatusCondition(vc.Status.Conditions, tenancyv1alpha1.ConditionRotated)
	switch {
	case said != tenancy.Reason{}:
		report.set(tenancyv1alpha1.ConditionRotated, said)
	case before == nil || before.Reason != tenancyv1alpha1.ReasonWaiting && before.Reason != tenancyv1alpha1.ReasonIssuing:
	case vc.Spec.RotateAfter == nil: // it is wished for no more
		report.without = append(report.without, tenancyv1alpha1.ConditionRotated)
	default: // what was written then was not said
		report.set(tenancyv1alpha1.ConditionRotated, tenancy.Reason{Reason: tenancyv1alpha1.ReasonProgressing, Message: begins[alone]})
	}
}

// step is what is next for an authority.
type step struct {
	// data is that of its Secret in the phase behind, nil where it does not begin now: at says when to look again, the zero
	// time where nobody knows, and waits what for, the zero Reason where there is no such phase.
	data   map[string][]byte
	to     phase
	at     time.Time
	waits  tenancy.Reason
	secret *corev1.Secret
}

// rotate begins the next phase of each authority where it may begin: all parts are whole in this one, and nothing of an
// earlier one runs. Nor is the last one over before. again is shortened to when it may.
func (s *certificates) rotate(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster, report *report, again *time.Duration) error {
	steps, begin, err := s.steps(&vc.Spec)
	if err != nil {
		return err
	}
	spec := &vc.Spec
	if begin { // a phase that has begun is not taken back
		if spec, err = s.wish(ctx, vc); err != nil {
			return err
		}
		if steps, begin, err = s.steps(spec); err != nil {
			return err
		}
	}
	over := spec.RotateAfter != nil && isOver(steps) && !meta.IsStatusConditionTrue(vc.Status.Conditions, tenancyv1alpha1.ConditionRotated)
	if begin || over {
		ending, err := s.ending(ctx)
		if err != nil {
			return err
		}
		if ending != nil {
			*again = min(*again, s.looksAgain(ending))
			report.set(tenancyv1alpha1.ConditionRotated, tenancy.Reason{Reason: tenancyv1alpha1.ReasonProgressing, Message: fmt.Sprintf(
				"It goes on when a pod of before has ended: kubectl -n %s get pod %s", s.Namespace, ending.Name)})
			return nil
		}
	}
	return s.take(ctx, steps, spec.RotateAfter != nil, report, again)
}

// isOver reports whether nothing is next for any authority.
func isOver(steps []step) bool {
	return !slices.ContainsFunc(steps, func(next step) bool { return next.data != nil || next.waits != tenancy.Reason{} || !next.at.IsZero() })
}

// take begins the phases that begin, and says what there is to say. isWished is whether authorities are to be as new as a
// time.
func (s *certificates) take(ctx context.Context, steps []step, isWished bool, report *report, again *time.Duration) error {
	said, errs := tenancy.Reason{}, []error(nil)
	for _, next := range steps {
		if next.data != nil {
			errs = append(errs, s.Update(ctx, next.secret, next.data, next.secret.OwnerReferences...))
			next.waits, next.at = tenancy.Reason{Reason: tenancyv1alpha1.ReasonProgressing, Message: begins[next.to]}, s.Now
		}
		if !next.at.IsZero() {
			*again = min(*again, max(time.Second, next.at.Sub(s.Now)))
		}
		if said.Reason != tenancyv1alpha1.ReasonProgressing && next.waits != (tenancy.Reason{}) {
			said = next.waits
		}
	}
	switch err := errors.Join(errs...); {
	case err != nil:
		return err
	case said != tenancy.Reason{} || isWished:
		report.set(tenancyv1alpha1.ConditionRotated, said)
	default:
		report.without = append(report.without, tenancyv1alpha1.ConditionRotated)
	}
	return nil
}

// steps returns what is next for each authority, and whether a phase of one begins.
func (s *certificates) steps(spec *tenancyv1alpha1.VirtualClusterSpec) (steps []step, begin bool, err error) {
	for _, name := range controlplane.Authorities() {
		a, next := s.authorities[name], step{at: s.Now}
		if a.secret != nil {
			if next, err = s.next(name, a, spec); err != nil {
				return nil, false, err
			}
			next.secret = a.secret
		}
		steps, begin = append(steps, next), begin || next.data != nil
	}
	return steps, begin, nil
}

// wish returns what is wanted of a VirtualCluster, read without a cache.
func (s *certificates) wish(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster) (*tenancyv1alpha1.VirtualClusterSpec, error) {
	live := &tenancyv1alpha1.VirtualCluster{}
	if err := s.Reader.Get(ctx, client.ObjectKeyFromObject(vc), live); err != nil {
		return nil, fmt.Errorf("getting VirtualCluster %s: %w", client.ObjectKeyFromObject(vc), err)
	}
	if live.UID != vc.UID {
		return nil, fmt.Errorf("VirtualCluster %s is another one now", client.ObjectKeyFromObject(vc))
	}
	return &live.Spec, nil
}

// ending returns a pod that no Deployment counts and that trusts what it trusted when it began, nil for none: one that is
// about to end, or makes a backup.
func (s *certificates) ending(ctx context.Context) (*corev1.Pod, error) {
	var pods corev1.PodList
	if err := s.Reader.List(ctx, &pods, client.InNamespace(s.Namespace), client.MatchingLabelsSelector{Selector: controlplane.Managed()}); err != nil {
		return nil, fmt.Errorf("listing the pods of %s: %w", s.Namespace, err)
	}
	backups := labels.SelectorFromSet(controlplane.Labels(controlplane.EtcdBackup))
	for i := range pods.Items {
		pod := &pods.Items[i]
		if (pod.DeletionTimestamp != nil || backups.Matches(labels.Set(pod.Labels))) && !podutil.IsPodTerminal(pod) {
			return pod, nil
		}
	}
	return nil, nil
}

// looksAgain returns when it is looked again whether a pod has ended: nobody tells, and one of a node that is lost never
// does.
func (s *certificates) looksAgain(ending *corev1.Pod) time.Duration {
	if ending.DeletionTimestamp != nil && s.Now.After(ending.DeletionTimestamp.Add(mendingPeriod)) {
		return mendingPeriod
	}
	return storePeriod
}

// next returns what is next for an authority.
func (s *certificates) next(name string, a *authority, spec *tenancyv1alpha1.VirtualClusterSpec) (step, error) {
	switch a.phase {
	case trusting:
		if made := a.next.Made(); s.Now.Before(made) { // by a clock that is ahead: what it issues is not valid yet
			return step{at: made, waits: tenancy.Reason{Reason: tenancyv1alpha1.ReasonProgressing, Message: begins[trusting]}}, nil
		}
		return a.issue(s.Now)
	case issuing:
		return s.distrust(a, spec.DistrustAfter), nil
	case alone:
	}
	switch {
	case !a.isDue(spec):
		return step{}, nil
	case s.Now.Before(spec.RotateAfter.Time):
		return step{at: spec.RotateAfter.Time, waits: tenancy.Reason{
			Reason: tenancyv1alpha1.ReasonWaiting, Message: "The authorities are replaced from " + spec.RotateAfter.UTC().Format(time.RFC3339) + " on",
		}}, nil
	}
	_, pair, err := s.newAuthority(name)
	if err != nil {
		return step{}, err
	}
	data := maps.Clone(a.secret.Data)
	data[nextCertificate], data[nextKey] = pair.Certificate, pair.Key
	return step{data: data, to: trusting}, nil
}

// issue lets the next authority sign. Nobody can sign with the one before then.
func (a *authority) issue(now time.Time) (step, error) {
	cross, err := a.next.SignedBy(a.signs, now)
	if err != nil {
		return step{}, err //nolint:wrapcheck // it says what it did
	}
	pair, err := a.next.Pair()
	if err != nil {
		return step{}, err //nolint:wrapcheck // it says what it did
	}
	data := secrets.DataOf(pair)
	data[previousCertificate], data[crossCertificate] = a.signs.Certificate(), cross
	return step{data: data, to: issuing}, nil
}

// distrust lets the authority that signs alone be trusted, once somebody wishes so for a time behind since, and all
// programs show what it has issued.
func (s *certificates) distrust(a *authority, after *metav1.Time) step {
	if shown := s.spread(a); s.Now.Before(shown) {
		return step{at: shown, waits: tenancy.Reason{Reason: tenancyv1alpha1.ReasonProgressing, Message: begins[issuing]}}
	}
	until, at := "", time.Time{}
	switch {
	case after == nil:
		until = " until spec.distrustAfter, which is not set"
	case !after.After(a.since):
		until = fmt.Sprintf(": spec.distrustAfter is to be later than %s, when the new ones began", a.since.UTC().Format(time.RFC3339))
	case s.Now.Before(after.Time):
		until, at = " until "+after.UTC().Format(time.RFC3339), after.Time
	default:
		return step{data: secrets.DataOf(secrets.PairOf(a.secret)), to: alone}
	}
	return step{at: at, waits: tenancy.Reason{
		Reason: tenancyv1alpha1.ReasonIssuing, Message: begins[issuing] + ", and those of before are trusted" + until,
	}}
}
