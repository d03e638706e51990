package kinds_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kinds"
	"github.com/superpool/superpool/test/builders"
)

// TestChargeWithoutAPod lets the quota count a pod that was never stored, as after a syncer was killed while it made
// the pod.
func TestChargeWithoutAPod(t *testing.T) {
	t.Parallel()
	requests := func(cpu string) corev1.PodSpec {
		return corev1.PodSpec{ServiceAccountName: "default", Containers: []corev1.Container{{
			Name: "c", Resources: builders.Requests("cpu", cpu),
		}}}
	}
	meta := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	superNamespace := clusterKey + "-web"
	scheme := runtime.NewScheme()
	require.NoError(t, schedulerv1alpha1.AddToScheme(scheme))
	key := engine.Key{Tenant: clusterKey, Kind: kinds.KindPod, Namespace: "web", Name: "new"}
	for _, tc := range []struct {
		name string
		// there is what runs in the super namespace.
		there       []client.Object
		used        string
		wantUsed    string
		wantRefusal bool
	}{
		{name: "nothing is there", used: "200m", wantUsed: "0"},
		{name: "another pod is there", there: []client.Object{&corev1.Pod{ObjectMeta: meta(superNamespace, "other"), Spec: requests("100m")}}, used: "200m", wantUsed: "100m"},
		{
			name: "a finished pod is there", used: "200m", wantUsed: "0",
			there: []client.Object{&corev1.Pod{ObjectMeta: meta(superNamespace, "done"), Spec: requests("100m"), Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}},
		},
		{
			name: "the quota is really used up", used: "200m", wantUsed: "200m", wantRefusal: true,
			there: []client.Object{&corev1.Pod{ObjectMeta: meta(superNamespace, "other"), Spec: requests("200m")}},
		},
		{
			name: "another tenant's namespace does not count", used: "200m", wantUsed: "0",
			there: []client.Object{&corev1.Pod{ObjectMeta: meta("stranger", "other"), Spec: requests("200m")}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := newPool(t, interceptor.Funcs{})
			placed := &schedulerv1alpha1.NamespacePlacement{ObjectMeta: meta(clusterKey, "web"), Spec: schedulerv1alpha1.NamespacePlacementSpec{NamespaceUID: "ns-uid"}}
			placed.Status.Placements = []schedulerv1alpha1.ClusterPlacement{builders.HeldSlices("r1", 1, "cpu", "1", "pods", "5")}
			p.assigns(builders.Client(scheme).WithObjects(placed).Build(), nil)
			quota := &corev1.ResourceQuota{ObjectMeta: meta(superNamespace, "superpool")}
			quota.Status.Used = builders.Resources("requests.cpu", tc.used)
			refusal := apierrors.NewForbidden(corev1.Resource("pods"), "new", errors.New("exceeded quota: superpool"))
			p.env.Super = newClientBuilder().WithObjects(append(tc.there, quota)...).WithStatusSubresource(quota).WithInterceptorFuncs(interceptor.Funcs{
				Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return refusal },
			}).Build()
			p.superCache[kinds.KindServiceAccount] = []client.Object{&corev1.ServiceAccount{ObjectMeta: meta(superNamespace, "default")}}
			pod := &corev1.Pod{ObjectMeta: meta("web", "new"), Spec: requests("100m")}
			pod.UID, pod.Labels = "pod-uid", map[string]string{schedulerv1alpha1.LabelSuperCluster: "r1"}
			p.tenantCache[kinds.KindPod] = []client.Object{pod}

			wait := &engine.WaitError{}
			_, err := p.kind(kinds.KindPod).Reconcile(t.Context(), key, 0)
			require.ErrorAs(t, err, &wait, "at first the quota may be behind")
			require.Empty(t, p.events.Events)

			_, err = p.kind(kinds.KindPod).Reconcile(t.Context(), key, 7*time.Second)
			require.Error(t, err)
			require.NotEqual(t, tc.wantRefusal, errors.As(err, &wait), "%v", err)
			waits, _ := p.env.QuotaWaiters.Next(clusterKey, "web")
			require.Equal(t, key, waits, "the pod waits for room")
			require.NoError(t, p.env.Super.Get(t.Context(), client.ObjectKeyFromObject(quota), quota))
			got := quota.Status.Used[corev1.ResourceRequestsCPU]
			require.Empty(t, cmp.Diff(tc.wantUsed, got.String()))
			if tc.wantRefusal {
				require.Contains(t, <-p.events.Events, "exceeded quota")
			}
		})
	}
}

