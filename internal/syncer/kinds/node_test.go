package kinds_test

import (
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kinds"
	"github.com/superpool/superpool/internal/tenants"
	"github.com/superpool/superpool/test/builders"
)

// cache holds objects by kind; every pod is on every node that is asked for.
type cache map[string][]client.Object

func (c cache) Get(kind, namespace, name string) (client.Object, bool) {
	for _, object := range c[kind] {
		if object.GetNamespace() == namespace && object.GetName() == name {
			return object, true
		}
	}
	return nil, true
}

func (c cache) InNamespace(kind, namespace string) []client.Object {
	return slices.DeleteFunc(slices.Clone(c[kind]), func(object client.Object) bool { return object.GetNamespace() != namespace })
}

func (c cache) Index(kind, _, _ string) []client.Object { return c[kind] }
func (c cache) List(kind string) []client.Object        { return c[kind] }

// TestNodeOfNoPods lets time pass over a Node that no pod is on.
func TestNodeOfNoPods(t *testing.T) {
	t.Parallel()
	superNode := builders.Node("n1").Obj()
	tenantNode := &corev1.Node{ObjectMeta: metav1.ObjectMeta{UID: "node-uid"}}
	kinds.TenantNode(superNode, tenantNode, "r1", kinds.VNAgent{})
	tenantClient := fake.NewClientBuilder().WithObjects(tenantNode).WithStatusSubresource(&corev1.Node{}).Build()
	require.NoError(t, tenantClient.Get(t.Context(), client.ObjectKeyFromObject(tenantNode), tenantNode))

	tenant := &kinds.Tenant{Tenant: &tenants.Tenant{Key: clusterKey}, Client: tenantClient, Cache: cache{kinds.KindNode: {tenantNode}}}
	superCache := cache{kinds.KindNode: {superNode}}
	clock := testingclock.NewFakePassiveClock(time.Unix(1000, 0))
	metrics, err := engine.NewMetrics(prometheus.NewRegistry())
	require.NoError(t, err)
	env := &kinds.Env{
		ID: "r1", SuperCache: superCache, Clock: clock, Metrics: metrics,
		Tenant:  func(string) *kinds.Tenant { return tenant },
		Tenants: func() []*kinds.Tenant { return []*kinds.Tenant{tenant} },
	}
	var nodes engine.Kind
	for _, kind := range kinds.All(env) {
		if kind.Name() == kinds.KindNode {
			nodes = kind
		}
	}
	key := engine.Key{Tenant: clusterKey, Kind: kinds.KindNode, Name: "n1"}
	require.Equal(t, []engine.Key{key}, nodes.Keys())

	// What the super cluster says of its node after the tenant's was written.
	superNode.Labels = map[string]string{corev1.LabelTopologyZone: "z1"}
	env.VNAgent.Port = 10550

	// pass lets time pass and returns whether the Node is still there, and when it was last alive.
	pass := func(duration, wantAfter time.Duration) (bool, int64) {
		t.Helper()
		clock.SetTime(clock.Now().Add(duration))
		after, err := nodes.Reconcile(t.Context(), key, 0)
		require.NoError(t, err)
		require.Equal(t, wantAfter, after)
		lease := &coordinationv1.Lease{}
		require.NoError(t, tenantClient.Get(t.Context(), types.NamespacedName{Namespace: "kube-node-lease", Name: "r1.n1"}, lease))
		err = tenantClient.Get(t.Context(), client.ObjectKeyFromObject(tenantNode), &corev1.Node{})
		return !apierrors.IsNotFound(err), lease.Spec.RenewTime.Unix()
	}
	for _, tc := range []struct {
		name              string
		pods              []client.Object
		passes, wantAfter time.Duration
		wantThere         bool
		wantRenewed       int64
	}{
		{name: "a pod was on it", wantAfter: 20 * time.Second, wantThere: true, wantRenewed: 1000},
		{name: "a pod is on it", pods: []client.Object{&corev1.Pod{}}, wantAfter: 20 * time.Second, wantThere: true, wantRenewed: 1000},
		{name: "the pod is gone", passes: 10 * time.Second, wantAfter: 20 * time.Second, wantThere: true, wantRenewed: 1000},
		{name: "the lease is due", passes: 50 * time.Second, wantAfter: 10 * time.Second, wantThere: true, wantRenewed: 1060},
		{name: "a pod comes back", pods: []client.Object{&corev1.Pod{}}, passes: 5 * time.Second, wantAfter: 20 * time.Second, wantThere: true, wantRenewed: 1060},
		{name: "it is gone again", passes: 55 * time.Second, wantAfter: 20 * time.Second, wantThere: true, wantRenewed: 1120},
		{name: "for long", passes: 60 * time.Second, wantRenewed: 1120},
	} {
		superCache[kinds.KindPod] = tc.pods
		there, renewed := pass(tc.passes, tc.wantAfter)
		require.Equal(t, tc.wantThere, there, tc.name)
		require.Equal(t, tc.wantRenewed, renewed, tc.name)
		if live := (&corev1.Node{}); there && tenantClient.Get(t.Context(), client.ObjectKeyFromObject(tenantNode), live) == nil {
			require.Equal(t, "z1", live.Labels[corev1.LabelTopologyZone], tc.name)
			live.DeepCopyInto(tenantNode)
		}
	}
	require.EqualValues(t, 10550, tenantNode.Status.DaemonEndpoints.KubeletEndpoint.Port, "also of a Node without pods")
}
