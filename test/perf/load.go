package perf

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"
	"k8s.io/utils/ptr"

	"github.com/superpool/superpool/test/builders"
)

const (
	// labelRun names the load that a pod belongs to, labelPod the pod in it. Labels go down as they are.
	labelRun = "perf-run"
	labelPod = "perf-pod"
	// creators is how many requests for pods are under way at a time, in each namespace.
	creators = 4
)

// target is where pods are created.
type target struct {
	namespace string
	client    *kubernetes.Clientset
}

// stamps says when what was seen of a pod: by the generator, from watches. Zero is not yet.
type stamps struct {
	sent time.Time
	// target is where the pod was created, and super the super cluster if that is another place.
	target, super moments
}

// moments are when a pod was first seen at a place, when it was Ready there, and when it was gone.
type moments struct{ seen, ready, gone time.Time }

// counts say of how many pods one side has said that they are Ready, or gone.
type counts struct{ ready, gone int }

// load is what is known of the pods of one load.
type load struct {
	run string

	mu            sync.Mutex
	pods          map[string]*stamps
	target, super counts
	// inSuper is whether the super cluster's pods are others than those that were created.
	inSuper           bool
	allReady, allGone chan struct{}
}

func newLoad(run string, inSuper bool) *load {
	return &load{run: run, inSuper: inSuper, pods: map[string]*stamps{}, allReady: make(chan struct{}), allGone: make(chan struct{})}
}

// plan returns the names of the pods to create at each target, in this order.
func (l *load) plan(targets []target, each int) [][]string {
	names := make([][]string, len(targets))
	for i := range targets {
		for j := range each {
			name := fmt.Sprintf("%s-%02d-%05d", l.run, i, j)
			l.pods[name] = &stamps{}
			names[i] = append(names[i], name)
		}
	}
	return names
}

// watch follows the pods of the load in a namespace until ctx ends.
func (l *load) watch(ctx context.Context, client *kubernetes.Clientset, namespace string, seen func(watch.EventType, *corev1.Pod)) error {
	selector := labelRun + "=" + l.run
	pods := client.CoreV1().Pods(namespace)
	list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: selector, Limit: 1})
	if err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	watcher, err := toolswatch.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = selector
			return pods.Watch(ctx, options)
		},
	})
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	go func() {
		for event := range watcher.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok {
				seen(event.Type, pod)
			}
		}
	}()
	return nil
}

// seen notes what a target says of a pod.
func (l *load) seen(kind watch.EventType, pod *corev1.Pod) {
	l.note(kind, pod, &l.target, func(p *stamps) *moments { return &p.target })
}

// seenInSuper notes what the super cluster says of a tenant's pod.
func (l *load) seenInSuper(kind watch.EventType, pod *corev1.Pod) {
	l.note(kind, pod, &l.super, func(p *stamps) *moments { return &p.super })
}

func (l *load) note(kind watch.EventType, pod *corev1.Pod, side *counts, of func(*stamps) *moments) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.pods[pod.Labels[labelPod]]
	if known == nil {
		return
	}
	p := of(known)
	if kind == watch.Deleted {
		p.gone = now
		side.gone++
		l.checkGone()
		return
	}
	if p.seen.IsZero() {
		p.seen = now
	}
	if !p.ready.IsZero() || !isReady(pod) {
		return
	}
	p.ready = now
	if side.ready++; side == &l.target && side.ready == len(l.pods) {
		close(l.allReady)
	}
}

func (l *load) checkGone() {
	if l.target.gone == len(l.pods) && (!l.inSuper || l.super.gone == len(l.pods)) {
		close(l.allGone)
	}
}

func isReady(pod *corev1.Pod) bool {
	for i := range pod.Status.Conditions {
		if condition := &pod.Status.Conditions[i]; condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// create creates one pod.
func (l *load) create(ctx context.Context, to target, name string) error {
	l.mu.Lock()
	l.pods[name].sent = time.Now()
	l.mu.Unlock()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{labelRun: l.run, labelPod: name}},
		Spec: corev1.PodSpec{
			// Tenants have no DNS here, and a pod that asks for it gets an Event each.
			DNSPolicy: corev1.DNSDefault, ServiceAccountName: "default", AutomountServiceAccountToken: ptr.To(false),
			EnableServiceLinks: ptr.To(false), TerminationGracePeriodSeconds: ptr.To[int64](0),
			Containers: []corev1.Container{{Name: "c", Image: "registry.invalid/pause:1", Resources: builders.Requests("cpu", "10m", "memory", "10Mi")}},
		},
	}
	if _, err := to.client.CoreV1().Pods(to.namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating a pod: %w", err)
	}
	return nil
}

// burst creates the pods as fast as the API servers take them.
func (l *load) burst(ctx context.Context, targets []target, names [][]string) error {
	group := failing{}
	for i, to := range targets {
		queue := make(chan string, len(names[i]))
		for _, name := range names[i] {
			queue <- name
		}
		close(queue)
		for range creators {
			group.run(func() error {
				for name := range queue {
					if err := l.create(ctx, to, name); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
	return group.wait()
}

// paced creates so many pods a second, at each target in turn.
func (l *load) paced(ctx context.Context, targets []target, names [][]string, rate float64) error {
	group := failing{}
	begin, count := time.Now(), 0
	for j := range names[0] {
		for i, to := range targets {
			due := begin.Add(time.Duration(float64(count) / rate * float64(time.Second)))
			count++
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Until(due)):
			}
			group.run(func() error { return l.create(ctx, to, names[i][j]) })
		}
	}
	return group.wait()
}

// remove deletes the pods of the load.
func (l *load) remove(ctx context.Context, targets []target) error {
	group := failing{}
	for _, to := range targets {
		group.run(func() error {
			return to.client.CoreV1().Pods(to.namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: labelRun + "=" + l.run})
		})
	}
	return group.wait()
}

// failing is a group of goroutines of which the first error counts.
type failing struct {
	group sync.WaitGroup
	mu    sync.Mutex
	err   error
}

func (f *failing) run(do func() error) {
	f.group.Go(func() {
		if err := do(); err != nil {
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.err == nil {
				f.err = err
			}
		}
	})
}

func (f *failing) wait() error {
	f.group.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// ensureAccount waits for the service account of pods that name none, or makes it where no controller does.
func ensureAccount(ctx context.Context, to target, controllers bool) error {
	accounts := to.client.CoreV1().ServiceAccounts(to.namespace)
	if !controllers {
		_, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		_, err := accounts.Get(ctx, "default", metav1.GetOptions{})
		return err == nil, nil
	})
}
