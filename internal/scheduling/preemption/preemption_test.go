package preemption

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/kubescheduler"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/placer"
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/scheduling/eviction"
	"github.com/superpool/superpool/internal/scheduling/namespacescheduler"
	"github.com/superpool/superpool/internal/scheduling/placements"
	"github.com/superpool/superpool/internal/scheduling/tenantevents"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/manifests/profiles"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/schedulingtest"
)

// guaranteeBed is super cluster r1 of four cores, all of which borrower has, while owner waits for three that are
// guaranteed to it. The real namespace scheduler places what waits; everything else runs when the test says.
type guaranteeBed struct {
	*testing.T
	api    client.WithWatch
	usage  *schedulingtest.Measured
	clock  *testingclock.FakePassiveClock
	config *config.KubeSchedulerConfiguration
	node   *corev1.Node
	// registry is that of all processes.
	registry *prometheus.Registry

	store     *placements.Store
	guarantor *Guarantor
	preemptor *Preemptor
	evacuator *eviction.Evacuator
}

func newGuaranteeBed(t *testing.T) *guaranteeBed {
	t.Helper()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	borrower := builders.Placement("borrower", "b").UID("b").Slice("cpu", "1").Quota("cpu", "4").Held("r1", 4, "cpu", "4").Obj()
	owner := builders.Placement("owner", "a").UID("a").Slice("cpu", "1").Quota("cpu", "3").Obj()
	owner.Spec.Guaranteed = schedulingtest.Cores("3")
	for _, np := range []*schedulerv1alpha1.NamespacePlacement{borrower, owner} {
		np.Status, _, _ = placement.Next(np, placement.Facts{Now: now})
	}
	b := &guaranteeBed{T: t, api: schedulingtest.NewMetaCluster(t, borrower, owner).Client, usage: &schedulingtest.Measured{}, clock: testingclock.NewFakePassiveClock(now), registry: prometheus.NewRegistry()}
	b.usage.Set("r1", "b", placement.Use{Requests: slice.Of(schedulingtest.Cores("4")), Hard: slice.Of(schedulingtest.Cores("4"))})
	var err error
	b.config, err = kubescheduler.LoadConfig("", profiles.NamespaceScheduler)
	require.NoError(t, err)
	b.node = builders.VirtualNode("r1", "cpu", "4").Obj()
	b.node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	b.restart()
	b.guarantee("owner")
	b.guarantee("borrower")
	return b
}

// restart is another process.
func (b *guaranteeBed) restart() {
	b.store = placements.NewStore(b.api, b.api)
	var err error
	b.store.Metrics, err = placements.NewMetrics(b.registry)
	require.NoError(b, err)
	b.guarantor = &Guarantor{Store: b.store, Clock: b.clock}
	b.preemptor = &Preemptor{
		Store: b.store, Reader: schedulingtest.PoolReader{Reader: b.api, Nodes: []*corev1.Node{b.node}}, Usage: b.usage, Config: b.config, Grace: 10 * time.Minute, Clock: b.clock,
	}
	b.evacuator = &eviction.Evacuator{Store: b.store, Usage: b.usage, LostToleration: time.Minute, Clock: b.clock}
	b.evacuator.SetNode(b.node)
}

// schedule runs the namespace scheduler until the test ends.
func (b *guaranteeBed) schedule() {
	ctx, cancel := context.WithCancel(schedulertest.Context(b.T))
	nodes := view.NewNodeSource()
	nodes.Set("r1", b.node)
	scheduler := &namespacescheduler.Scheduler{Informers: schedulingtest.NewInformers(ctx, b.api, nodes), Cached: b.api, Live: b.api, Store: placements.NewStore(b.api, b.api), Config: b.config}
	done := make(chan error, 1)
	go func() { done <- scheduler.Start(ctx) }()
	b.Cleanup(func() {
		cancel()
		require.NoError(b, <-done)
	})
}

