package syncer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/proof"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds"
	"github.com/superpool/superpool/internal/syncer/kinds/dynamic"
	"github.com/superpool/superpool/internal/syncpolicy"
)

// probeTimeout is how long a super cluster may take to say which kinds it serves.
const probeTimeout = 10 * time.Second

// syncPolicies follows the SyncPolicies of the meta cluster: it lets the syncer sync the kinds of those that can be
// followed, and says in their status what the others lack. It runs on every replica; the leader writes.
//
//	SyncPolicies ──compile──► accepted ──probe the super cluster──► ready ──► kinds.SetCustom, informers
//	     ▲                       │ refused                            │ not served, no rights
//	     └───────── status ◄─────┴────────────────────────────────────┘
//
// A policy that is gone, and a meta cluster that serves none, stop informers and delete nothing.
type syncPolicies struct {
	syncer *Syncer
	// meta reads and writes SyncPolicies without a cache, and live proves what it has read of them.
	meta client.WithWatch
	live *proof.ControlPlane
	// super is asked what is served, and what the syncer may do.
	super kubernetes.Interface
	// elected is closed once this replica leads.
	elected <-chan struct{}
	// retry is how often a super cluster is asked again that follows a policy, and six times as often one that does
	// not.
	retry time.Duration
	clock clock.PassiveClock

	changed chan struct{}
	builtIn map[schema.GroupKind]bool
	probes  map[string]probe
	// reports are when which generation of a policy was reported about last, if that was just now.
	reports map[types.UID]lastReport
	// pool are the super clusters of the pool, nil before they were read, at listed.
	pool   map[string]bool
	listed time.Time
	// followed is what was given to SetCustom last, as text; nil before the first time.
	followed *string
}

// lastReport is when a report was written, and of which generation of a policy.
type lastReport struct {
	generation int64
	at         time.Time
}

// probe is what a super cluster says of the kind of a policy: its plural name, or why it cannot be synced.
type probe struct {
	at       time.Time
	resource string
	refusal  *syncpolicy.Refusal
}

func (s *Syncer) newSyncPolicies(mgr manager.Manager, live *proof.ControlPlane, super *rest.Config, retry time.Duration) (*syncPolicies, error) {
	config := rest.CopyConfig(mgr.GetConfig())
	config.QPS = -1
	mapper := &typeMapper{}
	mapper.learn(tenancyv1alpha1.GroupVersion.WithKind("SyncPolicy"), "syncpolicies", false)
	mapper.learn(corev1.SchemeGroupVersion.WithKind("Node"), "nodes", false)
	meta, err := client.NewWithWatch(config, client.Options{Scheme: mgr.GetScheme(), Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("making a client of the meta cluster: %w", err)
	}
	super = rest.CopyConfig(super)
	super.QPS = -1
	clientset, err := kubernetes.NewForConfig(super)
	if err != nil {
		return nil, fmt.Errorf("making a client of the super cluster: %w", err)
	}
	builtIn, err := builtInKinds()
	if err != nil {
		return nil, err
	}
	return &syncPolicies{
		syncer: s, meta: meta, live: live, super: clientset, elected: mgr.Elected(), retry: retry, clock: s.env.Clock,
		changed: make(chan struct{}, 1), builtIn: builtIn, probes: map[string]probe{}, reports: map[types.UID]lastReport{},
	}, nil
}

// builtInKinds returns the kinds that are synced without a SyncPolicy.
func builtInKinds() (map[schema.GroupKind]bool, error) {
	all := map[schema.GroupKind]bool{}
	specs := kinds.Specs()
	for i := range specs {
		objects := slices.Concat(specs[i].Uses, specs[i].UsesOfCluster)
		for _, watch := range []*kind.Watch{specs[i].Tenant, specs[i].Super} {
			if watch != nil {
				objects = append(objects, watch.Object)
			}
		}
		for _, object := range objects {
			gvk, err := apiutil.GVKForObject(object, scheme.Scheme)
			if err != nil {
				return nil, fmt.Errorf("finding the type of %T: %w", object, err)
			}
			all[gvk.GroupKind()] = true
		}
	}
	return all, nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*syncPolicies) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (p *syncPolicies) Start(ctx context.Context) error {
	informer := toolscache.NewSharedIndexInformer(p.listWatch(), &tenancyv1alpha1.SyncPolicy{}, 0, toolscache.Indexers{})
	if err := informer.SetTransform(trim); err != nil {
		return fmt.Errorf("setting the transform of SyncPolicies: %w", err)
	}
	wake := func() {
		select {
		case p.changed <- struct{}{}:
		default:
		}
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { wake() }, DeleteFunc: func(any) { wake() },
		UpdateFunc: func(before, after any) {
			if was, is := before.(metav1.Object), after.(metav1.Object); was.GetUID() != is.GetUID() || was.GetGeneration() != is.GetGeneration() {
				wake()
			}
		},
	}); err != nil {
		return fmt.Errorf("watching SyncPolicies: %w", err)
	}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { informer.RunWithContext(ctx) })
	if !toolscache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil
	}
	ticker := time.NewTicker(p.pause(false))
	defer ticker.Stop()
	elected := p.elected
	for {
		p.look(ctx, informer.GetStore().List())
		select {
		case <-ctx.Done():
			return nil
		case <-p.changed:
		case <-ticker.C:
		case <-elected:
			elected = nil
		}
	}
}

