package kind_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

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
	"github.com/superpool/superpool/test/builders/kindtest"
)

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
