// Package rename says in a tenant's words what a kubelet says in those of a super cluster, and leaves out what is not the tenant's:
// the pods of others, the node, the super cluster's names and UIDs.
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

// marksPrefix begins the labels and annotations that a syncer writes.
const marksPrefix = "tenancy.x-k8s.io/"

// Nodes names nodes for tenants.
type Nodes struct {
	// SuperCluster is the id of the super cluster, or "" where tenants see nodes by their own names.
	SuperCluster string
}

// Name returns the tenants' name of a node.
func (n Nodes) Name(node string) string {
	if n.SuperCluster == "" || node == "" {
		return node
	}
	return tenancy.NodeName(n.SuperCluster, node)
}

// PodList returns own as the tenant knows them.
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
	for _, marks := range []map[string]string{out.Labels, out.Annotations} {
		for key := range marks {
			if strings.HasPrefix(key, marksPrefix) {
				delete(marks, key)
			}
		}
	}
	out.Spec.NodeName = nodes.Name(out.Spec.NodeName)
	out.Status.NominatedNodeName = nodes.Name(out.Status.NominatedNodeName)
	words := wordsOf(pod)
	for _, message := range tenancy.Messages(&out.Status) {
		*message = words.Translate(*message)
	}
	return out
}

// Text returns a message about pod, with the tenant's namespace and UID for those of the super cluster.
func Text(message []byte, pod pods.Pod) []byte {
	return []byte(wordsOf(pod).Translate(string(message)))
}

func wordsOf(pod pods.Pod) tenancy.Words {
	return tenancy.WordsOf(pod.Super.Namespace, pod.Super.UID, pod.Owner)
}

// index finds pods by the names that a kubelet uses.
type index struct {
	byName map[types.NamespacedName]pods.Pod
	// nodes is on how many nodes they are, at least 1. A kubelet's figures of its node become an equal share of the tenant's pods: the pods
	// themselves where all are on one node, as before a kubelet. Before an API server a request does not say which node it means, and shares
	// of all nodes add up to what the tenant uses.
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

// find returns the pod if it is one of the tenant's. uid is checked unless it is "".
func (i index) find(namespace, name, uid string) (pods.Pod, bool) {
	if namespace == "" || name == "" {
		return pods.Pod{}, false
	}
	pod, exists := i.byName[types.NamespacedName{Namespace: namespace, Name: name}]
	return pod, exists && (uid == "" || uid == string(pod.Super.UID))
}
