package placement_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/test/builders"
)

func list(cpu, memory string) corev1.ResourceList {
	return builders.Resources("cpu", cpu, "memory", memory)
}

func namespaceWith(annotation string) *corev1.Namespace {
	namespace := builders.Namespace("web")
	namespace.UID = "u1"
	if annotation != "" {
		namespace.Annotations = map[string]string{schedulerv1alpha1.AnnotationSlice: annotation}
	}
	return namespace
}

func quotas(lists ...corev1.ResourceList) []corev1.ResourceQuota {
	var result []corev1.ResourceQuota
	for _, hard := range lists {
		result = append(result, corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Hard: hard}})
	}
	return result
}

func TestSpec(t *testing.T) {
	t.Parallel()
	previous := &schedulerv1alpha1.NamespacePlacementSpec{NamespaceUID: "u1", Slice: list("1", "1Gi"), Quota: list("4", "4Gi"), Priority: 3}
	other := &schedulerv1alpha1.NamespacePlacementSpec{NamespaceUID: "u0", Slice: list("1", "1Gi"), Quota: list("4", "4Gi")}
	for _, tc := range []struct {
		name      string
		namespace *corev1.Namespace
		quotas    []corev1.ResourceQuota
		previous  *schedulerv1alpha1.NamespacePlacementSpec

		wantSlice, wantQuota, wantReason string
	}{
		{name: "the demo", namespace: namespaceWith(`{"cpu":"100m","memory":"100Mi"}`), quotas: quotas(list("200m", "200Mi")), wantSlice: "cpu=100m,memory=100Mi,pods=1", wantQuota: "cpu=200m,memory=200Mi,pods=2"},
		{name: "default slice", namespace: namespaceWith(""), quotas: quotas(list("2", "64Gi")), wantSlice: "cpu=2,memory=4Gi,pods=20", wantQuota: "cpu=2,memory=64Gi,pods=320"},
		{name: "default for what is not named", namespace: namespaceWith(`{"cpu":"1"}`), quotas: quotas(list("2", "4Gi")), wantSlice: "cpu=1,memory=2Gi,pods=10", wantQuota: "cpu=2,memory=4Gi,pods=20"},
		{name: "a quota of cpu alone", namespace: namespaceWith(""), quotas: quotas(builders.Resources("requests.cpu", "4")), wantSlice: "cpu=2,memory=4Gi,pods=20", wantQuota: "cpu=4,memory=8Gi,pods=40"},
		{name: "a quota of pods alone", namespace: namespaceWith(""), quotas: quotas(builders.Resources("pods", "4")), wantSlice: "cpu=2,memory=4Gi,pods=20"},
		{name: "no memory", namespace: namespaceWith(""), quotas: quotas(list("2", "4Gi"), builders.Resources("memory", "0")), wantSlice: "cpu=2,memory=4Gi,pods=20", wantQuota: "cpu=2,pods=20"},
		{name: "no quota", namespace: namespaceWith(""), wantSlice: "cpu=2,memory=4Gi,pods=20"},
		{name: "no quota any more", namespace: namespaceWith(""), previous: previous, wantSlice: "cpu=2,memory=4Gi,pods=20"},
		{name: "not JSON, new", namespace: namespaceWith("x"), quotas: quotas(list("2", "4Gi")), wantReason: schedulerv1alpha1.ReasonInvalidSlice},
		{name: "not JSON, the last good stays", namespace: namespaceWith("x"), quotas: quotas(list("9", "9Gi")), previous: previous, wantSlice: "cpu=1,memory=1Gi", wantQuota: "cpu=4,memory=4Gi", wantReason: schedulerv1alpha1.ReasonInvalidSlice},
		{name: "not JSON, and the quota falls", namespace: namespaceWith("x"), quotas: quotas(list("2", "9Gi")), previous: previous, wantSlice: "cpu=1,memory=1Gi", wantQuota: "cpu=2,memory=4Gi", wantReason: schedulerv1alpha1.ReasonInvalidSlice},
		{name: "too many slices, and the quota falls", namespace: namespaceWith(`{"cpu":"1m"}`), quotas: quotas(builders.Resources("cpu", "3")), previous: previous, wantSlice: "cpu=1,memory=1Gi", wantQuota: "cpu=3,memory=3Gi", wantReason: schedulerv1alpha1.ReasonInvalidSlice},
		{name: "the last good of another namespace of the name", namespace: namespaceWith("x"), quotas: quotas(list("9", "9Gi")), previous: other, wantReason: schedulerv1alpha1.ReasonInvalidSlice},
		{name: "zero", namespace: namespaceWith(`{"cpu":"0"}`), wantReason: schedulerv1alpha1.ReasonInvalidSlice},
		{name: "negative", namespace: namespaceWith(`{"cpu":"-1"}`), wantReason: schedulerv1alpha1.ReasonInvalidSlice},
		{name: "too many slices", namespace: namespaceWith(`{"cpu":"1m"}`), quotas: quotas(list("2", "1Gi")), wantReason: schedulerv1alpha1.ReasonInvalidSlice},
		{name: "huge quota", namespace: namespaceWith(""), quotas: quotas(list("1e30", "1Gi")), previous: previous, wantSlice: "cpu=1,memory=1Gi", wantQuota: "cpu=4,memory=4Gi", wantReason: schedulerv1alpha1.ReasonInvalidQuota},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			spec, problem := placement.Spec(tc.namespace, tc.quotas, tc.previous, slice.Of(builders.Resources("cpu", "2", "memory", "4Gi", "pods", "20")))
			reason := ""
			if problem != nil {
				reason = problem.Reason
				require.NotEmpty(t, problem.Message)
			}
			require.Equal(t, tc.wantReason, reason)
			require.Equal(t, tc.wantSlice, slice.Of(spec.Slice).String())
			require.Equal(t, tc.wantQuota, slice.Of(spec.Quota).String())
			require.Equal(t, tc.namespace.UID, spec.NamespaceUID)
		})
	}
}

