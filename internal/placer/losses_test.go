package placer

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"

	pluginargs "github.com/superpool/superpool/apis/config"
	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/plugins/namespacegang"
	"github.com/superpool/superpool/test/builders"
)

// tolerating is the default configuration that keeps room for so many losses.
func tolerating(t *testing.T, losses int32) *config.KubeSchedulerConfiguration {
	t.Helper()
	cfg := defaultConfig(t)
	for i := range cfg.Profiles {
		args := &cfg.Profiles[i].PluginConfig
		*args = append(slices.DeleteFunc(*args, func(given config.PluginConfig) bool { return given.Name == namespacegang.Name }),
			config.PluginConfig{Name: namespacegang.Name, Args: &pluginargs.NamespaceGangArgs{PermitWaitingTimeSeconds: 30, TolerateLosses: losses}})
	}
	return cfg
}

// TestRoomIsKeptForLosses: what is new waits, and what replaces what is lost does not.
func TestRoomIsKeptForLosses(t *testing.T) {
	nodes := []*corev1.Node{virtualNode("r1", "400m", "8Gi"), virtualNode("r2", "400m", "8Gi"), virtualNode("r3", "400m", "8Gi")}
	lost := func(node *corev1.Node) {
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	}
	old, grows := wanting("a-old", "300m", held100("r1", 3)), wanting("b-grows", "600m", held100("r2", 2))
	run := func(nodes []*corev1.Node, placements ...*schedulerv1alpha1.NamespacePlacement) (got []string) {
		outcomes, err := (&Rehearsal{Config: tolerating(t, 1), Nodes: nodes, Placements: placements}).Run(schedulertest.Context(t))
		require.NoError(t, err)
		for _, outcome := range outcomes {
			got = append(got, placement.Encode(outcome.Placement.Status.Placements)+outcome.Why.Message)
		}
		return got
	}
	const kept = "0/3 super clusters are available: the pool keeps what it has free for the loss of a super cluster: "
	require.Equal(t, []string{`{"r1":3}`, `{"r2":2}` + kept + "400m cpu", `{"r1":1,"r2":1,"r3":1}`}, run(nodes, old, grows, wanting("c-new", "300m")))

	outcomes, err := (&Rehearsal{Config: tolerating(t, 1), Nodes: nodes, Placements: []*schedulerv1alpha1.NamespacePlacement{old, grows}}).Run(schedulertest.Context(t))
	require.NoError(t, err)
	require.Equal(t, "others: the pool keeps what it has free for the loss of a super cluster: 400m cpu (of 700m free 400m are kept for the loss of r1 at most)", outcomes[1].Why.Details()[len("0 of 4 slices fit; "):])

	// r2 is lost: what it held takes the room that was kept, and nothing new does.
	away := wanting("b-away", "400m", held100("r2", 4))
	away.Status, _, _ = placement.Next(away, placement.Facts{Leave: map[string]schedulerv1alpha1.LeavingReason{"r2": schedulerv1alpha1.LeavingLost}})
	after := []*corev1.Node{nodes[0], virtualNode("r2", "400m", "8Gi", lost), nodes[2]}
	require.Equal(t, []string{`{"r1":3}`, `{"r1":1,"r3":3}`, kept + "100m cpu"}, run(after, old, away, wanting("c-new", "100m")))
}

// TestThePoolSurvives has random namespaces come to random pools: whatever has been placed, what is free elsewhere is as
// much as is reserved in any one super cluster, and what waits would have left less.
func TestThePoolSurvives(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 37))
		var nodes []*corev1.Node
		allocatable := map[string]int64{}
		for i := range 2 + random.IntN(4) {
			cpu := int64(100 * (1 + random.IntN(12)))
			allocatable[clusterName(i)] = cpu
			nodes = append(nodes, virtualNode(clusterName(i), fmt.Sprintf("%dm", cpu), "80Gi"))
		}
		var placements []*schedulerv1alpha1.NamespacePlacement
		for i := range 12 {
			np := wanting(fmt.Sprintf("t%02d", i), fmt.Sprintf("%dm", 100*(1+random.IntN(6))))
			np.UID, np.CreationTimestamp = types.UID(np.Namespace), metav1.Unix(int64(i), 0)
			np.Spec.SchedulerName = []string{"", "pack", "spread"}[random.IntN(3)]
			placements = append(placements, np)
		}
		outcomes, err := (&Rehearsal{Config: tolerating(t, 1), Nodes: nodes, Placements: placements}).Run(schedulertest.Context(t))
		require.NoError(t, err)
		reserved, free, largest := map[string]int64{}, int64(0), int64(0)
		for _, outcome := range outcomes {
			for i := range outcome.Placement.Status.Placements {
				part := &outcome.Placement.Status.Placements[i]
				reserved[part.Cluster] += slice.Of(part.Reserved)["cpu"]
			}
		}
		for name, cpu := range allocatable {
			free += cpu - reserved[name]
			largest = max(largest, cpu)
		}
		for name, cpu := range allocatable {
			require.GreaterOrEqual(t, free-(cpu-reserved[name]), reserved[name], "seed %d: the loss of %s of %v with %v", seed, name, allocatable, reserved)
		}
		for _, outcome := range outcomes {
			if !outcome.Why.IsZero() {
				require.Less(t, free-largest, slice.Of(outcome.Placement.Spec.Quota)["cpu"], "seed %d: %s waits", seed, outcome.Placement.Namespace)
			}
		}
	}
}

