package kinds_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/namespaces"
	"github.com/superpool/superpool/internal/syncer/kinds/podspec"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// trusted are keys that programs of super clusters trust.
var trusted = map[string]string{
	"openpolicyagent.org/webhook": "ignore", "admission.gatekeeper.sh/ignore": "x", "eks.amazonaws.com/role-arn": "arn:x",
	"k8s.v1.cni.cncf.io/networks": "host", "cni.projectcalico.org/ipAddrsNoIpam": "[]", "io.kubernetes.cri-o.userns-mode": "auto",
	"metallb.universe.tf/allow-shared-ip": "x", "openshift.io/node-selector": "", "istio-injection": "disabled", "team": "infra",
}

// TestTrustedMetadata lets a tenant write the keys that a super cluster's policies and controllers trust.
func TestTrustedMetadata(t *testing.T) {
	t.Parallel()
	with := func(key, value string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Namespace: "web", Name: "web", Labels: map[string]string{key: value, "app.kubernetes.io/name": "web"}, Annotations: map[string]string{key: value},
		}
	}
	for key, value := range trusted {
		pod := kindtest.TenantPod(nil)
		pod.Labels, pod.Annotations = with(key, value).Labels, with(key, value).Annotations
		superPod, superNamespace := &corev1.Pod{}, &corev1.Namespace{}
		podspec.SuperPod(pod, superPod, kindtest.OwnerOf("pod-uid"), nil, &podspec.PodEnvironment{})
		namespaces.SuperNamespace(&corev1.Namespace{ObjectMeta: with(key, value)}, superNamespace, kindtest.OwnerOf("ns-uid"), nil, "baseline")
		for _, metadata := range []map[string]string{superPod.Annotations, superNamespace.Labels, superNamespace.Annotations} {
			require.NotContains(t, metadata, key)
		}
		if strings.Contains(key, "/") {
			require.NotContains(t, superPod.Labels, key)
		} else {
			require.Contains(t, superPod.Labels, key, "keys without a domain describe pods")
		}
		require.Equal(t, "web", superPod.Labels["app.kubernetes.io/name"])
		require.NotContains(t, superNamespace.Labels, "app.kubernetes.io/name")
	}
}

// limitedTo is a policy with a limit of ConfigMaps in a super cluster.
func limitedTo(t *testing.T, count int64, bytes string) *policy.Policy {
	t.Helper()
	return kindtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
		spec.Limits.Objects = []tenancyv1alpha1.ObjectLimit{{Resource: "configmaps", Count: count, Bytes: resource.MustParse(bytes)}}
	})
}

// TestTenantLimit lets a tenant make more ConfigMaps than its policy allows, before the cache of the super cluster
// shows any, and then removes one.
func TestTenantLimit(t *testing.T) {
	t.Parallel()
	p := kindtest.NewPool(t, interceptor.Funcs{})
	p.Placed(t)
	p.Tenant.Policy = &policy.Ref{}
	p.Tenant.Policy.Set(limitedTo(t, 3, "1Mi"))
	configMap := func(i int) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: fmt.Sprint("c", i), UID: types.UID(fmt.Sprint("uid-", i))}}
	}
	key := func(i int) engine.Key {
		return engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.ConfigMap, Namespace: "web", Name: fmt.Sprint("c", i)}
	}
	for i := range 6 {
		p.TenantCache[kind.ConfigMap] = append(p.TenantCache[kind.ConfigMap], configMap(i))
	}
	reconciler := p.Kind(kind.ConfigMap)
	there := func() []client.Object {
		list := &corev1.ConfigMapList{}
		require.NoError(t, p.SuperClient.List(t.Context(), list))
		var found []client.Object
		for i := range list.Items {
			found = append(found, &list.Items[i])
		}
		return found
	}
	for i := range 6 {
		_, err := reconciler.Reconcile(t.Context(), key(i), 0)
		require.NoError(t, err)
	}
	require.Len(t, there(), 3)
	require.Len(t, p.Events.Events, 3)
	require.Contains(t, <-p.Events.Events, "TenantLimit Super cluster r1: 3 configmaps of at most 3 exist (limits.objects of TenantPolicy small)")

	for _, object := range there() {
		keys := p.Env.Changed(kind.Change{Kind: kind.ConfigMap, Side: kind.SuperSide, Current: object})
		require.NotEmpty(t, keys)
	}
	_, err := reconciler.Reconcile(t.Context(), key(4), 0)
	require.NoError(t, err)
	require.Len(t, there(), 3, "the cache shows them now")

	gone := there()[0]
	woken := p.Env.Changed(kind.Change{Kind: kind.ConfigMap, Side: kind.SuperSide, Old: gone})
	require.Len(t, woken, 2, "the key of the object, and one that waits")
	_, err = reconciler.Reconcile(t.Context(), woken[0], 0)
	require.NoError(t, err)
	require.Len(t, there(), 4, "three as the cache has it, and the one that is gone")
}

