package scheduling

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/proof"
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/scheduling/eviction"
	"github.com/superpool/superpool/internal/scheduling/namespacescheduler"
	"github.com/superpool/superpool/internal/scheduling/placements"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/test/builders/schedulingtest"
)

// bounded says that pods request so many cores, and that the quota for namespace web with UID 1 lets them request hard.
func bounded(requests, hard string) placement.Use {
	return placement.Use{Requests: slice.Of(schedulingtest.Cores(requests)), Hard: slice.Of(schedulingtest.Cores(hard)), NamespaceUID: "1"}
}

// answered is bounded, by a quota that answers what was decided about web in a super cluster.
func (b *tenantBed) answered(cluster, requests, hard string) placement.Use {
	use := bounded(requests, hard)
	use.Decision = placement.Decision(b.stored()["web"], cluster)
	require.NotEmpty(b, use.Decision)
	return use
}

// freed enqueues namespace web, as an event of a super cluster does.
func (b *tenantBed) freed() {
	b.waiting.Insert(dispatch.Request{Concern: dispatch.ConcernNamespace, Namespace: "web"})
}

// reserved writes what web holds as r1=2-1: two cores are reserved, of which one leaves.
func (b *tenantBed) reserved() string {
	np := b.stored()["web"]
	if np == nil {
		return "none"
	}
	text := ""
	for i := range np.Status.Placements {
		p := &np.Status.Placements[i]
		text += p.Cluster + "=" + p.Reserved.Cpu().String()
		if p.Leaving != nil {
			text += "-" + p.Leaving.Reserved.Cpu().String()
		}
		text += " "
	}
	return text
}

// placedInTwo is a bed whose namespace web holds a core in r1 and one in r2, and the syncers have written quotas.
func placedInTwo(t *testing.T) *tenantBed {
	t.Helper()
	b := newTenantBed(t, web())
	b.quota("web", "2")
	b.settle()
	b.grant("web", "r1")
	b.grant("web", "r2")
	b.usage.Set("r1", "web", bounded("0", "1"))
	b.usage.Set("r2", "web", bounded("0", "1"))
	b.settle()
	require.Equal(t, "r1=1 r2=1 ", b.reserved())
	return b
}

// TestRoomIsReleasedWhereItIsMeasured: a lowered quota gives nothing back until the super cluster shows that it is
// free, whatever the tenant's pods say.
func TestRoomIsReleasedWhereItIsMeasured(t *testing.T) {
	t.Parallel()
	b := placedInTwo(t)
	b.usage.Set("r1", "web", bounded("1", "1"))
	b.usage.Set("r2", "web", bounded("500m", "1"))
	b.quota("web", "1")
	b.settle()
	require.Equal(t, "r1=1 r2=1-1 ", b.reserved(), "the quota of r2 lets pods use it")
	require.Equal(t, `{"r1":1}`, b.due("web"), "and no new pod is sent there")
	b.wantPublished("web")

	b.usage.Set("r2", "web", bounded("500m", "0"))
	b.freed()
	b.clock.SetTime(b.clock.Now().Add(time.Hour))
	b.settle()
	require.Equal(t, "r1=1 r2=1-1 ", b.reserved(), "the quota answers an earlier decision: one that is higher may be on its way")

	b.usage.Set("r2", "web", b.answered("r2", "500m", "0"))
	b.freed()
	b.settle()
	require.Equal(t, "r1=1 r2=500m-500m ", b.reserved(), "a pod runs on")

	b.usage.Silent = sets.New("r2")
	b.usage.Set("r2", "web", b.answered("r2", "0", "0"))
	b.freed()
	b.settle()
	require.Equal(t, "r1=1 r2=500m-500m ", b.reserved(), "r2 does not answer")
	b.usage.Silent = nil
	b.freed()
	b.settle()
	require.Equal(t, "r1=1 ", b.reserved())
}

func TestAQuotaThatGrowsAgainKeepsWhatWasToLeave(t *testing.T) {
	t.Parallel()
	b := placedInTwo(t)
	b.quota("web", "1")
	b.settle()
	require.Equal(t, "r1=1 r2=1-1 ", b.reserved())
	b.quota("web", "2")
	b.settle()
	require.Equal(t, "r1=1 r2=1 ", b.reserved())
}

