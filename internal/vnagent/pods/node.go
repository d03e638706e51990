package pods

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/superpool/superpool/internal/tenancy"
)

const (
	// shortestPause and longestPause bound the time from one reading of the kubelet's pods to the next. Between them it
	// is pauseFactor times what the reading took: so a tenant whose pods are large, or who asks for pods that are not
	// there, takes a tenth of a core at most, here and in the kubelet, while a reading takes up to a second. Slower
	// ones take more: who waits for a pod that is new is not to wait for longer than longestPause.
	shortestPause, longestPause = 200 * time.Millisecond, 10 * time.Second
	pauseFactor                 = 10
)

// Node finds the pods of tenants among those that the kubelet of a node has, so that no right at the API server is
// needed. It reads them when it is asked, and remembers them until the next reading may begin. It is safe for
// concurrent use.
type Node struct {
	read func(context.Context) ([]*corev1.Pod, error)
	// turn holds one element while somebody reads, or waits until they may.
	turn chan struct{}

	mu sync.Mutex
	// last is the reading that ended last, nil before the first and while the next is made: two are not held at a time.
	last *reading
}

// reading is what the kubelet answered once. It is read-only.
type reading struct {
	// began is when it was asked, and until is when the next reading may begin.
	began, until time.Time
	// pods holds the pods of tenants by podKey, and byTenant by cluster key, sorted.
	pods     map[string]Pod
	byTenant map[string][]Pod
	err      error
}

// NewNode returns the pods of the node whose kubelet read asks. read returns without its context's end in bounded time.
func NewNode(read func(context.Context) ([]*corev1.Pod, error)) *Node {
	return &Node{read: read, turn: make(chan struct{}, 1)}
}

// Get returns the pod that the tenant knows as namespace/name, or ErrNotFound if the kubelet did not have it at a time
// after the call. Any other error is the kubelet's or ctx's.
func (n *Node) Get(ctx context.Context, clusterKey, namespace, name string) (Pod, error) {
	now := time.Now()
	key := podKey(clusterKey, namespace, name)
	if found := n.remembered(now); found != nil {
		if pod, exists := found.pods[key]; exists {
			return pod, nil
		}
	}
	found, err := n.since(ctx, now)
	if err != nil {
		return Pod{}, err
	}
	pod, exists := found.pods[key]
	if !exists {
		return Pod{}, ErrNotFound
	}
	return pod, nil
}

// List returns the tenant's pods, ordered by the tenant's namespace and name.
func (n *Node) List(ctx context.Context, clusterKey string) ([]Pod, error) {
	found, err := n.current(ctx)
	if err != nil {
		return nil, err
	}
	return slices.Clone(found.byTenant[clusterKey]), nil
}

// Ready returns why the kubelet does not say which pods it has; nil where it does.
func (n *Node) Ready(ctx context.Context) error {
	_, err := n.current(ctx)
	return err
}

// current returns the reading that is remembered, or else the next one.
func (n *Node) current(ctx context.Context) (*reading, error) {
	now := time.Now()
	if found := n.remembered(now); found != nil {
		return found, nil
	}
	return n.since(ctx, now)
}

// remembered returns the last reading, nil if the next one may begin at now, or if it is an error.
func (n *Node) remembered(now time.Time) *reading {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.last == nil || n.last.err != nil || !now.Before(n.last.until) {
		return nil
	}
	return n.last
}

// since returns a reading that began after that time. It waits for one that may begin, and for others that wait.
func (n *Node) since(ctx context.Context, begin time.Time) (*reading, error) {
	select {
	case n.turn <- struct{}{}:
		defer func() { <-n.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	n.mu.Lock()
	last := n.last
	n.mu.Unlock()
	if last != nil && last.began.After(begin) {
		return last, last.err
	}
	if last != nil {
		pause := time.NewTimer(time.Until(last.until))
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	n.setLast(nil)
	// Others may wait for the answer, and one who does not is not to make us ask again.
	next := n.ask(context.WithoutCancel(ctx))
	n.setLast(next)
	return next, next.err
}

func (n *Node) setLast(last *reading) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last = last
}

// ask asks the kubelet.
func (n *Node) ask(ctx context.Context) *reading {
	asked := &reading{began: time.Now(), pods: map[string]Pod{}, byTenant: map[string][]Pod{}}
	var all []*corev1.Pod
	all, asked.err = n.read(ctx)
	for _, pod := range all {
		asked.add(pod)
	}
	for _, pod := range asked.pods {
		asked.byTenant[pod.Owner.ClusterKey] = append(asked.byTenant[pod.Owner.ClusterKey], pod)
	}
	for _, own := range asked.byTenant {
		sortPods(own)
	}
	now := time.Now()
	asked.until = now.Add(min(max(pauseFactor*now.Sub(asked.began), shortestPause), longestPause))
	return asked
}

// add adds a pod that has an owner. Of two with one name, of which one has not ended yet, the younger one counts.
func (r *reading) add(pod *corev1.Pod) {
	owner, complete := tenancy.GetOwner(pod)
	if !complete {
		return
	}
	key := podKey(owner.ClusterKey, owner.Namespace, pod.Name)
	if other, exists := r.pods[key]; exists && pod.CreationTimestamp.Before(&other.Super.CreationTimestamp) {
		return
	}
	r.pods[key] = Pod{Super: pod, Owner: owner}
}
