package scheduling

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/kubescheduler"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/placer"
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/scheduling/namespaces"
	"github.com/superpool/superpool/internal/scheduling/placements"
	"github.com/superpool/superpool/internal/scheduling/requests"
	"github.com/superpool/superpool/internal/scheduling/tenantevents"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/manifests/profiles"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/schedulingtest"
)

// requestBed is a tenantBed with a pool: the real placer in memory places what waits.
type requestBed struct {
	*tenantBed
	nodes  []*corev1.Node
	config *config.KubeSchedulerConfiguration
	evicts *noted
}

// newRequestBed returns a bed whose namespace web has so many slices of one core, placed in r1, in a pool of r1 to r3
// with four cores each.
func newRequestBed(t *testing.T, slices int) *requestBed {
	t.Helper()
	cfg, err := kubescheduler.LoadConfig("", profiles.NamespaceScheduler)
	require.NoError(t, err)
	b := &requestBed{tenantBed: newTenantBed(t, web()), config: cfg, evicts: &noted{}}
	for _, id := range []string{"r1", "r2", "r3"} {
		b.nodes = append(b.nodes, builders.VirtualNode(id, "cpu", "4").Obj())
	}
	b.quota("web", fmt.Sprint(slices))
	b.settle()
	for range slices {
		b.grant("web", "r1")
	}
	b.run()
	b.recorded()
	return b
}

// process starts another process.
func (b *requestBed) process() {
	b.start()
	b.controller.reconcile[dispatch.ConcernAnnotation].(*namespaces.AnnotationReconciler).Clock = b.clock
	b.controller.reconcile[dispatch.ConcernNamespace].(*namespaces.Reconciler).Evictor = b.evicts
}

// run lets reconcilers, rescheduler and namespace scheduler work until nothing changes.
func (b *requestBed) run() {
	b.Helper()
	ctx := schedulertest.Context(b.T)
	b.controller.reconcile[dispatch.ConcernAnnotation].(*namespaces.AnnotationReconciler).Clock = b.clock
	b.controller.reconcile[dispatch.ConcernNamespace].(*namespaces.Reconciler).Evictor = b.evicts
	for range 20 {
		b.settle()
		if b.down {
			return
		}
		np := b.stored()["web"]
		before := np.ResourceVersion
		key := client.ObjectKeyFromObject(np)
		rescheduler := &requests.Rescheduler{Store: b.store, Reader: schedulingtest.PoolReader{Reader: b.meta, Nodes: b.nodes}, Config: b.config, Clock: b.clock}
		_, err := rescheduler.Reconcile(ctx, reconcile.Request{NamespacedName: key})
		if b.down {
			return
		}
		require.NoError(b, err)
		if np = b.stored()["web"]; len(placement.Missing(np)) > 0 {
			b.place(np)
		}
		if b.down || b.stored()["web"].ResourceVersion == before {
			return
		}
	}
	require.Fail(b, "it comes to no end")
}

// place is what the namespace scheduler does: the sink writes what the placer says.
func (b *requestBed) place(np *schedulerv1alpha1.NamespacePlacement) {
	b.Helper()
	outcomes, err := (&placer.Rehearsal{Config: b.config, Nodes: b.nodes, Placements: []*schedulerv1alpha1.NamespacePlacement{np}}).Run(schedulertest.Context(b.T))
	require.NoError(b, err)
	facts := placement.Facts{Now: b.clock.Now(), Unschedulable: outcomes[0].Why.Message}
	if facts.Unschedulable == "" {
		facts.Granted = map[string]slice.Amounts{}
		for i := range outcomes[0].Placement.Status.Placements {
			p := &outcomes[0].Placement.Status.Placements[i]
			had := slice.Amounts{}
			if part := placements.PlacementIn(np.Status.Placements, p.Cluster); part != nil {
				had = slice.Of(part.Reserved)
			}
			if more := slice.Of(p.Reserved).Minus(had); !more.IsZero() {
				facts.Granted[p.Cluster] = more
			}
		}
	}
	_, err = b.store.Change(b.Context(), client.ObjectKeyFromObject(np), func(np *schedulerv1alpha1.NamespacePlacement) error {
		np.Status, _, _ = placement.Next(np, facts)
		return nil
	})
	if !b.down {
		require.NoError(b, err)
	}
}

// uses says what the namespace's pods use in a super cluster, whose quota answers what is decided.
func (b *requestBed) uses(cluster, requests string) {
	np := b.stored()["web"]
	hard := slice.Amounts{}
	if part := placements.PlacementIn(np.Status.Placements, cluster); part != nil {
		hard = placement.StayingIn(part)
	}
	b.usage.Set(cluster, "web", placement.Use{Requests: slice.Of(schedulingtest.Cores(requests)), Hard: hard, NamespaceUID: "1", Decision: placement.Decision(np, cluster)})
	b.waiting.Insert(dispatch.Request{Concern: dispatch.ConcernNamespace, Namespace: "web"}) // Dispatcher.Freed
}

