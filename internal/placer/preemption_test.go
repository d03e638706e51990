package placer

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/test/builders"
)

var preemptedAt = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// owner is a namespace that waits for so much that is guaranteed to its tenant.
func owner(tenant, cpu string, change ...func(*schedulerv1alpha1.NamespacePlacement)) *schedulerv1alpha1.NamespacePlacement {
	np := wanting(tenant, cpu)
	np.Spec.Guaranteed = np.Spec.Quota
	np.Status, _, _ = placement.Next(np, placement.Facts{Now: preemptedAt, Share: &placement.Share{Guaranteed: true}})
	for _, f := range change {
		f(np)
	}
	return np
}

// borrower is a namespace that has so many slices of 100m in super clusters, so many minutes old.
func borrower(tenant string, minutes int, held ...schedulerv1alpha1.ClusterPlacement) *schedulerv1alpha1.NamespacePlacement {
	np := wanting(tenant, fmt.Sprintf("%dm", 100*slicesOf(held)), held...)
	np.CreationTimestamp = metav1.NewTime(preemptedAt.Add(-time.Duration(minutes) * time.Minute))
	return np
}

func slicesOf(held []schedulerv1alpha1.ClusterPlacement) (sum int32) {
	for i := range held {
		sum += held[i].Slices
	}
	return sum
}

func held100(cluster string, slices int32) schedulerv1alpha1.ClusterPlacement {
	return builders.HeldSlices(cluster, slices, "cpu", fmt.Sprintf("%dm", 100*slices))
}

