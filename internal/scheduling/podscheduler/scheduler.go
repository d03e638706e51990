// Package podscheduler runs the pod scheduler of one tenant: a kube-scheduler over a view of the tenant's pods, whose
// nodes are super clusters.
package podscheduler

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/kubescheduler"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/internal/tenantclient"
	"github.com/superpool/superpool/internal/tenants"
	"github.com/superpool/superpool/plugins"
	"github.com/superpool/superpool/plugins/coscheduling"
	"github.com/superpool/superpool/plugins/namespaceplacement"
)

// Scheduler is the pod scheduler of one tenant. The zero Scheduler is of one that runs in another process, and does
// nothing.
type Scheduler struct {
	scheduler *scheduler.Scheduler
	// groups are the tenant's PodGroups, nil if no profile asks for them.
	groups *podGroups
	// judge has the tenant's Nodes, if any are read.
	judge   *judge
	waiting *tenantQueue
	policy  *policy.Ref
	pods    corev1listers.PodLister
}

// Instance is what the pod scheduler of one tenant is made of.
type Instance struct {
	// Config holds the profiles of all tenants' pod schedulers, and OutOfTree has further plugins.
	Config    *config.KubeSchedulerConfiguration
	OutOfTree frameworkruntime.Registry
	Tenant    *tenants.Tenant
	Choices   *Choices
	// KubeConfig reaches the tenant's control plane, and Optional does for what it need not serve.
	KubeConfig, Optional *rest.Config
	Client               kubernetes.Interface
	// Informers are the tenant's. They are started after Build.
	Informers informers.SharedInformerFactory
	Recorder  events.EventRecorder
	Recorders profile.RecorderFactory
}

// Build builds the tenant's pod scheduler.
func (i Instance) Build(ctx context.Context) (*Scheduler, error) {
	groups, err := i.podGroups()
	if err != nil {
		return nil, err
	}
	nodes, err := nodesOfTenant(i.Tenant, i.Optional)
	if err != nil {
		return nil, err
	}
	return i.build(ctx, groups, nodes)
}

// build is Build with what is read of the tenant besides its informers, each nil if it is not.
func (i Instance) build(ctx context.Context, groups *podGroups, nodes *tenantNodes) (*Scheduler, error) {
	ref, pods := i.Tenant.Policy, i.Informers.Core().V1().Pods().Lister()
	options := plugins.Options{
		Choices: i.Choices, ShowsTaint: func(taint *corev1.Taint) bool { return ref.Get().Shows(taint) },
		OutOfTree: i.OutOfTree, PodGangs: coscheduling.Options{MaxMembers: gangLimit(ref), State: coscheduling.NewState()},
	}
	if groups != nil {
		options.PodGangs.Groups = groups
	}
	judges := &judge{policy: ref, nodes: nodes}
	sched, err := kubescheduler.Instance{
		Client:        i.Client,
		KubeConfig:    i.KubeConfig,
		Informers:     i.Informers,
		Config:        i.Config,
		Plugins:       options,
		Recorders:     i.Recorders,
		Failed:        i.Choices.failed,
		Refused:       func(pod *corev1.Pod) string { return refusedByPolicy(ref.Get(), pod) },
		Judged:        judges.judged,
		Hinted:        judges.hinted,
		RefusedReason: tenancy.ReasonPolicyForbids,
	}.Build(ctx)
	if err != nil {
		return nil, err
	}
	waiting := newTenantQueue(ctx, sched.SchedulingQueue, ref, i.Recorder, options.PodGangs.State)
	kubescheduler.ReplaceQueue(sched, waiting)
	return &Scheduler{scheduler: sched, groups: groups, judge: judges, waiting: waiting, policy: ref, pods: pods}, nil
}

// podGroups returns the PodGroups of the tenant, nil if no profile asks for them.
func (i Instance) podGroups() (*podGroups, error) {
	if !plugins.Enables(i.Config, coscheduling.Name) {
		return nil, nil
	}
	source, err := podGroupsOf(i.Optional)
	if err != nil {
		return nil, err
	}
	return newPodGroups(source), nil
}

