package placement_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func cpu(quantity string) corev1.ResourceList {
	return builders.Resources("cpu", quantity)
}

// cpus is cpu as Amounts.
func cpus(quantity string) slice.Amounts { return slice.Of(cpu(quantity)) }

// asks is a namespace of one-core slices with a quota, and what it holds.
func asks(quota string, placements ...schedulerv1alpha1.ClusterPlacement) *schedulerv1alpha1.NamespacePlacement {
	np := builders.Placement("tenant", "web").Generation(2).Slice("cpu", "1").Quota("cpu", quota).Placements(placements...).Obj()
	np.ResourceVersion = "now"
	return np
}

func in(cluster, reserved string) schedulerv1alpha1.ClusterPlacement {
	return schedulerv1alpha1.ClusterPlacement{Cluster: cluster, Slices: int32(cpus(reserved)[corev1.ResourceCPU] / 1000), Reserved: cpu(reserved)}
}

// leaves is a placement of which a part leaves.
func leaves(cluster, reserved, part string) schedulerv1alpha1.ClusterPlacement {
	p := in(cluster, reserved)
	p.Leaving = &schedulerv1alpha1.Leaving{Reserved: cpu(part), Reason: schedulerv1alpha1.LeavingDrained, Since: metav1.NewTime(noon.Add(-time.Hour)), Decision: "then"}
	return p
}

// shrinks is a placement of which a part leaves since a minute because the quota was lowered.
func shrinks(cluster, reserved, part string) schedulerv1alpha1.ClusterPlacement {
	p := leaves(cluster, reserved, part)
	p.Leaving.Reason, p.Leaving.Since = schedulerv1alpha1.LeavingShrunk, metav1.NewTime(noon.Add(-time.Minute))
	return p
}

// lost is a placement that leaves as a whole since an hour because its super cluster is lost.
func lost(cluster, reserved string) schedulerv1alpha1.ClusterPlacement {
	p := leaves(cluster, reserved, reserved)
	p.Leaving.Reason = schedulerv1alpha1.LeavingLost
	return p
}

// returned is a placement of which a part leaves since so long because its super cluster was lost and is back.
func returned(cluster, reserved, part string, since time.Duration) schedulerv1alpha1.ClusterPlacement {
	p := leaves(cluster, reserved, part)
	p.Leaving.Reason, p.Leaving.Since = schedulerv1alpha1.LeavingReturned, metav1.NewTime(noon.Add(-since))
	return p
}

// uses is what a super cluster says: what pods request, and what the quota there lets them request. It answers the
// decision of leaves.
func uses(requests, hard string) placement.Use {
	return placement.Use{Requests: cpus(requests), Hard: cpus(hard), Decision: "then"}
}

// answers is uses, by a quota that answers another decision.
func answers(decision, requests, hard string) placement.Use {
	use := uses(requests, hard)
	use.Decision = decision
	return use
}

// displaced is np with so much that is displaced, "" for none though parts leave.
func displaced(quantity string, np *schedulerv1alpha1.NamespacePlacement) *schedulerv1alpha1.NamespacePlacement {
	np.Status.Displaced = &schedulerv1alpha1.Displaced{}
	if quantity != "" {
		np.Status.Displaced.Resources = cpu(quantity)
	}
	return np
}

// decided is np where what leaves r2 bears that decision.
func decided(decision string, np *schedulerv1alpha1.NamespacePlacement) *schedulerv1alpha1.NamespacePlacement {
	for i := range np.Status.Placements {
		if p := &np.Status.Placements[i]; p.Cluster == "r2" {
			p.Leaving.Decision = decision
		}
	}
	return np
}

