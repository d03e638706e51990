package placer

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/tools/cache"

	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/view"
)

// TestWhatWaitsUsesASuperClusterAtOnce: what was refused and is in kube-scheduler's backoff, of ten minutes here, is
// tried as soon as a super cluster takes slices that took none. The ten minutes are those of a bubble, and so is the
// patience of the test.
func TestWhatWaitsUsesASuperClusterAtOnce(t *testing.T) {
	cordoned := func(node *corev1.Node) { node.Spec.Unschedulable = true }
	notReady := func(node *corev1.Node) {
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}
	}
	for name, before := range map[string]func(p *pool){
		"added":              func(*pool) {},
		"uncordoned":         func(p *pool) { p.cluster("r2", "4", "8Gi", cordoned) },
		"ready":              func(p *pool) { p.cluster("r2", "4", "8Gi", notReady) },
		"with a first offer": func(p *pool) { p.cluster("r2", "0", "0") },
	} {
		t.Run(name, func(t *testing.T) {
			schedulertest.Bubble(t, func(t *testing.T) {
				p := newPool(t, func(p *pool) {
					p.placer.Config.PodInitialBackoffSeconds, p.placer.Config.PodMaxBackoffSeconds = 600, 600
				})
				p.cluster("r1", "150m", "8Gi")
				before(p)
				p.ask("one", "300m", "300Mi")     // refused at once
				p.ask("another", "200m", "200Mi") // refused after a slice was held and released
				p.wantRefused("one", "super clusters")
				p.wantRefused("another", "super clusters")
				synctest.Wait() // both are in backoff
				p.cluster("r2", "4", "8Gi")
				p.wantPlaced("one", `{"r2":3}`)
				p.wantPlaced("another", `{"r1":1,"r2":1}`)
			})
		})
	}
}

// TestASliceInFlightIsWoken: the slice of a gang that is in no queue while a super cluster comes, because its refusal
// is being told, is tried again at once all the same.
func TestASliceInFlightIsWoken(t *testing.T) {
	told, comes := make(chan struct{}), make(chan struct{})
	tell := sync.OnceFunc(func() { close(told) })
	p := newPool(t, func(p *pool) {
		p.placer.Config.PodInitialBackoffSeconds, p.placer.Config.PodMaxBackoffSeconds = 600, 600
		p.refusing = func(string) {
			tell()
			<-comes
		}
	})
	p.cluster("r1", "150m", "8Gi")
	p.ask("one", "300m", "300Mi")
	schedulertest.Receive(t, told)
	before := p.placer.woken.Load()
	p.cluster("r2", "4", "8Gi")
	require.Eventually(t, func() bool { return p.placer.woken.Load() != before }, patience, time.Millisecond, "what waits is woken")
	close(comes)
	p.wantPlaced("one", `{"r1":1,"r2":2}`)
}

func TestTakesSlices(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*corev1.Node)
		want   bool
	}{
		"as it is": {change: func(*corev1.Node) {}, want: true},
		"tainted, as good as it gets": {
			change: tainted("slow", corev1.TaintEffectPreferNoSchedule), want: true,
		},
		"tainted":  {change: tainted("maintenance", corev1.TaintEffectNoSchedule)},
		"drained":  {change: tainted("maintenance", corev1.TaintEffectNoExecute)},
		"cordoned": {change: func(node *corev1.Node) { node.Spec.Unschedulable = true }},
		"nothing but pods": {change: func(node *corev1.Node) {
			node.Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("110")}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := view.NamespaceNode(virtualNode("r1", "1", "1Gi", tc.change))
			require.Equal(t, tc.want, takesSlices(node))
			woken := 0
			handler := wakingHandler{cache.ResourceEventHandlerFuncs{}, func() { woken++ }}
			handler.OnAdd(node, true)
			require.Zero(t, woken, "at the start all is tried anyway")
			handler.OnUpdate(node, node)
			require.Zero(t, woken)
			handler.OnAdd(node, false)
			require.Equal(t, tc.want, woken == 1)
		})
	}
}
