package tokens

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenancy"
)

const (
	// maxCertificates is the number of certificates of a pod, and maxCertificatesSize the size in bytes of all their files:
	// a Secret has a megabyte, tokens 256 kB of it, and trust bundles 512 kB.
	maxCertificates, maxCertificatesSize = 16, 192 << 10
	// minCertificateAge is how long none is asked for after an answer, and maxCertificateAge how long at most, whatever the
	// signer says, and whatever becomes of the pod's volumes: API servers let a certificate be renewed after ten minutes, and
	// live for 91 days.
	minCertificateAge, maxCertificateAge = 10 * time.Minute, 91 * 24 * time.Hour
	// refusedPeriod is after how long a certificate is asked for again that the signer did not issue, or not as it should.
	refusedPeriod = time.Hour
	// certificateSpread is within how long those are renewed that are due at once, as with kubelets.
	certificateSpread = 5 * time.Minute
	// certificateTimeout is how long the requests of one reconcile for certificates may take.
	certificateTimeout = 3 * time.Second
	// maxWhy is the length in bytes of what a record says of a refusal.
	maxWhy = 256
	// ofCertificates is the topic of warnings about a pod's certificates, beside those about its tokens.
	ofCertificates = "certificates"
	// annotationCertificates holds, on a Secret of tokens, a JSON object from the name of a certificate to what was issued,
	// or why it was not, and when the next is to be asked for. Written by the syncer; read by the syncer.
	annotationCertificates = "tenancy.x-k8s.io/issued-certificates"
)

var errCertificatesTooLarge = fmt.Errorf("the pod's certificates are too large: they may have files of %d kB", maxCertificatesSize>>10)

// certificateProjection is a certificate that a volume of a pod projects, and the data keys that it has.
type certificateProjection struct {
	*corev1.PodCertificateProjection
	files []kind.CertificateFile
}

// certificateProjections returns the certificates that the volumes of a pod project, by name: the first data key.
func certificateProjections(spec *corev1.PodSpec) map[string]certificateProjection {
	projections := map[string]certificateProjection{}
	for at, source := range projected(spec) {
		if source.PodCertificate == nil {
			continue
		}
		if files := kind.CertificateFiles(at[0], at[1], source.PodCertificate); len(files) > 0 {
			projections[files[0].Key] = certificateProjection{source.PodCertificate, files}
		}
	}
	return projections
}

