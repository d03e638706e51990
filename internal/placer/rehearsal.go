package placer

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/refusal"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/slicepod"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/plugins/namespacegang"
)

// rehearsalPatience bounds how long one namespace of a Rehearsal may take. It is longer than NamespaceGang holds a
// slice at most.
const rehearsalPatience = 2 * time.Minute

// drainPatience is how long the end of a Rehearsal waits for the scheduler's queue. It takes milliseconds.
const drainPatience = 5 * time.Second

// Rehearsal places NamespacePlacements in memory, as a Placer of a pool in this state would, and writes nowhere: it
// runs one and takes its decisions. It tries one namespace at a time, in the order of the Placer's queue, so that equal
// inputs give equal results: the Placer itself may try a namespace while another one still holds slices that it is
// about to release. Capacity is never freed, so trying each namespace once is enough.
type Rehearsal struct {
	// Config holds the profiles.
	Config *config.KubeSchedulerConfiguration
	// Nodes are the virtual Nodes.
	Nodes []*corev1.Node
	// Placements are all NamespacePlacements of the pool: what they reserve is taken. Their UIDs differ. They are not
	// changed.
	Placements []*schedulerv1alpha1.NamespacePlacement
	// Tried reports whether a NamespacePlacement is to be tried if a part of it is missing. Nil: all are.
	Tried func(*schedulerv1alpha1.NamespacePlacement) bool
}

// Outcome is what a Rehearsal came to about one NamespacePlacement.
type Outcome struct {
	// Placement is what the NamespacePlacement would be.
	Placement *schedulerv1alpha1.NamespacePlacement
	// Why is why what is missing fits nowhere, the zero Refusal if nothing is missing or it was not tried.
	Why refusal.Refusal
}

// Run returns the outcome of each of Placements, in their order.
func (r *Rehearsal) Run(ctx context.Context) ([]Outcome, error) {
	s, end, err := r.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	outcomes := make([]Outcome, len(r.Placements))
	for i, np := range r.Placements {
		outcomes[i].Placement = np
	}
	for _, i := range r.Order() {
		// What is displaced comes first, or a request, and what the quota has grown by then.
		for tries := true; tries && len(placement.Missing(outcomes[i].Placement)) > 0; {
			before := outcomes[i].Placement
			if outcomes[i], err = s.try(ctx, before); err != nil {
				return nil, fmt.Errorf("placing %s: %w", client.ObjectKeyFromObject(r.Placements[i]), err)
			}
			tries = outcomes[i].Why.IsZero() || len(placement.Pinned(before)) > 0
		}
	}
	return outcomes, nil
}

// begin runs a Placer of the pool in which nothing waits, until end is called.
func (r *Rehearsal) begin(ctx context.Context) (s *stage, end func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	s = &stage{reserved: map[types.NamespacedName]int{}, decided: make(chan decision, 1)}
	s.placer = &Placer{Namespaces: view.NewNamespaces(), Nodes: view.NewNodeSource(), Config: r.Config, Sink: s}
	s.placer.erred = func(gang string, err error) { s.decide(gang, decision{err: err}) }
	for _, node := range r.Nodes {
		s.placer.Nodes.Set(node.Name, view.NamespaceNode(node))
	}
	for _, np := range r.Placements {
		s.project(held(np))
	}
	sched, factory, err := s.placer.build(ctx)
	if err != nil {
		cancel()
		return nil, nil, err
	}
	s.cache = sched.Cache
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		run(ctx, sched, factory)
	}()
	return s, func() {
		drain(ctx, sched, factory)
		cancel()
		<-ended
		left, _ := sched.SchedulingQueue.PendingPods()
		for _, pod := range left { // whose deletion was not heard any more
			sched.SchedulingQueue.Delete(klog.FromContext(ctx), pod)
		}
	}, nil
}

// drain waits until nothing waits in the scheduler's queue and nothing is tried: the metrics of all kube-schedulers of
// a process are one, and count for good what is left there. No slice that waits is projected any more. One whose
// deletion the queue was told of while it was tried is queued again after that, and it is deleted here.
func drain(ctx context.Context, sched *scheduler.Scheduler, factory informers.SharedInformerFactory) {
	lister := factory.Core().V1().Pods().Lister()
	err := wait.PollUntilContextTimeout(ctx, 50*time.Microsecond, drainPatience, true, func(context.Context) (bool, error) {
		queued, _ := sched.SchedulingQueue.PendingPods()
		for _, pod := range queued {
			if _, err := lister.Pods(pod.Namespace).Get(pod.Name); apierrors.IsNotFound(err) {
				sched.SchedulingQueue.Delete(klog.FromContext(ctx), pod)
			}
		}
		if len(queued) > 0 || len(sched.SchedulingQueue.InFlightPods()) > 0 {
			return false, nil
		}
		pods, err := lister.List(labels.Everything())
		return !slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return pod.Spec.NodeName == "" }), err //nolint:wrapcheck // it never fails
	})
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Slices of a rehearsal are queued still", "err", err)
	}
}

