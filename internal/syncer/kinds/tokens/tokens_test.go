package tokens_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/podspec"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// issuer is a tenant that gives tokens, and a super cluster that takes them. Its pod is on a node here.
type issuer struct {
	*kindtest.Pool
	clock *testingclock.FakePassiveClock
	// asked holds the requests, as "<account> <audiences> <seconds> <pod>".
	asked []string
	// lifetime of tokens is what was asked unless it is set; refuse is the answer if set.
	lifetime time.Duration
	refuse   error
	// padding is how much longer each token is.
	padding int
	pod     *corev1.Pod
	key     engine.Key
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{Pool: kindtest.NewPool(t, interceptor.Funcs{}), clock: testingclock.NewFakePassiveClock(time.Unix(1_000_000, 0))}
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, schedulerv1alpha1.AddToScheme(scheme))
	i.Tenant.Client = kindtest.Answering(builders.Client(scheme).WithInterceptorFuncs(interceptor.Funcs{SubResourceCreate: i.give}).Build(), kindtest.TenantUID)
	placement := &schedulerv1alpha1.NamespacePlacement{
		ObjectMeta: metav1.ObjectMeta{Namespace: kindtest.ClusterKey, Name: "web"},
		Spec:       schedulerv1alpha1.NamespacePlacementSpec{NamespaceUID: "ns-uid"},
		Status:     schedulerv1alpha1.NamespacePlacementStatus{Placements: []schedulerv1alpha1.ClusterPlacement{{Cluster: "r1"}}},
	}
	i.Assigns(builders.Client(scheme).WithObjects(placement).Build(), nil)
	i.Env.Clock = i.clock
	i.pod = kindtest.TenantPod(func(pod *corev1.Pod) {
		pod.Labels = map[string]string{schedulerv1alpha1.LabelSuperCluster: "r1"}
		pod.Spec.NodeName = "r1.n1"
		pod.Spec.Volumes = []corev1.Volume{{}, {VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: "vault", ExpirationSeconds: ptr.To[int64](1000)}},
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: ptr.To[int64](500_000)}},
		}}}}}
	})
	i.TenantCache[kind.Pod] = []client.Object{i.pod}
	superPod := &corev1.Pod{}
	podspec.SuperPod(i.pod, superPod, kindtest.OwnerOf("pod-uid"), nil, &podspec.PodEnvironment{})
	i.SuperCache[kind.Pod] = []client.Object{superPod}
	i.key = engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Token, Namespace: "web", Name: "web-1/pod-uid"}
	return i
}

// give plays the tenant's API server.
func (i *issuer) give(_ context.Context, _ client.Client, subresource string, account, body client.Object, _ ...client.SubResourceCreateOption) error {
	request, ok := body.(*authenticationv1.TokenRequest)
	if !ok || subresource != "token" {
		return fmt.Errorf("%s of %T", subresource, body)
	}
	seconds := ptr.Deref(request.Spec.ExpirationSeconds, 3600)
	i.asked = append(i.asked, fmt.Sprintf("%s %v %d %s/%s", account.GetName(), request.Spec.Audiences, seconds,
		request.Spec.BoundObjectRef.Name, request.Spec.BoundObjectRef.UID))
	slices.Sort(i.asked)
	if i.refuse != nil {
		return i.refuse
	}
	lifetime := time.Duration(seconds) * time.Second
	if i.lifetime != 0 {
		lifetime = i.lifetime
	}
	request.Status = authenticationv1.TokenRequestStatus{
		Token:               fmt.Sprint("bearer-", seconds, "-", i.clock.Now().Unix(), strings.Repeat("x", i.padding)),
		ExpirationTimestamp: metav1.NewTime(i.clock.Now().Add(lifetime)),
	}
	return nil
}

// reconcile reconciles the key with a new reconciler, as after a restart, and fills the cache with what the super
// cluster has then.
func (i *issuer) reconcile(t *testing.T) (time.Duration, error) {
	t.Helper()
	return i.reconcileBy(t, i.Kind(kind.Token))
}

// reconcileBy is reconcile by a reconciler that goes on.
func (i *issuer) reconcileBy(t *testing.T, tokens engine.Kind) (time.Duration, error) {
	t.Helper()
	i.asked = nil
	after, err := tokens.Reconcile(t.Context(), i.key, 0)
	var secrets corev1.SecretList
	require.NoError(t, i.SuperClient.List(t.Context(), &secrets))
	i.SuperCache[kind.Token] = nil
	for j := range secrets.Items {
		secrets.Items[j].UID = "secret-uid"
		i.SuperCache[kind.Token] = append(i.SuperCache[kind.Token], &secrets.Items[j])
	}
	return after, err
}

func (i *issuer) data(t *testing.T) map[string]string {
	t.Helper()
	secret := &corev1.Secret{}
	require.NoError(t, i.SuperClient.Get(t.Context(), types.NamespacedName{Namespace: kindtest.ClusterKey + "-web", Name: tenancy.TokenSecret("web-1", "pod-uid")}, secret))
	key, ours := i.Env.SuperKey(kind.Token, secret)
	require.True(t, ours)
	require.Equal(t, i.key, key)
	text, err := json.Marshal(secret.ObjectMeta)
	require.NoError(t, err)
	require.NotContains(t, string(text), "bearer-", "a token is in the metadata")
	values := map[string]string{}
	for name, value := range secret.Data {
		values[name] = string(value)
	}
	return values
}

