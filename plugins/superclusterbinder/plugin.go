// Package superclusterbinder writes the super cluster that was chosen for a tenant's pod onto it, as annotation and as
// label.
package superclusterbinder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/superpool/superpool/apis/config"
	"github.com/superpool/superpool/apis/config/validation"
	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/failedchoice"
	"github.com/superpool/superpool/internal/tenancy"
)

const (
	// Name of the plugin.
	Name = "SuperClusterBinder"
	// ReasonSuperClusterChosen: the pod scheduler chose a super cluster for a pod that it had refused before, and the
	// pod waits for a node there. It is the reason of condition PodScheduled=False, until the syncer makes the Binding.
	ReasonSuperClusterChosen = "SuperClusterChosen"

	// bindTimeout bounds the time that a bind holds its place.
	bindTimeout = time.Minute
)

// SuperClusterBinder is the plugin.
type SuperClusterBinder struct {
	handle  fwk.Handle
	choices Choices
	exempt  func(pod *corev1.Pod) bool

	// slots holds an item for each bind in flight, a goroutine with its cycle state until the tenant's API server has
	// answered, and inFlight the pods that they are for.
	slots    chan struct{}
	mu       sync.Mutex
	inFlight map[types.UID]bool
}

var (
	_ fwk.ReservePlugin  = &SuperClusterBinder{}
	_ fwk.BindPlugin     = &SuperClusterBinder{}
	_ fwk.PostBindPlugin = &SuperClusterBinder{}
)

// Choices is told what is written onto pods. It is called concurrently.
type Choices interface {
	// Chose is called before a super cluster is written onto a pod. settle is to be called with the pod as it was
	// written, and with nil when that failed, or when it turns out later to have been in vain. It reports whether the
	// choice stands: not if it was taken off since, or the pod is gone, as far as is known. One whose write failed
	// stands if it was seen on the pod all the same.
	Chose(pod *corev1.Pod, superCluster string) (settle func(written *corev1.Pod) bool)
}

// noChoices are those that nobody is told of.
type noChoices struct{}

// Chose implements Choices.
func (noChoices) Chose(*corev1.Pod, string) func(*corev1.Pod) bool {
	return func(written *corev1.Pod) bool { return written != nil }
}

// New returns a factory of the plugin. choices is told what is written; nil: nobody is. Pods for which exempt returns
// true when they are reserved do not count as binds in flight until Bind, because they wait for others that are to be
// reserved; nil: there are none.
func New(choices Choices, exempt func(pod *corev1.Pod) bool) frameworkruntime.PluginFactory {
	if choices == nil {
		choices = noChoices{}
	}
	if exempt == nil {
		exempt = func(*corev1.Pod) bool { return false }
	}
	return func(_ context.Context, object runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		args, ok := object.(*config.SuperClusterBinderArgs)
		if !ok {
			return nil, fmt.Errorf("args are of type %T, want *SuperClusterBinderArgs", object)
		}
		if err := validation.ValidateSuperClusterBinderArgs(nil, args).ToAggregate(); err != nil {
			return nil, err //nolint:wrapcheck // it names the field
		}
		return &SuperClusterBinder{handle: handle, choices: choices, exempt: exempt, slots: make(chan struct{}, args.MaxInFlight), inFlight: map[types.UID]bool{}}, nil
	}
}

// Name returns the name of the plugin.
func (pl *SuperClusterBinder) Name() string { return Name }

// Reserve waits until few enough binds are in flight. It holds up the pods of this tenant only: each has a scheduler of
// its own.
func (pl *SuperClusterBinder) Reserve(ctx context.Context, _ fwk.CycleState, pod *corev1.Pod, _ string) *fwk.Status {
	if pl.exempt(pod) {
		return nil
	}
	return fwk.AsStatus(pl.take(ctx, pod.UID))
}

// take waits for a place for a pod, if it has none.
func (pl *SuperClusterBinder) take(ctx context.Context, pod types.UID) error {
	select {
	case pl.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err() //nolint:wrapcheck // callers say what for
	}
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if pl.inFlight[pod] {
		<-pl.slots // it has one
	}
	pl.inFlight[pod] = true
	return nil
}

// has reports whether a pod has a place.
func (pl *SuperClusterBinder) has(pod types.UID) bool {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	return pl.inFlight[pod]
}

// Unreserve gives the place of Reserve back, if the pod has one.
func (pl *SuperClusterBinder) Unreserve(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ string) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if pl.inFlight[pod.UID] {
		delete(pl.inFlight, pod.UID)
		<-pl.slots
	}
}

// PostBind gives the place of Reserve back.
func (pl *SuperClusterBinder) PostBind(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, superCluster string) {
	pl.Unreserve(ctx, state, pod, superCluster)
}

