package scheduling

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/scheduling/placements"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/schedulingtest"
)

func namespaceNamed(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
}

// limitedBed is a tenantBed with namespaces a, b, c and a policy.
func limitedBed(t *testing.T, change func(*tenancyv1alpha1.TenantPolicySpec)) *tenantBed {
	t.Helper()
	b := newTenantBed(t, namespaceNamed("a"), namespaceNamed("b"), namespaceNamed("c"))
	b.profiles = sets.New("namespace-scheduler", "packing", "spreading")
	b.policy.Set(schedulingtest.PolicyWith(t, change))
	b.start()
	return b
}

func (b *tenantBed) wantQuota(name, cpu string) {
	b.Helper()
	np := b.stored()[name]
	require.NotNil(b, np, "namespace %s has no NamespacePlacement", name)
	require.Equal(b, slice.Of(schedulingtest.Cores(cpu))["cpu"], slice.Of(np.Spec.Quota)["cpu"], "cpu of namespace %s", name)
}

func (b *tenantBed) wantAccepted(name string, status metav1.ConditionStatus, reason, message string) {
	b.Helper()
	np := b.stored()[name]
	require.NotNil(b, np, "namespace %s has no NamespacePlacement", name)
	accepted := meta.FindStatusCondition(np.Status.Conditions, schedulerv1alpha1.ConditionAccepted)
	require.NotNil(b, accepted)
	require.Equal(b, []string{string(status), reason}, []string{string(accepted.Status), accepted.Reason}, accepted.Message)
	require.Contains(b, accepted.Message, message)
}

// TestALimitOfReservedRoom: what two namespaces ask for together is above the limit, so the second waits until the
// first is smaller, and one that grows keeps what it has.
func TestALimitOfReservedRoom(t *testing.T) {
	t.Parallel()
	b := limitedBed(t, schedulingtest.ReservedLimit("cpu", "3"))
	b.quota("a", "2")
	b.settle()
	b.quota("b", "2")
	b.settle()
	b.wantQuota("a", "2")
	b.wantQuota("b", "0")
	const message = "All namespaces of the tenant would reserve cpu 4, and 3 are allowed (limits.reserved of TenantPolicy p): what the namespace has stays as it is"
	b.wantAccepted("b", metav1.ConditionFalse, schedulerv1alpha1.ReasonTenantLimit, message)
	require.Contains(t, strings.Join(b.recorded(), "\n"), "Warning TenantLimit "+message)

	b.quota("a", "4")
	b.settle()
	b.wantQuota("a", "2")
	b.wantAccepted("a", metav1.ConditionFalse, schedulerv1alpha1.ReasonTenantLimit, "cpu 4, and 3 are allowed")

	b.quota("a", "1")
	b.settle()
	b.wantQuota("a", "1")
	b.wantQuota("b", "2")
	b.wantAccepted("a", metav1.ConditionTrue, schedulerv1alpha1.ReasonAccepted, "")
	b.wantAccepted("b", metav1.ConditionTrue, schedulerv1alpha1.ReasonAccepted, "")
}

// TestReservedRoomCountsUntilItIsFree: a namespace that shrinks holds room which its super cluster still uses.
func TestReservedRoomCountsUntilItIsFree(t *testing.T) {
	t.Parallel()
	b := limitedBed(t, schedulingtest.ReservedLimit("cpu", "3"))
	b.quota("a", "3")
	b.settle()
	_, err := placements.NewStore(b.meta, b.meta).Change(t.Context(), types.NamespacedName{Namespace: "tenant", Name: "a"}, func(np *schedulerv1alpha1.NamespacePlacement) error {
		np.Status, _, _ = placement.Next(np, placement.Facts{Granted: map[string]slice.Amounts{"r1": slice.Of(np.Spec.Quota)}})
		return nil
	})
	require.NoError(t, err)
	b.settle()
	b.usage.Set("r1", "a", placement.Use{Requests: slice.Of(schedulingtest.Cores("3")), Hard: slice.Of(schedulingtest.Cores("3"))})
	b.quota("a", "1")
	b.quota("b", "2")
	b.settle()
	b.wantQuota("a", "1")
	b.wantQuota("b", "0")

	answered := placement.Decision(b.stored()["a"], "r1")
	b.usage.Set("r1", "a", placement.Use{Requests: slice.Of(schedulingtest.Cores("1")), Hard: slice.Of(schedulingtest.Cores("1")), Decision: answered})
	b.waiting.Insert(dispatch.Request{Concern: dispatch.ConcernNamespace, Namespace: "a"})
	b.settle()
	b.wantQuota("b", "2")
}

