package kinds

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/tenancy"
)

// KindToken is a Secret of the super cluster with the tokens of one pod. A key's name is tokenName of the pod.
const KindToken = "token"

const (
	// LabelTokens is "true" on Secrets of kind token, which kind secret leaves alone.
	LabelTokens = "tenancy.x-k8s.io/tokens"
	// annotationPod holds, on such a Secret, the name of the pod.
	annotationPod = "tenancy.x-k8s.io/pod"
	// annotationTokens holds, on such a Secret, a JSON object: what was asked and given for each key.
	annotationTokens = "tenancy.x-k8s.io/issued-tokens"

	// A token is renewed when a fifth of its lifetime is left, and after a day, as kubelets do; earlier by at most
	// longestJitter.
	oldestToken   = 24 * time.Hour
	longestJitter = 10 * time.Second
	// shortestToken is the shortest lifetime that is taken; API servers give ten minutes at least.
	shortestToken = time.Minute
)

// Tokens keeps, for every pod with projected tokens, a Secret in the super namespace that holds them: tokens of the
// tenant's API server, bound to the tenant's pod. A key's name is "<pod>/<UID of the pod>".
//
//	tenant pod          Secret   step
//	not on a node yet   -        nothing: its tokens are to name the node, as those that a kubelet asks for
//	on a node here      -        request tokens, create the Secret; until then the kubelet waits with the containers
//	on a node here      exists   renew what is due, come again when the next is due
//	gone                exists   keep it while the super pod is there, then delete it (proof: live read)
type Tokens struct{ env *Env }

var _ engine.Kind = &Tokens{}

// Name implements engine.Kind.
func (t *Tokens) Name() string { return KindToken }

// Keys implements engine.Kind.
func (t *Tokens) Keys() []engine.Key {
	var keys []engine.Key
	for _, object := range t.env.SuperCache.List(KindToken) {
		if key, ok := tokenSuperKey(object); ok {
			keys = append(keys, key)
		}
	}
	for _, tenant := range t.env.Tenants() {
		for _, object := range tenant.Cache.List(KindPod) {
			if pod, ok := object.(*corev1.Pod); ok && len(tokenProjections(&pod.Spec)) > 0 {
				key, _ := tokenTenantKey(tenant.Key, pod)
				keys = append(keys, key)
			}
		}
	}
	return keys
}

func tokenName(pod string, uid types.UID) string { return pod + "/" + string(uid) }

func tokenSpec() Spec {
	return Spec{
		Name: KindToken, From: KindPod, Scope: ScopePlaced, Super: owned(&corev1.Secret{}, LabelTokens), Cleared: true,
		TenantKey: tokenTenantKey, SuperKey: tokenSuperKey,
		Wakes: map[string]func(*Env, Change) []engine.Key{KindPod: func(_ *Env, change Change) []engine.Key {
			if change.Side == TenantSide {
				key, _ := tokenTenantKey(change.Tenant, change.object())
				return []engine.Key{key}
			}
			superPod, moved := movedSuperPod(&change)
			if !moved {
				return nil
			}
			owner, marked := tenancy.GetOwner(superPod)
			if !marked {
				return nil
			}
			return []engine.Key{{Tenant: owner.ClusterKey, Kind: KindToken, Namespace: owner.Namespace, Name: tokenName(superPod.Name, owner.UID)}}
		}},
		New: func(env *Env) engine.Kind { return &Tokens{env: env} },
	}
}

// tokenTenantKey returns the key of the tokens of a tenant's pod.
func tokenTenantKey(tenant string, tenantPod client.Object) (engine.Key, bool) {
	return engine.Key{Tenant: tenant, Kind: KindToken, Namespace: tenantPod.GetNamespace(), Name: tokenName(tenantPod.GetName(), tenantPod.GetUID())}, true
}

