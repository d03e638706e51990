package nodes_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/nodes"
	"github.com/superpool/superpool/internal/tenants"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/kindtest"
)

func TestTenantNode(t *testing.T) {
	t.Parallel()
	status := corev1.NodeStatus{
		Capacity: builders.Resources("cpu", "8"), Allocatable: builders.Resources("cpu", "7"),
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}},
		NodeInfo: corev1.NodeSystemInfo{
			KubeletVersion: "v1.37.2", KernelVersion: "6.1", OSImage: "Debian", ContainerRuntimeVersion: "containerd://2", OperatingSystem: "linux", Architecture: "amd64",
		},
		DeclaredFeatures: []string{"GuaranteedQoSPodCPUResize"},
	}
	superNode := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{
			corev1.LabelOSStable: "linux", corev1.LabelTopologyZone: "z1", corev1.LabelHostname: "n1", "secret": "1",
		}},
		Spec:   corev1.NodeSpec{ProviderID: "cloud://1"},
		Status: *status.DeepCopy(),
	}
	status.DaemonEndpoints.KubeletEndpoint.Port = 10550
	superNode.Status.Addresses = append(superNode.Status.Addresses,
		corev1.NodeAddress{Type: corev1.NodeHostName, Address: "n1"}, corev1.NodeAddress{Type: corev1.NodeInternalDNS, Address: "n1.internal"})
	superNode.Status.DaemonEndpoints.KubeletEndpoint.Port = 10250
	superNode.Status.Conditions[0].Message = "of the super cluster"
	superNode.Status.Conditions = append(superNode.Status.Conditions, corev1.NodeCondition{Type: "KernelDeadlock", Message: "process of another tenant"})
	info := &superNode.Status.NodeInfo
	info.MachineID, info.SystemUUID, info.BootID = "machine", "system", "boot"
	superNode.Status.Images = []corev1.ContainerImage{{Names: []string{"of-others"}}}
	got := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{corev1.LabelTopologyRegion: "gone", "tenants": "own"}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "tenant"}}},
	}
	nodes.TenantNode(superNode, got, "r1", kind.VNAgent{Port: 10550}, nodes.NodeShare{Held: builders.Resources("cpu", "10")})
	want := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "r1.n1",
			Labels: map[string]string{
				corev1.LabelOSStable: "linux", corev1.LabelTopologyZone: "z1", corev1.LabelHostname: "r1.n1", "tenants": "own",
				"tenancy.x-k8s.io/virtualnode": "true", "tenancy.x-k8s.io/superclusterid": "r1",
			},
			Annotations: map[string]string{"tenancy.x-k8s.io/supernode": "n1"},
		},
		Spec:   corev1.NodeSpec{Taints: []corev1.Taint{{Key: "tenant"}}},
		Status: status,
	}
	require.Empty(t, cmp.Diff(want, got))
	key, ours := nodes.NodeKey("t", got)
	require.True(t, ours)
	require.Equal(t, engine.Key{Tenant: "t", Kind: "node", Name: "n1"}, key)

	nodes.TenantNode(superNode, got, "r1", kind.VNAgent{Address: "10.9.9.9"}, nodes.NodeShare{})
	require.Equal(t, []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.9.9.9"}}, got.Status.Addresses)
	require.Zero(t, got.Status.DaemonEndpoints.KubeletEndpoint.Port)
	nodes.TenantNode(superNode, got, "r1", kind.VNAgent{Address: "agent.example.com"}, nodes.NodeShare{})
	require.Equal(t, []corev1.NodeAddress{{Type: corev1.NodeInternalDNS, Address: "agent.example.com"}}, got.Status.Addresses)

	superNode.Name = strings.Repeat("n", 59) + "." + strings.Repeat("m", 100)
	nodes.TenantNode(superNode, got, "r1", kind.VNAgent{Port: 10550}, nodes.NodeShare{})
	require.Equal(t, "r1."+strings.Repeat("n", 59), got.Labels[corev1.LabelHostname], "a label value has 63 characters at most and ends with a letter or digit")
}

// nodeName lets pods be selected by their node.
func nodeName(builder *builders.ClientBuilder) *builders.ClientBuilder {
	return builder.WithIndex(&corev1.Pod{}, "spec.nodeName", func(object client.Object) []string {
		pod, _ := object.(*corev1.Pod)
		return []string{pod.Spec.NodeName}
	})
}

