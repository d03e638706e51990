package grants

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/test/builders"
)

var request = reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: "a"}}

// bed is a meta cluster with VirtualCluster a, whose root namespace is key.
type bed struct {
	client.Client
	clock *clocktesting.FakePassiveClock
	// writes counts patches, which fail while fail is set.
	writes int
	fail   error
	// refuses refuses a patch, nil for none.
	refuses func(client.Object) error
}

func newBed(t *testing.T, objects ...client.Object) *bed {
	t.Helper()
	s := runtime.NewScheme()
	require.NoError(t, errors.Join(scheme.AddToScheme(s), tenancyv1alpha1.AddToScheme(s), schedulerv1alpha1.AddToScheme(s)))
	vc := builders.VirtualCluster("a")
	vc.Status.ClusterNamespace = "key"
	objects = append(objects, vc, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "key", Annotations: map[string]string{
		tenancyv1alpha1.AnnotationRootNamespace: "true", tenancyv1alpha1.AnnotationVirtualClusterUID: string(vc.UID),
	}}})
	b := &bed{clock: clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))}
	b.Client = fake.NewClientBuilder().WithScheme(s).WithObjects(builders.Copies(objects)...).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			b.writes++
			if b.fail != nil {
				return b.fail
			}
			if b.refuses != nil {
				if err := b.refuses(object); err != nil {
					return err
				}
			}
			return c.Patch(ctx, object, patch, options...)
		},
	}).Build()
	return b
}

// controller returns a Controller that has seen nothing, as after a restart.
func (b *bed) controller() *Controller {
	return &Controller{Client: b.Client, Reader: b.Client, SyncerNamespace: "vc-manager", Clock: b.clock}
}

// readers returns the service accounts that may read the kubeconfig of a.
func (b *bed) readers(t *testing.T) []string {
	t.Helper()
	role, binding := &rbacv1.Role{}, &rbacv1.RoleBinding{}
	name := client.ObjectKey{Namespace: "default", Name: "superpool:kubeconfig:a"}
	require.NoError(t, b.Get(t.Context(), name, role))
	require.NoError(t, b.Get(t.Context(), name, binding))
	require.Empty(t, cmp.Diff([]rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"a"}, Verbs: []string{"get"}}}, role.Rules))
	require.Equal(t, rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: name.Name}, binding.RoleRef)
	for _, object := range []client.Object{role, binding} {
		require.True(t, metav1.IsControlledBy(object, builders.VirtualCluster("a")), "it goes with the VirtualCluster")
	}
	names := []string{}
	for _, subject := range binding.Subjects {
		require.Equal(t, rbacv1.Subject{Kind: "ServiceAccount", Namespace: "vc-manager", Name: subject.Name}, subject)
		names = append(names, subject.Name)
	}
	return names
}

func (b *bed) reconcile(t *testing.T, c *Controller) reconcile.Result {
	t.Helper()
	result, err := c.Reconcile(t.Context(), request)
	require.NoError(t, err)
	return result
}

// TestReconcile follows one tenant from its first placement to its last, over a restart.
func TestReconcile(t *testing.T) {
	t.Parallel()
	b := newBed(t,
		builders.Placement("key", "one").Held("r1", 1).Held("r2", 1).Obj(),
		builders.Placement("key", "two").Held("r2", 1).Obj(),
		builders.Placement("another", "three").Held("r3", 1).Obj(),
	)
	c := b.controller()
	b.reconcile(t, c)
	require.Equal(t, []string{"vc-syncer-r1", "vc-syncer-r2"}, b.readers(t))
	require.Equal(t, 6, b.writes)
	b.reconcile(t, c)
	require.Equal(t, 6, b.writes, "nothing changed, nothing is written")

	require.NoError(t, b.Delete(t.Context(), builders.Placement("key", "one").Obj()))
	b.reconcile(t, c)
	require.Equal(t, []string{"vc-syncer-r1", "vc-syncer-r2"}, b.readers(t), "the syncer of r1 still has to clean up")

	c = b.controller()
	b.reconcile(t, c)
	require.Equal(t, []string{"vc-syncer-r1", "vc-syncer-r2"}, b.readers(t), "a restart takes nothing back")
	b.clock.SetTime(b.clock.Now().Add(linger))
	require.LessOrEqual(t, b.reconcile(t, c).RequeueAfter, checkPeriod)
	require.Equal(t, []string{"vc-syncer-r2"}, b.readers(t))
}

// TestDrift has somebody change what was granted.
func TestDrift(t *testing.T) {
	t.Parallel()
	b := newBed(t, builders.Placement("key", "one").Held("r1", 1).Obj())
	c := b.controller()
	b.reconcile(t, c)
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "superpool:kubeconfig:a"}}
	require.NoError(t, b.Delete(t.Context(), binding))
	b.clock.SetTime(b.clock.Now().Add(checkPeriod))
	b.reconcile(t, c)
	require.Equal(t, []string{"vc-syncer-r1"}, b.readers(t))
}

// TestLostWrite loses a write: the next reconcile repeats it.
func TestLostWrite(t *testing.T) {
	t.Parallel()
	b := newBed(t, builders.Placement("key", "one").Held("r1", 1).Obj())
	c := b.controller()
	b.fail = errors.New("timeout")
	_, err := c.Reconcile(t.Context(), request)
	require.ErrorIs(t, err, b.fail)
	b.fail = nil
	b.reconcile(t, c)
	require.Equal(t, []string{"vc-syncer-r1"}, b.readers(t))
}

// TestGone forgets a VirtualCluster that was deleted.
func TestGone(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	c := b.controller()
	b.reconcile(t, c)
	require.Empty(t, b.readers(t), "nobody may read it")
	require.NoError(t, b.Delete(t.Context(), builders.VirtualCluster("a")))
	b.reconcile(t, c)
	require.Empty(t, c.granted)
}