// hash is one of what is asked for.
func (p certificateProjection) hash() string {
	text, err := json.Marshal([]any{p.SignerName, p.KeyType, p.MaxExpirationSeconds, p.UserAnnotations})
	if err != nil {
		return "" // no such value has no JSON
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// isIn reports whether a Secret has all of it.
func (p certificateProjection) isIn(data map[string][]byte) bool {
	return !slices.ContainsFunc(p.files, func(file kind.CertificateFile) bool { return len(data[file.Key]) == 0 })
}

// issuedCertificate is the record of a certificate: of the last PodCertificateRequest that was answered.
type issuedCertificate struct {
	// Of is the hash of what was asked for, and Request the name of the PodCertificateRequest.
	Of      string `json:"of"`
	Request string `json:"request"`
	// Expires is when the certificate ends that is in the Secret, zero if none is.
	Expires time.Time `json:"expires,omitzero"`
	// Answered is when the answer was read, and Refresh when another one is to be asked for.
	Answered time.Time `json:"answered"`
	Refresh  time.Time `json:"refresh"`
	// Why says why the request brought none, "" if it did. It may have the signer's words.
	Why string `json:"why,omitempty"`
}

// due returns when a certificate is to be asked for: earlier than was planned where it is lost, or another one is wanted.
func (i *issuedCertificate) due(projection certificateProjection, data map[string][]byte) time.Time {
	isLost := !i.Expires.IsZero() && !projection.isIn(data)
	if isLost || i.Of != projection.hash() {
		return i.Answered.Add(minCertificateAge)
	}
	return i.Refresh
}

// addCertificates puts the certificates of a pod that were issued into secret, the Secret as it is to be, asks for those
// that are missing or due, and warns the tenant where they are not what the pod wants. Tokens do not wait for them. It
// returns after what time they are to be looked at again, 0 for never.
//
//	a certificate        what is done
//	is there             nothing until it is due
//	is missing or due    a key is computed, then a PodCertificateRequest is made for it
//	is asked for         it is read again, more rarely the longer it lasts; forgotten with its key after requestLife
//	is issued            key and chain, and a record that names the request, go into the Secret
//	is refused           a record of that goes into the Secret; due again after refusedPeriod
//	is in the cache      the key is forgotten
func (t *Tokens) addCertificates(ctx context.Context, pair *tokenPair, secret *corev1.Secret) (after time.Duration) {
	projections := certificateProjections(&pair.tenantPod.Spec)
	if len(projections) == 0 {
		return 0
	}
	topic := kind.Topic{Key: pair.key, Of: ofCertificates}
	warn := func(why string) {
		t.env.WarnAbout(pair.tenant, topic, pair.tenantPod, kind.ReasonFailedPodCertificate, "The pod's certificates: "+why)
	}
	if len(projections) > maxCertificates {
		warn(fmt.Sprintf("it projects %d, and may project %d", len(projections), maxCertificates))
		return 0 // volumes of a pod are immutable
	}
	if !hasTime(ctx) {
		return missingPeriod
	}
	ctx, cancel := context.WithTimeout(ctx, certificateTimeout)
	defer cancel()
	issued, why, isSilent := recordsIn[issuedCertificate](secret, annotationCertificates), "", false
	for _, name := range slices.Sorted(maps.Keys(projections)) {
		state := t.addCertificate(ctx, pair, secret, issued, name, projections[name])
		after = sooner(after, max(state.after, requestPeriod))
		why, isSilent = cmp.Or(why, state.why), isSilent || state.isSilent
	}
	if text, err := json.Marshal(issued); err == nil && len(issued) > 0 { // all times are of four-digit years
		metav1.SetMetaDataAnnotation(&secret.ObjectMeta, annotationCertificates, string(text))
	}
	switch {
	case why != "":
		warn(why)
	case !isSilent: // else what was said stays said
		t.env.Warnings.Clear(topic)
	}
	return after
}

// sooner returns the smaller of two times to wait, 0 being none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// certificateState is how far a certificate is.
type certificateState struct {
	// after is when it is to be looked at again.
	after time.Duration
	// why says what the pod lacks or waits for, "" if the tenant need not know.
	why string
	// isSilent is whether the API server did not answer: that is no pod's fault.
	isSilent bool
}

// addCertificate is addCertificates for one of them: it makes the next step towards it.
func (t *Tokens) addCertificate(
	ctx context.Context, pair *tokenPair, secret *corev1.Secret, issued map[string]issuedCertificate, name string, projection certificateProjection,
) certificateState {
	now, record := t.env.Clock.Now(), issued[name]
	asked := t.requests(pair).of(requestKey{pair.key, name}, record.Request, now)
	if due := record.due(projection, secret.Data); asked == nil && now.Before(due) {
		return certificateState{after: due.Sub(now), why: record.Why}
	}
	if asked == nil {
		var why string
		if asked, why = t.begin(pair, name, projection); asked == nil {
			return certificateState{after: waitOf(t.env.Clock.Since(pair.tenantPod.CreationTimestamp.Time), missingPeriod), why: why}
		}
	}
	live, state := t.ask(ctx, pair, projection, asked, record.Request)
	if state.why == "" && !record.Expires.IsZero() && now.After(record.Expires) {
		state.why = "the certificate of signer " + projection.SignerName + " has ended, and there is no other yet"
	}
	if live == nil {
		return state
	}
	record, isAnswered := t.take(pair, secret, projection, asked.key.Load(), live, record)
	if !isAnswered {
		return state
	}
	issued[name] = record
	return certificateState{after: record.Refresh.Sub(now), why: record.Why}
}

// take puts what a PodCertificateRequest brought into secret, and returns the record of it; false if it is not answered.
func (t *Tokens) take(
	pair *tokenPair, secret *corev1.Secret, projection certificateProjection, key *privateKey, live *certificatesv1.PodCertificateRequest, had issuedCertificate,
) (issuedCertificate, bool) {
	now := t.env.Clock.Now()
	record := issuedCertificate{Of: projection.hash(), Request: live.Name, Answered: now.UTC().Truncate(time.Second)}
	refuse := func(text string) (issuedCertificate, bool) {
		if projection.isIn(secret.Data) {
			record.Expires = had.Expires
		}
		record.Refresh = now.Add(refusedPeriod).UTC().Truncate(time.Second)
		record.Why = tenancy.Cut(fmt.Sprintf("PodCertificateRequest %s of signer %s: %s", live.Name, projection.SignerName, text), maxWhy)
		return record, true
	}
	for i := range live.Status.Conditions {
		switch condition := &live.Status.Conditions[i]; {
		case condition.Status != metav1.ConditionTrue:
		case condition.Type == certificatesv1.PodCertificateRequestConditionTypeDenied, condition.Type == certificatesv1.PodCertificateRequestConditionTypeFailed:
			return refuse(fmt.Sprintf("%s: %s: %s", condition.Type, condition.Reason, condition.Message))
		case condition.Type == certificatesv1.PodCertificateRequestConditionTypeIssued:
			chain, expires, err := chainOf(live.Status.CertificateChain, key.public, now)
			if err == nil {
				err = putCertificate(pair, secret, projection, key.text, chain)
			}
			if err != nil {
				return refuse(err.Error())
			}
			record.Expires, record.Refresh = expires, refreshOf(live.Status.BeginRefreshAt, expires, now, pair.key)
			return record, true
		}
	}
	return had, false
}

// refreshOf returns when a certificate is to be renewed: when the signer says, within bounds, and a little later, so that
// not all are that were issued at once.
func refreshOf(said *metav1.Time, expires, now time.Time, key engine.Key) time.Time {
	at := expires.Add(-expires.Sub(now) / 5) // as tokens, where an API server lets it be unsaid
	if said != nil {
		at = said.Time
	}
	at = at.Add(renewalJitter(key) * (certificateSpread / maxRenewalJitter))
	for _, latest := range [...]time.Time{expires, now.Add(maxCertificateAge)} {
		if at.After(latest) {
			at = latest
		}
	}
	if earliest := now.Add(minCertificateAge); at.Before(earliest) {
		at = earliest
	}
	return at.UTC().Truncate(time.Second)
}

// putCertificate puts the files of a certificate into secret, if those of all certificates of the pod fit.
func putCertificate(pair *tokenPair, secret *corev1.Secret, projection certificateProjection, key, chain []byte) error {
	data, size := map[string][]byte{}, 0
	maps.Copy(data, secret.Data)
	for _, file := range projection.files {
		data[file.Key] = nil
		if file.HasKey {
			data[file.Key] = slices.Clone(key)
		}
		if file.HasChain {
			data[file.Key] = append(data[file.Key], chain...)
		}
	}
	for _, of := range certificateProjections(&pair.tenantPod.Spec) {
		for _, file := range of.files {
			size += len(data[file.Key])
		}
	}
	if size > maxCertificatesSize {
		return errCertificatesTooLarge
	}
	secret.Data = data
	return nil
}
