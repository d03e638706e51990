package kubescheduler

import (
	"context"
	"errors"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/superpool/superpool/internal/refusal"
	"github.com/superpool/superpool/internal/slicepod"
)

// allPinned adds to why a slice of a gang is refused by its super cluster, why others refuse the slices that are pinned
// there: kube-scheduler tries none of a gang any more once one is refused. It tries them on copies of the snapshot, so
// it is for the scheduling cycle that refused pod. It costs at most what trying all slices of the gang costs.
func allPinned(ctx context.Context, profile framework.Framework, pod *corev1.Pod, gang []*corev1.Pod, why refusal.Refusal) refusal.Refusal {
	refused := map[string]refusal.Refusal{slicepod.PinOf(pod): why}
	for len(gang) > 0 {
		cluster, count := slicepod.PinOf(gang[0]), 1
		for count < len(gang) && slicepod.PinOf(gang[count]) == cluster {
			count++
		}
		if _, known := refused[cluster]; !known && cluster != "" {
			if other := pinnedThere(ctx, profile, cluster, gang[:count]); !other.IsZero() {
				refused[cluster] = other
			}
		}
		gang = gang[count:]
	}
	all := make([]refusal.Refusal, 0, len(refused))
	for _, cluster := range slices.Sorted(maps.Keys(refused)) {
		all = append(all, refused[cluster])
	}
	return refusal.Together(all)
}

// pinnedThere returns why a super cluster refuses one of the slices that are pinned there, the zero Refusal if it takes
// all of them. Those that the snapshot has there already have been taken.
func pinnedThere(ctx context.Context, profile framework.Framework, cluster string, pods []*corev1.Pod) refusal.Refusal {
	nodes := profile.SnapshotSharedLister().NodeInfos()
	known, err := nodes.Get(cluster)
	if err != nil || known.Node() == nil {
		return refusedThere(nodes, pods[0], nil, nil)
	}
	taken := sets.New[types.UID]()
	for _, there := range known.GetPods() {
		taken.Insert(there.GetPod().UID)
	}
	var (
		node   = known.Snapshot()
		placed []fwk.PodInfo
		state  *framework.CycleState
		last   *corev1.Pod
	)
	for _, pod := range pods {
		if taken.Has(pod.UID) {
			continue
		}
		tried := ofNoGang(pod)
		status := (*fwk.Status)(nil)
		if last == nil || !equality.Semantic.DeepEqual(&last.Spec, &tried.Spec) {
			state = framework.NewCycleState()
			_, status, _ = profile.RunPreFilterPlugins(ctx, state, tried)
			for i := 0; i < len(placed) && status.IsSuccess(); i++ {
				status = profile.RunPreFilterExtensionAddPod(ctx, state, tried, placed[i], node)
			}
		}
		if status.IsSuccess() {
			status = profile.RunFilterPlugins(ctx, state, tried, node)
		}
		switch {
		case status.IsRejected():
			return refusedThere(nodes, pod, status, node)
		case !status.IsSuccess():
			return refusal.Refusal{} // an error is no reason
		}
		info, err := framework.NewPodInfo(tried)
		if err != nil {
			return refusal.Refusal{}
		}
		node.AddPodInfo(info)
		if !profile.RunPreFilterExtensionAddPod(ctx, state, tried, info, node).IsSuccess() {
			return refusal.Refusal{}
		}
		placed, last = append(placed, info), tried
	}
	return refusal.Refusal{}
}

// ofNoGang returns a slice that plugin NamespaceGang does not take for one of a gang that was lost.
func ofNoGang(pod *corev1.Pod) *corev1.Pod {
	alone := *pod
	alone.Annotations = maps.Clone(pod.Annotations)
	delete(alone.Annotations, slicepod.AnnotationGang)
	return &alone
}

// refusedThere returns why a super cluster refuses a slice that is pinned there; a nil node: it is not in the pool.
func refusedThere(nodes refusal.Nodes, pod *corev1.Pod, status *fwk.Status, node fwk.NodeInfo) refusal.Refusal {
	statuses := framework.NewDefaultNodeToStatus()
	if node != nil {
		statuses.Set(node.Node().Name, status)
		nodes = nodeInstead{nodes, node}
	}
	all, err := nodes.List()
	if err != nil {
		return refusal.Refusal{}
	}
	fit := &framework.FitError{Pod: pod, NumAllNodes: len(all), Diagnosis: framework.Diagnosis{NodeToStatus: statuses}}
	return refusal.Of(pod, fwk.NewStatus(fwk.Unschedulable).WithError(fit), nodes)
}

// nodeInstead are Nodes of which one has changed.
type nodeInstead struct {
	refusal.Nodes
	node fwk.NodeInfo
}

// Get implements refusal.Nodes.
func (n nodeInstead) Get(name string) (fwk.NodeInfo, error) {
	if name == n.node.Node().Name {
		return n.node, nil
	}
	return n.Nodes.Get(name) //nolint:wrapcheck // it is one of Nodes
}

// isOfCycle reports whether status is of the scheduling cycle itself, whose snapshot nobody changes meanwhile.
func isOfCycle(status *fwk.Status) bool {
	var fit *framework.FitError
	return errors.As(status.AsError(), &fit)
}
