package eviction

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/scheduling/placements"
	"github.com/superpool/superpool/internal/scheduling/tenantevents"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/schedulingtest"
)

// evictorBed is an evictor over pods in memory. answers says what the API server answers about a pod: nil evicts it.
type evictorBed struct {
	*testing.T
	Evictor
	clock    *testingclock.FakePassiveClock
	recorder *events.FakeRecorder
	registry *prometheus.Registry
	answers  map[string]error
	takes    time.Duration
	asked    []string
	removed  []string
}

func newEvictorBed(t *testing.T, pods ...*corev1.Pod) *evictorBed {
	t.Helper()
	factory := informers.NewSharedInformerFactory(builders.Clientset(), 0)
	for _, pod := range inView(t, pods...) {
		require.NoError(t, factory.Core().V1().Pods().Informer().GetIndexer().Add(pod))
	}
	require.NoError(t, factory.Core().V1().Namespaces().Informer().GetIndexer().Add(builders.Namespace("web")))
	require.NoError(t, factory.Core().V1().ResourceQuotas().Informer().GetIndexer().Add(builders.Quota("web", "quota", "cpu", "1")))
	b := &evictorBed{T: t, clock: testingclock.NewFakePassiveClock(schedulingtest.EvictionNow), recorder: events.NewFakeRecorder(1000), registry: prometheus.NewRegistry(), answers: map[string]error{}}
	metrics, err := placements.NewMetrics(b.registry)
	require.NoError(t, err)
	b.Evictor = Evictor{
		Post: b.answer, Remove: b.remove, Pods: factory.Core().V1().Pods().Lister(), Namespaces: factory.Core().V1().Namespaces().Lister(),
		Events: tenantevents.NamespaceEvents{Quotas: factory.Core().V1().ResourceQuotas().Lister(), Recorder: b.recorder}, Clock: b.clock, Metrics: metrics,
	}
	return b
}

func (b *evictorBed) answer(_ context.Context, eviction *policyv1.Eviction) error {
	require.Equal(b, builders.UID(eviction.Name), *eviction.DeleteOptions.Preconditions.UID)
	b.asked = append(b.asked, eviction.Name)
	b.clock.SetTime(b.clock.Now().Add(b.takes))
	return b.answers[eviction.Name]
}

func (b *evictorBed) remove(_ context.Context, pod *corev1.Pod) error {
	b.removed = append(b.removed, pod.Name)
	return b.answers[pod.Name]
}

func (b *evictorBed) pass(d time.Duration) { b.clock.SetTime(b.clock.Now().Add(d)) }

// counted returns the counts of requests, by result.
func (b *evictorBed) counted() map[string]int {
	families, err := b.registry.Gather()
	require.NoError(b, err)
	counts := map[string]int{}
	for _, family := range families {
		if family.GetName() != "vc_scheduler_evictions_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			require.Equal(b, "reason Drained", metric.GetLabel()[0].GetName()+" "+metric.GetLabel()[0].GetValue())
			counts[metric.GetLabel()[1].GetValue()] = int(metric.GetCounter().GetValue())
		}
	}
	return counts
}

// forbidden returns of how many pods the metrics say that their eviction is forbidden.
func (b *evictorBed) forbidden() float64 {
	return schedulingtest.MetricValue(b, b.registry, "vc_scheduler_evictions_blocked", "")
}

func (b *evictorBed) recorded() (lines []string) {
	for len(b.recorder.Events) > 0 {
		lines = append(lines, <-b.recorder.Events)
	}
	return lines
}