// Start reads what the tenant's informers do not: PodGroups and Nodes, until ctx ends. ended waits for its end.
func (p *Scheduler) Start(ctx context.Context, bounds *tenantclient.Bounds, fail func(error)) (ended func()) {
	var reads []<-chan struct{}
	if p.groups != nil {
		reads = append(reads, p.groups.start(ctx, bounds, fail))
	}
	if p.judge != nil && p.judge.nodes != nil {
		reads = append(reads, p.judge.nodes.start(ctx, bounds, fail))
	}
	return func() {
		for _, read := range reads {
			<-read
		}
	}
}

// Begin lets pods into the queue once the informers, which have synced, have passed them on. It returns false when ctx
// ended.
func (p *Scheduler) Begin(ctx context.Context, fail func(error)) bool {
	if p.scheduler == nil {
		return true
	}
	if err := p.scheduler.WaitForHandlersSync(ctx); err != nil {
		return false
	}
	p.waiting.start()
	_, policyChanged := p.policy.Watch()
	go func() {
		defer engage.Recover(ctx, "pod scheduler of the tenant", fail)
		p.policy.Follow(ctx, policyChanged, func() { retryWaiting(ctx, p.pods, p.waiting) })
	}()
	if p.judge.nodes != nil {
		go func() {
			defer engage.Recover(ctx, "pods that name labels of Nodes", fail)
			p.judge.retry(ctx, p.pods, p.waiting)
		}()
	}
	return true
}

// Run schedules until ctx ends, and closes what it returns then.
func (p *Scheduler) Run(ctx context.Context) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if p.scheduler != nil {
			p.scheduler.Run(ctx)
		}
	}()
	return done
}

// refusedByPolicy returns why a policy forbids that a pod of the pod view is placed, "" if it does not: what the pod
// demands of nodes, its claims of volumes and devices, and the profile that it names. A pod that names labels that the
// policy does not show is not looked at, because all that is said about it says which nodes have them.
func refusedByPolicy(current *policy.Policy, pod *corev1.Pod) string {
	refusals := slices.Concat(policy.Demands(current, &pod.Spec), policy.Claims(current, &pod.Spec), policy.Devices(&pod.Spec))
	if len(refusals) > 0 {
		return policy.Words(current, refusals)
	}
	allowed := current.Spec().Scheduling.PodSchedulers
	if len(allowed) == 0 || slices.Contains(allowed, pod.Spec.SchedulerName) {
		return ""
	}
	return fmt.Sprintf("schedulerName %q is not allowed: use one of %q (scheduling.podSchedulers of TenantPolicy %s)",
		pod.Spec.SchedulerName, allowed, current.Name())
}

// retryWaiting lets more pods into queue, and tries again those that wait in it: another policy is in force.
func retryWaiting(ctx context.Context, pods corev1listers.PodLister, queue *tenantQueue) {
	queue.policyChanged()
	activate(ctx, pods, queue, func(*corev1.Pod) bool { return true })
}

// activate tries again the pods that wait in queue and of which is is true.
func activate(ctx context.Context, pods corev1listers.PodLister, queue *tenantQueue, is func(*corev1.Pod) bool) {
	all, err := pods.List(labels.Everything())
	utilruntime.Must(err) // a lister fails on an invalid selector only
	waiting := map[string]*corev1.Pod{}
	for _, pod := range all {
		if pod.Spec.NodeName == "" && is(pod) {
			waiting[pod.Namespace+"/"+pod.Name] = pod
		}
	}
	queue.Activate(klog.FromContext(ctx), waiting)
}

// ProfileNames returns the names of the profiles of a scheduler.
func ProfileNames(cfg *config.KubeSchedulerConfiguration) (names []string) {
	for i := range cfg.Profiles {
		names = append(names, cfg.Profiles[i].SchedulerName)
	}
	return names
}

// explain replaces kube-scheduler's status for a pod whose tenant has no placements by the refusal of
// NamespacePlacement, whose hints then queue the pod again: kube-scheduler calls no plugin when there are no nodes.
func explain(pod *corev1.Pod, status *fwk.Status) *fwk.Status {
	if status.AsError() != scheduler.ErrNoNodesAvailable { //nolint:errorlint // kube-scheduler compares it so too
		return status
	}
	diagnosis := framework.Diagnosis{
		NodeToStatus:         framework.NewDefaultNodeToStatus(),
		PreFilterMsg:         namespaceplacement.ErrReasonNoPlacement,
		UnschedulablePlugins: sets.New(namespaceplacement.Name),
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable).WithError(&framework.FitError{Pod: pod, Diagnosis: diagnosis})
}
