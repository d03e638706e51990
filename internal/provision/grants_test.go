package provision

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// closed keeps vc-manager from the Secrets of a namespace, until what it returns is called, as the meta cluster does
// until vc-scheduler has written a RoleBinding.
func (b *bed) closed(namespace string) (grant func()) {
	before := b.reconciler.Reader
	b.reconciler.Reader = interceptor.NewClient(before.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if _, is := o.(*corev1.Secret); is && key.Namespace == namespace {
				return apierrors.NewForbidden(corev1.Resource("secrets"), key.Name, errors.New(`User "vc-manager" cannot get it`))
			}
			return c.Get(ctx, key, o, options...)
		},
	})
	return func() { b.reconciler.Reader = before }
}

// TestNothingIsGrantedYet: a control plane waits for vc-scheduler, says so, and is made as soon as it may be.
func TestNothingIsGrantedYet(t *testing.T) {
	t.Parallel()
	for _, namespace := range []string{root, "default"} {
		t.Run(namespace, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, nil)
			grant := b.closed(namespace)
			b.reconcile() // also where one round has told where it is reached
			b.reconcile()
			missing, message := b.conditions()
			require.Equal(t, map[string]string{tenancyv1alpha1.ConditionUpToDate: tenancyv1alpha1.ReasonWaiting}, missing)
			require.Contains(t, message, "Waiting for vc-scheduler, which lets vc-manager into namespace "+namespace+": ")
			require.Contains(t, message, "cannot get it")
			require.Empty(t, b.exists())
			require.LessOrEqual(t, b.reconcile().RequeueAfter, time.Second)
			b.clock.SetTime(b.clock.Now().Add(20 * time.Second))
			again := b.reconcile().RequeueAfter
			require.True(t, again > time.Second && again <= 21*time.Second, "%s: as long as it has waited", again)
			b.clock.SetTime(b.clock.Now().Add(time.Hour))
			require.Equal(t, mendingPeriod, b.reconcile().RequeueAfter, "vc-scheduler does not run")

			grant()
			b.reconcile()
			_, message = b.conditions()
			require.Equal(t, "Waiting for etcd", message)
			require.NotEmpty(t, b.exists())
		})
	}
}

// TestAnImportedTenantWaits: nothing is said of one that is imported, which may need nothing of vc-manager.
func TestAnImportedTenantWaits(t *testing.T) {
	t.Parallel()
	o := newPool(t, func(vc *tenancyv1alpha1.VirtualCluster) {
		imported(vc)
		vc.CreationTimestamp = metav1.Now()
	})
	o.create(o.serving, o.authority)
	grant := o.closed("default")
	require.Equal(t, time.Second, o.reconcile().RequeueAfter)
	require.Empty(t, o.valid())
	o.clock.SetTime(o.clock.Now().Add(time.Hour))
	require.Equal(t, mendingPeriod, o.reconcile().RequeueAfter)
	grant()
	o.reconcile()
	require.Equal(t, "True: ", o.valid())
	o.closed("default")
	o.reconcile()
	require.Equal(t, "True: ", o.valid())
}
