// Package builders begins the objects that tests are about: valid ones, in one line, with what the test turns on named.
// Every package's tests may import it.
//
// Pods and Nodes carry on in the words of kube-scheduler's own tests (k8s.io/kubernetes/pkg/scheduler/testing);
// NamespacePlacements have a builder of their own. Each call returns a new object, and a builder belongs to one
// goroutine.
//
//	builders.Pod("web", "p", "cpu", "1").Node("r1").Obj()
//	builders.VirtualNode("r1", "cpu", "4").Unschedulable(true).Obj()
//	builders.Placement("vc-1", "web").Quota("cpu", "4").Slice("cpu", "2").Held("r1", 1, "cpu", "2").Obj()
package builders

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
)

// Copies returns copies of the objects: a fake client writes a resource version into those that it is given, and tests
// of one table, which run side by side, can share them.
func Copies(objects []client.Object) []client.Object {
	copies := make([]client.Object, len(objects))
	for i, object := range objects {
		copies[i] = object.DeepCopyObject().(client.Object)
	}
	return copies
}

// Resources returns a resource list of pairs: "cpu", "2", "memory", "4Gi". No pairs are an empty list. It panics on an
// odd number, and on what is no quantity.
func Resources(pairs ...string) corev1.ResourceList {
	if len(pairs)%2 != 0 {
		panic(fmt.Sprintf("resources come in pairs: %q", pairs))
	}
	list := make(corev1.ResourceList, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

// Requests returns what a container requests, as pairs.
func Requests(pairs ...string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: Resources(pairs...)}
}

// UID returns the UID that the builders give to an object of this name, so that the UID of a namespace and the one that
// its NamespacePlacement names are equal.
func UID(name string) types.UID { return types.UID("uid-" + name) }

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: UID(name)}
}

// Namespace returns a Namespace.
func Namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: meta("", name)}
}

// Quota returns a ResourceQuota with these hard limits, as pairs.
func Quota(namespace, name string, hard ...string) *corev1.ResourceQuota {
	return &corev1.ResourceQuota{ObjectMeta: meta(namespace, name), Spec: corev1.ResourceQuotaSpec{Hard: Resources(hard...)}}
}

// Pod begins a Pod with one container, which requests these pairs.
func Pod(namespace, name string, requests ...string) *st.PodWrapper {
	return &st.PodWrapper{Pod: corev1.Pod{
		ObjectMeta: meta(namespace, name),
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "image", Resources: Requests(requests...)}}},
	}}
}

// Node begins a Ready Node of a super cluster with this capacity, as pairs, all of which is allocatable.
func Node(name string, capacity ...string) *st.NodeWrapper {
	return &st.NodeWrapper{Node: corev1.Node{ObjectMeta: meta("", name), Status: corev1.NodeStatus{
		Capacity: Resources(capacity...), Allocatable: Resources(capacity...),
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}}}
}

// VirtualNode begins the Ready virtual Node of a super cluster that offers this, as pairs.
func VirtualNode(id string, offered ...string) *st.NodeWrapper {
	return Node(id, offered...).Label(schedulerv1alpha1.LabelVirtualNode, id).Taints([]corev1.Taint{
		{Key: schedulerv1alpha1.TaintProvider, Value: schedulerv1alpha1.TaintProviderValue, Effect: corev1.TaintEffectNoSchedule},
	})
}