func TestSpecReadsTheOldAnnotation(t *testing.T) {
	t.Parallel()
	namespace := namespaceWith("")
	namespace.Annotations = map[string]string{schedulerv1alpha1.DeprecatedAnnotationSlice: `{"cpu":"1"}`}
	spec, problem := placement.Spec(namespace, nil, nil, nil)
	require.Nil(t, problem)
	require.Equal(t, "cpu=1", slice.Of(spec.Slice).String())
}

func TestSliceLargerThanQuota(t *testing.T) {
	tests := map[string]struct {
		annotation  string
		cpu, memory string
		want        bool
	}{
		"larger":                             {annotation: `{"cpu":"1"}`, cpu: "500m", memory: "1Gi", want: true},
		"equal":                              {annotation: `{"cpu":"1","memory":"1Gi"}`, cpu: "1", memory: "1Gi"},
		"smaller":                            {annotation: `{"cpu":"1","memory":"1Gi"}`, cpu: "2", memory: "2Gi"},
		"larger, but cut by the default":     {annotation: `{"cpu":"1"}`, cpu: "500m", memory: "64Gi"},
		"only what is not named is smaller":  {annotation: `{"cpu":"200m"}`, cpu: "200m", memory: "200Mi"},
		"no slice named":                     {cpu: "1", memory: "1Gi"},
		"a slice that cannot be read":        {annotation: "cpu=1", cpu: "500m", memory: "1Gi"},
		"a quota that bounds nothing at all": {annotation: `{"cpu":"1"}`, cpu: "0", memory: "0"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			namespace := namespaceWith(tc.annotation)
			if tc.annotation == "" {
				namespace.Annotations = nil
			}
			quota := *builders.Quota("web", "quota", "cpu", tc.cpu, "memory", tc.memory)
			spec, _ := placement.Spec(namespace, []corev1.ResourceQuota{quota}, nil, slice.Amounts{"cpu": 2000, "memory": 4 << 30})
			message := placement.SliceLargerThanQuota(namespace, &spec)
			require.Equal(t, tc.want, message != "", message)
		})
	}
}