// Bind patches the pod, if it still has the UID that was scheduled. The syncer of the super cluster makes the Binding
// to a node later. A pod that took no place in Reserve takes one before: it waits for nobody any more.
func (pl *SuperClusterBinder) Bind(ctx context.Context, _ fwk.CycleState, pod *corev1.Pod, superCluster string) *fwk.Status {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":         pod.UID,
		"annotations": map[string]string{schedulerv1alpha1.AnnotationSuperCluster: superCluster},
		"labels":      map[string]string{schedulerv1alpha1.LabelSuperCluster: superCluster},
	}})
	if err != nil {
		return fwk.AsStatus(fmt.Errorf("encoding the choice of %s: %w", superCluster, err))
	}
	if !pl.has(pod.UID) {
		if err := pl.take(ctx, pod.UID); err != nil {
			return fwk.AsStatus(fmt.Errorf("waiting for other binds: %w", err))
		}
	}
	ctx, cancel := context.WithTimeout(ctx, bindTimeout)
	defer cancel()
	settle := pl.choices.Chose(pod, superCluster)
	written, err := pl.write(ctx, pod, superCluster, patch)
	if err != nil {
		if settle(nil) {
			return nil // the answer was lost. An error would write a refusal onto a pod that may run.
		}
		return fwk.AsStatus(fmt.Errorf("writing super cluster %s: %w", superCluster, err))
	}
	if !settle(written) {
		return fwk.AsStatus(fmt.Errorf("super cluster %s was taken off the pod at once", superCluster))
	}
	// The deletion of a pod may have been handled before the choice was noted, whatever its API server answers then.
	if !pl.isThere(pod) && !settle(nil) {
		return fwk.AsStatus(errors.New("the pod is gone"))
	}
	return nil
}

// isThere reports whether the informer has a pod.
func (pl *SuperClusterBinder) isThere(pod *corev1.Pod) bool {
	known, err := pl.handle.SharedInformerFactory().Core().V1().Pods().Lister().Pods(pod.Namespace).Get(pod.Name)
	return err == nil && known.UID == pod.UID
}

// write writes the choice and what the tenant reads about it, and returns the pod as it is then.
func (pl *SuperClusterBinder) write(ctx context.Context, pod *corev1.Pod, superCluster string, patch []byte) (*corev1.Pod, error) {
	// First, for the syncer may make the Binding as soon as it sees the choice, and would find its condition
	// overwritten.
	err := pl.replaceRefusal(ctx, pod, superCluster)
	switch {
	case err != nil && asksFor(pod, superCluster):
		return nil, err
	case err != nil: // the message is for the reader only
		klog.FromContext(ctx).V(3).Info("Could not replace the message of an earlier refusal", "pod", klog.KObj(pod), "err", err)
	}
	written, err := pl.handle.ClientSet().CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return nil, err //nolint:wrapcheck // Bind wraps it
	}
	// Somebody else has bound the pod meanwhile. kube-scheduler would wait for ever until it sees it here.
	if in, _ := tenancy.NodeSuperCluster(written.Spec.NodeName); written.Spec.NodeName != "" && in != superCluster {
		return nil, fmt.Errorf("something in the tenant's control plane has bound the pod to node %s meanwhile", written.Spec.NodeName)
	}
	return written, nil
}

// chosenMessage is what the tenant reads until the pod is bound.
func chosenMessage(pod *corev1.Pod, superCluster string) string {
	failed := slices.Sorted(maps.Keys(failedchoice.Of(pod)))
	if len(failed) == 0 {
		return fmt.Sprintf("super cluster %s was chosen; waiting for one of its nodes", superCluster)
	}
	return fmt.Sprintf("super cluster %s was chosen; waiting for one of its nodes. These did not take the pod before: %s", superCluster, strings.Join(failed, ", "))
}

// asksFor reports whether the tenant wrote a super cluster onto a pod of the pod view itself. The patch of Bind changes
// nothing then, and informers would not see that the super cluster is granted: the condition must change.
func asksFor(pod *corev1.Pod, superCluster string) bool {
	return pod.Annotations[schedulerv1alpha1.AnnotationSuperCluster] == superCluster
}

// replaceRefusal replaces the message of an earlier refusal, which would else stay until the Binding. A pod that asks
// for the super cluster gets the message in any case.
func (pl *SuperClusterBinder) replaceRefusal(ctx context.Context, pod *corev1.Pod, superCluster string) error {
	// The queue may hold an older state of the pod than the informer.
	known, err := pl.handle.SharedInformerFactory().Core().V1().Pods().Lister().Pods(pod.Namespace).Get(pod.Name)
	if err != nil {
		return nil //nolint:nilerr // the informer has not seen the pod, or not any more
	}
	_, scheduled := podutil.GetPodCondition(&known.Status, corev1.PodScheduled)
	refused := scheduled != nil && scheduled.Status == corev1.ConditionFalse
	if !refused && !asksFor(known, superCluster) || known.Spec.NodeName != "" {
		return nil
	}
	condition := map[string]any{
		"type":    corev1.PodScheduled,
		"status":  corev1.ConditionFalse,
		"reason":  ReasonSuperClusterChosen,
		"message": chosenMessage(known, superCluster),
	}
	if asksFor(known, superCluster) {
		condition["lastProbeTime"] = metav1.Now() // the rest may be there already
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID, "resourceVersion": known.ResourceVersion}, // never over a condition that is newer
		"status":   map[string]any{"conditions": []map[string]any{condition}},
	})
	if err != nil {
		return fmt.Errorf("encoding the condition: %w", err)
	}
	_, err = pl.handle.ClientSet().CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err //nolint:wrapcheck // Bind wraps it
}
