package virtualclusters

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders"
)

// TestReportOfAPause: a tenant is paused when none of its namespaces holds anything, and none may yet get something.
func TestReportOfAPause(t *testing.T) {
	t.Parallel()
	in := func(clusters ...string) (placements []schedulerv1alpha1.ClusterPlacement) {
		for _, cluster := range clusters {
			placements = append(placements, schedulerv1alpha1.ClusterPlacement{Cluster: cluster, Reserved: builders.Resources("cpu", "1")})
		}
		return placements
	}
	namespace := func(root, name string, paused bool, clusters ...string) *schedulerv1alpha1.NamespacePlacement {
		np := builders.Placement(root, name).Placements(in(clusters...)...).Obj()
		np.Spec.Paused = paused
		return np
	}
	volumes := namespace("key", "web", true)
	volumes.Status.Placements = []schedulerv1alpha1.ClusterPlacement{{Cluster: "r1", Reserved: builders.Resources("storage", "1Gi")}}
	ending := namespace("key", "old", false)
	ending.DeletionTimestamp, ending.Finalizers = &metav1.Time{Time: time.Now()}, []string{"example.com/held"}
	for name, tc := range map[string]struct {
		objects    []client.Object
		running    bool // it is not to be paused
		noPool     bool
		stale      bool // the cache shows none of objects
		known      bool // it was paused before
		runs       []string
		unlisted   bool // super clusters were not listed yet
		asksAgain  bool // they are asked until all are
		want       string
		wantAgain  time.Duration
		wantPaused bool
	}{
		"not paused": {objects: []client.Object{namespace("key", "web", false, "r1")}, running: true},
		"no more":    {known: true, running: true},
		"holds something": {
			objects: []client.Object{namespace("key", "web", true, "r1", "r2"), namespace("key", "b", true), namespace("other", "c", true, "r1")},
			want:    "False GivingBack: Waiting for namespaces web (r1, r2): kubectl -n key get nsp; Events about their quotas say which pods cannot be deleted", wantAgain: pauseRetryAfter,
		},
		"many": {
			objects: []client.Object{namespace("key", "a", true, "r1"), namespace("key", "b", false), namespace("key", "c", true, "r1"), namespace("key", "d", true, "r1"), namespace("key", "e", true, "r1")},
			want:    "False GivingBack: Waiting for namespaces a (r1), b (not paused yet), c (r1) and 2 others: kubectl -n key get nsp; Events about their quotas say which pods cannot be deleted", wantAgain: pauseRetryAfter,
		},
		"the cache is behind": {
			objects: []client.Object{namespace("key", "web", true, "r1")}, stale: true,
			want: "False GivingBack: Waiting for namespaces web (r1): kubectl -n key get nsp; Events about their quotas say which pods cannot be deleted", wantAgain: pauseRetryAfter,
		},
		"holds nothing": {
			objects: []client.Object{namespace("key", "web", true), ending},
			want:    "True GivenBack: The tenant holds no room for pods", wantAgain: conflictRetryAfter, wantPaused: true,
		},
		"something was granted at the last moment": {
			objects: []client.Object{namespace("key", "web", true, "r1")}, known: true,
			want: "False GivingBack: Waiting for namespaces web (r1): kubectl -n key get nsp; Events about their quotas say which pods cannot be deleted", wantAgain: pauseRetryAfter,
		},
		"claims stay": {
			objects: []client.Object{volumes},
			want:    "True GivenBack: The tenant holds no room for pods", wantAgain: conflictRetryAfter, wantPaused: true,
		},
		"NamespacePlacements were lost": {
			known: true, runs: []string{"r1", "r2"},
			want: "False GivingBack: Pods of the tenant run, or may, in r1, r2, and no NamespacePlacement says so", wantAgain: pauseRetryAfter,
		},
		"another process begins": {
			known: true, unlisted: true, want: "True GivenBack: The tenant holds no room for pods", wantAgain: conflictRetryAfter, wantPaused: true, asksAgain: true,
		},
		"super clusters have yet to say what runs": {unlisted: true, want: "False GivingBack: Waiting for super clusters that were not measured since vc-scheduler began to lead", wantAgain: pauseRetryAfter},
		"without a pool": {noPool: true, want: "False NoPool: Without a pool nobody deletes the tenant's pods: delete them, and scale its control plane down, by hand"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			vc := keyed("a")
			vc.Spec.Paused = !tc.running
			if tc.known {
				setTrue(vc, tenancyv1alpha1.ConditionPaused, tenancyv1alpha1.ReasonGivenBack, "before")
			}
			owner, _ := newOwner(t, append(tc.objects, vc)...)
			asked := 0
			if !tc.noPool {
				owner.Runs = func(_ context.Context, key string) ([]string, bool) {
					require.Equal(t, "key", key)
					asked++
					return tc.runs, !tc.unlisted
				}
			}
			if tc.stale {
				fresh := owner.Reader
				runs := owner.Runs
				owner, _ = newOwner(t, vc)
				owner.Runs, owner.Reader = runs, fresh
			}
			again, err := owner.Report(t.Context(), owner.stored(t, "a"), tenancy.Reason{Reason: tenancyv1alpha1.ReasonConnected}, tenancy.Reason{}, nil)
			require.NoError(t, err)
			require.Equal(t, tc.wantAgain, again)
			got := ""
			if condition := meta.FindStatusCondition(owner.stored(t, "a").Status.Conditions, tenancyv1alpha1.ConditionPaused); condition != nil {
				got = string(condition.Status) + " " + condition.Reason + ": " + condition.Message
			}
			require.Equal(t, tc.want, got)
			require.Equal(t, tc.wantPaused, IsPaused(owner.stored(t, "a")))
			if tc.wantPaused {
				_, err := owner.Report(t.Context(), owner.stored(t, "a"), tenancy.Reason{Reason: tenancyv1alpha1.ReasonPaused}, tenancy.Reason{}, nil)
				require.NoError(t, err)
				require.Equal(t, tc.asksAgain, asked > 1, "super clusters are asked until all have answered")
			}
		})
	}
}
