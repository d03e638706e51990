package copier_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// TestDrift lets the tenant and others change a ConfigMap: what others did to the copy is counted, once, and put right.
func TestDrift(t *testing.T) {
	t.Parallel()
	const none, one = "", `
		# HELP vc_syncer_drift_total [ALPHA] Copies in the super cluster that others than the syncer changed or deleted, and that are put right, by kind.
		# TYPE vc_syncer_drift_total counter
		vc_syncer_drift_total{kind="configmap"} 1
	`
	for _, tc := range []struct {
		name string
		// change acts on what was in sync.
		change func(t *testing.T, b *driftBed)
		want   string
	}{
		{name: "nobody does anything", change: func(*testing.T, *driftBed) {}, want: none},
		{name: "the tenant changes it", want: none, change: func(_ *testing.T, b *driftBed) {
			changed := b.TenantCache[kind.ConfigMap][0].DeepCopyObject().(*corev1.ConfigMap)
			changed.Data["color"], changed.ResourceVersion = "red", "2"
			b.TenantCache[kind.ConfigMap] = []client.Object{changed}
		}},
		{name: "somebody changes the copy", want: one, change: func(t *testing.T, b *driftBed) {
			copied := b.copied(t)
			copied.Data["color"] = "red"
			require.NoError(t, b.SuperClient.Update(t.Context(), copied))
		}},
		{name: "somebody deletes the copy", want: one, change: func(t *testing.T, b *driftBed) {
			require.NoError(t, b.SuperClient.Delete(t.Context(), b.copied(t)))
		}},
		{name: "somebody adds what is not ours", want: none, change: func(t *testing.T, b *driftBed) {
			copied := b.copied(t)
			copied.Labels["pool.example.com/team"] = "a"
			require.NoError(t, b.SuperClient.Update(t.Context(), copied))
		}},
		{name: "the namespace leaves and is back", want: none, change: func(t *testing.T, b *driftBed) {
			require.NoError(t, b.SuperClient.Delete(t.Context(), b.copied(t)))
			namespaces := b.SuperCache[kind.Namespace]
			b.SuperCache[kind.Namespace] = nil
			b.reconcile(t)
			b.SuperCache[kind.Namespace] = namespaces
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			registry := prometheus.NewRegistry()
			metrics, err := engine.NewMetrics(registry)
			require.NoError(t, err)
			b := &driftBed{Pool: kindtest.NewPool(t, interceptor.Funcs{})}
			b.Placed(t)
			b.Env.Metrics, b.configMaps = metrics, b.Kind(kind.ConfigMap)
			b.TenantCache[kind.ConfigMap] = []client.Object{&corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "settings", UID: "map-uid", ResourceVersion: "1"}, Data: map[string]string{"color": "blue"},
			}}
			for range 2 { // it is created, and then seen to be right
				b.reconcile(t)
			}
			tc.change(t, b)
			for range 3 {
				b.reconcile(t)
			}
			require.Equal(t, b.TenantCache[kind.ConfigMap][0].(*corev1.ConfigMap).Data, b.copied(t).Data)
			require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(tc.want), "vc_syncer_drift_total"))
		})
	}
}

// driftBed is a pool whose cache of super ConfigMaps shows what is there at each reconcile.
type driftBed struct {
	*kindtest.Pool
	configMaps engine.Kind
}

func (b *driftBed) reconcile(t *testing.T) {
	t.Helper()
	list := &corev1.ConfigMapList{}
	require.NoError(t, b.SuperClient.List(t.Context(), list))
	b.SuperCache[kind.ConfigMap] = nil
	for i := range list.Items {
		b.SuperCache[kind.ConfigMap] = append(b.SuperCache[kind.ConfigMap], &list.Items[i])
	}
	_, err := b.configMaps.Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.ConfigMap, Namespace: "web", Name: "settings"}, 0)
	require.NoError(t, err)
}

func (b *driftBed) copied(t *testing.T) *corev1.ConfigMap {
	t.Helper()
	copied := &corev1.ConfigMap{}
	require.NoError(t, b.SuperClient.Get(t.Context(), client.ObjectKey{Namespace: kindtest.ClusterKey + "-web", Name: "settings"}, copied))
	return copied
}
