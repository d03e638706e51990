package kinds_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// TestWaitForPredecessor: an object whose name is still taken below, by an earlier one that is ending there, says so
// once it has waited for a moment.
func TestWaitForPredecessor(t *testing.T) {
	t.Parallel()
	ending := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	pod := kindtest.TenantPod(func(pod *corev1.Pod) { pod.Labels = map[string]string{schedulerv1alpha1.LabelSuperCluster: "r1"} })
	claim := kindtest.TenantClaim("claim-uid", kindtest.Home("r1"))
	taken := kindtest.Snapshot(nil, nil)
	taken.SetNamespace("web")
	taken.SetName("s")
	taken.SetUID("snapshot-uid")
	taken.SetAnnotations(map[string]string{schedulerv1alpha1.AnnotationSuperCluster: "r1"})
	for _, tc := range []struct {
		kind            string
		tenant, earlier client.Object
		want            string
	}{
		{
			kind: kind.Pod, tenant: pod, earlier: &corev1.Pod{},
			want: "Warning WaitsForPredecessor An earlier pod of that name is still ending in super cluster r1, where its containers have until 2026-01-02T03:04:05Z: " +
				"this one is created there once it has ended. One of another name need not wait",
		},
		{
			kind:   kind.ConfigMap,
			tenant: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "c", UID: "uid"}}, earlier: &corev1.ConfigMap{},
			want: "Warning WaitsForPredecessor Super cluster r1 is still deleting an earlier configmap of that name: this one goes there once that is gone. " +
				"One of another name need not wait",
		},
		{
			kind: kind.Claim, tenant: claim, earlier: &corev1.PersistentVolumeClaim{},
			want: "Warning WaitsForPredecessor Super cluster r1 is still deleting an earlier persistentvolumeclaim of that name: this one goes there once that is gone. " +
				"One of another name need not wait",
		},
		{
			kind: kind.Snapshot, tenant: taken, earlier: kindtest.Snapshot(nil, nil),
			want: "Warning WaitsForPredecessor Super cluster r1 is still deleting an earlier volumesnapshot of that name: this one goes there once that is gone. " +
				"One of another name need not wait",
		},
	} {
		t.Run(tc.kind, func(t *testing.T) {
			t.Parallel()
			p := kindtest.NewPool(t, interceptor.Funcs{})
			p.Placed(t)
			p.Tenant.Policy = &policy.Ref{}
			p.Tenant.Policy.Set(kindtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Offers.VolumeSnapshotClasses = []string{"quick"} }))
			earlier := builders.Owned(tc.earlier, kindtest.OwnerOf("earlier"))
			earlier.SetNamespace(kindtest.ClusterKey + "-web")
			earlier.SetName(tc.tenant.GetName())
			earlier.SetDeletionTimestamp(&ending)
			p.TenantCache[tc.kind], p.SuperCache[tc.kind] = []client.Object{tc.tenant}, []client.Object{earlier}
			kind, key := p.Kind(tc.kind), engine.Key{Tenant: kindtest.ClusterKey, Kind: tc.kind, Namespace: "web", Name: tc.tenant.GetName()}
			_, err := kind.Reconcile(t.Context(), key, 0)
			wait := &engine.WaitError{}
			require.ErrorAs(t, err, &wait)
			require.Empty(t, p.Told())
			for range 2 {
				_, err = kind.Reconcile(t.Context(), key, 2*time.Second)
				require.NoError(t, err)
			}
			require.Equal(t, []string{tc.want}, p.Told())
		})
	}
}
