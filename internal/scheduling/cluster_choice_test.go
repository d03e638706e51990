package scheduling

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/scheduling/namespaces"
	"github.com/superpool/superpool/internal/scheduling/tenantevents"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/schedulingtest"
)

// TestClusterChoice: the last accepted choice stays in force, and with it what the namespace requests. Nothing that is
// placed moves.
func TestClusterChoice(t *testing.T) {
	t.Parallel()
	const (
		eu   = `{"nodeSelector":{"topology.kubernetes.io/region":"eu"}}`
		us   = `{"nodeSelector":{"topology.kubernetes.io/region":"us"}}`
		tier = `{"nodeSelector":{"tier":"gold"}}`
	)
	b := newTenantBed(t, web())
	b.quota("web", "1")
	placed := ""
	for i, step := range []struct {
		choice, quota string
		policy        func(*tenancyv1alpha1.SchedulingRules)
		wantReason    string
		wantQuota     string
		wantSelector  map[string]string
	}{
		{choice: `{"nodeselector":{}}`, quota: "1", wantReason: schedulerv1alpha1.ReasonInvalidChoice, wantQuota: "0"},
		{choice: tier, quota: "2", wantReason: schedulerv1alpha1.ReasonChoiceNotAllowed, wantQuota: "0"},
		{choice: eu, quota: "1", wantReason: schedulerv1alpha1.ReasonAccepted, wantQuota: "1", wantSelector: map[string]string{"topology.kubernetes.io/region": "eu"}},
		{choice: "typo", quota: "2", wantReason: schedulerv1alpha1.ReasonInvalidChoice, wantQuota: "1", wantSelector: map[string]string{"topology.kubernetes.io/region": "eu"}},
		{choice: us, quota: "1", wantReason: schedulerv1alpha1.ReasonAccepted, wantQuota: "1", wantSelector: map[string]string{"topology.kubernetes.io/region": "us"}},
		{choice: tier, quota: "500m", wantReason: schedulerv1alpha1.ReasonChoiceNotAllowed, wantQuota: "500m", wantSelector: map[string]string{"topology.kubernetes.io/region": "us"}},
		{choice: us, quota: "1", wantReason: schedulerv1alpha1.ReasonAccepted, wantQuota: "1", wantSelector: map[string]string{"topology.kubernetes.io/region": "us"}},
		{
			choice: tier, quota: "1", wantReason: schedulerv1alpha1.ReasonAccepted, wantQuota: "1", wantSelector: map[string]string{"tier": "gold"},
			policy: func(rules *tenancyv1alpha1.SchedulingRules) { rules.NodeSelectorKeys = []string{"tier"} },
		},
		{choice: tier, quota: "1", wantReason: schedulerv1alpha1.ReasonChoiceNotAllowed, wantQuota: "1", wantSelector: map[string]string{"tier": "gold"}},
		{choice: "", quota: "1", wantReason: schedulerv1alpha1.ReasonAccepted, wantQuota: "1"},
	} {
		namespace := web()
		namespace.Annotations = map[string]string{schedulerv1alpha1.AnnotationPlacements: placed}
		if step.choice != "" {
			namespace.Annotations[schedulerv1alpha1.AnnotationClusterChoice] = step.choice
		}
		require.NoError(t, b.api.Tracker().Update(corev1.SchemeGroupVersion.WithResource("namespaces"), namespace, ""))
		b.quota("web", step.quota)
		b.setPolicy(func(spec *tenancyv1alpha1.TenantPolicySpec) {
			spec.Scheduling.NodeSelector = map[string]string{"pool": "shared"}
			if step.policy != nil {
				step.policy(&spec.Scheduling)
			}
		})
		b.settle()
		np := b.stored()["web"]
		accepted := meta.FindStatusCondition(np.Status.Conditions, schedulerv1alpha1.ConditionAccepted)
		require.Equal(t, step.wantReason, accepted.Reason, "step %d: %s", i, accepted.Message)
		require.Equal(t, step.wantReason == schedulerv1alpha1.ReasonAccepted, accepted.Status == metav1.ConditionTrue)
		require.Equal(t, slice.Of(schedulingtest.Cores(step.wantQuota)).Minus(nil), slice.Of(np.Spec.Quota).Minus(nil), "step %d", i)
		require.Equal(t, map[string]string{"pool": "shared"}, np.Spec.NodeSelector, "step %d", i)
		var selector map[string]string
		if np.Spec.ClusterChoice != nil {
			selector = np.Spec.ClusterChoice.NodeSelector
		}
		require.Empty(t, cmp.Diff(step.wantSelector, selector), "step %d", i)
		if step.wantQuota == "1" && placed == "" {
			b.grant("web", "r1")
			b.settle()
			placed = b.due("web")
		}
		require.Equal(t, placed, b.due("web"), "step %d", i)
		for _, part := range b.stored()["web"].Status.Placements {
			require.Nil(t, part.Leaving, "step %d", i)
		}
	}
}