// text writes placements as r1=2-1: two cores are reserved, of which one leaves.
func text(placements []schedulerv1alpha1.ClusterPlacement) string {
	var parts []string
	for _, p := range placements {
		part := p.Cluster + "=" + p.Reserved.Cpu().String()
		if p.Leaving != nil {
			part += "-" + p.Leaving.Reserved.Cpu().String()
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, " ")
}

func TestNextPlacements(t *testing.T) {
	t.Parallel()
	type amounts = map[string]slice.Amounts
	type measured = map[string]placement.Use
	nothing, gone := placement.Use{}, placement.Use{Gone: true}
	for name, tc := range map[string]struct {
		np                    *schedulerv1alpha1.NamespacePlacement
		used                  measured
		granted               amounts
		want, wantAnnotation  string
		wantMissing           int64
		wantReason            string
		wantEvict             string
		wantDecision          string
		wantAgain             time.Duration
		wantSlices, wantPlace int32
	}{
		"nothing is asked for": {np: asks("0"), wantReason: schedulerv1alpha1.ReasonNoQuota},
		"nothing is placed":    {np: asks("2"), wantMissing: 2, wantReason: schedulerv1alpha1.ReasonPending, wantSlices: 2},
		"all is granted": {
			np: asks("2"), granted: amounts{"r2": cpus("1"), "r1": cpus("1")},
			want: "r1=1 r2=1", wantAnnotation: `{"r1":1,"r2":1}`, wantReason: schedulerv1alpha1.ReasonPlaced, wantSlices: 2, wantPlace: 2,
		},
		"growth is granted where something is held": {
			np: asks("3", in("r1", "1")), granted: amounts{"r1": cpus("2")},
			want: "r1=3", wantAnnotation: `{"r1":3}`, wantReason: schedulerv1alpha1.ReasonPlaced, wantSlices: 3, wantPlace: 3,
		},

		"the quota shrinks and nothing was measured": {
			np: asks("1", in("r1", "1"), in("r2", "1")), want: "r1=1 r2=1", wantAnnotation: `{"r1":1,"r2":1}`,
			wantReason: schedulerv1alpha1.ReasonInUse, wantSlices: 1, wantPlace: 2,
		},
		"the quota shrinks and no super cluster answers": {
			np: asks("1", in("r1", "1"), in("r2", "1")), used: measured{}, want: "r1=1 r2=1-1", wantAnnotation: `{"r1":1}`,
			wantReason: schedulerv1alpha1.ReasonInUse, wantSlices: 1, wantPlace: 1,
		},
		"the quota shrinks and nothing is used: the last leaves, and pods may still come": {
			np: asks("1", in("r1", "1"), in("r2", "1")), used: measured{"r1": uses("0", "1"), "r2": uses("0", "1")}, want: "r1=1 r2=1-1",
			wantAnnotation: `{"r1":1}`, wantReason: schedulerv1alpha1.ReasonInUse, wantSlices: 1, wantPlace: 1,
		},
		"the quota shrinks and the last is used": {
			np: asks("1", in("r1", "1"), in("r2", "1")), used: measured{"r1": uses("0", "1"), "r2": uses("100m", "1")}, want: "r1=1-1 r2=1",
			wantAnnotation: `{"r2":1}`, wantReason: schedulerv1alpha1.ReasonInUse, wantSlices: 1, wantPlace: 1,
		},
		"the quota shrinks, and one super cluster does not answer": {
			np: asks("1", in("r1", "1"), in("r2", "1")), used: measured{"r1": uses("0", "1")}, want: "r1=1-1 r2=1",
			wantAnnotation: `{"r2":1}`, wantReason: schedulerv1alpha1.ReasonInUse, wantSlices: 1, wantPlace: 1,
		},
		"the quota shrinks and all is used: a whole super cluster is left": {
			np: asks("1", in("r1", "1"), in("r2", "1")), used: measured{"r1": uses("1", "1"), "r2": uses("700m", "1")}, want: "r1=1 r2=1-1",
			wantAnnotation: `{"r1":1}`, wantReason: schedulerv1alpha1.ReasonInUse, wantSlices: 1, wantPlace: 1,
		},
		"what was lowered is free when its quota is lowered": {
			np: asks("1", in("r1", "1"), shrinks("r2", "1", "1")), used: measured{"r1": uses("0", "1"), "r2": uses("0", "0")}, want: "r1=1",
			wantAnnotation: `{"r1":1}`, wantReason: schedulerv1alpha1.ReasonPlaced, wantSlices: 1, wantPlace: 1,
		},
		"what was lowered is held while pods run on": {
			np: asks("1", in("r1", "1"), shrinks("r2", "1", "1")), used: measured{"r1": uses("1", "1"), "r2": uses("700m", "0")}, want: "r1=1 r2=700m-700m",
			wantAnnotation: `{"r1":1}`, wantReason: schedulerv1alpha1.ReasonInUse, wantSlices: 1, wantPlace: 1,
		},
		"what was lowered is held while its super cluster does not answer": {
			np: asks("1", in("r1", "1"), shrinks("r2", "1", "1")), used: measured{"r1": uses("1", "1")}, want: "r1=1 r2=1-1",
			wantAnnotation: `{"r1":1}`, wantReason: schedulerv1alpha1.ReasonInUse, wantSlices: 1, wantPlace: 1,
		},
		"a pod that started where the quota was lowered moves what leaves": {
			np: asks("1", in("r1", "1"), shrinks("r2", "1", "1")), used: measured{"r1": uses("0", "1"), "r2": uses("1", "1")}, want: "r1=1-1 r2=1",
			wantAnnotation: `{"r2":1}`, wantReason: schedulerv1alpha1.ReasonInUse, wantSlices: 1, wantPlace: 1,
		},
		"the quota grows again: what was to leave stays, and nothing is missing": {
			np: asks("2", in("r1", "1"), shrinks("r2", "1", "1")), want: "r1=1 r2=1", wantAnnotation: `{"r1":1,"r2":1}`,
			wantReason: schedulerv1alpha1.ReasonPlaced, wantSlices: 2, wantPlace: 2,
		},
		"the quota grows beyond what was to leave": {
			np: asks("4", in("r1", "1"), shrinks("r2", "1", "1")), used: measured{"r1": uses("1", "1"), "r2": uses("1", "1")}, want: "r1=1 r2=1",
			wantAnnotation: `{"r1":1,"r2":1}`, wantMissing: 2, wantReason: schedulerv1alpha1.ReasonPending, wantSlices: 4, wantPlace: 2,
		},
		"the quota grows by a part of what was to leave": {
			np: asks("2", in("r1", "1"), shrinks("r2", "2", "2")), used: measured{"r1": uses("1", "1"), "r2": uses("2", "2")}, want: "r1=1 r2=2-1",
			wantAnnotation: `{"r1":1,"r2":1}`, wantReason: schedulerv1alpha1.ReasonInUse, wantSlices: 2, wantPlace: 2,
		},
		"what was lowered is held while the quota answers an earlier decision": {
			np: asks("1", in("r1", "1"), shrinks("r2", "1", "1")), used: measured{"r1": uses("1", "1"), "r2": answers("before", "0", "0")}, want: "r1=1 r2=1-1",
			wantAnnotation: `{"r1":1}`, wantReason: schedulerv1alpha1.ReasonInUse, wantSlices: 1, wantPlace: 1,
		},
		"what was lowered is held while the quota answers no decision": {
			np: asks("1", in("r1", "1"), shrinks("r2", "1", "1")), used: measured{"r1": uses("1", "1"), "r2": answers("", "0", "0")}, want: "r1=1 r2=1-1",
			wantAnnotation: `{"r1":1}`, wantReason: schedulerv1alpha1.ReasonInUse, wantSlices: 1, wantPlace: 1,
		},
		"what an earlier version has lowered gets a decision to be answered": {
			np: decided("", asks("1", in("r1", "1"), shrinks("r2", "1", "1"))), used: measured{"r1": uses("1", "1"), "r2": answers("", "0", "0")}, want: "r1=1 r2=1-1",
			wantAnnotation: `{"r1":1}`, wantReason: schedulerv1alpha1.ReasonInUse, wantSlices: 1, wantPlace: 1, wantDecision: "now",
		},
		"more is lowered: that is another decision": {
			np: asks("1", in("r1", "1"), shrinks("r2", "2", "1")), used: measured{"r1": uses("1", "1"), "r2": uses("0", "2")}, want: "r1=1 r2=2-2",
			wantAnnotation: `{"r1":1}`, wantReason: schedulerv1alpha1.ReasonInUse, wantSlices: 1, wantPlace: 1, wantDecision: "now",
		},
		"a super cluster whose Cluster is gone holds nothing": {
			np: asks("1", in("r1", "1"), shrinks("r2", "1", "1")), used: measured{"r1": uses("1", "1"), "r2": {Gone: true}}, want: "r1=1",
			wantAnnotation: `{"r1":1}`, wantReason: schedulerv1alpha1.ReasonPlaced, wantSlices: 1, wantPlace: 1,
		},
		"no quota was seen, and the watch may be behind": {
			np: func() *schedulerv1alpha1.NamespacePlacement {
				late := shrinks("r2", "1", "1")
				late.Leaving.Since = metav1.NewTime(noon.Add(-3 * time.Second))
				return asks("1", in("r1", "1"), late)
			}(),
			used: measured{"r1": nothing, "r2": nothing}, want: "r1=1 r2=1-1", wantAgain: 7 * time.Second,
			wantAnnotation: `{"r1":1}`, wantReason: schedulerv1alpha1.ReasonInUse, wantSlices: 1, wantPlace: 1,
		},
		"the quota has answered and is gone": {
			np: func() *schedulerv1alpha1.NamespacePlacement {
				late := shrinks("r2", "1", "1")
				late.Leaving.Since = metav1.NewTime(noon.Add(-3 * time.Second))
				return asks("1", in("r1", "1"), late)
			}(),
			used: measured{"r1": nothing, "r2": {Decision: "then"}}, want: "r1=1",
			wantAnnotation: `{"r1":1}`, wantReason: schedulerv1alpha1.ReasonPlaced, wantSlices: 1, wantPlace: 1,
		},

		"what leaves is missing, and stays while it is used": {
			np: asks("2", leaves("r1", "2", "2")), used: measured{"r1": uses("2", "0")},
			want: "r1=2-2", wantMissing: 2, wantReason: schedulerv1alpha1.ReasonPending, wantSlices: 2,
		},
		"what leaves is missing, and stays while the quota there lets pods use it": {
			np: asks("2", leaves("r1", "2", "2")), used: measured{"r1": uses("0", "2")},
			want: "r1=2-2", wantMissing: 2, wantReason: schedulerv1alpha1.ReasonPending, wantSlices: 2,
		},
		"what leaves stays while its use is not known": {
			np: asks("2", leaves("r1", "2", "1")), used: measured{}, want: "r1=2-1", wantAnnotation: `{"r1":1}`,
			wantMissing: 1, wantReason: schedulerv1alpha1.ReasonPending, wantSlices: 2, wantPlace: 1,
		},
		"what leaves and is not used is held until it is placed elsewhere": {
			np: asks("2", leaves("r1", "2", "2")), used: measured{"r1": nothing},
			want: "r1=2-2", wantMissing: 2, wantReason: schedulerv1alpha1.ReasonPending, wantSlices: 2,
		},
		"what leaves and is not used is given back when a part is placed elsewhere, and the rest not asked for": {
			np: asks("1", leaves("r1", "2", "2"), in("r2", "1")), used: measured{"r1": nothing},
			want: "r2=1", wantAnnotation: `{"r2":1}`, wantReason: schedulerv1alpha1.ReasonPlaced, wantSlices: 1, wantPlace: 1,
		},
		"what leaves a super cluster that is gone is given back at once": {
			np: asks("2", leaves("r1", "2", "2")), used: measured{"r1": gone}, wantMissing: 2, wantReason: schedulerv1alpha1.ReasonPending, wantSlices: 2,
		},
		"what leaves is given back as far as use has fallen": {
			np: asks("2", leaves("r1", "2", "2"), in("r2", "2")), used: measured{"r1": uses("500m", "0")}, want: "r1=500m-500m r2=2",
			wantAnnotation: `{"r2":2}`, wantReason: schedulerv1alpha1.ReasonInUse, wantEvict: "r1=500m Drained", wantSlices: 2, wantPlace: 2,
		},
		"the replacement is placed, and pods are to be evicted": {
			np: asks("2", leaves("r1", "2", "2")), used: measured{"r1": uses("2", "0")}, granted: amounts{"r2": cpus("2")},
			want: "r1=2-2 r2=2", wantAnnotation: `{"r2":2}`, wantReason: schedulerv1alpha1.ReasonInUse, wantEvict: "r1=2 Drained", wantSlices: 2, wantPlace: 2,
		},
		"a part leaves, and what stays is enough for the pods": {
			np: asks("2", leaves("r1", "2", "1"), in("r2", "1")), used: measured{"r1": uses("1", "1")},
			want: "r1=1 r2=1", wantAnnotation: `{"r1":1,"r2":1}`, wantReason: schedulerv1alpha1.ReasonPlaced, wantSlices: 2, wantPlace: 2,
		},
		"a part leaves, and pods use some of it": {
			np: asks("2", leaves("r1", "2", "1"), in("r2", "1")), used: measured{"r1": uses("1200m", "1")},
			want: "r1=1200m-200m r2=1", wantAnnotation: `{"r1":1,"r2":1}`, wantReason: schedulerv1alpha1.ReasonInUse, wantEvict: "r1=200m Drained", wantSlices: 2, wantPlace: 2,
		},
		"more leaves than is reserved": {
			np: asks("1", leaves("r1", "1", "5")), used: measured{"r1": uses("1", "0")},
			want: "r1=1-1", wantMissing: 1, wantReason: schedulerv1alpha1.ReasonPending, wantSlices: 1,
		},
		"the quota shrinks below what leaves": {
			np: asks("1", leaves("r1", "2", "2"), in("r2", "2")), used: measured{"r1": uses("2", "0"), "r2": uses("0", "2")},
			want: "r1=2-2 r2=2-1", wantAnnotation: `{"r2":1}`, wantReason: schedulerv1alpha1.ReasonInUse, wantEvict: "r1=2 Drained", wantSlices: 1, wantPlace: 1,
		},
		"the quota shrinks where a part leaves already": {
			np: asks("0", leaves("r1", "3", "2")), used: measured{"r1": uses("3", "1")},
			want: "r1=3-2", wantAnnotation: `{"r1":1}`, wantReason: schedulerv1alpha1.ReasonInUse, wantEvict: "r1=2 Drained", wantPlace: 1,
		},
		"what leaves may come back to where it was": {
			np: asks("2", leaves("r1", "2", "1")), used: measured{"r1": uses("2", "2")}, granted: amounts{"r1": cpus("1")},
			want: "r1=2", wantAnnotation: `{"r1":2}`, wantReason: schedulerv1alpha1.ReasonPlaced, wantSlices: 2, wantPlace: 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := tc.np.DeepCopy()
			next, evict, again := placement.Next(tc.np, placement.Facts{Now: noon, Used: tc.used, Granted: tc.granted})
			require.Empty(t, cmp.Diff(before, tc.np), "the argument is the caller's")
			require.Equal(t, tc.want, text(next.Placements))
			require.Equal(t, tc.wantAnnotation, placement.Encode(next.Placements))
			require.Equal(t, []int32{tc.wantSlices, tc.wantPlace}, []int32{next.Slices, next.PlacedSlices})
			require.Equal(t, tc.wantReason, meta.FindStatusCondition(next.Conditions, schedulerv1alpha1.ConditionPlaced).Reason)
			var evictions []string
			for _, e := range evict {
				excess := e.Excess.List()
				evictions = append(evictions, fmt.Sprintf("%s=%s %s", e.Cluster, excess.Cpu(), e.Reason))
			}
			require.Equal(t, tc.wantEvict, strings.Join(evictions, ", "))
			require.Equal(t, tc.wantAgain, again)
			if tc.wantDecision != "" {
				after := &schedulerv1alpha1.NamespacePlacement{Status: next}
				require.Equal(t, tc.wantDecision, placement.Decision(after, "r2"))
			}
			after := tc.np.DeepCopy()
			after.Status = next
			require.Equal(t, tc.wantMissing, slice.Total(placement.Missing(after))[corev1.ResourceCPU]/1000)
			require.Equal(t, placement.NeedsUsed(after), tc.wantReason == schedulerv1alpha1.ReasonInUse || strings.Contains(tc.want, "-"))
		})
	}
}

