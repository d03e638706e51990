package copier_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// TestCopiesThatWereMadeImmutable: what somebody makes immutable in a super cluster follows the tenant nevertheless: it
// is deleted, and created again, once the tenant changes it.
func TestCopiesThatWereMadeImmutable(t *testing.T) {
	t.Parallel()
	of := map[string]func(uid types.UID, content string, immutable *bool) client.Object{
		kind.ConfigMap: func(uid types.UID, content string, immutable *bool) client.Object {
			return &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "c", UID: uid}, Data: map[string]string{"a": content},
				BinaryData: map[string][]byte{"b": []byte(content)}, Immutable: immutable,
			}
		},
		kind.Secret: func(uid types.UID, content string, immutable *bool) client.Object {
			return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "c", UID: uid}, Data: map[string][]byte{"a": []byte(content)}, Immutable: immutable}
		},
	}
	for _, tc := range []struct {
		name string
		// before is what the copy was made of, and frozen whether the copy was made immutable then.
		before, now string
		frozen      bool
		immutable   *bool
		want        []string
	}{
		{name: "it is as it was", before: "1", now: "1"},
		{name: "it has changed", before: "1", now: "2", want: []string{"update"}},
		{name: "it was made immutable, and is as it was", before: "1", now: "1", frozen: true},
		{name: "it was made immutable, and has changed", before: "1", now: "2", frozen: true, want: []string{"delete super-uid", "create"}},
		{name: "the tenant's becomes immutable", before: "1", now: "1", immutable: ptr.To(true), want: []string{"update"}},
		{name: "both are immutable", before: "1", now: "1", frozen: true, immutable: ptr.To(true)},
	} {
		for kind, object := range of {
			t.Run(kind+"/"+tc.name, func(t *testing.T) {
				t.Parallel()
				var got []string
				var superObject client.Object
				p := kindtest.NewPool(t, interceptor.Funcs{
					Create: func(_ context.Context, _ client.WithWatch, created client.Object, _ ...client.CreateOption) error {
						got, superObject = append(got, "create"), created
						return nil
					},
					Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error {
						got = append(got, "update")
						return nil
					},
					Delete: func(_ context.Context, _ client.WithWatch, _ client.Object, options ...client.DeleteOption) error {
						got = append(got, "delete "+string(*(&client.DeleteOptions{}).ApplyOptions(options).Preconditions.UID))
						return nil
					},
				})
				p.Placed(t)
				reconciler := p.Kind(kind)
				reconcile := func(inTenant client.Object) {
					p.TenantCache[kind] = []client.Object{inTenant}
					_, err := reconciler.Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind, Namespace: "web", Name: "c"}, 0)
					require.NoError(t, err)
				}
				reconcile(object("uid", tc.before, nil))
				require.Equal(t, []string{"create"}, got)
				got = nil
				superObject.SetUID("super-uid")
				if tc.frozen {
					switch superObject := superObject.(type) {
					case *corev1.ConfigMap:
						superObject.Immutable = ptr.To(true)
					case *corev1.Secret:
						superObject.Immutable = ptr.To(true)
					}
				}
				p.SuperCache[kind] = []client.Object{superObject}
				reconcile(object("uid", tc.now, tc.immutable))
				if len(got) > 0 && got[0] == "delete super-uid" {
					p.SuperCache[kind] = nil
					reconcile(object("uid", tc.now, tc.immutable))
				}
				require.Equal(t, tc.want, got)
				if !slices.Contains(tc.want, "create") {
					return
				}
				// What is made immutable there is no longer what was written, at once and again.
				changed := object("super-uid", "changed below", ptr.To(true))
				changed.SetNamespace(superObject.GetNamespace())
				changed.SetLabels(superObject.GetLabels())
				changed.SetAnnotations(superObject.GetAnnotations())
				p.SuperCache[kind], got = []client.Object{changed}, nil
				for range 3 {
					reconcile(object("uid", tc.now, tc.immutable))
				}
				require.Empty(t, got, "it is not created again without end")
			})
		}
	}
}