func (b *requestBed) wants(placements, annotation string) {
	b.Helper()
	var parts []string
	np := b.stored()["web"]
	for i := range np.Status.Placements {
		p := &np.Status.Placements[i]
		part := p.Cluster + "=" + p.Reserved.Cpu().String()
		if p.Leaving != nil {
			part += fmt.Sprintf("-%s(%s)", p.Leaving.Reserved.Cpu(), p.Leaving.Reason)
		}
		parts = append(parts, part)
	}
	require.Equal(b, placements, strings.Join(parts, " "))
	require.Equal(b, annotation, namespaces.AnnotationOf(&b.namespaces()[0]))
}

// TestPlacementsOnRequest: a tenant writes other placements. They are granted beside what it has, its pods are evicted,
// and then what it had is given back.
func TestPlacementsOnRequest(t *testing.T) {
	t.Parallel()
	b := newRequestBed(t, 2)
	b.uses("r1", "2")
	b.tenantWrites("web", `{"r2": 1, "r1": 1}`)
	b.run()
	b.wants("r1=2-1(Requested) r2=1", `{"r1":1,"r2":1}`)
	require.Contains(t, b.evicts.lines, "web r1 cpu=1 Requested")
	np := b.stored()["web"]
	require.Nil(t, np.Status.Requested, "it is answered")
	require.NotNil(t, np.Status.LastRequested)
	require.Equal(t, []string{
		`Normal Leaving cpu=1 leaves super cluster r1 (Requested): it stays reserved there until the namespace is placed elsewhere and its pods there have ended`,
	}, leavingEvents(b.recorded()))

	b.uses("r1", "1") // one was evicted, and runs in r2
	b.uses("r2", "1")
	b.evicts.lines = nil
	b.run()
	b.wants("r1=1 r2=1", `{"r1":1,"r2":1}`)
	require.Empty(t, b.evicts.lines)
	b.wantPublished("web")

	// The next one is too soon, and later it is not.
	b.recorded()
	b.tenantWrites("web", `{"r3":2}`)
	b.run()
	b.wants("r1=1 r2=1", `{"r1":1,"r2":1}`)
	require.Contains(t, strings.Join(b.recorded(), "\n"), "was changed and restored: other placements were requested at")
	b.clock.SetTime(b.clock.Now().Add(5 * time.Minute))
	b.tenantWrites("web", `{"r3":2}`)
	b.run()
	b.wants("r1=1-1(Requested) r2=1-1(Requested) r3=2", `{"r3":2}`)
}

func leavingEvents(lines []string) (leaving []string) {
	for _, line := range lines {
		if strings.Contains(line, " "+tenantevents.ReasonLeaving+" ") {
			leaving = append(leaving, line)
		}
	}
	return leaving
}

// TestPlacementsThatAreRefused: nothing moves, the annotation is put back, and an Event says of the super cluster why.
func TestPlacementsThatAreRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		annotation string
		pool       func(*requestBed)
		policy     func(*tenancyv1alpha1.TenantPolicySpec)
		want       string
	}{
		"too little": {
			annotation: `{"r1":1,"r2":1}`, pool: func(b *requestBed) { b.nodes[1].Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("500m") },
			want: "super cluster r2: has too little free cpu",
		},
		"cordoned": {annotation: `{"r2":2}`, pool: func(b *requestBed) { b.nodes[1].Spec.Unschedulable = true }, want: "super cluster r2: cordoned"},
		"drained":  {annotation: `{"r2":2}`, pool: func(b *requestBed) { schedulingtest.Drained(b.nodes[1]) }, want: "super cluster r2: drained"},
		"unknown":  {annotation: `{"r1":1,"r9":1}`, want: "super cluster r9: it is not in the pool"},
		"two that refuse": {
			annotation: `{"r2":1,"r9":1}`, pool: func(b *requestBed) { b.nodes[1].Spec.Unschedulable = true }, want: "super cluster r2: cordoned",
		},
		"nonsense": {annotation: `[]`, want: "placements are not a JSON object"},
		"not allowed": {
			annotation: `{"r2":2}`, policy: func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Scheduling.MovesPerHour = 0 }, want: "the tenant's policy allows no requests",
		},
		"above what the tenant may have while it has both": {
			annotation: `{"r1":1,"r2":1}`, policy: schedulingtest.ReservedLimit("cpu", "2500m"),
			want: "All namespaces of the tenant would reserve cpu 3, and 2500m are allowed (limits.reserved of TenantPolicy p)",
		},
		"removed, and there may be none above what the tenant has": {
			policy: schedulingtest.ReservedLimit("cpu", "2"), want: "All namespaces of the tenant would reserve cpu 4, and 2 are allowed (limits.reserved of TenantPolicy p)",
		},
		"too long": {annotation: `{"r2":2` + strings.Repeat(" ", 9000) + `}`, want: "placements are longer than 8192 characters"},
		"removed, and there is no room": {
			pool: func(b *requestBed) {
				for _, node := range b.nodes {
					node.Spec.Unschedulable = true
				}
			},
			want: "0/3 super clusters are available: 3 cordoned",
		},
		"removed, and the request may not be": {
			policy: func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Scheduling.MovesPerHour = 0 }, want: "the tenant's policy allows no requests",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newRequestBed(t, 2)
			b.uses("r1", "2")
			if tc.pool != nil {
				tc.pool(b)
			}
			if tc.policy != nil {
				b.setPolicy(tc.policy)
			}
			b.tenantWrites("web", tc.annotation)
			b.run()
			b.wants("r1=2", `{"r1":2}`)
			b.wantPublished("web")
			require.Nil(t, b.stored()["web"].Status.Requested)
			lines := b.recorded()
			require.Len(t, lines, 1)
			require.Contains(t, lines[0], "Warning PlacementsRestored Annotation scheduler.tenancy.x-k8s.io/placements was changed and restored: "+tc.want)
			require.Empty(t, b.evicts.lines)
			b.process()
			b.run()
			require.Empty(t, b.recorded(), "a restart says nothing")
		})
	}
}

