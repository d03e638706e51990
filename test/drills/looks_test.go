//go:build drills

package drills_test

import (
	"context"
	"encoding/json"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
)

// What a drill looks at: of the tenant, of the meta cluster, of super clusters.

// placements are those of the tenant's annotation.
func (b *bed) placements(namespace string) get[map[string]int] {
	return func(ctx context.Context) (map[string]int, error) {
		object := &corev1.Namespace{}
		if err := b.tenant.Get(ctx, client.ObjectKey{Name: namespace}, object); err != nil {
			return nil, err
		}
		var placements map[string]int
		return placements, json.Unmarshal([]byte(object.Annotations[schedulerv1alpha1.AnnotationPlacements]), &placements)
	}
}

// pods returns the tenant's pods of the Deployment, or a part of them.
func (b *bed) pods(ctx context.Context, which func(*corev1.Pod) bool) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := b.tenant.List(ctx, &list, client.InNamespace("web"), client.MatchingLabels{"app": "web"})
	return slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return !which(&pod) }), err
}

func all(*corev1.Pod) bool { return true }

func stay(pod *corev1.Pod) bool { return pod.DeletionTimestamp == nil }

func leave(pod *corev1.Pod) bool { return !stay(pod) }

// sorted returns something of each pod.
func sorted(pods []corev1.Pod, of func(*corev1.Pod) string) []string {
	var values []string
	for i := range pods {
		values = append(values, of(&pods[i]))
	}
	slices.Sort(values)
	return values
}

// where are the super clusters of the pods that run and do not end.
func (b *bed) where(ctx context.Context) ([]string, error) {
	pods, err := b.pods(ctx, func(pod *corev1.Pod) bool { return stay(pod) && pod.Status.Phase == corev1.PodRunning })
	return sorted(pods, func(pod *corev1.Pod) string { return pod.Annotations[schedulerv1alpha1.AnnotationSuperCluster] }), err
}

// nodes are the tenant's nodes of the pods that do not end.
func (b *bed) nodes(ctx context.Context) ([]string, error) {
	pods, err := b.pods(ctx, stay)
	return sorted(pods, func(pod *corev1.Pod) string { return pod.Spec.NodeName }), err
}

func (b *bed) uids(ctx context.Context) ([]string, error) {
	pods, err := b.pods(ctx, all)
	return sorted(pods, func(pod *corev1.Pod) string { return string(pod.UID) }), err
}

// count is how many of the tenant's pods there are, leaving how many of them end.
func (b *bed) count(ctx context.Context) (int, error) {
	pods, err := b.pods(ctx, all)
	return len(pods), err
}

func (b *bed) leaving(ctx context.Context) (int, error) {
	pods, err := b.pods(ctx, leave)
	return len(pods), err
}

// hasEvent is whether the namespace has an Event of a reason.
func (b *bed) hasEvent(reason string) get[bool] {
	return func(ctx context.Context) (bool, error) {
		var events corev1.EventList
		err := b.tenant.List(ctx, &events, client.InNamespace("web"))
		return slices.ContainsFunc(events.Items, func(event corev1.Event) bool { return event.Reason == reason }), err
	}
}

// nodeReady is the status of condition Ready of the tenant's first node in a super cluster.
func (b *bed) nodeReady(id string) get[corev1.ConditionStatus] {
	return status(b.tenant, id+".node-1", corev1.NodeReady)
}

func (b *bed) virtualNodeReady(id string) get[corev1.ConditionStatus] {
	return status(b.meta, id, corev1.NodeReady)
}

// drained is that of condition Drained of a virtual Node.
func (b *bed) drained(id string) get[corev1.ConditionStatus] {
	return status(b.meta, id, schedulerv1alpha1.NodeDrained)
}

// status is that of a condition of a Node, "" if there is none.
func status(at client.Client, name string, condition corev1.NodeConditionType) get[corev1.ConditionStatus] {
	return func(ctx context.Context) (corev1.ConditionStatus, error) {
		node := &corev1.Node{}
		err := at.Get(ctx, client.ObjectKey{Name: name}, node)
		for i := range node.Status.Conditions {
			if node.Status.Conditions[i].Type == condition {
				return node.Status.Conditions[i].Status, err
			}
		}
		return "", err
	}
}

