// Package volumehome brings a tenant's pod to the data of its claims, and gives a claim that has no home yet the super
// cluster of the first pod that uses it, if the namespace has storage left there. It is beside kube-scheduler's
// VolumeBinding, which filters and reserves over a view where nodes are super clusters, and in place of its PreBind.
package volumehome

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	corev1listers "k8s.io/client-go/listers/core/v1"
	storagev1listers "k8s.io/client-go/listers/storage/v1"
	volumehelper "k8s.io/component-helpers/storage/volume"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/claimhome"
	"github.com/superpool/superpool/internal/failedchoice"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/slicepod"
)

const (
	// Name of the plugin.
	Name = "VolumeHome"
	// ErrReasonTwoHomes begins the reason of a pod whose claims are in several super clusters. The claims follow, each
	// with its super cluster.
	ErrReasonTwoHomes = "the pod's claims are in several super clusters: "
	// ErrReasonVolumesStay is in the reason of a pod whose claim is in a super cluster that takes no new pods, or where
	// the namespace holds nothing: a volume does not move.
	ErrReasonVolumesStay = "a volume does not move"
	// ErrReasonElsewhere begins the reason of a super cluster that is not the home of a pod's claim. The home follows.
	ErrReasonElsewhere = "super cluster(s) not the home of the pod's claims: "
	// ErrReasonNotOffered begins the reason of a super cluster that does not offer a StorageClass, whose name follows.
	ErrReasonNotOffered = "super cluster(s) not offering StorageClass "
	// ErrReasonFailed is the reason of a super cluster that did not make a claim of the pod.
	ErrReasonFailed = "super cluster(s) did not make the pod's claims when it was chosen lately"
	// ErrReasonNoSnapshot ends the reason of a pod whose claim has no home yet because it is to be that of a snapshot.
	ErrReasonNoSnapshot = "which is in no super cluster yet"

	stateKey = "PreFilter" + Name
	// bindTimeout bounds the time of the writes for one pod.
	bindTimeout = time.Minute
	// maxNamed bounds the claims that a reason names.
	maxNamed = 8
)

// VolumeHome is the plugin.
type VolumeHome struct {
	handle  fwk.Handle
	claims  corev1listers.PersistentVolumeClaimLister
	classes storagev1listers.StorageClassLister
	chosen  *State
	now     func() time.Time
}

var (
	_ fwk.PreFilterPlugin   = &VolumeHome{}
	_ fwk.FilterPlugin      = &VolumeHome{}
	_ fwk.PreBindPlugin     = &VolumeHome{}
	_ fwk.EnqueueExtensions = &VolumeHome{}
)

// New returns a factory of plugins that share a state: those of one scheduler.
func New(chosen *State) frameworkruntime.PluginFactory {
	return func(_ context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		factory := handle.SharedInformerFactory()
		return &VolumeHome{
			handle: handle, claims: factory.Core().V1().PersistentVolumeClaims().Lister(), classes: factory.Storage().V1().StorageClasses().Lister(),
			chosen: chosen, now: time.Now,
		}, nil
	}
}

// Name returns the name of the plugin.
func (pl *VolumeHome) Name() string { return Name }

// EventsToRegister names what can bring a pod to its claims: the claims themselves, others of the namespace that go or
// shrink, or were not given a home after all, what super clusters offer, and super clusters that open or where the
// namespace holds something again, or more.
func (pl *VolumeHome) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		{
			Event:          fwk.ClusterEvent{Resource: fwk.PersistentVolumeClaim, ActionType: fwk.Add | fwk.Update | fwk.Delete},
			QueueingHintFn: isSchedulableAfterClaimChange,
		},
		{
			Event:          fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Delete},
			QueueingHintFn: isSchedulableAfterPodDelete,
		},
		{Event: fwk.ClusterEvent{Resource: fwk.StorageClass, ActionType: fwk.Add | fwk.Update}},
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeTaint | fwk.UpdateNodeAllocatable}},
	}, nil
}

// isSchedulableAfterClaimChange queues a pod that uses the claim, or any of its namespace when the claim takes less
// storage in its home than before.
func isSchedulableAfterClaimChange(_ klog.Logger, pod *corev1.Pod, before, after any) (fwk.QueueingHint, error) {
	was, existed := before.(*corev1.PersistentVolumeClaim)
	claim, exists := after.(*corev1.PersistentVolumeClaim)
	if !exists {
		claim = was
	}
	switch {
	case !exists && !existed:
		return fwk.Queue, nil
	case claim.Namespace != pod.Namespace:
		return fwk.QueueSkip, nil
	case slices.Contains(namesOf(pod), claim.Name):
		return fwk.Queue, nil
	case !existed || claimhome.Of(was) == "":
		return fwk.QueueSkip, nil
	}
	if !exists || claimhome.Of(claim) != claimhome.Of(was) || slice.Size(claim) < slice.Size(was) {
		return fwk.Queue, nil
	}
	return fwk.QueueSkip, nil
}

