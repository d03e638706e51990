package claims

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/schedulingtest"
)

// TestClaimReleaser: a claim, or snapshot, that the tenant deletes waits for super clusters of the pool that may hold
// anything of the tenant, and for others no longer than dispatch.GonePatience.
func TestClaimReleaser(t *testing.T) {
	t.Parallel()
	const r1, r2, others = "claim.tenancy.x-k8s.io/r1", "claim.tenancy.x-k8s.io/r2", "kubernetes.io/pvc-protection"
	for _, tc := range []struct {
		name string
		// deleted is since when the tenant deletes the claim, 0 for not.
		deleted    time.Duration
		finalizers []string
		// cached and stored are the virtual Nodes.
		cached, stored []string
		// empty are super clusters that hold nothing of the tenant, and silent those that do not say what they hold.
		empty, silent []string
		// lost are super clusters whose virtual Nodes are not Ready. Nobody asks them.
		lost []string
		// left is since when the virtual Node r1 is gone, 0 for longer than anybody has looked.
		left      time.Duration
		want      []string
		wantAgain time.Duration
	}{
		{name: "not deleted", finalizers: []string{r1}, want: []string{r1}},
		{name: "of a super cluster of the pool", deleted: time.Hour, finalizers: []string{r1}, cached: []string{"r1"}, stored: []string{"r1"}, want: []string{r1}, wantAgain: dispatch.GonePatience},
		{
			name: "of a super cluster of the pool that does not answer", deleted: time.Hour, finalizers: []string{r1}, cached: []string{"r1"}, stored: []string{"r1"}, silent: []string{"r1"},
			want: []string{r1}, wantAgain: dispatch.GonePatience,
		},
		{
			name: "of a super cluster of the pool that is lost", deleted: time.Hour, finalizers: []string{r1}, cached: []string{"r1"}, stored: []string{"r1"}, empty: []string{"r1"}, lost: []string{"r1"},
			want: []string{r1}, wantAgain: dispatch.GonePatience,
		},
		{name: "of a super cluster of the pool that holds nothing", deleted: time.Hour, finalizers: []string{others, r1}, cached: []string{"r1"}, stored: []string{"r1"}, empty: []string{"r1"}, want: []string{others}},
		{
			name: "of one that holds nothing, just now", deleted: time.Minute, finalizers: []string{r1}, cached: []string{"r1"}, stored: []string{"r1"}, empty: []string{"r1"},
			want: []string{r1}, wantAgain: dispatch.GonePatience - time.Minute,
		},
		{name: "of one that the cache does not show", deleted: time.Hour, finalizers: []string{r1}, stored: []string{"r1"}, want: []string{r1}},
		{name: "of one that has left, just now", deleted: time.Minute, finalizers: []string{r1}, want: []string{r1}, wantAgain: dispatch.GonePatience - time.Minute},
		{
			name: "deleted long before, of one that has left just now", deleted: time.Hour, left: time.Minute, finalizers: []string{r1},
			want: []string{r1}, wantAgain: dispatch.GonePatience - time.Minute,
		},
		{
			name: "deleted long before, of one that has left just now, and one that left before", deleted: time.Hour, left: time.Minute, finalizers: []string{r1, r2},
			want: []string{r1}, wantAgain: dispatch.GonePatience - time.Minute,
		},
		{name: "deleted long before, of one that has left, too", deleted: time.Hour, left: 30 * time.Minute, finalizers: []string{others, r1}, want: []string{others}},
		{name: "of one that has left", deleted: time.Hour, finalizers: []string{others, r1}, want: []string{others}},
		{
			name: "of one that has left, and one of the pool", deleted: time.Hour, finalizers: []string{r1, r2}, cached: []string{"r2"}, stored: []string{"r2"},
			want: []string{r2}, wantAgain: dispatch.GonePatience,
		},
		{name: "of nobody's", deleted: time.Hour, finalizers: []string{others}, want: []string{others}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			api := builders.Clientset(schedulingtest.HomelessClaim("data", func(claim *corev1.PersistentVolumeClaim) {
				claim.Finalizers = tc.finalizers
				if tc.deleted > 0 {
					since := metav1.NewTime(schedulingtest.EvictionNow.Add(-tc.deleted))
					claim.DeletionTimestamp = &since
				}
			}))
			snapshot := &metav1.PartialObjectMetadata{}
			snapshot.SetGroupVersionKind(schema.GroupVersionKind{Group: "snapshot.storage.k8s.io", Version: "v1", Kind: "VolumeSnapshot"})
			snapshot.SetNamespace("web")
			snapshot.SetName("data")
			snapshot.SetFinalizers(tc.finalizers)
			if tc.deleted > 0 {
				since := metav1.NewTime(schedulingtest.EvictionNow.Add(-tc.deleted))
				snapshot.SetDeletionTimestamp(&since)
			}
			resource := schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshots"}
			metadata := metadatafake.NewTestScheme()
			require.NoError(t, metav1.AddMetaToScheme(metadata))
			snapshots := metadatafake.NewSimpleMetadataClient(metadata, snapshot).Resource(resource)
			factory := informers.NewSharedInformerFactory(api, 0)
			meta := builders.Client(schedulingtest.MetaScheme(t))
			for _, id := range tc.stored {
				meta.WithObjects(st.MakeNode().Name(id).Obj())
			}
			pool := &schedulingtest.VirtualNodes{Nodes: map[string]*corev1.Node{}, Left: map[string]time.Time{}, Began: schedulingtest.EvictionNow.Add(-24 * time.Hour)}
			r := &Releaser{
				API: api, Claims: factory.Core().V1().PersistentVolumeClaims().Lister(), Pool: pool, Meta: meta.Build(),
				Clock: testingclock.NewFakePassiveClock(schedulingtest.EvictionNow), Snapshots: snapshots,
			}
			asked := map[string]int{}
			r.Held = &dispatch.HeldNamespaces{Clock: r.Clock, Read: func(_ context.Context, superCluster string) (sets.Set[string], error) {
				switch asked[superCluster]++; {
				case slices.Contains(tc.silent, superCluster):
					return nil, errors.New("silence")
				case slices.Contains(tc.empty, superCluster):
					return sets.New[string](), nil
				}
				return sets.New("other"), nil
			}}
			if tc.left > 0 {
				pool.Left["r1"] = schedulingtest.EvictionNow.Add(-tc.left)
			}
			for _, id := range tc.cached {
				ready := corev1.ConditionTrue
				if slices.Contains(tc.lost, id) {
					ready = corev1.ConditionUnknown
				}
				pool.Nodes[id] = st.MakeNode().Name(id).Condition(corev1.NodeReady, ready, "", "").Obj()
			}
			factory.StartWithContext(t.Context())
			factory.WaitForCacheSync(t.Context().Done())
			for _, item := range []dispatch.Request{{Concern: dispatch.ConcernClaimRelease}, {Concern: dispatch.ConcernClaimRelease, Namespace: "web", Name: "data"}, {Concern: dispatch.ConcernClaimRelease, Namespace: "web", Name: "gone"}} {
				result, err := r.Reconcile(t.Context(), item)
				require.NoError(t, err)
				switch item.Name {
				case "":
					require.Equal(t, dispatch.Sooner(snapshotsPeriod, cmp.Or(tc.wantAgain, snapshotsPeriod)), result.RequeueAfter)
				case "data":
					require.Equal(t, tc.wantAgain, result.RequeueAfter)
				}
			}
			claim, err := api.CoreV1().PersistentVolumeClaims("web").Get(t.Context(), "data", metav1.GetOptions{})
			require.NoError(t, err)
			require.Equal(t, tc.want, claim.Finalizers)
			snapshot, err = snapshots.Namespace("web").Get(t.Context(), "data", metav1.GetOptions{})
			require.NoError(t, err)
			require.Equal(t, tc.want, snapshot.GetFinalizers())
			for superCluster, times := range asked {
				require.Equal(t, 1, times, "%s is asked once for all claims", superCluster)
				require.NotContains(t, tc.lost, superCluster)
			}
		})
	}
}

