package placer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/superpool/superpool/internal/freenodes"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/test/builders"
)

const (
	equalClusters = 6
	equalSteps    = 60
)

// TestEqualSlicesAreFilteredAsEach: a scheduler that filters super clusters once for equal slices decides as one that
// filters them for each, and says the same of each super cluster.
func TestEqualSlicesAreFilteredAsEach(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			ctx := klog.NewContext(t.Context(), klog.Background())
			once, each := newPool(t), newPool(t, func(p *pool) { p.placer.filterEach = true })
			run := func(p *pool) (outcomes []string) {
				random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // it is to be the same for both
				nodes, placed := make([]*corev1.Node, equalClusters), []*corev1.Pod(nil)
				for step := range equalSteps {
					switch kind := random.IntN(10); {
					case kind < 3:
						p.change(ctx, nodes, random)
					case kind < 5 && len(placed) > 0: // some slices go
						at := random.IntN(len(placed))
						for _, pod := range placed[at:] {
							require.NoError(t, p.sched.Cache.ForgetPod(klog.FromContext(ctx), pod))
						}
						placed = placed[:at]
					case nodes[0] != nil:
						chosen, outcome := p.decide(ctx, step, random)
						placed, outcomes = append(placed, chosen...), append(outcomes, outcome...)
					}
				}
				return outcomes
			}
			outcomes := run(once)
			require.Greater(t, len(outcomes), equalSteps)
			require.Empty(t, cmp.Diff(run(each), outcomes))
		})
	}
}

// change lets a super cluster come, or have other nodes. It may be cordoned then. The first change makes r0.
func (p *pool) change(ctx context.Context, nodes []*corev1.Node, random *rand.Rand) {
	i, size, count := random.IntN(equalClusters), random.Int64N(6), 1+random.Int64N(12)
	if nodes[0] == nil {
		i = 0
	}
	classes := []freenodes.Class{
		{Nodes: count, Free: slice.Amounts{"cpu": 700 * (1 + size), "memory": 64 << 30}}, {Nodes: 1, Free: slice.Amounts{"cpu": 300 * count, "memory": 8 << 30}},
	}
	cpu, memory := 700*(1+size)*count+300*count, 64*count+8
	node := view.NamespaceNode(virtualNode(fmt.Sprint("r", i), fmt.Sprintf("%dm", cpu), fmt.Sprintf("%dGi", memory), withFreeNodes(classes)))
	node.Spec.Unschedulable = random.IntN(5) == 0
	if nodes[i] == nil {
		p.sched.Cache.AddNode(klog.FromContext(ctx), node)
	} else {
		p.sched.Cache.UpdateNode(klog.FromContext(ctx), nodes[i], node)
	}
	nodes[i] = node
}

// decide chooses super clusters for the slices of a namespace until one fits nowhere, and returns those that were
// placed, and what was said about each.
func (p *pool) decide(ctx context.Context, step int, random *rand.Rand) (placed []*corev1.Pod, outcomes []string) {
	size := 250 * (1 + random.Int64N(6))
	quota := size*(1+random.Int64N(20)) + 100 // the last slice is a smaller one
	np := builders.Placement("tenant", fmt.Sprint("web-", step)).UID(builders.UID(fmt.Sprint(step))).
		Slice("cpu", fmt.Sprintf("%dm", size), "memory", "1Gi").Quota("cpu", fmt.Sprintf("%dm", quota), "memory", "1Gi").Obj()
	profile := p.sched.Profiles[view.DefaultNamespaceScheduler]
	var reserved []func()
	for _, object := range view.Slices(np) {
		pod, state := object.(*corev1.Pod), framework.NewCycleState()
		result, err := schedulertest.SchedulePod(ctx, p.t, p.sched, profile, state, pod)
		if err != nil {
			outcomes = append(outcomes, said(p.t, err))
			break
		}
		outcomes = append(outcomes, fmt.Sprintf("%s: %s of %d", pod.Name, result.SuggestedHost, result.FeasibleNodes))
		require.True(p.t, profile.RunReservePluginsReserve(ctx, state, pod, result.SuggestedHost).IsSuccess())
		reserved = append(reserved, func() { profile.RunReservePluginsUnreserve(ctx, state, pod, result.SuggestedHost) })
		pod = pod.DeepCopy()
		pod.UID += "-placed" // the slice itself is released
		pod.Spec.NodeName = result.SuggestedHost
		require.NoError(p.t, p.sched.Cache.AssumePod(klog.FromContext(ctx), pod))
		placed = append(placed, pod)
	}
	for _, unreserve := range reserved {
		unreserve()
	}
	return placed, outcomes
}

// said returns what was said about each super cluster.
func said(t testing.TB, err error) string {
	t.Helper()
	var fit *framework.FitError
	require.ErrorAs(t, err, &fit)
	text := fit.Diagnosis.PreFilterMsg
	for i := range equalClusters {
		name := fmt.Sprint("r", i)
		text += fmt.Sprintf(" %s: %v", name, fit.Diagnosis.NodeToStatus.Get(name).Reasons())
	}
	return text
}
