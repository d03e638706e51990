package podscheduler

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	cachetesting "k8s.io/client-go/tools/cache/testing"
	podgroupv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/test/builders/schedulingtest"
)

// TestGangsWithoutTheCRD: a control plane that serves no PodGroups has a pod scheduler, and says so.
func TestGangsWithoutTheCRD(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		c := newTenant(t)
		c.cluster("r1")
		c.place("web", "r1", "300m")
		c.create("web", "plain", "100m")
		c.wantIn("web", "plain", "r1")
		c.create("web", "mpi-1", "100m", memberOf("mpi"))
		c.wantRefused("web", "mpi-1", "gang mpi: there is no PodGroup mpi: this control plane does not serve scheduling.x-k8s.io/v1alpha1, for lack of the CRD or of this version of it")
	})
}

// TestPodGroupsServedLater: PodGroups are found once the control plane serves them.
func TestPodGroupsServedLater(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		source := cachetesting.NewFakeControllerSource()
		var served atomic.Bool
		all := listWatchOf(source)
		list := all.ListWithContextFunc
		all.ListWithContextFunc = func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			if !served.Load() {
				return nil, apierrors.NewNotFound(podgroupv1alpha1.Resource("podgroups"), "")
			}
			return list(ctx, options)
		}
		g := newPodGroups(all)
		told := make(chan types.NamespacedName, 10)
		g.OnChange(func(group types.NamespacedName) { told <- group })
		ctx, cancel := context.WithCancel(t.Context())
		stopped := g.start(ctx, nil, func(err error) { t.Error(err) })
		name := types.NamespacedName{Namespace: "web", Name: "mpi"}
		require.Eventually(t, g.informer.HasSynced, patience, time.Millisecond)
		_, err := g.Get(name)
		require.ErrorContains(t, err, "for lack of the CRD")
		<-time.After(10 * time.Minute) // however long that is, it is found within a minute or so
		source.Add(&podgroupv1alpha1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "mpi"}})
		served.Store(true)
		since := time.Now()
		require.Equal(t, name, <-told)
		require.Less(t, time.Since(since), engage.UnservedRetry+10*time.Second)
		_, err = g.Get(name)
		require.NoError(t, err)
		_, err = g.Get(types.NamespacedName{Namespace: "web", Name: "other"})
		require.EqualError(t, err, "there is no PodGroup other")
		cancel()
		<-stopped
		source.Shutdown()
	})
}

// TestPodGroupsUnserved: what the API server does not give is told in its own words.
func TestPodGroupsUnserved(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"no CRD":    {err: apierrors.NewNotFound(podgroupv1alpha1.Resource("podgroups"), ""), want: "for lack of the CRD"},
		"forbidden": {err: apierrors.NewForbidden(podgroupv1alpha1.Resource("podgroups"), "", schedulingtest.ErrDown), want: "vc-scheduler may not list them"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newPodGroups(&cache.ListWatch{ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) { return nil, tc.err }})
			_, err := g.source.ListWithContext(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			_, err = g.Get(types.NamespacedName{Namespace: "web", Name: "mpi"})
			require.ErrorContains(t, err, tc.want)
		})
	}
}
