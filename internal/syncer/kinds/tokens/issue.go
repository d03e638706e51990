package tokens

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
)

const (
	// A token is renewed when a fifth of its lifetime is left, and after maxTokenAge, as kubelets do; earlier by at
	// most maxRenewalJitter.
	maxTokenAge      = 24 * time.Hour
	maxRenewalJitter = 10 * time.Second
	// minTokenLifetime bounds how often the Secret of a pod is written: no token is renewed sooner after its issue, and
	// with one that is due all are renewed that would be due within that time. API servers issue none below ten
	// minutes; a tenant's own may say what it likes.
	minTokenLifetime = 5 * time.Minute
	// maxTokens is the number of tokens of a pod, and maxTokenSize the size in bytes of each: those of API servers have
	// about one kilobyte.
	maxTokens    = 16
	maxTokenSize = 16 << 10
)

var (
	// errTokenTooLong is the error for a token that is longer than maxTokenSize.
	errTokenTooLong = errors.New("the token is too long")
	// errTokenTooShort is the error for a token that ends before minTokenLifetime. It says no time, which would differ
	// at each try.
	errTokenTooShort = fmt.Errorf("the token ends within %v: set the clock of the tenant's API server right, or let it issue tokens for longer", minTokenLifetime)
)

// issuedToken is the record of a token that the tenant's API server issued.
type issuedToken struct {
	// Audience and Asked, in seconds and 0 for none, are those of the request.
	Audience string `json:"audience,omitempty"`
	Asked    int64  `json:"asked,omitempty"`
	// Lifetime is in seconds, Expires the end of it.
	Lifetime int64     `json:"lifetime"`
	Expires  time.Time `json:"expires"`
}

// renewal returns when a token is to be renewed.
func (i issuedToken) renewal(jitter time.Duration) time.Time {
	lifetime := time.Duration(i.Lifetime) * time.Second
	due := i.Expires.Add(-lifetime / 5)
	if tooOld := i.Expires.Add(maxTokenAge - lifetime); tooOld.Before(due) {
		due = tooOld
	}
	due = due.Add(-jitter)
	if earliest := i.Expires.Add(minTokenLifetime - lifetime); due.Before(earliest) {
		return earliest
	}
	return due
}

// recordsIn returns the records in an annotation of a Secret by name, none if it cannot be decoded.
func recordsIn[T any](secret *corev1.Secret, annotation string) (records map[string]T) {
	if err := json.Unmarshal([]byte(secret.Annotations[annotation]), &records); err != nil || records == nil {
		return map[string]T{}
	}
	return records
}

// projected yields what the volumes of a pod project, each with the index of its volume and its own in that.
func projected(spec *corev1.PodSpec) iter.Seq2[[2]int, *corev1.VolumeProjection] {
	return func(yield func([2]int, *corev1.VolumeProjection) bool) {
		for i := range spec.Volumes {
			if spec.Volumes[i].Projected == nil {
				continue
			}
			for j := range spec.Volumes[i].Projected.Sources {
				if !yield([2]int{i, j}, &spec.Volumes[i].Projected.Sources[j]) {
					return
				}
			}
		}
	}
}

// tokenProjections returns the tokens that the volumes of a pod project, by data key.
func tokenProjections(spec *corev1.PodSpec) map[string]*corev1.ServiceAccountTokenProjection {
	projections := map[string]*corev1.ServiceAccountTokenProjection{}
	for at, source := range projected(spec) {
		if source.ServiceAccountToken != nil {
			projections[kind.TokenKey(at[0], at[1])] = source.ServiceAccountToken
		}
	}
	return projections
}

// renew requests the tokens that are missing or due, and with them those that soon will be. It writes them to secret,
// and their records to issued. It returns when the next one is due.
func (t *Tokens) renew(ctx context.Context, pair *tokenPair, secret *corev1.Secret, issued map[string]issuedToken) (time.Time, error) {
	jitter := renewalJitter(pair.key)
	next, now := time.Time{}, t.env.Clock.Now()
	projections := tokenProjections(&pair.tenantPod.Spec)
	due := func(dataKey string, at time.Time) bool {
		token, projection := issued[dataKey], projections[dataKey]
		same := token.Audience == projection.Audience && token.Asked == ptr.Deref(projection.ExpirationSeconds, 0) && len(secret.Data[dataKey]) > 0
		return !same || !at.Before(token.renewal(jitter))
	}
	deadline := now
	for dataKey := range projections {
		if due(dataKey, now) {
			deadline = now.Add(minTokenLifetime - time.Second)
		}
	}
	for dataKey, projection := range projections {
		token := issued[dataKey]
		if due(dataKey, deadline) {
			value, record, err := t.request(ctx, pair, projection)
			if err != nil {
				return next, err
			}
			if secret.Data == nil {
				secret.Data = map[string][]byte{}
			}
			token, issued[dataKey], secret.Data[dataKey] = record, record, value
		}
		if renewal := token.renewal(jitter); next.IsZero() || renewal.Before(next) {
			next = renewal
		}
	}
	return next, nil
}

// renewalJitter spreads the renewals of tokens that were issued together. It depends on the key alone, so a restart of
// the syncer renews none early.
func renewalJitter(key engine.Key) time.Duration {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(key.Tenant + "/" + key.Namespace + "/" + key.Name))
	return maxRenewalJitter * time.Duration(sum.Sum32()%1000) / 1000
}

// request requests a token from the tenant's API server. The token is in no log and no error.
func (t *Tokens) request(ctx context.Context, pair *tokenPair, projection *corev1.ServiceAccountTokenProjection) ([]byte, issuedToken, error) {
	tenantPod := pair.tenantPod
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: tenantPod.Namespace, Name: tenantPod.Spec.ServiceAccountName}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: projection.DeepCopy().ExpirationSeconds, // the client decodes the response into request
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: tenantPod.Name, UID: tenantPod.UID},
	}}
	if projection.Audience != "" {
		request.Spec.Audiences = []string{projection.Audience}
	}
	err := t.env.Done(ctx, kind.Token, "request", pair.tenant.Client.SubResource("token").Create(ctx, account, request))
	if err != nil {
		return nil, issuedToken{}, err
	}
	if size := len(request.Status.Token); size > maxTokenSize {
		return nil, issuedToken{}, fmt.Errorf("%w: it has %d bytes, and at most %d are kept", errTokenTooLong, size, maxTokenSize)
	}
	expires := request.Status.ExpirationTimestamp.UTC()
	lifetime := expires.Sub(t.env.Clock.Now()).Round(time.Second)
	if lifetime < minTokenLifetime {
		return nil, issuedToken{}, errTokenTooShort
	}
	return []byte(request.Status.Token), issuedToken{
		Audience: projection.Audience, Asked: ptr.Deref(projection.ExpirationSeconds, 0), Lifetime: int64(lifetime / time.Second), Expires: expires,
	}, nil
}