// TestNextLeaves: causes come and go.
func TestNextLeaves(t *testing.T) {
	t.Parallel()
	type reasons = map[string]schedulerv1alpha1.LeavingReason
	type measured = map[string]placement.Use
	const drained, isLost = schedulerv1alpha1.LeavingDrained, schedulerv1alpha1.LeavingLost
	for name, tc := range map[string]struct {
		np        *schedulerv1alpha1.NamespacePlacement
		leave     reasons
		used      measured
		granted   map[string]slice.Amounts
		want      string // with the reason and age of what leaves
		wantEvict string
		missing   int64
	}{
		"nothing is known":                      {np: asks("2", in("r1", "1"), in("r2", "1")), want: "r1=1 r2=1"},
		"nothing is to be left":                 {np: asks("2", in("r1", "1"), in("r2", "1")), leave: reasons{"r1": "", "r2": ""}, want: "r1=1 r2=1"},
		"a super cluster is drained":            {np: asks("2", in("r1", "1"), in("r2", "1")), leave: reasons{"r1": drained, "r2": ""}, want: "r1=1-1 Drained 0s r2=1", missing: 1},
		"a super cluster is lost":               {np: asks("2", in("r1", "1"), in("r2", "1")), leave: reasons{"r1": isLost, "r2": ""}, want: "r1=1-1 Lost 0s r2=1", missing: 1},
		"one where nothing is placed":           {np: asks("1", in("r1", "1")), leave: reasons{"r9": drained}, want: "r1=1"},
		"it leaves already":                     {np: asks("1", leaves("r1", "1", "1")), leave: reasons{"r1": drained}, want: "r1=1-1 Drained 1h0m0s", missing: 1},
		"of another super cluster is known":     {np: asks("1", leaves("r1", "1", "1")), leave: reasons{"r2": ""}, want: "r1=1-1 Drained 1h0m0s", missing: 1},
		"what was lost is drained":              {np: asks("1", lost("r1", "1")), leave: reasons{"r1": drained}, want: "r1=1-1 Drained 1h0m0s", missing: 1},
		"what was drained is lost":              {np: asks("1", leaves("r1", "1", "1")), leave: reasons{"r1": isLost}, want: "r1=1-1 Lost 1h0m0s", missing: 1},
		"a part was lowered, and joins":         {np: asks("1", shrinks("r1", "2", "1")), leave: reasons{"r1": drained}, want: "r1=2-2 Drained 0s", missing: 1},
		"what was lowered stays instead":        {np: asks("1", in("r1", "1"), shrinks("r2", "1", "1")), leave: reasons{"r1": drained}, want: "r1=1-1 Drained 0s r2=1"},
		"something was granted there meanwhile": {np: asks("2", leaves("r1", "1", "1")), leave: reasons{"r1": drained}, granted: map[string]slice.Amounts{"r1": cpus("1")}, want: "r1=2-2 Drained 0s", missing: 1},
		"drained and placed elsewhere: pods are evicted": {
			np: asks("1", leaves("r1", "1", "1"), in("r2", "1")), leave: reasons{"r1": drained}, used: measured{"r1": uses("1", "1")},
			want: "r1=1-1 Drained 1h0m0s r2=1", wantEvict: "r1=1 Drained",
		},
		"lost and placed elsewhere: pods are evicted, though nobody measures what they use": {
			np: asks("1", lost("r1", "1"), in("r2", "1")), leave: reasons{"r1": isLost}, used: measured{}, want: "r1=1-1 Lost 1h0m0s r2=1", wantEvict: "r1=1 Lost",
		},
		"lost, and it answers before that is known": {
			np: asks("1", lost("r1", "1"), in("r2", "1")), leave: reasons{"r1": isLost}, used: measured{"r1": uses("1", "1")}, want: "r1=1-1 Lost 1h0m0s r2=1",
		},
		"lost and not placed elsewhere: pods stay": {
			np: asks("1", lost("r1", "1")), leave: reasons{"r1": isLost}, used: measured{}, want: "r1=1-1 Lost 1h0m0s", missing: 1,
		},
		"the cause ends before it is placed elsewhere": {
			np: asks("2", leaves("r1", "2", "2")), leave: reasons{"r1": ""}, used: measured{"r1": uses("0", "0")}, want: "r1=2",
		},
		"the cause ends, and what was placed elsewhere is not used yet": {
			np: asks("2", leaves("r1", "2", "2"), in("r2", "2")), leave: reasons{"r1": ""}, used: measured{"r1": uses("2", "0"), "r2": uses("0", "2")},
			want: "r1=2 r2=2-2 Shrunk 0s",
		},
		"the cause ends half way: the unused leaves, and pods stay": {
			np: asks("2", leaves("r1", "2", "2"), in("r2", "2")), leave: reasons{"r1": ""}, used: measured{"r1": uses("1", "0"), "r2": uses("1", "2")},
			want: "r1=2-1 Shrunk 0s r2=2-1 Shrunk 0s",
		},
		"the cause ends when all have moved": {
			np: asks("2", leaves("r1", "1", "1"), in("r2", "2")), leave: reasons{"r1": ""}, used: measured{"r1": uses("0", "0"), "r2": uses("2", "2")},
			want: "r1=1-1 Shrunk 0s r2=2",
		},
		"it answers again before it is placed elsewhere": {
			np: asks("2", lost("r1", "2")), leave: reasons{"r1": ""}, used: measured{"r1": uses("2", "2")}, want: "r1=2",
		},
		"it answers again: pods there that have successors elsewhere keep nothing": {
			np: asks("2", in("r2", "2"), lost("r1", "2")), leave: reasons{"r1": ""}, used: measured{"r1": uses("2", "2"), "r2": uses("1", "2")},
			want: "r1=2-2 Returned 0s r2=2",
		},
		"it answers again, and what no pod uses there is free": {
			np: asks("2", returned("r1", "2", "2", 10*time.Second), in("r2", "2")), leave: reasons{"r1": ""}, used: measured{"r1": uses("1", "0")},
			want: "r1=1-1 Returned 10s r2=2",
		},
		"it answers again, and the quota grows": {
			np: asks("3", returned("r1", "2", "2", 10*time.Second), in("r2", "2")), leave: reasons{"r1": ""}, used: measured{"r1": uses("2", "2")},
			want: "r1=2-1 Returned 10s r2=2",
		},
		"it answers again, and is drained": {
			np: asks("2", returned("r1", "2", "2", 10*time.Second), in("r2", "2")), leave: reasons{"r1": drained}, used: measured{"r1": uses("1", "2")},
			want: "r1=2-2 Drained 10s r2=2", wantEvict: "r1=1 Drained",
		},
		"it answers for a minute: pods that run on there keep what they use": {
			np: asks("2", returned("r1", "1", "1", time.Minute), in("r2", "2")), leave: reasons{"r1": ""}, used: measured{"r1": uses("1", "1"), "r2": uses("1", "2")},
			want: "r1=1 r2=2-1 Shrunk 0s",
		},
		"it answers for a minute, and was not measured": {
			np: asks("2", returned("r1", "1", "1", time.Minute), in("r2", "2")), leave: reasons{"r1": ""}, used: measured{"r2": uses("1", "2")},
			want: "r1=1-1 Shrunk 1m0s r2=2",
		},
		"what the tenant does not want there is not called back": {
			np: func() *schedulerv1alpha1.NamespacePlacement {
				p := leaves("r1", "1", "1")
				p.Leaving.Reason = schedulerv1alpha1.LeavingRequested
				return asks("1", p)
			}(),
			leave: reasons{"r1": ""}, want: "r1=1-1 Requested 1h0m0s", missing: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			facts := placement.Facts{Now: noon, Leave: tc.leave, Used: tc.used, Granted: tc.granted}
			before := tc.np.DeepCopy()
			next, evict, _ := placement.Next(tc.np, facts)
			require.Empty(t, cmp.Diff(before, tc.np), "the argument is the caller's")
			var parts, evictions []string
			for _, p := range next.Placements {
				part := text([]schedulerv1alpha1.ClusterPlacement{p})
				if p.Leaving != nil {
					part += fmt.Sprintf(" %s %s", p.Leaving.Reason, noon.Sub(p.Leaving.Since.Time))
				}
				parts = append(parts, part)
			}
			require.Equal(t, tc.want, strings.Join(parts, " "))
			for _, e := range evict {
				excess := e.Excess.List()
				evictions = append(evictions, fmt.Sprintf("%s=%s %s", e.Cluster, excess.Cpu(), e.Reason))
			}
			require.Equal(t, tc.wantEvict, strings.Join(evictions, ", "))
			after := tc.np.DeepCopy()
			after.Status = next
			require.Equal(t, tc.missing, slice.Total(placement.Missing(after))[corev1.ResourceCPU]/1000)
			facts.Granted = nil
			again, _, _ := placement.Next(after, facts)
			require.Empty(t, cmp.Diff(next, again), "a second look finds nothing")
		})
	}
}