// TestTenantLimitOfBytes lets a tenant fill a super cluster with few large objects.
func TestTenantLimitOfBytes(t *testing.T) {
	t.Parallel()
	p := kindtest.NewPool(t, interceptor.Funcs{})
	p.Placed(t)
	p.Tenant.Policy = &policy.Ref{}
	p.Tenant.Policy.Set(limitedTo(t, 100, "10Ki"))
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "c", UID: "uid"}, Data: map[string]string{"d": "small"}}
	p.TenantCache[kind.ConfigMap] = []client.Object{configMap}
	key := engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.ConfigMap, Namespace: "web", Name: "c"}
	reconciler := p.Kind(kind.ConfigMap)
	reconcile := func() *corev1.ConfigMap {
		_, err := reconciler.Reconcile(t.Context(), key, 0)
		require.NoError(t, err)
		live := &corev1.ConfigMap{}
		require.NoError(t, p.SuperClient.Get(t.Context(), client.ObjectKey{Namespace: kindtest.ClusterKey + "-web", Name: "c"}, live))
		return live
	}
	live := reconcile()
	p.Env.Changed(kind.Change{Kind: kind.ConfigMap, Side: kind.SuperSide, Current: live})
	p.SuperCache[kind.ConfigMap] = []client.Object{live}
	configMap.Data["d"] = strings.Repeat("x", 20_000)
	require.Equal(t, "small", reconcile().Data["d"], "an update that grows is held against the limit")
	require.Regexp(t, `TenantLimit Super cluster r1: configmaps of \d+ bytes exist, this one adds \d+, and at most 10240 are allowed`, <-p.Events.Events)
	configMap.Data["d"] = "s"
	live = reconcile()
	require.Equal(t, "s", live.Data["d"])
	p.SuperCache[kind.ConfigMap] = []client.Object{live}
	p.Tenant.Policy.Set(limitedTo(t, 0, "0"))
	configMap.Data["d"] = ""
	require.Empty(t, reconcile().Data["d"], "what is there may shrink")
}

// TestClosedSuperCluster lets a tenant name a super cluster itself whose virtual Node takes no pods.
func TestClosedSuperCluster(t *testing.T) {
	t.Parallel()
	taint := func(key string, effect corev1.TaintEffect) func(*corev1.Node) {
		return func(node *corev1.Node) { node.Spec.Taints = []corev1.Taint{{Key: key, Effect: effect}} }
	}
	for _, tc := range []struct {
		name    string
		change  func(*corev1.Node)
		tolerat []corev1.Toleration
		want    bool
	}{
		{name: "open", change: func(*corev1.Node) {}, want: true},
		{name: "the taint of virtual Nodes", change: taint("virtual-kubelet.io/provider", corev1.TaintEffectNoSchedule), want: true},
		{name: "cordoned", change: func(node *corev1.Node) { node.Spec.Unschedulable = true }},
		{
			name: "cordoned, and tolerated", change: func(node *corev1.Node) { node.Spec.Unschedulable = true },
			tolerat: []corev1.Toleration{{Key: "node.kubernetes.io/unschedulable", Operator: corev1.TolerationOpExists}},
		},
		{name: "NoSchedule", change: taint("maintenance", corev1.TaintEffectNoSchedule)},
		{name: "NoExecute", change: taint("maintenance", corev1.TaintEffectNoExecute)},
		{name: "PreferNoSchedule", change: taint("maintenance", corev1.TaintEffectPreferNoSchedule), want: true},
		{
			name: "tolerated", change: taint("maintenance", corev1.TaintEffectNoExecute), want: true,
			tolerat: []corev1.Toleration{{Key: "maintenance", Operator: corev1.TolerationOpExists}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			created := false
			p := kindtest.NewPool(t, interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
				created = true
				return nil
			}})
			p.Placed(t)
			p.Tenant.Policy = &policy.Ref{}
			p.Tenant.Policy.Set(kindtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
				spec.Pods.Tolerations = []tenancyv1alpha1.TolerationRule{{Key: "maintenance"}, {Key: "node.kubernetes.io/unschedulable"}}
			}))
			node := builders.Node("r1").Obj()
			tc.change(node)
			p.Env.VirtualNode = func() *corev1.Node { return node }
			p.SuperCache[kind.ServiceAccount] = []client.Object{&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: kindtest.ClusterKey + "-web", Name: "default"}}}
			pod := kindtest.TenantPod(func(pod *corev1.Pod) { pod.Spec.Tolerations = tc.tolerat })
			p.TenantCache[kind.Pod] = []client.Object{pod}
			key := engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Pod, Namespace: "web", Name: pod.Name}
			_, err := p.Kind(kind.Pod).Reconcile(t.Context(), key, 2e9)
			wait := &engine.WaitError{}
			require.Equal(t, tc.want, created)
			if tc.want {
				require.NoError(t, err)
				return
			}
			require.ErrorAs(t, err, &wait)
			require.Contains(t, <-p.Events.Events, "SuperClusterClosed Super cluster r1 takes no new pods")
		})
	}
}