// listWatch reads SyncPolicies: none where the meta cluster does not serve them yet, or forbids it.
func (p *syncPolicies) listWatch() *toolscache.ListWatch {
	empty := func() client.ObjectList { return &tenancyv1alpha1.SyncPolicyList{} }
	options := func(raw metav1.ListOptions) *client.ListOptions {
		return &client.ListOptions{Limit: raw.Limit, Continue: raw.Continue, Raw: &raw}
	}
	return engage.Optional(&toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, raw metav1.ListOptions) (runtime.Object, error) {
			list := empty()
			return list, p.meta.List(ctx, list, options(raw))
		},
		WatchFuncWithContext: func(ctx context.Context, raw metav1.ListOptions) (watch.Interface, error) {
			return p.meta.Watch(ctx, empty(), options(raw)) //nolint:wrapcheck // the informer asks what kind of error it is
		},
	}, empty, p.retry).ListWatch
}

// pause is how old an answer of the super cluster may be.
func (p *syncPolicies) pause(ready bool) time.Duration {
	if ready {
		return p.retry
	}
	return p.retry / 6
}

// look follows the SyncPolicies that there are. A panic leaves everything as it was.
func (p *syncPolicies) look(ctx context.Context, items []any) {
	defer engage.Recover(ctx, "SyncPolicies", nil)
	var policies []*tenancyv1alpha1.SyncPolicy
	for _, item := range items {
		if policy, ok := item.(*tenancyv1alpha1.SyncPolicy); ok {
			policies = append(policies, policy)
		}
	}
	accepted, refused := syncpolicy.CompileAll(policies, p.builtIn)
	lacks := map[string]*syncpolicy.Refusal{}
	var customs []dynamic.Custom
	answers := p.askAll(ctx, accepted)
	probes := map[string]probe{}
	for i, rules := range accepted {
		answer := answers[i]
		probes[probeOf(rules)] = answer
		if lacks[rules.Name] = answer.refusal; answer.refusal == nil {
			customs = append(customs, dynamic.Custom{Rules: rules, Resource: answer.resource, Removes: p.removes(rules)})
		}
	}
	p.probes = probes
	p.follow(ctx, customs)
	select {
	case <-p.elected:
		p.lookAtPool(ctx, policies)
		if p.hasLeft(p.syncer.id) || p.syncer.shard.Index > 0 { // the leader of one shard reports for the super cluster
			return
		}
		for _, policy := range policies {
			p.report(ctx, policy, refused[policy.Name], lacks[policy.Name])
		}
	default:
	}
}

// lookAtPool lists the super clusters of the pool, if there are SyncPolicies, now and then. Without a pool, this is the
// only one.
func (p *syncPolicies) lookAtPool(ctx context.Context, policies []*tenancyv1alpha1.SyncPolicy) {
	if p.syncer.env.Assignments.Whole() {
		p.pool = map[string]bool{p.syncer.id: true}
		return
	}
	now := p.clock.Now()
	if len(policies) == 0 || p.pool != nil && now.Sub(p.listed) < p.pause(true) {
		return
	}
	nodes := &metav1.PartialObjectMetadataList{}
	nodes.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	if err := p.meta.List(ctx, nodes, client.HasLabels{schedulerv1alpha1.LabelVirtualNode}); err != nil {
		klog.FromContext(ctx).V(2).Info("The meta cluster does not say which super clusters are in the pool", "err", err)
		return // the last answer counts
	}
	p.pool, p.listed = map[string]bool{}, now
	for i := range nodes.Items {
		p.pool[nodes.Items[i].Name] = true
	}
}