func TestEvictAnswers(t *testing.T) {
	t.Parallel()
	pods := corev1.Resource("pods")
	for _, tc := range []struct {
		name       string
		answer     error
		wantAgain  time.Duration
		wantErr    string
		wantResult string
		wantEvents []string
	}{
		{
			name: "evicted", wantResult: "evicted",
			wantEvents: []string{"Normal Evicted Evicted from super cluster r1: it is drained"},
		},
		{
			name: "a budget forbids it", answer: schedulingtest.Forbidden(), wantAgain: 5 * time.Second, wantResult: "blocked",
			wantEvents: []string{"Warning EvictionBlocked Pod a cannot be evicted from super cluster r1 (it is drained): The disruption budget web needs 2 healthy pods and has 2 currently"},
		},
		{name: "gone", answer: apierrors.NewNotFound(pods, "a"), wantAgain: 5 * time.Second, wantResult: "gone"},
		{name: "replaced", answer: apierrors.NewConflict(pods, "a", errors.New("the UID does not match")), wantAgain: 5 * time.Second, wantResult: "changed"},
		{
			name: "a webhook refuses it", answer: apierrors.NewForbidden(pods, "a", errors.New("never")), wantAgain: 5 * time.Second,
			wantErr: "evicting pod web/a from super cluster r1: ", wantResult: "error",
			wantEvents: []string{`Warning EvictionBlocked Pod a cannot be evicted from super cluster r1 (it is drained): pods "a" is forbidden: never`},
		},
		{
			name: "a failure", answer: apierrors.NewInternalError(errors.New("broken")), wantAgain: 5 * time.Second,
			wantErr: "Internal error occurred: broken", wantResult: "error",
			wantEvents: []string{"Warning EvictionBlocked Pod a cannot be evicted from super cluster r1 (it is drained): Internal error occurred: broken"},
		},
		{
			name: "no answer", answer: context.DeadlineExceeded, wantAgain: 5 * time.Second,
			wantErr: "context deadline exceeded", wantResult: "error",
			wantEvents: []string{"Warning EvictionBlocked Pod a cannot be evicted from super cluster r1 (it is drained): context deadline exceeded"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := newEvictorBed(t, runningPod("a"))
			b.answers["a"] = tc.answer
			again, err := b.Evict(t.Context(), "web", []placement.Eviction{leavingR1("pods", "1")})
			if tc.wantErr != "" {
				require.ErrorContains(t, err, tc.wantErr)
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, tc.wantAgain, again)
			require.Equal(t, map[string]int{tc.wantResult: 1}, b.counted())
			require.Equal(t, tc.wantEvents, b.recorded())
		})
	}
}

// TestEvictBacksOff: a budget that never allows an eviction costs at most a request per pod and minute, and an Event a
// minute.
func TestEvictBacksOff(t *testing.T) {
	t.Parallel()
	b := newEvictorBed(t, runningPod("a"), runningPod("b"))
	b.answers["a"], b.answers["b"] = schedulingtest.Forbidden(), schedulingtest.Forbidden()
	announced := 0
	for _, want := range []time.Duration{5, 10, 20, 40, 60, 60} {
		again, err := b.Evict(t.Context(), "web", []placement.Eviction{leavingR1("pods", "2")})
		require.NoError(t, err)
		require.Equal(t, want*time.Second, again)
		require.Len(t, b.asked, 2)
		b.asked = nil
		for _, event := range b.recorded() {
			require.Contains(t, event, "(and 1 other pods)")
			announced++
		}
		b.pass(again - time.Second)
		again, err = b.Evict(t.Context(), "web", []placement.Eviction{leavingR1("pods", "2")})
		require.NoError(t, err)
		require.Equal(t, time.Second, again)
		require.Empty(t, b.asked, "too early")
		b.pass(again)
	}
	require.Equal(t, 3, announced, "at 0, 75 and 135 seconds")

	delete(b.answers, "b")
	again, err := b.Evict(t.Context(), "web", []placement.Eviction{leavingR1("pods", "2")})
	require.NoError(t, err)
	require.Equal(t, 5*time.Second, again, "one was evicted: the budget may allow the other one soon")
	b.pass(again)
	delete(b.answers, "a")
	again, err = b.Evict(t.Context(), "web", []placement.Eviction{leavingR1("pods", "2")})
	require.NoError(t, err)
	require.Zero(t, again)
}

