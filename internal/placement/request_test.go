package placement_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/test/builders"
)

// pinned writes the slices that a request needs as r2=2x1: two slices of one core in r2.
func pinned(np *schedulerv1alpha1.NamespacePlacement) string {
	var parts []string
	for _, run := range placement.Pinned(np) {
		size := run.Size.List()
		parts = append(parts, fmt.Sprintf("%s=%dx%s", run.Cluster, run.Count, size.Cpu()))
	}
	return strings.Join(parts, " ")
}

// granted is what the namespace scheduler does with all slices of a request.
func granted(np *schedulerv1alpha1.NamespacePlacement) map[string]slice.Amounts {
	all := map[string]slice.Amounts{}
	for _, run := range placement.Pinned(np) {
		all[run.Cluster] = all[run.Cluster].Plus(run.Size.Times(run.Count))
	}
	return all
}

func TestAsk(t *testing.T) {
	t.Parallel()
	const often = 5 * time.Minute
	asked := func(np *schedulerv1alpha1.NamespacePlacement, before time.Duration) *schedulerv1alpha1.NamespacePlacement {
		np.Status.LastRequested = ptr.To(metav1.NewTime(noon.Add(-before)))
		return np
	}
	for name, tc := range map[string]struct {
		np         *schedulerv1alpha1.NamespacePlacement
		annotation string
		never      bool
		// want is what is pinned, and wantGranted what the placements are once that is granted.
		want, wantGranted string
		wantRefused       string
	}{
		"one slice moves":                {np: asks("2", in("r1", "2")), annotation: `{"r1":1,"r2":1}`, want: "r2=1x1", wantGranted: "r1=2-1 r2=1"},
		"all move":                       {np: asks("2", in("r1", "2")), annotation: `{"r2":2}`, want: "r2=2x1", wantGranted: "r1=2-2 r2=2"},
		"it is said that none stay":      {np: asks("2", in("r1", "2")), annotation: `{"r1":0,"r2":2}`, want: "r2=2x1", wantGranted: "r1=2-2 r2=2"},
		"from two to two":                {np: asks("3", in("r1", "1"), in("r2", "2")), annotation: `{"r1":2,"r3":1}`, want: "r1=1x1 r3=1x1", wantGranted: "r1=2 r2=2-2 r3=1"},
		"the smaller slice moves":        {np: asks("2500m", in("r1", "2500m")), annotation: `{"r1":2,"r2":1}`, want: "r2=1x500m", wantGranted: "r1=2500m-500m r2=500m"},
		"nothing is placed yet":          {np: asks("2"), annotation: `{"r2":2}`, want: "r2=2x1", wantGranted: "r2=2"},
		"a part is placed":               {np: asks("3", in("r1", "1")), annotation: `{"r2":3}`, want: "r2=3x1", wantGranted: "r1=1-1 r2=3"},
		"what is held is in parts":       {np: asks("2", in("r1", "1200m"), in("r2", "800m")), annotation: `{"r1":1,"r2":1}`, want: "r2=1x200m", wantGranted: "r1=1200m-200m r2=1"},
		"it is to be placed anew":        {np: asks("2", in("r1", "2")), wantGranted: "r1=2"},
		"too many":                       {np: asks("2", in("r1", "2")), annotation: `{"r1":2,"r2":1}`, wantRefused: "the placements add up to 3 slices, and the quota makes 2"},
		"too few":                        {np: asks("2", in("r1", "2")), annotation: `{"r1":1}`, wantRefused: "the placements add up to 1 slices, and the quota makes 2"},
		"none":                           {np: asks("2", in("r1", "2")), annotation: `{}`, wantRefused: "the placements add up to 0 slices, and the quota makes 2"},
		"no JSON":                        {np: asks("2", in("r1", "2")), annotation: "r1=2", wantRefused: "placements are not a JSON object"},
		"null":                           {np: asks("2", in("r1", "2")), annotation: "null", wantRefused: "the placements add up to 0 slices, and the quota makes 2"},
		"negative":                       {np: asks("2", in("r1", "2")), annotation: `{"r1":3,"r2":-1}`, wantRefused: `placements name "r2" with -1 slices`},
		"half slices":                    {np: asks("2", in("r1", "2")), annotation: `{"r1":1.5,"r2":0.5}`, wantRefused: "placements are not a JSON object"},
		"numbers that wrap":              {np: asks("2", in("r1", "2")), annotation: `{"r1":2147483647,"r2":2147483647,"r3":4}`, wantRefused: "the placements add up to 4294967298 slices, and the quota makes 2"},
		"too large a number":             {np: asks("2", in("r1", "2")), annotation: `{"r1":4294967298}`, wantRefused: "placements are not a JSON object"},
		"no name":                        {np: asks("2", in("r1", "2")), annotation: `{"R_1":2}`, wantRefused: `"R_1" is no name of a super cluster`},
		"too long":                       {np: asks("2", in("r1", "2")), annotation: strings.Repeat(" ", 64*1024+1), wantRefused: "placements are longer than 8192 characters"},
		"no quota":                       {np: asks("0"), annotation: `{"r1":1}`, wantRefused: "nothing of the namespace is to be placed"},
		"never":                          {np: asks("1", in("r1", "1")), never: true, annotation: `{"r2":1}`, wantRefused: "the tenant's policy allows no requests"},
		"too soon":                       {np: asked(asks("1", in("r1", "1")), often-time.Second), annotation: `{"r2":1}`, wantRefused: "other placements were requested at 2026-01-01T11:55:01Z, and may be again at 2026-01-01T12:00:01Z"},
		"soon enough":                    {np: asked(asks("1", in("r1", "1")), often), annotation: `{"r2":1}`, want: "r2=1x1", wantGranted: "r1=1-1 r2=1"},
		"while it is drained":            {np: asks("1", leaves("r1", "1", "1")), annotation: `{"r2":1}`, wantRefused: "the namespace is on the move"},
		"while something is displaced":   {np: displaced("1", asks("1")), annotation: `{"r2":1}`, wantRefused: "the namespace is on the move"},
		"while it shrinks":               {np: asks("1", in("r1", "1"), shrinks("r2", "1", "1")), annotation: `{"r2":1}`, wantRefused: "the namespace is on the move"},
		"anew, and not all of it placed": {np: asks("2", in("r1", "1")), wantRefused: "the namespace waits to be placed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			interval := often
			if tc.never {
				interval = 0
			}
			before := tc.np.DeepCopy()
			next, refused := placement.Ask(tc.np, tc.annotation, interval, noon)
			require.Empty(t, cmp.Diff(before, tc.np), "the argument is the caller's")
			if tc.wantRefused != "" {
				require.Contains(t, refused, tc.wantRefused)
				require.Empty(t, cmp.Diff(before.Status, next), "nothing is changed")
				return
			}
			require.Empty(t, refused)
			after := tc.np.DeepCopy()
			after.Status = next
			require.Equal(t, noon, next.LastRequested.UTC())
			require.Equal(t, schedulerv1alpha1.RequestWaiting, next.Requested.State)
			require.Equal(t, text(before.Status.Placements), text(next.Placements), "nothing moves before it is granted")
			require.Equal(t, tc.want, pinned(after))
			grant := granted(after)
			after.Status, _, _ = placement.Next(after, placement.Facts{Now: noon, Granted: grant})
			require.Equal(t, tc.wantGranted, text(after.Status.Placements))
			if tc.annotation != "" {
				require.Equal(t, schedulerv1alpha1.RequestGranted, after.Status.Requested.State)
				require.Empty(t, placement.Missing(after))
			}
		})
	}
}

