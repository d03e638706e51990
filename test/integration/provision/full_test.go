package provision

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// TestAFullStore: a tenant fills its etcd, which takes no writes any more, and says so. When the tenant has deleted something
// it takes writes again, and nobody lends a hand.
func TestAFullStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, time.Hour)
	w.whole(t, "v1.37.2")
	w.change(t, func(version *tenancyv1alpha1.ClusterVersionSpec) {
		version.Etcd.ExtraArgs = map[string]string{"quota-backend-bytes": "16777216", "auto-compaction-retention": "1s"}
	})
	says := func(reason string) bool {
		version := &tenancyv1alpha1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "v1.37"}} // an event has vc-manager look at once
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata": {"annotations": {"now": %q}}}`, time.Now()))
		require.NoError(t, w.client.Patch(t.Context(), version, patch))
		said := meta.FindStatusCondition(w.current(t).Status.Conditions, tenancyv1alpha1.ConditionEtcdReady)
		return said != nil && said.Reason == reason
	}
	configs := w.tenant(t).CoreV1().ConfigMaps("default")
	large := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "large-", Labels: map[string]string{"large": "true"}}, Data: map[string]string{"x": strings.Repeat("x", 900_000)}}
	refused := false
	require.Eventually(t, func() bool { // etcd is replaced meanwhile, which refuses, too, and takes writes again while something is free in its file
		for err := error(nil); err == nil; {
			_, err = configs.Create(t.Context(), large, metav1.CreateOptions{})
			refused = refused || err != nil && strings.Contains(err.Error(), "database space exceeded")
		}
		return refused && says(tenancyv1alpha1.ReasonStoreFull)
	}, patience, time.Second, "the store is full")
	require.NoError(t, configs.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "large=true"}))
	require.Eventually(t, func() bool { return says(tenancyv1alpha1.ReasonWhole) }, patience, time.Second, "it takes writes again")
	w.remember(t, "after")
}
