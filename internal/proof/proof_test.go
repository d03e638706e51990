package proof_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/proof"
	"github.com/superpool/superpool/test/builders"
)

// TestLacks asks a control plane for pod web/p with UID 1, and for any pods.
func TestLacks(t *testing.T) {
	t.Parallel()
	broken := errors.New("connection refused")
	for _, tc := range []struct {
		name string
		// pod is the UID of the pod that is there, "" for none.
		pod types.UID
		// answers is the UID of the control plane, "" for one without namespace kube-system; known is the recorded one.
		answers, known types.UID
		// fails is the name whose read fails.
		fails                string
		wantLacks, wantEmpty bool
		wantErr              bool
	}{
		{name: "it is there", pod: "1", answers: "a", known: "a"},
		{name: "it is there, and another control plane answers", pod: "1", answers: "b", known: "a"},
		{name: "it is gone", answers: "a", known: "a", wantLacks: true, wantEmpty: true},
		{name: "another has its name", pod: "2", answers: "a", known: "a", wantLacks: true},
		{name: "another control plane does not have it", answers: "b", known: "a", wantErr: true},
		{name: "it is gone, and nobody knows the control plane", answers: "a", wantErr: true},
		{name: "it is gone, and the control plane does not say which it is", known: "a", wantErr: true},
		{name: "nobody answers", answers: "a", known: "a", fails: "p", wantErr: true},
		{name: "nobody answers which it is", answers: "a", known: "a", fails: "kube-system", wantErr: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			builder := builders.Client(scheme.Scheme).WithInterceptorFuncs(interceptor.Funcs{
				Get: func(ctx context.Context, to client.WithWatch, name client.ObjectKey, object client.Object, options ...client.GetOption) error {
					if name.Name == tc.fails {
						return broken
					}
					return to.Get(ctx, name, object, options...)
				},
				List: func(ctx context.Context, to client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
					if tc.fails == "p" {
						return broken
					}
					return to.List(ctx, list, options...)
				},
			})
			if tc.pod != "" {
				builder = builder.WithObjects(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "p", UID: tc.pod}})
			}
			if tc.answers != "" {
				builder = builder.WithObjects(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: tc.answers}})
			}
			controlPlane := &proof.ControlPlane{Name: "the tenant", Reader: builder.Build(), UID: tc.known}
			pod := &corev1.Pod{}
			proven, lacks, err := controlPlane.Lacks(t.Context(), types.NamespacedName{Namespace: "web", Name: "p"}, pod, func() bool { return pod.UID == "1" })
			require.Equal(t, []bool{tc.wantLacks, tc.wantLacks, tc.wantErr}, []bool{proven.Holds(), lacks, err != nil}, "%v", err)
			require.Equal(t, tc.answers != tc.known && tc.answers != "" && tc.pod == "", errors.Is(err, proof.ErrOther))

			proven, lacks, err = controlPlane.LacksAll(t.Context(), &corev1.PodList{}, client.InNamespace("web"))
			require.Equal(t, []bool{tc.wantEmpty, tc.wantEmpty, tc.wantErr}, []bool{proven.Holds(), lacks, err != nil}, "%v", err)
		})
	}
}

// TestAbsentAtAChange: behind the address of a control plane there is another one for a while.
func TestAbsentAtAChange(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		// answers are the UIDs of the control planes that answer before the read, and after it if that is asked.
		answers   []types.UID
		has       bool
		wantLacks bool
		wantErr   error
	}{
		{name: "it is the same before and after", answers: []types.UID{"a", "a"}, wantLacks: true},
		{name: "the other one has answered the read", answers: []types.UID{"b"}, wantErr: proof.ErrOther},
		{name: "the other one may have answered the read", answers: []types.UID{"a", "b"}, wantErr: proof.ErrOther},
		{name: "what is there needs no proof", answers: []types.UID{"b"}, has: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			rest := tc.answers
			uid := func(context.Context) (types.UID, error) {
				first := rest[0]
				rest = rest[1:]
				return first, nil
			}
			proven, lacks, err := proof.Absent(t.Context(), "the tenant", "a", uid, "it lacks the pod", func(context.Context) (bool, error) { return tc.has, nil })
			require.ErrorIs(t, err, tc.wantErr)
			require.Equal(t, []bool{tc.wantLacks, tc.wantLacks}, []bool{lacks, proven.Holds()})
			require.Empty(t, rest)
		})
	}
}

