package library

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// QOSSortName is the name of QOSSort.
const QOSSortName = "QOSSort"

// QOSSort orders the queue by priority, then by QoS class, Guaranteed first, then by when a pod was queued.
type QOSSort struct{}

var _ fwk.QueueSortPlugin = &QOSSort{}

// NewQOSSort is the factory of QOSSort, which has no args.
func NewQOSSort(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return &QOSSort{}, nil
}

// Name returns the name of the plugin.
func (pl *QOSSort) Name() string { return QOSSortName }

// Less returns whether a is scheduled before b.
func (pl *QOSSort) Less(a, b fwk.QueuedEntityInfo) bool {
	return cmp.Or(
		cmp.Compare(b.GetPriority(), a.GetPriority()),
		cmp.Compare(rank(a), rank(b)),
		a.GetTimestamp().Compare(b.GetTimestamp()),
	) < 0
}

// rank returns the place of a QoS class, the lowest for that which comes first. A PodGroup has none, and comes last.
func rank(queued fwk.QueuedEntityInfo) int {
	pod, isPod := queued.(*framework.QueuedPodInfo)
	if !isPod {
		return 3
	}
	switch qos.GetPodQOS(pod.Pod) {
	case corev1.PodQOSGuaranteed:
		return 0
	case corev1.PodQOSBurstable:
		return 1
	default:
		return 2
	}
}