// TestSpreadOfManySlices: each slice of a namespace that spreads is a Pod in the scheduler that all tenants share. What
// was accepted last stays in force, whatever keeps the last quota.
func TestSpreadOfManySlices(t *testing.T) {
	t.Parallel()
	const (
		spread   = `{"topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"topology.kubernetes.io/zone","whenUnsatisfiable":"DoNotSchedule"}]}`
		spread2  = `{"topologySpreadConstraints":[{"maxSkew":2,"topologyKey":"topology.kubernetes.io/zone","whenUnsatisfiable":"DoNotSchedule"}]}`
		accepted = schedulerv1alpha1.ReasonAccepted
		invalid  = schedulerv1alpha1.ReasonInvalidChoice
	)
	type step struct {
		choice, quota string // quota "": there is none
		slice         string // "" for the default, 1 CPU
		maxCPU        string // of the tenant, "" for any amount
		wantReason    string
		wantQuota     string
		wantSkew      int32 // 0: nothing spreads
	}
	for name, steps := range map[string][]step{
		"from the start":   {{choice: spread, quota: "101", wantReason: invalid, wantQuota: "0"}, {choice: spread, quota: "100", wantReason: accepted, wantQuota: "100", wantSkew: 1}},
		"one that spreads": {{choice: spread, quota: "100", wantReason: accepted, wantQuota: "100", wantSkew: 1}, {choice: spread2, quota: "101", wantReason: invalid, wantQuota: "100", wantSkew: 1}},
		"one that has many": {
			{quota: "1000", wantReason: accepted, wantQuota: "1000"},
			{choice: spread, quota: "1000", wantReason: invalid, wantQuota: "1000"},
			{choice: spread, quota: "1000", slice: `{"cpu":"10"}`, wantReason: accepted, wantQuota: "1000", wantSkew: 1},
			{choice: spread, quota: "1000", slice: `{"cpu":"9"}`, wantReason: invalid, wantQuota: "1000", wantSkew: 1},
		},
		"beside a quota that is gone": {
			{quota: "1000", wantReason: accepted, wantQuota: "1000"}, {choice: spread, wantReason: schedulerv1alpha1.ReasonQuotaGone, wantQuota: "1000"},
		},
		"beside a quota above the tenant's limit": {
			{quota: "1000", wantReason: accepted, wantQuota: "1000"},
			{choice: spread, quota: "2000", slice: `{"cpu":"100"}`, maxCPU: "1500", wantReason: schedulerv1alpha1.ReasonTenantLimit, wantQuota: "1000"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTenantBed(t, web())
			for i, step := range steps {
				namespace := web()
				namespace.Annotations = map[string]string{schedulerv1alpha1.AnnotationPlacements: b.due("web")}
				if step.choice != "" {
					namespace.Annotations[schedulerv1alpha1.AnnotationClusterChoice] = step.choice
				}
				if step.slice != "" {
					namespace.Annotations[schedulerv1alpha1.AnnotationSlice] = step.slice
				}
				require.NoError(t, b.api.Tracker().Update(corev1.SchemeGroupVersion.WithResource("namespaces"), namespace, ""))
				b.quota("web", step.quota)
				b.setPolicy(func(spec *tenancyv1alpha1.TenantPolicySpec) {
					if step.maxCPU != "" {
						spec.Limits.Reserved = schedulingtest.Cores(step.maxCPU)
					}
				})
				b.look()
				reconciler := b.controller.reconcile[dispatch.ConcernNamespace].(*namespaces.Reconciler)
				reconciler.QuotaGrace = 30 * time.Second
				_, err := reconciler.Reconcile(t.Context(), dispatch.Request{Concern: dispatch.ConcernNamespace, Namespace: "web"})
				require.NoError(t, err)
				np := b.stored()["web"]
				condition := meta.FindStatusCondition(np.Status.Conditions, schedulerv1alpha1.ConditionAccepted)
				require.Equal(t, step.wantReason, condition.Reason, "step %d: %s", i, condition.Message)
				require.Equal(t, slice.Of(schedulingtest.Cores(step.wantQuota)).Minus(nil), slice.Of(np.Spec.Quota).Minus(nil), "step %d", i)
				var skew int32
				if np.Spec.ClusterChoice != nil {
					skew = np.Spec.ClusterChoice.TopologySpreadConstraints[0].MaxSkew
				}
				require.Equal(t, step.wantSkew, skew, "step %d", i)
				if i == 0 {
					b.grant("web", "r1")
				}
			}
		})
	}
}