// gone makes the tenant's namespace web disappear, from the server and from the informer.
func (b *tenantBed) gone() {
	require.NoError(b, b.api.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("namespaces"), "", "web"))
	require.NoError(b, b.factory.Core().V1().Namespaces().Informer().GetIndexer().Delete(web()))
	b.freed()
}

// releaser is one that sees what the bed sees. It returns after how long it looks again.
func (b *tenantBed) release() time.Duration {
	releaser := &eviction.Releaser{Store: placements.NewStore(b.meta, b.meta), Usage: b.usage, Clock: b.clock}
	result, err := releaser.Reconcile(b.Context(), reconcile.Request{NamespacedName: schedulingtest.WebKey})
	require.NoError(b, err)
	return result.RequeueAfter
}

// TestANamespaceOfItsNameHoldsNoRoom: another namespace took the name of a deleted one, and its Services the super
// namespace. That has a quota, which lets nothing in.
func TestANamespaceOfItsNameHoldsNoRoom(t *testing.T) {
	t.Parallel()
	b := placedInTwo(t)
	placed := b.stored()["web"]
	placed.UID = "1" // as an API server gives one
	require.NoError(t, b.meta.Update(t.Context(), placed))
	b.gone()
	b.settle()
	deleted := b.stored()["web"]
	require.NotNil(t, deleted.DeletionTimestamp)
	b.usage.Set("r1", "web", placement.Use{Gone: true})
	for name, use := range map[string]placement.Use{
		"it lets pods in":                {Hard: slice.Of(schedulingtest.Cores("1")), Decision: placement.Decision(deleted, "r2")},
		"it answers an earlier decision": {Hard: slice.Of(schedulingtest.Cores("0")), Decision: "0"},
		"a pod terminates":               {Hard: slice.Of(schedulingtest.Cores("0")), Requests: slice.Of(schedulingtest.Cores("1")), Decision: placement.Decision(deleted, "r2")},
	} {
		b.usage.Set("r2", "web", use)
		require.Equal(t, eviction.ReleasePeriod, b.release(), name)
		require.Equal(t, "r1=1 r2=1 ", b.reserved(), name)
	}
	b.usage.Set("r2", "web", placement.Use{Hard: slice.Of(schedulingtest.Cores("0")), Decision: placement.Decision(deleted, "r2")})
	require.Zero(t, b.release())
	require.Nil(t, b.stored()["web"])
}

// TestADeletedNamespaceHoldsItsRoom until the super clusters have neither pods of it nor quotas that let any in.
func TestADeletedNamespaceHoldsItsRoom(t *testing.T) {
	t.Parallel()
	b := placedInTwo(t)
	b.gone()
	b.otherControlPlane = true
	b.look()
	_, err := b.controller.reconcile.Reconcile(t.Context(), dispatch.Request{Concern: dispatch.ConcernNamespace, Namespace: "web"})
	require.ErrorIs(t, err, proof.ErrOther)
	require.Nil(t, b.stored()["web"].DeletionTimestamp, "that another control plane does not have it proves nothing")

	b.otherControlPlane = false
	b.settle()
	require.NotNil(t, b.stored()["web"].DeletionTimestamp)
	require.Equal(t, eviction.ReleasePeriod, b.release())
	b.usage.Set("r1", "web", placement.Use{Gone: true})
	b.usage.Set("r2", "web", placement.Use{Requests: slice.Of(schedulingtest.Cores("1"))})
	require.Equal(t, eviction.ReleasePeriod, b.release())
	require.Equal(t, "r1=1 r2=1 ", b.reserved(), "a pod terminates in r2")
	b.usage.Set("r2", "web", placement.Use{})
	b.clock.SetTime(b.stored()["web"].DeletionTimestamp.Add(time.Second))
	require.Equal(t, placement.SettleTime-time.Second, b.release(), "the watch of r2 may be behind")
	b.usage.Silent = sets.New("r1")
	b.clock.SetTime(b.clock.Now().Add(time.Hour))
	require.Equal(t, eviction.ReleasePeriod, b.release(), "r1 does not answer")
	b.usage.Silent = nil
	require.Zero(t, b.release())
	require.Nil(t, b.stored()["web"])
	require.Zero(t, b.release(), "it is gone")
}

