package kind_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// TestLabelIsPutBack takes the label off objects of a super namespace, so that no cache shows them: who has all other
// marks of exactly this object gets it back, and nothing is done to others.
func TestLabelIsPutBack(t *testing.T) {
	t.Parallel()
	inside, outside := metav1.ObjectMeta{Namespace: "web", Name: "x", UID: "uid"}, metav1.ObjectMeta{Namespace: kindtest.ClusterKey + "-web", Name: "x"}
	for _, each := range []struct {
		name          string
		tenant, super client.Object
	}{
		{kind.ConfigMap, &corev1.ConfigMap{ObjectMeta: inside}, &corev1.ConfigMap{ObjectMeta: outside}},
		{kind.Secret, &corev1.Secret{ObjectMeta: inside}, &corev1.Secret{ObjectMeta: outside}},
		{kind.Service, &corev1.Service{ObjectMeta: inside}, &corev1.Service{ObjectMeta: outside}},
		{kind.ServiceAccount, &corev1.ServiceAccount{ObjectMeta: inside}, &corev1.ServiceAccount{ObjectMeta: outside}},
		{kind.Namespace, builders.Namespace("web"), builders.Namespace(kindtest.ClusterKey + "-web")},
	} {
		for _, tc := range []struct {
			name   string
			damage func(object client.Object)
			want   bool
		}{
			{name: "the label is gone", want: true, damage: func(object client.Object) { kindtest.WithoutLabel(object) }},
			{name: "the label is another tenant's", want: true, damage: func(object client.Object) {
				object.GetLabels()[tenancyv1alpha1.LabelCluster] = "other"
			}},
			{name: "it was made for another object", damage: func(object client.Object) {
				object.GetAnnotations()[tenancyv1alpha1.AnnotationUID] = "another"
				kindtest.WithoutLabel(object)
			}},
			{name: "it is another tenant's", damage: func(object client.Object) {
				object.GetAnnotations()[tenancyv1alpha1.AnnotationVirtualClusterUID] = "another"
				kindtest.WithoutLabel(object)
			}},
			{name: "somebody made it", damage: func(object client.Object) {
				object.SetLabels(nil)
				object.SetAnnotations(nil)
			}},
		} {
			t.Run(each.name+"/"+tc.name, func(t *testing.T) {
				t.Parallel()
				p := kindtest.NewPool(t, interceptor.Funcs{})
				p.Placed(t)
				tenantObject, superObject := each.tenant.DeepCopyObject().(client.Object), each.super.DeepCopyObject().(client.Object)
				tenantObject.SetUID("ns-uid")
				superObject.SetUID("super-uid")
				tenancy.SetOwner(superObject, kindtest.OwnerOf("ns-uid"))
				tc.damage(superObject)
				key := engine.Key{Tenant: kindtest.ClusterKey, Kind: each.name, Namespace: "web", Name: "x"}
				if each.name == kind.ConfigMap {
					superObject.SetName("x")
				}
				if each.name == kind.Namespace {
					key.Namespace, key.Name = "", "web"
					p.SuperCache[kind.Namespace] = nil
				}
				p.TenantCache[each.name] = []client.Object{tenantObject}
				require.NoError(t, p.SuperClient.Create(t.Context(), superObject))
				before := superObject.DeepCopyObject().(client.Object)

				_, err := p.Kind(each.name).Reconcile(t.Context(), key, 0)
				live := superObject.DeepCopyObject().(client.Object)
				require.NoError(t, p.SuperClient.Get(t.Context(), client.ObjectKeyFromObject(superObject), live))
				if !tc.want {
					require.NoError(t, err)
					require.Empty(t, cmp.Diff(before, live, cmpopts.EquateEmpty()), "it is not touched")
					require.Contains(t, <-p.Events.Events, "Conflict")
					return
				}
				wait := &engine.WaitError{}
				require.ErrorAs(t, err, &wait, "the informer has yet to show it")
				owner, owned := tenancy.GetOwner(live)
				require.True(t, owned)
				require.Equal(t, kindtest.OwnerOf("ns-uid"), owner)
				require.Empty(t, p.Events.Events)
			})
		}
	}
}