// TestNextDisplaces: what leaves is placed first, and growth after.
func TestNextDisplaces(t *testing.T) {
	t.Parallel()
	type reasons = map[string]schedulerv1alpha1.LeavingReason
	type measured = map[string]placement.Use
	const drained, isLost = schedulerv1alpha1.LeavingDrained, schedulerv1alpha1.LeavingLost
	free := measured{"r1": {}, "r2": {}}
	for name, tc := range map[string]struct {
		np      *schedulerv1alpha1.NamespacePlacement
		leave   reasons
		used    measured
		granted map[string]slice.Amounts
		want    string
		// wantDisplaced is "none" where nothing leaves, and "" where all that leaves is placed.
		wantDisplaced         string
		wantNext, wantLacking string
		wantEvict             string
	}{
		"the quota has grown": {np: asks("9", in("r1", "2")), want: "r1=2", wantDisplaced: "none", wantNext: "7", wantLacking: "7"},
		"the quota has grown, and a super cluster is drained": {
			np: asks("9", in("r1", "2")), leave: reasons{"r1": drained}, want: "r1=2-2", wantDisplaced: "2", wantNext: "2", wantLacking: "9",
		},
		"one more is lost": {
			np: displaced("2", asks("9", leaves("r1", "2", "2"), in("r2", "1"))), leave: reasons{"r2": isLost}, want: "r1=2-2 r2=1-1",
			wantDisplaced: "3", wantNext: "3", wantLacking: "9",
		},
		"what was drained is lost": {
			np: displaced("1", asks("9", leaves("r1", "2", "2"), in("r2", "1"))), leave: reasons{"r1": isLost}, want: "r1=2-2 r2=1",
			wantDisplaced: "1", wantNext: "1", wantLacking: "8",
		},
		"what is displaced is placed: pods are evicted though the quota is not placed": {
			np: displaced("2", asks("9", leaves("r1", "2", "2"))), used: measured{"r1": uses("2", "0")}, granted: map[string]slice.Amounts{"r2": cpus("2")},
			want: "r1=2-2 r2=2", wantNext: "7", wantLacking: "7", wantEvict: "r1=2 Drained",
		},
		"what is displaced is placed: what is free is given back though the quota is not placed": {
			np: displaced("2", asks("9", leaves("r1", "2", "2"))), used: free, granted: map[string]slice.Amounts{"r2": cpus("2")},
			want: "r2=2", wantDisplaced: "none", wantNext: "7", wantLacking: "7",
		},
		"what is displaced is held": {
			np: displaced("2", asks("9", leaves("r1", "2", "2"), in("r2", "7"))), used: free, want: "r1=2-2 r2=7", wantDisplaced: "2", wantNext: "2", wantLacking: "2",
		},
		"growth after what was displaced": {
			np: displaced("", asks("9", leaves("r1", "2", "2"), in("r2", "2"))), used: measured{"r1": uses("1", "0")}, granted: map[string]slice.Amounts{"r2": cpus("7")},
			want: "r1=1-1 r2=9", wantEvict: "r1=1 Drained",
		},
		"it stays again before it is placed": {
			np: displaced("2", asks("9", leaves("r1", "2", "2"), in("r2", "1"))), leave: reasons{"r1": ""}, want: "r1=2 r2=1", wantDisplaced: "none", wantNext: "6", wantLacking: "6",
		},
		"it stays again when it is placed": {
			np: displaced("", asks("9", leaves("r1", "2", "2"), in("r2", "2"))), leave: reasons{"r1": ""}, want: "r1=2 r2=2", wantDisplaced: "none", wantNext: "5", wantLacking: "5",
		},
		"one stays again and the other begins to leave": {
			np: displaced("2", asks("9", leaves("r1", "2", "2"), in("r2", "3"))), leave: reasons{"r1": "", "r2": drained}, want: "r1=2 r2=3-3", wantDisplaced: "3", wantNext: "3", wantLacking: "7",
		},
		"the quota is lowered below what is displaced": {
			np: displaced("2", asks("1", leaves("r1", "2", "2"))), want: "r1=2-2", wantDisplaced: "2", wantNext: "1", wantLacking: "1",
		},
		"the quota is lowered to nothing": {
			np: displaced("2", asks("0", leaves("r1", "2", "2"))), used: measured{"r1": uses("1", "0")}, want: "r1=1-1", wantDisplaced: "1", wantEvict: "r1=1 Drained",
		},
		"the quota is lowered to nothing, and what is displaced is partly placed": {
			np: displaced("2", asks("0", leaves("r1", "4", "4"), shrinks("r2", "2", "2"))), used: measured{"r1": uses("3", "0")}, want: "r1=3-3 r2=2-2",
			wantDisplaced: "2", wantEvict: "r1=3 Drained",
		},
		"the quota is lowered, and nothing is left in the super cluster": {
			np: displaced("2", asks("0", leaves("r1", "2", "2"))), used: free, wantDisplaced: "none",
		},
		"what was lowered stays instead": {
			np: displaced("", asks("3", in("r1", "1"), shrinks("r2", "2", "2"))), leave: reasons{"r1": drained}, want: "r1=1-1 r2=2", wantNext: "1", wantLacking: "1",
		},
		"the quota is as it was: what was lowered stays again, and what is displaced is still to be placed": {
			np: displaced("1", asks("3", leaves("r1", "1", "1"), shrinks("r2", "2", "1"))), used: free, want: "r1=1-1 r2=2", wantDisplaced: "1", wantNext: "1", wantLacking: "1",
		},
		"a super cluster that is gone holds nothing, and what was there is placed first": {
			np: displaced("2", asks("9", leaves("r1", "2", "2"))), used: measured{"r1": {Gone: true}}, wantDisplaced: "2", wantNext: "2", wantLacking: "9",
		},
		"an earlier version has let it leave": {
			np: asks("9", leaves("r1", "2", "2"), shrinks("r2", "1", "1"), in("r3", "5")), want: "r1=2-2 r2=1 r3=5", wantDisplaced: "2", wantNext: "2", wantLacking: "3",
		},
		"an earlier version has let it leave, and placed it": {
			np: asks("2", leaves("r1", "2", "2"), in("r3", "2")), want: "r1=2-2 r3=2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			next, evict, _ := placement.Next(tc.np, placement.Facts{Now: noon, Leave: tc.leave, Used: tc.used, Granted: tc.granted})
			require.Equal(t, tc.want, text(next.Placements))
			got := "none"
			if next.Displaced != nil {
				got = strings.TrimPrefix(slice.Of(next.Displaced.Resources).String(), "cpu=")
			}
			require.Equal(t, tc.wantDisplaced, got)
			after := tc.np.DeepCopy()
			after.Status = next
			require.Equal(t, tc.wantNext, strings.TrimPrefix(slice.Total(placement.Missing(after)).String(), "cpu="))
			require.Equal(t, tc.wantLacking, strings.TrimPrefix(placement.Lacking(after).String(), "cpu="))
			var evictions []string
			for _, e := range evict {
				evictions = append(evictions, fmt.Sprintf("%s=%s %s", e.Cluster, strings.TrimPrefix(e.Excess.String(), "cpu="), e.Reason))
			}
			require.Equal(t, tc.wantEvict, strings.Join(evictions, ", "))
		})
	}
}

