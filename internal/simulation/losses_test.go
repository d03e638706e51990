package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/clusterchoice"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/simulation"
	"github.com/superpool/superpool/test/builders"
)

type (
	nodes      = []*corev1.Node
	placements = []*schedulerv1alpha1.NamespacePlacement
)

// offering is a virtual Node with so many cores.
func offering(name, cpu string, change ...func(*corev1.Node)) *corev1.Node {
	node := builders.VirtualNode(name, "cpu", cpu).Label("kubernetes.io/hostname", name).Obj()
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for _, f := range change {
		f(node)
	}
	return node
}

func cordoned(node *corev1.Node) { node.Spec.Unschedulable = true }

func drained(node *corev1.Node) {
	node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "maintenance", Effect: corev1.TaintEffectNoExecute})
}

func silent(node *corev1.Node) {
	node.Status.Conditions[0] = corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "SuperClusterUnreachable"}
}

// holding is namespace web of a tenant, with as many slices of one core as it asks for, or more of these.
func holding(tenant, quota string, change func(*schedulerv1alpha1.NamespacePlacement), parts ...schedulerv1alpha1.ClusterPlacement) *schedulerv1alpha1.NamespacePlacement {
	np := builders.Placement(tenant, "web").UID(types.UID(tenant)).Slice("cpu", "1").Quota("cpu", quota).Placements(parts...).Obj()
	if change != nil {
		change(np)
	}
	return np
}

func cores(cluster string, count int32) schedulerv1alpha1.ClusterPlacement {
	return builders.HeldSlices(cluster, count, "cpu", fmt.Sprint(count))
}

// leaving is a part of which all leaves for a reason.
func leaving(part schedulerv1alpha1.ClusterPlacement, reason schedulerv1alpha1.LeavingReason) schedulerv1alpha1.ClusterPlacement {
	part.Leaving = &schedulerv1alpha1.Leaving{Reserved: part.Reserved, Reason: reason}
	part.Slices = 0
	return part
}

func displaced(cpu string) func(*schedulerv1alpha1.NamespacePlacement) {
	return func(np *schedulerv1alpha1.NamespacePlacement) {
		np.Status.Displaced = &schedulerv1alpha1.Displaced{}
		if cpu != "0" {
			np.Status.Displaced.Resources = builders.Resources("cpu", cpu)
		}
	}
}

// lossesOf returns one line for each super cluster.
func lossesOf(t *testing.T, pool *simulation.Pool) (got []string) {
	t.Helper()
	require.NoError(t, simulation.Losses(schedulertest.Context(t), profilesOf(t), pool, func(loss simulation.Loss) error {
		require.NoError(t, loss.Err)
		line := fmt.Sprintf("%s: %d", loss.SuperCluster, loss.Namespaces)
		for _, u := range loss.Unplaced {
			line += fmt.Sprintf(", %s lacks %s", u.Namespace, u.Amounts)
			require.NotEmpty(t, u.Why)
		}
		got = append(got, line)
		return nil
	}))
	return got
}