// TestRoomIsKeptWhileManyCome: those of which some slices are held while others are tried are counted, and one of a
// higher priority that comes in between is, too.
func TestRoomIsKeptWhileManyCome(t *testing.T) {
	p := newPool(t, func(p *pool) { p.placer.Config = tolerating(t, 1) })
	const clusters, tenants, cpu = 4, 40, 1000
	for i := range clusters {
		p.cluster(clusterName(i), fmt.Sprintf("%dm", cpu), "80Gi")
	}
	for i := range tenants {
		tenant := fmt.Sprintf("tenant-%02d", i)
		p.mu.Lock()
		np := wanting(tenant, fmt.Sprintf("%dm", 100*(1+i%5)))
		np.Spec.Priority = int32(i % 3)
		p.placements[tenant] = np
		p.project(tenant)
		p.mu.Unlock()
	}
	require.Eventually(t, func() bool {
		for i := range tenants {
			if tenant := fmt.Sprintf("tenant-%02d", i); p.placed(tenant) == "" && p.refusal(tenant).IsZero() {
				return false
			}
		}
		return true
	}, patience, 5*time.Millisecond)
	p.mu.Lock()
	defer p.mu.Unlock()
	sum, reserved := int64(0), map[string]int64{}
	for _, np := range p.placements {
		for i := range np.Status.Placements {
			amount := slice.Of(np.Status.Placements[i].Reserved)["cpu"]
			sum, reserved[np.Status.Placements[i].Cluster] = sum+amount, reserved[np.Status.Placements[i].Cluster]+amount
		}
	}
	require.LessOrEqual(t, sum, int64((clusters-1)*cpu), "%v", reserved)
	require.Greater(t, sum, int64((clusters-1)*cpu-500), "what may be used is: %v", reserved)
}

// TestAGuaranteeKeepsTheRoom: others give way for the room that is kept, too, where what is free would be enough.
func TestAGuaranteeKeepsTheRoom(t *testing.T) {
	find := func(losses int32) (parts []Part) {
		p := &Preemption{
			Config: tolerating(t, losses), Now: preemptedAt, Nodes: []*corev1.Node{virtualNode("r1", "400m", "8Gi"), virtualNode("r2", "400m", "8Gi")},
			Placements: []*schedulerv1alpha1.NamespacePlacement{owner("a", "300m"), borrower("b", 1, held100("r1", 3)), borrower("c", 2, held100("r2", 1))},
		}
		victims, err := p.Find(schedulertest.Context(t), types.NamespacedName{Namespace: "a", Name: "web"})
		require.NoError(t, err)
		require.NotNil(t, victims.Granted)
		return victims.Parts
	}
	require.Empty(t, find(0))
	parts := find(1)
	require.Len(t, parts, 1)
	require.Equal(t, "b", parts[0].Namespace.Namespace)
}

// TestTheRoomOfAGuaranteeIsKept: what comes free goes to whom it was taken for, though another super cluster has room
// for others all the time, which is kept for the loss of one.
func TestTheRoomOfAGuaranteeIsKept(t *testing.T) {
	p := newPool(t, func(p *pool) { p.placer.Config = tolerating(t, 1) })
	p.cluster("r1", "600m", "8Gi")
	p.cluster("r2", "600m", "8Gi")
	p.hold(borrower("first", 2, held100("r1", 3)))
	p.hold(borrower("second", 1, held100("r1", 3)))
	a := owner("a", "500m")
	a.Spec.Slice = builders.Resources("cpu", "100m")
	a.Status, _, _ = placement.Next(a, placement.Facts{Now: preemptedAt, Nominated: map[string]slice.Amounts{"r1": slice.Of(builders.Resources("cpu", "500m"))}})
	p.hold(a)
	p.wantRefused("a", namespacegang.ErrReasonRoomKept)
	p.remove("first")
	p.hold(wanting("thief", "200m"))
	p.wantRefused("thief", namespacegang.ErrReasonRoomKept)
	p.remove("second")
	p.wantPlaced("a", `{"r1":5}`)
	p.ask("small", "100m", "0")
	p.wantPlaced("small", "")
	require.Empty(t, p.placed("thief"))
}
