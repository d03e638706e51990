package superclusters

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/engage"
)

// foreignPods selects the pods that use capacity of the pool: assigned to a node, not ended, and not made by a syncer.
const (
	foreignPodLabels = "!" + tenancyv1alpha1.LabelCluster
	syncTimeout      = time.Minute
)

// runInformers feeds ledger from informers on a super cluster's nodes and pods until ctx ends. It calls work once the
// caches are filled. All that it started has ended when it returns. dirty is called after every change.
func runInformers(ctx context.Context, client kubernetes.Interface, ledger *Ledger, dirty func(), work func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel(nil)

	var failures lastError
	nodes := coreinformers.NewNodeInformer(client, 0, cache.Indexers{})
	pods := coreinformers.NewFilteredPodInformer(client, metav1.NamespaceAll, 0, cache.Indexers{}, func(options *metav1.ListOptions) {
		options.LabelSelector = foreignPodLabels
		options.FieldSelector = fields.AndSelectors(
			fields.OneTermNotEqualSelector("spec.nodeName", ""),
			fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
			fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
		).String()
	})
	if err := errors.Join(
		nodes.SetTransform(engage.Transform(ctx, "trimming nodes", cancel, trimNode)),
		pods.SetTransform(engage.Transform(ctx, "trimming pods", cancel, trimPod)),
		nodes.SetWatchErrorHandlerWithContext(failures.record), pods.SetWatchErrorHandlerWithContext(failures.record),
	); err != nil {
		return fmt.Errorf("preparing informers: %w", err)
	}
	synced, err := handle(nodes, pods, ledger, func(change func() bool) {
		defer engage.Recover(ctx, "informer", cancel)
		if change() {
			dirty()
		}
	})
	if err != nil {
		return err
	}
	running.Go(func() { nodes.RunWithContext(ctx) })
	running.Go(func() { pods.RunWithContext(ctx) })

	waiting, stop := context.WithTimeout(ctx, syncTimeout)
	defer stop()
	if !cache.WaitForCacheSync(waiting.Done(), synced...) {
		if err := panicOf(ctx); err != nil {
			return err
		}
		if err := failures.get(); err != nil {
			return fmt.Errorf("reading nodes and pods: %w", err)
		}
		return fmt.Errorf("reading nodes and pods: not finished in %s", syncTimeout)
	}
	err = work(ctx)
	if panicked := panicOf(ctx); panicked != nil {
		return panicked
	}
	return err
}

// panicOf returns the panic of an event handler that cancelled ctx, nil for none.
func panicOf(ctx context.Context) error {
	var panicked *engage.Failure
	if errors.As(context.Cause(ctx), &panicked) {
		return panicked
	}
	return nil
}

// handle connects the informers with the ledger. Each change of the ledger is a call of apply, which makes it.
func handle(nodes, pods cache.SharedIndexInformer, ledger *Ledger, apply func(func() bool)) ([]cache.InformerSynced, error) {
	ofNodes, err := nodes.AddEventHandler(engage.ObjectHandler(
		func(node *corev1.Node) { apply(func() bool { return ledger.SetNode(node) }) },
		func(node *corev1.Node) { apply(func() bool { return ledger.DeleteNode(node.Name) }) }))
	if err != nil {
		return nil, fmt.Errorf("watching nodes: %w", err)
	}
	ofPods, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { apply(func() bool { return ledger.SetPod(object.(*corev1.Pod)) }) },
		UpdateFunc: func(before, object any) {
			was, pod := before.(*corev1.Pod), object.(*corev1.Pod)
			if was.UID != pod.UID { // deleted and made again between two lists
				apply(func() bool { return ledger.DeletePod(was.UID) })
			}
			apply(func() bool { return ledger.SetPod(pod) })
		},
		DeleteFunc: func(object any) {
			if pod, ok := engage.Object[*corev1.Pod](object); ok {
				apply(func() bool { return ledger.DeletePod(pod.UID) })
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watching pods: %w", err)
	}
	return []cache.InformerSynced{ofNodes.HasSynced, ofPods.HasSynced}, nil
}

// trimNode keeps of a node what the ledger reads.
func trimNode(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	trimmed := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion, Labels: map[string]string{}},
		Spec:       corev1.NodeSpec{Unschedulable: node.Spec.Unschedulable, Taints: node.Spec.Taints},
		Status:     corev1.NodeStatus{Allocatable: node.Status.Allocatable},
	}
	for _, key := range []string{corev1.LabelTopologyRegion, corev1.LabelTopologyZone} {
		if value, exists := node.Labels[key]; exists {
			trimmed.Labels[key] = value
		}
	}
	for i := range node.Status.Conditions {
		if condition := node.Status.Conditions[i]; condition.Type == corev1.NodeReady {
			trimmed.Status.Conditions = []corev1.NodeCondition{{Type: condition.Type, Status: condition.Status}}
		}
	}
	return trimmed, nil
}

// trimPod keeps of a pod what Requests reads, and its node.
func trimPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion},
		Spec: corev1.PodSpec{
			NodeName:       pod.Spec.NodeName,
			InitContainers: trimContainers(pod.Spec.InitContainers),
			Containers:     trimContainers(pod.Spec.Containers),
			Overhead:       pod.Spec.Overhead,
			Resources:      pod.Spec.Resources,
		},
	}, nil
}

func trimContainers(containers []corev1.Container) []corev1.Container {
	trimmed := make([]corev1.Container, 0, len(containers))
	for i := range containers {
		trimmed = append(trimmed, corev1.Container{
			Name:          containers[i].Name,
			Resources:     corev1.ResourceRequirements{Requests: containers[i].Resources.Requests},
			RestartPolicy: containers[i].RestartPolicy,
		})
	}
	return trimmed
}

// lastError remembers why an informer could not list or watch.
type lastError struct {
	mu  sync.Mutex
	err error
}

func (l *lastError) record(ctx context.Context, reflector *cache.Reflector, err error) {
	l.mu.Lock()
	l.err = err
	l.mu.Unlock()
	cache.DefaultWatchErrorHandler(ctx, reflector, err)
}

func (l *lastError) get() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}
