package syncer_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// TestNothingIsLostAtTheSwitch: a tenant is watched by namespace and as a whole in turns. What it writes and deletes
// meanwhile is so in the super cluster.
func TestNothingIsLostAtTheSwitch(t *testing.T) {
	const namespaces, rounds = 5, 12
	w := newWorld(t, needs{})
	w.follow(t, func(*tenancyv1alpha1.TenantPolicySpec) {})
	for i := range namespaces {
		w.place(t, fmt.Sprintf("n%d", i), "r1")
		for round := range rounds {
			create(t, w.tenant, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("n%d", i), Name: fmt.Sprintf("old-%d", round)}})
		}
	}
	_, stop := w.runSyncer(t, w.superConfig)
	defer stop()
	for i := range namespaces {
		w.same(t, fmt.Sprintf("n%d", i))
	}
	for round := range rounds {
		w.follow(t, func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Limits.Watches = []int32{32, 200}[round%2] })
		for i := range namespaces {
			namespace := fmt.Sprintf("n%d", i)
			create(t, w.tenant, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("new-%d", round)}})
			require.NoError(t, w.tenant.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("old-%d", round)}}))
		}
		if round%3 == 2 { // others begin while one is under way
			for i := range namespaces {
				w.same(t, fmt.Sprintf("n%d", i))
			}
		}
	}
	for i := range namespaces {
		w.same(t, fmt.Sprintf("n%d", i))
	}
}

// same waits until a super namespace has the ConfigMaps of the tenant's namespace.
func (w *world) same(t *testing.T, namespace string) {
	t.Helper()
	names := func(c client.Client, namespace string) ([]string, error) {
		var list corev1.ConfigMapList
		err := c.List(t.Context(), &list, client.InNamespace(namespace))
		all := map[string]bool{}
		for i := range list.Items {
			all[list.Items[i].Name] = true
		}
		return slices.Sorted(maps.Keys(all)), err
	}
	eventually(t, func() error {
		wanted, err := names(w.tenant, namespace)
		if err != nil {
			return err
		}
		found, err := names(w.super, w.superName(namespace))
		if err == nil && !slices.Equal(wanted, found) {
			err = fmt.Errorf("the super cluster has %s, the tenant %s", found, wanted)
		}
		return err
	})
}
