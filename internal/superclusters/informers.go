package superclusters

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/superclusters/usage"
	"github.com/superpool/superpool/internal/tenancy"
)

const (
	// quotaName is the name of the quotas that syncers write.
	quotaName   = "superpool"
	syncTimeout = time.Minute
)

// runInformers feeds ledger from informers on a super cluster's nodes, its pods that have not ended, those that have no
// node included, and the quotas and claims that syncers wrote, until ctx ends. It calls work once the caches are
// filled. All that it started has ended when it returns. dirty is called after every change.
func runInformers(ctx context.Context, client kubernetes.Interface, ledger *usage.Ledger, dirty func(), work func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel(nil)

	var failures lastError
	nodes := coreinformers.NewNodeInformer(client, 0, cache.Indexers{})
	pods := coreinformers.NewFilteredPodInformer(client, metav1.NamespaceAll, 0, cache.Indexers{}, func(options *metav1.ListOptions) {
		options.FieldSelector = fields.AndSelectors(
			fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
			fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
		).String()
	})
	quotas := coreinformers.NewFilteredResourceQuotaInformer(client, metav1.NamespaceAll, 0, cache.Indexers{}, func(options *metav1.ListOptions) {
		options.LabelSelector = tenancyv1alpha1.LabelCluster
		options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, quotaName).String()
	})
	claims := coreinformers.NewFilteredPersistentVolumeClaimInformer(client, metav1.NamespaceAll, 0, cache.Indexers{}, func(options *metav1.ListOptions) {
		options.LabelSelector = tenancyv1alpha1.LabelCluster
	})
	if err := errors.Join(
		nodes.SetTransform(engage.Transform(ctx, "trimming nodes", cancel, trimNode)),
		pods.SetTransform(engage.Transform(ctx, "trimming pods", cancel, usage.TrimPod)),
		quotas.SetTransform(engage.Transform(ctx, "trimming quotas", cancel, trimQuota)),
		claims.SetTransform(engage.Transform(ctx, "trimming claims", cancel, trimClaim)),
		nodes.SetWatchErrorHandlerWithContext(failures.record), pods.SetWatchErrorHandlerWithContext(failures.record),
		quotas.SetWatchErrorHandlerWithContext(failures.record), claims.SetWatchErrorHandlerWithContext(failures.record),
	); err != nil {
		return fmt.Errorf("preparing informers: %w", err)
	}
	synced, err := handle(nodes, pods, quotas, claims, ledger, func(change func() bool) {
		defer engage.Recover(ctx, "informer", cancel)
		if change() {
			dirty()
		}
	})
	if err != nil {
		return err
	}
	running.Go(func() { nodes.RunWithContext(ctx) })
	running.Go(func() { pods.RunWithContext(ctx) })
	running.Go(func() { quotas.RunWithContext(ctx) })
	running.Go(func() { claims.RunWithContext(ctx) })

	waiting, stop := context.WithTimeout(ctx, syncTimeout)
	defer stop()
	if !cache.WaitForCacheSync(waiting.Done(), synced...) {
		if err := panicOf(ctx); err != nil {
			return err
		}
		if err := failures.get(); err != nil {
			return fmt.Errorf("reading nodes, pods, quotas and claims: %w", err)
		}
		return fmt.Errorf("reading nodes, pods, quotas and claims: not finished in %s", syncTimeout)
	}
	err = work(ctx)
	if panicked := panicOf(ctx); panicked != nil {
		return panicked
	}
	return err
}

// panicOf returns the panic of an event handler that cancelled ctx, nil for none.
func panicOf(ctx context.Context) error {
	var panicked *engage.Failure
	if errors.As(context.Cause(ctx), &panicked) {
		return panicked
	}
	return nil
}

