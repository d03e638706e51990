package requests

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1listers "k8s.io/client-go/listers/core/v1"
	storagev1listers "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/events"
	volumehelper "k8s.io/component-helpers/storage/volume"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/claimhome"
	"github.com/superpool/superpool/internal/failedchoice"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/scheduling/claims"
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/scheduling/namespaces"
	"github.com/superpool/superpool/internal/scheduling/placements"
	"github.com/superpool/superpool/internal/scheduling/tenantevents"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/plugins/nodegroups"
)

const (
	// RelocationDelay is for how long a pod waits before slices are moved for it: others may end meanwhile.
	RelocationDelay = time.Minute
	// maxPause is the longest time between two requests for a pod that was not helped by any.
	maxPause = time.Hour
	// MaxWishes bounds how many pods of one namespace with different requests are tried at a time.
	MaxWishes = 16
	// JudgementsPerSecond bounds the super clusters that are looked at for pods of one tenant.
	JudgementsPerSecond = 100
	// JudgementsBurst is as many at once: all of a large pool, for all pods of one namespace that are tried at a time.
	JudgementsBurst = 100 * MaxWishes
)

// RelocationReconciler moves unused slices of a namespace into one super cluster where a pod waits that is larger than
// what is free of the namespace in any of them, or in the one where its volumes are, or that demands what none of them
// has. It requests the move as a tenant
// would, and as often. A request names a namespace: a pod that waits adds it after RelocationDelay, and so all pods of
// a namespace cost one look at it.
type RelocationReconciler struct {
	Key   string
	Store *placements.Store
	Pods  corev1listers.PodLister
	// Claims are the tenant's claims, nil where another process schedules its pods: then no pod is known to have
	// volumes.
	Claims corev1listers.PersistentVolumeClaimLister
	// Classes are the tenant's StorageClasses, nil as claims are.
	Classes    storagev1listers.StorageClassLister
	Namespaces corev1listers.NamespaceLister
	Usage      placements.Usage
	// VirtualNodes returns the virtual Nodes by name.
	VirtualNodes func() map[string]*corev1.Node
	Judge        *nodegroups.Judge
	// Judgements bounds of how many super clusters is asked what they have for pods of the tenant.
	Judgements *rate.Limiter
	Policy     *policy.Ref
	Limits     *namespaces.Limits
	Clock      clock.PassiveClock
	Events     tenantevents.NamespaceEvents
	Recorder   events.EventRecorder
	// Attempts holds what was tried last, by namespace, for those in which a pod waits. One worker uses it. A restart
	// forgets it: what was refused is tried once more, within the same interval.
	Attempts map[string]Attempt
}

// Attempt is what was tried last for a namespace.
type Attempt struct {
	Pod types.UID
	// Clusters are where slices were requested for the pod: others are tried first.
	Clusters sets.Set[string]
	// refused is when nothing could be requested, zero if something was.
	refused time.Time
	// Pause is for how long nothing is requested after all of clusters were tried, from paused on: each time it is
	// twice as long, up to maxPause. The tenant's own requests are to have their turns.
	Pause  time.Duration
	paused time.Time
	// announced is the turn of which a pod was told that nothing moves before.
	announced time.Time
}

// Reconcile requests a move for one pod of a namespace, if there is one that is helped by that.
func (r *RelocationReconciler) Reconcile(ctx context.Context, item dispatch.Request) (reconcile.Result, error) {
	namespace, err := r.Namespaces.Get(item.Namespace)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("reading the namespace: %w", err)
	}
	np, readErr := r.Store.Get(ctx, client.ObjectKey{Namespace: r.Key, Name: item.Namespace})
	if readErr != nil {
		return reconcile.Result{}, readErr
	}
	now, interval := r.Clock.Now(), namespaces.MovesInterval(r.Policy)
	if apierrors.IsNotFound(err) || !isOf(np, namespace) || np.Spec.Paused || interval == 0 {
		delete(r.Attempts, item.Namespace) // a pod that waits on asks again (scheduling.podHandler)
		return reconcile.Result{}, nil
	}
	turn, _ := placement.MovesFrom(np, interval, now)
	last := r.Attempts[item.Namespace]
	if again := max(turn, last.refused.Add(interval).Sub(now), last.paused.Add(last.Pause).Sub(now)); again > 0 {
		return reconcile.Result{RequeueAfter: again}, r.announce(ctx, namespace, np, last, now.Add(turn), now)
	}
	waiting, used, again, err := r.look(ctx, np, now)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case len(waiting) == 0:
		delete(r.Attempts, item.Namespace)
		return reconcile.Result{RequeueAfter: again}, nil
	case !placement.Settled(np):
		return reconcile.Result{RequeueAfter: RelocationDelay}, nil
	}
	kinds := r.kindsOf(np, waiting)
	if again := r.takesTurn(len(kinds), now); again > 0 {
		return reconcile.Result{RequeueAfter: again}, nil
	}
	if !slices.ContainsFunc(waiting, func(pod *corev1.Pod) bool { return pod.UID == last.Pod }) {
		last = Attempt{refused: last.refused}
	}
	if err := r.help(ctx, namespace, np, kinds, used, last, interval, now); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: interval}, nil
}