// TestManyPodsWithoutRoom lets a tenant have many pods that its quota refuses, and be patient.
func TestManyPodsWithoutRoom(t *testing.T) {
	t.Parallel()
	counts := 0
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: clusterKey + "-web", Name: "superpool"}}
	p := newPool(t, interceptor.Funcs{})
	p.placed(t)
	p.env.Super = newClientBuilder().WithObjects(quota).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			return apierrors.NewForbidden(corev1.Resource("pods"), "new", errors.New("exceeded quota: superpool"))
		},
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			counts++
			return nil
		},
	}).Build()
	now := testingclock.NewFakePassiveClock(time.Unix(1_000_000, 0))
	p.env.Clock = now
	p.superCache[kinds.KindServiceAccount] = []client.Object{&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: clusterKey + "-web", Name: "default"}}}
	kind := p.kind(kinds.KindPod)
	for minute := range 3 {
		for i := range 20 {
			pod := tenantPod(func(pod *corev1.Pod) { pod.Name = fmt.Sprint("pod-", i) })
			p.tenantCache[kinds.KindPod] = []client.Object{pod}
			_, err := kind.Reconcile(t.Context(), engine.Key{Tenant: clusterKey, Kind: kinds.KindPod, Namespace: "web", Name: pod.Name}, 7*time.Second)
			require.ErrorContains(t, err, "exceeded quota")
		}
		require.Equal(t, minute+1, counts, "each count lists all pods")
		now.SetTime(now.Now().Add(time.Minute))
	}
}

// TestCountThatFails lets a look at a quota fail. It is repeated at once, while one that succeeds holds for a minute.
func TestCountThatFails(t *testing.T) {
	t.Parallel()
	counts, broken := 0, errors.New("connection refused")
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: clusterKey + "-web", Name: "superpool"}}
	p := newPool(t, interceptor.Funcs{})
	p.placed(t)
	p.env.Super = newClientBuilder().WithObjects(quota).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			return apierrors.NewForbidden(corev1.Resource("pods"), "new", errors.New("exceeded quota: superpool"))
		},
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			if counts++; counts < 3 {
				return broken
			}
			return nil
		},
	}).Build()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: clusterKey + "-web", Name: "default"}}
	p.superCache[kinds.KindServiceAccount] = []client.Object{account}
	pod := tenantPod(nil)
	p.tenantCache[kinds.KindPod] = []client.Object{pod}
	kind := p.kind(kinds.KindPod)
	for _, tc := range []struct {
		name   string
		waited time.Duration
		// wantErr is part of the error, wantCounts how often pods have been listed until then.
		wantErr    string
		wantCounts int
	}{
		{name: "it is too early to count", waited: 5 * time.Second, wantErr: "exceeded quota"},
		{name: "a count fails", waited: 6 * time.Second, wantErr: broken.Error(), wantCounts: 1},
		{name: "the next one too", waited: 7 * time.Second, wantErr: broken.Error(), wantCounts: 2},
		{name: "one succeeds, and finds nothing to correct", waited: 8 * time.Second, wantErr: "exceeded quota", wantCounts: 3},
		{name: "it holds", waited: time.Hour, wantErr: "exceeded quota", wantCounts: 3},
	} {
		key := engine.Key{Tenant: clusterKey, Kind: kinds.KindPod, Namespace: "web", Name: pod.Name}
		_, err := kind.Reconcile(t.Context(), key, tc.waited)
		require.ErrorContains(t, err, tc.wantErr, tc.name)
		require.Equal(t, tc.wantCounts, counts, tc.name)
	}
}
