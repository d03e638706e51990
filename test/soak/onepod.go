package soak

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/tenancy"
)

// onePod watches that no pod of a tenant is in two super clusters.
type onePod struct {
	supers []*cluster

	mu sync.Mutex
	// where holds the super pods of each pod, by super cluster, but for those that are being deleted.
	where map[types.UID]map[string]*corev1.Pod
	seen  int
	twice map[string]bool
}

func newOnePod(supers []*cluster) *onePod {
	return &onePod{supers: supers, where: map[types.UID]map[string]*corev1.Pod{}, twice: map[string]bool{}}
}

// run watches until ctx ends.
func (o *onePod) run(ctx context.Context) error {
	for i, super := range o.supers {
		factory := informers.NewSharedInformerFactory(super.typed, 0)
		if _, err := factory.Core().V1().Pods().Informer().AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { o.changed(ctx, i, object, false) },
			UpdateFunc: func(_, object any) { o.changed(ctx, i, object, false) },
			DeleteFunc: func(object any) {
				if unknown, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
					object = unknown.Obj
				}
				o.changed(ctx, i, object, true)
			},
		}); err != nil {
			return fmt.Errorf("watching the pods of %s: %w", super.name, err)
		}
		factory.StartWithContext(ctx)
		factory.WaitForCacheSync(ctx.Done())
	}
	return nil
}

func (o *onePod) changed(ctx context.Context, in int, object any, gone bool) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	owner, owned := tenancy.GetOwner(pod)
	if !owned {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	there := o.where[owner.UID]
	if there == nil {
		there = map[string]*corev1.Pod{}
		o.where[owner.UID] = there
		o.seen++
	}
	if gone || pod.DeletionTimestamp != nil || ended(pod) {
		if last := there[o.supers[in].name]; last != nil && last.UID == pod.UID {
			delete(there, o.supers[in].name)
		}
		return
	}
	there[o.supers[in].name] = pod
	if len(there) > 1 {
		o.ask(ctx, owner.UID, there)
	}
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// ask reads live what the watches say: the one of a super cluster may be behind that of another.
func (o *onePod) ask(ctx context.Context, uid types.UID, there map[string]*corev1.Pod) {
	var alive []string
	for _, super := range o.supers {
		pod := there[super.name]
		if pod == nil {
			continue
		}
		live := &corev1.Pod{}
		if err := super.client.Get(ctx, client.ObjectKeyFromObject(pod), live); err != nil || live.UID != pod.UID || live.DeletionTimestamp != nil || ended(live) {
			continue
		}
		alive = append(alive, fmt.Sprintf("%s since %s", super.name, live.CreationTimestamp.UTC().Format("15:04:05")))
	}
	if len(alive) > 1 {
		o.twice[fmt.Sprintf("the pod with UID %s is in two super clusters: %v", uid, alive)] = true
	}
}

// count returns how many pods of tenants were in super clusters.
func (o *onePod) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.seen
}

// findings returns which pods were in two super clusters, sorted.
func (o *onePod) findings() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []string
	for finding := range o.twice {
		all = append(all, finding)
	}
	slices.Sort(all)
	return all
}
