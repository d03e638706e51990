package kind_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// rated is a pool whose super cluster takes what limits.writes allow, and counts it.
type rated struct {
	*kindtest.Pool
	clock *testingclock.FakePassiveClock
	// written is how many bytes reached the super cluster.
	written int
}

func newRated(t testing.TB) *rated {
	t.Helper()
	r := &rated{clock: testingclock.NewFakePassiveClock(time.Unix(1_000_000, 0))}
	count := func(object client.Object) error {
		if sized, ok := object.(interface{ Size() int }); ok {
			r.written += sized.Size()
		}
		return nil
	}
	r.Pool = kindtest.NewPool(t, interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
			return count(object)
		},
		Update: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.UpdateOption) error {
			return count(object)
		},
		Patch: func(_ context.Context, _ client.WithWatch, object client.Object, _ client.Patch, _ ...client.PatchOption) error {
			return count(object)
		},
		Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error { return nil },
		SubResourceUpdate: func(_ context.Context, _ client.Client, _ string, object client.Object, _ ...client.SubResourceUpdateOption) error {
			return count(object)
		},
	})
	r.Env.Clock = r.clock
	r.Env.LimitWrites(r.SuperClient)
	return r
}

func (r *rated) pass(d time.Duration) { r.clock.SetTime(r.clock.Now().Add(d)) }

// largeMap is a ConfigMap of a tenant in a super cluster, of that size.
func largeMap(tenant string, size int) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant + "-web", Name: "large", Labels: map[string]string{tenancyv1alpha1.LabelCluster: tenant}},
		Data:       map[string]string{"data": strings.Repeat("x", size)},
	}
}

// TestWriteRate lets a tenant change a large object without end, in each way that objects are written.
func TestWriteRate(t *testing.T) {
	t.Parallel()
	const minutes = 10
	for _, tc := range []struct {
		name  string
		write func(ctx context.Context, super client.Client, object client.Object) error
	}{
		{"create", func(ctx context.Context, super client.Client, object client.Object) error {
			return super.Create(ctx, object)
		}},
		{"update", func(ctx context.Context, super client.Client, object client.Object) error {
			return super.Update(ctx, object)
		}},
		{"patch", func(ctx context.Context, super client.Client, object client.Object) error {
			return super.Patch(ctx, object, client.MergeFrom(&corev1.ConfigMap{}))
		}},
		{"status", func(ctx context.Context, super client.Client, object client.Object) error {
			return super.Status().Update(ctx, object)
		}},
		{"resize", func(ctx context.Context, super client.Client, object client.Object) error {
			return super.SubResource("resize").Update(ctx, object)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := newRated(t)
			object := largeMap(kindtest.ClusterKey, 1<<20)
			for range minutes * 60 * 10 {
				err := tc.write(t.Context(), r.Env.Super, object)
				require.True(t, err == nil || engine.DelayOf(err) > 0, "%v", err)
				r.pass(time.Second / 10)
			}
			require.Greater(t, r.written, minutes*60*(500<<10), "the rate is used")
			require.Less(t, r.written, 64<<20+minutes*60*(512<<10)+2<<20)

			written := r.written
			require.NoError(t, r.Env.Super.Update(t.Context(), largeMap("other", 1<<20)), "another tenant does not notice")
			require.NoError(t, r.Env.Super.Delete(t.Context(), object), "a deletion frees room")
			require.NoError(t, r.Env.Super.Update(t.Context(), builders.Owned(builders.Quota(kindtest.ClusterKey+"-web", "superpool"), kindtest.OwnerOf("ns-uid"))), "room is others'")
			require.NoError(t, r.Env.Super.Create(t.Context(), builders.Namespace("ours")), "what is no tenant's has no rate")
			require.Greater(t, r.written, written)
		})
	}
}

// TestWriteRateOfOrdinaryPods creates 1,000 pods of 10 kB at once.
func TestWriteRateOfOrdinaryPods(t *testing.T) {
	t.Parallel()
	r := newRated(t)
	for i := range 1000 {
		pod := builders.Owned(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: kindtest.ClusterKey + "-web", Name: fmt.Sprintf("p%d", i)}}, kindtest.OwnerOf("uid"))
		pod.Spec.Containers = []corev1.Container{{Name: "main", Args: []string{strings.Repeat("x", 10_000)}}}
		require.NoError(t, r.Env.Super.Create(t.Context(), pod))
	}
}