func demo(placements ...schedulerv1alpha1.ClusterPlacement) *schedulerv1alpha1.NamespacePlacement {
	np := builders.Placement("tenant", "web").Slice("cpu", "100m", "memory", "100Mi").Quota("cpu", "200m", "memory", "200Mi").Placements(placements...).Obj()
	np.ResourceVersion = "now"
	return np
}

// grant returns the placements of object with what was granted.
func grant(object *schedulerv1alpha1.NamespacePlacement, granted map[string]slice.Amounts) []schedulerv1alpha1.ClusterPlacement {
	next, _, _ := placement.Next(object, placement.Facts{Granted: granted})
	return next.Placements
}

// release returns the placements of object without what the quota no longer asks for: what is too much leaves, the
// syncers lower their quotas to what stays, and what is free then is released. Nothing is used where used says nothing.
func release(object *schedulerv1alpha1.NamespacePlacement, used map[string]slice.Amounts) []schedulerv1alpha1.ClusterPlacement {
	object = object.DeepCopy()
	for range 2 {
		measured := map[string]placement.Use{}
		for i := range object.Status.Placements {
			p := &object.Status.Placements[i]
			measured[p.Cluster] = placement.Use{Requests: used[p.Cluster], Hard: placement.StayingIn(p), Decision: placement.Decision(object, p.Cluster)}
		}
		object.Status, _, _ = placement.Next(object, placement.Facts{Now: noon, Used: measured})
	}
	return object.Status.Placements
}

func TestDemo(t *testing.T) {
	t.Parallel()
	object := demo()
	missing := placement.Missing(object)
	require.Len(t, missing, 1)
	require.Equal(t, int64(2), missing[0].Count)
	object.Status.Placements = grant(object, map[string]slice.Amounts{"r2": missing[0].Size, "r1": missing[0].Size})
	require.Equal(t, `{"r1":1,"r2":1}`, placement.Encode(object.Status.Placements))
	require.Empty(t, placement.Missing(object))
	wanted, placed := placement.Slices(&object.Spec, object.Status.Placements)
	require.Equal(t, []int32{2, 2}, []int32{wanted, placed})

	object.Spec.Quota = list("100m", "100Mi")
	require.Equal(t, `{"r1":1}`, placement.Encode(release(object, nil)))
	used := map[string]slice.Amounts{"r2": slice.Of(list("10m", "1Mi"))}
	require.Equal(t, `{"r2":1}`, placement.Encode(release(object, used)), "what is used stays")
	object.Spec.Slice = list("50m", "50Mi")
	require.Equal(t, `{"r1":2,"r2":2}`, placement.Encode(grant(object, nil)))
	object.Spec.Quota = nil
	require.Empty(t, placement.Encode(release(object, nil)))
}

// TestReleaseProperties checks random reservations: nothing grows, nothing goes below what is used, what is left covers
// the quota as far as it did, and no more is given back than was too much.
func TestReleaseProperties(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	for range 1_000 {
		object := demo()
		object.Spec.Quota = pick(random).List()
		granted, used := map[string]slice.Amounts{}, map[string]slice.Amounts{}
		for i := range 1 + random.IntN(5) {
			cluster := fmt.Sprintf("r%d", i)
			granted[cluster] = pick(random)
			if random.IntN(2) == 0 {
				used[cluster] = pick(random)
			}
		}
		object.Status.Placements = grant(object, granted)
		before := placement.Reserved(object.Status.Placements)
		sum := slice.Amounts{}
		for _, amounts := range granted {
			sum = sum.Plus(amounts)
		}
		require.Empty(t, cmp.Diff(sum, before), "a grant adds exactly what was granted")

		released := release(object, used)
		held := map[string]slice.Amounts{}
		for i := range released {
			held[released[i].Cluster] = slice.Of(released[i].Reserved)
		}
		quota := slice.Of(object.Spec.Quota)
		after := placement.Reserved(released)
		stuck := slice.Amounts{}
		for cluster, was := range granted {
			require.True(t, held[cluster].Fits(was), "nothing grows")
			floor := was.Minus(was.Minus(used[cluster])) // min(was, used)
			require.True(t, floor.Fits(held[cluster]), "nothing goes below what is used")
			stuck = stuck.Plus(floor)
		}
		for _, name := range before.Names() {
			want := max(min(before[name], quota[name]), stuck[name])
			require.Equal(t, want, after[name], "%s: held %s, used %v, quota %s, left %s", name, before, used, quota, after)
		}
		object.Status.Placements = released
		require.Empty(t, cmp.Diff(released, release(object, used)), "a second release finds nothing")
	}
}

