package losses

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/kubescheduler"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/simulation"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/manifests/profiles"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/schedulingtest"
)

// unplaced are so many namespaces that have a core each without room elsewhere.
func unplaced(count int, change ...func(*simulation.Unplaced)) (all []simulation.Unplaced) {
	for i := range count {
		one := simulation.Unplaced{Namespace: types.NamespacedName{Namespace: "t", Name: fmt.Sprintf("n%d", i)}, Amounts: slice.Of(schedulingtest.Cores("1")), Why: "full"}
		for _, f := range change {
			f(&one)
		}
		all = append(all, one)
	}
	return all
}

func TestConditionOf(t *testing.T) {
	t.Parallel()
	manyResources := func(u *simulation.Unplaced) {
		u.Amounts = slice.Amounts{"a/a": 1, "b/b": 1, "c/c": 1, "d/d": 1, "e/e": 1, "f/f": 1}
	}
	for name, tc := range map[string]struct {
		loss simulation.Loss
		want string
	}{
		"nothing is there": {want: "True FitsElsewhere: What namespaces have here has room in the other super clusters"},
		"all fits":         {loss: simulation.Loss{Namespaces: 12}, want: "True FitsElsewhere: What namespaces have here has room in the other super clusters"},
		"one does not": {
			loss: simulation.Loss{Namespaces: 12, Unplaced: unplaced(1)},
			want: "False NoRoomElsewhere: If it were lost, 1 of 12 namespaces would wait for cpu=1: t/n0 (cpu=1: full)",
		},
		"as many as are named": {
			loss: simulation.Loss{Namespaces: 5, Unplaced: unplaced(5)},
			want: "False NoRoomElsewhere: If it were lost, 5 of 5 namespaces would wait for cpu=5: t/n0 (cpu=1: full), t/n1 (cpu=1: full), t/n2 (cpu=1: full), t/n3 (cpu=1: full), t/n4 (cpu=1: full)",
		},
		"more": {
			loss: simulation.Loss{Namespaces: 1000, Unplaced: unplaced(900)},
			want: "False NoRoomElsewhere: If it were lost, 900 of 1000 namespaces would wait for cpu=900: t/n0 (cpu=1: full), t/n1 (cpu=1: full), t/n2 (cpu=1: full), t/n3 (cpu=1: full), t/n4 (cpu=1: full) and 895 others",
		},
		"many resources": {
			loss: simulation.Loss{Namespaces: 1, Unplaced: unplaced(1, manyResources)},
			want: "False NoRoomElsewhere: If it were lost, 1 of 1 namespaces would wait for a/a=1,b/b=1,c/c=1,d/d=1 and 2 other resources: t/n0 (a/a=1,b/b=1,c/c=1,d/d=1 and 2 other resources: full)",
		},
		"a long reason": {
			loss: simulation.Loss{Namespaces: 1, Unplaced: unplaced(1, func(u *simulation.Unplaced) { u.Why = strings.Repeat("w", 1000) })},
			want: "False NoRoomElsewhere: If it were lost, 1 of 1 namespaces would wait for cpu=1: t/n0 (cpu=1: " + strings.Repeat("w", maxWhy-3) + "...)",
		},
		"not known": {
			loss: simulation.Loss{Namespaces: 3, Unplaced: unplaced(1), Err: errors.New("no decision within 2m0s")},
			want: "Unknown NotSimulated: The loss of the super cluster could not be simulated: no decision within 2m0s",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			condition := conditionOf(&tc.loss)
			require.Equal(t, corev1.NodeConditionType("Replaceable"), condition.Type)
			require.Equal(t, tc.want, fmt.Sprintf("%s %s: %s", condition.Status, condition.Reason, condition.Message))
		})
	}
}

// bed is a pool of r1 and r2, of four cores each, and a Simulator.
type bed struct {
	*testing.T
	client.WithWatch
	nodes []*corev1.Node
	said  []string
	*Simulator
}

func newBed(t *testing.T, clock clock.Clock, objects ...client.Object) *bed {
	t.Helper()
	config, err := kubescheduler.LoadConfig("", profiles.NamespaceScheduler)
	require.NoError(t, err)
	b := &bed{T: t, WithWatch: schedulingtest.NewMetaCluster(t, objects...).Client}
	b.nodes = []*corev1.Node{builders.VirtualNode("r1", "cpu", "4").Obj(), builders.VirtualNode("r2", "cpu", "4").Obj()}
	b.Simulator = &Simulator{Config: config, Clock: clock, Tell: func(superCluster string, condition *corev1.NodeCondition) {
		if condition == nil {
			b.said = append(b.said, superCluster+" is gone")
			return
		}
		b.said = append(b.said, fmt.Sprintf("%s %s %s", superCluster, condition.Status, condition.Reason))
	}}
	return b
}

