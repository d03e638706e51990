// Package placer decides where the slices of tenant namespaces go: a kube-scheduler whose Nodes are the super clusters
// and whose Pods are projected from NamespacePlacements. It reads both from views and passes decisions and refusals to
// a Sink, so it runs without an API server. vc-scheduler feeds the views from informers and writes decisions into the
// status of NamespacePlacements; tests do both in memory.
package placer

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/superpool/superpool/internal/kubescheduler"
	"github.com/superpool/superpool/internal/refusal"
	"github.com/superpool/superpool/internal/slicepod"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/plugins"
	"github.com/superpool/superpool/plugins/namespacegang"
)

// Sink receives the decisions and refusals of a Placer. Its methods are called from several goroutines, but never twice
// at a time for one gang's decision, and the Placer waits for them: one that is slow holds up other namespaces.
type Sink interface {
	// Committer stores decisions. The Sink projects what it stored into Namespaces, before Commit returns or later.
	namespacegang.Committer
	// Refuse reports why a gang cannot be placed. It is called for each slice of the gang that fits nowhere and again
	// with each further try, so mostly with what was reported before. An error is logged; the next try calls it again.
	Refuse(ctx context.Context, gang string, why refusal.Refusal) error
}

// Placer places all gangs in Namespaces onto Nodes. The same content of both, and the same order of changes, gives the
// same decisions, as long as no gang has to release slices that it held while another one was tried.
type Placer struct {
	// Namespaces projects the NamespacePlacements. The caller owns and feeds it. The Placer marks the slices of a
	// committed decision as bound, until the caller projects what was stored.
	Namespaces *view.Namespaces
	// Nodes holds the virtual Nodes as view.NamespaceNode makes them. The caller owns and feeds it.
	Nodes *view.Source
	// Config holds the profiles. A gang names the one that serves it.
	Config *config.KubeSchedulerConfiguration
	// Sink takes decisions and refusals.
	Sink Sink
	// KubeConfig leads to the cluster where plugins of the profiles find objects other than Pods and Nodes. Nil: no API
	// server is asked, and there are no such objects.
	KubeConfig *rest.Config

	// filterEach filters each slice anew, as equal as it may be to the one before.
	filterEach bool
	// erred is told what else kept a slice from being placed. Nil: nobody is.
	erred func(gang string, err error)
	// queued reports whether the scheduler's queue holds a Pod.
	queued func(types.NamespacedName) bool
	// waken tries all gangs that wait, however often they were refused, and woken is when it last began to.
	waken func()
	woken atomic.Pointer[time.Time]
}

// expandPatience is how long Expand waits for the scheduler's queue. It takes milliseconds.
const expandPatience = time.Second

// Run places what is in Namespaces and what is added, until ctx ends. The caller fills the sources first: the first
// decision counts what they hold when Run is called.
func (p *Placer) Run(ctx context.Context) error {
	sched, factory, err := p.build(ctx)
	if err != nil {
		return err
	}
	run(ctx, sched, factory)
	return nil
}

// build builds the scheduler and the informers that it reads from. Neither is started.
func (p *Placer) build(ctx context.Context) (*scheduler.Scheduler, informers.SharedInformerFactory, error) {
	kubeConfig := p.KubeConfig
	if kubeConfig == nil {
		kubeConfig = emptyCluster()
	}
	api, err := kubernetes.NewForConfig(kubeConfig)
	if err != nil {
		return nil, nil, fmt.Errorf("building a client for plugins: %w", err)
	}
	factory := p.informers(api)
	gangs := namespacegang.NewState()
	sched, err := kubescheduler.Instance{
		Client:     sliceClient{api},
		KubeConfig: kubeConfig,
		Informers:  factory,
		Config:     p.Config,
		Plugins:    plugins.Options{Committer: committer{p}, Gangs: gangs},
		Recorders:  kubescheduler.NoEvents,
		Failed:     p.failed,
		EqualPods:  !p.filterEach, KeepNominations: true,
	}.Build(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("building the namespace scheduler: %w", err)
	}
	kubescheduler.BeforeSnapshot(sched, func(pod *corev1.Pod) {
		if slicepod.IsFirst(pod) {
			gangs.Settle(ctx, func(released *corev1.Pod) bool {
				counted, err := sched.Cache.IsAssumedPod(released)
				return err == nil && counted
			})
		}
	})
	p.waken = func() {
		now := time.Now()
		p.woken.Store(&now)
		pods, err := factory.Core().V1().Pods().Lister().List(labels.Everything())
		utilruntime.Must(err) // a lister fails on an invalid selector only
		waiting := map[string]*corev1.Pod{}
		for _, pod := range pods {
			if pod.Spec.NodeName == "" && slicepod.IsFirst(pod) {
				waiting[pod.Namespace+"/"+pod.Name] = pod
			}
		}
		sched.SchedulingQueue.Activate(klog.FromContext(ctx), waiting)
	}
	p.wakeReturning(sched)
	p.queued = func(pod types.NamespacedName) bool {
		_, exists := sched.SchedulingQueue.GetPod(pod.Name, pod.Namespace, nil)
		return exists
	}
	return sched, factory, nil
}