// TestPlacedAnew: a tenant removes its placements, and the namespace is placed as if it had nothing.
func TestPlacedAnew(t *testing.T) {
	t.Parallel()
	b := newRequestBed(t, 2)
	b.uses("r1", "2")
	b.tenantWrites("web", "")
	b.run()
	b.wants("r1=2-1(Requested) r2=1", `{"r1":1,"r2":1}`)
	b.uses("r1", "1")
	b.run()
	b.wants("r1=1 r2=1", `{"r1":1,"r2":1}`)
	b.wantPublished("web")

	// It is where it would be placed: only the annotation comes back.
	b.recorded()
	b.clock.SetTime(b.clock.Now().Add(5 * time.Minute))
	b.tenantWrites("web", "")
	b.run()
	b.wants("r1=1 r2=1", `{"r1":1,"r2":1}`)
	require.Empty(t, b.recorded())
	require.Nil(t, b.stored()["web"].Status.Requested)
}

// TestARequestWhileEveryWriteIsLost loses each write of a request, with the process, and starts another: nothing is
// lost and nothing is invented.
func TestARequestWhileEveryWriteIsLost(t *testing.T) {
	t.Parallel()
	for name, annotation := range map[string]string{"other placements": `{"r1":1,"r2":1}`, "in other words": `{ "r2":1,"r1":1}`, "removed": "", "refused": `{"r9":2}`} {
		life := func(b *requestBed) {
			b.uses("r1", "2")
			b.tenantWrites("web", annotation)
			b.run()
		}
		whole := newRequestBed(t, 2)
		first := len(whole.meta.Writes)
		life(whole)
		var want []string
		np := whole.stored()["web"]
		for i := range np.Status.Placements {
			want = append(want, fmt.Sprint(np.Status.Placements[i].Cluster, np.Status.Placements[i].Slices))
		}
		require.Greater(t, len(whole.meta.Writes), first)
		for n := first; n < len(whole.meta.Writes); n++ {
			for _, happens := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%d-%s/happens=%v", name, n-first, whole.meta.Writes[n], happens), func(t *testing.T) {
					t.Parallel()
					b := newRequestBed(t, 2)
					b.loseWrite, b.happens = n, happens
					life(b)
					require.True(t, b.down, "the write was lost")
					b.loseWrite, b.down = -1, false
					b.process()
					b.run()
					b.wantPublished("web")
					np := b.stored()["web"]
					require.Nil(t, np.Status.Requested)
					var got []string
					for i := range np.Status.Placements {
						got = append(got, fmt.Sprint(np.Status.Placements[i].Cluster, np.Status.Placements[i].Slices))
					}
					require.Equal(t, want, got)
				})
			}
		}
	}
}

// TestReschedulerLeavesOthersAlone: it looks at nothing that does not ask for it.
func TestReschedulerLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	meta := schedulingtest.NewStoredPlacements(t, schedulingtest.OnePlaced("web", "r1"))
	r := &requests.Rescheduler{Store: placements.NewStore(meta, meta)}
	for _, name := range []string{"web", "gone"} {
		_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "tenant", Name: name}})
		require.NoError(t, err)
	}
	require.Empty(t, meta.Writes)
}