// isOf reports whether np, nil for none, is the NamespacePlacement of a namespace, and is to stay.
func isOf(np *schedulerv1alpha1.NamespacePlacement, namespace *corev1.Namespace) bool {
	return np != nil && np.Spec.NamespaceUID == namespace.UID && np.DeletionTimestamp == nil
}

// announce tells once why slices that would help a pod do not move before the turn of their namespace.
func (r *RelocationReconciler) announce(
	ctx context.Context, namespace *corev1.Namespace, np *schedulerv1alpha1.NamespacePlacement, last Attempt, turn, now time.Time,
) error {
	if turn = turn.Truncate(time.Second); !turn.After(now) || turn.Equal(last.announced) {
		return nil
	}
	waiting, used, _, err := r.look(ctx, np, now)
	if err != nil || len(waiting) == 0 || !placement.Settled(np) {
		return err
	}
	kinds := r.kindsOf(np, waiting)
	if r.takesTurn(len(kinds), now) > 0 {
		return nil
	}
	if pod, found, why := r.relocate(np, kinds, used, last.Clusters); pod != nil && why == "" {
		last.announced = turn
		r.Attempts[np.Name] = last
		rules := r.Policy.Get()
		r.tell(namespace, pod, &found, fmt.Sprintf("the placements of the namespace change again at %s at the soonest (scheduling.movesPerHour of TenantPolicy %s is %d)",
			turn.UTC().Format(time.RFC3339), rules.Name(), rules.Spec().Scheduling.MovesPerHour))
	}
	return nil
}

// takesTurn returns 0 where so many kinds of pods may be judged now, and else after how long they may be.
func (r *RelocationReconciler) takesTurn(kinds int, now time.Time) (again time.Duration) {
	turn := r.Judgements.ReserveN(now, min(kinds*len(r.VirtualNodes()), r.Judgements.Burst()))
	if again = turn.DelayFrom(now); again > 0 {
		turn.CancelAt(now)
	}
	return again
}

// help requests a move for one of the pods that wait, or says why none helps. last is what was tried last for one of
// them.
func (r *RelocationReconciler) help(
	ctx context.Context, namespace *corev1.Namespace, np *schedulerv1alpha1.NamespacePlacement, kinds []podKind, used map[string]slice.Amounts,
	last Attempt, interval time.Duration, now time.Time,
) error {
	pod, found, why := r.relocate(np, kinds, used, last.Clusters)
	if pod == nil {
		return nil
	}
	if why == "" {
		var err error
		if why, err = r.request(ctx, np, &found, interval, now); err != nil {
			return err
		}
	}
	last.Pod, last.refused = pod.UID, time.Time{}
	switch {
	case why != "":
		last.refused = now
	case last.Clusters.Has(found.Cluster): // all were tried: once more from the beginning
		last.Clusters = sets.New(found.Cluster)
		last.Pause, last.paused = min(max(2*last.Pause, 2*interval), maxPause), now
	default:
		last.Clusters = sets.New(found.Cluster).Union(last.Clusters)
	}
	r.Attempts[np.Name] = last
	r.tell(namespace, pod, &found, why)
	return nil
}