// TestNodeOfNoPods lets time pass over a Node that no pod is on.
func TestNodeOfNoPods(t *testing.T) {
	t.Parallel()
	superNode := builders.Node("n1").Obj()
	tenantNode := &corev1.Node{ObjectMeta: metav1.ObjectMeta{UID: "node-uid"}}
	nodes.TenantNode(superNode, tenantNode, "r1", kind.VNAgent{}, nodes.NodeShare{})
	tenantClient := kindtest.Answering(nodeName(kindtest.NewClientBuilder()).WithObjects(tenantNode).WithStatusSubresource(&corev1.Node{}).Build(), kindtest.TenantUID)
	require.NoError(t, tenantClient.Get(t.Context(), client.ObjectKeyFromObject(tenantNode), tenantNode))

	tenant := &kind.Tenant{Tenant: &tenants.Tenant{Key: kindtest.ClusterKey, ControlPlaneUID: kindtest.TenantUID}, Client: tenantClient, Cache: kindtest.Cache{kind.Node: {tenantNode}}}
	superCache := kindtest.Cache{kind.Node: {superNode}}
	clock := testingclock.NewFakePassiveClock(time.Unix(1000, 0))
	metrics, err := engine.NewMetrics(prometheus.NewRegistry())
	require.NoError(t, err)
	env := &kind.Env{
		Declared: kindtest.NewPool(t, interceptor.Funcs{}).Env.Declared, ID: "r1", SuperCache: superCache, Clock: clock, Metrics: metrics, Assignments: kindtest.Assigned{},
		Tenant:  func(string) *kind.Tenant { return tenant },
		Tenants: func() []*kind.Tenant { return []*kind.Tenant{tenant} },
	}
	var nodes engine.Kind
	for _, reconciler := range env.Reconcilers() {
		if reconciler.Name() == kind.Node {
			nodes = reconciler
		}
	}
	key := engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Node, Name: "n1"}
	require.Equal(t, []engine.Key{{Tenant: kindtest.ClusterKey, Kind: kind.Node}, key}, nodes.Keys())

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
		{name: "a pod is on it", pods: []client.Object{&corev1.Pod{}}, wantAfter: 20 * time.Second, wantThere: true, wantRenewed: 1000},
		{name: "the pod is gone", passes: 10 * time.Second, wantAfter: 20 * time.Second, wantThere: true, wantRenewed: 1000},
		{name: "the lease is due", passes: 50 * time.Second, wantAfter: 10 * time.Second, wantThere: true, wantRenewed: 1060},
		{name: "a pod comes back", pods: []client.Object{&corev1.Pod{}}, passes: 5 * time.Second, wantAfter: 20 * time.Second, wantThere: true, wantRenewed: 1060},
		{name: "it is gone again", passes: 55 * time.Second, wantAfter: 20 * time.Second, wantThere: true, wantRenewed: 1120},
		{name: "for long", passes: 60 * time.Second, wantRenewed: 1120},
	} {
		superCache[kind.Pod] = tc.pods
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

// TestNodeOfTenant lets a tenant make a Node as the syncer does, and bind a pod to it: it shows nothing of the node in
// the super cluster, and goes.
func TestNodeOfTenant(t *testing.T) {
	t.Parallel()
	superNode := builders.Node("n1").Obj()
	superNode.Labels = map[string]string{corev1.LabelTopologyZone: "z1"}
	superNode.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}}
	key := engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Node, Name: "n1"}
	for _, tc := range []struct {
		name string
		// made is whether the tenant has made the Node, bound whether it has bound a pod to it.
		made, bound bool
	}{
		{name: "a Node", made: true},
		{name: "a Node with a pod", made: true, bound: true},
		{name: "a pod without a Node", bound: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.NewPool(t, interceptor.Funcs{})
			tenantNode := &corev1.Node{}
			nodes.TenantNode(builders.Node("n1").Obj(), tenantNode, "r1", kind.VNAgent{}, nodes.NodeShare{})
			live := kindtest.NewClientBuilder().WithStatusSubresource(&corev1.Node{})
			if tc.made {
				live = live.WithObjects(tenantNode)
				p.TenantCache[kind.Node] = []client.Object{tenantNode}
			}
			if tc.bound {
				p.TenantCache[kind.Pod] = []client.Object{&corev1.Pod{}}
			}
			p.Tenant.Client = live.Build()
			p.SuperCache[kind.Node], p.SuperCache[kind.Pod] = []client.Object{superNode}, nil
			_, err := p.Kind(kind.Node).Reconcile(t.Context(), key, 0)
			require.NoError(t, err)
			after := &corev1.Node{}
			err = p.Tenant.Client.Get(t.Context(), client.ObjectKeyFromObject(tenantNode), after)
			require.Equal(t, tc.made, !apierrors.IsNotFound(err))
			require.Empty(t, after.Status.Addresses)
			require.Empty(t, after.Labels[corev1.LabelTopologyZone])
		})
	}
}