// TestADeletedPlacementIsMadeAgain as it was, where its namespace exists.
func TestADeletedPlacementIsMadeAgain(t *testing.T) {
	t.Parallel()
	b := placedInTwo(t)
	before := b.stored()["web"]
	require.NoError(t, b.meta.Delete(t.Context(), before.DeepCopy()))
	require.NotNil(t, b.stored()["web"].DeletionTimestamp, "its finalizer holds it")
	require.Equal(t, eviction.ReleasePeriod, b.release())
	b.settle()
	after := b.stored()["web"]
	require.Nil(t, after.DeletionTimestamp)
	require.Equal(t, before.Spec, after.Spec)
	require.Equal(t, before.Status.Placements, after.Status.Placements)
	b.wantPublished("web")
}

// TestADeletedPlacementKeepsWhatLeaves: a quota that lets pods use it may yet come into force.
func TestADeletedPlacementKeepsWhatLeaves(t *testing.T) {
	t.Parallel()
	b := placedInTwo(t)
	b.quota("web", "1")
	b.settle()
	require.Equal(t, "r1=1 r2=1-1 ", b.reserved())
	b.usage.Set("r2", "web", bounded("0", "0"))
	b.usage.Listing = true
	require.NoError(t, b.meta.Delete(t.Context(), b.stored()["web"]))
	b.freed()
	b.look()
	_, err := b.controller.reconcile.Reconcile(t.Context(), dispatch.Request{Concern: dispatch.ConcernNamespace, Namespace: "web"})
	require.NoError(t, err)
	require.NotNil(t, b.stored()["web"].DeletionTimestamp, "what is held is not known")
	b.usage.Listing = false
	b.settle()
	require.Nil(t, b.stored()["web"].DeletionTimestamp)
	require.Equal(t, "r1=1 r2=1-1 ", b.reserved())
}

// TestALostPlacementAdopts what the quotas of super clusters hold, before the namespace scheduler may place anything.
func TestALostPlacementAdopts(t *testing.T) {
	t.Parallel()
	b := placedInTwo(t)
	b.usage.Set("r3", "web", placement.Use{Hard: slice.Of(schedulingtest.Cores("1")), NamespaceUID: "of an earlier namespace"})
	lost := b.stored()["web"]
	require.NoError(t, b.meta.Update(t.Context(), withoutFinalizers(lost.DeepCopy())))
	require.NoError(t, b.meta.Delete(t.Context(), lost.DeepCopy()))
	require.Nil(t, b.stored()["web"])
	b.usage.Listing = true
	b.start()
	for range 3 {
		b.look()
		_, err := b.controller.reconcile.Reconcile(t.Context(), dispatch.Request{Concern: dispatch.ConcernNamespace, Namespace: "web"})
		require.NoError(t, err)
	}
	made := b.stored()["web"]
	require.False(t, placement.IsDecided(made))
	require.Empty(t, view.Slices(namespacescheduler.ToBePlaced(made)), "no slice waits to be placed")
	b.usage.Listing = false
	b.settle()
	require.Equal(t, "r1=1 r2=1 ", b.reserved())
	require.Equal(t, lost.Status.Placements, b.stored()["web"].Status.Placements)
}

func withoutFinalizers(np *schedulerv1alpha1.NamespacePlacement) *schedulerv1alpha1.NamespacePlacement {
	np.Finalizers = nil
	return np
}

// TestExistingPlacementsGetTheFinalizer: those that were made by an earlier version.
func TestExistingPlacementsGetTheFinalizer(t *testing.T) {
	t.Parallel()
	b := placedInTwo(t)
	require.NoError(t, b.meta.Update(t.Context(), withoutFinalizers(b.stored()["web"])))
	b.freed()
	b.settle()
	require.True(t, controllerutil.ContainsFinalizer(b.stored()["web"], schedulerv1alpha1.FinalizerUsage))
}

// TestFreed: only NamespacePlacements that wait are enqueued.
func TestFreed(t *testing.T) {
	t.Parallel()
	d := dispatch.New(false)
	var told []string
	defer d.Subscribe("tenant", dispatch.Subscriber{Freed: func(namespace string) { told = append(told, namespace) }})()
	d.Freed(schedulingtest.WebKey)
	d.Freed(client.ObjectKey{Namespace: "other", Name: "web"})
	require.Equal(t, []string{"web"}, told)

	releaser := &eviction.Releaser{Clock: testingclock.NewFakePassiveClock(time.Now())}
	releaser.Freed(schedulingtest.WebKey)
	releaser.SetWaiting(schedulingtest.WebKey, true)
	releaser.Freed(schedulingtest.WebKey) // without a queue: it has not started
}