// handle connects the informers with the ledger. Each change of the ledger is a call of apply, which makes it.
func handle(nodes, pods, quotas, claims cache.SharedIndexInformer, ledger *usage.Ledger, apply func(func() bool)) ([]cache.InformerSynced, error) {
	ofNodes, err := nodes.AddEventHandler(engage.ObjectHandler(
		func(node *corev1.Node) { apply(func() bool { return ledger.SetNode(node) }) },
		func(node *corev1.Node) { apply(func() bool { return ledger.DeleteNode(node.Name) }) }))
	if err != nil {
		return nil, fmt.Errorf("watching nodes: %w", err)
	}
	ofPods, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { apply(func() bool { return ledger.SetRecord(object.(*usage.PodRecord)) }) },
		UpdateFunc: func(before, object any) {
			was, pod := before.(*usage.PodRecord), object.(*usage.PodRecord)
			if was.UID != pod.UID { // deleted and made again between two lists
				apply(func() bool { return ledger.DeletePod(was.UID) })
			}
			apply(func() bool { return ledger.SetRecord(pod) })
		},
		DeleteFunc: func(object any) {
			if pod, ok := engage.Object[*usage.PodRecord](object); ok {
				apply(func() bool { return ledger.DeletePod(pod.UID) })
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watching pods: %w", err)
	}
	ofQuotas, err := quotas.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { apply(func() bool { return ledger.SetQuota(object.(*corev1.ResourceQuota)) }) },
		UpdateFunc: func(before, object any) {
			was, quota := before.(*corev1.ResourceQuota), object.(*corev1.ResourceQuota)
			if was.UID != quota.UID || !sameOwner(was, quota) {
				apply(func() bool { return ledger.DeleteQuota(was) })
			}
			apply(func() bool { return ledger.SetQuota(quota) })
		},
		DeleteFunc: func(object any) {
			if quota, ok := engage.Object[*corev1.ResourceQuota](object); ok {
				apply(func() bool { return ledger.DeleteQuota(quota) })
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watching quotas: %w", err)
	}
	ofClaims, err := claims.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			apply(func() bool { return ledger.SetClaim(object.(*corev1.PersistentVolumeClaim)) })
		},
		UpdateFunc: func(before, object any) {
			was, claim := before.(*corev1.PersistentVolumeClaim), object.(*corev1.PersistentVolumeClaim)
			if was.UID != claim.UID { // deleted and made again between two lists
				apply(func() bool { return ledger.DeleteClaim(was.UID) })
			}
			apply(func() bool { return ledger.SetClaim(claim) })
		},
		DeleteFunc: func(object any) {
			if claim, ok := engage.Object[*corev1.PersistentVolumeClaim](object); ok {
				apply(func() bool { return ledger.DeleteClaim(claim.UID) })
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watching claims: %w", err)
	}
	return []cache.InformerSynced{ofNodes.HasSynced, ofPods.HasSynced, ofQuotas.HasSynced, ofClaims.HasSynced}, nil
}

// sameOwner returns whether two states of a quota are for the same namespace of a tenant.
func sameOwner(a, b *corev1.ResourceQuota) bool {
	ownerA, _ := tenancy.GetOwner(a)
	ownerB, _ := tenancy.GetOwner(b)
	return ownerA == ownerB
}

// trimNode keeps of a node what the ledger reads.
func trimNode(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	trimmed := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion, Labels: map[string]string{}},
		Spec:       corev1.NodeSpec{Unschedulable: node.Spec.Unschedulable, Taints: node.Spec.Taints},
		Status:     corev1.NodeStatus{Allocatable: node.Status.Allocatable},
	}
	for key, value := range node.Labels {
		if key != corev1.LabelHostname {
			// All nodes have much the same, and each came with texts of its own.
			trimmed.Labels[unique.Make(key).Value()] = unique.Make(value).Value()
		}
	}
	for i := range node.Status.Conditions {
		if condition := node.Status.Conditions[i]; condition.Type == corev1.NodeReady {
			trimmed.Status.Conditions = []corev1.NodeCondition{{Type: condition.Type, Status: condition.Status}}
		}
	}
	return trimmed, nil
}

// trimQuota keeps of a ResourceQuota its owner, what it answers, its limits and what it has charged.
func trimQuota(object any) (any, error) {
	quota, ok := object.(*corev1.ResourceQuota)
	if !ok {
		return object, nil
	}
	trimmed := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: quota.Namespace, Name: quota.Name, UID: quota.UID, ResourceVersion: quota.ResourceVersion},
		Spec:       corev1.ResourceQuotaSpec{Hard: quota.Spec.Hard},
		Status:     corev1.ResourceQuotaStatus{Hard: quota.Status.Hard, Used: quota.Status.Used},
	}
	for _, key := range [...]string{schedulerv1alpha1.AnnotationDecision, schedulerv1alpha1.AnnotationHoldsStorage} {
		if value := quota.Annotations[key]; value != "" {
			metav1.SetMetaDataAnnotation(&trimmed.ObjectMeta, key, value)
		}
	}
	if owner, ours := tenancy.GetOwner(quota); ours {
		tenancy.SetOwner(trimmed, owner)
	}
	return trimmed, nil
}

// trimClaim keeps of a PersistentVolumeClaim its owner and its size.
func trimClaim(object any) (any, error) {
	claim, ok := object.(*corev1.PersistentVolumeClaim)
	if !ok {
		return object, nil
	}
	trimmed := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: usage.Intern(claim.Namespace), Name: claim.Name, UID: claim.UID, ResourceVersion: claim.ResourceVersion},
	}
	trimmed.Spec.Resources.Requests = slice.Amounts{corev1.ResourceStorage: slice.Size(claim)}.List()
	if owner, ours := tenancy.GetOwner(claim); ours {
		tenancy.SetOwner(trimmed, owner)
	}
	return trimmed, nil
}

// lastError remembers why an informer could not list or watch.
type lastError struct {
	mu  sync.Mutex
	err error
}

func (l *lastError) record(ctx context.Context, reflector *cache.Reflector, err error) {
	l.mu.Lock()
	l.err = err
	l.mu.Unlock()
	cache.DefaultWatchErrorHandler(ctx, reflector, err)
}

func (l *lastError) get() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}
