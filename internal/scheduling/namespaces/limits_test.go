package namespaces

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/schedulingtest"
)

// TestALimitOfWhatIsGuaranteed: a tenant that may borrow nothing has at most what is guaranteed to it, and what
// limits.reserved says where that is less.
func TestALimitOfWhatIsGuaranteed(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reserved, guaranteed string
		borrowing            tenancyv1alpha1.BorrowingRule
		want                 string
	}{
		"nothing is borrowed":     {guaranteed: "3", borrowing: tenancyv1alpha1.BorrowingNever, want: "cpu 4, and 3 are allowed (scheduling.guaranteed of TenantPolicy p)"},
		"the limit is less":       {reserved: "2", guaranteed: "3", borrowing: tenancyv1alpha1.BorrowingNever, want: "cpu 4, and 2 are allowed (limits.reserved of TenantPolicy p)"},
		"nothing is guaranteed":   {guaranteed: "0", borrowing: tenancyv1alpha1.BorrowingNever, want: "cpu 4, and 0 are allowed (scheduling.guaranteed of TenantPolicy p)"},
		"what is more is allowed": {guaranteed: "3", borrowing: tenancyv1alpha1.BorrowingAllowed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ref := &policy.Ref{}
			ref.Set(schedulingtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
				spec.Scheduling.Guaranteed, spec.Scheduling.Borrowing = schedulingtest.Cores(tc.guaranteed), tc.borrowing
				if tc.reserved != "" {
					spec.Limits.Reserved = schedulingtest.Cores(tc.reserved)
				}
			}))
			reason, _ := NewLimits(ref).admit("a", demandOfSpec(&builders.Placement("tenant", "a").Quota("cpu", "4").Obj().Spec), demand{})
			require.Contains(t, reason.Message, tc.want)
			require.Equal(t, tc.want == "", reason.Message == "")
		})
	}
}

// TestAdmitCountsWhatMayBeWritten: a write that failed may have happened, so what it asked for counts until one
// succeeds.
func TestAdmitCountsWhatMayBeWritten(t *testing.T) {
	t.Parallel()
	ref := &policy.Ref{}
	ref.Set(schedulingtest.PolicyWith(t, schedulingtest.ReservedLimit("cpu", "3", "memory", "0")))
	limits := NewLimits(ref)
	var enqueued []string
	limits.Bind(func(namespace string) { enqueued = append(enqueued, namespace) })
	wants := func(cpu string) demand {
		return demandOfSpec(&builders.Placement("tenant", "x").Quota("cpu", cpu).Slice("cpu", "1").Obj().Spec)
	}
	reasonFor := func(namespace, cpu string) string {
		reason, _ := limits.admit(namespace, wants(cpu), demand{})
		return reason.Reason
	}
	require.Empty(t, reasonFor("a", "2"))
	require.Equal(t, schedulerv1alpha1.ReasonTenantLimit, reasonFor("b", "2"), "a may be written")
	limits.read("a", nil)
	require.Equal(t, schedulerv1alpha1.ReasonTenantLimit, reasonFor("b", "2"), "and is not seen yet")
	require.Empty(t, enqueued)
	limits.wrote("a", builders.Placement("tenant", "a").Quota("cpu", "1").Obj())
	require.Equal(t, []string{"b"}, enqueued, "there is room now")
	require.Empty(t, reasonFor("b", "2"))
	require.Equal(t, schedulerv1alpha1.ReasonTenantLimit, reasonFor("c", "1"))
	require.Equal(t, schedulerv1alpha1.ReasonTenantLimit, reasonFor("d", "3"))
	require.Empty(t, reasonFor("e", "0"))

	enqueued = nil
	limits.wrote("b", nil)
	require.Equal(t, []string{"c"}, enqueued, "d is too large still")
	reason, _ := limits.admit("m", demandOfSpec(&builders.Placement("tenant", "m").Quota("memory", "1").Obj().Spec), demand{})
	require.Contains(t, reason.Message, "would reserve memory 1, and 0 are allowed")
	require.Equal(t, []string{"a", "c", "d", "e", "m"}, limits.All())
	limits.forget("d")
	limits.wrote("d", nil)
	require.Equal(t, []string{"a", "c", "e", "m"}, limits.All())
}

// TestMonstrousSums: amounts of a thousand namespaces add up beyond 64 bits, and come apart again.
func TestMonstrousSums(t *testing.T) {
	t.Parallel()
	ref := &policy.Ref{}
	limits := NewLimits(ref)
	huge := builders.Placement("tenant", "x").Quota("cpu", "9000000000000").Slice("cpu", "9000000000000").Obj()
	for i := range 3000 {
		limits.wrote(fmt.Sprint(i), huge)
	}
	for i := range 3000 {
		limits.wrote(fmt.Sprint(i), nil)
	}
	require.Empty(t, limits.total)
	require.Zero(t, limits.slices)
	require.Zero(t, limits.placements)
}

// BenchmarkTenantLimits judges a namespace beside ten thousand of its tenant, half of which wait for room.
func BenchmarkTenantLimits(b *testing.B) {
	ref := &policy.Ref{}
	ref.Set(schedulingtest.PolicyWith(b, func(spec *tenancyv1alpha1.TenantPolicySpec) {
		spec.Limits.Namespaces, spec.Limits.Slices = 100000, 1000000
		spec.Limits.Reserved = builders.Resources("cpu", "5000", "memory", "5000Gi")
	}))
	limits := NewLimits(ref)
	limits.Bind(func(string) {})
	one := builders.Placement("tenant", "x").Quota("cpu", "1", "memory", "1Gi").Slice("cpu", "1").Obj()
	for i := range 10000 {
		if reason, _ := limits.admit(fmt.Sprint(i), demandOfSpec(&one.Spec), demand{}); reason.Reason == "" {
			limits.wrote(fmt.Sprint(i), one)
		}
	}
	require.Len(b, limits.refused, 5000)
	b.Run("refused", func(b *testing.B) {
		for b.Loop() {
			limits.admit("9999", demandOfSpec(&one.Spec), demand{})
		}
	})
	b.Run("room comes free", func(b *testing.B) {
		for b.Loop() {
			limits.wrote("0", nil)
			limits.wrote("0", one)
		}
	})
}