// round is one round, and compares what it told.
func (b *bed) round(want ...string) {
	b.Helper()
	b.said = nil
	b.Reader = schedulingtest.PoolReader{Reader: b.WithWatch, Nodes: b.nodes}
	_, err := b.Round(schedulertest.Context(b.T))
	require.NoError(b, err)
	require.Empty(b, cmp.Diff(want, b.said))
}

// idle is a round that simulates nothing: with such a configuration it could not.
func (b *bed) idle() {
	b.Helper()
	config := b.Config
	b.Config = &schedulerconfig.KubeSchedulerConfiguration{}
	b.round()
	b.Config = config
}

func web(cpu string) *schedulerv1alpha1.NamespacePlacement {
	return builders.Placement("acme", "web").UID("web").Slice("cpu", "1").Quota("cpu", cpu).Held("r1", 1, "cpu", cpu).Obj()
}

// passing is a clock that nobody has to step: rests end at once.
type passing struct{ *testingclock.FakeClock }

// NewTimer implements clock.Clock.
func (p passing) NewTimer(time.Duration) clock.Timer { return p.FakeClock.NewTimer(0) }

func TestRound(t *testing.T) {
	t.Parallel()
	clock := passing{testingclock.NewFakeClock(time.Unix(1000000000, 0))}
	b := newBed(t, clock, web("2"))
	b.round("r1 True FitsElsewhere", "r2 True FitsElsewhere")
	b.idle()

	b.nodes[1] = builders.VirtualNode("r2", "cpu", "1").Obj()
	b.round("r1 False NoRoomElsewhere")
	b.idle()

	b.nodes[1].Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Message: "a heartbeat"}, {Type: "Replaceable", Status: "True"}}
	b.idle() // what is told, and a heartbeat, change nothing

	more := builders.Placement("acme", "more").UID("more").Slice("cpu", "1").Quota("cpu", "2").Held("r1", 1, "cpu", "2").Obj()
	require.NoError(t, b.Create(t.Context(), more))
	b.round() // figures alone, so soon
	clock.Step(messagePeriod)
	b.round("r1 False NoRoomElsewhere")
	require.NoError(t, b.Delete(t.Context(), more))
	b.round()

	b.nodes = b.nodes[:1]
	b.round("r2 is gone")
}

// TestUntil: all rounds together take a fiftieth of the time.
func TestUntil(t *testing.T) {
	t.Parallel()
	require.Equal(t, 4*time.Minute, until(5*time.Minute, time.Second, time.Minute))
	require.Equal(t, 23*time.Minute, until(5*time.Minute, 30*time.Second, 2*time.Minute))
}

// TestACacheThatCannotBeRead ends a round, and what was told stands.
func TestACacheThatCannotBeRead(t *testing.T) {
	t.Parallel()
	b := newBed(t, clock.RealClock{})
	b.Reader = interceptor.NewClient(b.WithWatch, interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return errors.New("not started")
	}})
	_, err := b.Round(schedulertest.Context(t))
	require.EqualError(t, err, "listing virtual Nodes: not started")
	require.Empty(t, b.said)
}

// TestStart: rounds are Period apart, the first one is earlier, and all ends with the context, also in a rest.
func TestStart(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		lists, began := []time.Duration{}, time.Now()
		b := newBed(t, clock.RealClock{})
		b.Reader = interceptor.NewClient(b.WithWatch, interceptor.Funcs{List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
			if _, isNodes := list.(*corev1.NodeList); isNodes {
				lists = append(lists, time.Since(began))
			}
			return nil
		}})
		ctx, cancel := context.WithCancel(schedulertest.Context(t))
		ended := make(chan error, 1)
		go func() { ended <- b.Start(ctx) }()
		<-time.After(12 * time.Minute)
		synctest.Wait()
		require.Equal(t, []time.Duration{time.Minute, 6 * time.Minute, 11 * time.Minute}, lists)
		cancel()
		require.NoError(t, <-ended)
	})
}