// isSchedulableAfterPodDelete queues a pod when another of its namespace that has claims is gone, or was not bound:
// what was reserved for these may be free.
func isSchedulableAfterPodDelete(_ klog.Logger, pod *corev1.Pod, before, _ any) (fwk.QueueingHint, error) {
	if gone, ok := before.(*corev1.Pod); ok && (gone.Namespace != pod.Namespace || len(namesOf(gone)) == 0) {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}

// namesOf returns the names of a pod's claims.
func namesOf(pod *corev1.Pod) (names []string) {
	for i := range pod.Spec.Volumes {
		if name := claimhome.ClaimName(pod, &pod.Spec.Volumes[i]); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// cycle is what the plugin knows of a pod's claims, computed at PreFilter and used at Filter. Nothing changes it.
type cycle struct {
	// home is the one of those that have one, "" for none, and homed names a claim that is there.
	home, homed string
	// offers holds who offers the StorageClasses of those that have none, by class, and failures who did not make them
	// lately.
	offers   map[string][]string
	failures failedchoice.Failures
	// closed are the super clusters that the pod is kept out of because of failures.
	closed []string
	// need is the storage that those need, nil for none that is judged.
	need *need
}

// Clone implements fwk.StateData.
func (c *cycle) Clone() fwk.StateData { return c }

func unresolvable(format string, args ...any) *fwk.Status {
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, fmt.Sprintf(format, args...))
}

// PreFilter looks for the homes of the pod's claims. A claim that is not there is for VolumeBinding to refuse.
func (pl *VolumeHome) PreFilter(_ context.Context, state fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	names := namesOf(pod)
	if len(names) == 0 {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	found := &cycle{offers: map[string][]string{}}
	var homeless []*corev1.PersistentVolumeClaim
	for _, name := range names {
		claim, err := pl.claims.PersistentVolumeClaims(pod.Namespace).Get(name)
		if err != nil {
			return nil, unresolvable("claim %s does not exist", name)
		}
		home := claimhome.Of(claim)
		switch {
		case home == "" && claim.Spec.VolumeName != "":
			return nil, unresolvable("claim %s is bound to volume %s, which is in no super cluster", name, claim.Spec.VolumeName)
		case home == "" && claimhome.Snapshot(claim) != "":
			return nil, unresolvable("claim %s is to be restored from VolumeSnapshot %s, %s", name, claimhome.Snapshot(claim), ErrReasonNoSnapshot)
		case home == "":
			if status := pl.offered(claim, found); status != nil {
				return nil, status
			}
			homeless = append(homeless, claim)
			continue
		}
		if found.home == "" {
			found.home, found.homed = home, name
		} else if found.home != home {
			return nil, unresolvable("%s", ErrReasonTwoHomes+listed(pl.homes(pod, names)))
		}
	}
	status := found.stays(pod, nodes)
	if status == nil {
		found.need, status = pl.needOf(pod, homeless, nodes)
	}
	if status != nil {
		return nil, status
	}
	found.close(pod, nodes, pl.now())
	state.Write(stateKey, found)
	return nil, nil
}

// homes returns where each of the claims is that have a home.
func (pl *VolumeHome) homes(pod *corev1.Pod, names []string) (homes []string) {
	for _, name := range names {
		if claim, err := pl.claims.PersistentVolumeClaims(pod.Namespace).Get(name); err == nil && claimhome.Of(claim) != "" {
			homes = append(homes, fmt.Sprintf("claim %s is in %s", name, claimhome.Of(claim)))
		}
	}
	return homes
}

// listed joins texts, of which it cuts long lists.
func listed(texts []string) string {
	if more := len(texts) - maxNamed; more > 0 {
		texts = append(slices.Clip(texts[:maxNamed]), fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, ", ")
}

// offered reads who offers the StorageClass of a claim that is to be provisioned. It refuses the pod if nobody does.
func (pl *VolumeHome) offered(claim *corev1.PersistentVolumeClaim, found *cycle) *fwk.Status {
	name := volumehelper.GetPersistentVolumeClaimClass(claim)
	if name == "" {
		return unresolvable("claim %s has no StorageClass", claim.Name)
	}
	class, err := pl.classes.Get(name)
	if err != nil {
		return unresolvable("StorageClass %s of claim %s does not exist", name, claim.Name)
	}
	if found.offers[name] = claimhome.OfferedBy(class); len(found.offers[name]) == 0 {
		return unresolvable("no super cluster offers StorageClass %s of claim %s", name, claim.Name)
	}
	found.failures = found.failures.And(failedchoice.Of(claim))
	return nil
}

// close notes the super clusters that did not make the pod's claims lately, of those where the namespace holds
// something and storage is left for them, and the classes are offered. When all failed, the one that failed first is
// open. A pod whose home is there already can go nowhere else.
func (c *cycle) close(pod *corev1.Pod, nodes []fwk.NodeInfo, now time.Time) {
	if len(c.failures) == 0 || c.home != "" {
		return
	}
	var open []string
	for _, node := range nodes {
		if slicepod.Pods(node.Node(), pod.Namespace) > 0 && c.unoffered(node.Node().Name) == "" && c.hasStorage(node.Node().Name) {
			open = append(open, node.Node().Name)
		}
	}
	c.closed = c.failures.Closed(open, now)
}

// hasStorage reports whether the namespace has storage left in a super cluster for the pod's claims.
func (c *cycle) hasStorage(superCluster string) bool {
	return c.need == nil || c.need.bytes <= c.need.left[superCluster]
}

// unoffered returns a StorageClass of the pod's claims that a super cluster does not offer, "" for none.
func (c *cycle) unoffered(superCluster string) string {
	for _, class := range slices.Sorted(maps.Keys(c.offers)) {
		if !slices.Contains(c.offers[class], superCluster) {
			return class
		}
	}
	return ""
}

// stays refuses a pod whose claims are in a super cluster that takes no new pods.
func (c *cycle) stays(pod *corev1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	if c.home == "" {
		return nil
	}
	at := slices.IndexFunc(nodes, func(node fwk.NodeInfo) bool { return node.Node().Name == c.home })
	if at < 0 {
		return unresolvable("claim %s is in super cluster %s, where the namespace holds nothing: %s", c.homed, c.home, ErrReasonVolumesStay)
	}
	if why := closed(pod, nodes[at].Node()); why != "" {
		return unresolvable("claim %s is in super cluster %s, which %s: %s", c.homed, c.home, why, ErrReasonVolumesStay)
	}
	if slicepod.Pods(nodes[at].Node(), pod.Namespace) <= 0 {
		return unresolvable("claim %s is in super cluster %s, where the namespace holds nothing: %s", c.homed, c.home, ErrReasonVolumesStay)
	}
	return nil
}

// Filter refuses super clusters that are not the home of the pod's claims, do not offer what they ask for, did not make
// them lately, or have too little of the namespace's storage left for them. Evicting pods helps in none of these:
// volumes stay.
func (pl *VolumeHome) Filter(_ context.Context, state fwk.CycleState, _ *corev1.Pod, node fwk.NodeInfo) *fwk.Status {
	found, err := cycleOf(state)
	if err != nil {
		return fwk.AsStatus(err)
	}
	name := node.Node().Name
	if found.home != "" && found.home != name {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, fmt.Sprintf("%sclaim %s is in %s", ErrReasonElsewhere, found.homed, found.home))
	}
	if class := found.unoffered(name); class != "" {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, ErrReasonNotOffered+class)
	}
	if slices.Contains(found.closed, name) {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, ErrReasonFailed)
	}
	if !found.hasStorage(name) {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, ErrReasonNoStorage)
	}
	return nil
}