// TestRequestEnds: what happens to a request that waits.
func TestRequestEnds(t *testing.T) {
	t.Parallel()
	ask := func(np *schedulerv1alpha1.NamespacePlacement, annotation string) *schedulerv1alpha1.NamespacePlacement {
		np.Status.Published = ptr.To(placement.Encode(np.Status.Placements))
		next, refused := placement.Ask(np, annotation, time.Minute, noon)
		require.Empty(t, refused)
		np.Status = next
		return np
	}
	const one = `{"r2":1}`
	for name, tc := range map[string]struct {
		anew      bool // the tenant removes the annotation
		change    func(np *schedulerv1alpha1.NamespacePlacement)
		facts     placement.Facts
		want      string
		wantState schedulerv1alpha1.RequestState // "" for none any more
		message   string
		// wantPlaced is the message of condition Placed, "" for any.
		wantPlaced string
	}{
		"nothing happens":                  {want: "r1=1", wantState: schedulerv1alpha1.RequestWaiting},
		"the annotation is read":           {facts: placement.Facts{Annotation: ptr.To(one)}, want: "r1=1", wantState: schedulerv1alpha1.RequestWaiting},
		"it is refused":                    {facts: placement.Facts{Unschedulable: "super cluster r2: cordoned"}, want: "r1=1", wantState: schedulerv1alpha1.RequestRefused, message: "super cluster r2: cordoned"},
		"it is taken back":                 {facts: placement.Facts{Annotation: ptr.To(`{"r1":1}`)}, want: "r1=1"},
		"it is granted":                    {facts: placement.Facts{Granted: map[string]slice.Amounts{"r2": cpus("1")}}, want: "r1=1-1 r2=1", wantState: schedulerv1alpha1.RequestGranted},
		"it is granted, and that is shown": {facts: placement.Facts{Granted: map[string]slice.Amounts{"r2": cpus("1")}, Annotation: ptr.To(one)}, want: "r1=1-1 r2=1"},
		"the quota grows":                  {change: func(np *schedulerv1alpha1.NamespacePlacement) { np.Spec.Quota = cpu("2") }, want: "r1=1", wantState: schedulerv1alpha1.RequestRefused, message: "the quota or the slice"},
		"the slice shrinks":                {change: func(np *schedulerv1alpha1.NamespacePlacement) { np.Spec.Slice = cpu("500m") }, want: "r1=1", wantState: schedulerv1alpha1.RequestRefused, message: "the quota or the slice"},
		"the super cluster is drained":     {facts: placement.Facts{Leave: map[string]schedulerv1alpha1.LeavingReason{"r1": schedulerv1alpha1.LeavingDrained}}, want: "r1=1-1", wantState: schedulerv1alpha1.RequestRefused, message: "begun to leave"},
		"it is to be placed anew, the quota grows, and growth is refused": {
			anew: true, change: func(np *schedulerv1alpha1.NamespacePlacement) { np.Spec.Quota = cpu("2") },
			facts: placement.Facts{Unschedulable: "full"}, want: "r1=1", wantState: schedulerv1alpha1.RequestWaiting, wantPlaced: "full",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			annotation := one
			if tc.anew {
				annotation = ""
			}
			np := ask(asks("1", in("r1", "1")), annotation)
			if tc.change != nil {
				tc.change(np)
				require.Empty(t, placement.Pinned(np), "nothing of it is placed any more")
			}
			tc.facts.Now = noon
			next, evict, _ := placement.Next(np, tc.facts)
			require.Empty(t, evict)
			require.Equal(t, tc.want, text(next.Placements))
			if tc.wantState == "" {
				require.Nil(t, next.Requested)
				return
			}
			require.Equal(t, tc.wantState, next.Requested.State)
			require.Contains(t, next.Requested.Message, tc.message)
			require.Contains(t, meta.FindStatusCondition(next.Conditions, schedulerv1alpha1.ConditionPlaced).Message, tc.wantPlaced)
			np.Status = next
			tc.facts.Granted = nil
			again, _, _ := placement.Next(np, tc.facts)
			require.Empty(t, cmp.Diff(next, again), "a second look finds nothing")
		})
	}
}