// TestChangesHaveARate: what stands for a namespace that is placed is made anew in the scheduler that all tenants share
// when its choice, slice or profile changes, so a tenant has a number of such changes. What the operator changes needs
// none.
func TestChangesHaveARate(t *testing.T) {
	t.Parallel()
	const gpu = `{"tolerations":[{"key":"gpu","operator":"Exists","effect":"NoSchedule"}],"nodeSelector":{"kubernetes.io/hostname":"%s"}}`
	b := newTenantBed(t, web())
	tolerated := func(rules *tenancyv1alpha1.TenantPolicySpec) {
		rules.Scheduling.Tolerations = []tenancyv1alpha1.TolerationRule{{Key: "gpu"}}
	}
	b.setPolicy(tolerated)
	reconcileOne := func(name string) (time.Duration, *schedulerv1alpha1.NamespacePlacementSpec) {
		b.look()
		result, err := b.controller.reconcile.Reconcile(t.Context(), dispatch.Request{Concern: dispatch.ConcernNamespace, Namespace: name})
		require.NoError(t, err)
		return result.RequeueAfter, &b.stored()[name].Spec
	}
	annotate := func(name string, annotations map[string]string) {
		namespace := web()
		namespace.Name, namespace.Annotations = name, annotations
		require.NoError(t, b.api.Tracker().Update(corev1.SchemeGroupVersion.WithResource("namespaces"), namespace, ""))
	}
	choose := func(name, cluster string) (time.Duration, *schedulerv1alpha1.NamespacePlacementSpec) {
		annotate(name, map[string]string{schedulerv1alpha1.AnnotationClusterChoice: fmt.Sprintf(gpu, cluster)})
		return reconcileOne(name)
	}
	b.quota("web", "2")
	for i := range 2 * namespaces.ChangeBurst { // while nothing is placed
		later, _ := choose("web", fmt.Sprint("waiting-", i))
		require.Zero(t, later)
	}
	b.grant("web", "r1")
	for i := range namespaces.ChangeBurst {
		later, spec := choose("web", fmt.Sprint("r", i))
		require.Zero(t, later)
		require.Equal(t, fmt.Sprint("r", i), spec.ClusterChoice.NodeSelector[corev1.LabelHostname])
	}
	for _, annotations := range []map[string]string{
		{},
		{schedulerv1alpha1.AnnotationClusterChoice: fmt.Sprintf(gpu, "r9"), schedulerv1alpha1.AnnotationSlice: `{"cpu":"500m"}`},
		{schedulerv1alpha1.AnnotationClusterChoice: fmt.Sprintf(gpu, "late")},
	} {
		annotate("web", annotations)
		b.quota("web", "3")
		later, spec := reconcileOne("web")
		require.InDelta(t, time.Second, later, float64(time.Millisecond))
		require.Equal(t, "r9", spec.ClusterChoice.NodeSelector[corev1.LabelHostname])
		require.Len(t, spec.ClusterChoice.Tolerations, 1)
		require.Equal(t, slice.Amounts{"cpu": 1000}, slice.Of(spec.Slice))
		require.Equal(t, slice.Amounts{"cpu": 2000}, slice.Of(spec.Quota))
	}
	b.setPolicy(func(*tenancyv1alpha1.TenantPolicySpec) {})
	_, spec := reconcileOne("web")
	require.Empty(t, spec.ClusterChoice.Tolerations, "what the policy does not allow any more is gone at once")
	b.setPolicy(tolerated)

	later, spec := choose("web", "r9")
	require.InDelta(t, time.Second, later, float64(time.Millisecond), "it tolerates more than it did")
	require.Empty(t, spec.ClusterChoice.Tolerations)
	b.clock.SetTime(b.clock.Now().Add(time.Second))
	later, spec = reconcileOne("web")
	require.Zero(t, later)
	require.Len(t, spec.ClusterChoice.Tolerations, 1)
	require.Equal(t, slice.Amounts{"cpu": 3000}, slice.Of(spec.Quota))

	b.quota("web", "4")
	later, spec = reconcileOne("web")
	require.Zero(t, later, "a quota alone does not wait")
	require.Equal(t, slice.Amounts{"cpu": 4000}, slice.Of(spec.Quota))
	other := web()
	other.Name = "other"
	require.NoError(t, b.api.Tracker().Add(other))
	b.quota("other", "1")
	later, spec = choose("other", "r1")
	require.Zero(t, later, "what a namespace begins with does not wait")
	require.NotNil(t, spec.ClusterChoice)
}

