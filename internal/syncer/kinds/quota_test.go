package kinds_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/namespaces"
	"github.com/superpool/superpool/test/builders"
)

// TestQuotaThatRefuses: at first the usage of a quota may be behind; then the tenant is told. The pod waits for room.
func TestQuotaThatRefuses(t *testing.T) {
	t.Parallel()
	p := newPool(t, interceptor.Funcs{})
	p.placed(t)
	p.env.Super = newClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			return apierrors.NewForbidden(corev1.Resource("pods"), "new", errors.New("exceeded quota: superpool"))
		},
	}).Build()
	p.superCache[kind.ServiceAccount] = []client.Object{&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: clusterKey + "-web", Name: "default"}}}
	pod := tenantPod(nil)
	p.tenantCache[kind.Pod] = []client.Object{pod}
	key := engine.Key{Tenant: clusterKey, Kind: kind.Pod, Namespace: "web", Name: pod.Name}
	for _, tc := range []struct {
		waited   time.Duration
		wantTold bool
	}{{time.Second, false}, {2 * time.Second, true}} {
		_, err := p.kind(kind.Pod).Reconcile(t.Context(), key, tc.waited)
		require.ErrorContains(t, err, "exceeded quota")
		wait := &engine.WaitError{}
		require.Equal(t, !tc.wantTold, errors.As(err, &wait))
		require.Equal(t, tc.wantTold, len(p.events.Events) > 0)
		waits, _ := p.env.QuotaWaiters.Next(clusterKey, "web")
		require.Equal(t, key, waits)
	}
	require.Contains(t, <-p.events.Events, "exceeded quota")
}

// TestAQuotaThatChargesWhatIsNotThere: what a request has charged that ended before its pod was stored comes back soon:
// the super cluster counts again when the spec of the quota changes, which bounds what it did. It is asked to once a
// minute at most, for a pod that has waited, and where there is less than is charged.
func TestAQuotaThatChargesWhatIsNotThere(t *testing.T) {
	t.Parallel()
	var writes []*corev1.ResourceQuota
	p := newPool(t, interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			return apierrors.NewForbidden(corev1.Resource("pods"), "new", errors.New("exceeded quota: superpool"))
		},
		Update: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.UpdateOption) error {
			writes = append(writes, object.(*corev1.ResourceQuota))
			return nil
		},
	})
	p.placed(t)
	clock := p.env.Clock.(*testingclock.FakePassiveClock)
	p.superCache[kind.ServiceAccount] = []client.Object{&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: clusterKey + "-web", Name: "default"}}}
	pod := tenantPod(nil)
	p.tenantCache[kind.Pod] = []client.Object{pod}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: clusterKey + "-web", Name: kind.QuotaName}}
	limits := &p.tenant.Policy.Get().Spec().Limits
	namespaces.SuperQuota(quota, ownerOf("ns-uid"), namespaces.Held{Pods: builders.Resources("cpu", "2", "pods", "3")}, nil, limits)
	p.superCache[kind.Quota] = []client.Object{quota}
	running := builders.Owned(builders.Pod(clusterKey+"-web", "runs").Obj(), ownerOf("runs"))
	ended := builders.Owned(builders.Pod(clusterKey+"-web", "ended").Obj(), ownerOf("ended"))
	ended.Status.Phase = corev1.PodSucceeded
	p.superCache[kind.Pod] = []client.Object{running, ended}
	key := engine.Key{Tenant: clusterKey, Kind: kind.Pod, Namespace: "web", Name: pod.Name}
	for i, step := range []struct {
		charged       string
		waited, later time.Duration
		wantWrites    int
	}{
		{charged: "2", waited: 2 * time.Second},
		{charged: "1", waited: 11 * time.Second},
		{charged: "2", waited: 12 * time.Second, later: 59 * time.Second},
		{charged: "2", waited: 12 * time.Second, later: time.Second, wantWrites: 1},
		{charged: "2", waited: 12 * time.Second, later: 59 * time.Second, wantWrites: 1},
		{charged: "2", waited: 12 * time.Second, later: time.Second, wantWrites: 2},
	} {
		clock.SetTime(clock.Now().Add(step.later))
		quota.Status.Used = builders.Resources("pods", step.charged)
		before := len(writes)
		_, err := p.kind(kind.Pod).Reconcile(t.Context(), key, step.waited)
		require.ErrorContains(t, err, "exceeded quota")
		require.Len(t, writes, step.wantWrites, "step %d", i)
		if len(writes) == before {
			continue
		}
		written := writes[len(writes)-1]
		require.False(t, equality.Semantic.DeepEqual(quota.Spec.Hard, written.Spec.Hard), "the quota controller sees a change")
		stays := written.DeepCopy()
		namespaces.SuperQuota(stays, ownerOf("ns-uid"), namespaces.Held{Pods: builders.Resources("cpu", "2", "pods", "3")}, nil, limits)
		require.Empty(t, cmp.Diff(written, stays), "and it is not put back")
		for name, bound := range written.Spec.Hard {
			if name == placement.SnapshotsInQuota {
				require.GreaterOrEqual(t, bound.Value(), int64(math.MaxInt32-1), "either bounds nothing")
			} else {
				was := quota.Spec.Hard[name]
				require.True(t, bound.Equal(was), name)
			}
		}
		quota = written.DeepCopy()
		p.superCache[kind.Quota] = []client.Object{quota}
	}
}