// TestWriteRateOfContainers: kubelets write a pod again as each of its containers starts.
func TestWriteRateOfContainers(t *testing.T) {
	t.Parallel()
	for containers, most := range map[int]int{1: 64 << 20 / (4 * 100_000), 97: 64 << 20 / (100 * 100_000)} {
		r := newRated(t)
		pod := builders.Owned(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: kindtest.ClusterKey + "-web", Name: "p"}}, kindtest.OwnerOf("uid"))
		pod.Spec.InitContainers, pod.Spec.Containers = kindtest.ManyContainers(containers/2), kindtest.ManyContainers(containers-containers/2)
		pod.Spec.Containers[0].Args = []string{strings.Repeat("x", 100_000)}
		created := 0
		for r.Env.Super.Create(t.Context(), pod) == nil {
			created++
		}
		require.LessOrEqual(t, created, most+1)
		require.Greater(t, created, most/2)
	}
}

// TestWriteRateOfWhatExceedsTheBurst: a pod whose revisions are more than may be written at once costs all of them.
func TestWriteRateOfWhatExceedsTheBurst(t *testing.T) {
	t.Parallel()
	const minutes = 10
	r := newRated(t)
	pod := builders.Owned(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: kindtest.ClusterKey + "-web", Name: "p"}}, kindtest.OwnerOf("uid"))
	pod.Spec.InitContainers, pod.Spec.Containers = kindtest.ManyContainers(499), kindtest.ManyContainers(1)
	pod.Spec.Containers[0].Args = []string{strings.Repeat("x", 500_000)}
	created := 0
	for range minutes * 60 {
		if r.Env.Super.Create(t.Context(), pod) == nil {
			created++
		}
		r.pass(time.Second)
	}
	require.Positive(t, created)
	require.LessOrEqual(t, (created-1)*500*500_000, 64<<20+minutes*60*(512<<10), "the last one may exceed it")
}

// TestWriteRateCountsFields: an object whose managedFields are many times as large counts what they take.
func TestWriteRateCountsFields(t *testing.T) {
	t.Parallel()
	r := newRated(t)
	service := builders.Owned(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: kindtest.ClusterKey + "-web", Name: "s"}}, kindtest.OwnerOf("uid"))
	service.Spec.Ports = kindtest.List(1_000, func(i int) corev1.ServicePort {
		return corev1.ServicePort{Name: fmt.Sprint("p", i), Port: int32(i + 1), Protocol: corev1.ProtocolTCP} //nolint:gosec // Few.
	})
	const managed = 100 << 10 // of 22 KiB
	writes := 0
	for r.Env.Super.Update(t.Context(), service) == nil {
		writes++
	}
	require.LessOrEqual(t, writes, 64<<20/managed+1)
	require.Greater(t, writes, 64<<20/managed/2)
}

// TestWriteRateOfManyWaits lets 1,000 objects wait: each is tried at its turn, and few are tried in vain.
func TestWriteRateOfManyWaits(t *testing.T) {
	t.Parallel()
	r := newRated(t)
	const objects, size = 1000, 20 << 10
	for r.Env.Super.Update(t.Context(), largeMap(kindtest.ClusterKey, 1<<20)) == nil {
		continue
	}
	due, tries, done := map[int]time.Time{}, 0, 0
	for i := range objects {
		due[i] = r.clock.Now()
	}
	for passed := time.Duration(0); len(due) > 0; passed += time.Second / 100 {
		require.Less(t, passed, 2*time.Minute, "%d of %d wait", len(due), objects)
		for i, at := range due {
			if at.After(r.clock.Now()) {
				continue
			}
			tries++
			err := r.Env.Super.Update(t.Context(), largeMap(kindtest.ClusterKey, size))
			if err == nil {
				delete(due, i)
				done++
				continue
			}
			require.LessOrEqual(t, engine.DelayOf(err), time.Minute)
			due[i] = r.clock.Now().Add(engine.DelayOf(err))
		}
		r.pass(time.Second / 100)
	}
	require.Equal(t, objects, done)
	require.Less(t, tries, 3*objects)
}

