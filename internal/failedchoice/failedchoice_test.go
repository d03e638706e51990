package failedchoice_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/failedchoice"
)

var now = time.Unix(1_000_000, 0).UTC()

func saying(text string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{schedulerv1alpha1.AnnotationFailedSuperClusters: text}}}
}

func failed(before time.Duration, count int32) failedchoice.Failure {
	return failedchoice.Failure{At: metav1.NewTime(now.Add(-before)), Count: count, Reason: failedchoice.Quota}
}

func TestOf(t *testing.T) {
	for text, want := range map[string]failedchoice.Failures{
		"":       nil,
		"null":   nil,
		"[1":     nil,
		`{"r1":`: nil,
		`{"r1":{"at":"1970-01-12T13:46:40Z","count":2,"reason":"Quota"}}`:                   {"r1": failed(0, 2)},
		`{"r1":{"count":1,"reason":"` + strings.Repeat("x", failedchoice.MaxLength) + `"}}`: nil,
	} {
		require.Empty(t, cmp.Diff(want, failedchoice.Of(saying(text))), text)
	}
}

func TestPlus(t *testing.T) {
	first := failedchoice.Failures(nil).Plus("r1", failedchoice.Quota, now)
	require.JSONEq(t, `{"r1":{"at":"1970-01-12T13:46:40Z","count":1,"reason":"Quota"}}`, first.String())
	require.Empty(t, cmp.Diff(first, failedchoice.Of(saying(first.String()))))
	second := first.Plus("r1", failedchoice.Closed, now.Add(30*time.Minute))
	require.Equal(t, int32(2), second["r1"].Count)
	require.Equal(t, int32(1), first["r1"].Count, "what was read stays")
	require.Equal(t, int32(1), second.Plus("r1", failedchoice.Closed, now.Add(90*time.Minute))["r1"].Count, "an hour without a failure")
	require.Len(t, first.Plus("r2", failedchoice.Quota, now.Add(time.Hour)), 1)

	many := failedchoice.Failures(nil)
	for i := range 40 {
		many = many.Plus(fmt.Sprintf("r%d", i), failedchoice.Quota, now.Add(time.Duration(i)*time.Second))
	}
	require.Len(t, many, 32)
	require.Contains(t, many, "r39")
	require.NotContains(t, many, "r7")
	require.Less(t, len(many.String()), failedchoice.MaxLength)
}

func TestKeeps(t *testing.T) {
	for name, tc := range map[string]struct {
		failure failedchoice.Failure
		want    bool
	}{
		"never failed":              {},
		"just failed":               {failed(0, 1), true},
		"failed a while ago":        {failed(5*time.Minute, 1), false},
		"failed twice":              {failed(9*time.Minute, 2), true},
		"failed twice, ten minutes": {failed(10*time.Minute, 2), false},
		"failed often":              {failed(59*time.Minute, 1<<30), true},
		"failed often, an hour ago": {failed(time.Hour, 1<<30), false},
		"yet to fail":               {failed(-time.Hour, 1), true},
		"failed less than never":    {failed(0, -1), false},
	} {
		require.Equal(t, tc.want, failedchoice.Failures{"r1": tc.failure}.Keeps("r1", now), name)
		require.False(t, failedchoice.Failures{"r1": tc.failure}.Keeps("r2", now), name)
	}
}

func TestClosed(t *testing.T) {
	for name, tc := range map[string]struct {
		failures failedchoice.Failures
		want     []string
	}{
		"none failed":          {},
		"one failed":           {failedchoice.Failures{"r2": failed(0, 1)}, []string{"r2"}},
		"one failed elsewhere": {failedchoice.Failures{"r9": failed(0, 1)}, nil},
		"two failed":           {failedchoice.Failures{"r3": failed(0, 1), "r1": failed(time.Minute, 1)}, []string{"r1", "r3"}},
		"all failed":           {failedchoice.Failures{"r1": failed(0, 1), "r2": failed(time.Minute, 1), "r3": failed(0, 1)}, []string{"r1", "r3"}},
		"one failed long ago":  {failedchoice.Failures{"r1": failed(0, 1), "r2": failed(5*time.Minute, 1), "r3": failed(0, 1)}, []string{"r1", "r3"}},
	} {
		require.Equal(t, tc.want, tc.failures.Closed([]string{"r1", "r2", "r3"}, now), name)
	}
	require.Empty(t, failedchoice.Failures{"r1": failed(0, 1)}.Closed([]string{"r1"}, now))
	require.Empty(t, failedchoice.Failures{"r1": failed(0, 1)}.Closed(nil, now))
}

func TestAnd(t *testing.T) {
	long, short := failed(0, 2), failed(0, 1)
	first, second := failedchoice.Failures{"r1": long, "r2": short}, failedchoice.Failures{"r1": short, "r2": long, "r3": short}
	want := failedchoice.Failures{"r1": long, "r2": long, "r3": short}
	require.Equal(t, want, first.And(second))
	require.Equal(t, want, second.And(first))
	require.Equal(t, failedchoice.Failures{"r1": long, "r2": short}, first, "what was read stays")
	require.Equal(t, first, failedchoice.Failures(nil).And(first))
	require.Equal(t, first, first.And(nil))
}

func TestOldest(t *testing.T) {
	failures := failedchoice.Failures{"r1": failed(1, 1), "r2": failed(2, 1), "r3": failed(2, 1)}
	require.Equal(t, "r2", failures.Oldest([]string{"r3", "r1", "r2"}))
	require.Equal(t, "r1", failures.Oldest([]string{"r1"}))
	require.Empty(t, failures.Oldest(nil))
}

func TestPatience(t *testing.T) {
	for want, failures := range map[time.Duration]failedchoice.Failures{
		time.Minute:      {"r1": failed(time.Hour, 9)},
		2 * time.Minute:  {"r1": failed(0, 1)},
		16 * time.Minute: {"r1": failed(0, 3), "r2": failed(0, 1)},
		time.Hour:        {"r1": failed(0, 1<<31-1), "r2": failed(0, 1<<31-1)},
	} {
		require.Equal(t, want, failures.Patience(time.Minute, now))
	}
	require.Equal(t, 2*time.Hour, failedchoice.Failures{"r1": failed(0, 1)}.Patience(2*time.Hour, now), "the operator may be more patient")
}

func FuzzOf(f *testing.F) {
	f.Add(`{"r1":{"at":"1970-01-12T13:46:40Z","count":2,"reason":"Quota"}}`)
	f.Add(`{"":{"at":"9999-12-31T23:59:59Z","count":-2147483648}}`)
	f.Fuzz(func(t *testing.T, text string) {
		failures := failedchoice.Of(saying(text))
		if patience := failures.Patience(time.Minute, now); patience < time.Minute || patience > time.Hour {
			t.Errorf("patience %v", patience)
		}
		more := failures.Plus("r1", failedchoice.Quota, now)
		if !more.Keeps("r1", now) || more["r1"].Count < 1 {
			t.Errorf("what has just failed is not kept out: %v", more)
		}
		if len(more) > 33 {
			t.Errorf("%d super clusters", len(more))
		}
	})
}