// TestNodeThatIsNeeded lets caches show no pods on a Node, and the tenant's API server one: the Node stays, because the
// tenant's controllers would delete the pod.
func TestNodeThatIsNeeded(t *testing.T) {
	t.Parallel()
	key := engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Node, Name: "n1"}
	for _, tc := range []struct {
		name      string
		pods      []client.Object
		uid       types.UID
		wantStays bool
	}{
		{name: "no pod is on it", uid: kindtest.TenantUID},
		{name: "a pod is on another", uid: kindtest.TenantUID, pods: []client.Object{builders.Pod("web", "p").Node("r1.n2").Obj()}},
		{name: "a pod is on it", uid: kindtest.TenantUID, pods: []client.Object{builders.Pod("web", "p").Node("r1.n1").Obj()}, wantStays: true},
		{name: "another control plane has no pod", uid: "another", wantStays: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.NewPool(t, interceptor.Funcs{})
			tenantNode := &corev1.Node{}
			nodes.TenantNode(builders.Node("n1").Obj(), tenantNode, "r1", kind.VNAgent{}, nodes.NodeShare{})
			p.Tenant.Client = kindtest.Answering(nodeName(kindtest.NewClientBuilder()).WithObjects(append(tc.pods, tenantNode)...).Build(), tc.uid)
			p.TenantCache[kind.Node], p.SuperCache[kind.Node] = []client.Object{tenantNode}, []client.Object{builders.Node("n1").Obj()}
			clock := testingclock.NewFakePassiveClock(time.Unix(1000, 0))
			p.Env.Clock = clock
			nodes := p.Kind(kind.Node)
			_, err := nodes.Reconcile(t.Context(), key, 0)
			require.NoError(t, err)
			clock.SetTime(clock.Now().Add(2 * time.Minute))
			_, err = nodes.Reconcile(t.Context(), key, 0)
			require.Equal(t, tc.wantStays, err != nil, "%v", err)
			err = p.Tenant.Client.Get(t.Context(), client.ObjectKeyFromObject(tenantNode), &corev1.Node{})
			require.Equal(t, tc.wantStays, err == nil, "%v", err)
		})
	}
}

// TestNodeThatIsGone lets a node go in the super cluster while pods of the tenant are bound to it: the Node goes if the
// TestNodesThatTenantsMakeUp: what a tenant makes up of Nodes costs the super cluster a bounded number of reads.
func TestNodesThatTenantsMakeUp(t *testing.T) {
	t.Parallel()
	p := kindtest.NewPool(t, interceptor.Funcs{})
	reads := 0
	super := interceptor.Funcs{Get: func(ctx context.Context, to client.WithWatch, name client.ObjectKey, object client.Object, options ...client.GetOption) error {
		if _, isNode := object.(*corev1.Node); isNode {
			reads++
		}
		return to.Get(ctx, name, object, options...)
	}}
	p.Env.Super = kindtest.Answering(kindtest.NewClientBuilder().WithInterceptorFuncs(super).Build(), kindtest.SuperUID)
	p.Env.Clock = testingclock.NewFakePassiveClock(time.Unix(10_000, 0))
	p.Tenant.Client = kindtest.Answering(nodeName(kindtest.NewClientBuilder()).Build(), kindtest.TenantUID)
	reconciler := p.Kind(kind.Node)
	for i := range 700 {
		made := &corev1.Node{}
		nodes.TenantNode(builders.Node(fmt.Sprint("n", i)).Obj(), made, "r1", kind.VNAgent{}, nodes.NodeShare{})
		p.TenantCache[kind.Node], p.TenantCache[kind.Pod] = []client.Object{made}, []client.Object{kindtest.TenantPod(kindtest.Bound(made.Name))}
		_, _ = reconciler.Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Node, Name: fmt.Sprint("n", i)}, 0)
	}
	require.Equal(t, 500, reads)
}

