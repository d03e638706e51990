// Package rename rewrites what kubelets serve for one tenant: it replaces namespaces, UIDs and node names of the super
// cluster by the tenant's, and drops the pods of others and the figures of the node.
//
// Everything here is pure.
package rename

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/internal/vnagent/pods"
)

// ownershipPrefix is the prefix of the ownership labels and annotations that a syncer writes onto super pods.
const ownershipPrefix = "tenancy.x-k8s.io/"

// Nodes maps node names of the super cluster to those that tenants see.
type Nodes struct {
	// SuperCluster is the id of the super cluster; "" where node names are not changed.
	SuperCluster string
}

// Name returns the name that tenants see of node, "" for "".
func (n Nodes) Name(node string) string {
	if n.SuperCluster == "" || node == "" {
		return node
	}
	return tenancy.NodeName(n.SuperCluster, node)
}

// PodList returns copies of own with the tenant's names, as a kubelet serves /pods. It is never nil.
func PodList(own []pods.Pod, nodes Nodes) *corev1.PodList {
	list := &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: make([]corev1.Pod, 0, len(own))}
	for _, pod := range own {
		list.Items = append(list.Items, *tenantPod(pod, nodes))
	}
	return list
}

func tenantPod(pod pods.Pod, nodes Nodes) *corev1.Pod {
	out := pod.Super.DeepCopy()
	out.TypeMeta = metav1.TypeMeta{}
	out.Namespace = pod.Owner.Namespace
	out.UID = pod.Owner.UID
	out.ResourceVersion, out.Generation = "", 0
	out.OwnerReferences, out.ManagedFields = nil, nil
	for _, metadata := range []map[string]string{out.Labels, out.Annotations} {
		for key := range metadata {
			if strings.HasPrefix(key, ownershipPrefix) {
				delete(metadata, key)
			}
		}
	}
	out.Spec.NodeName = nodes.Name(out.Spec.NodeName)
	out.Status.NominatedNodeName = nodes.Name(out.Status.NominatedNodeName)
	rewriter := rewriterOf(pod)
	for _, message := range tenancy.Messages(&out.Status) {
		*message = rewriter.Rewrite(*message)
	}
	return out
}

// Text returns message with namespace and UID of the super pod replaced by those of the tenant's. It does not change
// message.
func Text(message []byte, pod pods.Pod) []byte {
	return []byte(rewriterOf(pod).Rewrite(string(message)))
}

// rewriterOf replaces, in text about pod, namespace and UID of the super pod by those of the tenant's.
func rewriterOf(pod pods.Pod) tenancy.Rewriter {
	return tenancy.NewRewriter(pod.Super.Namespace, pod.Super.UID, pod.Owner)
}

// index finds the tenant's pods by their names in the super cluster, which kubelets use.
type index struct {
	byName map[types.NamespacedName]pods.Pod
	// nodes is the number of nodes that run the pods, at least 1. In place of a node's own figures the tenant gets the
	// sum of its pods divided by nodes. In mode kubelet that is the sum: all pods are on the node. In mode apiserver a
	// request does not name the node that it is for, so each node gets an equal share, and the shares of all nodes add
	// up to what the tenant uses.
	nodes int
}

func newIndex(own []pods.Pod) index {
	byName := make(map[types.NamespacedName]pods.Pod, len(own))
	nodes := sets.New[string]()
	for _, pod := range own {
		byName[types.NamespacedName{Namespace: pod.Super.Namespace, Name: pod.Super.Name}] = pod
		if pod.Super.Spec.NodeName != "" {
			nodes.Insert(pod.Super.Spec.NodeName)
		}
	}
	return index{byName: byName, nodes: max(1, nodes.Len())}
}

// find returns the tenant's pod that the super cluster knows as namespace/name; false if there is none, or if uid is
// neither "" nor the pod's.
func (i index) find(namespace, name, uid string) (pods.Pod, bool) {
	if namespace == "" || name == "" {
		return pods.Pod{}, false
	}
	pod, exists := i.byName[types.NamespacedName{Namespace: namespace, Name: name}]
	return pod, exists && (uid == "" || uid == string(pod.Super.UID))
}