// hasLeft returns whether a super cluster is not in the pool any more, as far as is known.
func (p *syncPolicies) hasLeft(superCluster string) bool {
	return p.pool != nil && !p.pool[superCluster]
}

// follow lets the syncer sync the kinds of customs, and no others.
func (p *syncPolicies) follow(ctx context.Context, customs []dynamic.Custom) {
	var text strings.Builder
	for i := range customs {
		fmt.Fprintf(&text, "%s %s %d %s\n", customs[i].Rules.Name, customs[i].Rules.UID, customs[i].Rules.Generation, customs[i].Resource)
	}
	if p.followed != nil && *p.followed == text.String() {
		return
	}
	p.followed = ptr.To(text.String())
	for i := range customs {
		p.syncer.types.learn(customs[i].Rules.Kind, customs[i].Resource, customs[i].Rules.Namespaced())
	}
	p.syncer.setCustom(customs)
	klog.FromContext(ctx).V(2).Info("Following SyncPolicies", "count", len(customs))
}

// removes returns dynamic.Custom.Removes: nothing is deleted by what a cache says of a SyncPolicy.
func (p *syncPolicies) removes(rules *syncpolicy.Rules) func(context.Context, string) (proof.Proof, error) {
	return func(ctx context.Context, name string) (proof.Proof, error) {
		policy := &tenancyv1alpha1.SyncPolicy{}
		if err := p.meta.Get(ctx, types.NamespacedName{Name: rules.Name}, policy); err != nil {
			return proof.Proof{}, fmt.Errorf("reading SyncPolicy %s: %w", rules.Name, err)
		}
		reason := "removes its copies"
		if policy.Spec.Copies != tenancyv1alpha1.CopiesRemove {
			reason = "does not list " + name
			if name == "" || policy.Spec.Direction != tenancyv1alpha1.SyncUp || slices.Contains(policy.Spec.Names, name) {
				reason = ""
			}
		}
		if policy.UID != rules.UID || reason == "" {
			return proof.Proof{}, engine.Waitf("the cache of SyncPolicies: %s removes nothing", rules.Name)
		}
		return p.live.Answered(ctx, fmt.Sprintf("SyncPolicy %s %s", rules.Name, reason)) //nolint:wrapcheck // it names what was read
	}
}

// probeOf returns the name under which the answer about a policy is kept.
func probeOf(rules *syncpolicy.Rules) string {
	return fmt.Sprintf("%s %s", rules.Kind, rules.Spec.Direction)
}

// askAll asks about all policies at the same time: a group whose server does not answer holds up no other.
func (p *syncPolicies) askAll(ctx context.Context, accepted []*syncpolicy.Rules) []probe {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	answers := make([]probe, len(accepted))
	var asking sync.WaitGroup
	for i, rules := range accepted {
		answers[i] = p.unanswered(rules)
		asking.Go(func() {
			defer engage.Recover(ctx, "SyncPolicies", nil)
			answers[i] = p.ask(ctx, rules)
		})
	}
	asking.Wait()
	return answers
}

// unanswered is what counts of a super cluster that does not answer now: the last answer.
func (p *syncPolicies) unanswered(rules *syncpolicy.Rules) probe {
	answer, asked := p.probes[probeOf(rules)]
	if !asked {
		answer.refusal = &syncpolicy.Refusal{Reason: tenancyv1alpha1.ReasonSyncUnknown, Message: "the super cluster does not answer, and is asked again"}
	}
	answer.at = p.clock.Now()
	return answer
}

// ask returns what the super cluster says of the kind of a policy: the last answer while that is young, or where the
// super cluster does not answer now.
func (p *syncPolicies) ask(ctx context.Context, rules *syncpolicy.Rules) probe {
	now := p.clock.Now()
	before, asked := p.probes[probeOf(rules)]
	if asked && now.Sub(before.at) < p.pause(before.refusal == nil) {
		return before
	}
	resource, refusal, err := p.served(ctx, rules)
	if err == nil && refusal == nil {
		refusal, err = p.allowed(ctx, rules, resource)
	}
	if err != nil {
		klog.FromContext(ctx).V(2).Info("The super cluster does not say whether it serves the kind of a SyncPolicy", "syncPolicy", rules.Name, "err", err)
		return p.unanswered(rules)
	}
	return probe{at: now, resource: resource, refusal: refusal}
}