func (b *guaranteeBed) get(tenant, name string) *schedulerv1alpha1.NamespacePlacement {
	b.Helper()
	np := &schedulerv1alpha1.NamespacePlacement{}
	require.NoError(b, b.api.Get(b.Context(), client.ObjectKey{Namespace: tenant, Name: name}, np))
	return np
}

func (b *guaranteeBed) change(tenant, name string, change func(*schedulerv1alpha1.NamespacePlacement)) {
	b.Helper()
	_, err := placements.NewStore(b.api, b.api).Change(b.Context(), client.ObjectKey{Namespace: tenant, Name: name}, func(np *schedulerv1alpha1.NamespacePlacement) error {
		change(np)
		return nil
	})
	require.NoError(b, err)
}

func (b *guaranteeBed) guarantee(tenant string) {
	b.Helper()
	_, err := b.guarantor.Reconcile(schedulertest.Context(b.T), reconcile.Request{NamespacedName: types.NamespacedName{Name: tenant}})
	require.NoError(b, err)
}

func (b *guaranteeBed) preempt() time.Duration {
	b.Helper()
	result, err := b.preemptor.Reconcile(schedulertest.Context(b.T), reconcile.Request{NamespacedName: types.NamespacedName{Name: "owner"}})
	require.NoError(b, err)
	return result.RequeueAfter
}

func (b *guaranteeBed) leave() {
	b.Helper()
	_, err := b.evacuator.Reconcile(schedulertest.Context(b.T), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "borrower", Name: "b"}})
	require.NoError(b, err)
}

// refused says that the namespace scheduler has refused owner.
func (b *guaranteeBed) refused() {
	b.Helper()
	b.change("owner", "a", func(np *schedulerv1alpha1.NamespacePlacement) {
		np.Status, _, _ = placement.Next(np, placement.Facts{Now: b.clock.Now(), Unschedulable: "too little free"})
	})
}

func (b *guaranteeBed) leaving() *schedulerv1alpha1.Leaving {
	return b.get("borrower", "b").Status.Placements[0].Leaving
}

// TestWhatIsGuaranteedIsGivenBack is the whole cycle, with another process at each step.
func TestWhatIsGuaranteedIsGivenBack(t *testing.T) {
	t.Parallel()
	b := newGuaranteeBed(t)
	require.True(t, placement.IsGuaranteed(b.get("owner", "a")))
	require.Zero(t, b.preempt(), "nothing is refused yet")
	b.schedule()
	require.Eventually(t, func() bool { return waitsForGuaranteed(b.get("owner", "a")) }, schedulertest.Patience, 5*time.Millisecond)

	require.Equal(t, PreemptionPeriod, b.preempt())
	require.True(t, placement.IsNominated(b.get("owner", "a"), "r1"))
	require.Equal(t, schedulerv1alpha1.LeavingPreempted, b.leaving().Reason)
	require.Equal(t, "owner/a", b.leaving().For)
	for range 2 {
		before, nominated := b.get("borrower", "b").Status.Placements, b.get("owner", "a").Status.Nominated
		b.restart()
		b.guarantee("owner")
		b.preempt()
		b.leave()
		b.clock.SetTime(b.clock.Now().Add(time.Minute))
		require.Equal(t, before, b.get("borrower", "b").Status.Placements, "nothing follows until the pods have ended")
		require.Equal(t, nominated, b.get("owner", "a").Status.Nominated)
	}
	thief := builders.Placement("thief", "c").UID("c").Slice("cpu", "1").Quota("cpu", "2").Obj()
	thief.Status, _, _ = placement.Next(thief, placement.Facts{Now: b.clock.Now()})
	require.NoError(t, b.api.Create(t.Context(), thief))

	b.usage.Set("r1", "b", placement.Use{Decision: placement.Decision(b.get("borrower", "b"), "r1")})
	b.leave()
	placed := func() bool { return placement.Encode(b.get("owner", "a").Status.Placements) == `{"r1":3}` }
	require.Eventually(t, placed, schedulertest.Patience, 5*time.Millisecond)
	require.Nil(t, b.get("owner", "a").Status.Nominated)
	require.Zero(t, b.preempt(), "it has all that is guaranteed")
	require.Empty(t, b.get("borrower", "b").Status.Placements)
	require.Equal(t, "cpu=4", placement.Lacking(b.get("borrower", "b")).String(), "it waits for room elsewhere")
}