// TestAQuotaDipsDuringADrain: what is displaced then is displaced again when the quota is as it was.
func TestAQuotaDipsDuringADrain(t *testing.T) {
	t.Parallel()
	drained := map[string]schedulerv1alpha1.LeavingReason{"r1": schedulerv1alpha1.LeavingDrained}
	for name, tc := range map[string]struct {
		dip, inUse               string
		want, wantNext, wantRest string
	}{
		"to nothing, and all is in use":      {dip: "0", inUse: "4", want: "r1=4-4", wantNext: "4"},
		"to a part, and all is in use":       {dip: "1", inUse: "4", want: "r1=4-4", wantNext: "4"},
		"to nothing, and a part is given up": {dip: "0", inUse: "3", want: "r1=3-3", wantNext: "3", wantRest: "1"},
		"to nothing, and all is given up":    {dip: "0", inUse: "0", wantNext: "4"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			np := asks("4", in("r1", "4"))
			look := func(quota, granted string) (evict []placement.Eviction) {
				np.Spec.Quota = cpu(quota)
				facts := placement.Facts{Now: noon, Leave: drained, Used: map[string]placement.Use{"r1": answers("now", tc.inUse, "0")}}
				if granted != "" {
					facts.Granted = map[string]slice.Amounts{"r2": cpus(granted)}
				}
				np.Status, evict, _ = placement.Next(np, facts)
				return evict
			}
			look("4", "")
			look(tc.dip, "")
			require.Empty(t, look("4", ""), "no pod is evicted before there is room elsewhere")
			require.Equal(t, tc.want, text(np.Status.Placements))
			require.Equal(t, tc.wantNext, strings.TrimPrefix(slice.Total(placement.Missing(np)).String(), "cpu="))
			if tc.want != "" {
				require.NotEmpty(t, look("4", tc.wantNext), "all that leaves is placed elsewhere")
				require.Equal(t, tc.wantRest, strings.TrimPrefix(slice.Total(placement.Missing(np)).String(), "cpu="), "the rest is growth")
			}
		})
	}
}