// served returns the plural name of the kind of a policy in the super cluster.
func (p *syncPolicies) served(ctx context.Context, rules *syncpolicy.Rules) (string, *syncpolicy.Refusal, error) {
	version := rules.Kind.GroupVersion()
	list := &metav1.APIResourceList{}
	err := p.super.Discovery().RESTClient().Get().AbsPath("/apis", version.Group, version.Version).Do(ctx).Into(list)
	if err != nil && !apierrors.IsNotFound(err) {
		return "", nil, fmt.Errorf("asking what is served of %s: %w", version, err)
	}
	for i := range list.APIResources {
		resource := &list.APIResources[i]
		switch {
		case resource.Kind != rules.Kind.Kind || strings.Contains(resource.Name, "/"):
		case rules.Namespaced() && !resource.Namespaced:
			return "", &syncpolicy.Refusal{Reason: tenancyv1alpha1.ReasonSyncWrongScope, Message: fmt.Sprintf("%s has no namespaces, and only kinds that have go down: one tenant's object would be every tenant's", rules.Kind.Kind)}, nil
		case !rules.Namespaced() && resource.Namespaced:
			return "", &syncpolicy.Refusal{Reason: tenancyv1alpha1.ReasonSyncWrongScope, Message: fmt.Sprintf("%s has namespaces, and only kinds without come up", rules.Kind.Kind)}, nil
		default:
			return resource.Name, nil, nil
		}
	}
	return "", &syncpolicy.Refusal{Reason: tenancyv1alpha1.ReasonSyncNotServed, Message: fmt.Sprintf("it does not serve kind %s of %s: apply its CustomResourceDefinition there, or correct the policy", rules.Kind.Kind, version)}, nil
}

// allowed returns which rights the syncer lacks in the super cluster.
func (p *syncPolicies) allowed(ctx context.Context, rules *syncpolicy.Rules, resource string) (*syncpolicy.Refusal, error) {
	var lacks []string
	for _, verb := range rules.Verbs() {
		review, err := p.super.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: rules.Kind.Group, Version: rules.Kind.Version, Resource: resource, Verb: verb,
			}},
		}, metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("asking for the right to %s %s: %w", verb, resource, err)
		}
		if !review.Status.Allowed {
			lacks = append(lacks, verb)
		}
	}
	if len(lacks) == 0 {
		return nil, nil
	}
	return &syncpolicy.Refusal{Reason: tenancyv1alpha1.ReasonSyncNoRights, Message: fmt.Sprintf(
		"its syncer may not %[1]s %[2]s.%[3]s there: kubectl create clusterrole superpool:syncer:kinds:%[2]s --verb=%[4]s --resource=%[2]s.%[3]s, "+
			"and kubectl label clusterrole superpool:syncer:kinds:%[2]s %[5]s=true",
		strings.Join(lacks, ", "), resource, rules.Kind.Group, strings.Join(rules.Verbs(), ","), tenancyv1alpha1.LabelAggregateToSyncer)}, nil
}

// report writes the status of a policy, if it says something new. refused is why the policy itself is not in order, and
// lacks what it lacks in this super cluster.
func (p *syncPolicies) report(ctx context.Context, policy *tenancyv1alpha1.SyncPolicy, refused, lacks *syncpolicy.Refusal) {
	desired := policy.DeepCopy()
	syncpolicy.Report(desired, p.syncer.id, p.hasLeft, refused, lacks)
	if syncpolicy.SameStatus(&policy.Status, &desired.Status) {
		return
	}
	now := p.clock.Now()
	maps.DeleteFunc(p.reports, func(_ types.UID, last lastReport) bool { return now.Sub(last.at) >= p.pause(false)/2 })
	if last, told := p.reports[policy.UID]; told && last.generation == policy.Generation {
		return // two syncers that disagree, as two versions may, do so slowly; the next look tries again
	}
	p.reports[policy.UID] = lastReport{generation: policy.Generation, at: now}
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		err := p.meta.Status().Update(ctx, desired)
		if apierrors.IsConflict(err) { // another super cluster has reported
			read := &tenancyv1alpha1.SyncPolicy{}
			if getErr := p.meta.Get(ctx, client.ObjectKeyFromObject(policy), read); getErr != nil || read.UID != policy.UID || read.Generation != policy.Generation {
				return client.IgnoreNotFound(getErr) // a change wakes
			}
			desired = read
			syncpolicy.Report(desired, p.syncer.id, p.hasLeft, refused, lacks)
		}
		return err //nolint:wrapcheck // it asks what kind of error it is
	})
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && !errors.Is(err, context.Canceled) {
		klog.FromContext(ctx).Error(err, "Writing the status of a SyncPolicy", "syncPolicy", policy.Name) // and again with a later look
	}
}