// TestNobodyGivesWayForNothing: what was to give way stays when the room is not waited for any more.
func TestNobodyGivesWayForNothing(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*guaranteeBed){
		"the quota was lowered": func(b *guaranteeBed) {
			b.change("owner", "a", func(np *schedulerv1alpha1.NamespacePlacement) {
				np.Spec.Quota = schedulingtest.Cores("1")
				np.Status, _, _ = placement.Next(np, placement.Facts{Now: b.clock.Now()})
			})
		},
		"nothing is guaranteed any more": func(b *guaranteeBed) {
			b.change("owner", "a", func(np *schedulerv1alpha1.NamespacePlacement) { np.Spec.Guaranteed = nil })
			b.guarantee("owner")
		},
		"it was deleted": func(b *guaranteeBed) { require.NoError(b, b.api.Delete(b.Context(), b.get("owner", "a"))) },
		"there is room": func(b *guaranteeBed) {
			b.change("owner", "a", func(np *schedulerv1alpha1.NamespacePlacement) {
				np.Status, _, _ = placement.Next(np, placement.Facts{Now: b.clock.Now(), Granted: map[string]slice.Amounts{"r2": slice.Of(schedulingtest.Cores("3"))}})
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newGuaranteeBed(t)
			b.refused()
			b.preempt()
			require.NotNil(t, b.leaving())
			end(b)
			b.leave()
			require.Nil(t, b.leaving())
		})
	}
}

// TestPreemptionAfterACrash: the process ended after it had nominated, before anything gave way.
func TestPreemptionAfterACrash(t *testing.T) {
	t.Parallel()
	b := newGuaranteeBed(t)
	b.refused()
	require.NoError(t, b.preemptor.nominate(t.Context(), b.get("owner", "a"), map[string]slice.Amounts{"r1": slice.Of(schedulingtest.Cores("3"))}))
	require.Nil(t, b.leaving())
	b.restart()
	b.preempt()
	require.NotNil(t, b.leaving())
}

// TestPreemptionIsBounded: a tenant that nobody can give way to is looked after less and less often, and who gave way
// to it does not do so again for an hour.
func TestPreemptionIsBounded(t *testing.T) {
	t.Parallel()
	b := newGuaranteeBed(t)
	b.refused()
	b.change("borrower", "b", func(np *schedulerv1alpha1.NamespacePlacement) {
		np.Status.Preemptions = []schedulerv1alpha1.Preemption{{By: "owner", Time: metav1.NewTime(b.clock.Now().Add(-PreemptionPeriod))}}
	})
	for _, want := range []time.Duration{1, 2, 4, 8, 10, 10} {
		delay := b.preempt()
		require.Equal(t, want*time.Minute, delay)
		require.Equal(t, delay, b.preempt(), "it is not looked for again before")
		b.clock.SetTime(b.clock.Now().Add(delay))
	}
	require.Nil(t, b.leaving())
	b.clock.SetTime(b.clock.Now().Add(time.Hour))
	require.Equal(t, PreemptionPeriod, b.preempt())
	require.NotNil(t, b.leaving())
	for result, want := range map[placements.PreemptionResult]float64{placements.PreemptionNone: 6, placements.PreemptionNominated: 1, placements.PreemptionFree: 0, placements.PreemptionChanged: 0, placements.PreemptionError: 0} {
		require.InDelta(t, want, schedulingtest.MetricValue(t, b.registry, "vc_scheduler_preemptions_total", string(result)), 0, result)
	}
}