// TestQuotasHaveARate: a tenant that lowers and raises, or deletes and creates, a quota without end has a number of
// changes, whether anything is placed or not.
func TestQuotasHaveARate(t *testing.T) {
	t.Parallel()
	for _, placed := range []bool{false, true} {
		for _, again := range []string{"2", ""} {
			t.Run(fmt.Sprintf("placed %t, then %q", placed, again), func(t *testing.T) {
				t.Parallel()
				b := newTenantBed(t, web())
				b.quota("web", "1")
				b.settle()
				if placed {
					b.grant("web", "r1")
					b.settle()
				}
				before, waited := len(b.meta.Writes), time.Duration(0)
				for i := range 3 * namespaces.QuotaBurst {
					b.quota("web", []string{again, "1"}[i%2])
					b.look()
					result, err := b.controller.reconcile.Reconcile(t.Context(), dispatch.Request{Concern: dispatch.ConcernNamespace, Namespace: "web"})
					require.NoError(t, err)
					waited = max(waited, result.RequeueAfter)
				}
				require.LessOrEqual(t, len(b.meta.Writes)-before, 2*namespaces.QuotaBurst, "spec and status of each change")
				require.Positive(t, waited)

				b.clock.SetTime(b.clock.Now().Add(time.Second))
				b.quota("web", "7")
				b.settle()
				require.Equal(t, slice.Amounts{"cpu": 7000}, slice.Of(b.stored()["web"].Spec.Quota))
			})
		}
	}
}

// TestNamespacesBeginAtARate: a tenant that makes and deletes namespaces with quotas without end has a number of them.
func TestNamespacesBeginAtARate(t *testing.T) {
	t.Parallel()
	b := newTenantBed(t)
	b.setPolicy(func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Limits.Namespaces = 2 * namespaces.QuotaBurst })
	for i := range namespaces.QuotaBurst + 10 {
		namespace := web()
		namespace.Name = fmt.Sprint("n", i)
		require.NoError(t, b.api.Tracker().Add(namespace))
		b.quota(namespace.Name, "1")
	}
	b.look()
	begin := func() (waiting int) {
		b.look()
		for _, namespace := range b.namespaces() {
			result, err := b.controller.reconcile.Reconcile(t.Context(), dispatch.Request{Concern: dispatch.ConcernNamespace, Namespace: namespace.Name})
			require.NoError(t, err)
			if result.RequeueAfter > 0 && b.stored()[namespace.Name] == nil {
				waiting++
			}
		}
		return waiting
	}
	require.Equal(t, 10, begin())
	require.Len(t, b.stored(), namespaces.QuotaBurst)
	b.clock.SetTime(b.clock.Now().Add(2 * time.Second))
	require.Zero(t, begin())
	require.Len(t, b.stored(), namespaces.QuotaBurst+10)
}

