package syncer

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	testingclock "k8s.io/utils/clock/testing"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/syncpolicy"
)

// asked plays the API server of a super cluster that serves Widgets, with namespaces, and Planets, without.
type asked struct {
	// down is whether it does not answer, and mayNot the verbs that the syncer may not use.
	down   bool
	mayNot []string
	// requests counts what it was asked.
	requests int
}

func (a *asked) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.requests++
	var answer any
	switch {
	case a.down:
		http.Error(w, "not now", http.StatusInternalServerError)
		return
	case r.URL.Path == "/apis/example.com/v1":
		answer = metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "example.com/v1", APIResources: []metav1.APIResource{
			{Name: "widgetry/status", Kind: "Widget", Namespaced: true}, {Name: "widgetry", Kind: "Widget", Namespaced: true}, {Name: "planets", Kind: "Planet"},
		}}
	case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
		review := authorizationv1.SelfSubjectAccessReview{}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		of := review.Spec.ResourceAttributes
		review.Status.Allowed = of.Group == "example.com" && of.Namespace == "" && !slices.Contains(a.mayNot, of.Verb)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		answer = review
	default:
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		panic(err)
	}
}

// TestAskSuperCluster: what a super cluster says of the kind of a policy, and that one which does not answer changes
// nothing.
func TestAskSuperCluster(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name      string
		kind      string
		version   string
		direction tenancyv1alpha1.SyncDirection
		server    asked
		// wantReason is "" where the policy is followed.
		wantReason, want string
	}{
		{name: "it goes down", kind: "Widget"},
		{name: "it comes up", kind: "Planet", direction: tenancyv1alpha1.SyncUp, server: asked{mayNot: []string{"create", "update", "delete"}}},
		{name: "it has no namespaces", kind: "Planet", wantReason: "WrongScope"},
		{name: "it has namespaces", kind: "Widget", direction: tenancyv1alpha1.SyncUp, wantReason: "WrongScope", want: "only kinds without come up"},
		{name: "another kind", kind: "Gadget", wantReason: "NotServed", want: "Gadget of example.com/v1"},
		{name: "another version", kind: "Widget", version: "v2", wantReason: "NotServed"},
		{name: "no right", kind: "Widget", server: asked{mayNot: []string{"create", "delete"}}, wantReason: "NoRights", want: "may not create, delete widgetry.example.com there: kubectl create clusterrole"},
		{name: "no answer", kind: "Widget", server: asked{down: true}, wantReason: "Unknown"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			state := tc.server
			server := httptest.NewServer(&state)
			t.Cleanup(server.Close)
			clientset, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}})
			require.NoError(t, err)
			passed := testingclock.NewFakePassiveClock(time.Unix(1_000_000, 0))
			p := &syncPolicies{super: clientset, clock: passed, retry: time.Minute, probes: map[string]probe{}}
			policy := &tenancyv1alpha1.SyncPolicy{Spec: tenancyv1alpha1.SyncPolicySpec{Group: "example.com", Version: "v1", Kind: tc.kind, Direction: tenancyv1alpha1.SyncDown}}
			if tc.version != "" {
				policy.Spec.Version = tc.version
			}
			if tc.direction != "" {
				policy.Spec.Direction = tc.direction
			}
			rules, refusal := syncpolicy.Compile(policy, nil)
			require.Nil(t, refusal)
			ask := func(after time.Duration) (string, int) {
				passed.SetTime(passed.Now().Add(after))
				before := state.requests
				p.probes[probeOf(rules)] = p.ask(t.Context(), rules)
				if refusal := p.probes[probeOf(rules)].refusal; refusal != nil {
					require.Contains(t, refusal.Message, tc.want)
					return refusal.Reason, state.requests - before
				}
				require.Contains(t, []string{"widgetry", "planets"}, p.probes[probeOf(rules)].resource)
				return "", state.requests - before
			}
			reason, requests := ask(0)
			require.Equal(t, tc.wantReason, reason)
			require.Positive(t, requests)
			reason, requests = ask(5 * time.Second)
			require.Equal(t, tc.wantReason, reason)
			require.Zero(t, requests, "it was just asked")
			state.down = true
			reason, requests = ask(2 * time.Minute)
			require.Equal(t, tc.wantReason, reason, "it has not said otherwise")
			require.Positive(t, requests)
		})
	}
}

// TestTypeMapper: types that are learned beside those of the Specs.
func TestTypeMapper(t *testing.T) {
	t.Parallel()
	_, types, err := newLearningClient(&rest.Config{Host: "http://127.0.0.1:1"})
	require.NoError(t, err)
	widget := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	_, err = types.RESTMapping(widget.GroupKind(), widget.Version)
	require.Error(t, err)
	types.learn(widget, "widgetry", true)
	for _, versions := range [][]string{{"v1"}, {"v2", "v1"}, nil} {
		mapping, err := types.RESTMapping(widget.GroupKind(), versions...)
		require.NoError(t, err)
		require.Equal(t, "widgetry", mapping.Resource.Resource)
	}
	pod, err := types.RESTMapping(schema.GroupKind{Kind: "Pod"}, "v1")
	require.NoError(t, err)
	require.Equal(t, "pods", pod.Resource.Resource)
}