// TestPreemptionInVain: for a tenant that lets others give way and does not take the room is searched less and less
// often, whatever it asks for in between, until it takes it.
func TestPreemptionInVain(t *testing.T) {
	t.Parallel()
	b := newGuaranteeBed(t)
	ask := func(cpu string) {
		b.change("owner", "a", func(np *schedulerv1alpha1.NamespacePlacement) {
			np.Spec.Quota = schedulingtest.Cores(cpu)
			np.Status, _, _ = placement.Next(np, placement.Facts{Now: b.clock.Now()})
		})
	}
	nominate := func() {
		t.Helper()
		b.leave()
		b.change("borrower", "b", func(np *schedulerv1alpha1.NamespacePlacement) { np.Status.Preemptions = nil })
		b.refused()
		require.Equal(t, PreemptionPeriod, b.preempt())
		require.NotNil(t, b.get("owner", "a").Status.Nominated)
	}
	nominate()
	for _, want := range []time.Duration{10 * time.Minute, 20 * time.Minute, 40 * time.Minute, time.Hour, time.Hour} {
		ask("0")
		require.Equal(t, want, b.preempt())
		b.clock.SetTime(b.clock.Now().Add(want / 2))
		ask("3")
		b.refused()
		require.Equal(t, want/2, b.preempt(), "nothing waited, and that is not forgotten")
		require.Nil(t, b.get("owner", "a").Status.Nominated)
		b.clock.SetTime(b.clock.Now().Add(want / 2))
		nominate()
	}
	b.change("owner", "a", func(np *schedulerv1alpha1.NamespacePlacement) {
		np.Status, _, _ = placement.Next(np, placement.Facts{Now: b.clock.Now(), Granted: map[string]slice.Amounts{"r1": slice.Of(schedulingtest.Cores("3"))}})
	})
	b.preempt()
	require.Zero(t, b.preemptor.searched["owner"].backoff)
	b.clock.SetTime(b.clock.Now().Add(PreemptionPeriod))
	require.Zero(t, b.preempt())
	require.Empty(t, b.preemptor.searched)
}

// TestPreemptionInVainIsForgotten: what another process has nominated counts, and all is forgotten in the end.
func TestPreemptionInVainIsForgotten(t *testing.T) {
	t.Parallel()
	b := newGuaranteeBed(t)
	b.refused()
	b.preempt()
	b.restart()
	b.clock.SetTime(b.clock.Now().Add(PreemptionPeriod))
	b.preempt()
	require.NoError(t, b.api.Delete(t.Context(), b.get("owner", "a")))
	require.Equal(t, maxPreemptionDelay, b.preempt())
	b.clock.SetTime(b.clock.Now().Add(maxPreemptionDelay))
	require.Equal(t, maxVainDelay, b.preempt())
	b.clock.SetTime(b.clock.Now().Add(maxVainDelay))
	require.Zero(t, b.preempt())
	require.Empty(t, b.preemptor.searched)
	require.Empty(t, b.preemptor.nominations)
}

// TestPreemptorRests: after a search none begins for a while, for no tenant.
func TestPreemptorRests(t *testing.T) {
	t.Parallel()
	b := newGuaranteeBed(t)
	b.refused()
	searches := 0
	b.preemptor.Find = func(*placer.Preemption, types.NamespacedName) (placer.Victims, error) {
		searches++
		b.clock.SetTime(b.clock.Now().Add(20 * time.Second))
		return placer.Victims{}, nil
	}
	b.preempt()
	require.Equal(t, 1, searches)
	b.preemptor.searched = nil // as for another tenant
	require.Equal(t, preemptionRest*20*time.Second, b.preempt())
	require.Equal(t, 1, searches)
	b.clock.SetTime(b.clock.Now().Add(preemptionRest * 20 * time.Second))
	b.preempt()
	require.Equal(t, 2, searches)
}

