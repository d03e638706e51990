package kind_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/kindtest"
)

func TestQuotaWaiters(t *testing.T) {
	t.Parallel()
	var waiters kind.QuotaWaiters
	first, second := engine.Key{Tenant: "a", Namespace: "web", Name: "1"}, engine.Key{Tenant: "a", Namespace: "web", Name: "2"}
	others := []engine.Key{{Tenant: "a", Namespace: "db", Name: "1"}, {Tenant: "b", Namespace: "web", Name: "1"}}
	none := func(tenant, namespace string) {
		t.Helper()
		_, waits := waiters.Next(tenant, namespace)
		require.False(t, waits)
	}
	none("a", "web")
	waiters.Remove(first)
	for _, key := range append(others, first, second, first) {
		waiters.Add(key)
	}
	got := map[engine.Key]bool{}
	for range 2 {
		key, waits := waiters.Next("a", "web")
		require.True(t, waits)
		got[key] = true
	}
	require.Equal(t, map[engine.Key]bool{first: true, second: true}, got)
	none("a", "web")
	waiters.Remove(others[0])
	none("a", "db")
	key, waits := waiters.Next("b", "web")
	require.True(t, waits)
	require.Equal(t, others[1], key)
}

// TestForget lets a tenant leave and come back: what was said to it is said again, and nobody of it waits.
func TestForget(t *testing.T) {
	t.Parallel()
	p := kindtest.NewPool(t, interceptor.Funcs{})
	pod := builders.Pod("web", "pinned").UID("pod-uid").Node("node-1").Obj()
	p.TenantCache[kind.Pod] = []client.Object{pod}
	p.SuperCache[kind.Pod] = nil
	key := engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Pod, Namespace: "web", Name: "pinned"}
	said := func() int {
		t.Helper()
		_, err := p.Kind(kind.Pod).Reconcile(t.Context(), key, 0)
		require.NoError(t, err)
		count := len(p.Events.Events)
		for range count {
			require.Contains(t, <-p.Events.Events, tenancy.ReasonNodeNameNotSupported)
		}
		return count
	}
	other := engine.Key{Tenant: "other", Namespace: "web", Name: "1"}
	p.Env.QuotaWaiters.Add(key)
	p.Env.QuotaWaiters.Add(other)
	require.Equal(t, 1, said())
	p.Env.Forget("other")
	require.Zero(t, said())
	p.Env.Forget(kindtest.ClusterKey)
	require.Equal(t, 1, said())
	for _, tenant := range []string{kindtest.ClusterKey, "other"} {
		_, waits := p.Env.QuotaWaiters.Next(tenant, "web")
		require.False(t, waits, tenant)
	}
}