// tokenSuperKey returns the key of a Secret of tokens. It returns false for other Secrets.
func tokenSuperKey(secret client.Object) (engine.Key, bool) {
	owner, marked := tenancy.GetOwner(secret)
	if !marked || secret.GetLabels()[LabelTokens] == "" {
		return engine.Key{}, false
	}
	return engine.Key{
		Tenant: owner.ClusterKey, Kind: KindToken, Namespace: owner.Namespace, Name: tokenName(secret.GetAnnotations()[annotationPod], owner.UID),
	}, true
}

// tokenKey is the data key of the token in a source of a volume. Neither volumes nor sources of a pod ever change.
func tokenKey(volume, source int) string { return fmt.Sprintf("token-%d-%d", volume, source) }

// tokenProjections returns the tokens that a pod asks for by their data key.
func tokenProjections(spec *corev1.PodSpec) map[string]*corev1.ServiceAccountTokenProjection {
	var found map[string]*corev1.ServiceAccountTokenProjection
	for i := range spec.Volumes {
		if spec.Volumes[i].Projected == nil {
			continue
		}
		for j := range spec.Volumes[i].Projected.Sources {
			if token := spec.Volumes[i].Projected.Sources[j].ServiceAccountToken; token != nil {
				if found == nil {
					found = map[string]*corev1.ServiceAccountTokenProjection{}
				}
				found[tokenKey(i, j)] = token
			}
		}
	}
	return found
}

// issued is what is known of a token that was given.
type issued struct {
	// Audience and Asked, in seconds and 0 for nothing, are what was asked for.
	Audience string `json:"audience,omitempty"`
	Asked    int64  `json:"asked,omitempty"`
	// Lifetime is in seconds, Expires the end of it.
	Lifetime int64     `json:"lifetime"`
	Expires  time.Time `json:"expires"`
}

// renewal returns when a token is to be renewed.
func (i issued) renewal(jitter time.Duration) time.Time {
	lifetime := time.Duration(i.Lifetime) * time.Second
	due := i.Expires.Add(-lifetime / 5)
	if oldest := i.Expires.Add(oldestToken - lifetime); oldest.Before(due) {
		due = oldest
	}
	return due.Add(-jitter)
}

// readIssued returns what a Secret's annotation says, nothing if it cannot be read.
func readIssued(secret *corev1.Secret) map[string]issued {
	known := map[string]issued{}
	if err := json.Unmarshal([]byte(secret.Annotations[annotationTokens]), &known); err != nil {
		return map[string]issued{}
	}
	return known
}

// Reconcile implements engine.Kind.
func (t *Tokens) Reconcile(ctx context.Context, key engine.Key, _ time.Duration) (time.Duration, error) {
	tenant := t.env.Tenant(key.Tenant)
	if tenant == nil {
		return 0, nil
	}
	name, id, _ := strings.Cut(key.Name, "/")
	uid := types.UID(id)
	superNamespace := tenancy.SuperNamespace(key.Tenant, key.Namespace)
	tenantPod, inTenant, synced := get[*corev1.Pod](tenant.Cache, KindPod, key.Namespace, name)
	superPod, runs, podsSynced := get[*corev1.Pod](t.env.SuperCache, KindPod, superNamespace, name)
	secret, exists, superSynced := get[*corev1.Secret](t.env.SuperCache, KindToken, superNamespace, tenancy.TokenSecret(name, uid))
	if !synced || !podsSynced || !superSynced {
		return 0, nil // caches not synced: Env.Filled enqueues the key again
	}
	if runs {
		owner, marked := tenancy.GetOwner(superPod)
		runs = marked && owner == tenant.owner(key.Namespace, uid)
	}
	switch {
	case inTenant && tenantPod.UID == uid:
		return t.keep(ctx, tenant, key, tenantPod, orEmpty(secret, exists), runs)
	case !exists:
		t.env.clearWarning(key)
		return 0, nil
	case runs:
		return 0, nil // the deletion of the super pod enqueues the key (tokenSpec)
	}
	return 0, t.orphan(ctx, tenant, key, name, uid, secret)
}