// taints are the keys of those of a virtual Node. That a super cluster answers again is in its conditions first.
func (b *bed) taints(id string) get[[]string] {
	return func(ctx context.Context) ([]string, error) {
		node := &corev1.Node{}
		err := b.meta.Get(ctx, client.ObjectKey{Name: id}, node)
		var keys []string
		for _, taint := range node.Spec.Taints {
			keys = append(keys, taint.Key)
		}
		return keys, err
	}
}

// hasVirtualNode is whether a super cluster has one.
func (b *bed) hasVirtualNode(id string) get[bool] {
	return func(ctx context.Context) (bool, error) {
		err := b.meta.Get(ctx, client.ObjectKey{Name: id}, &corev1.Node{})
		return err == nil, client.IgnoreNotFound(err)
	}
}

// reserved are the super clusters where a namespace has anything.
func (b *bed) reserved(namespace string) get[[]string] {
	return func(ctx context.Context) ([]string, error) {
		np := &schedulerv1alpha1.NamespacePlacement{}
		err := b.meta.Get(ctx, client.ObjectKey{Namespace: b.key, Name: namespace}, np)
		var ids []string
		for i := range np.Status.Placements {
			ids = append(ids, np.Status.Placements[i].Cluster)
		}
		slices.Sort(ids)
		return ids, err
	}
}

// inSuper is how many pods a namespace has in a super cluster, running how many of them run.
func (b *bed) inSuper(id, namespace string) get[int] { return b.inPhase(id, namespace, "") }

func (b *bed) running(id, namespace string) get[int] {
	return b.inPhase(id, namespace, corev1.PodRunning)
}

func (b *bed) inPhase(id, namespace string, phase corev1.PodPhase) get[int] {
	return func(ctx context.Context) (int, error) {
		var pods corev1.PodList
		err := b.supers[id].Client.List(ctx, &pods, client.InNamespace(tenancy.SuperNamespace(b.key, namespace)))
		return len(slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return phase != "" && pod.Status.Phase != phase })), err
	}
}

// instance is the StatefulSet's pod.
type instance struct {
	UID   types.UID
	Node  string
	Phase corev1.PodPhase
	Ends  bool
}

func instanceOf(pod *corev1.Pod) instance {
	return instance{UID: pod.UID, Node: pod.Spec.NodeName, Phase: pod.Status.Phase, Ends: pod.DeletionTimestamp != nil}
}

// database is the StatefulSet's pod; the zero value if there is none.
func (b *bed) database(ctx context.Context) (instance, error) {
	pod := &corev1.Pod{}
	if err := b.tenant.Get(ctx, client.ObjectKey{Namespace: "db", Name: "db-0"}, pod); err != nil {
		return instance{}, client.IgnoreNotFound(err)
	}
	return instanceOf(pod), nil
}

// databaseRuns is where it runs, "" if it does not.
func (b *bed) databaseRuns(ctx context.Context) (string, error) {
	found, err := b.database(ctx)
	if found.Phase != corev1.PodRunning || found.Ends {
		return "", err
	}
	return found.Node, err
}

// tries is what a Job has tried.
type tries struct{ Succeeded, Active, Pods int }

// job is how often the Job has succeeded, how many pods of it run, and how many it has made.
func (b *bed) job(ctx context.Context) (tries, error) {
	job := &batchv1.Job{}
	if err := b.tenant.Get(ctx, client.ObjectKey{Namespace: "db", Name: "once"}, job); err != nil {
		return tries{}, err
	}
	tried := tries{Succeeded: int(job.Status.Succeeded), Active: int(job.Status.Active)}
	var events corev1.EventList
	err := b.tenant.List(ctx, &events, client.InNamespace("db"))
	for i := range events.Items {
		if event := &events.Items[i]; event.Reason == "SuccessfulCreate" && event.InvolvedObject.Kind == "Job" {
			tried.Pods++
		}
	}
	return tried, err
}