// TestALimitThatIsRaisedOrLowered: a raised limit lets in what waits, a lowered one takes nothing away and says so.
func TestALimitThatIsRaisedOrLowered(t *testing.T) {
	t.Parallel()
	b := limitedBed(t, schedulingtest.ReservedLimit("cpu", "3"))
	b.quota("a", "2")
	b.settle()
	b.quota("b", "2")
	b.settle()
	b.wantQuota("b", "0")

	b.setPolicy(schedulingtest.ReservedLimit("cpu", "4"))
	b.settle()
	b.wantQuota("b", "2")

	b.setPolicy(schedulingtest.ReservedLimit("cpu", "1"))
	b.recorded()
	b.settle()
	b.wantQuota("a", "2")
	b.wantQuota("b", "2")
	const message = "All namespaces of the tenant reserve cpu 4, and 1 are allowed (limits.reserved of TenantPolicy p): nothing that is there is taken away, and nothing can grow"
	for _, name := range []string{"a", "b"} {
		b.wantAccepted(name, metav1.ConditionTrue, schedulerv1alpha1.ReasonAboveTenantLimit, message)
	}
	require.Contains(t, strings.Join(b.recorded(), "\n"), "Warning AboveTenantLimit "+message)

	b.setPolicy(func(*tenancyv1alpha1.TenantPolicySpec) {})
	b.settle()
	b.wantAccepted("a", metav1.ConditionTrue, schedulerv1alpha1.ReasonAccepted, "")
}

func TestALimitOfSlices(t *testing.T) {
	t.Parallel()
	b := limitedBed(t, func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Limits.Slices = 5 })
	b.quota("a", "3")
	b.settle()
	b.quota("b", "3")
	b.settle()
	b.wantQuota("b", "0")
	b.wantAccepted("b", metav1.ConditionFalse, schedulerv1alpha1.ReasonTenantLimit,
		"The slices of all namespaces of the tenant would be 6, and 5 are allowed (limits.slices of TenantPolicy p)")
	b.quota("b", "2")
	b.settle()
	b.wantQuota("b", "2")
}

// TestALimitOfNamespaces: beyond it nothing is written into the meta cluster, and the tenant is told once.
func TestALimitOfNamespaces(t *testing.T) {
	t.Parallel()
	b := limitedBed(t, func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Limits.Namespaces = 1 })
	b.quota("a", "1")
	b.settle()
	b.recorded()
	b.quota("b", "1")
	b.settle()
	b.waiting.Insert(dispatch.Request{Concern: dispatch.ConcernNamespace, Namespace: "b"})
	b.settle()
	require.Nil(t, b.stored()["b"])
	want := "Warning TenantLimit The number of the tenant's namespaces with a placement would be 2, and 1 are allowed (limits.namespaces of TenantPolicy p): what the namespace has stays as it is"
	require.Empty(t, cmp.Diff([]string{want}, b.recorded()))

	require.NoError(t, b.meta.Delete(t.Context(), b.stored()["a"])) // it has a finalizer, as long as anything is used
	b.settle()
	require.Nil(t, b.stored()["b"], "the name of a is taken back")

	b.setPolicy(func(*tenancyv1alpha1.TenantPolicySpec) {})
	b.settle()
	b.wantQuota("b", "1")
}

// TestALimitOfResourceNames: a quota with 2,000 resources is never written into the meta cluster.
func TestALimitOfResourceNames(t *testing.T) {
	t.Parallel()
	b := limitedBed(t, func(*tenancyv1alpha1.TenantPolicySpec) {})
	b.quota("a", "1")
	b.settle()
	bomb := builders.Quota("a", "bomb")
	bomb.Spec.Hard = corev1.ResourceList{}
	for i := range 2000 {
		bomb.Spec.Hard[corev1.ResourceName(fmt.Sprintf("requests.a.b/x%05d", i))] = builders.Resources("cpu", "1000")["cpu"]
	}
	require.NoError(t, b.api.Tracker().Create(corev1.SchemeGroupVersion.WithResource("resourcequotas"), bomb, "a"))
	b.settle()
	np := b.stored()["a"]
	require.Equal(t, slice.Of(schedulingtest.Cores("1")), slice.Of(np.Spec.Quota))
	b.wantAccepted("a", metav1.ConditionFalse, schedulerv1alpha1.ReasonTenantLimit,
		"The quotas and the slice of the namespace name more than the 16 resources that are allowed (limits.resourceNames of TenantPolicy p)")
}

