package dispatch

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	nodehelpers "k8s.io/component-helpers/node/util"
	nodeutil "k8s.io/kubernetes/pkg/util/node"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
)

// GonePatience is for how long a Node may not be Ready whose virtual Node was deleted too.
const GonePatience = 5 * time.Minute

// GoneCheckPeriod is how often the Nodes of a super cluster whose Cluster was deleted are looked at: they are out
// of service once they are not Ready.
const GoneCheckPeriod = 20 * time.Second

// OutOfService is what a virtual Node says about the tenants' Nodes of its super cluster. The zero OutOfService says
// that they serve.
type OutOfService struct {
	// declared is whether the operator says that the super cluster is out of service, by the taint
	// node.kubernetes.io/out-of-service, and value is that taint's.
	declared bool
	value    string
	// Gone is whether the Cluster was deleted: those of its Nodes that are not Ready are out of service.
	Gone bool
}

// OutOfServiceOf returns what a virtual Node says.
func OutOfServiceOf(virtualNode *corev1.Node) OutOfService {
	_, ready := nodehelpers.GetNodeCondition(&virtualNode.Status, corev1.NodeReady)
	says := OutOfService{Gone: ready != nil && ready.Reason == schedulerv1alpha1.ReasonClusterRemoved}
	for i := range virtualNode.Spec.Taints {
		if taint := &virtualNode.Spec.Taints[i]; taint.Key == corev1.TaintNodeOutOfService {
			says.declared, says.value = true, taint.Value
		}
	}
	return says
}

// TaintOf returns the taint that a tenant's Node is to have, nil for none.
func (o OutOfService) TaintOf(node *corev1.Node) *corev1.Taint {
	taint := &corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: o.value, Effect: corev1.TaintEffectNoExecute}
	switch {
	case o.declared:
		return taint
	case o.Gone && !nodeutil.IsNodeReady(node):
		taint.Value = schedulerv1alpha1.ReasonClusterRemoved
		return taint
	}
	return nil
}