// TestWhatWasGrantedMoves: pods are evicted once the room elsewhere is granted, and what is free is given back.
func TestWhatWasGrantedMoves(t *testing.T) {
	t.Parallel()
	np := asks("2", in("r1", "2"))
	next, refused := placement.Ask(np, `{"r1":1,"r2":1}`, time.Minute, noon)
	require.Empty(t, refused)
	np.Status = next
	type measured = map[string]placement.Use
	step := func(facts placement.Facts) string {
		facts.Now = noon
		next, evict, _ := placement.Next(np, facts)
		np.Status = next
		line := text(next.Placements)
		for _, e := range evict {
			line += fmt.Sprintf(", %s %s %s", e.Cluster, e.Excess, e.Reason)
		}
		return line
	}
	require.Equal(t, "r1=2", step(placement.Facts{Used: measured{"r1": uses("2", "2")}}))
	require.Equal(t, "r1=2-1 r2=1", step(placement.Facts{Granted: granted(np)}))
	require.Equal(t, "r1=2-1 r2=1, r1 cpu=1 Requested", step(placement.Facts{Used: measured{"r1": uses("2", "1"), "r2": uses("0", "1")}}))
	require.Equal(t, "r1=2-1 r2=1, r1 cpu=1 Requested", step(placement.Facts{Used: measured{"r1": uses("2", "1")}, Leave: map[string]schedulerv1alpha1.LeavingReason{"r1": "", "r2": ""}}))
	require.Equal(t, "r1=1 r2=1", step(placement.Facts{Used: measured{"r1": answers("now", "1", "1"), "r2": uses("1", "1")}}))
	require.Nil(t, np.Status.Displaced)
}

