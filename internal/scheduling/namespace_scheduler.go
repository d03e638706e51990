package scheduling

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/slicepod"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/plugins"
	"github.com/superpool/superpool/plugins/namespacegang"
)

// NamespaceScheduler places the slices of all tenant namespaces: a kube-scheduler whose nodes are the virtual Nodes and whose pods are
// projected from NamespacePlacements. It runs in the leader only.
type NamespaceScheduler struct {
	// Manager is the meta cluster.
	Manager ctrl.Manager
	// Client is a plain client of the meta cluster.
	Client kubernetes.Interface
	// Config holds the profiles.
	Config *config.KubeSchedulerConfiguration

	slices *view.Source
	// said holds the refusal that was last written for a NamespacePlacement that does not fit, by scope.
	said sync.Map
}

// refusal is what was said about a gang. Another wish of the same namespace is told anew, also in the same words.
type refusal struct {
	gang, message string
	at            time.Time
}

// refusalPeriod is how often a gang that waits is told other figures. What is free changes with every decision about others, and each
// telling is a write that the scheduler waits for, and an Event in the tenant's control plane.
const refusalPeriod = time.Minute

// catchUpPeriod is how often a new leader looks whether its cache holds what the one before wrote.
const catchUpPeriod = 100 * time.Millisecond

// NeedLeaderElection returns true: two schedulers would place a namespace twice.
func (s *NamespaceScheduler) NeedLeaderElection() bool { return true }

// Start runs until ctx ends.
func (s *NamespaceScheduler) Start(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.LoggerWithName(klog.FromContext(ctx), "namespace-scheduler"))
	if !s.catchUp(ctx) {
		return nil
	}
	s.slices = view.NewPodSource()
	placements, err := s.Manager.GetCache().GetInformer(ctx, &schedulerv1alpha1.NamespacePlacement{})
	if err != nil {
		return fmt.Errorf("watching NamespacePlacements: %w", err)
	}
	registration, err := placements.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    s.project,
		UpdateFunc: func(_, object any) { s.project(object) },
		DeleteFunc: s.remove,
	})
	if err != nil {
		return fmt.Errorf("watching NamespacePlacements: %w", err)
	}
	defer func() { _ = placements.RemoveEventHandler(registration) }()
	// The reservations must be known before the first decision.
	if !cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		return nil
	}
	factory := s.informers()
	sched, err := instance{
		client:    sliceClient{s.Client},
		informers: factory,
		config:    s.Config,
		registry:  plugins.Registry(plugins.Options{Committer: s}),
		recorders: func(string) events.EventRecorder { return discard{} },
		failed:    s.failed,
	}.build(ctx)
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	if err := sched.WaitForHandlersSync(ctx); err != nil {
		return nil // ctx ended
	}
	klog.FromContext(ctx).Info("Namespace scheduler started", "profiles", len(s.Config.Profiles))
	sched.Run(ctx)
	factory.Shutdown()
	return nil
}

// catchUp waits until the cache holds all that was written so far. The leader before may have given room away a moment ago, and a commit
// checks the namespace that it is for, not the room: who decides by an older state gives the same room twice. It returns false when ctx ended.
func (s *NamespaceScheduler) catchUp(ctx context.Context) bool {
	logger := klog.FromContext(ctx)
	reader := s.Manager.GetAPIReader()
	kind := schedulerv1alpha1.GroupVersion.WithKind("NamespacePlacement")
	// A request that fails is tried again: leaders change when API servers are in trouble.
	until := func(done func(context.Context) (bool, error)) {
		_ = wait.PollUntilContextCancel(ctx, catchUpPeriod, true, func(ctx context.Context) (bool, error) {
			ended, err := done(ctx)
			if err != nil {
				logger.Error(err, "Waiting for the NamespacePlacements that were written last")
			}
			return ended && err == nil, nil
		})
	}
	stored := &metav1.PartialObjectMetadataList{}
	until(func(ctx context.Context) (bool, error) {
		stored.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		return true, reader.List(ctx, stored)
	})
	for i := range stored.Items {
		key := client.ObjectKeyFromObject(&stored.Items[i])
		// What was stored since the list is as good as what was stored then.
		written := sets.New(stored.Items[i].ResourceVersion)
		until(func(ctx context.Context) (bool, error) {
			cached := &schedulerv1alpha1.NamespacePlacement{}
			if err := s.Manager.GetClient().Get(ctx, key, cached); client.IgnoreNotFound(err) != nil {
				return false, err
			}
			if written.Has(cached.ResourceVersion) {
				return true, nil
			}
			logger.V(2).Info("Waiting for a NamespacePlacement that is newer than the cache", "placement", key)
			newest := &metav1.PartialObjectMetadata{}
			newest.SetGroupVersionKind(kind)
			if err := reader.Get(ctx, key, newest); client.IgnoreNotFound(err) != nil {
				return false, err
			}
			written.Insert(newest.ResourceVersion)
			return written.Has(cached.ResourceVersion), nil
		})
	}
	return ctx.Err() == nil
}

func (s *NamespaceScheduler) informers() informers.SharedInformerFactory {
	factory := informers.NewSharedInformerFactory(s.Client, 0)
	factory.InformerFor(&corev1.Pod{}, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
		return cache.NewSharedIndexInformer(s.slices, &corev1.Pod{}, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	})
	nodes := factory.InformerFor(&corev1.Node{}, func(client kubernetes.Interface, _ time.Duration) cache.SharedIndexInformer {
		return coreinformers.NewFilteredNodeInformer(client, 0, cache.Indexers{}, func(options *metav1.ListOptions) {
			options.LabelSelector = schedulerv1alpha1.LabelVirtualNode
		})
	})
	// InformerFor sets the factory's own transform, so ours comes after it. It fails only on a started informer.
	_ = nodes.SetTransform(view.NamespaceNode)
	return factory
}

