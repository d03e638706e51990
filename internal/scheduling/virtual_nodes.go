package scheduling

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	nodehelpers "k8s.io/component-helpers/node/util"
	nodeutil "k8s.io/kubernetes/pkg/util/node"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
)

// gonePatience is for how long a Node may not be Ready whose virtual Node was deleted too.
const gonePatience = 5 * time.Minute

// goneCheckPeriod is how often the Nodes of a super cluster whose Cluster was deleted are looked at: they are out
// of service once they are not Ready.
const goneCheckPeriod = 20 * time.Second

// outOfService is what a virtual Node says about the tenants' Nodes of its super cluster. The zero outOfService says
// that they serve.
type outOfService struct {
	// declared is whether the operator says that the super cluster is out of service, by the taint
	// node.kubernetes.io/out-of-service, and value is that taint's.
	declared bool
	value    string
	// gone is whether the Cluster was deleted: those of its Nodes that are not Ready are out of service.
	gone bool
}

// outOfServiceOf returns what a virtual Node says.
func outOfServiceOf(virtualNode *corev1.Node) outOfService {
	_, ready := nodehelpers.GetNodeCondition(&virtualNode.Status, corev1.NodeReady)
	says := outOfService{gone: ready != nil && ready.Reason == schedulerv1alpha1.ReasonClusterRemoved}
	for i := range virtualNode.Spec.Taints {
		if taint := &virtualNode.Spec.Taints[i]; taint.Key == corev1.TaintNodeOutOfService {
			says.declared, says.value = true, taint.Value
		}
	}
	return says
}

// taintOf returns the taint that a tenant's Node is to have, nil for none.
func (o outOfService) taintOf(node *corev1.Node) *corev1.Taint {
	taint := &corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: o.value, Effect: corev1.TaintEffectNoExecute}
	switch {
	case o.declared:
		return taint
	case o.gone && !nodeutil.IsNodeReady(node):
		taint.Value = schedulerv1alpha1.ReasonClusterRemoved
		return taint
	}
	return nil
}