// TestADrainThatIsTakenBackHalfWay: what two super clusters hold above the quota goes though no pod is evicted. What
// stays is what pods use, in parts of slices.
func TestADrainThatIsTakenBackHalfWay(t *testing.T) {
	t.Parallel()
	np := asks("2", leaves("r1", "2", "2"), in("r2", "2"))
	look := func(facts placement.Facts) string {
		facts.Now = noon
		next, evict, _ := placement.Next(np, facts)
		require.Empty(t, evict)
		np.Status = next
		return text(next.Placements)
	}
	type measured = map[string]placement.Use
	// One pod of 1200m was not evicted, one of 800m runs elsewhere by now.
	require.Equal(t, "r1=2-800m r2=2-1200m", look(placement.Facts{
		Leave: map[string]schedulerv1alpha1.LeavingReason{"r1": ""}, Used: measured{"r1": uses("1200m", "0"), "r2": uses("800m", "2")},
	}))
	require.Equal(t, "r1=1200m r2=800m", look(placement.Facts{Used: measured{"r1": answers("now", "1200m", "1200m"), "r2": answers("now", "800m", "800m")}}))
	require.Empty(t, placement.Missing(np))
	require.False(t, placement.NeedsUsed(np), "nothing is above the quota any more")
}

func TestNextConditions(t *testing.T) {
	t.Parallel()
	known := func(generation int64, reason, message string) []metav1.Condition {
		return []metav1.Condition{{Type: schedulerv1alpha1.ConditionPlaced, Status: metav1.ConditionFalse, Reason: reason, Message: message, ObservedGeneration: generation}}
	}
	for name, tc := range map[string]struct {
		np                       *schedulerv1alpha1.NamespacePlacement
		known                    []metav1.Condition
		facts                    placement.Facts
		wantPlaced, wantAccepted string
	}{
		"nothing was read":         {np: asks("1"), wantPlaced: "False Pending: cpu=1 waits to be placed"},
		"a part waits":             {np: asks("3", in("r1", "1")), wantPlaced: "False Pending: cpu=2 waits to be placed"},
		"a part that leaves waits": {np: asks("3", leaves("r1", "3", "2")), wantPlaced: "False Pending: cpu=2 waits to be placed: super cluster r1 is drained"},
		"a part that leaves waits, and growth after it": {
			np: asks("3", leaves("r1", "1", "1")), wantPlaced: "False Pending: cpu=1, and then cpu=2 more, waits to be placed: super cluster r1 is drained",
		},
		"a part that leaves waits, as far as the quota asks for it": {
			np: displaced("2", asks("1", leaves("r1", "2", "2"))), wantPlaced: "False Pending: cpu=1 waits to be placed: super cluster r1 is drained",
		},
		"what was refused before is not displaced any more": {
			np: displaced("1", asks("3", leaves("r1", "1", "1"))), facts: placement.Facts{Granted: map[string]slice.Amounts{"r2": cpus("1")}},
			known:      known(2, "Unschedulable", "full"),
			wantPlaced: "False Pending: cpu=2 waits to be placed: super cluster r1 is drained",
		},
		"parts that leave are refused": {
			np: asks("5", leaves("r1", "1", "1"), lost("r2", "1"), leaves("r3", "1", "1"), shrinks("r4", "1", "1")), facts: placement.Facts{Unschedulable: "full"},
			wantPlaced: "False Unschedulable: full; cpu=1 more waits until cpu=3 that leaves is placed elsewhere: super clusters r1, r3 are drained, super cluster r2 is lost",
		},
		"a part that leaves is in use": {
			np:         asks("1", leaves("r1", "1", "1"), in("r2", "1")),
			wantPlaced: "True InUse: cpu=1 above the quota stays reserved until its super clusters show that it is free: super cluster r1 is drained",
		},
		"placed":   {np: asks("1", in("r1", "1")), wantPlaced: "True Placed: The whole quota is reserved"},
		"in use":   {np: asks("1", in("r1", "2")), wantPlaced: "True InUse: cpu=1 above the quota stays reserved until its super clusters show that it is free"},
		"no quota": {np: asks("0"), wantPlaced: "False NoQuota: The namespace has no ResourceQuota with compute resources"},
		"refused":  {np: asks("1"), facts: placement.Facts{Unschedulable: "full"}, wantPlaced: "False Unschedulable: full"},
		"refused, but it is placed by now": {
			np: asks("1", in("r1", "1")), facts: placement.Facts{Unschedulable: "full"}, wantPlaced: "True Placed: The whole quota is reserved",
		},
		"refused before, for the same spec":  {np: asks("1"), known: known(2, "Unschedulable", "full"), wantPlaced: "False Unschedulable: full"},
		"refused before, for another spec":   {np: asks("1"), known: known(1, "Unschedulable", "full"), wantPlaced: "False Pending: cpu=1 waits to be placed"},
		"refused before, with other figures": {np: asks("1"), known: known(2, "Unschedulable", "full"), facts: placement.Facts{Unschedulable: "fuller"}, wantPlaced: "False Unschedulable: fuller"},
		"valid": {
			np: asks("1"), facts: placement.Facts{Accepted: &tenancy.Reason{}}, wantPlaced: "False Pending: cpu=1 waits to be placed",
			wantAccepted: "True Accepted: The namespace's quota and slice were read",
		},
		"valid, with a slice larger than the quota": {
			np: asks("1"), facts: placement.Facts{Accepted: &tenancy.Reason{Reason: schedulerv1alpha1.ReasonSliceLargerThanQuota, Message: "one slice"}},
			wantPlaced: "False Pending: cpu=1 waits to be placed", wantAccepted: "True SliceLargerThanQuota: one slice",
		},
		"invalid": {
			np: asks("0"), facts: placement.Facts{Accepted: &tenancy.Reason{Reason: schedulerv1alpha1.ReasonInvalidSlice, Message: "typo"}},
			wantPlaced: "False NoQuota: The namespace has no ResourceQuota with compute resources", wantAccepted: "False InvalidSlice: typo",
		},
		"invalid, with what a tenant wrote": {
			np: asks("1"), facts: placement.Facts{Accepted: &tenancy.Reason{Reason: schedulerv1alpha1.ReasonInvalidSlice, Message: strings.Repeat("€", 20_000)}},
			wantPlaced: "False Pending: cpu=1 waits to be placed", wantAccepted: "False InvalidSlice: " + strings.Repeat("€", (32768-3)/3) + "...",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.np.Status.Conditions = tc.known
			tc.facts.Now = noon
			next, _, _ := placement.Next(tc.np, tc.facts)
			got := func(kind string) string {
				condition := meta.FindStatusCondition(next.Conditions, kind)
				if condition == nil {
					return ""
				}
				require.Equal(t, tc.np.Generation, condition.ObservedGeneration)
				if tc.known == nil {
					require.Equal(t, noon, condition.LastTransitionTime.UTC())
				}
				return fmt.Sprintf("%s %s: %s", condition.Status, condition.Reason, condition.Message)
			}
			require.Equal(t, tc.wantPlaced, got(schedulerv1alpha1.ConditionPlaced))
			require.Equal(t, tc.wantAccepted, got(schedulerv1alpha1.ConditionAccepted))
		})
	}
}