func TestChoose(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		chosen    []schedulerv1alpha1.ClusterPlacement
		why       string
		want      string
		wantState schedulerv1alpha1.RequestState
		message   string
	}{
		"elsewhere":                 {chosen: []schedulerv1alpha1.ClusterPlacement{in("r2", "2")}, want: "r2=2x1", wantState: schedulerv1alpha1.RequestWaiting},
		"in part":                   {chosen: []schedulerv1alpha1.ClusterPlacement{in("r1", "1"), in("r2", "1")}, want: "r2=1x1", wantState: schedulerv1alpha1.RequestWaiting},
		"where it is":               {chosen: []schedulerv1alpha1.ClusterPlacement{in("r1", "2")}, wantState: schedulerv1alpha1.RequestGranted},
		"nowhere":                   {why: "0/2 super clusters are available", wantState: schedulerv1alpha1.RequestRefused, message: "0/2 super clusters are available"},
		"there is nothing to place": {wantState: schedulerv1alpha1.RequestRefused, message: "nothing of the namespace is to be placed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			np := asks("2", in("r1", "2"))
			next, refused := placement.Ask(np, "", time.Minute, noon)
			require.Empty(t, refused)
			np.Status = next
			require.True(t, placement.IsToBeChosen(np))
			require.Empty(t, placement.Missing(np))
			before := np.DeepCopy()
			next, chosen := placement.Choose(np, tc.chosen, tc.why, noon)
			require.True(t, chosen)
			require.Empty(t, cmp.Diff(before, np))
			np.Status = next
			require.Equal(t, tc.want, pinned(np))
			require.Equal(t, tc.wantState, next.Requested.State)
			require.Equal(t, tc.message, next.Requested.Message)
			require.Equal(t, "r1=2", text(next.Placements))
			_, again := placement.Choose(np, tc.chosen, tc.why, noon)
			require.False(t, again, "it is chosen")
		})
	}
}

// requireAsk demands that a request adds up to the quota exactly, and that granting it makes what it says. What r1 and
// r2 hold before is first and second, in hundredths of a core. It returns whether the request was made.
func requireAsk(t *testing.T, annotation string, first, second uint8) bool {
	quota := slice.Of(builders.Resources("cpu", "2500m", "memory", "1000"))
	np := builders.Placement("tenant", "web").Quota("cpu", "2500m", "memory", "1000").Slice("cpu", "1", "memory", "400").Obj()
	a := slice.Of(builders.Resources("cpu", fmt.Sprintf("%dm", 10*int(first)), "memory", fmt.Sprint(2*int(first))))
	b := slice.Of(builders.Resources("cpu", fmt.Sprintf("%dm", 10*int(second)), "memory", fmt.Sprint(second)))
	if !a.Plus(b).Fits(quota) {
		return false
	}
	np.Status, _, _ = placement.Next(np, placement.Facts{Now: noon, Granted: map[string]slice.Amounts{"r1": a, "r2": b}})
	next, refused := placement.Ask(np, annotation, time.Minute, noon)
	if refused != "" {
		return false
	}
	np.Status = next
	if annotation == "" {
		require.True(t, placement.IsToBeChosen(np))
		return true
	}
	counts, err := placement.Decode(annotation)
	require.NoError(t, err)
	np.Status, _, _ = placement.Next(np, placement.Facts{Now: noon, Granted: granted(np)})
	require.Equal(t, schedulerv1alpha1.RequestGranted, np.Status.Requested.State)
	require.Equal(t, quota.String(), placement.Staying(np.Status.Placements).String())
	for i := range np.Status.Placements {
		p := &np.Status.Placements[i]
		require.Equal(t, counts[p.Cluster], p.Slices, "%s of %s over %s and %s", p.Cluster, annotation, a, b)
	}
	return true
}

// TestAskProperties requests random placements of a namespace that holds random parts of its quota.
func TestAskProperties(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	made := 0
	for range 4_000 {
		one := random.IntN(4)
		two := random.IntN(4 - one)
		if requireAsk(t, fmt.Sprintf(`{"r1":%d,"r2":%d,"r3":%d}`, one, two, 3-one-two), uint8(random.IntN(256)), uint8(random.IntN(256))) {
			made++
		}
	}
	require.Greater(t, made, 1_000)
}

// FuzzAsk: whatever a tenant writes.
func FuzzAsk(f *testing.F) {
	for _, text := range []string{`{"r1":1,"r2":2}`, `{"r3":3}`, "", "null", `{"r1":-1,"r2":4}`, `{"r1":1e0,"r2":2}`, `{"r1":3,"r1":0}`} {
		f.Add(text, uint8(5), uint8(3))
	}
	f.Fuzz(func(t *testing.T, annotation string, first, second uint8) { requireAsk(t, annotation, first, second) })
}