// TestLacksUnserved: an API server that does not serve a type says nothing about its objects.
func TestLacksUnserved(t *testing.T) {
	t.Parallel()
	unserved := apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{Resource: "widgets"}, "w", "404 page not found", 0, true)
	reader := builders.Client(scheme.Scheme).WithObjects(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "a"}}).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, to client.WithWatch, name client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if name.Name == "w" {
				return unserved
			}
			return to.Get(ctx, name, object, options...)
		},
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return unserved
		},
	}).Build()
	controlPlane := &proof.ControlPlane{Name: "the tenant", Reader: reader, UID: "a"}
	proven, lacks, err := controlPlane.Lacks(t.Context(), types.NamespacedName{Name: "w"}, &corev1.Pod{}, nil)
	require.ErrorIs(t, err, proof.ErrUnserved)
	require.Equal(t, []bool{false, false}, []bool{proven.Holds(), lacks})
	proven, lacks, err = controlPlane.LacksAll(t.Context(), &corev1.PodList{})
	require.Error(t, err)
	require.Equal(t, []bool{false, false}, []bool{proven.Holds(), lacks})
}

func TestProof(t *testing.T) {
	t.Parallel()
	one, other := proof.NotNeeded("it is replaced"), proof.NotNeeded("it is ours")
	require.False(t, proof.Proof{}.Holds())
	require.True(t, one.Holds())
	require.Equal(t, "it is replaced, it is ours", one.And(other).String())
	require.False(t, one.And(proof.Proof{}).Holds())
	require.False(t, proof.Proof{}.And(one).Holds())
}

// system is namespace kube-system of a control plane, as a test sets it.
type system struct {
	uid     types.UID
	version string
	err     error
	asked   int
}

// List implements proof.Namespaces.
func (s *system) List(_ context.Context, options metav1.ListOptions) (*corev1.NamespaceList, error) {
	if options.FieldSelector != "metadata.name=kube-system" || options.ResourceVersion != "" {
		return nil, errors.New("not a live read of namespace kube-system")
	}
	s.asked++
	return &corev1.NamespaceList{
		ListMeta: metav1.ListMeta{ResourceVersion: s.version},
		Items:    []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: s.uid}}},
	}, s.err
}

// TestGuard ends when what a process rests on is no longer the same, and not for silence.
func TestGuard(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	for _, tc := range []struct {
		name string
		// answers come one after the other, and then the end.
		answers []system
		uid     types.UID
		also    error
		// wantAnswered is how many answers were of the right control plane.
		wantAnswered int
		wantErr      func(error) bool
	}{
		{name: "the same", wantAnswered: 3, answers: []system{{uid: "a", version: "10"}, {uid: "a", version: "10"}, {uid: "a", version: "11"}}},
		{name: "it does not answer for a while", wantAnswered: 2, answers: []system{{uid: "a", version: "10"}, {err: errors.New("connection refused")}, {uid: "a", version: "11"}}},
		{
			name: "another one", wantAnswered: 1, answers: []system{{uid: "a", version: "10"}, {uid: "b", version: "11"}},
			wantErr: func(err error) bool { return errors.Is(err, proof.ErrOther) },
		},
		{
			name: "another one from the first", uid: "a", answers: []system{{uid: "b", version: "10"}},
			wantErr: func(err error) bool { return errors.Is(err, proof.ErrOther) },
		},
		{
			name: "restored from a backup", wantAnswered: 1, answers: []system{{uid: "a", version: "10"}, {uid: "a", version: "9"}},
			wantErr: func(err error) bool {
				var failure *engage.Failure
				return errors.As(err, &failure) && failure.Reason.Reason == engage.ReasonRestored
			},
		},
		{
			name: "refused for another reason", wantAnswered: 1, answers: []system{{uid: "a", version: "10"}}, also: refused,
			wantErr: func(err error) bool { return errors.Is(err, refused) },
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			script := &scripted{answers: tc.answers, end: cancel}
			answered, last := 0, time.Now()
			guard := &proof.Guard{
				Name: "the meta cluster", Namespaces: script, UID: tc.uid, Also: func(context.Context) error { return tc.also }, Period: 1,
				Answered: func(_ context.Context, asked time.Time) bool {
					answered++
					require.False(t, asked.Before(last))
					last = asked
					return false
				},
			}
			err := guard.Start(ctx)
			require.Equal(t, tc.wantAnswered, answered)
			if tc.wantErr == nil {
				require.NoError(t, err)
				return
			}
			require.True(t, tc.wantErr(err), "%v", err)
		})
	}
}