// TestEvictIsBounded: a call makes no more than 50 requests, and pods that cannot be evicted do not keep those behind
// them from their turn.
func TestEvictIsBounded(t *testing.T) {
	t.Parallel()
	var pods []*corev1.Pod
	for i := range 120 {
		pods = append(pods, runningPod(fmt.Sprintf("pod-%03d", i)))
	}
	b := newEvictorBed(t, pods...)
	for i := range 110 {
		b.answers[fmt.Sprintf("pod-%03d", i)] = schedulingtest.Forbidden()
	}
	var asked []string
	for _, want := range []time.Duration{time.Second, time.Second, 5 * time.Second} {
		again, err := b.Evict(t.Context(), "web", []placement.Eviction{leavingR1("pods", "120")})
		require.NoError(t, err)
		require.Equal(t, want, again)
		require.LessOrEqual(t, len(b.asked), 50)
		asked, b.asked = append(asked, b.asked...), nil
	}
	require.Len(t, asked, 120)
	require.Equal(t, map[string]int{"blocked": 110, "evicted": 10}, b.counted())
}

// TestEvictionsThatWait: the metrics say how many pods budgets hold, until they are evicted, nobody wants that any
// more, or the tenant's controller ends.
func TestEvictionsThatWait(t *testing.T) {
	t.Parallel()
	all := []placement.Eviction{leavingR1("pods", "120")}
	for name, tc := range map[string]struct {
		end  func(t *testing.T, b *evictorBed)
		want float64
	}{
		"two of three are forbidden": {want: 2, end: func(t *testing.T, b *evictorBed) {
			b.answers["pod-002"] = apierrors.NewInternalError(errors.New("broken"))
			b.pass(maxBackoff)
			_, err := b.Evict(t.Context(), "web", []placement.Eviction{leavingR1("pods", "3")})
			require.ErrorContains(t, err, "broken")
		}},
		"nothing is to be evicted":      {end: func(_ *testing.T, b *evictorBed) { b.Settled("web"); b.Settled("web"); b.Settled("other") }},
		"the tenant's controller ended": {end: func(_ *testing.T, b *evictorBed) { b.Stop(); b.Stop() }},
		"forgotten": {end: func(t *testing.T, b *evictorBed) {
			b.pass(3 * maxBackoff)
			_, err := b.Evict(t.Context(), "other", all)
			require.NoError(t, err)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var pods []*corev1.Pod
			for i := range 120 {
				pods = append(pods, runningPod(fmt.Sprintf("pod-%03d", i)))
			}
			b := newEvictorBed(t, pods...)
			for _, pod := range pods[:110] {
				b.answers[pod.Name] = schedulingtest.Forbidden()
			}
			for _, want := range []float64{0, 0, 110} { // a pass takes three calls
				require.Zero(t, b.forbidden())
				_, err := b.Evict(t.Context(), "web", all)
				require.NoError(t, err)
				require.InDelta(t, want, b.forbidden(), 0)
			}
			tc.end(t, b)
			require.InDelta(t, tc.want, b.forbidden(), 0)
		})
	}
}

// TestEvictOfAServerThatHangs: a try ends with the first request that is not answered, and the next one begins behind
// that pod.
func TestEvictOfAServerThatHangs(t *testing.T) {
	t.Parallel()
	b := newEvictorBed(t, runningPod("a"), runningPod("b"), runningPod("c"))
	b.takes = evictionTimeout
	b.answers["a"], b.answers["b"] = context.DeadlineExceeded, context.DeadlineExceeded
	want := []placement.Eviction{leavingR1("pods", "3")}
	for i, delay := range []time.Duration{5 * time.Second, 10 * time.Second} {
		again, err := b.Evict(t.Context(), "web", want)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, delay, again)
		require.Len(t, b.asked, i+1)
		b.pass(again)
	}
	_, err := b.Evict(t.Context(), "web", want)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "c"}, b.asked)
}