// TestLongestGrace holds that no super pod takes longer to end than the policy allows.
func TestLongestGrace(t *testing.T) {
	t.Parallel()
	year := int64(31_536_000)
	for _, tc := range []struct {
		name string
		// tenant is the tenant's pod, nil if it has deleted it with force.
		tenant *corev1.Pod
		change func(superPod *corev1.Pod)
		// want is the grace period of the deletion, nil for none, -1 for the pod's own.
		want *int64
	}{
		{name: "an orphan with a year", change: func(superPod *corev1.Pod) { superPod.Spec.TerminationGracePeriodSeconds = &year }, want: ptrTo(600)},
		{name: "an orphan with little", change: func(*corev1.Pod) {}, want: ptrTo(-1)},
		{name: "an orphan that is being deleted for a year", change: kindtest.Terminating(year), want: ptrTo(600)},
		{name: "an orphan that is being deleted", change: kindtest.Terminating(30)},
		{name: "the tenant deletes it within a year", tenant: kindtest.ProofPod("uid", kindtest.Terminating(year)), change: func(*corev1.Pod) {}, want: ptrTo(600)},
		{name: "it is being deleted for a year", tenant: kindtest.ProofPod("uid", kindtest.Terminating(year)), change: kindtest.Terminating(year), want: ptrTo(600)},
		{name: "it is being deleted for as long as may be", tenant: kindtest.ProofPod("uid", kindtest.Terminating(year)), change: kindtest.Terminating(600)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var got *int64
			p := kindtest.NewPool(t, interceptor.Funcs{Delete: func(_ context.Context, _ client.WithWatch, _ client.Object, options ...client.DeleteOption) error {
				deletion := (&client.DeleteOptions{}).ApplyOptions(options)
				got = deletion.GracePeriodSeconds
				if got == nil {
					got = ptrTo(-1)
				}
				return nil
			}})
			superPod := kindtest.ProofSuperPod("uid", tc.change)
			p.SuperCache[kind.Pod] = []client.Object{superPod}
			tenantSide := kindtest.NewClientBuilder()
			if tc.tenant != nil {
				p.TenantCache[kind.Pod] = []client.Object{tc.tenant}
				tenantSide = tenantSide.WithInterceptorFuncs(interceptor.Funcs{})
			}
			p.Tenant.Client = kindtest.Answering(tenantSide.Build(), kindtest.TenantUID)
			key := engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Pod, Namespace: "web", Name: superPod.Name}
			_, err := p.Kind(kind.Pod).Reconcile(t.Context(), key, 0)
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(tc.want, got))
		})
	}
}

func ptrTo(value int64) *int64 { return &value }