// keep makes and renews the tokens of a pod. secret is empty when there is none.
func (t *Tokens) keep(ctx context.Context, tenant *Tenant, key engine.Key, tenantPod *corev1.Pod, secret *corev1.Secret, runs bool) (time.Duration, error) {
	if !wantsTokens(tenantPod, runs) || secret.DeletionTimestamp != nil {
		return 0, nil
	}
	if owner, marked := tenancy.GetOwner(secret); secret.UID != "" && (!marked || owner != tenant.owner(key.Namespace, tenantPod.UID)) {
		t.conflict(tenant, key, tenantPod, secret.Name)
		return 0, nil
	}
	desired := secret.DeepCopy()
	known := readIssued(secret)
	next, err := t.renew(ctx, tenant, key, tenantPod, desired, known)
	if err != nil {
		t.refused(tenant, key, tenantPod, err)
		return 0, err
	}
	if err := t.write(ctx, tenant, key, tenantPod, secret, desired, known); err != nil {
		return 0, err
	}
	return max(next.Sub(t.env.Clock.Now()), time.Second), nil
}

// wantsTokens says whether a pod needs tokens here, now: once it has a node, which they name. runs says whether its
// super pod is there.
func wantsTokens(tenantPod *corev1.Pod, runs bool) bool {
	ended := tenantPod.Status.Phase == corev1.PodSucceeded || tenantPod.Status.Phase == corev1.PodFailed
	return runs && tenantPod.Spec.NodeName != "" && !ended && len(tokenProjections(&tenantPod.Spec)) > 0
}

// renew puts tokens into secret, and what is known of them into known, where one is missing or due. It returns when the
// next is due.
func (t *Tokens) renew(
	ctx context.Context, tenant *Tenant, key engine.Key, tenantPod *corev1.Pod, secret *corev1.Secret, known map[string]issued,
) (time.Time, error) {
	jitter := jitterOf(key)
	next := time.Time{}
	for dataKey, projection := range tokenProjections(&tenantPod.Spec) {
		token := known[dataKey]
		same := token.Audience == projection.Audience && token.Asked == ptr.Deref(projection.ExpirationSeconds, 0) && len(secret.Data[dataKey]) > 0
		if !same || !t.env.Clock.Now().Before(token.renewal(jitter)) {
			value, given, err := t.request(ctx, tenant, tenantPod, projection)
			if err != nil {
				return next, err
			}
			if secret.Data == nil {
				secret.Data = map[string][]byte{}
			}
			token, known[dataKey], secret.Data[dataKey] = given, given, value
		}
		if due := token.renewal(jitter); next.IsZero() || due.Before(next) {
			next = due
		}
	}
	return next, nil
}

// jitterOf spreads the renewals of tokens that were made together, the same way after a restart.
func jitterOf(key engine.Key) time.Duration {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(key.Tenant + "/" + key.Namespace + "/" + key.Name))
	return longestJitter * time.Duration(sum.Sum32()%1000) / 1000
}

// request asks the tenant for a token. It is in no log and no error.
func (t *Tokens) request(ctx context.Context, tenant *Tenant, tenantPod *corev1.Pod, projection *corev1.ServiceAccountTokenProjection) ([]byte, issued, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: tenantPod.Namespace, Name: tenantPod.Spec.ServiceAccountName}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: projection.DeepCopy().ExpirationSeconds, // the answer is written onto it
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: tenantPod.Name, UID: tenantPod.UID},
	}}
	if projection.Audience != "" {
		request.Spec.Audiences = []string{projection.Audience}
	}
	err := t.env.done(ctx, KindToken, "request", tenant.Client.SubResource("token").Create(ctx, account, request))
	if err != nil {
		return nil, issued{}, err
	}
	expires := request.Status.ExpirationTimestamp.UTC()
	lifetime := expires.Sub(t.env.Clock.Now()).Round(time.Second)
	if lifetime < shortestToken {
		// It would be renewed without end.
		return nil, issued{}, fmt.Errorf("token of service account %s/%s lasts only %v", account.Namespace, account.Name, lifetime)
	}
	return []byte(request.Status.Token), issued{
		Audience: projection.Audience, Asked: ptr.Deref(projection.ExpirationSeconds, 0), Lifetime: int64(lifetime / time.Second), Expires: expires,
	}, nil
}