// wakeReturning lets waken reach the first slice of a gang that is in no queue, because it is being tried, waits for
// the others of its gang, or is being released: kube-scheduler notes for such a Pod that it was activated, and lets it
// wait for its backoff all the same.
func (p *Placer) wakeReturning(sched *scheduler.Scheduler) {
	kubescheduler.WrapFailureHandler(sched, func(next scheduler.FailureHandlerFn) scheduler.FailureHandlerFn {
		return func(
			ctx context.Context, profile framework.Framework, pod *framework.QueuedPodInfo, status *fwk.Status,
			nominating *fwk.NominatingInfo, start time.Time,
		) {
			next(ctx, profile, pod, status, nominating, start)
			if woken := p.woken.Load(); woken != nil && !woken.Before(start) && slicepod.IsFirst(pod.Pod) {
				sched.SchedulingQueue.Activate(klog.FromContext(ctx), map[string]*corev1.Pod{pod.Pod.Namespace + "/" + pod.Pod.Name: pod.Pod})
			}
		}
	})
}

// informers returns informers of Pods and Nodes that read the sources, and of everything else that read api.
func (p *Placer) informers(api kubernetes.Interface) informers.SharedInformerFactory {
	factory := informers.NewSharedInformerFactory(api, 0)
	factory.InformerFor(&corev1.Pod{}, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
		byNamespace := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
		return cache.NewSharedIndexInformer(p.Namespaces.Pods(), &corev1.Pod{}, 0, byNamespace)
	})
	factory.InformerFor(&corev1.Node{}, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
		return wakingInformer{cache.NewSharedIndexInformer(p.Nodes, &corev1.Node{}, 0, cache.Indexers{}), func() { p.waken() }}
	})
	return factory
}

// run runs a scheduler and its informers until ctx ends.
func run(ctx context.Context, sched *scheduler.Scheduler, factory informers.SharedInformerFactory) {
	factory.StartWithContext(ctx)
	defer factory.Shutdown()
	factory.WaitForCacheSync(ctx.Done())
	if err := sched.WaitForHandlersSync(ctx); err != nil {
		return // ctx ended
	}
	klog.FromContext(ctx).Info("Namespace scheduler started", "profiles", len(sched.Profiles))
	sched.Run(ctx)
}

// failed reports a slice that was refused, and leaves its status as it is.
func (p *Placer) failed(ctx context.Context, pod *corev1.Pod, status *fwk.Status, why refusal.Refusal) *fwk.Status {
	if why.IsZero() {
		if err := status.AsError(); p.erred != nil && !status.IsRejected() && err != nil {
			p.erred(slicepod.GangName(pod), err)
		}
		return status
	}
	if err := p.Sink.Refuse(ctx, slicepod.GangName(pod), why); err != nil {
		klog.FromContext(ctx).Error(err, "Reporting why a namespace is not placed failed", "gang", slicepod.GangName(pod))
	}
	return status
}

// committer passes the decisions of plugin NamespaceGang to the Sink.
type committer struct{ *Placer }

// Commit implements namespacegang.Committer. The slices of a stored decision count as bound until the Sink's projection
// replaces them by reservations. Where it already did, the scheduler still sees each of them added and deleted
// (view.Source.Update): it would otherwise count what it assumed forever.
func (c committer) Commit(ctx context.Context, gang string, assignments []namespacegang.Assignment) error {
	if err := c.Sink.Commit(ctx, gang, assignments); err != nil {
		return err //nolint:wrapcheck // the Sink's error is the outcome of all slices
	}
	bound := make([]*corev1.Pod, len(assignments))
	for i, assignment := range assignments {
		bound[i] = assignment.Pod.DeepCopy()
		bound[i].Spec.NodeName = assignment.Cluster
	}
	c.Namespaces.Bind(gang, bound)
	return nil
}

// Expand implements namespacegang.Expander.
func (c committer) Expand(ctx context.Context, gang string) {
	last, waits := c.Namespaces.Expand(gang)
	if !waits {
		return // its first slice is about to be taken away, too
	}
	err := wait.PollUntilContextTimeout(ctx, 50*time.Microsecond, expandPatience, true, func(context.Context) (bool, error) {
		return c.queued(last), nil
	})
	if err != nil {
		klog.FromContext(ctx).V(2).Info("The slices of a gang are not queued yet", "gang", gang, "err", err)
	}
}

// Collapse implements namespacegang.Expander.
func (c committer) Collapse(gang string) { c.Namespaces.Collapse(gang) }

// Profiles returns the names of the profiles in cfg. One must be view.DefaultNamespaceScheduler, which serves the
// namespaces that name none, and all must run the plugins that plugins.CheckNamespaces names.
func Profiles(cfg *config.KubeSchedulerConfiguration) (sets.Set[string], error) {
	names := sets.New[string]()
	for i := range cfg.Profiles {
		names.Insert(cfg.Profiles[i].SchedulerName)
	}
	if !names.Has(view.DefaultNamespaceScheduler) {
		return nil, fmt.Errorf("no profile of the namespace scheduler is named %q, which places the namespaces that name none: there are %q",
			view.DefaultNamespaceScheduler, sets.List(names))
	}
	if err := plugins.CheckNamespaces(cfg); err != nil {
		return nil, err //nolint:wrapcheck // it names profiles and plugins
	}
	return names, nil
}