// look returns the pods of a namespace that have waited for RelocationDelay, in the order in which they are helped, and
// what pods use in each super cluster that was measured. again is after how long the next has waited, 0 for never.
func (r *RelocationReconciler) look(ctx context.Context, np *schedulerv1alpha1.NamespacePlacement, now time.Time) (waiting []*corev1.Pod, used map[string]slice.Amounts, again time.Duration, err error) {
	pods, err := r.Pods.Pods(np.Name).List(labels.Everything())
	if err != nil {
		return nil, nil, 0, fmt.Errorf("listing pods: %w", err)
	}
	bound := map[string]slice.Amounts{}
	for _, pod := range pods {
		if pod.Spec.NodeName != "" {
			bound[pod.Spec.NodeName] = bound[pod.Spec.NodeName].Plus(view.Used(pod))
		}
		switch since, waits := WaitsSince(pod, now); {
		case !waits:
		case now.Sub(since) < RelocationDelay:
			again = dispatch.Sooner(again, min(since.Add(RelocationDelay).Sub(now), RelocationDelay))
		default:
			waiting = append(waiting, pod)
		}
	}
	if len(waiting) == 0 {
		return nil, nil, again, nil
	}
	slices.SortFunc(waiting, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(ptr.Deref(b.Spec.Priority, 0), ptr.Deref(a.Spec.Priority, 0)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	used = map[string]slice.Amounts{}
	measured := r.Usage.Usage(ctx, client.ObjectKeyFromObject(np), slices.Sorted(maps.Keys(r.VirtualNodes())))
	for cluster, use := range measured { // what is bound is in the super cluster in a moment
		requests := use.UsedOf(np)
		used[cluster] = requests.Plus(bound[cluster].Minus(requests))
	}
	return waiting, used, again, nil
}

// WaitsSince returns since when a pod of the pod view is refused by the pod scheduler, or goes round among super
// Clusters that have no volume for it, and false if it is not.
func WaitsSince(pod *corev1.Pod, now time.Time) (time.Time, bool) {
	_, scheduled := podutil.GetPodCondition(&pod.Status, corev1.PodScheduled)
	switch {
	case pod.DeletionTimestamp != nil || scheduled == nil || scheduled.Status != corev1.ConditionFalse:
		return time.Time{}, false
	case goesRound(pod, now):
		return pod.CreationTimestamp.Time, true
	case pod.Spec.NodeName != "" || scheduled.Reason != corev1.PodReasonUnschedulable:
		return time.Time{}, false
	}
	return scheduled.LastTransitionTime.Time, true
}

// goesRound reports whether a pod was chosen again and again for a super cluster that has no volume for it, and is
// there or nowhere: where that is the only one of its namespace, or all lack it, the pod scheduler does not refuse it.
func goesRound(pod *corev1.Pod, now time.Time) bool {
	failures := failedchoice.Of(pod)
	for name, failure := range failures {
		if failure.Count > 2 && lacksVolume(failures, name, now) && (pod.Spec.NodeName == "" || pod.Spec.NodeName == name) {
			return true
		}
	}
	return false
}

// usedByOthers returns used without what a pod uses that goes round.
func usedByOthers(used map[string]slice.Amounts, pod *corev1.Pod) map[string]slice.Amounts {
	use, measured := used[pod.Spec.NodeName]
	if !measured {
		return used
	}
	others := maps.Clone(used)
	others[pod.Spec.NodeName] = use.Minus(view.Used(pod))
	return others
}

// podKind is a pod that waits, and what it requests: others that request the same are one with it.
type podKind struct {
	pod      *corev1.Pod
	requests slice.Amounts
	home     string
	demand   nodegroups.Demand
	volumes  []volumeWish
}

// kindsOf returns the first pods of different kinds, in their order, without those that no room helps: as many as may
// be judged at a time.
func (r *RelocationReconciler) kindsOf(np *schedulerv1alpha1.NamespacePlacement, waiting []*corev1.Pod) (kinds []podKind) {
	seen, most := sets.New[string](), min(MaxWishes, max(1, r.Judgements.Burst()/max(1, len(r.VirtualNodes()))))
	for _, pod := range waiting {
		home, one := r.homeOf(np, pod)
		if !one {
			continue
		}
		kind := podKind{pod: pod, requests: view.Used(pod), home: home, demand: nodegroups.DemandOf(pod), volumes: r.volumesFor(pod)}
		key := fmt.Sprintf("%q %q %q %q", kind.requests.Key(), home, kind.demand.Key(), keysOf(kind.volumes))
		if seen.Has(key) {
			continue
		}
		seen.Insert(key)
		if kinds = append(kinds, kind); len(kinds) == most {
			break
		}
	}
	return kinds
}

// relocate returns the first pod that waits for nothing but room in one piece, and what helps it, or why nothing does.
// It returns no pod where none waits for that.
func (r *RelocationReconciler) relocate(
	np *schedulerv1alpha1.NamespacePlacement, kinds []podKind, used map[string]slice.Amounts, tried sets.Set[string],
) (helped *corev1.Pod, found placement.Relocation, why string) {
	nodes := r.VirtualNodes()
	for i := range kinds {
		kind := &kinds[i]
		pod, requests, home := kind.pod, kind.requests, kind.home
		clusters, unfit := r.clustersFor(pod, kind.demand, kind.volumes, nodes)
		wish := placement.Wish{Pod: pod.Name, Requests: requests, Used: usedByOthers(used, pod), Clusters: clusters, Unfit: unfit, Home: home}
		untried := wish
		untried.Clusters = slices.DeleteFunc(slices.Clone(wish.Clusters), tried.Has)
		result, refused := placement.Relocate(np, &untried)
		if result.IsZero() && len(untried.Clusters) < len(wish.Clusters) {
			result, refused = placement.Relocate(np, &wish)
		}
		switch {
		case !result.IsZero():
			return pod, result, ""
		case refused != "" && helped == nil:
			helped, why = pod, refused
		case refused == "" && home != "": // it has room where its volumes are, which is not to be moved for others
			used = maps.Clone(used)
			used[home] = wish.Used[home].Plus(requests)
		}
	}
	return helped, placement.Relocation{}, why
}

// homeOf returns the super cluster where the volumes of a pod are, or are to be, "" for none, and false for a pod whose
// volumes are in several: no room helps it. A claim without volume whose namespace has left its home gets another one.
func (r *RelocationReconciler) homeOf(np *schedulerv1alpha1.NamespacePlacement, pod *corev1.Pod) (home string, one bool) {
	if r.Claims == nil {
		return "", true
	}
	for i := range pod.Spec.Volumes {
		name := claimhome.ClaimName(pod, &pod.Spec.Volumes[i])
		if name == "" {
			continue
		}
		claim, err := r.Claims.PersistentVolumeClaims(pod.Namespace).Get(name)
		if err != nil || claims.MayBeStranded(claim) && claims.HasLeft(np, claimhome.Of(claim)) {
			continue
		}
		switch of := claimhome.Of(claim); {
		case of == "" || of == home:
		case home != "":
			return "", false
		default:
			home = of
		}
	}
	return home, true
}

// clustersFor returns the super clusters where a pod of the pod view may run now, sorted: what they are and say about
// themselves does not keep it away, a node there meets its demands, and they have not failed the pod lately. unfit are
// those that lack what it demands, which does not pass as a cordon does.
func (r *RelocationReconciler) clustersFor(
	pod *corev1.Pod, demand nodegroups.Demand, volumes []volumeWish, nodes map[string]*corev1.Node,
) (clusters []string, unfit sets.Set[string]) {
	failures, now := failedchoice.Of(pod), r.Clock.Now()
	unfit = sets.New[string]()
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		node := nodes[name]
		tainted, lasting := keptAway(node, pod)
		switch {
		case lasting, !r.Judge.Meets(node, demand), lacksVolume(failures, name, now),
			slices.ContainsFunc(volumes, func(volume volumeWish) bool { return !volume.madeBy(name) }):
			unfit.Insert(name)
		case !tainted && !node.Spec.Unschedulable && !failures.Keeps(name, now):
			clusters = append(clusters, name)
		}
	}
	return clusters, unfit
}

// keptAway reports whether a taint of a virtual Node keeps a pod away, and whether one does that stays until an operator
// does something.
func keptAway(node *corev1.Node, pod *corev1.Pod) (tainted, lasting bool) {
	for _, taint := range view.Taints(node) {
		if _, isAway := placement.Untolerated([]corev1.Taint{taint}, pod.Spec.Tolerations); isAway {
			tainted, lasting = true, lasting || placement.IsOperators(taint) || taint.Key == schedulerv1alpha1.TaintVersionSkew
		}
	}
	return tainted, lasting
}

// volumeWish is a claim of a pod that has no home yet.
type volumeWish struct {
	// offeredBy are the super clusters that offer its class, and lackedBy those that had no volume for it lately.
	offeredBy, lackedBy sets.Set[string]
}

// keysOf returns keys that are equal for claims that the same super clusters may make.
func keysOf(volumes []volumeWish) []string {
	keys := make([]string, len(volumes))
	for i := range volumes {
		keys[i] = fmt.Sprintf("%q %q", sets.List(volumes[i].offeredBy), sets.List(volumes[i].lackedBy))
	}
	return keys
}

// volumesFor returns the claims of a pod that have no home yet. One whose class does not exist asks for nothing.
func (r *RelocationReconciler) volumesFor(pod *corev1.Pod) (volumes []volumeWish) {
	for i := range pod.Spec.Volumes {
		name := claimhome.ClaimName(pod, &pod.Spec.Volumes[i])
		if name == "" || r.Claims == nil || r.Classes == nil {
			continue
		}
		claim, err := r.Claims.PersistentVolumeClaims(pod.Namespace).Get(name)
		if err != nil || !claims.Homeless(claim) || claimhome.Snapshot(claim) != "" {
			continue
		}
		class, err := r.Classes.Get(volumehelper.GetPersistentVolumeClaimClass(claim))
		if err != nil {
			continue
		}
		volumes = append(volumes, volumeWish{
			offeredBy: sets.New(claimhome.OfferedBy(class)...), lackedBy: lackedBy(failedchoice.Of(claim), r.Clock.Now()),
		})
	}
	return volumes
}

// madeBy reports whether a super cluster makes a volume, as far as it has shown.
func (v *volumeWish) madeBy(superCluster string) bool {
	return v.offeredBy.Has(superCluster) && !v.lackedBy.Has(superCluster)
}

// lackedBy returns the super clusters that had no volume for a claim lately.
func lackedBy(failures failedchoice.Failures, now time.Time) sets.Set[string] {
	lacking := sets.New[string]()
	for superCluster := range failures {
		if lacksVolume(failures, superCluster, now) {
			lacking.Insert(superCluster)
		}
	}
	return lacking
}

// lacksVolume reports whether a super cluster had no volume for a pod or claim lately.
func lacksVolume(failures failedchoice.Failures, superCluster string, now time.Time) bool {
	return failures[superCluster].Reason == failedchoice.NoVolume && failures.Keeps(superCluster, now)
}

// request records a move. It returns why it is refused at once, "" if it is not.
func (r *RelocationReconciler) request(
	ctx context.Context, looked *schedulerv1alpha1.NamespacePlacement, found *placement.Relocation, interval time.Duration, now time.Time,
) (refused string, err error) {
	_, err = r.Store.Change(ctx, client.ObjectKeyFromObject(looked), func(np *schedulerv1alpha1.NamespacePlacement) error {
		if refused = "the namespace has changed meanwhile"; np.ResourceVersion == looked.ResourceVersion {
			asked, why := placement.Move(np, found, interval, now)
			refused = r.Limits.Request(np, asked, why)
		}
		return nil
	})
	return refused, err
}

// tell records the Events about a move, or about why there is none.
func (r *RelocationReconciler) tell(namespace *corev1.Namespace, pod *corev1.Pod, found *placement.Relocation, why string) {
	event := tenantevents.Announcement{Kind: corev1.EventTypeNormal, Reason: namespaces.ReasonMoving, Message: "Moving " + found.String()}
	if why != "" {
		event = tenantevents.Announcement{Kind: corev1.EventTypeWarning, Reason: namespaces.ReasonNotMoved, Message: fmt.Sprintf("No slices are moved for pod %s: %s", pod.Name, why)}
	}
	r.Events.Record(namespace, event)
	r.Recorder.Eventf(pod, nil, event.Kind, event.Reason, "Place", "%s", tenancy.Cut(event.Message, tenancy.MaxEventNote))
}
