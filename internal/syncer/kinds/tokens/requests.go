package tokens

import (
	"bytes"
	"context"
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
	"sync"
	"sync/atomic"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
)

const (
	// requestPeriod is after how long a PodCertificateRequest is read again that was just made: it grows with its age to
	// bundlePeriod, by one part in missingParts. After signerPeriod the tenant is told that it waits.
	requestPeriod, signerPeriod = time.Second, time.Minute
	// requestLife is how long a PodCertificateRequest and its key are remembered: kube-controller-manager deletes those that
	// are older, whether they are answered or not.
	requestLife = 15 * time.Minute
	// maxRequests is how many of a tenant are remembered at once, with some kilobytes each.
	maxRequests = 512
	// maxInLine is how many RSA keys of a tenant wait to be computed at once, and lineLength how many of all tenants: one is
	// computed at a time, and may take seconds.
	maxInLine, lineLength = 2, 256
	// maxChainSize is the size in bytes of a chain as it is sent; API servers let it have 100 kB.
	maxChainSize = 64 << 10
)

var (
	errCertificatesTooLarge = errors.New("the pod's certificates are too large: they may have files")
	errChainTooLong         = fmt.Errorf("the chain is too long: it may have %d kB", maxChainSize>>10)
	errChainInvalid         = errors.New("the chain is not of certificates in PEM alone")
	errOtherKey             = errors.New("the certificate was issued to another key than that of the request")
	errEndsSoon             = fmt.Errorf("the certificate ends within %v", minCertificateAge)
	errKeyType              = errors.New("no such key type is known")
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

// certificateRequest is a PodCertificateRequest that is not answered, or whose answer the cache does not show yet. But for
// key, the reconciles of its pod alone change it.
type certificateRequest struct {
	// began is when it was begun, and made when it was made under name, "" before that.
	began, made time.Time
	name        string
	// key is nil until it is computed.
	key atomic.Pointer[privateKey]
}

type requestKey struct {
	engine.Key
	// certificate is its name among those of the pod.
	certificate string
}

// certificateRequests are those of a tenant, for as long as it is connected. Whoever comes after asks again.
type certificateRequests struct {
	// inLine is how many keys wait to be computed.
	inLine atomic.Int32

	mu  sync.Mutex
	all map[requestKey]*certificateRequest
}

// requests returns those of the tenant of a pair.
func (t *Tokens) requests(pair *tokenPair) *certificateRequests {
	place := kind.Kept[certificateRequests](pair.tenant)
	place.CompareAndSwap(nil, &certificateRequests{all: map[requestKey]*certificateRequest{}})
	return place.Load()
}

// of returns the request for a certificate of a pod, nil if there is none. It forgets one that is answered, as the cache
// shows: that of the name answered; and one that is too old.
func (r *certificateRequests) of(key engine.Key, certificate, answered string, now time.Time) *certificateRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := requestKey{key, certificate}
	request := r.all[at]
	if request == nil || request.name != "" && request.name == answered || request.isOld(now) {
		delete(r.all, at)
		return nil
	}
	return request
}

func (c *certificateRequest) isOld(now time.Time) bool { return !now.Before(c.began.Add(requestLife)) }

// add adds a request, nil where there is no room for it.
func (r *certificateRequests) add(key engine.Key, certificate string, now time.Time) *certificateRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) >= maxRequests {
		for at, request := range r.all {
			if request.isOld(now) {
				delete(r.all, at)
			}
		}
	}
	if len(r.all) >= maxRequests {
		return nil
	}
	request := &certificateRequest{began: now}
	r.all[requestKey{key, certificate}] = request
	return request
}

// has reports whether a request is still remembered.
func (r *certificateRequests) has(at requestKey, request *certificateRequest) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all[at] == request
}

// drop forgets the request for a certificate.
func (r *certificateRequests) drop(key engine.Key, certificate string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, requestKey{key, certificate})
}

// forget forgets the requests of a pod.
func (r *certificateRequests) forget(key engine.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for at := range r.all {
		if at.Key == key {
			delete(r.all, at)
		}
	}
}

// begin begins a request for a certificate: its key is there, or stands in line to be computed. Where there is no room it
// returns nil, and says why.
func (t *Tokens) begin(pair *tokenPair, name string, projection certificateProjection) (*certificateRequest, string) {
	requests := t.requests(pair)
	if isSlow(projection.KeyType) && requests.inLine.Load() >= maxInLine {
		return nil, ""
	}
	request := requests.add(pair.key, name, t.env.Clock.Now())
	if request == nil {
		return nil, fmt.Sprintf("they wait for others: %d PodCertificateRequests of the control plane are not answered", maxRequests)
	}
	if isSlow(projection.KeyType) {
		if t.standInLine(requests, requestKey{pair.key, name}, request, projection.KeyType) {
			return request, ""
		}
		requests.drop(pair.key, name)
		return nil, ""
	}
	key, err := newKey(projection.KeyType)
	if err != nil {
		requests.drop(pair.key, name)
		return nil, fmt.Sprintf("that of signer %s: %v", projection.SignerName, err)
	}
	request.key.Store(key)
	return request, ""
}

