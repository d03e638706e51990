package placement_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/test/builders"
)

// storing is asks with storage in the quota, "" for none, in gibibytes as everywhere here.
func storing(quota, storage string, placements ...schedulerv1alpha1.ClusterPlacement) *schedulerv1alpha1.NamespacePlacement {
	np := asks(quota, placements...)
	if storage != "" {
		np.Spec.Quota[corev1.ResourceStorage] = builders.Resources("storage", storage+"Gi")["storage"]
	}
	return np
}

// inWith is in with storage, of which a part leaves for the reason of p, if anything does.
func inWith(p schedulerv1alpha1.ClusterPlacement, storage, leaving string) schedulerv1alpha1.ClusterPlacement {
	p.Reserved[corev1.ResourceStorage] = builders.Resources("storage", storage+"Gi")["storage"]
	if leaving != "" {
		p.Leaving.Reserved[corev1.ResourceStorage] = builders.Resources("storage", leaving+"Gi")["storage"]
	}
	return p
}

// displacing lets so much be displaced of what leaves, "" for no cores.
func displacing(quantity, storage string, np *schedulerv1alpha1.NamespacePlacement) *schedulerv1alpha1.NamespacePlacement {
	np = displaced(quantity, np)
	if np.Status.Displaced.Resources == nil {
		np.Status.Displaced.Resources = corev1.ResourceList{}
	}
	np.Status.Displaced.Resources[corev1.ResourceStorage] = builders.Resources("storage", storage+"Gi")["storage"]
	return np
}

// stores is uses with so much storage in claims, of so much that is held.
func stores(claims int64, requests, hard, storage, held string) placement.Use {
	use := uses(requests, hard)
	use.Claims = claims
	use.Requests = use.Requests.Plus(slice.Of(builders.Resources("storage", storage+"Gi")))
	use.Hard = use.Hard.Plus(slice.Of(builders.Resources("storage", held+"Gi")))
	return use
}

// all is text with all resources.
func all(placements []schedulerv1alpha1.ClusterPlacement) string {
	var parts []string
	for i := range placements {
		p := &placements[i]
		part := fmt.Sprintf("%s: %s", p.Cluster, slice.Of(p.Reserved))
		if p.Leaving != nil {
			part += fmt.Sprintf(" - %s", slice.Of(p.Leaving.Reserved))
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "; ")
}

// TestStorageThatClaimsUse: it is not released, whatever becomes of the pods, and no pod is evicted for it.
func TestStorageThatClaimsUse(t *testing.T) {
	t.Parallel()
	type measured = map[string]placement.Use
	type reasons = map[string]schedulerv1alpha1.LeavingReason
	both := func(quota, storage string) *schedulerv1alpha1.NamespacePlacement {
		return storing(quota, storage, inWith(in("r1", "2"), "5", ""), inWith(in("r2", "2"), "5", ""))
	}
	preempted := inWith(leaves("r1", "2", "2"), "5", "5")
	preempted.Leaving.Reason = schedulerv1alpha1.LeavingPreempted
	for name, tc := range map[string]struct {
		np        *schedulerv1alpha1.NamespacePlacement
		facts     placement.Facts
		want      string
		wantEvict string
	}{
		"a lower quota leaves where nothing is used": {
			np: both("4", "6"), facts: placement.Facts{Used: measured{"r1": stores(1, "0", "2", "4", "5"), "r2": stores(0, "0", "2", "0", "5")}},
			want: "r1: cpu=2,storage=5Gi; r2: cpu=2,storage=5Gi - storage=4Gi",
		},
		"and then where it is used": {
			np: both("4", "2"), facts: placement.Facts{Used: measured{"r1": stores(1, "0", "2", "4", "5"), "r2": stores(0, "0", "2", "0", "5")}},
			want: "r1: cpu=2,storage=5Gi - storage=3Gi; r2: cpu=2,storage=5Gi - storage=5Gi",
		},
		"what is used is not released": {
			np:    storing("4", "2", inWith(shrinks("r1", "2", "0"), "5", "3"), inWith(shrinks("r2", "2", "0"), "5", "5")),
			facts: placement.Facts{Used: measured{"r1": stores(1, "0", "2", "4", "2"), "r2": stores(0, "0", "2", "0", "0")}},
			want:  "r1: cpu=2,storage=4Gi - storage=2Gi; r2: cpu=2",
		},
		"the pods of what leaves go, and not for the sake of storage": {
			np: both("4", "10"), facts: placement.Facts{
				Leave: reasons{"r1": schedulerv1alpha1.LeavingPreempted}, Used: measured{"r1": stores(1, "1", "2", "4", "5"), "r2": stores(0, "0", "2", "0", "5")},
			},
			want: "r1: cpu=2,storage=5Gi - cpu=2,storage=5Gi; r2: cpu=2,storage=5Gi", wantEvict: "r1 cpu=1",
		},
		"when they have gone, the volumes have stayed": {
			np: storing("2", "5", preempted, inWith(in("r2", "2"), "5", "")), facts: placement.Facts{
				Leave: reasons{"r1": schedulerv1alpha1.LeavingPreempted}, Used: measured{"r1": stores(1, "0", "0", "4", "0")},
			},
			want: "r1: storage=4Gi - storage=4Gi; r2: cpu=2,storage=5Gi",
		},
		"a quota that names no storage any more": {
			np:    storing("4", "", inWith(in("r1", "2"), "5", ""), inWith(shrinks("r2", "2", "0"), "5", "5")),
			facts: placement.Facts{Used: measured{"r1": stores(1, "1", "2", "4", "0"), "r2": stores(1, "1", "2", "4", "0")}},
			want:  "r1: cpu=2; r2: cpu=2",
		},
		"pods leave a drained super cluster before its storage is anywhere else": {
			np:    displacing("", "5", storing("2", "5", inWith(leaves("r1", "2", "2"), "5", "5"), in("r2", "2"))),
			facts: placement.Facts{Used: measured{"r1": stores(1, "1", "0", "4", "0"), "r2": stores(0, "0", "2", "0", "0")}},
			want:  "r1: cpu=2,storage=5Gi - cpu=2,storage=5Gi; r2: cpu=2", wantEvict: "r1 cpu=1",
		},
		"a drain holds what is there for its volumes": {
			np:    storing("2", "5", inWith(leaves("r1", "2", "2"), "5", "5"), inWith(in("r2", "2"), "5", "")),
			facts: placement.Facts{Used: measured{"r1": stores(1, "0", "0", "4", "0"), "r2": stores(0, "0", "2", "0", "5")}},
			want:  "r1: cpu=2,storage=5Gi - cpu=2,storage=5Gi; r2: cpu=2,storage=5Gi",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.facts.Now = noon
			next, evict, _ := placement.Next(tc.np, tc.facts)
			require.Equal(t, tc.want, all(next.Placements))
			var evicted []string
			for _, e := range evict {
				evicted = append(evicted, e.Cluster+" "+e.Excess.String())
			}
			require.Equal(t, tc.wantEvict, strings.Join(evicted, "; "))
		})
	}
}