// TestWriteRateOfAPolicy changes limits.writes while a tenant waits, and ends its connection.
func TestWriteRateOfAPolicy(t *testing.T) {
	t.Parallel()
	r := newRated(t)
	r.Tenant.Policy = &policy.Ref{}
	r.Tenant.Policy.Set(kindtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
		spec.Limits.Writes = tenancyv1alpha1.WriteRate{BytesPerSecond: resource.MustParse("100Ki"), Burst: resource.MustParse("5Mi")}
	}))
	update := func() error { return r.Env.Super.Update(t.Context(), largeMap(kindtest.ClusterKey, 1<<20)) }
	for range 5 {
		require.NoError(t, update())
	}
	require.Positive(t, engine.DelayOf(update()))
	r.Env.Forget(kindtest.ClusterKey)
	require.Positive(t, engine.DelayOf(update()), "a tenant that connects again has no more")
	r.pass(time.Second)
	require.NoError(t, update(), "a write may take more than is left")
	require.Greater(t, engine.DelayOf(update()), 9*time.Second)
	r.Tenant.Policy.Set(kindtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
		spec.Limits.Writes = tenancyv1alpha1.WriteRate{BytesPerSecond: resource.MustParse("10Mi"), Burst: resource.MustParse("64Mi")}
	}))
	require.Less(t, engine.DelayOf(update()), time.Second)
	r.pass(time.Second)
	require.NoError(t, update())
}

// TestWriteRateIsTold lets a ConfigMap wait: its tenant is told once, its creation counts no longer, and it goes down.
func TestWriteRateIsTold(t *testing.T) {
	t.Parallel()
	r := newRated(t)
	r.Placed(t)
	r.TenantCache[kind.ConfigMap] = []client.Object{&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "cm", UID: "cm-uid"}}}
	key := engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.ConfigMap, Namespace: "web", Name: "cm"}
	for r.Env.Super.Update(t.Context(), largeMap(kindtest.ClusterKey, 1<<20)) == nil {
		continue
	}
	for range 200 { // others wait, too
		require.Error(t, r.Env.Super.Update(t.Context(), largeMap(kindtest.ClusterKey, 10<<10)))
	}
	for range 3 {
		_, err := r.Kind(kind.ConfigMap).Reconcile(t.Context(), key, 0)
		require.Positive(t, engine.DelayOf(err))
	}
	events := r.Told()
	require.Len(t, events, 1)
	require.Equal(t, "Warning WriteRateExceeded Super cluster r1: the tenant's objects change by more than 524288 bytes a second, after 67108864 at once "+
		"(limits.writes of TenantPolicy default): what this one needs there waits. Change large objects less often, or make them smaller", events[0])
	r.pass(time.Minute)
	written := r.written
	_, err := r.Kind(kind.ConfigMap).Reconcile(t.Context(), key, 0)
	require.NoError(t, err)
	require.Greater(t, r.written, written)
}

// BenchmarkWriteRate measures what counting a write costs, beside the request.
func BenchmarkWriteRate(b *testing.B) {
	none := func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error { return nil }
	p := kindtest.NewPool(b, interceptor.Funcs{Update: none})
	pod := builders.Owned(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: kindtest.ClusterKey + "-web", Name: "p"}}, kindtest.OwnerOf("uid"))
	pod.Spec.Containers = []corev1.Container{{Name: "main", Args: []string{strings.Repeat("x", 10_000)}}}
	for _, limited := range []bool{false, true} {
		b.Run(fmt.Sprintf("limited=%t", limited), func(b *testing.B) {
			clock := testingclock.NewFakePassiveClock(time.Unix(1_000_000, 0))
			p.Env.Clock = clock
			if limited {
				p.Env.LimitWrites(p.SuperClient)
			}
			b.ReportAllocs()
			for b.Loop() {
				clock.SetTime(clock.Now().Add(time.Second))
				require.NoError(b, p.Env.Super.Update(b.Context(), pod))
			}
		})
	}
}