func TestLosses(t *testing.T) {
	three := nodes{offering("r1", "4"), offering("r2", "4"), offering("r3", "4")}
	for name, tc := range map[string]struct {
		nodes nodes
		of    placements
		want  []string
	}{
		"an empty pool": {},
		"nothing is placed": {
			nodes: three, of: placements{holding("a", "9", nil)}, want: []string{"r1: 0", "r2: 0", "r3: 0"},
		},
		"all fit, each beside the other two": {
			nodes: three, of: placements{holding("a", "4", nil, cores("r1", 2), cores("r2", 2)), holding("b", "4", nil, cores("r2", 2), cores("r3", 2))},
			want: []string{"r1: 1", "r2: 2", "r3: 1"},
		},
		"what one loss takes is there for the next": {
			nodes: nodes{offering("r1", "2"), offering("r2", "2"), offering("r3", "2")},
			of:    placements{holding("a", "2", nil, cores("r1", 2)), holding("b", "2", nil, cores("r2", 2))},
			want:  []string{"r1: 1", "r2: 1", "r3: 0"},
		},
		"the larger one has no room, the smaller one has": {
			nodes: three, of: placements{holding("a", "3", nil, cores("r1", 3)), holding("b", "1", nil, cores("r1", 1)), holding("c", "4", nil, cores("r2", 4)), holding("d", "2", nil, cores("r3", 2))},
			want: []string{"r1: 2, a/web lacks cpu=3", "r2: 1, c/web lacks cpu=4", "r3: 1, d/web lacks cpu=2"},
		},
		"one super cluster alone": {
			nodes: nodes{offering("r1", "4")}, of: placements{holding("a", "1", nil, cores("r1", 1))}, want: []string{"r1: 1, a/web lacks cpu=1"},
		},
		"the others are cordoned, drained and silent": {
			nodes: nodes{offering("r1", "4"), offering("r2", "4", cordoned), offering("r3", "4", drained), offering("r4", "4", silent)},
			of:    placements{holding("a", "1", nil, cores("r1", 1))},
			want:  []string{"r1: 1, a/web lacks cpu=1", "r2: 0", "r3: 0", "r4: 0"},
		},
		"what waits already counts for nothing": {
			nodes: nodes{offering("r1", "4"), offering("r2", "4")}, of: placements{holding("a", "9", nil, cores("r1", 1)), holding("b", "20", nil)}, want: []string{"r1: 1", "r2: 0"},
		},
		"it is lost already: what is elsewhere is, what waits does": {
			nodes: nodes{offering("r1", "4", silent), offering("r2", "2")},
			of: placements{
				holding("a", "1", displaced("0"), leaving(cores("r1", 1), schedulerv1alpha1.LeavingLost), cores("r2", 1)),
				holding("b", "2", displaced("2"), leaving(cores("r1", 2), schedulerv1alpha1.LeavingLost)),
			},
			want: []string{"r1: 2, b/web lacks cpu=2", "r2: 1, a/web lacks cpu=1"},
		},
		"what leaves because less is wanted": {
			nodes: nodes{offering("r1", "4"), offering("r2", "1")},
			of:    placements{holding("a", "1", nil, leaving(cores("r1", 3), schedulerv1alpha1.LeavingShrunk), cores("r2", 1))},
			want:  []string{"r1: 0", "r2: 1"},
		},
		"paused and deleted": {
			nodes: nodes{offering("r1", "4")},
			of: placements{
				holding("a", "1", func(np *schedulerv1alpha1.NamespacePlacement) { np.Spec.Paused = true }, cores("r1", 1)),
				holding("b", "1", func(np *schedulerv1alpha1.NamespacePlacement) {
					np.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
				}, cores("r1", 1)),
			},
			want: []string{"r1: 1"},
		},
		"a choice that another one meets, and is full": {
			nodes: nodes{offering("r1", "4", labelled("eu")), offering("r2", "1", labelled("eu")), offering("r3", "9", labelled("us"))},
			of:    placements{holding("a", "2", choosing("eu"), cores("r1", 2))},
			want:  []string{"r1: 1, a/web lacks cpu=2", "r2: 0", "r3: 0"},
		},
		"a choice that no other one meets holds no more": {
			nodes: nodes{offering("r1", "4", labelled("eu")), offering("r2", "4", labelled("us"))},
			of:    placements{holding("a", "2", choosing("eu"), cores("r1", 2))}, want: []string{"r1: 1", "r2: 0"},
		},
		"a profile that is gone": {
			nodes: nodes{offering("r1", "4"), offering("r2", "4")},
			of: placements{
				holding("a", "1", func(np *schedulerv1alpha1.NamespacePlacement) { np.Spec.SchedulerName = "gone" }, cores("r1", 1)),
				holding("b", "1", func(np *schedulerv1alpha1.NamespacePlacement) { np.Spec.SchedulerName = "pack" }, cores("r1", 1)),
			},
			want: []string{"r1: 2, a/web lacks cpu=1", "r2: 0"},
		},
		"placed in one that has no virtual Node any more": {
			nodes: nodes{offering("r1", "4")}, of: placements{holding("a", "2", nil, cores("r0", 2))}, want: []string{"r1: 0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pool := &simulation.Pool{Nodes: tc.nodes, Placements: tc.of}
			var before placements
			for _, np := range tc.of {
				before = append(before, np.DeepCopy())
			}
			for range 2 { // equal inputs, equal outputs
				require.Empty(t, cmp.Diff(tc.want, lossesOf(t, pool)))
			}
			require.Empty(t, cmp.Diff(before, tc.of), "what is handed in is not changed")
		})
	}
}

