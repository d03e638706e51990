package tokens

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
)

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

// of returns the request for a certificate, nil if there is none. It forgets one that is answered, as the cache shows: that
// of the name answered; and one that is too old.
func (r *certificateRequests) of(at requestKey, answered string, now time.Time) *certificateRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	request := r.all[at]
	if request == nil || request.name != "" && request.name == answered || request.isOld(now) {
		delete(r.all, at)
		return nil
	}
	return request
}

func (c *certificateRequest) isOld(now time.Time) bool { return !now.Before(c.began.Add(requestLife)) }

// add adds a request, and returns nil where there is no room for it.
func (r *certificateRequests) add(at requestKey, now time.Time) *certificateRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) >= maxRequests {
		maps.DeleteFunc(r.all, func(_ requestKey, request *certificateRequest) bool { return request.isOld(now) })
	}
	if len(r.all) >= maxRequests {
		return nil
	}
	request := &certificateRequest{began: now}
	r.all[at] = request
	return request
}

// has reports whether a request is still remembered.
func (r *certificateRequests) has(at requestKey, request *certificateRequest) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all[at] == request
}

// drop forgets the request for a certificate, and forget those of a pod.
func (r *certificateRequests) drop(at requestKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, at)
}

func (r *certificateRequests) forget(pod engine.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.all, func(at requestKey, _ *certificateRequest) bool { return at.Key == pod })
}

// begin begins a request for a certificate: its key is there, or stands in line to be computed. Where there is no room it
// returns nil, and says why.
func (t *Tokens) begin(pair *tokenPair, name string, projection certificateProjection) (*certificateRequest, string) {
	requests, at := t.requests(pair), requestKey{pair.key, name}
	request := requests.add(at, t.env.Clock.Now())
	if request == nil {
		return nil, fmt.Sprintf("they wait for others: %d PodCertificateRequests of the control plane are not answered", maxRequests)
	}
	if isSlow(projection.KeyType) {
		if t.standInLine(pair.tenant, requests, at, request, projection.KeyType) {
			return request, ""
		}
		requests.drop(at)
		return nil, ""
	}
	key, err := newKey(projection.KeyType)
	if err != nil {
		requests.drop(at)
		return nil, fmt.Sprintf("that of signer %s: %v", projection.SignerName, err)
	}
	request.key.Store(key)
	return request, ""
}

// standInLine lets Run compute the key of a request, and returns false if there are too many. Run leaves out those of pods
// that are gone, and of connections that have ended: a tenant that comes and goes has as few in line as others.
func (t *Tokens) standInLine(tenant *kind.Tenant, requests *certificateRequests, at requestKey, request *certificateRequest, keyType string) bool {
	compute := func() {
		defer requests.inLine.Add(-1)
		if t.env.Tenant(at.Tenant) != tenant || !requests.has(at, request) {
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
	for ctx.Err() == nil { // of two that are ready, select takes any
		select {
		case <-ctx.Done():
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
		return nil, certificateState{after: bundlePeriod} // Run enqueues the pod's key
	}
	after := waitOf(now.Sub(asked.began), requestPeriod)
	waits := func(why string) (*certificatesv1.PodCertificateRequest, certificateState) {
		return nil, certificateState{after: after, why: why, isSilent: why == ""}
	}
	if asked.name == "" {
		request, why := newRequest(pair, projection, key)
		if request == nil {
			return waits(why)
		}
		if err := t.env.Done(ctx, kind.Token, "request", pair.tenant.Client.Create(ctx, request)); err != nil {
			return waits(requestRefused(err))
		}
		if len(validation.IsDNS1123Subdomain(request.Name)) > 0 || request.Name == before {
			return waits("the control plane makes PodCertificateRequests without names of their own")
		}
		asked.name, asked.made = request.Name, now
		return nil, certificateState{after: requestPeriod}
	}
	live := &certificatesv1.PodCertificateRequest{}
	err := pair.tenant.Client.Get(ctx, types.NamespacedName{Namespace: pair.pod.Namespace, Name: asked.name}, live)
	switch {
	case apierrors.IsNotFound(err):
		return waits(fmt.Sprintf("PodCertificateRequest %s was deleted: another one is made %v after it", asked.name, requestLife))
	case err != nil:
		return waits(requestRefused(err))
	}
	live.Name = asked.name // whatever the answer says
	state := certificateState{after: after}
	if now.Sub(asked.made) >= signerPeriod {
		state.why = fmt.Sprintf("PodCertificateRequest %s is not answered: is there a signer %s?", asked.name, projection.SignerName)
	}
	return live, state
}

// waitOf returns after what time something is looked at again that has waited so long: least, and more rarely later.
func waitOf(age, least time.Duration) time.Duration {
	return min(max(age/missingParts, least), bundlePeriod)
}

// newRequest returns a PodCertificateRequest as a kubelet of the pod's node makes it; nil where it cannot be made, and why,
// "" if the caches do not say.
func newRequest(pair *tokenPair, projection certificateProjection, key *privateKey) (*certificatesv1.PodCertificateRequest, string) {
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
