package simulation

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	pluginhelper "k8s.io/kubernetes/pkg/scheduler/framework/plugins/helper"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/plugins/nodegroups"
)

// PodRoom is what makes room in one super cluster for a pod of a namespace. It is as if the namespace had no pods: the
// meta cluster does not say what they use.
type PodRoom struct {
	// Requests is what the pod requests.
	Requests string `json:"requests"`
	// Moves is what has to move, "" if nothing has to or nothing helps.
	Moves string `json:"moves,omitempty"`
	// Why is why nothing helps, "" if something does or the pod has room.
	Why string `json:"why,omitempty"`
}

// ExplainPod looks for the slices of one namespace that vc-scheduler would move for a pod, and tries them in the pool
// beside what all others hold now. Where one super cluster has no room for them it tries the next. The pod tolerates
// what slices do.
func ExplainPod(ctx context.Context, cfg *config.KubeSchedulerConfiguration, pool *Pool, key types.NamespacedName, requests slice.Amounts) (*PodRoom, error) {
	is := func(np *schedulerv1alpha1.NamespacePlacement) bool { return client.ObjectKeyFromObject(np) == key }
	at := slices.IndexFunc(pool.Placements, is)
	if at < 0 {
		return nil, fmt.Errorf("there is no NamespacePlacement %s", key)
	}
	np, room := pool.Placements[at].DeepCopy(), &PodRoom{Requests: requests.String()}
	wish := wishFor(pool.Nodes, requests.Plus(slice.Amounts{corev1.ResourcePods: 1}))
	if !placement.Settled(np) {
		room.Why = "the namespace waits to be placed, or is on the move"
		return room, nil
	}
	np.Status.LastRequested = nil // the dry run is not bounded
	for {
		found, why := placement.Relocate(np, wish)
		if found.IsZero() {
			if room.Why == "" {
				room.Why = why
			}
			return room, nil
		}
		asked := np.DeepCopy()
		if asked.Status, why = placement.Move(np, &found, time.Minute, time.Unix(0, 0)); why == "" {
			tried := *pool
			tried.Placements = slices.Clone(pool.Placements)
			tried.Placements[at] = asked
			outcomes, err := rehearse(ctx, cfg, &tried, is)
			if err != nil {
				return nil, err
			}
			why = outcomes[at].Why.Message
		}
		if why == "" {
			room.Moves, room.Why = found.String(), ""
			return room, nil
		}
		if room.Why == "" {
			room.Why = why
		}
		wish.Clusters = slices.DeleteFunc(wish.Clusters, func(cluster string) bool { return cluster == found.Cluster })
	}
}

// wishFor returns the Wish of a pod in a pool where the namespace has no pods.
func wishFor(nodes []*corev1.Node, requests slice.Amounts) *placement.Wish {
	wish := &placement.Wish{Pod: "of that size", Requests: requests, Used: map[string]slice.Amounts{}}
	for _, node := range nodes {
		wish.Used[node.Name] = nil
		_, tainted := corev1helpers.FindMatchingUntoleratedTaint(view.Taints(node), view.SliceTolerations(), pluginhelper.DoNotScheduleTaintsFilterFunc())
		if !node.Spec.Unschedulable && !tainted && nodegroups.IsLargeEnough(node, requests) {
			wish.Clusters = append(wish.Clusters, node.Name)
		}
	}
	return wish
}

// print writes what there is to say about the pod.
func (r *PodRoom) print(p *Page) {
	p.Line("")
	switch {
	case r.Moves != "":
		p.Line("A pod that requests %s has room in no super cluster, and would have: moving %s", r.Requests, r.Moves)
		p.Line("That is if no pods use those slices. vc-scheduler requests it once such a pod has waited for a minute")
	case r.Why != "":
		p.Line("A pod that requests %s has room in no super cluster, and no slices that move help it: %s", r.Requests, r.Why)
	default:
		p.Line("A pod that requests %s has room in a super cluster, if other pods leave it", r.Requests)
	}
}