// TestClaimReleaserHasAnOrder: claims are released in the order of their names.
func TestClaimReleaserHasAnOrder(t *testing.T) {
	t.Parallel()
	api := builders.Clientset()
	factory := informers.NewSharedInformerFactory(api, 0)
	claims := factory.Core().V1().PersistentVolumeClaims()
	names := strings.Split("abcdefghijkl", "")
	since := metav1.NewTime(schedulingtest.EvictionNow.Add(-time.Hour))
	for _, name := range names {
		require.NoError(t, claims.Informer().GetStore().Add(schedulingtest.HomelessClaim(name, func(claim *corev1.PersistentVolumeClaim) {
			claim.DeletionTimestamp, claim.Finalizers = &since, []string{"claim.tenancy.x-k8s.io/r1"}
		})))
	}
	r := &Releaser{
		API: api, Claims: claims.Lister(), Pool: &schedulingtest.VirtualNodes{Began: schedulingtest.EvictionNow.Add(-24 * time.Hour)}, Clock: testingclock.NewFakePassiveClock(schedulingtest.EvictionNow),
		Meta: builders.Client(schedulingtest.MetaScheme(t)).Build(),
	}
	_, err := r.Reconcile(t.Context(), dispatch.Request{Concern: dispatch.ConcernClaimRelease})
	require.NoError(t, err)
	var released []string
	for _, action := range api.Actions() {
		if patch, isPatch := action.(clienttesting.PatchAction); isPatch {
			released = append(released, patch.GetName())
		}
	}
	require.Equal(t, names, released)
}