// Order returns the indexes of what waits in Placements and is to be tried, in the order of the Placer's queue: what it
// would try first if it tried all now. What it refused lately it tries when there may be room for it.
func (r *Rehearsal) Order() []int {
	queue, indexes := view.NewNamespaces(), map[types.NamespacedName]int{}
	for i, np := range r.Placements {
		if len(placement.Missing(np)) > 0 && (r.Tried == nil || r.Tried(np)) {
			queue.Set(np)
			indexes[client.ObjectKeyFromObject(np)] = i
		}
	}
	list, err := queue.Pods().List(metav1.ListOptions{})
	utilruntime.Must(err) // it fails for kinds without items only
	var waiting []*corev1.Pod
	for i := range list.(*corev1.PodList).Items {
		if pod := &list.(*corev1.PodList).Items[i]; slicepod.IsFirst(pod) {
			waiting = append(waiting, pod)
		}
	}
	slices.SortFunc(waiting, namespacegang.Compare)
	order := make([]int, len(waiting))
	for i, pod := range waiting {
		order[i] = indexes[slicepod.PlacementOf(slicepod.GangName(pod))]
	}
	return order
}

// held returns np with nothing that waits to be placed. What it is nominated for is kept for it.
func held(np *schedulerv1alpha1.NamespacePlacement) *schedulerv1alpha1.NamespacePlacement {
	np = np.DeepCopy()
	if nominated := np.Status.Nominated; nominated != nil {
		granted := map[string]slice.Amounts{}
		for i := range nominated.Placements {
			granted[nominated.Placements[i].Cluster] = slice.Of(nominated.Placements[i].Reserved)
		}
		np.Status, _, _ = placement.Next(np, placement.Facts{Granted: granted})
	}
	np.Spec.Quota = nil
	return np
}

// stage is the Sink of a Rehearsal, and what surrounds its Placer.
type stage struct {
	placer *Placer
	cache  cache.Cache
	// reserved is the number of Pods that stand for reservations, by NamespacePlacement, and total their sum.
	reserved map[types.NamespacedName]int
	total    int

	mu sync.Mutex
	// tried is the gang that waits for a decision, and decided receives it.
	tried   string
	decided chan decision
}

// decision is where the slices of a gang go, why one of them fits nowhere, or what went wrong.
type decision struct {
	assignments []namespacegang.Assignment
	why         refusal.Refusal
	err         error
}

// Commit implements Sink.
func (s *stage) Commit(_ context.Context, gang string, assignments []namespacegang.Assignment) error {
	if !s.decide(gang, decision{assignments: assignments}) {
		return fmt.Errorf("gang %s is not tried any more", gang)
	}
	return nil
}

// Refuse implements Sink.
func (s *stage) Refuse(_ context.Context, gang string, why refusal.Refusal) error {
	s.decide(gang, decision{why: why})
	return nil
}

// decide takes the first decision about the gang that is tried: what comes after a refusal follows from it. It returns
// false for any other.
func (s *stage) decide(gang string, made decision) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if gang == "" || gang != s.tried {
		return false
	}
	s.tried = ""
	s.decided <- made
	return true
}

// try places one NamespacePlacement.
func (s *stage) try(ctx context.Context, np *schedulerv1alpha1.NamespacePlacement) (Outcome, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, rehearsalPatience, fmt.Errorf("no decision within %s", rehearsalPatience))
	defer cancel()
	s.mu.Lock()
	s.tried = view.Gang(np)
	s.mu.Unlock()
	s.placer.Namespaces.Set(np.DeepCopy())
	var made decision
	select {
	case made = <-s.decided:
	case <-ctx.Done():
		made.err = context.Cause(ctx)
	}
	if made.err != nil {
		s.project(held(np))
		return Outcome{}, made.err
	}
	granted := map[string]slice.Amounts{}
	for _, a := range made.assignments {
		granted[a.Cluster] = granted[a.Cluster].Plus(slicepod.AmountsOf(a.Pod))
	}
	outcome := Outcome{Placement: np.DeepCopy(), Why: made.why}
	outcome.Placement.Status, _, _ = placement.Next(np, placement.Facts{Granted: granted, Unschedulable: made.why.Message})
	wanted := s.project(held(outcome.Placement))
	return outcome, s.settle(ctx, wanted)
}

// project feeds the Placer what np reserves, and returns the Pods that stand for it.
func (s *stage) project(np *schedulerv1alpha1.NamespacePlacement) []client.Object {
	s.placer.Namespaces.Set(np)
	wanted := view.Slices(np)
	key := client.ObjectKeyFromObject(np)
	s.total += len(wanted) - s.reserved[key]
	s.reserved[key] = len(wanted)
	return wanted
}

// settle waits until the scheduler counts exactly what is reserved: wanted, and of all others as many as before.
func (s *stage) settle(ctx context.Context, wanted []client.Object) error {
	err := wait.PollUntilContextCancel(ctx, 50*time.Microsecond, true, func(context.Context) (bool, error) {
		if count, err := s.cache.PodCount(); err != nil || count != s.total {
			return false, err //nolint:wrapcheck // it never fails
		}
		return !slices.ContainsFunc(wanted, func(object client.Object) bool {
			pod := object.(*corev1.Pod)
			known, err := s.cache.GetPod(pod)
			return err != nil || !equality.Semantic.DeepEqual(known.Spec, pod.Spec) || !equality.Semantic.DeepEqual(known.Labels, pod.Labels)
		}), nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the scheduler: %w", context.Cause(ctx))
	}
	return nil
}
