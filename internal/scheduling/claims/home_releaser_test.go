package claims

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/claimhome"
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/scheduling/placements"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/schedulingtest"
)

// TestHomeReleaser: a claim without volume whose namespace holds nothing in its home has no home, once nothing can have
// been made for it there.
func TestHomeReleaser(t *testing.T) {
	t.Parallel()
	witnessed := func(claim *corev1.PersistentVolumeClaim) {
		claim.Finalizers = []string{"kubernetes.io/pvc-protection", "claim.tenancy.x-k8s.io/r2"}
	}
	restored := func(claim *corev1.PersistentVolumeClaim) {
		claim.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: ptr.To("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: "s"}
	}
	inR1 := builders.Placement("tenant", "web").Slice("cpu", "1").Quota("cpu", "2").Held("r1", 2, "cpu", "2")
	inBoth := builders.Placement("tenant", "web").Slice("cpu", "1").Quota("cpu", "2").Held("r1", 1, "cpu", "1").Held("r2", 1, "cpu", "1")
	leaves := builders.Placement("tenant", "web").Slice("cpu", "1").Quota("cpu", "2").Held("r1", 2, "cpu", "2").Held("r2", 0, "cpu", "2").Obj()
	leaves.Status.Placements[1].Leaving = &schedulerv1alpha1.Leaving{Reason: schedulerv1alpha1.LeavingDrained, Reserved: builders.Resources("cpu", "2")}
	undecided := builders.Placement("tenant", "web").Slice("cpu", "1").Quota("cpu", "2")
	for name, tc := range map[string]struct {
		claim func(*corev1.PersistentVolumeClaim)
		// cached and live are the NamespacePlacements, nil for none. A nil live is as cached.
		cached, live *schedulerv1alpha1.NamespacePlacement
		// left is since when r2 has left the pool, 0 for not, and stored whether the meta cluster has its Node all the
		// same.
		left   time.Duration
		stored bool
		lost   bool
		// holds are the namespaces that r2 says it holds, nil if it does not answer. asked is how long ago it said so,
		// before the NamespacePlacement was as it is, 0 for not before it is asked.
		holds sets.Set[string]
		asked time.Duration
		// conflict is whether somebody has written the claim meanwhile.
		conflict  bool
		want      string
		wantAgain time.Duration
	}{
		"nothing was made there":              {cached: inR1.Obj()},
		"the namespace holds something there": {cached: inBoth.Obj(), want: "r2"},
		"the cache is behind":                 {cached: inR1.Obj(), live: inBoth.Obj(), want: "r2"},
		"it has no NamespacePlacement":        {want: "r2"},
		"that was not decided":                {cached: undecided.Obj(), want: "r2"},
		"it has a volume":                     {cached: inR1.Obj(), claim: func(claim *corev1.PersistentVolumeClaim) { claim.Spec.VolumeName = "r2.v" }, want: "r2"},
		"it is deleted": {cached: inR1.Obj(), want: "r2", claim: func(claim *corev1.PersistentVolumeClaim) {
			witnessed(claim)
			claim.DeletionTimestamp = ptr.To(metav1.NewTime(schedulingtest.EvictionNow))
		}},
		"it is to be restored":                                         {cached: inR1.Obj(), claim: restored, want: "r2"},
		"somebody has written it meanwhile":                            {cached: inR1.Obj(), conflict: true, want: "r2"},
		"something may have been made, and the namespace is there":     {cached: inR1.Obj(), claim: witnessed, holds: sets.New("web"), want: "r2", wantAgain: dispatch.HeldPeriod},
		"something may have been made, and others are there":           {cached: inR1.Obj(), claim: witnessed, holds: sets.New("other")},
		"something may have been made, and it was asked before":        {cached: inR1.Obj(), claim: witnessed, holds: sets.New("other"), asked: time.Second, want: "r2", wantAgain: dispatch.HeldPeriod - time.Second},
		"all that the namespace has there leaves":                      {cached: leaves},
		"something may have been made, and it does not answer":         {cached: inR1.Obj(), claim: witnessed, want: "r2", wantAgain: dispatch.HeldPeriod},
		"something may have been made, and it is lost":                 {cached: inR1.Obj(), claim: witnessed, lost: true, holds: sets.New("other"), want: "r2", wantAgain: dispatch.HeldPeriod},
		"something may have been made, and it has left just now":       {cached: inR1.Obj(), claim: witnessed, left: time.Minute, want: "r2", wantAgain: dispatch.GonePatience - time.Minute},
		"something may have been made, and it has left":                {cached: inR1.Obj(), claim: witnessed, left: time.Hour},
		"something may have been made, and the cache says it has left": {cached: inR1.Obj(), claim: witnessed, left: time.Hour, stored: true, want: "r2", wantAgain: dispatch.HeldPeriod},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			change := tc.claim
			if change == nil {
				change = func(*corev1.PersistentVolumeClaim) {}
			}
			api := builders.Clientset(schedulingtest.HomelessClaim("data", schedulingtest.WithHome("r2"), change))
			if tc.conflict {
				api.PrependReactor("patch", "persistentvolumeclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, apierrors.NewConflict(corev1.Resource("persistentvolumeclaims"), "data", errors.New("changed"))
				})
			}
			factory := informers.NewSharedInformerFactory(api, 0)
			recorder := events.NewFakeRecorder(9)
			clock := testingclock.NewFakePassiveClock(schedulingtest.EvictionNow)
			cached, live := builders.Client(schedulingtest.MetaScheme(t)), builders.Client(schedulingtest.MetaScheme(t))
			if tc.cached != nil {
				cached.WithObjects(tc.cached)
				live.WithObjects(cmp.Or(tc.live, tc.cached))
			}
			if tc.stored {
				live.WithObjects(st.MakeNode().Name("r2").Obj())
			}
			pool := &schedulingtest.VirtualNodes{Nodes: map[string]*corev1.Node{}, Left: map[string]time.Time{}, Began: time.Now()}
			r := &HomeReleaser{
				Key: "tenant", API: api, Claims: factory.Core().V1().PersistentVolumeClaims().Lister(), Store: placements.NewStore(cached.Build(), live.Build()),
				Pool: pool, Recorder: recorder, Clock: clock,
				Held: &dispatch.HeldNamespaces{Clock: clock, Read: func(_ context.Context, superCluster string) (sets.Set[string], error) {
					require.Equal(t, "r2", superCluster)
					require.False(t, tc.lost, "it is asked")
					if tc.holds == nil {
						return nil, errors.New("silence")
					}
					return tc.holds, nil
				}},
			}
			if tc.left > 0 {
				pool.Left["r2"] = schedulingtest.EvictionNow.Add(-tc.left)
			} else {
				ready := corev1.ConditionTrue
				if tc.lost {
					ready = corev1.ConditionUnknown
				}
				pool.Nodes["r2"] = st.MakeNode().Name("r2").Condition(corev1.NodeReady, ready, "", "").Obj()
			}
			factory.StartWithContext(t.Context())
			factory.WaitForCacheSync(t.Context().Done())
			if tc.asked > 0 {
				r.Held.In(t.Context(), pool.Nodes["r2"])
				clock.SetTime(schedulingtest.EvictionNow.Add(tc.asked))
			}
			result, err := r.Reconcile(t.Context(), dispatch.Request{Concern: dispatch.ConcernClaimHome, Namespace: "other"})
			require.NoError(t, err)
			require.Zero(t, result)
			result, err = r.Reconcile(t.Context(), dispatch.Request{Concern: dispatch.ConcernClaimHome, Namespace: "web"})
			require.NoError(t, err)
			require.Equal(t, tc.wantAgain, result.RequeueAfter)
			if tc.asked > 0 {
				clock.SetTime(clock.Now().Add(result.RequeueAfter))
				result, err = r.Reconcile(t.Context(), dispatch.Request{Concern: dispatch.ConcernClaimHome})
				require.NoError(t, err)
				require.Zero(t, result)
				tc.want = ""
			}
			require.Equal(t, tc.wantAgain == 0 || tc.asked > 0, len(r.seen) == 0)
			r.seen = map[string]seenPlacement{"gone": {}}
			_, err = r.Reconcile(t.Context(), dispatch.Request{Concern: dispatch.ConcernClaimHome, Namespace: "gone"})
			require.NoError(t, err)
			require.Empty(t, r.seen)
			claim, err := api.CoreV1().PersistentVolumeClaims("web").Get(t.Context(), "data", metav1.GetOptions{})
			require.NoError(t, err)
			require.Equal(t, tc.want, claimhome.Of(claim))
			if tc.want != "" {
				require.Empty(t, recorder.Events)
				return
			}
			require.NotContains(t, claim.Finalizers, "claim.tenancy.x-k8s.io/r2")
			require.Equal(t, "Warning SuperClusterNotPlaced Namespace web leaves super cluster r2, where the claim has no volume yet: it gets another home", <-recorder.Events)
		})
	}
}