// TestChangesHaveTurns: namespaces that wait for a change have their turns in the order in which they came, whoever
// asks again sooner. One that waits for long says so once; one that wants none any more, or is gone, holds up no other.
func TestChangesHaveTurns(t *testing.T) {
	t.Parallel()
	b := newTenantBed(t)
	b.setPolicy(func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Limits.Namespaces = 2 * namespaces.QuotaBurst })
	const beyond = 30
	name := func(i int) string { return fmt.Sprintf("n%03d", i) }
	for i := range namespaces.QuotaBurst + beyond {
		namespace := web()
		namespace.Name = name(i)
		require.NoError(t, b.api.Tracker().Add(namespace))
		b.quota(namespace.Name, "1")
	}
	b.look()
	reconcileOne := func(i int) {
		_, err := b.controller.reconcile.Reconcile(t.Context(), dispatch.Request{Concern: dispatch.ConcernNamespace, Namespace: name(i)})
		require.NoError(t, err)
	}
	begun := func() (late []int) {
		stored := b.stored()
		for i := range beyond {
			if stored[name(namespaces.QuotaBurst+i)] != nil {
				late = append(late, i)
			}
		}
		return late
	}
	told := func() (about []string) {
		for len(b.recorder.Events) > 0 {
			if event := <-b.recorder.Events; strings.Contains(event, tenantevents.ReasonWaitsForTurn) {
				about = append(about, event)
			}
		}
		return about
	}
	for i := range namespaces.QuotaBurst {
		reconcileOne(i)
	}
	require.Len(t, b.stored(), namespaces.QuotaBurst)
	require.Empty(t, told())
	for i := range beyond {
		reconcileOne(namespaces.QuotaBurst + i)
	}
	require.Empty(t, begun())
	events := told()
	require.Len(t, events, beyond-14, "14 of them have their turns within three seconds")
	require.Equal(t, "Warning WaitsForTurn Namespaces of the tenant begin and change faster than 5 in a second: this one waits for its turn, after 14 others", events[0])

	b.clock.SetTime(b.clock.Now().Add(time.Second))
	for i := range beyond { // the last one asks first
		reconcileOne(namespaces.QuotaBurst + beyond - 1 - i)
	}
	require.Equal(t, []int{0, 1, 2, 3, 4}, begun())
	require.Empty(t, told(), "each was told")

	core := b.factory.Core().V1()
	require.NoError(t, core.Namespaces().Informer().GetIndexer().Delete(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name(namespaces.QuotaBurst + 5)}}))
	require.NoError(t, core.ResourceQuotas().Informer().GetIndexer().Delete(builders.Quota(name(namespaces.QuotaBurst+6), "quota")))
	b.clock.SetTime(b.clock.Now().Add(time.Second))
	for i := 5; i < beyond; i++ {
		reconcileOne(namespaces.QuotaBurst + i)
	}
	require.Equal(t, []int{0, 1, 2, 3, 4, 7, 8, 9, 10, 11}, begun(), "who wants no turn has none")
}