func labelled(region string) func(*corev1.Node) {
	return func(node *corev1.Node) { node.Labels["region"] = region }
}

func choosing(region string) func(*schedulerv1alpha1.NamespacePlacement) {
	return func(np *schedulerv1alpha1.NamespacePlacement) {
		np.Spec.ClusterChoice, _ = clusterchoice.Parse(fmt.Sprintf(`{"nodeSelector":{"region":%q}}`, region))
	}
}

// TestLossesEnd with who asked, and with who is told.
func TestLossesEnd(t *testing.T) {
	pool := &simulation.Pool{Nodes: nodes{offering("r1", "4"), offering("r2", "4")}, Placements: placements{holding("a", "1", nil, cores("r1", 1))}}
	ctx, cancel := context.WithCancel(schedulertest.Context(t))
	told := 0
	err := simulation.Losses(ctx, profilesOf(t), pool, func(simulation.Loss) error {
		told++
		cancel()
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 1, told)
	enough := errors.New("enough")
	require.ErrorIs(t, simulation.Losses(schedulertest.Context(t), profilesOf(t), pool, func(simulation.Loss) error { return enough }), enough)
}

// TestLossesWithoutScheduler are not known.
func TestLossesWithoutScheduler(t *testing.T) {
	pool := &simulation.Pool{Nodes: nodes{offering("r1", "4"), offering("r2", "4")}, Placements: placements{holding("a", "1", nil, cores("r1", 1))}}
	cfg := profilesOf(t)
	cfg.Profiles[0].Plugins.Filter.Enabled = append(cfg.Profiles[0].Plugins.Filter.Enabled, config.Plugin{Name: "Unheard"})
	var errs []error
	require.NoError(t, simulation.Losses(schedulertest.Context(t), cfg, pool, func(loss simulation.Loss) error {
		errs = append(errs, loss.Err)
		return nil
	}))
	require.Len(t, errs, 2)
	require.ErrorContains(t, errs[0], "Unheard")
	require.NoError(t, errs[1])
}

// BenchmarkLosses simulates the loss of each of so many super clusters, each namespace of two slices in as many of them
// as parts says. Half of what there is is free.
func BenchmarkLosses(b *testing.B) {
	for _, size := range []struct{ clusters, namespaces, parts int }{{10, 1000, 1}, {100, 1000, 1}, {100, 10000, 1}, {100, 10000, 2}} {
		b.Run(fmt.Sprintf("clusters=%d/tenants=%d/namespaces=%d/parts=%d", size.clusters, size.namespaces/10, size.namespaces, size.parts), func(b *testing.B) {
			pool := &simulation.Pool{}
			for i := range size.clusters {
				pool.Nodes = append(pool.Nodes, offering(fmt.Sprintf("r%03d", i), fmt.Sprint(4*size.namespaces/size.clusters)))
			}
			for i := range size.namespaces {
				np := builders.Placement(fmt.Sprintf("tenant-%04d", i/10), fmt.Sprintf("ns-%d", i%10)).UID(types.UID(fmt.Sprint(i))).Slice("cpu", "1").Quota("cpu", "2").Obj()
				for part := range size.parts {
					np.Status.Placements = append(np.Status.Placements, cores(fmt.Sprintf("r%03d", (i+part*7)%size.clusters), int32(2/size.parts)))
				}
				pool.Placements = append(pool.Placements, np)
			}
			cfg := profilesOf(b)
			ctx := klog.NewContext(b.Context(), logr.Discard())
			b.ReportAllocs()
			for b.Loop() {
				require.NoError(b, simulation.Losses(ctx, cfg, pool, func(loss simulation.Loss) error {
					require.NoError(b, loss.Err)
					require.Empty(b, loss.Unplaced)
					require.Equal(b, size.namespaces*size.parts/size.clusters, loss.Namespaces)
					return nil
				}))
			}
		})
	}
}
