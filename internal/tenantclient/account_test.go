package tenantclient_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/engage"
)

func configMap(name string, size int) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"data": strings.Repeat("x", size)}}
}

// TestAccount: what informers keep is counted as objects come, change and go; nothing is left of a closed account.
func TestAccount(t *testing.T) {
	t.Parallel()
	bounds := bounded(t)
	one, other := bounds.Account(), bounds.Account()
	small, large := configMap("a", 10), configMap("a", 10000)
	one.Handler(nil).OnAdd(small, true)
	_, before := bounds.Kept()
	one.Handler(nil).OnUpdate(small, large)
	objects, after := bounds.Kept()
	require.EqualValues(t, 1, objects)
	require.EqualValues(t, 9990, after-before)
	other.Handler(nil).OnAdd(large, true)
	other.Handler(nil).OnDelete(cache.DeletedFinalStateUnknown{Key: "a", Obj: large})
	objects, bytes := bounds.Kept()
	require.EqualValues(t, 1, objects)
	require.Equal(t, after, bytes)
	one.Close()
	one.Close()
	one.Handler(nil).OnDelete(large) // an event on its way
	objects, bytes = bounds.Kept()
	require.Zero(t, objects)
	require.Zero(t, bytes)
}

// TestBudgets: the object that is one too many, or too large, ends the connection.
func TestBudgets(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		object any
		most   int
		want   string
	}{
		{name: "many small objects", object: "tiny", most: 1001, want: "The number of objects to watch is more than 1000 (limits.cachedObjects of TenantPolicy small)"},
		{name: "a few large ones", object: configMap("a", 30000), most: 9, want: "The size of all objects to watch is more than 256Ki (limits.cachedBytes of TenantPolicy small)"},
		{name: "one of empty structures", most: 1, want: "The size of all objects", object: &corev1.Pod{Spec: corev1.PodSpec{Containers: make([]corev1.Container, 2000)}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			bounds := bounded(t)
			added := 0
			err := bounds.Serve(t.Context(), func(ctx context.Context) error {
				handler := bounds.Account().Handler(nil)
				for ; ctx.Err() == nil && added <= 2000; added++ {
					handler.OnAdd(tc.object, true)
				}
				return nil
			})
			var failure *engage.Failure
			require.ErrorAs(t, err, &failure)
			require.Equal(t, tenancyv1alpha1.ReasonTooMuchData, failure.Reason.Reason)
			require.Contains(t, failure.Message, tc.want)
			require.Equal(t, tc.most, added)
		})
	}
}

// BenchmarkAccount is what an event of a pod costs.
func BenchmarkAccount(b *testing.B) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"app": "web"}}}
	for i := range 4 {
		container := corev1.Container{Name: fmt.Sprint(i), Image: "registry/image"}
		for range 10 {
			container.Env = append(container.Env, corev1.EnvVar{Name: "NAME", Value: "value"})
		}
		pod.Spec.Containers = append(pod.Spec.Containers, container)
	}
	handler := bounded(b).Account().Handler(nil)
	b.ReportAllocs()
	for b.Loop() {
		handler.OnUpdate(pod, pod)
	}
}
