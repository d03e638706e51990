package scheduling

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/test/builders"
)

// TestUseOfQuotaWakesNothing: each pod changes the status of its quota, which no NamespacePlacement is made of.
func TestUseOfQuotaWakesNothing(t *testing.T) {
	t.Parallel()
	quota := func(mutate func(*corev1.ResourceQuota)) *corev1.ResourceQuota {
		q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Spec: corev1.ResourceQuotaSpec{Hard: builders.Resources("cpu", "1")}}
		mutate(q)
		return q
	}
	before := quota(func(*corev1.ResourceQuota) {})
	for _, tc := range []struct {
		name   string
		mutate func(*corev1.ResourceQuota)
		same   bool
	}{
		{name: "more of it is used", same: true, mutate: func(q *corev1.ResourceQuota) { q.Status.Used = builders.Resources("cpu", "1") }},
		{name: "another limit", mutate: func(q *corev1.ResourceQuota) { q.Spec.Hard = builders.Resources("cpu", "2") }},
		{name: "a scope", mutate: func(q *corev1.ResourceQuota) { q.Spec.Scopes = []corev1.ResourceQuotaScope{"BestEffort"} }},
		{name: "another quota of that name", mutate: func(q *corev1.ResourceQuota) { q.UID = "v" }},
		{name: "it is being deleted", mutate: func(q *corev1.ResourceQuota) { q.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }},
	} {
		require.Equal(t, tc.same, sameButForUse(before, quota(tc.mutate)), tc.name)
	}
}

// TestQuotaOfAnyExponent: however a tenant writes a limit, it is compared at once. An event handler that computes for
// hours holds the tenant's connection for as long.
func TestQuotaOfAnyExponent(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		before, after string
		same          bool
	}{
		{before: "1", after: "1e2147483647"},
		{before: "1e2147483647", after: "1"},
		{before: "0e2147483647", after: "1"},
		{before: "0e2147483647", after: "0", same: true},
		{before: "1e2147483647", after: "1e2147483647", same: true},
	} {
		same := make(chan bool)
		go func() {
			same <- sameButForUse(builders.Quota("web", "quota", "cpu", tc.before), builders.Quota("web", "quota", "cpu", tc.after))
		}()
		select {
		case got := <-same:
			require.Equal(t, tc.same, got, "%s, then %s", tc.before, tc.after)
		case <-time.After(schedulertest.Patience):
			t.Fatalf("it takes more than %s to compare %s with %s", schedulertest.Patience, tc.before, tc.after)
		}
	}
}