// TestGuarantorRests: what a tenant changes is followed by as many writes as it has namespaces, and those are few a
// second, of each tenant.
func TestGuarantorRests(t *testing.T) {
	t.Parallel()
	b := newGuaranteeBed(t)
	for i := range 40 {
		np := builders.Placement("owner", fmt.Sprintf("n%02d", i)).UID(types.UID(fmt.Sprint(i))).Slice("cpu", "1").Quota("cpu", "1").Obj()
		np.Spec.Guaranteed = schedulingtest.Cores("3")
		np.Status, _, _ = placement.Next(np, placement.Facts{Now: b.clock.Now()})
		require.NoError(t, b.api.Create(t.Context(), np))
	}
	b.restart()
	require.Zero(t, b.guarantor.pause("owner"))
	b.guarantee("owner")
	require.Equal(t, 40*guaranteeRest, b.guarantor.pause("owner"))
	require.Zero(t, b.guarantor.pause("borrower"))
	b.clock.SetTime(b.clock.Now().Add(40 * guaranteeRest))
	require.Zero(t, b.guarantor.pause("owner"))
	b.guarantee("owner")
	require.Zero(t, b.guarantor.pause("owner"), "nothing was written")
	b.guarantee("borrower")
	require.Empty(t, b.guarantor.resting)
}

// TestGuarantorDecidesNothing: a NamespacePlacement that was made anew is not decided by being told its share. Its
// namespace may hold something already, which it is granted when it is decided, and not later.
func TestGuarantorDecidesNothing(t *testing.T) {
	t.Parallel()
	b := newGuaranteeBed(t)
	made := builders.Placement("owner", "made").UID("made").Slice("cpu", "1").Quota("cpu", "1").Obj()
	made.Spec.Guaranteed = schedulingtest.Cores("9")
	require.NoError(t, b.api.Create(t.Context(), made))
	b.guarantee("owner")
	require.False(t, placement.IsDecided(b.get("owner", "made")))
	before := b.get("owner", "made")
	b.change("owner", "made", func(np *schedulerv1alpha1.NamespacePlacement) {
		np.Status, _, _ = placement.Next(np, placement.Facts{Now: b.clock.Now(), Granted: map[string]slice.Amounts{"r1": slice.Of(schedulingtest.Cores("1"))}})
	})
	require.Equal(t, "owner", guaranteeOf(before, b.get("owner", "made")), "then it is told")
	b.guarantee("owner")
	require.True(t, placement.IsGuaranteed(b.get("owner", "made")))
}

func TestGuaranteeOf(t *testing.T) {
	t.Parallel()
	type np = *schedulerv1alpha1.NamespacePlacement
	guaranteed := func(change ...func(np)) np {
		np := builders.Placement("owner", "a").UID("a").Slice("cpu", "1").Quota("cpu", "1").Obj()
		np.Spec.Guaranteed = schedulingtest.Cores("3")
		np.Status, _, _ = placement.Next(np, placement.Facts{})
		for _, f := range change {
			f(np)
		}
		return np
	}
	plain := builders.Placement("owner", "a").UID("a").Slice("cpu", "1").Quota("cpu", "1").Obj()
	for name, tc := range map[string]struct {
		before, after np
		want          string
	}{
		"nothing is guaranteed":     {before: plain, after: plain},
		"it is made":                {after: guaranteed(), want: "owner"},
		"it has ended":              {before: guaranteed(), want: "owner"},
		"nothing changes":           {before: guaranteed(), after: guaranteed()},
		"something else is written": {before: guaranteed(), after: guaranteed(func(np np) { np.Annotations = map[string]string{"a": "b"} })},
		"it asks for more":          {before: guaranteed(), after: guaranteed(func(np np) { np.Spec.Quota = schedulingtest.Cores("2") }), want: "owner"},
		"its priority":              {before: guaranteed(), after: guaranteed(func(np np) { np.Spec.Priority = 1 }), want: "owner"},
		"the guarantee":             {before: guaranteed(), after: guaranteed(func(np np) { np.Spec.Guaranteed = schedulingtest.Cores("2") }), want: "owner"},
		"the guarantee is gone":     {before: guaranteed(), after: plain, want: "owner"},
		"it is another one":         {before: guaranteed(), after: guaranteed(func(np np) { np.UID = "b" }), want: "owner"},
		"it is decided":             {before: guaranteed(func(np np) { np.Status.Conditions = nil }), after: guaranteed(), want: "owner"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, guaranteeOf(tc.before, tc.after))
		})
	}
}