// super cluster says so, and nothing else proves it.
func TestNodeThatIsGone(t *testing.T) {
	t.Parallel()
	key := engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Node, Name: "n1"}
	for _, tc := range []struct {
		name   string
		change func(tenantNode *corev1.Node)
		// live are the nodes of the super cluster, uid that of the control plane that answers, err its answer.
		live      []client.Object
		uid       types.UID
		err       error
		wantStays bool
	}{
		{name: "it is gone", uid: kindtest.SuperUID},
		{name: "the cache is behind", uid: kindtest.SuperUID, live: []client.Object{builders.Node("n1").Obj()}, wantStays: true},
		{name: "the super cluster does not answer", uid: kindtest.SuperUID, err: context.DeadlineExceeded, wantStays: true},
		{name: "another control plane answers", uid: "another", wantStays: true},
		{name: "the Node is not ours", uid: kindtest.SuperUID, wantStays: true, change: func(tenantNode *corev1.Node) {
			delete(tenantNode.Labels, tenancyv1alpha1.LabelTenantNode)
		}},
		{name: "the tenant holds it", uid: kindtest.SuperUID, wantStays: true, change: func(tenantNode *corev1.Node) {
			tenantNode.DeletionTimestamp, tenantNode.Finalizers = ptr.To(metav1.Unix(1, 0)), []string{"example.com/mine"}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.NewPool(t, interceptor.Funcs{})
			super := interceptor.Funcs{Get: func(ctx context.Context, to client.WithWatch, name client.ObjectKey, object client.Object, options ...client.GetOption) error {
				if _, isNode := object.(*corev1.Node); isNode && tc.err != nil {
					return tc.err
				}
				return to.Get(ctx, name, object, options...)
			}}
			p.Env.Super = kindtest.Answering(kindtest.NewClientBuilder().WithObjects(tc.live...).WithInterceptorFuncs(super).Build(), tc.uid)
			tenantNode := &corev1.Node{}
			nodes.TenantNode(builders.Node("n1").Obj(), tenantNode, "r1", kind.VNAgent{}, nodes.NodeShare{})
			if tc.change != nil {
				tc.change(tenantNode)
			}
			pod := kindtest.TenantPod(kindtest.Bound("r1.n1"))
			p.Tenant.Client = kindtest.Answering(nodeName(kindtest.NewClientBuilder()).WithObjects(tenantNode, pod).WithStatusSubresource(tenantNode).Build(), kindtest.TenantUID)
			p.TenantCache[kind.Node], p.TenantCache[kind.Pod] = []client.Object{tenantNode}, []client.Object{pod}
			nodes, there := p.Kind(kind.Node), func() bool {
				return p.Tenant.Client.Get(t.Context(), client.ObjectKeyFromObject(tenantNode), &corev1.Node{}) == nil
			}
			_, err := nodes.Reconcile(t.Context(), key, 0)
			require.Equal(t, tc.wantStays && tc.change == nil, err != nil, "%v", err)
			require.Equal(t, tc.wantStays, there())
			if tc.wantStays {
				return
			}
			p.TenantCache[kind.Node] = nil
			_, err = nodes.Reconcile(t.Context(), key, 0)
			require.NoError(t, err)
			require.False(t, there(), "its pods do not bring it back")
			p.SuperCache[kind.Node], p.SuperCache[kind.Pod] = []client.Object{builders.Node("n1").Obj()}, []client.Object{kindtest.ProofSuperPod("uid", kindtest.OnNode("n1"))}
			_, err = nodes.Reconcile(t.Context(), key, 0)
			require.NoError(t, err)
			require.True(t, there(), "a node that is back is another one")
		})
	}
}
