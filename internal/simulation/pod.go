package simulation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/page"
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
	// Unmet is what the pod demands and super clusters lack, and Meets are the super clusters that have all of it.
	Unmet []Unmet  `json:"unmet,omitempty"`
	Meets []string `json:"meets,omitempty"`
}

// Unmet is what a pod demands of a super cluster that lacks it.
type Unmet struct {
	SuperCluster string `json:"superCluster"`
	Reason       string `json:"reason"`
	// Slices is what the namespace holds there.
	Slices int32 `json:"slices"`
}

// PodOf returns a pod that demands nothing but room, and tolerates what slices do.
func PodOf(requests slice.Amounts) *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{
		Tolerations: view.SliceTolerations(),
		Containers:  []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: requests.List()}}},
	}}
}

// ExplainPod looks for the slices of one namespace that vc-scheduler would move for a pod of a tenant, and tries them
// in the pool beside what all others hold now. Where one super cluster has no room for them it tries the next. It says
// what the pod demands by labels, tolerations and size that super clusters lack; of its volumes, and of other pods, the
// meta cluster knows nothing. pod is changed.
func ExplainPod(ctx context.Context, cfg *config.KubeSchedulerConfiguration, pool *Pool, key types.NamespacedName, pod *corev1.Pod) (*PodRoom, error) {
	is := func(np *schedulerv1alpha1.NamespacePlacement) bool { return client.ObjectKeyFromObject(np) == key }
	at := slices.IndexFunc(pool.Placements, is)
	if at < 0 {
		return nil, fmt.Errorf("there is no NamespacePlacement %s", key)
	}
	pod.Namespace = key.Name
	if _, err := view.TenantPod(pod); err != nil {
		return nil, fmt.Errorf("reading the pod: %w", err)
	}
	requests := view.Used(pod)
	np, room := pool.Placements[at].DeepCopy(), &PodRoom{Requests: requests.Minus(slice.Amounts{corev1.ResourcePods: 1}).String()}
	wish := room.judge(pool.Nodes, np, pod, requests)
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

// judge returns the Wish of a pod of the pod view in a pool where its namespace has no pods, and notes what super
// clusters lack for it.
func (r *PodRoom) judge(nodes []*corev1.Node, np *schedulerv1alpha1.NamespacePlacement, pod *corev1.Pod, requests slice.Amounts) *placement.Wish {
	wish := &placement.Wish{Pod: cmp.Or(pod.Name, "of that size"), Requests: requests, Used: map[string]slice.Amounts{}, Unfit: sets.New[string]()}
	held, judge, demand := counts(np.Status.Placements), nodegroups.Judge{}, nodegroups.DemandOf(pod)
	for _, node := range nodes {
		wish.Used[node.Name] = nil
		taint, tainted := placement.Untolerated(view.Taints(node), pod.Spec.Tolerations)
		lacks := judge.Lacks(node, demand)
		if lacks != "" {
			wish.Unfit.Insert(node.Name)
		}
		switch {
		case node.Spec.Unschedulable:
			lacks = "it is cordoned"
		case tainted:
			lacks = "it has taint " + taint.ToString()
		case lacks == "":
			wish.Clusters = append(wish.Clusters, node.Name)
			continue
		}
		r.Unmet = append(r.Unmet, Unmet{SuperCluster: node.Name, Reason: lacks, Slices: held[node.Name]})
	}
	if len(r.Unmet) > 0 {
		r.Meets = slices.Clone(wish.Clusters)
	}
	return wish
}

// print writes what there is to say about the pod.
func (r *PodRoom) print(p *page.Page) {
	p.Line("")
	switch {
	case r.Moves != "":
		p.Line("A pod that requests %s has room in no super cluster, and would have: moving %s", r.Requests, r.Moves)
		p.Line("That is if no pods use those slices. vc-scheduler requests it once such a pod has waited for a minute")
	case r.Why != "":
		p.Line("A pod that requests %s has room in no super cluster, and no slices that move help it: %s", r.Requests, r.Why)
	case len(r.Unmet) > 0 && len(r.Meets) == 0:
		p.Line("A pod that requests %s may run in no super cluster", r.Requests)
	default:
		p.Line("A pod that requests %s has room in a super cluster, if other pods leave it", r.Requests)
	}
	if len(r.Unmet) == 0 {
		return
	}
	p.Line("What it demands super clusters lack:")
	for _, unmet := range r.Unmet {
		holds := ""
		if unmet.Slices > 0 {
			holds = fmt.Sprintf(", where the namespace has %d slices", unmet.Slices)
		}
		p.Line("    %s: %s%s", unmet.SuperCluster, unmet.Reason, holds)
	}
	p.Line("All of it is in: %s", cmp.Or(strings.Join(r.Meets, ", "), "none"))
}