func TestTokens(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	const vault, api = "default [vault] 1000 web-1/pod-uid", "default [] 500000 web-1/pod-uid"
	first := i.clock.Now()
	// at reconciles at a time after the first, and returns what was asked for.
	at := func(offset time.Duration) []string {
		t.Helper()
		i.clock.SetTime(first.Add(offset))
		after, err := i.reconcile(t)
		require.NoError(t, err)
		require.Positive(t, after)
		require.LessOrEqual(t, after, 800*time.Second, "the next token is due")
		return i.asked
	}
	require.Equal(t, []string{api, vault}, at(0))
	require.Equal(t, map[string]string{"token-1-0": "bearer-1000-1000000", "token-1-1": "bearer-500000-1000000"}, i.data(t))
	require.Empty(t, at(0), "nothing is due")
	require.Empty(t, at(789*time.Second), "nothing is due")
	require.Equal(t, []string{vault}, at(800*time.Second), "a fifth of its lifetime is left")
	require.Equal(t, map[string]string{"token-1-0": "bearer-1000-1000800", "token-1-1": "bearer-500000-1000000"}, i.data(t))
	require.Equal(t, []string{vault}, at(23*time.Hour))
	require.Equal(t, []string{api, vault}, at(24*time.Hour), "it is a day old")

	// What the super cluster lost, or cannot be read, is asked for anew.
	known := i.SuperCache[kind.Token][0].DeepCopyObject().(*corev1.Secret)
	delete(known.Data, "token-1-0")
	i.SuperCache[kind.Token][0] = known
	require.Equal(t, []string{vault}, at(24*time.Hour))
	for _, records := range []string{"{", "null"} {
		known = i.SuperCache[kind.Token][0].DeepCopyObject().(*corev1.Secret)
		known.Annotations["tenancy.x-k8s.io/issued-tokens"] = records
		i.SuperCache[kind.Token][0] = known
		require.Equal(t, []string{api, vault}, at(24*time.Hour), records)
	}
	require.Empty(t, i.Events.Events)
}

func TestTokensThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name      string
		refuse    error
		lifetime  time.Duration
		wantEvent string
	}{
		{name: "the service account is gone", refuse: apierrors.NewNotFound(corev1.Resource("serviceaccounts"), "default"), wantEvent: "not found"},
		{name: "the audience is invalid", refuse: apierrors.NewBadRequest("audience"), wantEvent: "audience"},
		{name: "the API server has an error", refuse: apierrors.NewInternalError(fmt.Errorf("broken")), wantEvent: "broken: look at the log of the tenant's API server"},
		{name: "it would have to be renewed at once", lifetime: time.Second, wantEvent: "set the clock"},
		{name: "it does not answer", refuse: apierrors.NewTimeoutError("slow", 1)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			i := newIssuer(t)
			i.refuse, i.lifetime = tc.refuse, tc.lifetime
			_, err := i.reconcile(t)
			require.Error(t, err)
			require.NotContains(t, err.Error(), "bearer-")
			require.Empty(t, i.SuperCache[kind.Token])
			i.clock.SetTime(i.clock.Now().Add(time.Minute))
			i.lifetime = tc.lifetime * 2
			_, err = i.reconcile(t)
			require.Error(t, err)
			i.lifetime = tc.lifetime
			require.Equal(t, tc.wantEvent != "", len(i.Events.Events) == 1, "it is told once")
			if tc.wantEvent != "" {
				told := <-i.Events.Events
				require.Contains(t, told, "FailedToken")
				require.Contains(t, told, tc.wantEvent)
			}

			// A renewal that fails leaves what is there.
			i.refuse, i.lifetime = nil, 0
			_, err = i.reconcile(t)
			require.NoError(t, err)
			before := i.data(t)
			i.clock.SetTime(i.clock.Now().Add(time.Hour))
			i.refuse, i.lifetime = tc.refuse, tc.lifetime
			_, err = i.reconcile(t)
			require.Error(t, err)
			require.Equal(t, before, i.data(t))
		})
	}
}

