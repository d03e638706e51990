package placement_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slice"
)

// usedIn says what pods use, as pairs of a super cluster and cpu.
func usedIn(pairs ...string) map[string]slice.Amounts {
	used := map[string]slice.Amounts{}
	for i := 0; i < len(pairs); i += 2 {
		used[pairs[i]] = cpus(pairs[i+1])
	}
	return used
}

// partly is a placement whose last slice is smaller than the others.
func partly(cluster, reserved string) schedulerv1alpha1.ClusterPlacement {
	p := in(cluster, reserved)
	p.Slices++
	return p
}

func big(requests string, used map[string]slice.Amounts, clusters ...string) *placement.Wish {
	return &placement.Wish{Pod: "big", Requests: cpus(requests), Used: used, Clusters: clusters}
}

// at says where the volumes of a pod are.
func at(home string, wish *placement.Wish) *placement.Wish {
	wish.Home = home
	return wish
}

func TestRelocate(t *testing.T) {
	t.Parallel()
	nothing := usedIn("r1", "0", "r2", "0", "r3", "0")
	two := func() *schedulerv1alpha1.NamespacePlacement { return asks("4", in("r1", "2"), in("r2", "2")) }
	for name, tc := range map[string]struct {
		np   *schedulerv1alpha1.NamespacePlacement
		wish *placement.Wish
		// want is what moves, and wantGranted what the placements are once that is granted.
		want, wantGranted string
		wantWhy           string
	}{
		"one slice": {np: two(), wish: big("3", nothing, "r1", "r2"), want: "1 slice from r2 to r1 for pod big, which requests cpu=3", wantGranted: "r1=3 r2=2-1"},
		"all":       {np: two(), wish: big("4", nothing, "r1", "r2"), want: "2 slices from r2 to r1 for pod big, which requests cpu=4", wantGranted: "r1=4 r2=2-2"},
		"the preferred one of equals": {
			np: two(), wish: big("3", nothing, "r2", "r1"), want: "1 slice from r1 to r2 for pod big, which requests cpu=3", wantGranted: "r1=2-1 r2=3",
		},
		"the one that needs the fewest": {
			np: asks("4", in("r1", "1"), in("r2", "3")), wish: big("3500m", nothing, "r1", "r2"),
			want: "1 slice from r1 to r2 for pod big, which requests cpu=3500m", wantGranted: "r1=1-1 r2=4",
		},
		"beside what pods use there": {
			np: asks("6", in("r1", "3"), in("r2", "3")), wish: big("3", usedIn("r1", "1", "r2", "2"), "r1", "r2"),
			want: "1 slice from r2 to r1 for pod big, which requests cpu=3", wantGranted: "r1=4 r2=3-1",
		},
		"what is free in pieces is put together": {
			np: asks("4", in("r1", "2"), in("r2", "2")), wish: big("2", usedIn("r1", "1", "r2", "1"), "r1", "r2"),
			want: "1 slice from r2 to r1 for pod big, which requests cpu=2", wantGranted: "r1=3 r2=2-1",
		},
		"from where most is unused": {
			np: asks("7", in("r1", "3"), in("r2", "2"), in("r3", "2")), wish: big("5", usedIn("r1", "0", "r2", "1", "r3", "0"), "r1"),
			want: "2 slices from r3 to r1 for pod big, which requests cpu=5", wantGranted: "r1=5 r2=2 r3=2-2",
		},
		"from two": {
			np: asks("4", in("r1", "2"), in("r2", "1"), in("r3", "1")), wish: big("4", nothing, "r1"),
			want: "2 slices from r2 (1), r3 (1) to r1 for pod big, which requests cpu=4", wantGranted: "r1=4 r2=1-1 r3=1-1",
		},
		"into one that holds nothing yet": {
			np: two(), wish: big("3", nothing, "r3"), want: "3 slices from r1 (2), r2 (1) to r3 for pod big, which requests cpu=3", wantGranted: "r1=2-2 r2=2-1 r3=3",
		},
		"a smaller slice is not enough": {
			np: asks("4500m", in("r1", "2"), partly("r2", "2500m")), wish: big("3", nothing, "r1"),
			want: "2 slices from r2 to r1 for pod big, which requests cpu=3", wantGranted: "r1=3500m r2=2500m-1500m",
		},
		"a smaller slice is enough": {
			np: asks("4500m", in("r1", "2"), partly("r2", "2500m")), wish: big("2500m", usedIn("r1", "0", "r2", "1"), "r1"),
			want: "1 slice from r2 to r1 for pod big, which requests cpu=2500m", wantGranted: "r1=2500m r2=2500m-500m",
		},
		"it has room":                     {np: two(), wish: big("2", nothing, "r1", "r2")},
		"it has room where it may not go": {np: two(), wish: big("2", usedIn("r1", "2", "r2", "0"), "r1")},
		"it has room, and its volumes are elsewhere": {
			np: two(), wish: at("r3", big("1", nothing, "r1", "r2", "r3")), want: "1 slice from r1 to r3 for pod big, which requests cpu=1", wantGranted: "r1=2-1 r2=2 r3=1",
		},
		"it has room where its volumes are": {np: two(), wish: at("r2", big("1", nothing, "r1", "r2"))},
		"its volumes are where it may not go": {
			np: two(), wish: at("r3", big("1", nothing, "r1", "r2")), wantWhy: "its volumes are in super cluster r3, where it may not run now, or which vc-scheduler cannot measure",
		},
		"it has room where nothing meets its demands": {
			np: asks("2", in("r1", "2")), wish: lacking("r1", big("1", nothing, "r3")),
			want: "1 slice from r1 to r3 for pod big, which requests cpu=1 and demands what the super clusters lack where the namespace has room for it", wantGranted: "r1=2-1 r3=1",
		},
		"it has room where something meets them, too": {np: two(), wish: lacking("r1", big("1", nothing, "r2", "r3"))},
		"pods use what could move to where its demands are met": {
			np: asks("2", in("r1", "2")), wish: lacking("r1", big("500m", usedIn("r1", "1500m", "r3", "0"), "r3")), wantWhy: "super cluster r3 needs 1 more slices for it",
		},
		"larger than the quota": {np: two(), wish: big("5", nothing, "r1", "r2"), wantWhy: "it requests cpu=5, and the whole quota is cpu=4"},
		"no room in sum": {
			np: two(), wish: big("3", usedIn("r1", "1", "r2", "1"), "r1", "r2"), wantWhy: "it requests cpu=3, and pods use cpu=2 of the quota of cpu=4",
		},
		"pods would have to go": {
			np: asks("4", in("r1", "2"), in("r2", "2")), wish: big("1", usedIn("r1", "1500m", "r2", "1500m"), "r1", "r2"),
			wantWhy: "super cluster r1 needs 1 more slices for it",
		},
		"slices are used in part": {
			np: asks("4", in("r1", "2"), in("r2", "2")), wish: big("2800m", usedIn("r1", "100m", "r2", "1100m"), "r1"),
			wantWhy: "super cluster r1 needs 1 more slices for it, and too few of those elsewhere are free of pods: none is evicted for it",
		},
		"nothing leaves what does not answer": {np: two(), wish: big("3", usedIn("r1", "0"), "r1"), wantWhy: "super cluster r1 needs 1 more slices for it"},
		"nothing goes where nobody measures":  {np: two(), wish: big("3", usedIn("r1", "0"), "r2"), wantWhy: "it may run in no super cluster"},
		"it may go nowhere":                   {np: two(), wish: big("3", nothing), wantWhy: "it may run in no super cluster"},
		"of what the slices have nothing": {
			np: two(), wish: &placement.Wish{Pod: "big", Requests: slice.Amounts{"nvidia.com/gpu": 1}, Used: nothing, Clusters: []string{"r1"}},
			wantWhy: "it requests nvidia.com/gpu=1, and the whole quota is cpu=4",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := tc.np.DeepCopy()
			found, why := placement.Relocate(tc.np, tc.wish)
			require.Empty(t, cmp.Diff(before, tc.np), "the argument is the caller's")
			if tc.wantWhy == "" {
				require.Empty(t, why)
			}
			require.Contains(t, why, tc.wantWhy)
			require.Equal(t, tc.want == "", found.IsZero())
			if found.IsZero() {
				return
			}
			require.Equal(t, tc.want, found.String())
			next, refused := placement.Move(tc.np, &found, time.Minute, noon)
			require.Empty(t, refused)
			tc.np.Status = next
			grant := granted(tc.np)
			next, evict, _ := placement.Next(tc.np, placement.Facts{Now: noon, Granted: grant})
			require.Equal(t, tc.wantGranted, text(next.Placements))
			require.Empty(t, evict)
			require.Equal(t, schedulerv1alpha1.RequestGranted, next.Requested.State)
		})
	}
}