func TestPreemption(t *testing.T) {
	type placements = []*schedulerv1alpha1.NamespacePlacement
	two := []*corev1.Node{virtualNode("r1", "400m", "8Gi"), virtualNode("r2", "400m", "8Gi", labelled("region", "eu"))}
	priority := func(priority int32, np *schedulerv1alpha1.NamespacePlacement) *schedulerv1alpha1.NamespacePlacement {
		np.Spec.Priority = priority
		return np
	}
	nominatedFor := func(cluster, cpu string) func(*schedulerv1alpha1.NamespacePlacement) {
		return func(np *schedulerv1alpha1.NamespacePlacement) {
			np.Status, _, _ = placement.Next(np, placement.Facts{Now: preemptedAt, Nominated: map[string]slice.Amounts{cluster: slice.Of(builders.Resources("cpu", cpu))}})
		}
	}
	own := func(np *schedulerv1alpha1.NamespacePlacement) *schedulerv1alpha1.NamespacePlacement {
		np.Name, np.UID = "own", "own"
		return np
	}
	guaranteed := func(cpu string) func(*schedulerv1alpha1.NamespacePlacement) {
		return func(np *schedulerv1alpha1.NamespacePlacement) { np.Spec.Guaranteed = builders.Resources("cpu", cpu) }
	}
	gives := func(np *schedulerv1alpha1.NamespacePlacement, to string, late time.Duration) *schedulerv1alpha1.NamespacePlacement {
		np.Status, _, _ = placement.Next(np, placement.Facts{
			Now: preemptedAt, Leave: map[string]schedulerv1alpha1.LeavingReason{"r1": schedulerv1alpha1.LeavingPreempted},
			Preemption: &placement.Preemption{For: to + "/web", Deadline: preemptedAt.Add(-late)},
		})
		return np
	}
	for name, tc := range map[string]struct {
		nodes []*corev1.Node
		of    placements // the first one waits
		want  string     // who gives way where
		fits  string     // where it goes then
	}{
		"there is room": {of: placements{owner("a", "100m")}, fits: "r1=100m"},
		"the youngest gives way": {
			of: placements{owner("a", "400m"), borrower("old", 2, held100("r1", 4)), borrower("young", 1, held100("r2", 4))}, want: "young@r2", fits: "r2=400m",
		},
		"the lowest priority gives way": {
			of: placements{owner("a", "400m"), priority(1, borrower("young", 1, held100("r1", 4))), borrower("old", 2, held100("r2", 4))}, want: "old@r2", fits: "r2=400m",
		},
		"no more than must": {
			of:   placements{owner("a", "200m"), borrower("b", 1, held100("r1", 2)), borrower("c", 2, held100("r1", 2)), borrower("d", 3, held100("r2", 4))},
			want: "b@r1", fits: "r1=200m",
		},
		"what is free is used": {
			of: placements{owner("a", "300m"), borrower("b", 1, held100("r1", 2)), borrower("c", 2, held100("r2", 3))}, want: "", fits: "r1=200m r2=100m",
		},
		"what is needless stays": {
			of:   placements{owner("a", "600m"), borrower("b", 1, held100("r1", 1)), borrower("c", 2, held100("r1", 3)), borrower("d", 3, held100("r2", 4))},
			want: "c@r1 d@r2", fits: "r1=300m r2=300m",
		},
		"only in the super cluster where it helps": {
			of: placements{owner("a", "400m"), borrower("b", 1, held100("r1", 4), held100("r2", 4))}, want: "b@r1", fits: "r1=400m",
		},
		"nothing that is guaranteed gives way": {
			of: placements{owner("a", "400m"), func() *schedulerv1alpha1.NamespacePlacement {
				np := borrower("b", 1, held100("r1", 4), held100("r2", 4))
				np.Status, _, _ = placement.Next(np, placement.Facts{Share: &placement.Share{Guaranteed: true}})
				return np
			}()},
		},
		"nobody gives way in vain": {of: placements{owner("a", "900m"), borrower("b", 1, held100("r1", 4), held100("r2", 4))}},
		"not for labels": {
			of: placements{owner("a", "100m", func(np *schedulerv1alpha1.NamespacePlacement) {
				np.Spec.NodeSelector = map[string]string{"region": "us"}
			}), borrower("b", 1, held100("r1", 4), held100("r2", 4))},
		},
		"only where the labels are": {
			of: placements{owner("a", "100m", func(np *schedulerv1alpha1.NamespacePlacement) {
				np.Spec.NodeSelector = map[string]string{"region": "eu"}
			}), borrower("b", 1, held100("r1", 4)), borrower("c", 2, held100("r2", 4))}, want: "c@r2", fits: "r2=100m",
		},
		"not for the size of a slice": {
			nodes: []*corev1.Node{virtualNode("r1", "400m", "8Gi"), virtualNode("r2", "400m", "8Gi")},
			of: placements{owner("a", "800m", func(np *schedulerv1alpha1.NamespacePlacement) {
				np.Spec.Slice = builders.Resources("cpu", "500m")
			}), borrower("b", 1, held100("r1", 4), held100("r2", 4))},
		},
		"what gives way already is free": {
			of:   placements{owner("a", "400m", nominatedFor("r1", "400m")), gives(borrower("b", 1, held100("r1", 4)), "a", 0), borrower("c", 2, held100("r2", 4))},
			fits: "r1=400m",
		},
		"but not when it is stuck": {
			of:   placements{owner("a", "400m", nominatedFor("r1", "400m")), gives(borrower("b", 1, held100("r1", 4)), "a", time.Hour), borrower("c", 2, held100("r2", 4))},
			want: "c@r2", fits: "r2=400m",
		},
		"its own tenant gives way first, and others not beyond the guarantee": {
			of: placements{owner("a", "400m"), own(borrower("a", 9, held100("r1", 4))), borrower("b", 1, held100("r2", 4))}, want: "a@r1", fits: "r1=400m",
		},
		"its own tenant gives way first, and others within the guarantee": {
			of: placements{
				owner("a", "600m", guaranteed("800m")), own(borrower("a", 9, held100("r1", 2))),
				borrower("b", 1, held100("r1", 2)), borrower("c", 2, held100("r2", 4)),
			},
			want: "a@r1 c@r2", fits: "r1=200m r2=400m",
		},
		"nobody else gives way beyond the guarantee": {
			of: placements{owner("a", "400m"), own(borrower("a", 9, held100("r1", 1))), borrower("b", 1, held100("r1", 3)), borrower("c", 2, held100("r2", 4))},
		},
		"what was placed beside what gives way stays": {
			of: placements{owner("a", "400m", nominatedFor("r1", "200m")), func() *schedulerv1alpha1.NamespacePlacement {
				np := gives(borrower("b", 1, held100("r1", 2)), "a", 0)
				np.Status.Placements[0].Reserved = builders.Resources("cpu", "400m")
				return np
			}(), borrower("c", 2, held100("r2", 4))},
			want: "c@r2", fits: "r2=400m",
		},
		"very many small ones shield nobody": {
			nodes: []*corev1.Node{virtualNode("r1", "1500m", "8Gi"), virtualNode("r2", "1500m", "8Gi")},
			of: func() (small placements) {
				small = placements{owner("a", "1200m"), borrower("large", 999, held100("r2", 15))}
				for i := range 150 {
					small = append(small, borrower(fmt.Sprintf("small-%d", i), 1, builders.HeldSlices("r1", 1, "cpu", "10m")))
				}
				return small
			}(), want: "large@r2", fits: "r2=1200m",
		},
		"what others are nominated for is taken": {
			of:   placements{owner("a", "400m"), owner("other", "400m", nominatedFor("r1", "400m")), gives(borrower("b", 1, held100("r1", 4)), "other", 0), borrower("c", 2, held100("r2", 4))},
			want: "c@r2", fits: "r2=400m",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes := tc.nodes
			if nodes == nil {
				nodes = two
			}
			search := &Preemption{Config: defaultConfig(t), Nodes: nodes, Placements: tc.of, Now: preemptedAt}
			victims, err := search.Find(schedulertest.Context(t), client.ObjectKeyFromObject(tc.of[0]))
			require.NoError(t, err)
			require.Equal(t, tc.want, partsText(victims.Parts))
			require.Equal(t, tc.fits, grantedText(victims.Granted))
			require.Equal(t, tc.fits == "", !victims.Why.IsZero())
		})
	}
}