// TestStorageThatIsMissingAlone is cut as the whole quota would be: nothing else divides it.
func TestStorageThatIsMissingAlone(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		np   *schedulerv1alpha1.NamespacePlacement
		want []string
	}{
		"a quota comes to name it": {np: storing("4", "10", in("r1", "2"), in("r2", "2")), want: []string{"4×storage=2560Mi"}},
		"it grows":                 {np: storing("4", "12", inWith(in("r1", "2"), "5", ""), inWith(in("r2", "2"), "5", "")), want: []string{"1×storage=2Gi"}},
		"with cores":               {np: storing("4", "10", inWith(in("r1", "2"), "5", "")), want: []string{"2×cpu=1,storage=2560Mi"}},
		"all of it":                {np: storing("4", "10"), want: []string{"4×cpu=1,storage=2560Mi"}},
		"what is displaced, its storage last": {
			np: displacing("2", "5", storing("2", "5", inWith(leaves("r1", "2", "2"), "5", "5"))), want: []string{"2×cpu=1"},
		},
		"the storage of what is displaced": {
			np: displacing("", "5", storing("2", "5", inWith(leaves("r1", "2", "2"), "5", "5"), in("r2", "2"))), want: []string{"2×storage=2560Mi"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, run := range placement.Missing(tc.np) {
				got = append(got, fmt.Sprintf("%d×%s", run.Count, run.Size))
			}
			require.Equal(t, tc.want, got)
		})
	}
}

// TestSlicesWhoseStorageIsUsedStay: neither for a pod nor for others do they move.
func TestSlicesWhoseStorageIsUsedStay(t *testing.T) {
	t.Parallel()
	np := storing("4", "8", inWith(in("r1", "2"), "4", ""), inWith(in("r2", "2"), "4", ""))
	used := func(storage string) map[string]slice.Amounts {
		return map[string]slice.Amounts{"r1": {}, "r2": slice.Of(builders.Resources("storage", storage))}
	}
	wanted, why := placement.Shift(np, map[string]int32{"r1": 3, "r2": 1}, used("2Gi"))
	require.Empty(t, why)
	require.Equal(t, "r1: cpu=3,storage=6Gi; r2: cpu=1,storage=2Gi", all(wanted))
	_, why = placement.Shift(np, map[string]int32{"r1": 3, "r2": 1}, used("3Gi"))
	require.Equal(t, "pods and volumes use storage=3Gi in super cluster r2", why)

	wish := placement.Wish{Pod: "large", Requests: cpus("3"), Used: used("2Gi"), Clusters: []string{"r1", "r2"}}
	found, why := placement.Relocate(np, &wish)
	require.Empty(t, why)
	require.Equal(t, "1 slice from r2 to r1 for pod large, which requests cpu=3", found.String())
	wish.Used, wish.Clusters = used("3Gi"), []string{"r1"}
	found, why = placement.Relocate(np, &wish)
	require.True(t, found.IsZero())
	require.Equal(t, "super cluster r1 needs 1 more slices for it, and too few of those elsewhere are free of pods: none is evicted for it", why)
}

// TestUsedOf: storage counts where the quota names it, and holds no NamespacePlacement that is deleted.
func TestUsedOf(t *testing.T) {
	t.Parallel()
	use := stores(1, "0", "0", "4", "5")
	require.Equal(t, "storage=4Gi", use.UsedOf(storing("4", "10")).String())
	require.Empty(t, use.UsedOf(storing("4", "")).String())
	require.True(t, use.IsNothing())
	require.True(t, use.Waits())
}

// TestStorageIsNotBorrowed: a guarantee that names none guarantees the rest of a namespace with storage.
func TestStorageIsNotBorrowed(t *testing.T) {
	t.Parallel()
	np := storing("4", "10")
	np.Spec.Guaranteed = cpu("4")
	shares := placement.Shares([]*schedulerv1alpha1.NamespacePlacement{np})
	require.True(t, shares[0].Guaranteed)
	require.True(t, placement.MayTakeOfOthers(np, []*schedulerv1alpha1.NamespacePlacement{np}, noon))
	np.Spec.Guaranteed = builders.Resources("cpu", "4", "storage", "9Gi")
	require.Equal(t, "storage=1Gi", placement.Shares([]*schedulerv1alpha1.NamespacePlacement{np})[0].Borrowed.String())
}