// TestAQuotaThatIsGone: what a namespace has is kept for half a minute after its quota was deleted, restart or not.
func TestAQuotaThatIsGone(t *testing.T) {
	t.Parallel()
	type step struct {
		after   time.Duration
		restart bool
		// quota is "" for no quota.
		quota string
		// annotations are those of the namespace from then on, nil for what they were.
		annotations map[string]string
		// wantLeft is for how long it is kept, and want whether anything stays.
		wantLeft time.Duration
		want     bool
	}
	var (
		badChoice  = map[string]string{schedulerv1alpha1.AnnotationClusterChoice: "typo"}
		notAllowed = map[string]string{schedulerv1alpha1.AnnotationClusterChoice: `{"nodeSelector":{"tier":"gold"}}`}
		badSlice   = map[string]string{schedulerv1alpha1.AnnotationSlice: "typo"}
		noProfile  = map[string]string{schedulerv1alpha1.AnnotationScheduler: "typo"}
		valid      = map[string]string{}
	)
	const kept, none = true, false
	for name, tc := range map[string]struct {
		waits bool
		other *corev1.ResourceQuota
		steps []step
	}{
		"it comes back": {steps: []step{
			{wantLeft: 30 * time.Second, want: kept},
			{after: 29 * time.Second, quota: "1", want: kept},
			{after: time.Hour, wantLeft: 30 * time.Second, want: kept},
		}},
		"it does not": {steps: []step{{wantLeft: 30 * time.Second, want: kept}, {after: 30 * time.Second, want: none}, {after: time.Second, want: none}}},
		"another process goes on": {steps: []step{
			{wantLeft: 30 * time.Second, want: kept}, {after: 10 * time.Second, restart: true, wantLeft: 20 * time.Second, want: kept}, {after: 20 * time.Second, restart: true, want: none},
		}},
		"no process for a while": {steps: []step{{wantLeft: 30 * time.Second, want: kept}, {after: time.Hour, restart: true, want: none}}},
		"lowered to nothing":     {steps: []step{{quota: "0", want: none}}},
		"a quota of other things": {
			other: builders.Quota("web", "objects", "count/secrets", "10"), steps: []step{{wantLeft: 30 * time.Second, want: kept}, {after: 30 * time.Second, want: none}},
		},
		"the toleration is invalid": {steps: []step{
			{annotations: map[string]string{schedulerv1alpha1.AnnotationLostToleration: "typo"}, wantLeft: 30 * time.Second, want: kept}, {after: 30 * time.Second, want: none},
		}},
		"the choice is invalid": {steps: []step{
			{annotations: badChoice, wantLeft: 30 * time.Second, want: kept},
			{after: 10 * time.Second, restart: true, wantLeft: 20 * time.Second, want: kept},
			{after: 20 * time.Second, restart: true, want: none},
			{after: time.Second, restart: true, want: none},
		}},
		"the choice is not allowed": {steps: []step{{annotations: notAllowed, wantLeft: 30 * time.Second, want: kept}, {after: 30 * time.Second, want: none}}},
		"the slice is invalid": {steps: []step{
			{annotations: badSlice, wantLeft: 30 * time.Second, want: kept}, {after: 30 * time.Second, restart: true, want: none}, {annotations: valid, want: none},
		}},
		"the profile is unknown": {steps: []step{{annotations: noProfile, wantLeft: 30 * time.Second, want: kept}, {after: 30 * time.Second, want: none}}},
		"the choice breaks meanwhile, and is mended": {steps: []step{
			{wantLeft: 30 * time.Second, want: kept},
			{after: 10 * time.Second, annotations: badChoice, wantLeft: 20 * time.Second, want: kept},
			{after: 10 * time.Second, restart: true, annotations: valid, wantLeft: 10 * time.Second, want: kept},
			{after: 10 * time.Second, annotations: badChoice, want: none},
		}},
		"it comes back while the choice is invalid": {steps: []step{
			{annotations: badChoice, wantLeft: 30 * time.Second, want: kept},
			{after: 29 * time.Second, quota: "1", want: kept},
			{after: time.Hour, restart: true, quota: "1", want: kept},
			{annotations: valid, quota: "1", want: kept},
			{after: time.Hour, wantLeft: 30 * time.Second, want: kept},
		}},
		"an invalid one is none that is gone":          {steps: []step{{quota: "-1", want: kept}, {after: time.Hour, restart: true, quota: "-1", want: kept}}},
		"nothing is placed":                            {waits: true, steps: []step{{want: none}}},
		"nothing is placed, and the choice is invalid": {waits: true, steps: []step{{annotations: badChoice, want: none}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTenantBed(t, web())
			b.clock.SetTime(time.Unix(1_800_000_000, 0))
			if tc.other != nil {
				require.NoError(t, b.api.Tracker().Add(tc.other))
			}
			b.quota("web", "1")
			b.settle()
			if !tc.waits {
				b.grant("web", "r1")
				b.settle()
			}
			for i, step := range tc.steps {
				b.clock.SetTime(b.clock.Now().Add(step.after))
				if step.annotations != nil {
					namespace := web()
					namespace.Annotations = step.annotations
					require.NoError(t, b.api.Tracker().Update(corev1.SchemeGroupVersion.WithResource("namespaces"), namespace, ""))
				}
				if step.restart {
					b.start()
				}
				b.quota("web", step.quota)
				b.look()
				reconciler := b.controller.reconcile[dispatch.ConcernNamespace].(*namespaces.Reconciler)
				reconciler.QuotaGrace = 30 * time.Second
				result, err := reconciler.Reconcile(t.Context(), dispatch.Request{Concern: dispatch.ConcernNamespace, Namespace: "web"})
				require.NoError(t, err)
				np := b.stored()["web"]
				require.Equal(t, step.want, !placement.Staying(np.Status.Placements).IsZero(), "step %d", i)
				require.Equal(t, step.want, len(np.Spec.Quota) > 0 && !slice.Of(np.Spec.Quota).IsZero(), "step %d", i)
				if step.wantLeft > 0 {
					require.Equal(t, step.wantLeft, result.RequeueAfter, "step %d", i)
				}
				require.Equal(t, step.wantLeft > 0, np.Spec.QuotaGoneSince != nil, "step %d", i)
				accepted := meta.FindStatusCondition(np.Status.Conditions, schedulerv1alpha1.ConditionAccepted)
				require.Equal(t, step.wantLeft > 0, accepted.Reason == schedulerv1alpha1.ReasonQuotaGone, "step %d: %s", i, accepted.Message)
				if i == 0 && step.wantLeft > 0 {
					require.Equal(t, "The namespace has no ResourceQuota with compute resources any more: what it has is kept until 2027-01-15T08:00:30Z", accepted.Message)
				}
			}
		})
	}
}