// requireLeaves demands that a placement leaves as a whole where there is a cause, and for none that has ended.
func requireLeaves(t *testing.T, p *schedulerv1alpha1.ClusterPlacement, paused bool, leave map[string]schedulerv1alpha1.LeavingReason) {
	t.Helper()
	switch why, known := leave[p.Cluster]; {
	case paused:
		require.True(t, placement.IsLeaving(p), "all leaves")
		require.Contains(t, []schedulerv1alpha1.LeavingReason{schedulerv1alpha1.LeavingPaused, schedulerv1alpha1.LeavingLost}, p.Leaving.Reason)
	case why != "":
		require.True(t, placement.IsLeaving(p), "all leaves")
		require.Equal(t, why, p.Leaving.Reason)
	case known && p.Leaving != nil:
		require.Contains(t, []schedulerv1alpha1.LeavingReason{schedulerv1alpha1.LeavingShrunk, schedulerv1alpha1.LeavingReturned}, p.Leaving.Reason, "nothing leaves without a cause")
	}
}

// anyPlacement returns a NamespacePlacement with what super clusters say about it, and which are to be left.
func anyPlacement(random *rand.Rand) (*schedulerv1alpha1.NamespacePlacement, map[string]placement.Use, map[string]schedulerv1alpha1.LeavingReason) {
	np := demo()
	np.Spec.Quota, np.ResourceVersion, np.Spec.Paused = pick(random).List(), "now", random.IntN(3) == 0
	used, leave := map[string]placement.Use{}, map[string]schedulerv1alpha1.LeavingReason{}
	for i := range random.IntN(5) {
		cluster := fmt.Sprintf("r%d", i)
		p := schedulerv1alpha1.ClusterPlacement{Cluster: cluster, Reserved: pick(random).List()}
		if random.IntN(2) == 0 {
			reason := []schedulerv1alpha1.LeavingReason{schedulerv1alpha1.LeavingLost, schedulerv1alpha1.LeavingShrunk, schedulerv1alpha1.LeavingReturned, schedulerv1alpha1.LeavingPaused}[random.IntN(4)]
			p.Leaving = &schedulerv1alpha1.Leaving{Reserved: pick(random).List(), Reason: reason, Since: metav1.NewTime(noon.Add(-time.Duration(1+random.IntN(2)) * 30 * time.Second)), Decision: "then"}
		}
		if random.IntN(4) > 0 {
			used[cluster] = placement.Use{Requests: pick(random), Hard: pick(random), Decision: []string{"then", "before"}[random.IntN(2)]}
		}
		if known := random.IntN(5); known < 3 {
			leave[cluster] = []schedulerv1alpha1.LeavingReason{"", schedulerv1alpha1.LeavingLost, schedulerv1alpha1.LeavingDrained}[known]
		}
		np.Status.Placements = append(np.Status.Placements, p)
	}
	return np, used, leave
}