// PreFilterExtensions returns nil: claims do not depend on other pods.
func (pl *VolumeHome) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// PreBindPreFlight skips pods without claims.
func (pl *VolumeHome) PreBindPreFlight(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ string) (*fwk.PreBindPreFlightResult, *fwk.Status) {
	if len(namesOf(pod)) == 0 {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	return nil, nil
}

// PreBind writes the super cluster of the pod onto its claims that have no home yet. It does not wait until they are
// bound: in the super cluster that needs the pod.
func (pl *VolumeHome) PreBind(ctx context.Context, _ fwk.CycleState, pod *corev1.Pod, superCluster string) *fwk.Status {
	ctx, cancel := context.WithTimeout(ctx, bindTimeout)
	defer cancel()
	for _, name := range namesOf(pod) {
		claim, err := pl.claims.PersistentVolumeClaims(pod.Namespace).Get(name)
		if err != nil {
			return fwk.AsStatus(fmt.Errorf("reading claim %s: %w", name, err))
		}
		pl.chosen.writing(claim)
		switch home := claimhome.Of(claim); home {
		case superCluster:
			continue
		case "":
		default:
			return fwk.NewStatus(fwk.Unschedulable, fmt.Sprintf("%sclaim %s is in %s", ErrReasonElsewhere, name, home))
		}
		if err := pl.write(ctx, claim, superCluster); err != nil {
			return fwk.AsStatus(fmt.Errorf("writing the home of claim %s: %w", name, err))
		}
	}
	return nil
}

// write writes the home of a claim, if it is still as the plugin has seen it.
func (pl *VolumeHome) write(ctx context.Context, claim *corev1.PersistentVolumeClaim, superCluster string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": claim.UID, "resourceVersion": claim.ResourceVersion,
		"annotations": map[string]string{schedulerv1alpha1.AnnotationSuperCluster: superCluster},
	}})
	if err != nil {
		return fmt.Errorf("encoding the patch: %w", err)
	}
	_, err = pl.handle.ClientSet().CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err //nolint:wrapcheck // PreBind wraps it
}