func (s *NamespaceScheduler) project(object any) {
	if np, ok := object.(*schedulerv1alpha1.NamespacePlacement); ok {
		s.slices.Set(view.Scope(np.Namespace, np.Name), view.Slices(np)...)
	}
}

func (s *NamespaceScheduler) remove(object any) {
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	if np, ok := object.(*schedulerv1alpha1.NamespacePlacement); ok {
		scope := view.Scope(np.Namespace, np.Name)
		s.slices.Set(scope)
		s.said.Delete(scope)
	}
}

// Commit writes a decision into the NamespacePlacement's status, if it still rests on the same wishes and reservations. Where only
// something else about the object changed in the meantime, such as a condition, it writes again.
func (s *NamespaceScheduler) Commit(ctx context.Context, gang string, assignments []namespacegang.Assignment) error {
	granted := map[string]slice.Amounts{}
	for _, assignment := range assignments {
		size := slice.Of(assignment.Pod.Spec.Containers[0].Resources.Requests)
		granted[assignment.Cluster] = granted[assignment.Cluster].Plus(size)
	}
	var np *schedulerv1alpha1.NamespacePlacement
	var reader client.Reader = s.Manager.GetClient()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		var err error
		if np, err = placementOf(ctx, reader, gang); err != nil {
			return err
		}
		reader = s.Manager.GetAPIReader() // after a conflict the cache is behind
		if view.Gang(np) != gang {
			return fmt.Errorf("%s asks for something else by now", klog.KObj(np))
		}
		np.Status, _, _ = placement.Next(np, placement.Facts{Now: time.Now(), Granted: granted})
		return s.Manager.GetClient().Status().Update(ctx, np)
	})
	if err != nil {
		return fmt.Errorf("placing gang %s: %w", gang, err)
	}
	// The slices count as bound until the NamespacePlacement's event turns them into reservations. Where it already did, the scheduler must
	// still see that they are gone: it would count what it assumed forever.
	for _, assignment := range assignments {
		bound := assignment.Pod.DeepCopy()
		bound.Spec.NodeName = assignment.Cluster
		s.slices.Update(view.Scope(np.Namespace, np.Name), bound)
	}
	s.said.Delete(view.Scope(np.Namespace, np.Name))
	klog.FromContext(ctx).V(2).Info("Placed a namespace", "tenant", np.Namespace, "namespace", np.Name, "placements", placement.Encode(np.Status.Placements))
	return nil
}

// failed writes why a namespace has no place onto its NamespacePlacement.
func (s *NamespaceScheduler) failed(ctx context.Context, pod *corev1.Pod, status *fwk.Status) *fwk.Status {
	message := status.Message()
	if !status.IsRejected() || strings.Contains(message, namespacegang.ErrReasonReleased) {
		return status // an error that will be tried again, or another slice says it
	}
	gang := slicepod.GangName(pod)
	scope, _, _ := strings.Cut(gang, "@")
	fresh := refusal{gang, message, time.Now()}
	if known, ok := s.said.Load(scope); ok {
		last := known.(refusal)
		if last.gang == gang && (last.message == message || fresh.at.Sub(last.at) < refusalPeriod) {
			return status
		}
	}
	if err := s.refuse(ctx, gang, message); err != nil {
		klog.FromContext(ctx).Error(err, "Could not say why a namespace is not placed", "gang", gang)
		return status
	}
	s.said.Store(scope, fresh)
	return status
}

func (s *NamespaceScheduler) refuse(ctx context.Context, gang, message string) error {
	var reader client.Reader = s.Manager.GetClient()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		np, err := placementOf(ctx, reader, gang)
		if err != nil {
			return err
		}
		reader = s.Manager.GetAPIReader() // after a conflict the cache is behind
		if view.Gang(np) != gang {
			return nil
		}
		np.Status, _, _ = placement.Next(np, placement.Facts{Now: time.Now(), Unschedulable: message})
		return s.Manager.GetClient().Status().Update(ctx, np)
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("refusing gang %s: %w", gang, err)
	}
	return nil
}

// placementOf returns a copy of the NamespacePlacement that a gang was projected from.
func placementOf(ctx context.Context, reader client.Reader, gang string) (*schedulerv1alpha1.NamespacePlacement, error) {
	scope, _, _ := strings.Cut(gang, "@")
	namespace, name, _ := strings.Cut(scope, "/")
	np := &schedulerv1alpha1.NamespacePlacement{}
	if err := reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, np); err != nil {
		return nil, fmt.Errorf("reading NamespacePlacement %s: %w", scope, err)
	}
	return np, nil
}

// sliceClient is a client of the meta cluster for a scheduler whose pods are not there: what it would write onto a pod is written onto
// NamespacePlacements elsewhere.
type sliceClient struct{ kubernetes.Interface }

func (c sliceClient) CoreV1() corev1client.CoreV1Interface {
	return sliceCoreV1{c.Interface.CoreV1()}
}

type sliceCoreV1 struct{ corev1client.CoreV1Interface }

func (c sliceCoreV1) Pods(namespace string) corev1client.PodInterface {
	return slicePods{c.CoreV1Interface.Pods(namespace)}
}

type slicePods struct{ corev1client.PodInterface }

func (slicePods) Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (*corev1.Pod, error) {
	return &corev1.Pod{}, nil
}

// discard is a recorder for Events about Pods that exist in a view only.
type discard struct{}

func (discard) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}
