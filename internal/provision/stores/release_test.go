package stores

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/test/builders/etcdtest"
)

const noRoot = "its namespace is not said to be a tenant's root namespace: take the finalizer out"

// TestRelease: what a tenant has in an external store goes when its root namespace is being deleted, a part at a time,
// and before that nothing, nor anything of others.
func TestRelease(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		with func(*bed)
		// kept is whether all stays, and waits what is said.
		kept  bool
		waits string
	}{
		"a reconcile may run yet": {kept: true, with: func(b *bed) { b.later(-settledTime) }},
		"it says nothing": {kept: true, waits: "it does not say where the external etcd is: say it again, or take the finalizer out", with: func(b *bed) {
			told := b.told()
			told.Data = nil
			b.update(told)
		}},
		"goes":                          {},
		"many keys go a part at a time": {with: func(b *bed) { b.shared.Keys["/superpool/uid/"] = 3 * clearedKeys * clearedTimes }},
		"the namespace stays":           {kept: true, with: func(b *bed) { b.changes = append(b.changes, func(o *corev1.Namespace) { o.DeletionTimestamp = nil }) }},
		"it is no root namespace": {kept: true, waits: noRoot, with: func(b *bed) {
			b.changes = append(b.changes, func(o *corev1.Namespace) { delete(o.Annotations, tenancyv1alpha1.AnnotationRootNamespace) })
		}},
		"it is nobody's": {kept: true, waits: noRoot, with: func(b *bed) {
			b.changes = append(b.changes, func(o *corev1.Namespace) { delete(o.Annotations, tenancyv1alpha1.AnnotationVirtualClusterUID) })
		}},
		"another store": {
			kept: true, waits: "At https://a:2379,https://b:2379 is another etcd, of ID c, than the one with the tenant's objects, of ID a",
			with: func(b *bed) { b.shared.Identity = "c" },
		},
		"a store that is silent": {
			kept: true, waits: "The external etcd at https://a:2379,https://b:2379 does not answer vc-manager",
			with: func(b *bed) { b.shared.Err = errors.New("no answer") },
		},
		"no Secret": {
			kept: true, waits: "There is no Secret vc-manager/external, of type tenancy.x-k8s.io/external-etcd, which has the authorities of the external etcd: create it",
			with: func(b *bed) {
				b.delete(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "vc-manager", Name: "external"}})
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			require.Zero(t, b.make(b.plane()))
			at := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(b.told())}
			_, err := b.stores.release(t.Context(), at)
			require.NoError(t, err)
			require.NotEmpty(t, b.shared.Users, "nothing is being deleted")
			b.delete(b.told())
			deleted := metav1.NewTime(b.clock.Now())
			b.changes = append(b.changes, func(o *corev1.Namespace) { o.DeletionTimestamp = &deleted })
			b.later(settledTime)
			if test.with != nil {
				test.with(b)
			}
			for range 4 {
				result, err := b.stores.release(t.Context(), at)
				require.NoError(t, err)
				if result.RequeueAfter == 0 {
					break
				}
			}
			require.Equal(t, b.dials, b.shared.Closed, "connections are closed")
			require.Contains(t, b.shared.Keys, "/superpool/other/")
			err = b.client.Get(t.Context(), at.NamespacedName, &corev1.ConfigMap{})
			if test.kept {
				require.NoError(t, err)
				require.Equal(t, test.waits, b.told().Data["deletion-waits-for"])
				require.NotEmpty(t, b.shared.Users)
				require.Contains(t, b.shared.Keys, "/superpool/uid/")
				return
			}
			require.True(t, apierrors.IsNotFound(err), "%v", err)
			require.Empty(t, b.shared.Users)
			require.NotContains(t, b.shared.Keys, "/superpool/uid/")
		})
	}
}

// unyielding is an external store that does not delete its users, or keys.
type unyielding struct {
	*etcdtest.Shared
	expel, clear error
}

func (u *unyielding) Expel(ctx context.Context, user string) error {
	if u.expel != nil {
		return u.expel
	}
	return u.Shared.Expel(ctx, user)
}

func (u *unyielding) Clear(ctx context.Context, prefix string, most int64) (bool, error) {
	if u.clear != nil {
		return false, u.clear
	}
	return u.Shared.Clear(ctx, prefix, most)
}

// TestReleaseGoesOn: no key goes before the user has, and the ConfigMap stays until all have, whatever fails meanwhile.
func TestReleaseGoesOn(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	require.Zero(t, b.make(b.plane()))
	at := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(b.told())}
	b.delete(b.told())
	deleted := metav1.NewTime(b.clock.Now())
	b.changes = append(b.changes, func(o *corev1.Namespace) { o.DeletionTimestamp = &deleted })
	b.later(settledTime)
	release := func(failing unyielding) {
		t.Helper()
		failing.Shared = b.shared
		b.as = func() SharedEtcd { return &failing }
		_, err := b.stores.release(t.Context(), at)
		require.NoError(t, err)
		require.Equal(t, b.dials, b.shared.Closed, "connections are closed")
	}
	release(unyielding{expel: errors.New("no answer")})
	require.Equal(t, "the external etcd, which fails: the log of vc-manager says how", b.told().Data[waitsFor])
	require.NotEmpty(t, b.shared.Users)
	require.Contains(t, b.shared.Keys, "/superpool/uid/")
	release(unyielding{clear: errors.New("no answer")})
	require.NotEmpty(t, b.told().Finalizers)
	require.Empty(t, b.shared.Users)
	require.Contains(t, b.shared.Keys, "/superpool/uid/")
	release(unyielding{})
	require.NotContains(t, b.shared.Keys, "/superpool/uid/")
	require.True(t, apierrors.IsNotFound(b.client.Get(t.Context(), at.NamespacedName, &corev1.ConfigMap{})))
}
