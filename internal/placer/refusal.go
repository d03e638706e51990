package placer

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/superpool/superpool/plugins/namespacegang"
)

// Refusal is why a slice fits nowhere.
type Refusal struct {
	// Message is kube-scheduler's one sentence about all super clusters. It counts reasons and names no super cluster.
	Message string
	// Clusters holds the reasons one by one, sorted by super cluster. It is empty when there are no super clusters.
	Clusters []ClusterReason
}

// ClusterReason is one reason of one plugin.
type ClusterReason struct {
	// Cluster is the name of the super cluster. "": all super clusters that no other row names.
	Cluster string
	// Plugin is the name of the plugin that refused.
	Plugin string
	// Reason is the plugin's own sentence.
	Reason string
}

// refusalOf returns why kube-scheduler refused a slice. It returns false when nothing was refused: the slice ran into
// an error and is tried again, or it does fit and was released for the sake of another slice, whose own refusal tells
// more.
func refusalOf(status *fwk.Status) (Refusal, bool) {
	message := status.Message()
	if !status.IsRejected() || strings.Contains(message, namespacegang.ErrReasonReleased) {
		return Refusal{}, false
	}
	why := Refusal{Message: message}
	var fit *framework.FitError
	if !errors.As(status.AsError(), &fit) {
		return why, true
	}
	nodes := fit.Diagnosis.NodeToStatus
	if nodes.Len() < fit.NumAllNodes {
		why.add("", nodes.AbsentNodesStatus())
	}
	nodes.ForEachExplicitNode(why.add)
	// A stable sort: the reasons of one plugin stay in its order.
	slices.SortStableFunc(why.Clusters, func(a, b ClusterReason) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return why, true
}

func (r *Refusal) add(cluster string, status *fwk.Status) {
	for _, reason := range status.Reasons() {
		r.Clusters = append(r.Clusters, ClusterReason{Cluster: cluster, Plugin: status.Plugin(), Reason: reason})
	}
}