// TestTokensOfPods: which pods have tokens, and when they lose them.
func TestTokensOfPods(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		change func(i *issuer)
		// wantMade: whether a pod in this state gets tokens, wantKept whether it keeps those that it has.
		wantMade, wantKept bool
	}{
		{name: "a pod on a node here", change: func(*issuer) {}, wantMade: true, wantKept: true},
		{name: "a pod that has no node yet", change: func(i *issuer) { i.pod.Spec.NodeName = "" }, wantKept: true},
		{name: "a pod on a node that runs nowhere here", change: func(i *issuer) { i.SuperCache[kind.Pod] = nil }, wantKept: true},
		{name: "a finished pod", change: func(i *issuer) { i.pod.Status.Phase = corev1.PodFailed }, wantKept: true},
		{name: "a pod that is gone", change: func(i *issuer) { i.TenantCache[kind.Pod], i.SuperCache[kind.Pod] = nil, nil }},
		{name: "a pod that is gone and still ends", change: func(i *issuer) { i.TenantCache[kind.Pod] = nil }, wantKept: true},
		{name: "a pod that was made again", change: func(i *issuer) { i.pod.UID = "another"; i.SuperCache[kind.Pod] = nil }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			i := newIssuer(t)
			tc.change(i)
			_, err := i.reconcile(t)
			require.NoError(t, err)
			require.Equal(t, tc.wantMade, len(i.SuperCache[kind.Token]) == 1)

			i = newIssuer(t)
			_, err = i.reconcile(t)
			require.NoError(t, err)
			tc.change(i)
			_, err = i.reconcile(t)
			require.NoError(t, err)
			require.Equal(t, tc.wantKept, len(i.SuperCache[kind.Token]) == 1)
		})
	}
	t.Run("a pod that only the cache lost", func(t *testing.T) {
		t.Parallel()
		i := newIssuer(t)
		_, err := i.reconcile(t)
		require.NoError(t, err)
		i.TenantCache[kind.Pod], i.SuperCache[kind.Pod] = nil, nil
		require.NoError(t, i.Tenant.Client.Create(t.Context(), i.pod))
		_, err = i.reconcile(t)
		require.ErrorContains(t, err, "waiting for the cache of the tenant's pods")
		require.Len(t, i.SuperCache[kind.Token], 1)
	})
}

// TestHostileTokens lets a tenant's API server issue tokens that would fill a super cluster's storage.
func TestHostileTokens(t *testing.T) {
	t.Parallel()
	t.Run("that expire soon", func(t *testing.T) {
		t.Parallel()
		i := newIssuer(t)
		i.lifetime = 61 * time.Second
		_, err := i.reconcile(t)
		require.Error(t, err)
		require.Empty(t, i.SuperCache[kind.Token])

		i.lifetime = 300 * time.Second
		after, err := i.reconcile(t)
		require.NoError(t, err)
		require.GreaterOrEqual(t, after, 5*time.Minute)
		i.clock.SetTime(i.clock.Now().Add(299 * time.Second))
		_, err = i.reconcile(t)
		require.NoError(t, err)
		require.Empty(t, i.asked)
		i.clock.SetTime(i.clock.Now().Add(time.Second))
		_, err = i.reconcile(t)
		require.NoError(t, err)
		require.Len(t, i.asked, 2)
	})
	t.Run("that are due one after the other", func(t *testing.T) {
		t.Parallel()
		i := newIssuer(t)
		sources := i.pod.Spec.Volumes[1].Projected.Sources
		sources[1].ServiceAccountToken.ExpirationSeconds = ptr.To[int64](1200) // due 160 seconds after the other
		_, err := i.reconcile(t)
		require.NoError(t, err)
		i.clock.SetTime(i.clock.Now().Add(800 * time.Second))
		after, err := i.reconcile(t)
		require.NoError(t, err)
		require.Len(t, i.asked, 2)
		require.GreaterOrEqual(t, after, 5*time.Minute)
	})
	t.Run("that are long", func(t *testing.T) {
		t.Parallel()
		i := newIssuer(t)
		i.padding = 16 << 10
		_, err := i.reconcile(t)
		require.Error(t, err)
		require.NotContains(t, err.Error(), "bearer-")
		require.Empty(t, i.SuperCache[kind.Token])
		require.Contains(t, <-i.Events.Events, "FailedToken")
	})
	t.Run("that are many", func(t *testing.T) {
		t.Parallel()
		i := newIssuer(t)
		projected := i.pod.Spec.Volumes[1].Projected
		projected.Sources = slices.Repeat(projected.Sources, 9)
		_, err := i.reconcile(t)
		require.NoError(t, err)
		require.Empty(t, i.asked)
		require.Empty(t, i.SuperCache[kind.Token])
		require.Contains(t, <-i.Events.Events, "FailedToken The pod projects 18 tokens: at most 16 are issued")
	})
	for name, limit := range map[string]tenancyv1alpha1.ObjectLimit{
		"in objects":                  {Resource: "tokens", Bytes: resource.MustParse("1Mi")},
		"in bytes":                    {Resource: "tokens", Count: 1, Bytes: resource.MustParse("100")},
		"in pods, if it has no other": {Resource: "pods", Bytes: resource.MustParse("1Mi")},
	} {
		t.Run("beyond the limit "+name, func(t *testing.T) {
			t.Parallel()
			i := newIssuer(t)
			i.Tenant.Policy = &policy.Ref{}
			i.Tenant.Policy.Set(kindtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
				spec.Limits.Objects = []tenancyv1alpha1.ObjectLimit{limit}
			}))
			_, err := i.reconcile(t)
			require.NoError(t, err)
			require.Empty(t, i.SuperCache[kind.Token])
			require.Contains(t, <-i.Events.Events, "TenantLimit Super cluster r1: ")
		})
	}
}