// TestPreemptionsPerHour: the policy bounds how often others give way, and a restart does not forget the last time.
func TestPreemptionsPerHour(t *testing.T) {
	t.Parallel()
	b := newGuaranteeBed(t)
	perHour := func(most int32) {
		b.change("owner", "a", func(np *schedulerv1alpha1.NamespacePlacement) { np.Spec.PreemptionsPerHour = ptr.To(most) })
	}
	perHour(0)
	b.refused()
	require.Zero(t, b.preempt())
	require.Nil(t, b.leaving(), "nobody gives way")
	perHour(6)
	b.refused()
	require.Equal(t, 10*time.Minute, b.preempt())
	require.NotNil(t, b.leaving())
	b.clock.SetTime(b.clock.Now().Add(4 * time.Minute))
	b.restart()
	require.Equal(t, 6*time.Minute, b.preempt())
	b.clock.SetTime(b.clock.Now().Add(6 * time.Minute))
	require.Equal(t, PreemptionPeriod, b.preempt(), "what gives way already is waited for")
}

// TestEventsOfGuarantees: both tenants are told, and neither of the other.
func TestEventsOfGuarantees(t *testing.T) {
	t.Parallel()
	b := newGuaranteeBed(t)
	b.refused()
	old := dispatch.PlacementChange{Old: b.get("owner", "a")}
	victim := dispatch.PlacementChange{Old: b.get("borrower", "b")}
	undecided := b.get("owner", "a")
	undecided.Status.Conditions = nil
	require.Contains(t, tenantevents.Announced(dispatch.PlacementChange{Old: undecided, Current: b.get("owner", "a")}), schedulerv1alpha1.ConditionGuaranteed)
	require.Equal(t, schedulerv1alpha1.ReasonWithinGuarantee, tenantevents.AnnouncementOf(b.get("owner", "a"), schedulerv1alpha1.ConditionGuaranteed).Reason)
	b.preempt()
	old.Current, victim.Current = b.get("owner", "a"), b.get("borrower", "b")

	require.Equal(t, []string{tenantevents.NominatedEvent}, tenantevents.Announced(old))
	nominated := tenantevents.AnnouncementOf(old.Current, tenantevents.NominatedEvent)
	require.Equal(t, corev1.EventTypeNormal+" "+tenantevents.ReasonNominated, nominated.Kind+" "+nominated.Reason)
	require.Contains(t, nominated.Message, "cpu=3 is guaranteed to the tenant, and is given back by those who borrow it in r1")
	require.NotContains(t, nominated.Message, "borrower")
	require.Empty(t, tenantevents.Announced(dispatch.PlacementChange{Old: old.Current, Current: old.Current}), "it is told once")

	require.Contains(t, tenantevents.Announced(victim), tenantevents.PartEvent+"r1")
	preempted := tenantevents.AnnouncementOf(victim.Current, tenantevents.PartEvent+"r1")
	require.Equal(t, corev1.EventTypeWarning+" "+tenantevents.ReasonPreempted, preempted.Kind+" "+preempted.Reason)
	require.Contains(t, preempted.Message, "cpu=4 leaves super cluster r1")
	require.Contains(t, preempted.Message, "until 2026-01-01T12:10:00Z, and deleted then")
	require.NotContains(t, preempted.Message, "owner")
}
