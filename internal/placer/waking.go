package placer

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slicepod"
	"github.com/superpool/superpool/internal/view"
)

// wakingInformer is an informer of virtual Nodes that calls waken after its handlers have seen a super cluster which
// takes slices now, and did not before. kube-scheduler tries what waits again by itself, but what was refused again and
// again only after up to ten seconds.
type wakingInformer struct {
	cache.SharedIndexInformer
	waken func()
}

// AddEventHandler implements cache.SharedInformer.
func (w wakingInformer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return w.SharedIndexInformer.AddEventHandler(wakingHandler{handler, w.waken}) //nolint:wrapcheck // it is the informer's
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer.
func (w wakingInformer) AddEventHandlerWithResyncPeriod(
	handler cache.ResourceEventHandler, period time.Duration,
) (cache.ResourceEventHandlerRegistration, error) {
	return w.SharedIndexInformer.AddEventHandlerWithResyncPeriod(wakingHandler{handler, w.waken}, period) //nolint:wrapcheck // it is the informer's
}

// AddEventHandlerWithOptions implements cache.SharedInformer.
func (w wakingInformer) AddEventHandlerWithOptions(
	handler cache.ResourceEventHandler, options cache.HandlerOptions,
) (cache.ResourceEventHandlerRegistration, error) {
	return w.SharedIndexInformer.AddEventHandlerWithOptions(wakingHandler{handler, w.waken}, options) //nolint:wrapcheck // it is the informer's
}

type wakingHandler struct {
	cache.ResourceEventHandler
	waken func()
}

// OnAdd implements cache.ResourceEventHandler.
func (w wakingHandler) OnAdd(object any, isInInitialList bool) {
	w.ResourceEventHandler.OnAdd(object, isInInitialList)
	if node, isNode := object.(*corev1.Node); isNode && !isInInitialList && takesSlices(node) {
		w.waken()
	}
}

// OnUpdate implements cache.ResourceEventHandler.
func (w wakingHandler) OnUpdate(before, after any) {
	w.ResourceEventHandler.OnUpdate(before, after)
	old, isOld := before.(*corev1.Node)
	if node, isNode := after.(*corev1.Node); isOld && isNode && takesSlices(node) && !takesSlices(old) {
		w.waken()
	}
}

// takesSlices reports whether any slice may be placed on a virtual Node of the view: it is not cordoned, has no taint
// that all slices stop at, and has something to offer.
func takesSlices(node *corev1.Node) bool {
	_, isTainted := placement.Untolerated(node.Spec.Taints, view.SliceTolerations())
	if node.Spec.Unschedulable || isTainted {
		return false
	}
	for name, amount := range node.Status.Allocatable {
		switch name {
		case corev1.ResourcePods, slicepod.ResourcePods, corev1.ResourceStorage, slicepod.ResourceStorage:
			continue
		}
		if !amount.IsZero() {
			return true
		}
	}
	return false
}