// TestNextIsAFunction runs random placements twice, and once more on the result: nothing moves without a reason, and
// pods that use what is reserved keep it.
func TestNextIsAFunction(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(7, 8))
	for range 600 {
		np, used, leave := anyPlacement(random)
		facts := placement.Facts{Now: noon, Used: used, Leave: leave}
		before := np.DeepCopy()
		first, evict, again := placement.Next(np, facts)
		second, evictAgain, _ := placement.Next(np, facts)
		require.Empty(t, cmp.Diff(before, np))
		require.Empty(t, cmp.Diff(first, second))
		require.Empty(t, cmp.Diff(evict, evictAgain))
		require.LessOrEqual(t, again, placement.ReturnTime)
		np.Status = first
		settled, _, _ := placement.Next(np, facts)
		require.Empty(t, cmp.Diff(first, settled), "a second look finds nothing")
		held := map[string]slice.Amounts{}
		for _, p := range first.Placements {
			held[p.Cluster] = slice.Of(p.Reserved)
			if p.Leaving != nil {
				require.True(t, slice.Of(p.Leaving.Reserved).Fits(slice.Of(p.Reserved)))
				require.NotEmpty(t, p.Leaving.Decision)
			}
			requireLeaves(t, &p, np.Spec.Paused, leave)
		}
		for _, p := range before.Status.Placements {
			was := slice.Of(p.Reserved)
			require.True(t, held[p.Cluster].Fits(was), "nothing grows")
			if before := p.Leaving; before != nil && before.Reason == schedulerv1alpha1.LeavingLost && !placement.Displaced(np).IsZero() {
				require.True(t, was.Fits(held[p.Cluster]), "what was there is held until it is placed elsewhere")
			}
			use, measured := used[p.Cluster]
			if !measured {
				require.True(t, was.Fits(held[p.Cluster]), "what was not measured is not released")
				continue
			}
			require.True(t, was.Minus(was.Minus(use.MayUse())).Fits(held[p.Cluster]), "nothing goes below what may be used")
			if use.Decision != "then" && use.Hard != nil {
				require.True(t, was.Fits(held[p.Cluster]), "what is not answered is not released")
			}
			stays := slice.Of(p.Reserved)
			if p.Leaving != nil {
				stays = placement.StayingIn(&p)
			}
			require.True(t, stays.Fits(held[p.Cluster]), "what stayed leaves first, and is released later")
		}
	}
}