func partsText(parts []Part) string {
	texts := make([]string, len(parts))
	for i := range parts {
		texts[i] = parts[i].Namespace.Namespace + "@" + parts[i].Cluster
	}
	return strings.Join(slices.Sorted(slices.Values(texts)), " ")
}

func grantedText(granted map[string]slice.Amounts) string {
	var texts []string
	for cluster, amounts := range granted {
		if !amounts.IsZero() {
			list := amounts.List()
			texts = append(texts, cluster+"="+list.Cpu().String())
		}
	}
	return strings.Join(slices.Sorted(slices.Values(texts)), " ")
}

// hold puts a NamespacePlacement into the pool.
func (p *pool) hold(np *schedulerv1alpha1.NamespacePlacement) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.placements[np.Namespace] = np
	p.project(np.Namespace)
}

// TestWhatIsNominatedIsKept: what comes free goes to whom it was taken for, though others wait, and though they are
// tried before it is whole.
func TestWhatIsNominatedIsKept(t *testing.T) {
	t.Parallel()
	p := newPool(t)
	p.cluster("r1", "600m", "8Gi")
	p.hold(borrower("first", 2, held100("r1", 2)))
	p.hold(borrower("second", 1, held100("r1", 2)))
	a := owner("a", "500m")
	a.Spec.Quota, a.Spec.Slice = builders.Resources("cpu", "500m"), builders.Resources("cpu", "100m")
	p.hold(a.DeepCopy())
	p.wantRefused("a", "too little free")
	a.Status, _, _ = placement.Next(a, placement.Facts{Now: preemptedAt, Nominated: map[string]slice.Amounts{"r1": slice.Of(builders.Resources("cpu", "500m"))}})
	require.NotNil(t, a.Status.Nominated)
	p.hold(a)
	p.hold(wanting("thief", "200m"))
	p.wantRefused("thief", "too little free")
	p.remove("first")
	p.hold(wanting("other", "200m"))
	p.wantRefused("other", "too little free")
	p.remove("second")
	p.wantPlaced("a", `{"r1":5}`)
	p.ask("small", "100m", "0")
	p.wantPlaced("small", `{"r1":1}`)
	require.Empty(t, p.placed("thief"))
	require.Empty(t, p.placed("other"))
}

// BenchmarkPreemption is a search in a full pool.
func BenchmarkPreemption(b *testing.B) {
	for _, namespaces := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprintf("namespaces=%d", namespaces), func(b *testing.B) {
			search := &Preemption{Config: defaultConfig(b), Now: preemptedAt, Placements: []*schedulerv1alpha1.NamespacePlacement{owner("a", "1")}}
			for i := range 100 {
				search.Nodes = append(search.Nodes, virtualNode(fmt.Sprintf("r%02d", i), fmt.Sprintf("%dm", namespaces/100*200), "800Gi"))
			}
			for i := range namespaces {
				np := borrower(fmt.Sprintf("tenant-%05d", i), i, held100(fmt.Sprintf("r%02d", i%100), 2))
				np.UID = types.UID(np.Namespace)
				search.Placements = append(search.Placements, np)
			}
			b.ResetTimer()
			for b.Loop() {
				victims, err := search.Find(schedulertest.Context(b), client.ObjectKeyFromObject(search.Placements[0]))
				require.NoError(b, err)
				require.Len(b, victims.Parts, 5)
			}
		})
	}
}

// TestVictimsInRounds: a tenant that borrows as very many small namespaces shields nothing. So many of them leave at a
// time, and the others the next time.
func TestVictimsInRounds(t *testing.T) {
	t.Parallel()
	search := &Preemption{
		Config: defaultConfig(t), Now: preemptedAt, Nodes: []*corev1.Node{virtualNode("r1", "1300m", "8Gi")},
		Placements: []*schedulerv1alpha1.NamespacePlacement{owner("a", "1200m")},
	}
	for i := range 130 {
		search.Placements = append(search.Placements, borrower(fmt.Sprintf("small-%03d", i), i, builders.HeldSlices("r1", 1, "cpu", "10m")))
	}
	for _, want := range []struct {
		parts int
		more  bool
	}{{maxVictims, true}, {20, false}, {0, false}} {
		victims, err := search.Find(schedulertest.Context(t), client.ObjectKeyFromObject(search.Placements[0]))
		require.NoError(t, err)
		require.Len(t, victims.Parts, want.parts)
		require.Equal(t, want.more, victims.More)
		require.Equal(t, "r1=1200m", grantedText(victims.Granted))
		search.Placements = slices.DeleteFunc(search.Placements, func(np *schedulerv1alpha1.NamespacePlacement) bool {
			return slices.ContainsFunc(victims.Parts, func(part Part) bool { return part.Namespace == client.ObjectKeyFromObject(np) })
		})
	}
	require.Len(t, search.Placements, 11, "no more left than had to")
}
