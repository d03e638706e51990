package scheduling

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/scheduling/namespaces"
)

// pause pauses the tenant, or lets it go on, as tenants.Controller and tenantController.followPolicy do.
func (b *tenantBed) pause(paused bool) {
	b.policy.Pause(paused)
	for _, namespace := range b.controller.limits.All() {
		b.waiting.Insert(dispatch.Request{Concern: dispatch.ConcernNamespace, Namespace: namespace})
	}
	b.settle()
}

// TestATenantIsPaused: its pods are evicted, what they leave is given back, and afterwards its namespaces ask for what
// they had.
func TestATenantIsPaused(t *testing.T) {
	t.Parallel()
	b := newTenantBed(t, web())
	b.quota("web", "1")
	b.settle()
	b.grant("web", "r1")
	b.settle()
	evicts := &noted{}
	b.controller.reconcile[dispatch.ConcernNamespace].(*namespaces.Reconciler).Evictor = evicts
	b.usage.Set("r1", "web", bounded("1", "1"))
	b.recorded()
	b.pause(true)
	require.Equal(t, "r1=1-1 ", b.reserved())
	require.Contains(t, evicts.lines, "web r1 cpu=1 Paused")

	b.usage.Set("r1", "web", b.answered("r1", "0", "0"))
	b.freed()
	b.settle()
	require.Empty(t, b.reserved())
	b.wantPublished("web")
	np := b.stored()["web"]
	require.Empty(t, placement.Missing(np), "no scheduler places it")
	require.True(t, np.Spec.Paused)
	require.Equal(t, "1", np.Spec.Quota.Cpu().String(), "what it asks for is remembered, and counts for the tenant's limits")

	b.tenantWrites("web", `{"r2":1}`)
	b.settle()
	b.wantPublished("web")
	require.Contains(t, b.recorded(), "Warning PlacementsRestored Annotation scheduler.tenancy.x-k8s.io/placements was changed and restored: the tenant is paused")

	b.start() // another process finds what was remembered
	b.pause(false)
	np = b.stored()["web"]
	require.Equal(t, []placement.PinnedRun{{Run: placement.Missing(np)[0], Cluster: "r1"}}, placement.Pinned(np))
	b.grant("web", "r1")
	b.settle()
	require.Equal(t, "r1=1 ", b.reserved())
	require.Nil(t, b.stored()["web"].Status.Requested, "the request has ended")
	b.wantPublished("web")
}

// TestANamespaceOfAPausedTenant that is new waits, and one whose annotation is invalid has what it had afterwards.
func TestANamespaceOfAPausedTenant(t *testing.T) {
	t.Parallel()
	b := newTenantBed(t, web())
	b.pause(true)
	b.quota("web", "2")
	b.settle()
	np := b.stored()["web"]
	require.Empty(t, placement.Missing(np))
	condition := meta.FindStatusCondition(np.Status.Conditions, schedulerv1alpha1.ConditionPlaced)
	require.Equal(t, []string{schedulerv1alpha1.ReasonPaused, "The operator has paused the tenant: nothing is placed"}, []string{condition.Reason, condition.Message})
	namespace := web()
	namespace.Annotations = map[string]string{schedulerv1alpha1.AnnotationSlice: "{"}
	require.NoError(t, b.api.Tracker().Update(corev1.SchemeGroupVersion.WithResource("namespaces"), namespace, ""))
	b.pause(false)
	require.Equal(t, int64(2), placement.Missing(b.stored()["web"])[0].Count)
}

// TestANamespaceThatNeverEndsIsPaused: a finalizer of the tenant keeps nothing of the pool.
func TestANamespaceThatNeverEndsIsPaused(t *testing.T) {
	t.Parallel()
	b := newTenantBed(t, web())
	b.quota("web", "1")
	b.settle()
	b.grant("web", "r1")
	b.settle()
	evicts := &noted{}
	b.controller.reconcile[dispatch.ConcernNamespace].(*namespaces.Reconciler).Evictor = evicts
	b.usage.Set("r1", "web", bounded("1", "1"))
	ends := web()
	ends.DeletionTimestamp, ends.Finalizers = ptr.To(metav1.NewTime(b.clock.Now())), []string{"example.com/never"}
	require.NoError(t, b.api.Tracker().Update(corev1.SchemeGroupVersion.WithResource("namespaces"), ends, ""))
	b.settle()
	require.Equal(t, "r1=1 ", b.reserved())
	require.Empty(t, evicts.lines)
	b.pause(true)
	require.Equal(t, "r1=1-1 ", b.reserved())
	require.Contains(t, evicts.lines, "web r1 cpu=1 Paused")
	b.usage.Set("r1", "web", b.answered("r1", "0", "0"))
	b.freed()
	b.settle()
	require.Empty(t, b.reserved())
	b.pause(false)
	require.Empty(t, placement.Missing(b.stored()["web"]), "nothing is placed for what ends")
}