// TestTenantLimitBehindCache lets a tenant change what the cache of the super cluster does not show yet: its objects
// stay counted.
func TestTenantLimitBehindCache(t *testing.T) {
	t.Parallel()
	refused := apierrors.NewForbidden(corev1.Resource("configmaps"), "c", nil)
	for _, tc := range []struct {
		name string
		// data is what the tenant writes to its objects after they were created.
		data string
		// update is the answer to updates, create to the creation of the first object once it is written; nil for none.
		update, create error
		// lost is whether the first object is not written.
		lost bool
		// want is the number of objects in the end.
		want int
	}{
		{name: "nothing", want: 3},
		{name: "their content", data: "new", want: 3},
		{name: "their content, and the super cluster refuses it", data: "new", update: refused, want: 3},
		{name: "one that was written without an answer", create: context.DeadlineExceeded, want: 3},
		{name: "one that the super cluster refuses", create: refused, lost: true, want: 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.NewPool(t, interceptor.Funcs{
				Create: func(ctx context.Context, to client.WithWatch, object client.Object, options ...client.CreateOption) error {
					if object.GetName() != "c0" {
						return to.Create(ctx, object, options...)
					}
					if tc.lost {
						return tc.create
					}
					return errors.Join(to.Create(ctx, object, options...), tc.create)
				},
				Update: func(ctx context.Context, to client.WithWatch, object client.Object, options ...client.UpdateOption) error {
					if tc.update != nil {
						return tc.update
					}
					return to.Update(ctx, object, options...)
				},
			})
			p.Placed(t)
			p.Tenant.Policy = &policy.Ref{}
			p.Tenant.Policy.Set(limitedTo(t, 3, "1Mi"))
			for i := range 6 {
				p.TenantCache[kind.ConfigMap] = append(p.TenantCache[kind.ConfigMap],
					&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: fmt.Sprint("c", i), UID: types.UID(fmt.Sprint("uid-", i))}})
			}
			reconciler := p.Kind(kind.ConfigMap)
			reconcile := func(from, to int) {
				for i := from; i < to; i++ {
					_, _ = reconciler.Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.ConfigMap, Namespace: "web", Name: fmt.Sprint("c", i)}, 0)
				}
			}
			reconcile(0, 3)
			for _, object := range p.TenantCache[kind.ConfigMap] {
				object.(*corev1.ConfigMap).Data = map[string]string{"d": tc.data}
			}
			reconcile(0, 3)
			reconcile(3, 6)
			list := &corev1.ConfigMapList{}
			require.NoError(t, p.SuperClient.List(t.Context(), list))
			require.Len(t, list.Items, tc.want)
		})
	}
}

// lateCache shows a ConfigMap from the second look on.
type lateCache struct {
	kind.Cache
	looked bool
}

func (c *lateCache) Get(kindName, namespace, name string) (client.Object, bool) {
	object, synced := c.Cache.Get(kindName, namespace, name)
	if kindName == kind.ConfigMap && !c.looked {
		c.looked = true
		return nil, synced
	}
	return object, synced
}

// TestTenantLimitAsTheCacheCatchesUp: an object that comes into the cache while it is created again counts once.
func TestTenantLimitAsTheCacheCatchesUp(t *testing.T) {
	t.Parallel()
	p := kindtest.NewPool(t, interceptor.Funcs{})
	p.Placed(t)
	p.Tenant.Policy = &policy.Ref{}
	p.Tenant.Policy.Set(limitedTo(t, 2, "1Mi"))
	for _, name := range []string{"c0", "c1"} {
		p.TenantCache[kind.ConfigMap] = append(p.TenantCache[kind.ConfigMap],
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, UID: types.UID("uid-" + name)}})
	}
	reconcile := func(name string) {
		_, err := p.Kind(kind.ConfigMap).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.ConfigMap, Namespace: "web", Name: name}, 0)
		require.NoError(t, err)
	}
	created := func() []corev1.ConfigMap {
		list := &corev1.ConfigMapList{}
		require.NoError(t, p.SuperClient.List(t.Context(), list))
		return list.Items
	}
	reconcile("c0")
	require.Len(t, created(), 1)
	first := &created()[0]
	p.SuperCache[kind.ConfigMap] = []client.Object{first}
	p.Env.Changed(kind.Change{Kind: kind.ConfigMap, Side: kind.SuperSide, Current: first})
	p.Env.SuperCache = &lateCache{Cache: p.Env.SuperCache}
	reconcile("c0")
	reconcile("c1")
	require.Len(t, created(), 2)
}