// standInLine lets Run compute the key of a request, and returns false if there are too many.
func (t *Tokens) standInLine(requests *certificateRequests, at requestKey, request *certificateRequest, keyType string) bool {
	compute := func() {
		defer requests.inLine.Add(-1)
		if !requests.has(at, request) {
			return
		}
		if key, err := newKey(keyType); err == nil {
			request.key.Store(key)
			t.env.Resync([]engine.Key{at.Key})
		}
	}
	if requests.inLine.Add(1) <= maxInLine {
		select {
		case t.line <- compute:
			return true
		default:
		}
	}
	requests.inLine.Add(-1)
	return false
}

// Run implements engine.Runner: it computes keys that take long, one at a time. Tenants have few in line, so they take
// turns.
func (t *Tokens) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case compute := <-t.line:
			compute()
		}
	}
}

// ask makes a PodCertificateRequest, or reads the one that was made; before is the name of the one before it. Without its
// key, or an answer of the API server, it returns nil.
func (t *Tokens) ask(
	ctx context.Context, pair *tokenPair, projection certificateProjection, asked *certificateRequest, before string,
) (*certificatesv1.PodCertificateRequest, certificateState) {
	now, key := t.env.Clock.Now(), asked.key.Load()
	if key == nil {
		return nil, certificateState{after: bundlePeriod} // Run enqueues the key
	}
	state := certificateState{after: waitOf(now.Sub(asked.began), requestPeriod)}
	live := &certificatesv1.PodCertificateRequest{}
	if asked.name == "" {
		if live, state.why = t.newRequest(pair, projection, key); live == nil {
			state.isSilent = state.why == ""
			return nil, state
		}
		if err := t.env.Done(ctx, kind.Token, "request", pair.tenant.Client.Create(ctx, live)); err != nil {
			state.why = requestRefused(err)
			state.isSilent = state.why == ""
			return nil, state
		}
		if len(validation.IsDNS1123Subdomain(live.Name)) > 0 || live.Name == before {
			state.why = "the control plane makes PodCertificateRequests without names of their own"
			return nil, state
		}
		asked.name, asked.made = live.Name, now
		return nil, certificateState{after: requestPeriod}
	}
	err := pair.tenant.Client.Get(ctx, types.NamespacedName{Namespace: pair.pod.Namespace, Name: asked.name}, live)
	switch {
	case apierrors.IsNotFound(err):
		state.why = fmt.Sprintf("PodCertificateRequest %s was deleted: another one is made %v after it", asked.name, requestLife)
		return nil, state
	case err != nil:
		state.why = requestRefused(err)
		state.isSilent = state.why == ""
		return nil, state
	case now.Sub(asked.made) >= signerPeriod:
		state.why = fmt.Sprintf("PodCertificateRequest %s is not answered: is there a signer %s?", asked.name, projection.SignerName)
	}
	live.Name = asked.name // whatever the answer says
	return live, state
}

// waitOf returns after what time something is looked at again that has waited so long: least, and more rarely later.
func waitOf(age, least time.Duration) time.Duration {
	return min(max(age/missingParts, least), bundlePeriod)
}

// newRequest returns a PodCertificateRequest as a kubelet of the pod's node makes it; nil where it cannot be made, and why,
// "" if the caches do not say.
func (t *Tokens) newRequest(pair *tokenPair, projection certificateProjection, key *privateKey) (*certificatesv1.PodCertificateRequest, string) {
	pod, cache := pair.tenantPod, pair.tenant.Cache
	account, hasAccount, isSynced := kind.Get[*corev1.ServiceAccount](cache, kind.ServiceAccount, pod.Namespace, pod.Spec.ServiceAccountName)
	node, hasNode, nodesSynced := kind.Get[*corev1.Node](cache, kind.Node, "", pod.Spec.NodeName)
	switch {
	case !isSynced || !nodesSynced:
		return nil, ""
	case !hasAccount:
		return nil, "there is no service account " + pod.Spec.ServiceAccountName
	case !hasNode:
		return nil, "there is no Node " + pod.Spec.NodeName
	}
	return &certificatesv1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, GenerateName: "req-",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}},
		},
		Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: projection.SignerName, PodName: pod.Name, PodUID: pod.UID,
			ServiceAccountName: account.Name, ServiceAccountUID: account.UID,
			NodeName: types.NodeName(node.Name), NodeUID: node.UID, StubPKCS10Request: key.stub,
			MaxExpirationSeconds:      projection.DeepCopy().MaxExpirationSeconds, // the client decodes the response into it
			UnverifiedUserAnnotations: projection.DeepCopy().UserAnnotations,
		},
	}, ""
}

// requestRefused says why the tenant's API server makes or reads no PodCertificateRequest, "" where it did not answer. It
// leaves out the name that the API server chose, which is another one each time.
func requestRefused(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return ""
	}
	text := status.Status().Message
	if details := status.Status().Details; details != nil && details.Name != "" {
		text = strings.ReplaceAll(text, details.Name, "")
	}
	switch {
	case apierrors.IsNotFound(err):
		return "the control plane serves no PodCertificateRequests of certificates.k8s.io/v1, as Kubernetes does from 1.37 on"
	case apierrors.IsForbidden(err):
		return "the control plane refuses a PodCertificateRequest: does the kubeconfig of the VirtualCluster have the right? " + text
	case engine.IsRefusal(err):
		return "the control plane refuses a PodCertificateRequest: " + text
	case apierrors.IsInternalError(err):
		return "the control plane fails with a PodCertificateRequest: look at the log of the tenant's API server, and at its webhooks"
	default:
		return ""
	}
}