// TestTheMetaClusterWasRestored: a namespace that super clusters still hold gets its quota back, whatever the limit.
func TestTheMetaClusterWasRestored(t *testing.T) {
	t.Parallel()
	b := limitedBed(t, schedulingtest.ReservedLimit("cpu", "1"))
	b.usage.Set("r1", "a", placement.Use{Hard: slice.Of(schedulingtest.Cores("3")), NamespaceUID: "a"})
	b.usage.Listing, b.usage.Silent = true, sets.New("r1")
	b.quota("a", "3")
	b.look()
	for range 3 {
		b.look()
		for item := range b.waiting {
			_, err := b.controller.reconcile.Reconcile(t.Context(), item)
			require.NoError(t, err)
		}
	}
	b.wantQuota("a", "0")
	b.usage.Listing, b.usage.Silent = false, nil
	b.waiting.Insert(dispatch.Request{Concern: dispatch.ConcernNamespace, Namespace: "a"})
	b.settle()
	b.wantQuota("a", "3")
	require.Equal(t, slice.Of(schedulingtest.Cores("3")), placement.Staying(b.stored()["a"].Status.Placements))
	b.wantAccepted("a", metav1.ConditionTrue, schedulerv1alpha1.ReasonAboveTenantLimit, "")
}

// TestAllowedNamespaceSchedulers: the policy says which profiles place a tenant's namespaces.
func TestAllowedNamespaceSchedulers(t *testing.T) {
	t.Parallel()
	only := func(names ...string) func(*tenancyv1alpha1.TenantPolicySpec) {
		return func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Scheduling.NamespaceSchedulers = names }
	}
	b := limitedBed(t, only("namespace-scheduler", "packing"))
	b.quota("a", "1")
	for i, step := range []struct {
		policy func(*tenancyv1alpha1.TenantPolicySpec)
		named  string
		want   string
		reason string
	}{
		{want: ""},
		{named: "spreading", want: "", reason: schedulerv1alpha1.ReasonSchedulerNotAllowed},
		{named: "packing", want: "packing"},
		{named: "spreading", want: "packing", reason: schedulerv1alpha1.ReasonSchedulerNotAllowed},
		{named: "typo", want: "packing", reason: schedulerv1alpha1.ReasonUnknownScheduler},
		{policy: only(), named: "spreading", want: "spreading"},
		{policy: only("packing"), named: "spreading", want: "packing", reason: schedulerv1alpha1.ReasonSchedulerNotAllowed},
		{policy: only("packing"), want: "packing"},
	} {
		if step.policy != nil {
			b.setPolicy(step.policy)
		}
		namespace := namespaceNamed("a")
		if step.named != "" {
			namespace.Annotations = map[string]string{schedulerv1alpha1.AnnotationScheduler: step.named}
		}
		require.NoError(t, b.api.Tracker().Update(corev1.SchemeGroupVersion.WithResource("namespaces"), namespace, ""))
		b.settle()
		require.Equal(t, step.want, b.stored()["a"].Spec.SchedulerName, "step %d", i)
		if step.reason == "" {
			b.wantAccepted("a", metav1.ConditionTrue, schedulerv1alpha1.ReasonAccepted, "")
			continue
		}
		b.wantAccepted("a", metav1.ConditionFalse, step.reason, step.named)
	}
	b.wantQuota("a", "1")
}

// TestPriorityOfThePolicy: an operator's priority reaches the spec, and a change of it, too.
func TestPriorityOfThePolicy(t *testing.T) {
	t.Parallel()
	b := limitedBed(t, func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Scheduling.Priority = 7 })
	b.quota("a", "1")
	b.settle()
	require.Equal(t, int32(7), b.stored()["a"].Spec.Priority)
	require.Empty(t, b.stored()["a"].Spec.Guaranteed)
	require.Nil(t, b.stored()["a"].Spec.PreemptionsPerHour)
	require.Zero(t, b.stored()["a"].Spec.Weight, "1 is left out")
	b.setPolicy(func(spec *tenancyv1alpha1.TenantPolicySpec) {
		spec.Scheduling.Priority, spec.Scheduling.Weight = -3, 5
		spec.Scheduling.Guaranteed, spec.Scheduling.PreemptionsPerHour = schedulingtest.Cores("3"), 6
	})
	b.settle()
	require.Equal(t, int32(-3), b.stored()["a"].Spec.Priority)
	require.Equal(t, int32(5), b.stored()["a"].Spec.Weight)
	require.Equal(t, "3", b.stored()["a"].Spec.Guaranteed.Cpu().String())
	require.Equal(t, ptr.To[int32](6), b.stored()["a"].Spec.PreemptionsPerHour)
}