// lacking makes the wish that of a pod whose demands a super cluster does not meet.
func lacking(cluster string, wish *placement.Wish) *placement.Wish {
	wish.Unfit = sets.New(cluster)
	return wish
}

// TestRelocateIsCheap: a namespace of a thousand super clusters with a thousand slices each is one computation.
func TestRelocateIsCheap(t *testing.T) {
	t.Parallel()
	wish := big("1500", map[string]slice.Amounts{})
	np := asks("100000")
	for i := range 100 {
		cluster := fmt.Sprintf("r%03d", i)
		np.Status.Placements = append(np.Status.Placements, in(cluster, "1000"))
		wish.Used[cluster], wish.Clusters = slice.Amounts{}, append(wish.Clusters, cluster)
	}
	found, why := placement.Relocate(np, wish)
	require.Empty(t, why)
	require.Equal(t, "500 slices from r001 to r000 for pod big, which requests cpu=1500", found.String())
}

// TestMove is about when slices may move, and what becomes of a request that no tenant made.
func TestMove(t *testing.T) {
	t.Parallel()
	two := func() *schedulerv1alpha1.NamespacePlacement { return asks("4", in("r1", "2"), in("r2", "2")) }
	found, _ := placement.Relocate(two(), big("3", usedIn("r1", "0", "r2", "0"), "r1", "r2"))
	require.False(t, found.IsZero())
	soon := two()
	soon.Status.LastRequested = ptr.To(metav1.NewTime(noon.Add(-4 * time.Minute)))
	asked := two()
	asked.Status.Requested = &schedulerv1alpha1.RequestedPlacements{State: schedulerv1alpha1.RequestWaiting}
	for name, tc := range map[string]struct {
		np       *schedulerv1alpha1.NamespacePlacement
		interval time.Duration
		want     string
	}{
		"too soon":           {np: soon, interval: 5 * time.Minute, want: "other placements were requested at"},
		"never":              {np: two(), want: "the tenant's policy allows no requests"},
		"on the move":        {np: asks("4", in("r1", "2"), leaves("r2", "2", "1")), interval: time.Minute, want: "the namespace waits to be placed, or is on the move"},
		"not placed":         {np: asks("5", in("r1", "2"), in("r2", "2")), interval: time.Minute, want: "the namespace waits to be placed, or is on the move"},
		"the tenant asked":   {np: asked, interval: time.Minute, want: "the namespace waits to be placed, or is on the move"},
		"the quota is other": {np: asks("3", in("r1", "2"), in("r2", "1")), interval: time.Minute, want: "the placements add up to 4 slices, and the quota makes 3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := tc.np.Status.DeepCopy()
			next, refused := placement.Move(tc.np, &found, tc.interval, noon)
			require.Contains(t, refused, tc.want)
			require.Empty(t, cmp.Diff(*before, next))
		})
	}

	np := two()
	np.Status.LastRequested = ptr.To(metav1.NewTime(noon.Add(time.Hour))) // of a clock that was ahead
	standing := placement.Encode(np.Status.Placements)
	np.Status.Published = &standing
	record := func(annotation string) {
		np.Status, _, _ = placement.Next(np, placement.Facts{Now: noon, Annotation: &annotation})
	}
	np.Status, _ = placement.Move(np, &found, time.Minute, noon)
	require.Equal(t, noon, np.Status.LastRequested.UTC())
	require.Equal(t, placement.StepNone, placement.Publication(&np.Status, standing), "it waits")
	record(standing)
	require.NotNil(t, np.Status.Requested, "it stands for no annotation")
	require.Equal(t, placement.StepRequest, placement.Publication(&np.Status, ""), "a tenant asks for something else")

	refused := np.DeepCopy()
	refused.Status, _, _ = placement.Next(refused, placement.Facts{Now: noon, Unschedulable: "super cluster r1: has too little free cpu"})
	require.Equal(t, placement.StepRestore, placement.Publication(&refused.Status, standing))
	require.Equal(t, "super cluster r1: has too little free cpu", refused.Status.Requested.Message)
	refused.Status, _, _ = placement.Next(refused, placement.Facts{Now: noon, Annotation: &standing})
	require.Nil(t, refused.Status.Requested)
	require.Equal(t, placement.StepNone, placement.Publication(&refused.Status, standing))

	np.Status, _, _ = placement.Next(np, placement.Facts{Now: noon, Granted: granted(np)})
	require.Equal(t, placement.StepWrite, placement.Publication(&np.Status, standing))
	record(placement.Encode(np.Status.Placements))
	require.Nil(t, np.Status.Requested)
	require.Equal(t, schedulerv1alpha1.LeavingMoved, np.Status.Placements[1].Leaving.Reason)

	// A pod came there meanwhile: it stays, and what it uses leaves when it has ended.
	decision := np.Status.Placements[1].Leaving.Decision
	use := placement.Use{Requests: cpus("2"), Hard: cpus("1"), Decision: decision}
	var evict []placement.Eviction
	np.Status, evict, _ = placement.Next(np, placement.Facts{Now: noon, Used: map[string]placement.Use{"r1": {}, "r2": use}})
	require.Empty(t, evict)
	require.Equal(t, "r1=3 r2=2-1", text(np.Status.Placements))
	use.Requests = cpus("1")
	np.Status, _, _ = placement.Next(np, placement.Facts{Now: noon, Used: map[string]placement.Use{"r1": {}, "r2": use}})
	require.Equal(t, "r1=3 r2=1", text(np.Status.Placements))
}