func pick(random *rand.Rand) slice.Amounts {
	result := slice.Amounts{}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, "nvidia.com/gpu"} {
		if amount := random.Int64N(400); amount > 100 {
			result[name] = amount
		}
	}
	return result
}

// TestGrantWhatIsMissing checks that granting the missing slices, wherever they go, ends with the quota exactly.
func TestGrantWhatIsMissing(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 6))
	for range 2_000 {
		object := demo()
		object.Spec.Quota, object.Spec.Slice = pick(random).List(), pick(random).List()
		granted := map[string]slice.Amounts{}
		for _, run := range placement.Missing(object) {
			for range min(run.Count, 500) {
				cluster := fmt.Sprintf("r%d", random.IntN(4))
				granted[cluster] = granted[cluster].Plus(run.Size)
			}
		}
		object.Status.Placements = grant(object, granted)
		require.Empty(t, placement.Missing(object))
		require.Empty(t, cmp.Diff(slice.Of(object.Spec.Quota), placement.Reserved(object.Status.Placements)))
	}
}

func TestDecode(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, text, wantError string
		want                  map[string]int32
	}{
		{name: "the demo", text: `{"r1":1,"r2":1}`, want: map[string]int32{"r1": 1, "r2": 1}},
		{name: "none", text: `{}`, want: map[string]int32{}},
		{name: "nonsense", text: `r1`, wantError: "not a JSON object"},
		{name: "a list", text: `[1]`, wantError: "not a JSON object"},
		{name: "negative", text: `{"r1":-1}`, wantError: "-1 slices"},
		{name: "no cluster", text: `{"":1}`, wantError: `"" with 1 slices`},
		{name: "too many", text: `{"r1":99999999999}`, wantError: "not a JSON object"},
		{name: "a part", text: `{"r1":1.5}`, wantError: "not a JSON object"},
		{name: "endless", text: strings.Repeat(" ", 70_000), wantError: "longer than"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := placement.Decode(tc.text)
			if tc.wantError != "" {
				require.ErrorContains(t, err, tc.wantError)
				return
			}
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(tc.want, got))
		})
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{`{"r1":1,"r2":1}`, `{}`, `null`, `{"r1":-1}`, `{"r1":1e3}`, `{"é":2,"\u0000":3}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		counts, err := placement.Decode(text)
		if err != nil || len(counts) == 0 {
			return
		}
		var placements []schedulerv1alpha1.ClusterPlacement
		for cluster, count := range counts {
			placements = append(placements, schedulerv1alpha1.ClusterPlacement{Cluster: cluster, Slices: count})
		}
		again, err := placement.Decode(placement.Encode(placements))
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(counts, again))
	})
}

func BenchmarkRelease(b *testing.B) {
	for _, clusters := range []int{2, 20, 200} {
		object := demo()
		granted := map[string]slice.Amounts{}
		for i := range clusters {
			granted[fmt.Sprintf("r%03d", i)] = slice.Of(list("1", "1Gi"))
		}
		object.Status.Placements = grant(object, granted)
		b.Run(fmt.Sprintf("clusters=%d", clusters), func(b *testing.B) {
			for b.Loop() {
				release(object, nil)
			}
		})
	}
}

func TestBoundingQuota(t *testing.T) {
	t.Parallel()
	named := func(name string, hard ...string) *corev1.ResourceQuota { return builders.Quota("web", name, hard...) }
	scoped := named("scoped", "cpu", "1")
	scoped.Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeBestEffort}
	for name, tc := range map[string]struct {
		quotas []*corev1.ResourceQuota
		want   string
	}{
		"none":                           {},
		"one":                            {quotas: []*corev1.ResourceQuota{named("a", "cpu", "1")}, want: "a"},
		"one that bounds something else": {quotas: []*corev1.ResourceQuota{named("a", "count/services", "1")}},
		"one with a scope":               {quotas: []*corev1.ResourceQuota{scoped}},
		"the smaller":                    {quotas: []*corev1.ResourceQuota{named("a", "cpu", "2"), named("b", "cpu", "1"), scoped}, want: "b"},
		"equal ones":                     {quotas: []*corev1.ResourceQuota{named("b", "cpu", "1"), named("a", "cpu", "1")}, want: "a"},
		"cpu before memory":              {quotas: []*corev1.ResourceQuota{named("a", "memory", "1"), named("b", "cpu", "1")}, want: "b"},
		"the invalid one":                {quotas: []*corev1.ResourceQuota{named("a", "cpu", "1"), named("b", "cpu", "1e30")}, want: "b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := slices.Clone(tc.quotas)
			got := placement.BoundingQuota(tc.quotas)
			require.Equal(t, before, tc.quotas, "the list is the caller's")
			if tc.want == "" {
				require.Nil(t, got)
				return
			}
			require.Equal(t, tc.want, got.Name)
		})
	}
}

func TestClustersThatNewPodsMayUse(t *testing.T) {
	t.Parallel()
	cores := func(amount string) corev1.ResourceList {
		return builders.Resources("cpu", amount)
	}
	leaving := func(amount string) *schedulerv1alpha1.Leaving {
		return &schedulerv1alpha1.Leaving{Reserved: cpu(amount), Reason: schedulerv1alpha1.LeavingDrained}
	}
	for name, tc := range map[string]struct {
		part          schedulerv1alpha1.ClusterPlacement
		wantLeaving   bool
		wantStayingIn slice.Amounts
	}{
		"stays":            {part: schedulerv1alpha1.ClusterPlacement{Reserved: cores("1")}, wantStayingIn: slice.Amounts{"cpu": 1000}},
		"holds nothing":    {wantStayingIn: slice.Amounts{}},
		"a part leaves":    {part: schedulerv1alpha1.ClusterPlacement{Reserved: cores("1"), Leaving: leaving("400m")}, wantStayingIn: slice.Amounts{"cpu": 600}},
		"leaves":           {part: schedulerv1alpha1.ClusterPlacement{Reserved: cores("1"), Leaving: leaving("1")}, wantLeaving: true, wantStayingIn: slice.Amounts{}},
		"more than it has": {part: schedulerv1alpha1.ClusterPlacement{Reserved: cores("1"), Leaving: leaving("2")}, wantLeaving: true, wantStayingIn: slice.Amounts{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.part.Cluster = "r1"
			require.Empty(t, cmp.Diff(tc.wantStayingIn, placement.StayingIn(&tc.part)))
			require.Equal(t, tc.wantLeaving, placement.IsLeaving(&tc.part))
			require.Equal(t, !tc.wantLeaving, placement.Clusters([]schedulerv1alpha1.ClusterPlacement{tc.part}).Has("r1"))
		})
	}
}

func TestLostToleration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"90s": "1m30s", "0": "0s", "24h": "24h0m0s", "24h1s": "invalid", "-1s": "invalid", "": "invalid", "5": "invalid", "for ever": "invalid",
		strings.Repeat("9", 1000) + "h": "invalid",
	} {
		namespace := builders.Namespace("web")
		namespace.Annotations = map[string]string{schedulerv1alpha1.AnnotationLostToleration: text}
		toleration, invalid := placement.LostToleration(namespace)
		if want == "invalid" {
			require.Nil(t, toleration, text)
			require.Equal(t, schedulerv1alpha1.ReasonInvalidLostToleration, invalid.Reason)
			require.Less(t, len(invalid.Message), 300)
			continue
		}
		require.Nil(t, invalid, text)
		require.Equal(t, want, toleration.Duration.String())
	}
	toleration, invalid := placement.LostToleration(builders.Namespace("web"))
	require.Nil(t, toleration)
	require.Nil(t, invalid)
}