// TestEvictThatEnds: the controller ends during a request. The tenant is told nothing.
func TestEvictThatEnds(t *testing.T) {
	t.Parallel()
	b := newEvictorBed(t, runningPod("a"), runningPod("b"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b.answers["a"], b.answers["b"] = context.Canceled, context.Canceled
	_, err := b.Evict(ctx, "web", []placement.Eviction{leavingR1("pods", "2")})
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, b.asked, 1)
	require.Empty(t, b.recorded())
}

// TestEvictForgets: a tenant that makes and deletes namespaces leaves nothing behind.
func TestEvictForgets(t *testing.T) {
	t.Parallel()
	b := newEvictorBed(t)
	for i := range 1000 {
		_, err := b.Evict(t.Context(), fmt.Sprint("namespace-", i), []placement.Eviction{leavingR1("pods", "1")})
		require.NoError(t, err)
		b.pass(time.Second)
	}
	require.Less(t, len(b.blocked), 200)
}

// TestEvictFromALostSuperCluster: pods are deleted, whatever budgets say, unless they tolerate the loss for ever.
func TestEvictFromALostSuperCluster(t *testing.T) {
	t.Parallel()
	tolerates := func(key corev1.Toleration) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Spec.Tolerations = append(pod.Spec.Tolerations, key) }
	}
	b := newEvictorBed(t,
		withPod(runningPod("a", "cpu", "1"), tolerates(corev1.Toleration{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, TolerationSeconds: ptr.To(int64(300))})),
		withPod(runningPod("b", "cpu", "1"), tolerates(corev1.Toleration{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists})),
		withPod(runningPod("c", "cpu", "1"), tolerates(corev1.Toleration{Operator: corev1.TolerationOpExists})),
		runningPod("d", "cpu", "1"),
		withPod(runningPod("e", "cpu", "1"), func(pod *corev1.Pod) {
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
		}),
	)
	lost := leavingR1("cpu", "5", "pods", "5")
	lost.Reason = schedulerv1alpha1.LeavingLost
	_, err := b.Evict(t.Context(), "web", []placement.Eviction{lost})
	require.NoError(t, err)
	require.Equal(t, []string{"a", "d"}, b.removed)
	require.Equal(t, []string{"e"}, b.asked, "budgets are asked about what is Ready")
	require.Contains(t, b.recorded(), "Normal Evicted Evicted from super cluster r1: it does not answer")
}

// TestPostEvictions sends requests to an API server by HTTP.
func TestPostEvictions(t *testing.T) {
	t.Parallel()
	const status = `{"kind":"Status","apiVersion":"v1","status":%q,"message":"why","reason":%q,"code":%d}`
	for _, tc := range []struct {
		name   string
		code   int
		body   string
		header http.Header
		want   placements.EvictionResult
	}{
		{name: "evicted", code: 201, body: fmt.Sprintf(status, "Success", "", 201), want: placements.ResultEvicted},
		{name: "two budgets", code: 201, body: fmt.Sprintf(status, "Failure", "", 500), want: placements.ResultError},
		{name: "a budget", code: 429, body: fmt.Sprintf(status, "Failure", "TooManyRequests", 429), want: placements.ResultBlocked},
		{
			name: "asked to wait for long", code: 429, body: fmt.Sprintf(status, "Failure", "TooManyRequests", 429),
			header: http.Header{"Retry-After": {"1000"}}, want: placements.ResultBlocked,
		},
		{name: "gone", code: 404, body: fmt.Sprintf(status, "Failure", "NotFound", 404), want: placements.ResultGone},
		{name: "replaced", code: 409, body: fmt.Sprintf(status, "Failure", "Conflict", 409), want: placements.ResultChanged},
		{name: "a failure", code: 500, body: fmt.Sprintf(status, "Failure", "InternalError", 500), want: placements.ResultError},
		{name: "no API server", code: 200, body: "<html>", want: placements.ResultError},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var asked []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
				asked = append(asked, request.Method+" "+request.URL.Path)
				for key, values := range tc.header {
					w.Header()[key] = values
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(tc.code)
				_, _ = w.Write([]byte(tc.body))
			}))
			t.Cleanup(server.Close)
			api, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
			require.NoError(t, err)
			err = PostEvictions(api)(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "a"}})
			require.Equal(t, tc.want, resultOf(err), "%v", err)
			require.Equal(t, []string{"POST /api/v1/namespaces/web/pods/a/eviction"}, asked, "no request is repeated")
		})
	}
}

func TestRefusalMessage(t *testing.T) {
	t.Parallel()
	require.Equal(t, "The disruption budget web needs 2 healthy pods and has 2 currently", refusalMessage(schedulingtest.Forbidden()))
	require.Equal(t, "slow down", refusalMessage(apierrors.NewTooManyRequests("slow down.", 1)))
	require.Equal(t, "broken", refusalMessage(errors.New("broken")))
	require.LessOrEqual(t, len(refusalMessage(errors.New(strings.Repeat("x", 1<<20)))), tenancy.MaxEventNote)
}