// TestGuardOfSilence: a control plane that does not answer is asked more often, and so is one whose answers are urgent.
func TestGuardOfSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		down := system{err: errors.New("connection refused")}
		up := system{uid: "a", version: "10"}
		began := time.Now()
		var asked []time.Duration
		guard := &proof.Guard{
			Name: "r1", Namespaces: &scripted{answers: []system{up, up, down, down, up, up, up}, end: cancel}, UID: "a",
			Answered: func(_ context.Context, at time.Time) bool {
				asked = append(asked, at.Sub(began))
				return len(asked) == 3
			},
		}
		require.NoError(t, guard.Start(ctx))
		require.Equal(t, []time.Duration{0, 10 * time.Second, 22 * time.Second, 23 * time.Second, 33 * time.Second}, asked)
	})
}

// TestGuardOfDoubt: a control plane is asked at once when a request of an informer got no answer.
func TestGuardOfDoubt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		down, up := system{err: errors.New("connection refused")}, system{uid: "a", version: "10"}
		began, answers := time.Now(), &engage.Answers{}
		var asked []time.Duration
		guard := &proof.Guard{
			Name: "r1", Namespaces: &scripted{answers: []system{up, down, down, up, up}, end: cancel}, UID: "a", Answers: answers,
			Answered: func(_ context.Context, at time.Time) bool {
				asked = append(asked, at.Sub(began))
				return false
			},
		}
		ended := make(chan error, 1)
		go func() { ended <- guard.Start(ctx) }()
		<-time.After(3 * time.Second)
		restarts := errors.New("connection refused")
		informer := answers.Hold(transport(func() error { return restarts }))
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://r1", http.NoBody)
		require.NoError(t, err)
		_, err = informer.RoundTrip(request) //nolint:bodyclose // there is none
		require.ErrorIs(t, err, restarts)
		restarts = nil
		_, err = informer.RoundTrip(request) //nolint:bodyclose // there is none
		require.NoError(t, err)
		require.Equal(t, 5*time.Second, time.Since(began))
		require.NoError(t, <-ended)
		require.Equal(t, []time.Duration{0, 5 * time.Second, 15 * time.Second}, asked)
	})
}

// transport is an API server that answers with an error, or with nothing.
type transport func() error

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{Body: http.NoBody}, t()
}

// scripted answers with one after the other, and calls end after the last.
type scripted struct {
	answers []system
	end     func()
}

// List implements proof.Namespaces.
func (s *scripted) List(ctx context.Context, options metav1.ListOptions) (*corev1.NamespaceList, error) {
	if len(s.answers) == 0 {
		s.end()
		return nil, context.Canceled
	}
	next := s.answers[0]
	s.answers = s.answers[1:]
	return next.List(ctx, options)
}