// refused tells the tenant that its own API server gives no token.
func (t *Tokens) refused(tenant *Tenant, key engine.Key, tenantPod *corev1.Pod, err error) {
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsNotFound(err) {
		t.env.warnOnce(tenant, key, tenantPod, ReasonFailedToken, fmt.Sprintf("Token of service account %s: %v", tenantPod.Spec.ServiceAccountName, err))
	}
}

// write brings the Secret to the super cluster when desired differs from what is there.
func (t *Tokens) write(ctx context.Context, tenant *Tenant, key engine.Key, tenantPod *corev1.Pod, secret, desired *corev1.Secret, known map[string]issued) error {
	text, err := json.Marshal(known)
	if err != nil {
		return fmt.Errorf("encoding what is known of tokens: %w", err)
	}
	desired.Namespace = tenancy.SuperNamespace(tenant.Key, key.Namespace)
	desired.Name = tenancy.TokenSecret(tenantPod.Name, tenantPod.UID)
	desired.Type = corev1.SecretTypeOpaque
	tenancy.SetOwner(desired, tenant.owner(key.Namespace, tenantPod.UID))
	desired.Labels[LabelTokens] = "true"
	desired.Annotations[annotationPod] = tenantPod.Name
	desired.Annotations[annotationTokens] = string(text)
	switch {
	case secret.UID == "":
		err = t.env.Super.Create(ctx, desired)
	case equality.Semantic.DeepEqual(secret, desired):
		t.env.clearWarning(key)
		return nil
	default:
		err = t.env.Super.Update(ctx, desired)
	}
	if apierrors.IsAlreadyExists(err) {
		return t.collision(ctx, tenant, key, tenantPod, desired)
	}
	t.env.refused(tenant, key, tenantPod, ReasonFailedToken, err)
	return t.env.done(ctx, KindToken, "write", err)
}

// collision handles a name that is taken though the cache does not show it.
func (t *Tokens) collision(ctx context.Context, tenant *Tenant, key engine.Key, tenantPod *corev1.Pod, wanted *corev1.Secret) error {
	live := &corev1.Secret{}
	if err := t.env.Super.Get(ctx, client.ObjectKeyFromObject(wanted), live); err != nil {
		return fmt.Errorf("reading super secret %s/%s: %w", wanted.Namespace, wanted.Name, err)
	}
	if found, ours := tokenSuperKey(live); !ours || found != key {
		t.conflict(tenant, key, tenantPod, wanted.Name)
	}
	return engine.Waitf("the name of Secret %s", wanted.Name)
}

func (t *Tokens) conflict(tenant *Tenant, key engine.Key, tenantPod *corev1.Pod, name string) {
	t.env.warnOnce(tenant, key, tenantPod, ReasonConflict, fmt.Sprintf("Super cluster %s has another Secret %s: the pod's tokens cannot be put there", t.env.ID, name))
}

// orphan deletes the tokens of a pod that is gone, or assigned elsewhere before it ran here, with proof.
func (t *Tokens) orphan(ctx context.Context, tenant *Tenant, key engine.Key, name string, uid types.UID, secret *corev1.Secret) error {
	owner, marked := tenancy.GetOwner(secret)
	if !marked || owner != tenant.owner(key.Namespace, uid) || secret.DeletionTimestamp != nil {
		return nil
	}
	live := &corev1.Pod{}
	switch err := tenant.Client.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: name}, live); {
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("reading the tenant's pod: %w", err)
	case err == nil && live.UID == uid && live.Labels[schedulerv1alpha1.LabelSuperCluster] == t.env.ID:
		return engine.Waitf("the cache of the tenant's pods")
	}
	t.env.clearWarning(key)
	return t.env.remove(ctx, t.env.Super, KindToken, "delete", secret, nil)
}
